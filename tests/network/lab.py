# SPDX-License-Identifier: Apache-2.0
"""The lab: an internet in namespaces, without any way to the real one.

    host ──uplink── net ──┬── allowed   45.10.0.10 … 45.10.0.19, 2a00:10::10     what policies allow
    the daemon's          ├── resolver  45.53.0.53                               the resolver it is configured with
    45.0.0.2              └── attacker  45.66.0.66 and every other address there is, private and special ones too

The host forwards and masquerades, as one with containers does: only the daemon's own measures keep anything in. `uplink` sees
every frame that leaves the host, wherever it goes; `loopback` sees what is sent to the host itself.
"""

import contextlib
import os
import socket
import time

import names
from netns import Namespace
from sites import Authority, Site
from wire import TCP, UDP, Capture

HOST, HOST6 = "45.0.0.2", "2a00:45::2"
ALLOWED, SECOND, THIRD, DEAD, ALLOWED6 = "45.10.0.10", "45.10.0.11", "45.10.0.12", "45.10.0.99", "2a00:10::10"
RESOLVER = "45.53.0.53"
ATTACKER, ATTACKER6 = "45.66.0.66", "2a00:66::66"
# Ports of the host's own services, which no sandbox may reach.
CANARY_PORTS = Site.HTTP + Site.TLS + Site.ECHO + Site.UDP
FENCE_PORT = 9

NAMES = {
    "allowed.test": [ALLOWED], "www.allowed.test": [ALLOWED], "second.allowed.test": [SECOND], "dual.allowed.test": [ALLOWED, ALLOWED6],
    "half.allowed.test": [ALLOWED, "2a00:10::dead"], "down.allowed.test": [DEAD], "refusing.allowed.test": [THIRD],
    "other.test": [THIRD], "internal.test": ["10.9.0.9"],
}
WILDCARDS = {"evil.test": ATTACKER}


class Lab:
    def __init__(self, directory):
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.callback(self.stack.close)
            self._build(directory)
            undo.pop_all()

    def _own(self, thing):
        self.stack.callback(thing.close)
        return thing

    def _build(self, directory):
        spaces = [self._own(Namespace.new(name)) for name in ("host", "net", "allowed", "resolver", "attacker")]
        self.host, self.net, self.allowed, self.resolver, self.attacker = spaces
        self._wire_up()
        self.authority = Authority(directory)
        self.uplink = self._own(Capture(self.net, "uplink", "what leaves the host"))
        self.at_attacker = self._own(Capture(self.attacker, "eth0"))
        self.at_resolver = self._own(Capture(self.resolver, "eth0"))
        self.at_allowed = self._own(Capture(self.allowed, "eth0"))
        self.loopback = self._own(Capture(self.host, "lo", "the host's loopback"))
        good = self.authority.issue("allowed", "allowed.test", "*.allowed.test", "*.hostile.test", "other.test")
        evil = self.authority.issue("evil", "evil.test", "*.evil.test")
        self.site = self._own(Site("allowed", self.allowed, good))
        self.evil_site = self._own(Site("attacker", self.attacker, evil))
        self.own_site = self._own(Site("host", self.host, evil))
        self.names = self._own(names.Resolver(self.resolver, RESOLVER, directory, NAMES, WILDCARDS))

    def close(self):
        self.stack.close()

    def _wire_up(self):
        self._cable("uplink", self.host, ["45.0.0.1/24", "2a00:45::1/64"], [f"{HOST}/24", f"{HOST6}/64"])
        self._cable("allowed", self.allowed, ["45.10.0.1/24", "2a00:10::1/64"],
                    [f"45.10.0.{n}/24" for n in range(10, 20)] + [f"{ALLOWED6}/64"])
        self._cable("resolver", self.resolver, ["45.53.0.1/24"], [f"{RESOLVER}/24"])
        self._cable("attacker", self.attacker, ["45.66.0.1/24", "2a00:66::1/64"], [f"{ATTACKER}/24", f"{ATTACKER6}/64"])
        for space in (self.net, self.host):
            space.set(ipv4__ip_forward=1, ipv6__conf__all__forwarding=1)
        self.net.set(ipv4__icmp_ratelimit=0)
        self.net.ip(f"route add default via {ATTACKER}", f"route add default via {ATTACKER6}")
        # Every address there is, is the attacker's: whatever leaks to a private or special range is seen, answered and written down.
        self.attacker.ip("route add 45.0.0.0/24 via 45.66.0.1", "route add 2a00:45::/64 via 2a00:66::1",
                         "route add local 0.0.0.0/1 dev lo table main", "route add local 128.0.0.0/1 dev lo table main",
                         "route add local ::/1 dev lo table main", "route add local 8000::/1 dev lo table main")
        self.host.run("nft", "-f", "-", input="table ip lab { chain out { type nat hook postrouting priority 100; oifname \"eth0\" masquerade; }; }")

    def _cable(self, name, space, near, far):
        """A veth from the net to `space`, where it is eth0 with the `far` addresses and the default route."""
        self.net.ip(f"link add {name} type veth peer name eth0 netns {space.path}", f"link set {name} addrgenmode none")
        space.ip("link set eth0 addrgenmode none")
        add = lambda addresses, link: [f"address add {a}{' nodad' * (':' in a)} dev {link}" for a in addresses]
        self.net.ip(*add([*near, "fe80::1/64"], name), f"link set {name} up")
        space.ip(*add([*far, "fe80::2/64"], "eth0"), "link set eth0 up")
        space.ip(*[f"route add default via {a.partition('/')[0]}" for a in near])

    def fence(self):
        """Everything that was sent before is seen when this returns."""
        token = b"fence-" + os.urandom(8).hex().encode()
        marks = [capture.mark() for capture in (self.uplink, self.at_attacker, self.loopback)]
        with self.host, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(token, (ATTACKER, FENCE_PORT))
            sock.sendto(token, ("127.0.0.1", FENCE_PORT))
        for capture, mark in zip((self.uplink, self.at_attacker, self.loopback), marks):
            capture.wait_for(token, mark)

    def settle(self):
        """Connections of a test that is over have ended at both ends: no last frame of theirs comes into the next one's watch."""
        deadline = time.monotonic() + 60
        while any(site.open for site in (self.site, self.evil_site, self.own_site)):
            assert time.monotonic() < deadline, "connections to a site are left"
            time.sleep(0.01)

    def watch(self):
        return Watch(self)


def is_fence(frame):
    return frame.protocol == UDP and frame.dport == FENCE_PORT and frame.payload.startswith(b"fence-")


class Watch:
    """What happened on the wires between start and end of a `with` block."""

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        lab = self.lab
        lab.fence()
        self.marks = {name: getattr(lab, name).mark() for name in (
            "uplink", "at_attacker", "loopback", "site", "evil_site", "own_site", "names")}
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.look()

    def look(self):
        """Takes in what came so far; also at the end of the block."""
        lab = self.lab
        lab.fence()
        self.left = [f for f in lab.uplink.since(self.marks["uplink"]) if not is_fence(f)]
        self.at_attacker = [f for f in lab.at_attacker.since(self.marks["at_attacker"]) if not is_fence(f)]
        self.to_host = [f for f in lab.loopback.since(self.marks["loopback"])
                        if not is_fence(f) and f.protocol in (TCP, UDP) and f.dport in CANARY_PORTS]
        self.visits = lab.site.since(self.marks["site"])
        self.attacker_visits = lab.evil_site.since(self.marks["evil_site"])
        self.host_visits = lab.own_site.since(self.marks["own_site"])
        self.queries = lab.names.asked(self.marks["names"])
        return self

    @property
    def asked_names(self):
        return {q.name for q in self.queries}

    @property
    def destinations(self):
        """(address, port) of every TCP and UDP frame that left the host; the resolver's port 53 apart."""
        return {(f.dst, f.dport) for f in self.left if (f.dst, f.dport) != (RESOLVER, 53)}

    def assert_attacker_saw_nothing(self):
        assert not self.at_attacker, self.at_attacker
        assert not self.attacker_visits, self.attacker_visits
        assert not self.to_host, self.to_host
        assert not self.host_visits, self.host_visits

    def assert_only(self, destinations=(), names=()):
        """Nothing left the host but for flows to `destinations` and questions for `names` to the configured resolver."""
        self.assert_attacker_saw_nothing()
        others = [f for f in self.left if (f.dst, f.dport) not in set(destinations) | {(RESOLVER, 53)}]
        assert not others, others
        assert self.asked_names <= set(names), self.asked_names
        if not names:
            assert not [f for f in self.left if f.dst == RESOLVER], self.left

    def assert_silent(self):
        self.assert_only()

    def assert_secret_stayed(self, secret):
        """Not even in part of a frame to anywhere; names may have come in mixed case."""
        found = [f for f in self.left + self.to_host if secret.lower() in f.data.lower()]
        assert not found, found
