# SPDX-License-Identifier: Apache-2.0
"""What the proxy does with upstreams that lie, break and stall, and with sandboxes that ask for what they should not."""
import hashlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time

import pytest

import upstream


def get(bridge, path, method="GET", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", bridge.port, timeout=60)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    answer.body = answer.read()
    connection.close()
    return answer


def index(bridge, name):
    answer = get(bridge, f"/pypi/simple/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    assert answer.status == 200, (answer.status, answer.reason)
    return {file["filename"]: file for file in json.loads(answer.body)["files"]}


def test_a_file_that_does_not_match_its_hash_is_never_served(fake, registry):
    good = upstream.wheel("small", "1.0")
    file = fake.add_wheel("small", "1.0", body=good, served=good[:-1] + b"X")
    bridge = registry.sandbox()
    answer = get(bridge, index(bridge, "small")[file]["url"])
    assert (answer.status, answer.reason) == (403, "Refused by integrity: the file does not match its hash")
    assert registry.wait_event(outcome="failed", file=file)["rule"] == "integrity"
    fake.answers["/files/" + file] = (200, {}, good)  # nothing of it was kept
    assert get(bridge, index(bridge, "small")[file]["url"]).body == good


def test_a_large_file_that_turns_out_wrong_at_its_end_looks_broken(fake, registry):
    good = os.urandom(3 << 20)
    file = fake.add_wheel("large", "1.0", body=good, served=good[:-1] + bytes([good[-1] ^ 1]))
    bridge = registry.sandbox()
    url = index(bridge, "large")[file]["url"]
    with pytest.raises(http.client.IncompleteRead) as broken:
        get(bridge, url)
    assert len(broken.value.partial) <= len(good) - (64 << 10)
    registry.wait_event(outcome="failed", rule="integrity", file=file)
    fake.answers["/files/" + file] = (200, {}, good)
    assert get(bridge, url).body == good


@pytest.mark.parametrize("served", [b"", b"short", "longer"])
def test_a_file_of_another_size_than_the_index_says_is_refused(fake, registry, served):
    good = upstream.wheel("sized", "1.0")
    file = fake.add_wheel("sized", "1.0", body=good, served=good + b"x" * 100 if served == "longer" else served)
    bridge = registry.sandbox()
    answer = get(bridge, index(bridge, "sized")[file]["url"])
    assert answer.status == 403 and "size" in answer.reason


def test_an_upstream_that_breaks_off_is_not_taken_for_the_end(fake, registry):
    body = os.urandom(1 << 20)

    def break_off(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    file = fake.add_wheel("broken", "1.0", body=body)
    fake.answers["/files/" + file] = break_off
    bridge = registry.sandbox()
    try:
        assert get(bridge, index(bridge, "broken")[file]["url"]).status == 502  # it broke before anything was sent
    except http.client.IncompleteRead:
        pass
    registry.wait_event(outcome="failed", file=file)
    assert not list((registry.cache_dir / "files").iterdir())


def redirect(target):
    return (302, {"Location": target}, b"")


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/x", "http://127.0.0.1:1/x", "https://127.0.0.1:1/x",
                                    "https://[::ffff:169.254.169.254]/x", "file:///etc/passwd", "gopher://127.0.0.1:1/x", "https://2852039166/x"])
def test_redirects_to_other_places_are_not_followed(fake, registry, target):
    bridge = registry.sandbox()
    fake.answers["/simple/moved/"] = redirect(target)
    answer = get(bridge, "/pypi/simple/moved/")
    assert answer.status == 502, answer.reason
    file = fake.add_wheel("file", "1.0")
    fake.answers["/files/" + file] = redirect(target)
    answer = get(bridge, index(bridge, "file")[file]["url"])
    assert answer.status == 502 and b"root:" not in answer.body
    assert registry.wait_event(outcome="failed", file=file)


@pytest.mark.parametrize("url", ["https://localhost:{port}/x", "https://127.0.0.1:{port}/x", "http://127.0.0.1:{port}/x", "https://[::ffff:127.0.0.1]:{port}/x"])
def test_an_index_cannot_name_files_at_special_addresses(fake, registry, url):
    bridge = registry.sandbox()
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        file = fake.add_wheel("trap", "1.0", url=url.format(port=trap.getsockname()[1]))
        answer = get(bridge, index(bridge, "trap")[file]["url"])
        assert answer.status == 502 and ("special" in answer.reason or "https" in answer.reason), answer.reason
        with pytest.raises(TimeoutError):
            trap.accept()


def test_redirects_end(fake, registry):
    bridge = registry.sandbox()
    fake.answers["/simple/loop/"] = redirect("/simple/loop/")
    answer = get(bridge, "/pypi/simple/loop/")
    assert answer.status == 502 and "redirects" in answer.reason
    assert fake.hits["/simple/loop/"] == 6


def test_files_of_another_host_come_by_verified_tls(fake, registries, public_directory):
    certificate = upstream.make_certificate(public_directory)
    files = upstream.Upstream(certificate)
    body = upstream.wheel("elsewhere", "1.0")
    files.answers["/x.whl"] = (200, {}, body)
    file = fake.add_wheel("elsewhere", "1.0", body=body, url=files.url + "/x.whl")
    for trusted, status in ((certificate, 200), ("/etc/ssl/certs/ca-certificates.crt", 502)):
        registry = registries({"pypi": fake.url + "/simple"}, ca_bundle=str(trusted), file_hosts=["localhost"])
        bridge = registry.sandbox()
        assert get(bridge, index(bridge, "elsewhere")[file]["url"]).status == status
    files.close()


def test_giant_metadata_is_refused_and_the_proxy_lives(fake, registry):
    def giant(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            for _ in range(400):
                handler.wfile.write(b"[" * (1 << 20))
        except OSError:
            pass

    fake.answers["/simple/giant/"] = giant
    bridge = registry.sandbox()
    answer = get(bridge, "/pypi/simple/giant/")
    assert answer.status == 502 and "larger than" in answer.reason
    fake.answers["/simple/deep/"] = (200, {"Content-Type": "application/json"}, b"[" * 1_000_000)
    assert get(bridge, "/pypi/simple/deep/").status == 403
    fake.add_wheel("fine", "1.0")
    assert len(index(bridge, "fine")) == 1
    assert registry.process.poll() is None


def test_a_slow_upstream_holds_up_nobody_else(fake, registry):
    release = threading.Event()
    fake.answers["/simple/slow/"] = lambda handler: (release.wait(120), (404, {}, b""))[1]
    fake.add_wheel("quick", "1.0")
    bridge = registry.sandbox()
    waiting = [threading.Thread(target=get, args=(bridge, "/pypi/simple/slow/"), daemon=True) for _ in range(10)]
    for thread in waiting:
        thread.start()
    deadline = time.monotonic() + 60
    while "/simple/slow/" not in fake.hits:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    started = time.monotonic()
    assert index(registry.sandbox("sb-other"), "quick")
    assert time.monotonic() - started < 30
    assert fake.hits["/simple/slow/"] == 1, "equal requests are one"
    release.set()
    for thread in waiting:
        thread.join(60)


def test_equal_downloads_are_one(fake, registry):
    body = os.urandom(2 << 20)
    file = fake.add_wheel("shared", "1.0", body=body)

    def slowly(handler):
        time.sleep(0.5)
        return 200, {}, body

    fake.answers["/files/" + file] = slowly
    bridges = [registry.sandbox(f"sb-{i}") for i in range(8)]
    url = index(bridges[0], "shared")[file]["url"]
    got = []
    threads = [threading.Thread(target=lambda b=b: got.append(get(b, url).body)) for b in bridges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == [body] * 8
    assert fake.hits["/files/" + file] == 1


def test_too_young_versions_are_marked_and_their_files_refused(fake, registry):
    old = fake.add_wheel("aging", "1.0", age_hours=100)
    young = fake.add_wheel("aging", "2.0", age_hours=5)
    undated = fake.add_wheel("aging", "3.0", upload_time=False)
    bridge = registry.sandbox(minimum_age_hours=72)
    files = index(bridge, "aging")
    assert files[old]["yanked"] is False
    assert "packages.minimum_age_hours" in files[young]["yanked"] and "packages.minimum_age_hours" in files[undated]["yanked"]
    for file in (young, undated):
        answer = get(bridge, files[file]["url"])
        assert answer.status == 403 and answer.reason.startswith("Refused by packages.minimum_age_hours: ")
        event = registry.wait_event(file=file, outcome="denied")
        assert event["rule"] == "packages.minimum_age_hours" and event["version"] == file.split("-")[1]
    assert get(bridge, files[old]["url"]).status == 200


def test_an_html_index_has_no_upload_times_so_all_of_it_is_too_young(fake, registry):
    fake.answers["/simple/plain/"] = (200, {"Content-Type": "text/html"}, b'<html><a href="plain-1.0.tar.gz">plain-1.0.tar.gz</a></html>')
    assert list(index(registry.sandbox(), "plain")) == ["plain-1.0.tar.gz"]
    strict = registry.sandbox("sb-strict", minimum_age_hours=1)
    answer = get(strict, index(strict, "plain")["plain-1.0.tar.gz"]["url"])
    assert answer.reason.startswith("Refused by packages.minimum_age_hours")


def test_require_hashes_refuses_files_without_one(fake, registry):
    file = fake.add_wheel("unhashed", "1.0", sha256="")
    bridge = registry.sandbox(require_hashes=True)
    answer = get(bridge, index(bridge, "unhashed")[file]["url"])
    assert answer.reason.startswith("Refused by packages.require_hashes")
    assert get(registry.sandbox("sb-lax"), f"/pypi/files/unhashed/unhashed/{file}").status == 200


def test_a_hash_in_the_address_that_is_not_the_indexs_is_refused(fake, registry):
    file = fake.add_wheel("named", "1.0")
    assert get(registry.sandbox(), f"/pypi/files/named/{'0' * 64}/{file}").status == 403
    assert "/files/" + file not in fake.hits


def test_the_limit_on_bytes_counts_over_files_and_survives_a_new_policy(fake, registry):
    body = os.urandom(60_000)
    files = [fake.add_wheel("heavy", f"{i}.0", body=body + bytes([i])) for i in range(3)]
    bridge = registry.sandbox(max_bytes=150_000)
    urls = {f: index(bridge, "heavy")[f]["url"] for f in files}
    assert get(bridge, urls[files[0]], method="HEAD").status == 200  # costs nothing
    assert [get(bridge, urls[f]).status for f in files] == [200, 200, 403]
    registry.sandbox(max_bytes=150_001)
    assert get(bridge, urls[files[2]]).reason.startswith("Refused by packages.max_bytes")
    assert registry.wait_event(rule="packages.max_bytes", file=files[2])


def test_offline_gives_what_the_cache_holds_and_names_the_mode_for_the_rest(fake, registry):
    kept, other = fake.add_wheel("known", "1.0"), fake.add_wheel("known", "2.0")
    online = registry.sandbox()
    assert get(online, index(online, "known")[kept]["url"]).status == 200
    bridge = registry.sandbox("sb-offline", offline=True)
    files = index(bridge, "known")
    assert files[kept]["yanked"] is False and "packages.offline" in files[other]["yanked"]
    assert get(bridge, files[kept]["url"]).status == 200
    answer = get(bridge, files[other]["url"])
    assert answer.status == 403 and "offline mode" in answer.reason
    hits = dict(fake.hits)
    answer = get(bridge, "/npm/unknown")
    assert answer.status == 403 and "offline mode" in answer.reason
    assert fake.hits == hits


def test_what_was_half_downloaded_is_gone_after_a_kill_and_the_rest_is_served_without_upstream(fake, registries, tmp_path):
    kept = fake.add_wheel("kept", "1.0")
    half = fake.add_wheel("half", "1.0", body=os.urandom(1 << 20))

    is_over = threading.Event()

    def stall(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 20))
        handler.end_headers()
        handler.wfile.write(b"x" * 500_000)
        handler.wfile.flush()
        is_over.wait(120)

    fake.answers["/files/" + half] = stall
    registry = registries({"pypi": fake.url + "/simple"})
    bridge = registry.sandbox()
    url = index(bridge, "kept")[kept]["url"]
    assert get(bridge, url).status == 200
    half_url = index(bridge, "half")[half]["url"]
    threading.Thread(target=lambda: subprocess.run(["curl", "-s", bridge.url + half_url], capture_output=True, check=False), daemon=True).start()
    deadline = time.monotonic() + 60
    while not any(p.stat().st_size > 100_000 for p in (registry.cache_dir / "partial").iterdir() if p.exists()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    registry.stop(kill=True)
    is_over.set()
    fake.answers.pop("/files/" + kept)
    registry.start()
    assert list((registry.cache_dir / "partial").iterdir()) == []
    bridge = registry.sandbox()
    assert get(bridge, url).status == 200


def test_npm_files_are_checked_and_forbidden_versions_left_out(fake, registry):
    fake.add_npm("thing", "1.0.0")
    body = fake.add_npm("thing", "2.0.0")
    fake.add_npm("thing", "3.0.0", integrity="0" * 40)
    bridge = registry.sandbox(deny=["npm:thing@2"])
    page = json.loads(get(bridge, "/npm/thing").body)
    assert list(page["versions"]) == ["1.0.0", "3.0.0"]
    assert get(bridge, "/npm/thing/-/thing-1.0.0.tgz").status == 200
    answer = get(bridge, "/npm/thing/-/thing-2.0.0.tgz")
    assert answer.status == 403 and "packages.deny[0]" in answer.reason
    assert get(bridge, "/npm/thing/-/thing-3.0.0.tgz").reason.startswith("Refused by integrity")
    assert get(registry.sandbox("sb-free"), "/npm/thing/-/thing-2.0.0.tgz").body == body


def test_scripts_that_metadata_does_not_mention_are_found(fake, registry):
    hidden = upstream.npm_package("sly", "1.0.0", scripts={"postinstall": "evil"})
    fake.add_npm("sly", "1.0.0", tarball=hidden)
    bridge = registry.sandbox(install_scripts=False)
    answer = get(bridge, "/npm/sly/-/sly-1.0.0.tgz")
    assert answer.status == 403 and answer.reason.startswith("Refused by packages.install_scripts")


def test_debian_files_are_passed_and_packages_refused(fake, registry):
    index_bytes = b"Package: hello\n"
    digest = hashlib.sha256(index_bytes).hexdigest()
    fake.answers["/debian/dists/x/InRelease"] = (200, {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, b"signed")
    fake.answers[f"/debian/dists/x/main/by-hash/SHA256/{digest}"] = (200, {}, index_bytes)
    fake.answers[f"/debian/dists/x/main/by-hash/SHA256/{'0' * 64}"] = (200, {}, index_bytes)
    fake.answers["/debian/pool/main/h/hello/hello_1.0_amd64.deb"] = (200, {}, b"package")
    bridge = registry.sandbox(deny=["debian:evil*"])
    first = get(bridge, "/debian/dists/x/InRelease")
    assert first.body == b"signed"
    assert get(bridge, "/debian/dists/x/InRelease", headers={"If-Modified-Since": first.headers["Last-Modified"]}).status == 304
    assert get(bridge, f"/debian/dists/x/main/by-hash/SHA256/{digest}").body == index_bytes
    assert get(bridge, f"/debian/dists/x/main/by-hash/SHA256/{'0' * 64}").status == 403
    for _ in range(2):
        assert get(bridge, "/debian/pool/main/h/hello/hello_1.0_amd64.deb").body == b"package"
    assert fake.hits["/debian/pool/main/h/hello/hello_1.0_amd64.deb"] == 1
    for file in ("evil-tool_1.0_all.deb", "%65vil-tool_1.0_all.deb", "evil_1.0.orig.tar.gz", "evil_1.0-1.dsc", "evil"):
        answer = get(bridge, "/debian/pool/main/e/evil/" + file)
        assert answer.status == 403 and "packages.deny[0]" in answer.reason, file


@pytest.mark.parametrize("path", ["/", "//", "/pypi/simple/../../etc/passwd", "/debian/%2e%2e/%2e%2e/etc/passwd", "/debian/pool/..%2f..%2fx", "/pypi/files/a/b/..%2fc",
                                  "/npm/@a%2f..", "/npm/%00", "/debian/dists/%0d%0aX-Evil:1", "/pypi/simple/%zz/", "/other", "/debian/etc/passwd",
                                  "/pypi/simple/a@evil.example/", "/npm/a:b@evil.example", "/debian/dists/x?y#z"])
def test_paths_that_mean_something_else_are_refused_here(fake, registry, path):
    before = dict(fake.hits)
    assert get(registry.sandbox(), path).status in (400, 404), path
    assert {k: v for k, v in fake.hits.items() if k != "/debian/dists/x"} == before


def test_only_known_sandboxes_are_served(fake, registry):
    bridge = registry.sandbox()
    file = fake.add_wheel("open", "1.0")
    assert index(bridge, "open")
    assert registry.ask({"op": "forget", "sandbox": "sb-test"})["op"] == "done"
    assert get(bridge, "/pypi/simple/open/").status == 403
    closed = registry.sandbox("sb-closed", registries=["npm"])
    assert get(closed, f"/pypi/files/open/unhashed/{file}").reason.startswith("Refused by packages.registries")
    assert get(bridge, "/npm/x", method="PUT").status in (403, 405)


def test_bad_operations_fail_and_change_nothing(registry):
    registry.sandbox(deny=["evil"])
    answer = registry.ask({"op": "sandbox", "sandbox": "sb-test", "policy": {"registries": ["ruby"]}})
    assert answer["op"] == "failed" and "registries" in answer["message"]
    assert registry.ask({"op": "config", "upstreams": {"pypi": "ftp://x"}})["op"] == "failed"
    assert registry.ask({"op": "unknown"})["op"] == "failed"


def test_the_process_has_no_privileges_and_ends_with_its_daemon(registry):
    status = (f"/proc/{registry.process.pid}/status")
    text = dict(line.split(":\t", 1) for line in open(status, encoding="ascii").read().splitlines() if ":\t" in line)
    assert text["Uid"].split() == ["65534"] * 4 and text["Gid"].split() == ["65534"] * 4 and text["Groups"].strip() == ""
    assert int(text["CapEff"], 16) == int(text["CapPrm"], 16) == 0 and text["NoNewPrivs"] == "1"
    assert registry.stop() == 0


def test_secrets_of_an_upstream_go_to_it_and_nowhere_else(fake, registries):
    file = fake.add_wheel("secret", "1.0")
    registry = registries({"pypi": fake.url.replace("http://", "http://user:hunter2@") + "/simple"})
    bridge = registry.sandbox()
    answer = get(bridge, "/pypi/simple/secret/")
    assert b"hunter2" not in answer.body and file.encode() in answer.body
    assert fake.requests[-1][1]["Authorization"].startswith("Basic ")
    fake.answers["/simple/gone/"] = redirect("http://127.0.0.1:1/")
    get(bridge, "/pypi/simple/gone/")
    assert "hunter2" not in registry.log_text() and "hunter2" not in json.dumps(registry.events)
