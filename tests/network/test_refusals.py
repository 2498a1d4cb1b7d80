# SPDX-License-Identifier: Apache-2.0
"""A refusal says what was refused and by which rule, to programs and to people, and looks unlike a network fault: E15."""

import json

import hello
from client import eventually
from lab import ALLOWED, ATTACKER, DEAD, THIRD
from networked import ALLOWED_ONLY, CA, NONE, allowing, b64, received

FIELDS = {"code", "host", "rule", "how_to_allow"}


def refusal_in(text):
    head, _, body = text.partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    assert status.startswith("HTTP/1.1 403 "), status
    assert any(h.lower().replace(" ", "").startswith("content-type:application/json") for h in headers), headers
    return json.loads(body)


def test_e15_over_http_it_is_json(networked, lab):
    box = networked(ALLOWED_ONLY)
    result = box.quickest(op="tcp", to=[ATTACKER, 80], send="GET /x HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
    body = refusal_in(result["received"])
    for part in (body, body["error"]):
        assert FIELDS <= set(part), part
        assert part["code"] == "egress_denied" and part["host"] == "evil.test" and part["rule"] == "default:allowlist", part
        assert "allow" in part["how_to_allow"]
    assert "evil.test" in body["error"]["message"]
    assert result["ms"] < 1000


def test_e15_over_http_to_every_kind_of_request(networked, lab):
    box = networked(ALLOWED_ONLY)
    heads = {"HEAD / HTTP/1.1\r\nHost: evil.test\r\n\r\n": False, "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n": True,
             "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n": True, "GET / HTTP/1.0\r\nHost: evil.test\r\n\r\n": True,
             "POST / HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 200000\r\n\r\n" + "x" * 200_000: True,
             "POST / HTTP/1.1\r\nHost: evil.test\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n": True}
    results = box.attempt(*[{"op": "tcp", "to": [ATTACKER, 80], "send": head, "idle": 3} for head in heads])
    for (head, has_body), result in zip(heads.items(), results):
        assert result["received"].startswith("HTTP/1.1 403 "), (head[:60], result)
        assert not has_body or refusal_in(result["received"])["host"] == "evil.test"
        assert has_body or not result["received"].partition("\r\n\r\n")[2]


def test_e15_curl_and_python_show_it(networked, lab):
    box = networked(ALLOWED_ONLY)
    lab_host = "www.allowed.test"  # not in the policy, and resolves
    code, text = box.curl("--resolve", f"{lab_host}:80:{ALLOWED}", f"http://{lab_host}/")
    assert code == 0 and json.loads(text)["rule"] == "default:allowlist", (code, text)
    done = box.run(["curl", "-sS", "--max-time", "60", "--cacert", CA, "--resolve", f"{lab_host}:443:{ALLOWED}", f"https://{lab_host}/"])
    assert done["exit_code"] == 35 and "denied" in done["stderr"].lower(), done
    done = box.run(["curl", "-sS", "--max-time", "60", f"https://{lab_host}/"])
    assert done["exit_code"] == 6, done  # the name is not resolved: at once, without a timeout


def test_e15_over_tls_it_is_alert_49_and_no_certificate(networked, lab):
    box = networked(ALLOWED_ONLY)
    result = box.one(op="tcp", to=[ATTACKER, 443], pieces_b64=[b64(hello.records(hello.client_hello("evil.test")))])
    data = received(result)
    assert data[:1] == b"\x15" and data[3:] == b"\0\2\2\x31" and result["end"] == "eof", result
    assert box.one(op="tls", to=[ATTACKER, 443], sni="evil.test", request="x")["error"] == "alert 49"


def test_e15_other_tcp_is_reset_and_names_are_refused(networked, lab):
    box = networked(ALLOWED_ONLY)
    result = box.quickest(op="tcp", to=[ATTACKER, 7777], send="x")
    name = box.quickest(op="resolve", name="evil.test")
    assert "ECONNRESET" in (result.get("error"), result.get("end"), result.get("broken")) or result["error"] == "ECONNREFUSED", result
    assert result["ms"] < 1000 and name["ms"] < 1000


def test_e15_a_network_fault_looks_different(networked, lab):
    """Allowed, but the network beyond fails: "failed", never "denied"."""
    rules = [{"host": h} for h in ("down.allowed.test", "refusing.allowed.test", "nothing.test")]
    box = networked(allowing(*rules, {"host": "refusing.allowed.test", "ports": [8888], "protocols": ["http"]},
                             {"cidr": f"{THIRD}/32", "ports": [9], "protocols": ["tcp"]}, {"host": "allowed.test"}))
    web = lambda host, port=80, **fields: {"op": "tcp", "to": [ALLOWED, port], "send": f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", "timeout": 60, **fields}
    tls = lambda host: {"op": "tls", "to": [ALLOWED, 443], "sni": host, "request": "x", "timeout": 60}
    down, refusing, nothing, tls_down, tls_nothing, raw = box.attempt(
        web("down.allowed.test"), web("refusing.allowed.test:8888", 8888), web("nothing.test"), tls("down.allowed.test"), tls("nothing.test"),
        {"op": "tcp", "to": [THIRD, 9], "send": "x", "timeout": 60})
    for result in (down, refusing, nothing):
        status = result["received"].split(" ")[1]
        assert status in ("502", "504"), result
        assert "egress_denied" not in result["received"] and json.loads(result["received"].partition("\r\n\r\n")[2])["error"]["code"], result
    for result in (tls_down, tls_nothing):
        assert not result.get("handshake") and result["error"] not in ("alert 49", "timeout"), result
    assert not raw["bytes"] if raw["ok"] else raw["error"] in ("ECONNRESET", "ECONNREFUSED"), raw
    for host in ("down.allowed.test", "refusing.allowed.test", "nothing.test"):
        entries = box.logged(host=host, verdict="failed")
        assert entries[0]["reason"] and "how_to_allow" not in entries[0], entries
    assert not [e for e in box.log() if e["verdict"] == "denied"]
    assert DEAD in {e["address"] for e in box.log()}


def test_e15_the_sandbox_can_read_its_denials(networked, lab):
    box = networked(ALLOWED_ONLY)
    box.attempt({"op": "tls", "to": [ATTACKER, 443], "sni": "evil.test", "request": "x"}, {"op": "resolve", "name": "secret.evil.test"},
                {"op": "tcp", "to": ["10.9.0.9", 7777], "send": "x", "timeout": 1}, {"op": "http", "url": "http://allowed.test/"})
    wanted = {("connection", "evil.test"), ("dns", "secret.evil.test"), ("connection", "")}
    entries = eventually(lambda: (d := box.denials()) and wanted <= {(e["kind"], e.get("host", "")) for e in d} and d, 30, "the file has all three")
    assert all(e["verdict"] == "denied" and e["rule"] and e["reason"] and e["how_to_allow"] for e in entries), entries
    assert box.ok("cat /run/glovebox/denials.jsonl | head -c 1") == "{"
    assert not [e for e in entries if e.get("host") == "allowed.test"]


def test_e15_an_execution_is_not_told_of_others_denials(networked, lab):
    first, second = networked(NONE), networked(NONE)
    first.one(op="tls", to=[ATTACKER, 443], sni="only-first.evil.test", request="x")
    first.logged(host="only-first.evil.test")
    assert "only-first" not in json.dumps(second.log())
    assert "only-first" not in second.run("cat /run/glovebox/denials.jsonl")["stdout"]


def test_e15_the_log_has_a_cursor_and_every_entry_its_fields(networked, lab):
    box = networked(ALLOWED_ONLY)
    box.attempt(*[{"op": "resolve", "name": f"n{n}.evil.test"} for n in range(5)], {"op": "http", "url": "http://allowed.test/"},
                {"op": "tls", "to": [ATTACKER, 443], "sni": "evil.test", "request": "x"})
    box.logged(host="allowed.test", phase="close")
    box.logged(host="evil.test", kind="connection")
    for n in range(5):
        box.logged(host=f"n{n}.evil.test")
    entries = box.log()
    for entry in entries:
        assert entry["sandbox"] == box.id and entry["cursor"] and entry["time_ms"] > 1_600_000_000_000
        assert entry["kind"] in ("connection", "dns", "packet", "request") and entry["verdict"] in ("allowed", "denied", "failed")
        assert entry["rule"] or entry["verdict"] == "failed", entry
    times = [e["time_ms"] for e in entries]
    assert times == sorted(times)
    paged, cursor = [], None
    for _ in range(len(entries) + 2):
        page = box.api.call("GET", f"{box.path}/network/connections?limit=2" + (f"&cursor={cursor}" if cursor else ""))
        assert len(page["connections"]) <= 2
        paged += page["connections"]
        if not page["connections"] or not page["next_cursor"]:
            break
        cursor = page["next_cursor"]
    # What came meanwhile follows.
    assert [e["cursor"] for e in paged][:len(entries)] == [e["cursor"] for e in entries]
    box.api.refused("GET", box.path + "/network/connections?cursor=nonsense", 400, "invalid_argument")
