# SPDX-License-Identifier: Apache-2.0
"""A sandbox with a link: attempts from inside, its log, its policy, and its link as root of the host sees it."""

import base64
import contextlib
import json
import os
import pathlib

import host
from client import Sandbox, check_error, eventually
from lab import RESOLVER
from netns import Namespace

PROBE = pathlib.Path(__file__).parent / "guest/probe.py"
CA = "/tmp/ca.pem"
PACKAGES, DNS = "10.200.0.1", "10.200.0.2"  # the server's own addresses on every link

NONE = {"egress": "none"}
OPEN = {"egress": "open"}
ALLOWED_ONLY = {"egress": "allowlist", "allow": [{"host": "allowed.test", "ports": [80, 443]}]}

# An internal service at an address that the floor forbids, opened by the operator.
SETTINGS = f'''[network]
resolvers = ["{RESOLVER}:53"]
internal = [{{ host = "service.internal.test", cidr = "10.20.0.20/32", ports = [80] }}]
'''


def allowing(*rules, **fields):
    return {"egress": "allowlist", "allow": list(rules), **fields}


def b64(data):
    return base64.b64encode(data).decode()


def received(result):
    return base64.b64decode(result.get("received_b64", ""))


class Networked(Sandbox):
    @classmethod
    def create(cls, api, lab, tier, policy, **spec):
        info = api.call("POST", "/v1/sandboxes", expect=201,
                        json={"runtime": tier, "lifetime_ms": 600_000, "network": policy, **spec})
        box = cls(api, info)
        box.prepare(lab, tier)
        return box

    def prepare(self, lab, tier):
        self.lab, self.tier = lab, tier
        self._namespace = None
        self.put("/tmp/probe.py", PROBE.read_bytes())
        self.put(CA, lab.authority.certificate.read_bytes())

    def close(self):
        if self._namespace:
            self._namespace.close()
        self.kill()

    @property
    def address(self):
        return self.info["network"]["address"]

    @property
    def gateway(self):
        """The other end of the /31."""
        head, _, last = self.address.rpartition(".")
        return f"{head}.{int(last) ^ 1}"

    # Attempts from inside --------------------------------------------------------------------------------------------
    def attempt(self, *tasks, seconds=200):
        """The results of tasks for guest/probe.py, all done at once."""
        return self.begin(*tasks)(seconds)

    def begin(self, *tasks):
        """Starts tasks; call what it returns for the results."""
        name = f"/tmp/probe-{os.urandom(4).hex()}"
        self.put(name + ".tasks", json.dumps(tasks).encode())
        run = self.start(["python3", "/tmp/probe.py", name + ".tasks", name + ".results"])

        def finish(seconds=200):
            done = run.wait(int(seconds * 1000))
            assert done["exit_code"] == 0, run.raw().content.decode(errors="replace")
            results = json.loads(self.get(name + ".results"))
            assert len(results) == len(tasks)
            return results

        return finish

    def one(self, **task):
        return self.attempt(task)[0]

    def quickest(self, **task):
        """The quickest of three: what a busy machine adds to a time is not what is tested."""
        return min(self.one(op="series", count=3, task=task)["results"], key=lambda result: result["ms"])

    def tell(self, path):
        """Tasks wait for such a file, or run until it is there."""
        self.put(path, b"")

    def curl(self, *arguments):
        """(exit code, standard output) of curl with the lab's authority."""
        done = self.run(["curl", "-sS", "--max-time", "60", "--cacert", CA, *arguments])
        return done["exit_code"], done["stdout"]

    # What the server says -----------------------------------------------------------------------------------------------
    def network(self):
        return self.api.call("GET", self.path + "/network")

    def set_policy(self, policy):
        return self.api.call("PUT", self.path + "/network", json=policy)

    def log(self):
        """Every entry of the connection log so far, oldest first."""
        entries, cursor = [], None
        while True:
            query = "?limit=500" + (f"&cursor={cursor}" if cursor else "")
            page = self.api.call("GET", f"{self.path}/network/connections{query}")
            entries += page["connections"]
            if not page["connections"] or page["next_cursor"] in (None, cursor):
                return entries
            cursor = page["next_cursor"]

    def logged(self, seconds=30, **fields):
        """The entries with these fields, once there is one. A function as value is asked."""
        fits = lambda entry: all(v(entry.get(k)) if callable(v) else entry.get(k) == v for k, v in fields.items())
        try:
            return eventually(lambda: [e for e in self.log() if fits(e)], seconds, "it is in the log")
        except AssertionError:
            raise AssertionError(f"no entry with {fields} in {json.dumps(self.log(), indent=1)[-3000:]}") from None

    def denials(self):
        """What the sandbox itself can read of its refusals; nothing before the first one."""
        path = "/run/glovebox/denials.jsonl"
        return [json.loads(line) for line in self.get(path).splitlines()] if self.exists(path) else []

    # The link, as root of the host ---------------------------------------------------------------------------------------
    def pids(self):
        found = {int(pid) for path in host.cgroups([self.id]) for pid in host.read(os.path.join(path, "cgroup.procs")).split()}
        assert found, "the sandbox has no process in a cgroup of its name"
        return found

    @property
    def namespace(self):
        """The network namespace that holds the sandbox's end of the link."""
        if not self._namespace:
            for pid in sorted(self.pids()):
                with contextlib.suppress(OSError):
                    find = Namespace.of_tap if self.tier == "microvm" else Namespace.of_process
                    space = find(pid, f"link of {self.id}")
                    others = (os.stat("/proc/self/ns/net").st_ino, self.lab.host.identity)  # a program on its way into the sandbox
                    if space.identity not in others and space.run("ip", "link", "show", "eth0", check=False):
                        self._namespace = space
                        break
                    space.close()
        assert self._namespace, "no process of the sandbox is in a network namespace with an eth0"
        return self._namespace

    def router_mac(self):
        """The address of the router's end, learnt as every neighbour learns it."""
        with self.namespace:
            entry = self.namespace.run("ip", "neigh", "show", "dev", "eth0")
        return next((line.split()[line.split().index("lladdr") + 1] for line in entry.splitlines() if "lladdr" in line), None)


def first_refusal(api, tier, policy):
    response = api.request("POST", "/v1/sandboxes", json={"runtime": tier, "network": policy})
    if response.status_code == 201:
        api.call("DELETE", f"/v1/sandboxes/{response.json()['id']}")
    return check_error(response, 400, "invalid_argument")
