# SPDX-License-Identifier: Apache-2.0
"""What passes, what does not, and how a sandbox is told."""

import json
import os
import socket
import ssl
import struct
import time

import pytest
from client import ACCESS_DENIED, ask, client_hello, connect, denial, dns_answer, dns_question, http, is_reset, quickest, read_all, read_response, tls, wait_until
from lab import ALLOWED, ATTACKER, HOST, RESOLVER

WEB = {"egress": "allowlist", "allow": [{"host": "allowed.test"}]}
REFUSED, NXDOMAIN = 5, 3


def get(host, path="/", extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n"


class TestProcess:
    def test_it_has_no_rights_left(self, proxy):
        status = open(f"/proc/{proxy.process.pid}/status").read()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["64123"] * 4 and fields["Gid"].split() == ["64123"] * 4
        assert fields["Groups"].strip() == "" and fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2" or os.environ.get("GLOVEBOX_SANITIZED")
        assert all(int(fields[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert os.readlink(f"/proc/{proxy.process.pid}/root") == proxy.directory.name

    def test_it_ends_with_the_control_stream(self, lab, router):
        import world
        made = world.Proxy(router, lab.host, {"operator": {}, "resolvers": [], "registry_socket": ""})
        made.close()
        assert made.process.returncode == 0

    def test_a_broken_message_ends_it(self, lab, router):
        import world
        made = world.Proxy(router, lab.host, {"operator": {}, "resolvers": [], "registry_socket": ""})
        made.control.sendall(b"{nonsense\n")
        assert made.process.wait(60) == 1
        made.close()

    def test_a_policy_that_is_none_is_refused(self, proxy, sandbox):
        proxy.send(op="link", seq=99, address=sandbox.address, sandbox="sb-x", policy={"egress": "sometimes"})
        assert proxy.wait(lambda m: m.get("seq") == 99)["op"] == "failed"


class TestDns:
    @pytest.mark.parametrize("server", ["10.200.0.2", "8.8.8.8", RESOLVER])
    def test_an_allowed_name_is_answered_from_the_server_asked(self, lab, proxy, sandbox, server):
        proxy.set_policy(sandbox, WEB)
        assert ask(sandbox, "allowed.test", server)[:2] == (0, [ALLOWED])
        assert ask(sandbox, "ALLOWED.Test", server)[:2] == (0, [ALLOWED])
        assert proxy.event(kind="dns", host="allowed.test")["verdict"] == "allowed"

    @pytest.mark.parametrize("kind", [1, 28, 16, 10, 255, 15])
    def test_other_names_are_refused_here(self, lab, proxy, sandbox, kind):
        proxy.set_policy(sandbox, WEB)
        def refused():
            assert ask(sandbox, "secret.evil.test", "8.8.8.8", kind)[0] == REFUSED
        with lab.watch() as seen:
            assert quickest(refused, 0.5) < 0.5
        seen.assert_silent()
        logged = proxy.event(kind="dns", host="secret.evil.test")
        assert (logged["verdict"], logged["rule"]) == ("denied", "default:allowlist")

    def test_no_ipv6_no_service_records_and_no_text_for_an_allowed_name(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        assert ask(sandbox, "dual.allowed.test", kind=28)[0] == REFUSED  # the rule names allowed.test alone
        assert ask(sandbox, "allowed.test", kind=28) == (0, [], None)
        assert ask(sandbox, "allowed.test", kind=65) == (0, [], None)
        assert ask(sandbox, "allowed.test", kind=16)[0] == REFUSED

    def test_over_tcp(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, connect(sandbox, "8.8.8.8", 53) as sock:
            for name, expected in (("allowed.test", 0), ("secret.evil.test", REFUSED)):
                query = dns_question(name)
                sock.sendall(struct.pack(">H", len(query)) + query)
                length = struct.unpack(">H", sock.recv(2))[0]
                assert dns_answer(sock.recv(length))[0] == expected
        seen.assert_only(names={"allowed.test"})

    def test_floor_after_resolution(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "internal.test"}]})
        assert ask(sandbox, "internal.test")[0] == REFUSED
        assert proxy.event(kind="dns", host="internal.test", verdict="denied")["rule"] == "floor:private"

    def test_answers_are_cached(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        ask(sandbox, "allowed.test")
        with lab.watch() as seen:
            for _ in range(20):
                assert ask(sandbox, "allowed.test")[1] == [ALLOWED]
        assert not seen.queries

    def test_a_name_that_is_not_there_is_no_denial(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "missing.test"}]})
        assert ask(sandbox, "missing.test")[0] == NXDOMAIN
        assert proxy.event(kind="dns", host="missing.test")["verdict"] == "failed"

    def test_a_tunnel_below_a_wildcard_is_narrow(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "*.evil.test"}]})
        with lab.watch() as seen:
            answers = [ask(sandbox, f"x{i}.evil.test")[0] for i in range(90)]
            assert ask(sandbox, "a" * 60 + "." + "b" * 60 + "." + "c" * 20 + ".evil.test")[0] == REFUSED
            assert ask(sandbox, "a" * 62 + ".evil.test")[0] == REFUSED
        assert answers.count(0) == 60 and answers[60:] == [REFUSED] * 30
        assert len(seen.asked_names) <= 60
        assert proxy.event(kind="dns", rule="limit:dns")["verdict"] == "denied"

    def test_the_query_rate_is_limited(self, proxy, sandbox, neighbour):
        for space in (sandbox, neighbour):
            proxy.set_policy(space, WEB)
        ask(sandbox, "allowed.test")
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(30)
            sock.connect(("10.200.0.2", 53))
            for _ in range(400):  # without a wait for the answers: as fast as may be on any machine
                sock.send(dns_question("allowed.test"))
            while dns_answer(sock.recv(4096))[0] != REFUSED:
                pass
        assert ask(neighbour, "allowed.test")[0] == 0

    def test_garbage_is_survived(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for i in range(200):
                sock.sendto(os.urandom(i), ("8.8.8.8", 53))
        assert proxy.event(kind="dns", rule="protocol:dns")["verdict"] == "denied"
        wait_until(lambda: ask(sandbox, "allowed.test")[0] == 0)  # it has used up its queries


class TestTls:
    def test_an_allowed_host(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with tls(sandbox, ALLOWED, 443, "allowed.test", lab.authority) as sock:
            sock.sendall(get("allowed.test").encode())
            status, _, body = read_response(sock)
        assert status == 200 and json.loads(body)["sni"] == "allowed.test"
        opened = proxy.event(kind="connection", phase="open")
        assert (opened["protocol"], opened["host"], opened["address"], opened["port"], opened["rule"]) == ("tls", "allowed.test", ALLOWED, 443, "allow[0]")
        closed = proxy.event(kind="connection", phase="close", flow=opened["flow"])
        assert closed["bytes_out"] > 100 and closed["bytes_in"] > 500

    def test_the_name_decides_where_it_goes(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, tls(sandbox, ATTACKER, 443, "allowed.test", lab.authority) as sock:
            sock.sendall(get("allowed.test").encode())
            assert read_response(sock)[0] == 200
        seen.assert_attacker_saw_nothing()

    @pytest.mark.parametrize("name", ["evil.test", "allowed.test.evil.test", "xallowed.test", None])
    def test_another_name_gets_an_alert(self, lab, proxy, sandbox, name):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, connect(sandbox, ALLOWED, 443) as sock:
            sock.sendall(client_hello(name))
            assert read_all(sock) == (ACCESS_DENIED, "eof")
        seen.assert_silent()
        assert proxy.event(kind="connection", protocol="tls", verdict="denied", host=name or "")["rule"] == "default:allowlist"

    def test_python_sees_access_denied(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with pytest.raises(ssl.SSLError) as error:
            tls(sandbox, ATTACKER, 443, "evil.test", lab.authority)
        assert "ACCESS_DENIED" in str(error.value)

    @pytest.mark.parametrize("size", [1, 7, 50])
    def test_a_hello_in_pieces(self, lab, proxy, sandbox, size):
        proxy.set_policy(sandbox, WEB)
        hello = client_hello("Allowed.TEST.")
        with connect(sandbox, ATTACKER, 443) as sock:
            for i in range(0, len(hello), size):
                sock.sendall(hello[i:i + size])
            sock.settimeout(5)
            assert sock.recv(3) == b"\x16\x03\x03"

    def test_a_hello_over_records(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        body = client_hello("allowed.test")[5:]
        pieces = [body[i:i + 40] for i in range(0, len(body), 40)]
        with connect(sandbox, ATTACKER, 443) as sock:
            sock.sendall(b"".join(b"\x16\x03\x01" + struct.pack(">H", len(p)) + p for p in pieces))
            sock.settimeout(5)
            assert sock.recv(1) in (b"\x16", b"\x15")  # the server's own opinion of such records
        assert proxy.event(kind="connection", phase="open")["host"] == "allowed.test"

    def test_not_on_port_80_nor_elsewhere(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen:
            for port in (80, 8443, 22):
                with connect(sandbox, ALLOWED, port) as sock:
                    sock.sendall(client_hello("allowed.test"))
                    assert read_all(sock) == (ACCESS_DENIED, "eof")
        seen.assert_silent()

    def test_a_dead_host_is_no_denial(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "refusing.allowed.test", "ports": [444]}]})
        with connect(sandbox, ALLOWED, 444) as sock:
            sock.sendall(client_hello("refusing.allowed.test"))
            assert read_all(sock) == (b"", "reset")
        failed = proxy.event(kind="connection", verdict="failed")
        assert failed["host"] == "refusing.allowed.test" and "refused" in failed["reason"].lower()


class TestHttp:
    def test_allowed_and_denied_on_one_connection(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, connect(sandbox, ATTACKER, 80) as sock:
            sock.sendall(get("allowed.test", "/a?b=c").encode())
            status, _, body = read_response(sock)
            assert status == 200 and json.loads(body)["target"] == "/a?b=c"
            sock.sendall(get("evil.test").encode())
            status, headers, body = read_response(sock)
            said = denial(body)
            assert status == 403 and headers["content-type"] == "application/json"
            assert (said["code"], said["host"], said["rule"]) == ("egress_denied", "evil.test", "default:allowlist") and said["how_to_allow"]
            sock.sendall(get("allowed.test", "/again").encode())
            assert read_response(sock)[0] == 200
        seen.assert_attacker_saw_nothing()
        assert proxy.event(kind="request", verdict="denied")["host"] == "evil.test"
        assert proxy.event(kind="request", verdict="allowed", path="/again")

    @pytest.mark.parametrize("request_text", [
        "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n\r\n",
        "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: allowed.test\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "get / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    ])
    def test_what_can_be_read_in_two_ways_is_refused(self, lab, proxy, sandbox, request_text):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen:
            status, _, body = http(sandbox, ATTACKER, 80, request_text)
        assert status in (400, 403, 501, 505) and denial(body)["code"] == "egress_denied"
        seen.assert_silent()

    def test_pipelined_requests_are_judged_one_by_one(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, connect(sandbox, ATTACKER, 80) as sock:
            sock.sendall((get("allowed.test", "/1") + get("evil.test", "/2") + get("allowed.test", "/3")).encode())
            data = b""
            while data.count(b"HTTP/1.1 ") < 3:
                data += sock.recv(65536)
        assert [part[:3] for part in data.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]
        seen.assert_attacker_saw_nothing()

    def test_a_broken_body_is_said_to_be_one(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        def broken():
            status, _, body = http(sandbox, ALLOWED, 80, "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n")
            assert status == 400 and denial(body)["rule"] == "protocol:http"
        assert quickest(broken, 1) < 1

    def test_each_connection_has_an_entry_of_its_own(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "none"})
        http(sandbox, ATTACKER, 8080, "GET / HTTP/1.0\r\n\r\n")
        http(sandbox, ATTACKER, 8081, get("evil.test"))
        for port in (8080, 8081):
            logged = proxy.event(kind="connection", address=ATTACKER, port=port)
            assert (logged["verdict"], logged["rule"], logged["protocol"]) == ("denied", "default:none", "http")

    def test_the_log_names_the_address_it_would_have_gone_to(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "internal.test"}]})
        assert http(sandbox, ATTACKER, 80, get("internal.test"))[0] == 403
        logged = proxy.event(kind="connection", host="internal.test")
        assert (logged["address"], logged["rule"]) == ("10.9.0.9", "floor:private")

    def test_bodies(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        body = os.urandom(300_000)
        with lab.watch() as seen, connect(sandbox, ALLOWED, 80) as sock:
            sock.sendall(b"POST /up HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 300000\r\n\r\n" + body)
            assert read_response(sock)[0] == 200
            sock.sendall(b"POST /up HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(0, 10_000, 1000):
                sock.sendall(b"3e8\r\n" + body[i:i + 1000] + b"\r\n")
            sock.sendall(b"0\r\n\r\n")
            assert read_response(sock)[0] == 200
            sock.sendall(get("allowed.test", "/bytes/1000000").encode())
            assert len(read_response(sock)[2]) == 1_000_000
        assert body in seen.visits[0].data
        assert len(seen.visits) == 1  # one connection served all three

    def test_headers_of_ours_and_of_the_hop_do_not_pass(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen:
            http(sandbox, ALLOWED, 80, get("allowed.test", "/", "X-Glovebox-Sandbox: sb-other\r\nProxy-Authorization: x\r\nConnection: Host\r\nX-Kept: 1\r\n"))
        visit = seen.visits[0]
        names = [name for name, _ in visit.requests[0][2]]
        assert visit.headers("host") == ["allowed.test"] and "x-kept" in names
        assert "x-glovebox-sandbox" not in names and "proxy-authorization" not in names

    def test_methods_and_paths(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "allowed.test", "ports": [80], "protocols": ["http"], "methods": ["GET"], "paths": ["/v1/*"]}]})
        assert http(sandbox, ALLOWED, 80, get("allowed.test", "/v1/x"))[0] == 200
        for line in ("POST /v1/x", "GET /v2", "GET /v1/../v2", "GET /v1/%2e%2e/v2", "GET /v1/..%2fv2"):
            assert http(sandbox, ALLOWED, 80, f"{line} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")[0] == 403, line

    def test_a_websocket_passes(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with connect(sandbox, ALLOWED, 80) as sock:
            sock.sendall(get("allowed.test", "/upgrade", "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n").encode())
            assert read_response(sock)[0] == 101
            time.sleep(0.05)
            sock.sendall(b"\x81\x02hi")
            data = b""
            while b"\x81\x02hi" not in data:
                data += sock.recv(100)

    def test_connect(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with connect(sandbox, ATTACKER, 80) as sock:
            sock.sendall(b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
            assert read_response(sock)[0] == 200
            context = ssl.create_default_context(cafile=lab.authority.certificate)
            with context.wrap_socket(sock, server_hostname="allowed.test") as inner:
                inner.sendall(get("allowed.test").encode())
                assert read_response(inner)[0] == 200

    @pytest.mark.parametrize("target, inner", [("evil.test:443", None), ("allowed.test:22", None), ("45.66.0.66:443", None),
                                               ("allowed.test:443", "evil.test"), ("allowed.test:443", None), ("allowed.test:80", "http")])
    def test_connect_to_what_is_not_allowed(self, lab, proxy, sandbox, target, inner):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen, connect(sandbox, ATTACKER, 80) as sock:
            sock.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode().replace(b"\r\n\r\n", f"\r\nHost: {target}\r\n\r\n".encode()))
            status, _, _ = read_response(sock)
            if not target.startswith("allowed.test:") or target.endswith(":22"):
                assert status == 403
            else:
                assert status == 200
                sock.sendall(get("evil.test").encode() if inner == "http" else client_hello(inner))
                data = sock.recv(65536)
                assert data == ACCESS_DENIED or data.startswith(b"HTTP/1.1 403")
        seen.assert_silent()

    def test_http_on_443_and_other_bytes_on_80(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with lab.watch() as seen:
            assert http(sandbox, ALLOWED, 443, get("allowed.test"))[0] == 403
            for data in (b"SSH-2.0-x\r\n", b"\x00\x01\x02", b"get / http\r\nhost: allowed.test\r\n\r\n"):
                with connect(sandbox, ALLOWED, 80) as sock:
                    sock.sendall(data)
                    assert read_all(sock) == (b"", "reset")
        seen.assert_silent()

    def test_a_dead_host_is_502(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "refusing.allowed.test", "ports": [81], "protocols": ["http"]}, {"host": "missing.test"}]})
        for host, port in (("refusing.allowed.test", 81), ("missing.test", 80)):
            status, _, body = http(sandbox, ALLOWED, port, get(host))
            assert status == 502 and json.loads(body)["code"] == "upstream_unreachable"
            assert proxy.event(kind="request", host=host)["verdict"] == "failed"

    def test_policy_none_still_explains(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "none"})
        with lab.watch() as seen:
            status, _, body = http(sandbox, "93.184.216.34", 80, get("example.com"))
        assert status == 403 and denial(body)["rule"] == "default:none"
        seen.assert_silent()


class TestTcp:
    def test_a_server_that_speaks_first(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "allowed.test", "ports": [25], "protocols": ["tcp"]}]})
        with connect(sandbox, ALLOWED, 25) as sock:
            assert read_all(sock, 5) == (b"", "reset")  # nobody has asked our resolver for it
        assert ask(sandbox, "allowed.test")[1] == [ALLOWED]
        def greeted():
            with connect(sandbox, ALLOWED, 25) as sock:
                assert sock.recv(100) == b"220 allowed\r\n"
        assert quickest(greeted, 0.2, 20) < 0.2  # where a name could matter it would be 0.3
        with connect(sandbox, ALLOWED, 25) as sock:
            assert sock.recv(100) == b"220 allowed\r\n"
            sock.sendall(b"EHLO x\r\n")
            assert sock.recv(100) == b"EHLO x\r\n"
        opened = proxy.event(kind="connection", phase="open")
        assert (opened["protocol"], opened["host"], opened["rule"]) == ("tcp", "allowed.test", "allow[0]")

    def test_by_address(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["tcp"]}]})
        with connect(sandbox, ALLOWED, 7777) as sock:
            assert sock.recv(100) == b"220 allowed\r\n"
        with lab.watch() as seen, connect(sandbox, ATTACKER, 7777) as sock:
            assert read_all(sock)[1] == "reset"
        seen.assert_only({(ALLOWED, 7777)})  # the end of the first one

    @pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.1.1", "224.0.0.1", HOST, "10.200.4.0"])
    def test_the_floor_under_open(self, lab, proxy, sandbox, address):
        proxy.set_policy(sandbox, {"egress": "open"})
        with lab.watch() as seen:
            try:
                with connect(sandbox, address, 80) as sock:
                    sock.sendall(get(address).encode())
                    status, _, body = read_response(sock)
                    assert status == 403 and denial(body)["rule"].startswith("floor:")
            except OSError:
                assert address in ("127.0.0.1", "224.0.0.1")  # the sandbox's own kernel does not send it
        seen.assert_silent()

    def test_the_proxys_own_port_is_no_destination(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "open"})
        with pytest.raises(OSError):  # reset by the proxy, or dropped before it as not redirected
            with connect(sandbox, sandbox.router, 3129, 1) as sock:
                sock.sendall(get("allowed.test").encode())
                if not sock.recv(1):
                    raise ConnectionResetError

    def test_open_with_a_denied_name(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "open", "deny": [{"host": "*.evil.test"}]})
        with connect(sandbox, ALLOWED, 7777) as sock:
            assert sock.recv(100) == b"220 allowed\r\n"
        with lab.watch() as seen, connect(sandbox, ATTACKER, 443) as sock:
            sock.sendall(client_hello("x.evil.test"))
            assert read_all(sock) == (ACCESS_DENIED, "eof")
        seen.assert_attacker_saw_nothing()
        # A client that waits for the server to speak, and names what is denied then.
        with connect(sandbox, ATTACKER, 7777) as sock:
            assert sock.recv(100) == b"220 attacker\r\n"
            sock.sendall(client_hello("x.evil.test"))
            assert read_all(sock) == (b"", "reset")
        assert proxy.event(kind="connection", rule="deny[0]", host="x.evil.test", protocol="tls")

    def test_a_half_closed_connection(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["tcp"]}]})
        with connect(sandbox, ALLOWED, 7777) as sock:
            sock.sendall(b"last words")
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == (b"220 allowed\r\nlast words", "eof")


class TestLimits:
    OPEN = {"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["tcp"]}

    def test_connections(self, proxy, sandbox, neighbour):
        for space in (sandbox, neighbour):
            proxy.set_policy(space, {"allow": [self.OPEN], "limits": {"connections": 5}})
        held = [connect(sandbox, ALLOWED, 7777) for _ in range(5)]
        for sock in held:
            assert sock.recv(100)
        assert is_reset(sandbox, ALLOWED, 7777)
        assert proxy.event(rule="limit:connections")["verdict"] == "denied"
        with connect(neighbour, ALLOWED, 7777) as sock:
            assert sock.recv(100)
        mark = proxy.mark()
        held.pop().close()
        proxy.event(since=mark, kind="connection", phase="close", sandbox=f"sb-{sandbox.address}")
        with connect(sandbox, ALLOWED, 7777) as sock:
            assert sock.recv(100)
        for sock in held:
            sock.close()

    def test_bytes(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "allowed.test"}], "limits": {"bytes": 200_000}})
        with connect(sandbox, ALLOWED, 80) as sock:
            sock.sendall(get("allowed.test", "/bytes/1000000").encode())
            data, end = read_all(sock)
        assert end == "reset" and len(data) <= 200_000
        assert is_reset(sandbox, ALLOWED, 80)
        assert proxy.event(rule="limit:bytes", verdict="denied")

    def test_bandwidth(self, proxy, sandbox, neighbour):
        proxy.set_policy(sandbox, {"allow": [{"host": "allowed.test"}], "limits": {"bandwidth": 1_000_000}})
        proxy.set_policy(neighbour, WEB)
        def two_seconds_worth():
            assert len(http(sandbox, ALLOWED, 80, get("allowed.test", "/bytes/2000000"))[2]) == 2_000_000
        assert 1.5 < quickest(two_seconds_worth, 2.6) < 2.6
        assert quickest(lambda: http(neighbour, ALLOWED, 80, get("allowed.test", "/bytes/2000000")), 0.5) < 0.5

    def test_many_half_open_and_slow_ones(self, proxy, sandbox, neighbour):
        for space in (sandbox, neighbour):
            proxy.set_policy(space, WEB)
        held, hello = [], client_hello("allowed.test")
        for i in range(300):
            try:
                sock = connect(sandbox, ALLOWED, 443)
                sock.sendall(hello[:i % 100])
                held.append(sock)
            except OSError:
                pass
        def answered(space):
            assert http(space, ALLOWED, 80, get("allowed.test"))[0] == 200
        assert quickest(lambda: answered(neighbour), 0.5) < 0.5
        assert proxy.event(rule="limit:connections")
        time.sleep(10)  # the time that a handshake may take
        wait_until(lambda: not is_reset(sandbox, ALLOWED, 80, get("allowed.test", extra="Connection: close\r\n").encode()))
        answered(sandbox)
        for sock in held:
            sock.close()

    def test_a_flood_of_refusals_is_folded(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        begin = time.monotonic()
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for i in range(2000):
                sock.sendto(dns_question(f"n{i}.evil.test"), ("8.8.8.8", 53))
        folded = proxy.wait(lambda m: m.get("folded", 0) > 0)
        assert folded["sandbox"] == f"sb-{sandbox.address}"
        assert len(proxy.events(kind="dns")) < 200 * (2 + time.monotonic() - begin)  # 200 a second


class TestChanges:
    def test_tightening_cuts_what_is_open(self, proxy, sandbox):
        proxy.set_policy(sandbox, {"allow": [{"host": "allowed.test"}, {"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["tcp"]}]})
        with connect(sandbox, ALLOWED, 80) as web, connect(sandbox, ALLOWED, 7777) as raw:
            web.sendall(get("allowed.test", "/stream").encode())
            assert web.recv(1000) and raw.recv(100)
            proxy.set_policy(sandbox, {"allow": [{"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["tcp"]}]})
            assert read_all(web)[1] == "reset"
            raw.sendall(b"still here")
            assert raw.recv(100) == b"still here"
            proxy.set_policy(sandbox, {"egress": "none"})
            assert read_all(raw)[1] == "reset"
        assert proxy.event(kind="connection", phase="close", protocol="tcp")["reason"].startswith("cut: ")

    def test_a_removed_link_passes_nothing(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with connect(sandbox, ALLOWED, 80) as web:
            web.sendall(get("allowed.test", "/stream").encode())
            assert web.recv(1000)
            proxy.ask(op="unlink", address=sandbox.address)
            assert read_all(web)[1] == "reset"
        lab.settle()
        with lab.watch() as seen, pytest.raises(OSError):
            connect(sandbox, ALLOWED, 80).recv(1)
        seen.assert_silent()

    def test_the_operator_tightens(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        with connect(sandbox, ALLOWED, 80) as web:
            web.sendall(get("allowed.test", "/stream").encode())
            assert web.recv(1000)
            proxy.send(op="config", operator={"deny": [{"host": "allowed.test"}]}, resolvers=[f"{RESOLVER}:53"], registry_socket="")
            assert read_all(web)[1] == "reset"

    def test_usage(self, proxy, sandbox):
        proxy.set_policy(sandbox, WEB)
        http(sandbox, ALLOWED, 80, get("allowed.test", "/bytes/50000"))
        usage = proxy.wait(lambda m: m["op"] == "usage" and m["links"].get(sandbox.address, {}).get("in", 0) > 50_000)
        counted = usage["links"][sandbox.address]
        assert counted["out"] > 20
        proxy.set_policy(sandbox, {"egress": "none"})
        wait_until(lambda: any(m["op"] == "usage" and m["links"].get(sandbox.address, {}).get("open") == 0 for m in proxy.messages))

    def test_killed_means_cut(self, lab, router, sandbox):
        import world
        made = world.Proxy(router, lab.host, {"operator": {}, "resolvers": [f"{RESOLVER}:53"], "registry_socket": ""})
        made.set_policy(sandbox, WEB)
        assert http(sandbox, ALLOWED, 80, get("allowed.test"))[0] == 200
        made.process.kill()
        made.process.wait()
        lab.settle()
        with lab.watch() as seen, pytest.raises(OSError):
            connect(sandbox, ALLOWED, 80).recv(1)
        seen.assert_silent()
        made.close()


class TestPackages:
    @pytest.fixture
    def registry(self, proxy):
        """The registry proxy's place, taken by a server that shows what it gets."""
        import threading
        path = os.path.join(proxy.directory.name, "registry.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen()
        seen = []

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65536):
                        seen.append(data.decode())
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        threading.Thread(target=serve, daemon=True).start()
        yield seen
        listener.close()

    def test_requests_carry_the_sandbox(self, proxy, sandbox, registry):
        proxy.set_policy(sandbox, {"egress": "none", "packages": {"registries": ["pypi"]}})
        assert ask(sandbox, "packages.glovebox.internal")[:2] == (0, ["10.200.0.1"])
        with connect(sandbox, "10.200.0.1", 80) as sock:
            for _ in range(2):
                sock.sendall(get("packages.glovebox.internal", "/pypi/simple/x/", "x-glovebox-sandbox: sb-other\r\n").encode())
                assert read_response(sock)[2] == b"ok"
        assert len(registry) == 2
        for request in registry:
            assert request.count(f"X-Glovebox-Sandbox: sb-{sandbox.address}\r\n") == 1 and "sb-other" not in request

    def test_nothing_else_there(self, proxy, sandbox, registry):
        proxy.set_policy(sandbox, {"egress": "none", "packages": {"registries": ["pypi"]}})
        assert http(sandbox, "10.200.0.1", 80, get("evil.test"))[0] == 403
        for address, port in (("10.200.0.1", 443), ("10.200.0.2", 80), ("10.200.0.3", 80)):
            assert is_reset(sandbox, address, port)
        assert not registry

    def test_without_packages_there_is_no_service(self, proxy, sandbox, registry):
        proxy.set_policy(sandbox, {"egress": "open"})
        assert ask(sandbox, "packages.glovebox.internal")[0] == REFUSED
        assert is_reset(sandbox, "10.200.0.1", 80)
        assert not registry
