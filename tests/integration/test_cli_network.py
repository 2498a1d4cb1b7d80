# SPDX-License-Identifier: Apache-2.0
"""The command line's network options and commands against a real daemon (docs/reference/cli.md)."""

import json
import subprocess

import pytest

from client import eventually
from daemon import find_program
from test_cli import Cli, cli, lonely  # noqa: F401

DENIED = "http://20.9.9.9/path"  # no route there is needed: it is refused before anything is dialled


@pytest.fixture
def box(cli, tier):  # noqa: F811
    """Makes sandboxes with the options given; all are ended after the test."""
    made = []

    def make(*options):
        made.append(cli.ok("create", "--runtime", tier, *options).strip())
        return made[-1]

    yield make
    for sandbox in made:
        cli.run("kill", sandbox)


def knock(cli, sandbox):  # noqa: F811
    """An attempt from inside that no policy here allows; gives the answer of the egress proxy."""
    return cli.ok("exec", sandbox, "--", "curl", "-s", "--max-time", "60", "-H", "Host: denied.example", DENIED)


def logged(cli, sandbox):  # noqa: F811
    lines = cli.ok("--json", "connections", sandbox).splitlines()
    return [e for e in map(json.loads, lines) if e["verdict"] == "denied" and e["host"] == "denied.example"]


def test_the_options_become_the_policy(cli, box):  # noqa: F811
    sandbox = box("--allow", "api.example.com", "--allow", "db.example.com:443,5432", "--allow-cidr", "20.30.0.0/16:22",
                  "--deny", "*.evil.example", "--deny", "20.30.9.0/24", "--preset", "github", "--preset", "python-packages")
    policy = cli.json("network", sandbox)["policy"]
    assert policy["egress"] == "allowlist" and policy["presets"] == ["github", "python-packages"]
    destinations = [(r.get("host", r.get("cidr")), r.get("ports"), r.get("protocols")) for r in policy["allow"]]
    assert destinations == [("api.example.com", None, None), ("db.example.com", [443], None), ("db.example.com", [5432], ["tcp"]),
                            ("20.30.0.0/16", [22], ["tcp"])]
    assert [r.get("host", r.get("cidr")) for r in policy["deny"]] == ["*.evil.example", "20.30.9.0/24"]


def test_without_options_there_is_no_network(cli, box):  # noqa: F811
    sandbox = box()
    shown = cli.json("network", sandbox)
    assert shown["policy"] is None and shown["link"] is False
    assert "no link" in cli.ok("network", sandbox) and "no link" in cli.ok("info", sandbox)


def test_a_policy_is_shown_set_live_and_read_from_a_file(cli, box, tmp_path):  # noqa: F811
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"allow": [{"host": "one.example"}], "limits": {"connections": 7}}))
    second.write_text(json.dumps({"allow": [{"host": "two.example"}]}))
    sandbox = box("--network", first)
    text = cli.ok("network", sandbox)
    assert "one.example" in text and "7 connections" in text and "allow[0]" in text
    assert cli.json("network", sandbox)["address"] in text
    assert "two.example" in cli.ok("network", sandbox, "--set", second)
    assert cli.json("network", sandbox)["policy"]["allow"] == [{"host": "two.example"}]
    plain = box()
    refused = cli.run("network", plain, "--set", second)
    assert refused.returncode == 125 and b"conflict" in refused.stderr


def test_connections_shows_what_was_refused_and_why(cli, box):  # noqa: F811
    sandbox = box("--egress", "none")
    assert json.loads(knock(cli, sandbox))["code"] == "egress_denied"
    entry = eventually(lambda: logged(cli, sandbox), 10, "the refusal is in the log")[0]
    assert entry["rule"] == "default:none" and entry["cursor"]
    line = next(l for l in cli.ok("connections", sandbox).splitlines() if "denied.example" in l)
    assert "denied" in line and "http" in line and "default:none" in line


def test_following_goes_on_until_the_sandbox_has_ended(cli, box):  # noqa: F811
    sandbox = box("--egress", "none")
    follower = cli.start("--json", "connections", sandbox, "--follow", stdout=subprocess.PIPE)
    try:
        knock(cli, sandbox)
        while json.loads(follower.stdout.readline())["host"] != "denied.example":
            pass
        cli.ok("kill", sandbox)
        rest = follower.communicate(timeout=90)[0]
        assert follower.returncode == 0, rest
    finally:
        follower.kill()


def test_packages_names_every_request_of_the_registry_proxy(cli, box):  # noqa: F811
    sandbox = box("--preset", "python-packages")
    assert cli.ok("packages", sandbox) == ""
    cli.run("exec", sandbox, "--", "sh", "-c", "curl -s -o /dev/null http://packages.glovebox.internal/npm/left-pad")
    entries = eventually(lambda: cli.ok("--json", "packages", sandbox).splitlines(), 10, "the request is in the log")
    assert json.loads(entries[0])["outcome"] == "denied", entries
    assert "denied" in cli.ok("packages", sandbox) and "left-pad" in cli.ok("packages", sandbox)


def test_presets(cli):  # noqa: F811
    listed = {p["name"]: p for p in cli.json("presets")["presets"]}
    assert {"python-packages", "node-packages", "github"} <= set(listed)
    text = cli.ok("presets")
    assert all(name in text for name in listed)


@pytest.mark.parametrize("options, status, said", [
    (["--egress", "some"], 120, b"--egress"),
    (["--allow", "10.0.0.1"], 120, b"--allow-cidr"),
    (["--allow", "a.example:http"], 120, b"port"),
    (["--network", "/nonexistent.json"], 120, b"/nonexistent.json"),
    (["--network", "/etc/hostname", "--egress", "none"], 120, b"--"),
    (["--allow", "a.*.example"], 125, b"network.allow[0].host"),
    (["--preset", "everything"], 125, b"network.presets: item 0 is no preset"),
    (["--egress", "none", "--allow", "a.example"], 125, b"network.allow"),
    (["--allow-cidr", "10.0.0.0/8"], 125, b"network.allow[0]"),
], ids=str)
def test_what_is_wrong_is_said_and_makes_nothing(cli, daemon, options, status, said):  # noqa: F811
    before = set(daemon.live_ids())
    for command in (["create"], ["run"]):
        done = cli.run(*command, *options, *(["--", "true"] if command == ["run"] else []))
        assert done.returncode == status and said in done.stderr, done
    assert set(daemon.live_ids()) <= before


@pytest.mark.parametrize("command", ["network", "connections", "packages"])
def test_unknown_sandboxes_have_the_usual_status(cli, command):  # noqa: F811
    done = cli.run(command, "sb-unknown")
    assert done.returncode == 121 and b"sandbox_not_found" in done.stderr


def test_run_reaches_nothing_that_was_not_allowed(cli, tier):  # noqa: F811
    done = cli.run("run", "--runtime", tier, "--allow", "api.example.com", "--", "curl", "-s", "-H", "Host: denied.example", DENIED)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["rule"] == "default:allowlist"


def test_doctor_says_whether_sandboxes_can_have_a_network(cli):  # noqa: F811
    found = cli.json("doctor")["network"]
    assert found["enabled"] and found["works"] and found["problem"] == "", found
    assert "network  links, packet filter and both proxies" in cli.ok("doctor")


def test_doctor_says_when_the_network_is_switched_off(make_daemon):
    off = Cli(make_daemon(config="[network]\nenabled = false\n").data_dir)
    found = off.json("doctor")["network"]
    assert not found["enabled"] and not found["works"]
    assert "off      network" in off.ok("doctor")
    done = off.run("run", "--egress", "open", "--", "true")
    assert done.returncode == 125 and b"network.enabled" in done.stderr, done


def test_doctor_says_how_to_get_what_is_missing_and_leaves_nothing(lonely, tmp_path):  # noqa: F811
    """Without nft, which is in /usr/sbin: a mount namespace of the test's own hides that directory."""
    empty = tmp_path / "empty"
    empty.mkdir()
    hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$1" /usr/sbin && shift && exec "$@"', "sh", empty]
    done = subprocess.run([*hidden, find_program(), "--json", "doctor"], env=lonely.env, capture_output=True, timeout=300)
    found = json.loads(done.stdout)["network"]
    assert found == {"enabled": True, "works": False, "problem": "networks need nftables: install the package nftables",
                     "remedy": "apt-get install nftables", "links": 0, "ready_links": 0}
