# SPDX-License-Identifier: Apache-2.0
"""Packages come through the registry proxy by policy, from the registries that the host's own clients use."""

import pytest

from client import check_error, eventually

PRESET = {"presets": ["python-packages"]}


def log_of(box):
    return box.api.request("GET", f"{box.path}/packages?limit=1000").json()["packages"]


def set_policy(box, policy):
    return box.api.request("PUT", f"{box.path}/network", json=policy)


@pytest.fixture
def box(create):
    box = create(network=PRESET, lifetime_ms=300_000)
    probe = box.run("python3 -m pip download -q --no-deps -d /tmp/probe six", timeout_ms=120_000)
    outcomes = {entry["outcome"] for entry in log_of(box)}
    if probe["outcome"].get("exit_code") != 0 and outcomes == {"failed"}:
        pytest.skip(f"no package registry answers here: {probe['stderr'][-300:]}")
    assert probe["outcome"]["exit_code"] == 0, probe
    return box


def test_an_allowed_package_installs_and_others_say_why_not(box):
    assert "Successfully installed six" in box.ok("python3 -m pip install six", timeout_ms=120_000)
    assert box.ok("python3 -c 'import six; print(six.__name__)'") == "six\n"
    assert set_policy(box, {**PRESET, "packages": {"deny": ["idna"]}}).status_code == 200
    denied = box.run("python3 -m pip install idna", timeout_ms=120_000)
    assert denied["outcome"]["exit_code"] != 0 and "packages.deny[0]" in denied["stdout"] + denied["stderr"]
    assert set_policy(box, {**PRESET, "packages": {"minimum_age_hours": 87_600}}).status_code == 200
    young = box.run("python3 -m pip install certifi==2024.2.2", timeout_ms=120_000)
    assert young["outcome"]["exit_code"] != 0
    assert "packages.minimum_age_hours" in (young["stdout"] + young["stderr"]).replace("packages.minimum.age.hours", "packages.minimum_age_hours")
    wanted = {("six", None), ("idna", "packages.deny[0]"), ("certifi", "packages.minimum_age_hours")}
    seen = lambda e: (e["package"], None if e["outcome"] == "served" and e["file"] else e["rule"])
    eventually(lambda: wanted <= {seen(e) for e in log_of(box)}, what="all is in the log")
    entries = log_of(box)
    served = [e for e in entries if e["package"] == "six" and e["outcome"] == "served" and e["file"]]
    assert served and len(served[0]["sha256"]) == 64 and served[0]["version"]
    assert {e["rule"] for e in entries if e["package"] == "idna"} == {"packages.deny[0]"}
    assert "packages.minimum_age_hours" in {e["rule"] for e in entries if e["package"] == "certifi"}
    assert [int(e["cursor"]) for e in entries] == sorted({int(e["cursor"]) for e in entries})


def test_nothing_but_packages_passes(box):
    refused = box.run("python3 - <<'E'\nimport socket\nfor host in ('example.com', 'pypi.example', 'glovebox.internal'):\n"
                      "    try: print(host, socket.getaddrinfo(host, 80))\n    except OSError as e: print(host, 'refused')\nE")
    assert refused["stdout"] == "example.com refused\npypi.example refused\nglovebox.internal refused\n"
    assert "egress_denied" in box.run(["curl", "-s", "-m", "60", "http://198.18.0.1/"])["stdout"]
    noted = lambda: box.run("cat /run/glovebox/denials.jsonl")["stdout"]
    eventually(lambda: '"default:allowlist"' in noted() and "example.com" in noted(), what="the denial is told inside")


def test_a_sandbox_without_a_policy_has_no_way_out(create):
    box = create()
    info = box.refresh()
    assert info["network"] == {"egress": "none", "link": False, "address": None}
    assert box.run("curl -sS -m 5 http://198.18.0.1/")["outcome"]["exit_code"] != 0
    state = box.api.request("GET", f"{box.path}/network").json()
    assert state["policy"] is None and state["effective"] == {"egress": "none"}
    check_error(set_policy(box, {"egress": "open"}), 409, "conflict")


@pytest.mark.parametrize("policy, field", [
    ({"egress": "all"}, "network.egress"), ({"allow": [{"host": "*"}]}, "network.allow[0].host"), ({"presets": ["nothing"]}, "network.presets"),
    ({"egress": "none", "allow": [{"host": "a.example"}]}, "network.allow"), ({"allow": [{"cidr": "10.0.0.0/8"}]}, "network.allow[0].cidr"),
    ({"packages": {"deny": ["=="]}}, "network.packages"), ({"surprise": 1}, "network.surprise"),
])
def test_a_wrong_policy_is_refused_by_field(api, policy, field):
    answer = api.request("POST", "/v1/sandboxes", json={"network": policy})
    error = check_error(answer, 400, "invalid_argument")
    assert error["details"]["field"].startswith(field), error


def test_policies_are_live_and_links_go_with_their_sandboxes(create):
    box = create(network={"egress": "none"})
    assert box.refresh()["network"]["link"] is True
    answer = set_policy(box, {"allow": [{"host": "a.example"}], "limits": {"connections": 7}}).json()
    assert answer["policy"]["allow"][0]["host"] == "a.example"
    assert [rule["name"] for rule in answer["effective"]["allow"]] == ["allow[0]"]
    assert box.refresh()["network"]["egress"] == "allowlist"
    box.kill()
    assert box.refresh()["network"] == {"egress": "allowlist", "link": False, "address": None}


def test_presets_are_listed_with_their_rules(api):
    presets = {p["name"]: p for p in api.request("GET", "/v1/network/presets").json()["presets"]}
    assert {"python-packages", "node-packages"} <= presets.keys()
    assert presets["python-packages"]["policy"]["packages"]["registries"] == ["pypi"]


def test_a_tenant_has_a_default_of_its_own(api, create):
    try:
        assert api.call("PUT", "/v1/network/default", json={"allow": [{"host": "a.example"}]})["policy"]["allow"][0]["host"] == "a.example"
        assert create().refresh()["network"]["egress"] == "allowlist"
        assert create(network={"egress": "none"}).refresh()["network"]["egress"] == "none"
    finally:
        assert api.call("DELETE", "/v1/network/default") == {"policy": None}
    assert create().refresh()["network"] == {"egress": "none", "link": False, "address": None}
