# SPDX-License-Identifier: Apache-2.0
"""internetAccess and allowedHosts of the Lizard dialect, on the wire."""

import pytest

from client import Api
from lab import ALLOWED, ATTACKER, SECOND, THIRD
from networked import CA, Networked


@pytest.fixture
def lizard(daemon, tier, lab):
    made = daemon.new_key(f"lizard-net-{tier}", default_runtime=tier)
    api = Api(daemon.url, made["key"], place=daemon.place)
    ids = []

    def create(**fields):
        answer = api.request("POST", "/api/sandboxes", json={"template": "base", "size": "nano", "timeoutMs": 300_000, **fields})
        if answer.status_code not in (200, 201):
            return answer
        ids.append(answer.json()["sandboxId"])
        box = Networked(api, api.call("GET", f"/v1/sandboxes/{ids[-1]}"))
        box.prepare(lab, tier)
        box.lizard = api.request("GET", f"/api/sandboxes/{ids[-1]}").json()
        assert box.lizard["internetAccess"] == answer.json()["internetAccess"] and box.lizard["allowedHosts"] == answer.json()["allowedHosts"]
        return box

    yield create
    for sandbox in ids:
        api.request("DELETE", f"/api/sandboxes/{sandbox}")
    lab.settle()
    daemon.admin.call("DELETE", f"/v1/keys/{made['id']}")


def tls(name, address=ALLOWED):
    return {"op": "tls", "to": [address, 443], "sni": name, "verify": CA, "request": f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"}


def echo(address, port=7777):
    return {"op": "tcp", "to": [address, port], "send": "ping\n", "until": "ping\n"}


def test_no_internet_means_none(lizard, lab):
    box = lizard(internetAccess=False)
    assert box.lizard["internetAccess"] is False and box.lizard["allowedHosts"] == []
    with lab.watch() as seen:
        results = box.attempt(tls("allowed.test"), tls("evil.test", ATTACKER), echo(SECOND), {"op": "resolve", "name": "allowed.test"},
                              {"op": "udp", "to": [ATTACKER, 9999], "send": "leak", "timeout": 1})
    assert not any(r.get("handshake") or r.get("received") or r.get("addresses") for r in results), results
    seen.assert_silent()


def test_what_is_said_without_a_word_about_the_network_is_true(lizard, lab):
    box = lizard()
    with lab.watch():
        result = box.one(**tls("allowed.test"))
    assert bool(result.get("handshake")) is box.lizard["internetAccess"], (box.lizard, result)


def test_allowed_hosts_names_wildcards_addresses_and_blocks(lizard, lab):
    hosts = ["allowed.test", "*.allowed.test", SECOND, "45.10.0.12/31"]
    box = lizard(internetAccess=False, allowedHosts=hosts)
    assert box.lizard["internetAccess"] is False and box.lizard["allowedHosts"] == hosts
    http = {"op": "http", "url": "http://www.allowed.test/"}
    with lab.watch() as seen:
        good = box.attempt(tls("allowed.test"), tls("second.allowed.test"), http, echo(SECOND), echo(SECOND, 22), echo(THIRD), echo("45.10.0.13", 25))
        bad = box.attempt(tls("evil.test", ATTACKER), echo(ALLOWED), echo("45.10.0.14"), echo(ATTACKER), tls("other.test"), {"op": "resolve", "name": "evil.test"},
                          {"op": "http", "url": "http://169.254.169.254/"}, echo("10.9.0.9"))
    for result in good:
        text = result.get("received", "")
        assert '"site": "allowed"' in text or text == "220 allowed\r\nping\n", result
    for result in bad:
        assert not result.get("handshake") and not result.get("addresses") and '"site"' not in result.get("received", ""), result
        assert "220 " not in result.get("received", ""), result
    assert {n for n in seen.asked_names} <= {"allowed.test", "second.allowed.test", "www.allowed.test"}
    seen.assert_attacker_saw_nothing()


def test_addresses_alone_keep_names_closed(lizard, lab):
    box = lizard(internetAccess=False, allowedHosts=[SECOND])
    with lab.watch() as seen:
        good, name = box.attempt(echo(SECOND), {"op": "resolve", "name": "allowed.test"})
    assert good["received"] == "220 allowed\r\nping\n", good
    assert name["error"] and not seen.queries, (name, seen.queries)


@pytest.mark.parametrize("hosts", [["*"], ["allowed.*"], ["https://allowed.test"], [""], ["10.0.0.0/8"], ["169.254.169.254"], ["a b"],
                                   [f"h{n}.test" for n in range(51)], "allowed.test"], ids=str)
def test_bad_allowed_hosts_are_refused(lizard, hosts):
    answer = lizard(internetAccess=False, allowedHosts=hosts)
    assert getattr(answer, "status_code", 201) == 400, answer
    assert answer.json()["code"] == "INVALID_ARGUMENT", answer.text
