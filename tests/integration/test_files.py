# SPDX-License-Identifier: Apache-2.0
"""Files in and out of sandboxes: bytes, names, rights, archives, and attempts to reach the host."""

import base64
import gzip
import hashlib
import io
import os
import random
import socket
import tarfile
import zipfile

import pytest

import host
from client import TRUE_MEMORY, eventually, needs_true_memory, quote, raw_connection, raw_head, scaled

MIB = 1 << 20


def zip_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.txt", "text\r\n" * 1000)
    return buffer.getvalue()


def tar_bytes(*members, mode="w", **options):
    """A tar of (TarInfo, content) pairs; a string stands for a file of that name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT, **options) as archive:
        for info, content in members:
            info = tarfile.TarInfo(info) if isinstance(info, str) else info
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name, kind, target="", **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    for key, value in fields.items():
        setattr(info, key, value)
    return info


# Bytes and names ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("content", [b"", b"\xff", bytes(range(256)), zip_bytes(), b"\r\n\n\r\xef\xbb\xbf"],
                         ids=["empty", "one", "every", "zip", "line-ends"])
def test_content_is_byte_exact(sandbox, content):  # C19
    entry = sandbox.put("/tmp/content", content)
    assert entry["size_bytes"] == len(content) and entry["type"] == "file" and entry["mode"] == "0644"
    assert sandbox.get("/tmp/content") == content
    assert sandbox.ok(["sha256sum", "/tmp/content"]).split()[0] == hashlib.sha256(content).hexdigest()
    assert sandbox.stat("/tmp/content")["size_bytes"] == len(content)


def test_large_random_content(sandbox):  # C19
    content = random.Random(19).randbytes(scaled(16, 64) * MIB)
    sandbox.put("/tmp/random", content)
    assert hashlib.sha256(sandbox.get("/tmp/random")).digest() == hashlib.sha256(content).digest()


NAMES = ["a b.txt", "über.txt", "emoji-😀", "line\nbreak", "-rf", "n" * 255, b"latin-\xe9\xff", "%41+&=?#", "quote'\"`$x",
         "\u202ereversed", "...", " "]


@pytest.mark.parametrize("name", NAMES, ids=[str(n) for n in range(len(NAMES))])
def test_names_survive_the_round_trip(sandbox, name):  # C19
    raw = name if isinstance(name, bytes) else name.encode()
    path = b"/tmp/names/" + raw
    sandbox.put(path, raw)
    assert sandbox.get(path) == raw
    (entry,) = sandbox.ls("/tmp/names")
    for field, expected in (("name", raw), ("path", path)):
        if isinstance(name, bytes):
            assert base64.b64decode(entry[field + "_b64"]) == expected and "\ufffd" in entry[field]
        else:
            assert entry[field].encode() == expected and field + "_b64" not in entry
    assert sandbox.stat(path)["size_bytes"] == len(raw)
    seen = sandbox.run(["python3", "-c", "import os; os.write(1, os.listdir(b'/tmp/names')[0])"])
    assert (base64.b64decode(seen["stdout_b64"]) if "stdout_b64" in seen else seen["stdout"].encode()) == raw
    target = base64.b64encode(b"/tmp/names/moved-" + raw[:200]).decode()
    sandbox.api.call("POST", sandbox.path + "/files/move",
                     json={"from_b64": base64.b64encode(path).decode(), "to_b64": target})
    assert sandbox.get(b"/tmp/names/moved-" + raw[:200]) == raw
    assert sandbox.api.call("DELETE", sandbox.file_url(b"/tmp/names/moved-" + raw[:200])) == {}
    assert sandbox.ls("/tmp/names") == []


def test_ranges(sandbox):
    sandbox.put("/tmp/digits", b"0123456789")
    url = sandbox.file_url("/tmp/digits")
    table = [("bytes=0-3", b"0123", "bytes 0-3/10"), ("bytes=4-", b"456789", "bytes 4-9/10"),
             ("bytes=-2", b"89", "bytes 8-9/10"), ("bytes=5-100", b"56789", "bytes 5-9/10"),
             ("bytes=9-9", b"9", "bytes 9-9/10")]
    for header, content, content_range in table:
        answer = sandbox.api.request("GET", url, headers={"Range": header})
        assert (answer.status_code, answer.content) == (206, content), header
        assert answer.headers["content-range"] == content_range
        assert answer.headers["accept-ranges"] == "bytes"
    answer = sandbox.api.request("GET", url, headers={"Range": "bytes=10-"})
    assert answer.status_code == 416 and answer.headers["content-range"] == "bytes */10"
    for ignored in ("lines=1-2", "bytes=x-y", "bytes=5-2"):  # RFC 9110: an invalid Range is ignored
        answer = sandbox.api.request("GET", url, headers={"Range": ignored})
        assert (answer.status_code, answer.content) in [(200, b"0123456789"), (416, answer.content)], ignored


def test_a_file_that_grows_and_one_without_size(sandbox):
    assert b"MemTotal" in sandbox.get("/proc/meminfo")
    assert sandbox.get("/proc/self/fd/../status").startswith(b"Name:")
    sandbox.put("/tmp/log", b"one\n")
    sandbox.put("/tmp/log", b"two\n", append="true")
    assert sandbox.get("/tmp/log") == b"one\ntwo\n"


def test_options_of_writing(sandbox):
    sandbox.put("/tmp/deep/er/file", b"x", mode="0755")
    assert sandbox.stat("/tmp/deep/er/file")["mode"] == "0755"
    sandbox.put("/tmp/deep/er/file", b"y", mode="0600")
    assert sandbox.stat("/tmp/deep/er/file")["mode"] == "0755", "the mode of an existing file is kept"
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/deep/er/file", exclusive="true"), 409, "file_exists", content=b"z")
    assert sandbox.get("/tmp/deep/er/file") == b"y"
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/no/such/dir/f", parents="false"), 404, "file_not_found", content=b"z")
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/deep"), 409, "is_a_directory", content=b"z")
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/deep/er/file/below"), 409, "not_a_directory", content=b"z")


def test_directories(sandbox):
    mkdir = lambda **body: sandbox.api.request("POST", sandbox.path + "/files/mkdir", json=body)
    assert mkdir(path="/tmp/a/b/c").json() == {"created": True}
    assert mkdir(path="/tmp/a/b/c").json() == {"created": False}
    assert mkdir(path="/tmp/a/b/c", parents=False).json()["error"]["code"] == "file_exists"
    assert mkdir(path="/tmp/x/y", parents=False).json()["error"]["code"] == "file_not_found"
    assert mkdir(path="/tmp/private", mode="0700").json() == {"created": True}
    assert sandbox.stat("/tmp/private")["mode"] == "0700"
    sandbox.api.refused("DELETE", sandbox.file_url("/tmp/a"), 409, "directory_not_empty")
    sandbox.api.call("DELETE", sandbox.file_url("/tmp/a", recursive="true"))
    assert not sandbox.exists("/tmp/a")
    sandbox.api.refused("DELETE", sandbox.file_url("/tmp/a", recursive="true"), 404, "file_not_found")
    sandbox.api.refused("GET", sandbox.file_url("/tmp/a"), 404, "file_not_found")
    sandbox.api.refused("GET", sandbox.file_url("/tmp"), 409, "is_a_directory")
    sandbox.api.refused("GET", sandbox.file_url("/etc/passwd", "files/list"), 409, "not_a_directory")


@pytest.mark.microvm
def test_moving(sandbox):
    def move(source, target, **options):
        return sandbox.api.request("POST", sandbox.path + "/files/move", json={"from": source, "to": target, **options})
    sandbox.put("/tmp/one", b"1")
    sandbox.put("/tmp/two", b"2")
    assert move("/tmp/one", "/tmp/two").json()["error"]["code"] == "file_exists"
    assert sandbox.get("/tmp/two") == b"2"
    assert move("/tmp/one", "/tmp/two", overwrite=True).json() == {}
    assert sandbox.get("/tmp/two") == b"1" and not sandbox.exists("/tmp/one")
    assert move("/tmp/two", "/tmp/new/dir/three").json()["error"]["code"] == "file_not_found"
    assert move("/tmp/two", "/tmp/new/dir/three", parents=True).json() == {}
    assert move("/tmp/nothing", "/tmp/x").json()["error"]["code"] == "file_not_found"
    assert sandbox.get("/tmp/new/dir/three") == b"1"


def test_kinds_of_entries(sandbox):
    sandbox.ok("cd /tmp && mkdir kinds && cd kinds && touch file && mkdir dir && ln -s file link && ln -s nowhere lost "
               "&& mkfifo pipe && chmod 640 file")
    entries = {e["name"]: e for e in sandbox.ls("/tmp/kinds")}
    assert list(entries) == sorted(entries), "in byte order of names"
    assert {n: e["type"] for n, e in entries.items()} == {
        "file": "file", "dir": "directory", "link": "symlink", "lost": "symlink", "pipe": "fifo"}
    assert entries["link"]["target"] == "file" and "target" not in entries["file"]
    assert entries["file"]["mode"] == "0640"
    assert sandbox.stat("/tmp/kinds/link", follow="true")["type"] == "file"
    assert sandbox.stat("/tmp/kinds/link")["type"] == "symlink"
    sandbox.api.refused("GET", sandbox.file_url("/tmp/kinds/lost"), 404, "file_not_found")
    pipe = sandbox.api.request("GET", sandbox.file_url("/tmp/kinds/pipe"), timeout=60)
    assert pipe.status_code in (400, 409), "a pipe without writer must not hang the call"
    assert sandbox.stat("/dev/null")["type"] == "char"


def test_relative_paths_start_at_the_working_directory(create):
    for spec in ({}, {"workdir": "/tmp"}):
        sandbox = create(**spec)
        folder = sandbox.info["workdir"]
        assert folder == spec.get("workdir", folder)
        sandbox.put("note.txt", b"mine", user="user")
        assert sandbox.stat("note.txt")["path"] == folder + "/note.txt"
        assert sandbox.get(folder + "/note.txt") == b"mine"
        assert sandbox.ok(["cat", "note.txt"]) == "mine"
        assert "note.txt" in [e["name"] for e in sandbox.ls(".")]


def test_rights_of_the_chosen_user(sandbox):
    sandbox.put("/root/secret", b"s", user="root", mode="0600")
    refused = lambda method, url, **o: sandbox.api.refused(method, url, 403, "permission_denied", **o)
    refused("GET", sandbox.file_url("/root/secret", user="user"))
    refused("GET", sandbox.file_url("/root", "files/list", user="user"))
    refused("PUT", sandbox.file_url("/root/new", user="user"), content=b"x")
    refused("PUT", sandbox.file_url("/etc/passwd", user="user"), content=b"x")
    refused("DELETE", sandbox.file_url("/etc/passwd", user="user"))
    refused("PUT", sandbox.file_url("/root", "archive", user="user"), content=tar_bytes(("f", b"x")))
    refused("GET", sandbox.file_url("/root", "archive", user="user"))
    sandbox.put("/tmp/of-user", b"x", user="user")
    entry = sandbox.stat("/tmp/of-user")
    assert (entry["user"], entry["group"], entry["uid"]) == ("user", "user", 1000)
    sandbox.put("/tmp/of-number", b"x", user="1000")
    assert sandbox.stat("/tmp/of-number")["user"] == "user"
    sandbox.api.refused("GET", sandbox.file_url("/tmp", "files/list", user="nobody-here"), 400, "user_unknown")


def test_bad_paths(sandbox):
    table = [("", 400, "invalid_argument"), ("/tmp/a\0b", 400, "invalid_path"), ("/" + "x" * 5000, 400, "invalid_path"),
             ("/tmp/" + "n" * 256, 400, "invalid_path"), ("/no/such/file", 404, "file_not_found")]
    for path, status, code in table:
        answer = sandbox.api.request("GET", sandbox.file_url(path))
        assert answer.status_code == status, (path[:20], answer.text)
        assert answer.json()["error"]["code"] in (code, "invalid_path"), path[:20]
    sandbox.ok("ln -s loop1 /tmp/loop2; ln -s loop2 /tmp/loop1")
    sandbox.api.refused("GET", sandbox.file_url("/tmp/loop1"), 400, "too_many_links")
    sandbox.api.refused("GET", sandbox.path + "/files", 400, "invalid_argument")


# Reaching out ------------------------------------------------------------------------------------------------------------
@pytest.mark.microvm
def test_nothing_of_the_host_can_be_reached(sandbox, canary, daemon):  # C21
    path, secret = canary
    needles = [secret.encode(), daemon.admin.key.encode(), b"glovebox-canary.txt"]
    inside = str(path)
    sandbox.ok("mkdir /tmp/w && cd /tmp/w && ln -s /etc/shadow x && ln -s /proc/1/root d && ln -s ../../../../ e && "
               f"ln -s {inside} direct && ln -s /proc/1/cwd cwd && ln -s /proc/self/fd f")
    bases = ["", "/tmp/w/d", "/tmp/w/e", "/tmp/w/d/..", "/tmp/w/cwd", "/proc/1/root", "/proc/self/root", "/proc/1/cwd",
             "/tmp/../../../..", "//", "/proc/self/root/proc/1/root"]
    paths = ["/tmp/w/direct", "/tmp/w/x", "../../etc/passwd", "%2e%2e/", "/proc/self/environ", "/proc/1/environ",
             "/proc/1/cmdline", "/proc/self/mountinfo", "/proc/cmdline", str(daemon.data_dir / "admin.key")]
    paths += [base + inside for base in bases] + [base + os.path.dirname(inside) for base in bases]
    paths += [base + str(daemon.data_dir / "admin.key") for base in bases]
    paths += [f"/proc/{who}/fd/{n}" for who in ("self", "1") for n in range(20)] + ["/tmp/w/f", "/tmp/w/d/etc"]
    answered = 0
    for user in ("root", "user"):
        for target in paths:
            for url in (sandbox.file_url(target, user=user), sandbox.file_url(target, "files/list", user=user),
                        sandbox.file_url(target, "files/stat", user=user),
                        sandbox.file_url(target, "files/stat", user=user, follow="true")):
                answer = bounded_get(sandbox.api, url)
                answered += answer[0] == 200
                assert answer[0] < 500, (url, answer)
                assert not [n for n in needles[:2] if n in answer[1]], url
                if "files/list" in url and answer[0] == 200:  # a refusal repeats the name that was asked for
                    assert needles[2] not in answer[1], url
    assert answered > 20, "the attempts must not all fail for a dull reason"


def bounded_get(api, url, limit=1 * MIB):
    """(status, the first bytes): some paths below /proc never end."""
    with api.http.stream("GET", url, timeout=60) as answer:
        content = b""
        for part in answer.iter_raw():
            content += part
            if len(content) > limit:
                break
        return answer.status_code, content


def test_writing_through_links_stays_inside(sandbox, canary):  # C21
    path, secret = canary
    sandbox.ok(f"mkdir /tmp/w && ln -s {path} /tmp/w/direct && ln -s /proc/1/root/{path} /tmp/w/around")
    for target in ("/tmp/w/direct", "/tmp/w/around", f"/proc/1/root{path}", f"/tmp/../../../..{path}"):
        sandbox.api.request("PUT", sandbox.file_url(target, user="root"), content=b"overwritten")
        sandbox.api.request("PUT", sandbox.file_url(target, "archive", user="root"), content=tar_bytes(("f", b"x")))
        assert path.read_text() == secret
        assert os.listdir(path.parent) == [path.name]


def test_an_archive_of_links_holds_links(sandbox, canary):  # C21
    path, secret = canary
    sandbox.ok(f"mkdir /tmp/w && ln -s /proc/1/root /tmp/w/d && ln -s {path} /tmp/w/direct && ln -s /etc /tmp/w/etc")
    answer = sandbox.api.request("GET", sandbox.file_url("/tmp/w", "archive"))
    members = {m.name.rstrip("/"): m for m in tarfile.open(fileobj=io.BytesIO(answer.content))}
    assert {n for n in members if n not in (".", "")} == {"d", "direct", "etc"} or \
        {n.removeprefix("./") for n in members if n != "."} == {"d", "direct", "etc"}
    assert all(m.issym() for n, m in members.items() if n not in (".", ""))
    assert secret.encode() not in answer.content


# Archives ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("gzipped", [False, True])
def test_archives_keep_everything(sandbox, gzipped):
    script = special("bin/run", tarfile.REGTYPE, mode=0o755)
    original = [(special("dir", tarfile.DIRTYPE, mode=0o750), b""), ("dir/ü 😀.txt", b"text"), (script, b"#!/bin/sh\necho ran\n"),
                (special("link", tarfile.SYMTYPE, "dir/ü 😀.txt"), b""), (special("hard", tarfile.LNKTYPE, "bin/run"), b""),
                ("empty", b""), ("large", random.Random(3).randbytes(3 * MIB)), ("d/" * 60 + "deep", b"deep")]
    upload = tar_bytes(*original, mode="w:gz" if gzipped else "w")
    assert sandbox.api.call("PUT", sandbox.file_url("/tmp/new/place", "archive"), content=upload) == {}
    assert sandbox.ok(["/tmp/new/place/hard"]) == "ran\n"
    answer = sandbox.api.request("GET", sandbox.file_url("/tmp/new/place", "archive", gzip=str(gzipped).lower()))
    assert answer.status_code == 200
    data = gzip.decompress(answer.content) if gzipped else answer.content
    back = tarfile.open(fileobj=io.BytesIO(data), mode="r:")
    members = {os.path.normpath(m.name): m for m in back}
    for info, content in original:
        name = info if isinstance(info, str) else info.name
        member = members[name]
        if member.isreg():
            assert back.extractfile(member).read() == content or name in ("hard", "bin/run"), name
    assert members["bin/run"].mode & 0o777 == 0o755 and members["dir"].mode & 0o777 == 0o750
    assert members["link"].issym() and members["link"].linkname == "dir/ü 😀.txt"


def test_archive_of_one_file_and_of_nothing(sandbox):
    sandbox.put("/tmp/single", b"content")
    answer = sandbox.api.request("GET", sandbox.file_url("/tmp/single", "archive"))
    (member,) = tarfile.open(fileobj=io.BytesIO(answer.content)).getmembers()
    assert os.path.normpath(member.name) == "single" and member.size == 7
    sandbox.api.refused("GET", sandbox.file_url("/tmp/none", "archive"), 404, "file_not_found")


HOSTILE = {
    "parent": [("../escaped", b"x")],
    "absolute": [("/escaped", b"x")],
    "parent-inside": [("a/../../escaped", b"x")],
    "through-link": [(special("out", tarfile.SYMTYPE, "/"), b""), ("out/escaped", b"x")],
    "through-relative-link": [(special("out", tarfile.SYMTYPE, ".."), b""), ("out/escaped", b"x")],
    "hard-link-out": [(special("stolen", tarfile.LNKTYPE, "../../etc/shadow"), b"")],
    "hard-link-absolute": [(special("stolen", tarfile.LNKTYPE, "/etc/shadow"), b"")],
}


def test_an_archive_that_cannot_be_read_is_an_error(sandbox):
    sandbox.put("/tmp/mixed/secret", b"root", user="root", mode="0600")
    sandbox.api.refused("GET", sandbox.file_url("/tmp/mixed", "archive", user="user"), 403, "permission_denied")


@pytest.mark.parametrize("case", HOSTILE)
def test_archives_that_point_outside_are_refused(sandbox, case):
    sandbox.ok("mkdir -p /tmp/in")
    before = sandbox.ok("ls -A / /tmp", user="root")
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/in", "archive", user="root"), 400, "invalid_path",
                        content=tar_bytes(*HOSTILE[case]))
    assert sandbox.ok("ls -A / /tmp", user="root") == before
    assert not sandbox.exists("/tmp/in/stolen")


def test_links_already_there_do_not_lead_an_archive_out(sandbox):
    sandbox.ok("mkdir /tmp/in /tmp/target && ln -s /tmp/target /tmp/in/out")
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/in", "archive"), 400, "invalid_path",
                        content=tar_bytes(("out/escaped", b"x")))
    assert sandbox.ls("/tmp/target") == []


def test_broken_archives_are_refused(sandbox):
    whole = tar_bytes(("file", b"x" * 100_000))
    table = {"garbage": b"this is not a tar archive" * 100, "cut": whole[:50_000], "cut-gzip": gzip.compress(whole)[:-20],
             "bad-checksum": whole[:148] + b"0000000\0" + whole[156:]}
    for case, content in table.items():
        answer = sandbox.api.request("PUT", sandbox.file_url("/tmp/in", "archive"), content=content)
        assert answer.status_code == 400, (case, answer.text)
        assert answer.json()["error"]["code"] in ("invalid_argument", "invalid_path"), case
    assert sandbox.api.call("PUT", sandbox.file_url("/tmp/in", "archive"), content=tar_bytes()) == {}


def test_devices_in_archives_give_no_device(sandbox):
    disk = special("disk", tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666)
    sandbox.api.request("PUT", sandbox.file_url("/tmp/in", "archive", user="root"), content=tar_bytes((disk, b"")))
    assert sandbox.run("head -c1 /tmp/in/disk", user="root")["exit_code"] != 0


def test_a_compressed_bomb_fills_the_sandbox_only(create):
    sandbox = create(limits={"disk_mb": 64})
    bomb = gzip.compress(tar_bytes(("zeros", bytes(300 * MIB))), 9)
    assert len(bomb) < MIB
    sandbox.api.refused("PUT", sandbox.file_url("/tmp/in", "archive"), 507, "disk_full", content=bomb)
    sandbox.api.call("DELETE", sandbox.file_url("/tmp/in", recursive="true"))
    sandbox.put("/tmp/after", b"works")


# Large things ------------------------------------------------------------------------------------------------------------
def pattern(total):
    block = random.Random(23).randbytes(MIB)
    for n in range(total // MIB):
        yield n.to_bytes(8, "big") + block[8:]


@needs_true_memory
def test_large_files_stream(create, daemon):  # C23
    total = scaled(256, 5 * 1024) * MIB
    sandbox = create(limits={"disk_mb": scaled(1024, 12_000)})
    sandbox.run(["true"])
    before = host.rss_bytes(daemon.pid)
    sandbox.api.call("PUT", sandbox.file_url("/tmp/big"), content=pattern(total), timeout=900)
    digest = hashlib.sha256()
    for part in pattern(total):
        digest.update(part)
    assert sandbox.ok(["sha256sum", "/tmp/big"]).split()[0] == digest.hexdigest()
    back = hashlib.sha256()
    with sandbox.api.http.stream("GET", sandbox.file_url("/tmp/big"), timeout=900) as answer:
        for part in answer.iter_raw():
            back.update(part)
    assert back.digest() == digest.digest()
    assert host.rss_bytes(daemon.pid) - before < 64 * MIB


@pytest.mark.parametrize("existing", [None, b"what was there"])
def test_an_aborted_upload_leaves_nothing(sandbox, existing):  # C23
    sandbox.ok(["mkdir", "/tmp/up"])
    if existing:
        sandbox.put("/tmp/up/file", existing)
    head = raw_head(sandbox.api, "PUT", sandbox.file_url("/tmp/up/file"), 8 * MIB)
    with raw_connection(sandbox.api) as connection:
        connection.sendall(head + bytes(4 * MIB))
        eventually(lambda: len(sandbox.ls("/tmp/up")) > (1 if existing else 0), what="the upload is under way")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, do not close politely
    expected = ["file"] if existing else []
    eventually(lambda: [e["name"] for e in sandbox.ls("/tmp/up")] == expected, what="the partial upload is gone")
    if existing:
        assert sandbox.get("/tmp/up/file") == existing


def test_large_directories_are_paged(sandbox):  # C23
    count = scaled(5000, 200_000)
    sandbox.ok(["python3", "-c", f"import os; os.mkdir('/tmp/many'); "
                f"[open(f'/tmp/many/{{n:06d}}', 'w').close() for n in range({count})]"])
    names = [e["name"] for e in sandbox.ls("/tmp/many", limit=997)]
    assert names == [f"{n:06d}" for n in range(count)]
    first = sandbox.api.call("GET", sandbox.file_url("/tmp/many", "files/list", limit=10))
    sandbox.ok("rm /tmp/many/00000[0-4] && touch /tmp/many/000009x")
    rest = sandbox.api.call("GET", sandbox.file_url("/tmp/many", "files/list", limit=10, cursor=first["next_cursor"]))
    assert [e["name"] for e in rest["entries"]] == ["000009x"] + [f"{n:06d}" for n in range(10, 19)]


def test_a_download_that_is_dropped_costs_nothing(sandbox, daemon):
    sandbox.ok(["truncate", "-s", "200M", "/tmp/holes"])
    before = host.rss_bytes(daemon.pid)
    for _ in range(5):
        with sandbox.api.http.stream("GET", sandbox.file_url("/tmp/holes")) as answer:
            next(answer.iter_raw())
    assert sandbox.get("/etc/hostname") is not None
    eventually(lambda: not TRUE_MEMORY or host.rss_bytes(daemon.pid) - before < 32 * MIB, what="what was held for them is free again")


def test_query_encoding_of_paths(sandbox):
    sandbox.put("/tmp/a b+c%d&é.txt", b"odd")
    form = sandbox.api.request("GET", sandbox.path + "/files?path=%2Ftmp%2Fa+b%2Bc%25d%26%C3%A9.txt")
    assert form.content == b"odd"
    assert sandbox.api.request("GET", f"{sandbox.path}/files?path={quote('/tmp/a b+c%d&é.txt')}").content == b"odd"
