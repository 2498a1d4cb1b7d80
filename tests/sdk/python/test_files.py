# SPDX-License-Identifier: Apache-2.0
import io
import os
import stat
import tarfile

import pytest

from glovebox import Sandbox, errors


def test_bytes_text_and_ranges(sandbox):
    entry = sandbox.files.write("notes/a.txt", "Grüße\n", mode="0600")
    assert (entry.name, entry.type, entry.size_bytes, entry.mode) == ("a.txt", "file", 8, "0600")
    assert sandbox.files.read_text("notes/a.txt") == "Grüße\n"
    sandbox.files.write("notes/a.txt", b"\xff", append=True)
    assert sandbox.files.read("notes/a.txt") == "Grüße\n".encode() + b"\xff"
    assert sandbox.files.read("notes/a.txt", offset=1, length=2) == b"r\xc3"
    assert sandbox.files.read("notes/a.txt", offset=-2) == b"\n\xff"
    assert sandbox.files.read("notes/a.txt", offset=7) == b"\n\xff"
    with pytest.raises(errors.SandboxFileExistsError):
        sandbox.files.write("notes/a.txt", "", exclusive=True)
    with pytest.raises(UnicodeDecodeError):
        sandbox.files.read_text("notes/a.txt")


def test_streams_of_64_mebibytes(sandbox):
    piece = os.urandom(1 << 20)
    sandbox.files.write("large", (piece for _ in range(64)))
    assert sandbox.files.stat("large").size_bytes == 64 << 20
    seen = 0
    for part in sandbox.files.read_stream("large"):
        assert part == (piece * 2)[seen % len(piece):][:len(part)]
        seen += len(part)
    assert seen == 64 << 20
    sandbox.files.remove("large")


def test_an_upload_that_breaks_off_leaves_what_was_there(sandbox):
    sandbox.files.write("kept", "before")

    def broken():
        yield b"x" * 100_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sandbox.files.write("kept", broken())
    assert sandbox.files.read_text("kept") == "before"


def test_a_refused_upload_tells_why(sandbox):
    with pytest.raises(errors.SandboxIsADirectoryError):
        sandbox.files.write("/tmp", (b"x" * (1 << 20) for _ in range(32)))


def test_directories(sandbox):
    assert sandbox.files.make_directory("tree/deep") and not sandbox.files.make_directory("tree/deep")
    for name in ("b", "a", "ä"):
        sandbox.files.write(f"tree/{name}", name)
    assert [(e.name, e.type) for e in sandbox.files.list("tree")] == [
        ("a", "file"), ("b", "file"), ("deep", "directory"), ("ä", "file")]
    sandbox.files.move("tree/a", "tree/deep/c")
    assert sandbox.files.exists("tree/deep/c") and not sandbox.files.exists("tree/a")
    with pytest.raises(errors.DirectoryNotEmptyError):
        sandbox.files.remove("tree")
    sandbox.files.remove("tree", recursive=True)
    with pytest.raises(errors.SandboxFileNotFoundError):
        sandbox.files.stat("tree")


def test_names_that_are_not_text(sandbox):
    name = b"odd/\xff\n&?#%"
    sandbox.files.write(name, "x")
    entry = sandbox.files.list(b"odd").to_list()[0]
    assert entry.name_b64 is not None and sandbox.files.read(name) == b"x"
    sandbox.files.move(name, b"odd/\xfe")
    sandbox.files.make_directory(b"odd/\xfd")
    assert sandbox.files.stat(b"odd/\xfd").type == "directory"
    sandbox.files.remove("odd", recursive=True)


def test_users_have_their_rights(sandbox):
    with pytest.raises(errors.PermissionDeniedError):
        sandbox.files.write("/root/x", "x", user="user")
    sandbox.files.write("/root/x", "x", user="root")
    assert sandbox.files.stat("/root/x", user="root").user == "root"


def test_a_directory_there_and_back(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "sub" / ("long" * 40)).mkdir(parents=True)
    (source / "sub" / ("long" * 40) / "file").write_bytes(os.urandom(300_000))
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    (source / "empty").mkdir()
    os.mkfifo(source / "pipe")
    sandbox.files.upload(str(source), "copied")
    assert sandbox.exec("./link", cwd="copied").stdout == "ran\n"
    assert not sandbox.files.exists("copied/pipe")
    assert sandbox.files.download("copied", str(tmp_path / "back")) == []
    back = tmp_path / "back"
    assert (back / "sub" / ("long" * 40) / "file").read_bytes() == (source / "sub" / ("long" * 40) / "file").read_bytes()
    assert os.readlink(back / "link") == "run.sh" and (back / "empty").is_dir()
    assert stat.S_IMODE((back / "run.sh").stat().st_mode) == 0o755


def test_a_file_there_and_back(sandbox, tmp_path):
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o700)
    sandbox.files.upload(str(tmp_path / "tool"), "bin/tool")
    assert sandbox.exec("bin/tool").stdout == "tool\n"
    sandbox.files.download("bin/tool", str(tmp_path / "new" / "tool"))
    assert os.access(tmp_path / "new" / "tool", os.X_OK)
    with pytest.raises(errors.SandboxFileNotFoundError):
        sandbox.files.download("nothing", str(tmp_path / "nothing"))
    assert sorted(os.listdir(tmp_path)) == ["new", "tool"]


def test_what_a_sandbox_sends_stays_in_the_target(sandbox, tmp_path):
    sandbox.exec("mkdir -p evil && cd evil && ln -s /etc out && ln -s ../../.. up && ln -s fine inside && echo x >fine && chmod 4755 fine",
                 check=True)
    left_out = sandbox.files.download("evil", str(tmp_path / "target"))
    assert {item.name for item in left_out} == {"out", "up"}
    assert sorted(os.listdir(tmp_path / "target")) == ["fine", "inside"]
    assert stat.S_IMODE((tmp_path / "target" / "fine").stat().st_mode) == 0o755


def test_archives(sandbox):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo("dir/file")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"hello"))
    sandbox.files.write_archive("unpacked", made.getvalue())
    assert sandbox.files.read_text("unpacked/dir/file") == "hello"
    for gzip in (False, True):
        data = b"".join(sandbox.files.read_archive("unpacked", gzip=gzip))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            assert archive.extractfile("dir/file").read() == b"hello"
    with pytest.raises(errors.ApiError):
        sandbox.files.write_archive("unpacked", b"no tar at all" * 100)


def test_a_directory_is_watched(sandbox):
    sandbox.files.make_directory("/tmp/watched/sub")
    with sandbox.files.watch("/tmp/watched", recursive=True) as watch:
        sandbox.files.write("/tmp/watched/sub/f", "1")
        sandbox.files.write(b"/tmp/watched/\xff", "1")
        sandbox.exec("rm -r /tmp/watched")
        seen = [(event.type, event.path, event.path_b64) for event in watch]
    assert seen[:2] == [("create", "sub/f", None), ("write", "sub/f", None)] and seen[-1] == ("remove", "", None)
    assert ("create", "\ufffd", "/w==") in seen
    with pytest.raises(errors.SandboxFileNotFoundError):
        sandbox.files.watch("/no/such")


def test_the_end_of_the_sandbox_ends_a_watch(client, tier):
    with Sandbox.create(runtime=tier, client=client) as sandbox, sandbox.files.watch("/tmp") as watch:
        sandbox.kill()
        with pytest.raises(errors.SandboxEndedError) as told:
            list(watch)
        assert told.value.details["reason"] == "killed"
