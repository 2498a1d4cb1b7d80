# SPDX-License-Identifier: Apache-2.0
"""Volumes: what is written stays, one writes or many read, however sandboxes and daemons end; hostile contents and paths lead nowhere."""

import concurrent.futures
import contextlib
import hashlib
import io
import os
import signal
import tarfile
import time

import pytest

import host
from client import Sandbox, eventually, patience
from daemon import find_program

CONFIG = "[volumes]\nmax_per_tenant = 40\nmax_mb = 4096\nmax_total_mb = 20000\n"


@pytest.fixture(scope="module")
def owner(make_daemon):
    """A daemon whose volumes the tests make; at its end no volume leaves anything but its files."""
    daemon = make_daemon(config=CONFIG)
    yield daemon
    daemon.end_sandboxes()
    for volume in daemon.admin.pages("/v1/volumes", "volumes", 100):
        daemon.admin.call("DELETE", f"/v1/volumes/{volume['id']}")
    eventually(lambda: not host.loop_devices([str(daemon.data_dir)]) and not os.listdir(daemon.data_dir / "volumes"), what="nothing of a volume is left")


@pytest.fixture
def volume(owner, request):
    names = []

    def make(size_mb=64, **fields):
        name = f"v-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}-{len(names)}"
        made = owner.admin.call("POST", "/v1/volumes", expect=201, json={"name": name, "size_mb": size_mb, **fields})
        names.append(made["id"])
        return made

    yield make
    boxes = [s["id"] for s in owner.admin.pages("/v1/sandboxes", "sandboxes", 100) if s["volumes"]]
    for box in boxes:
        owner.admin.call("DELETE", f"/v1/sandboxes/{box}")
    for name in names:
        owner.admin.request("DELETE", f"/v1/volumes/{name}")


def mount(volume, path="/data", read_only=False):
    return {"volume": volume["id"], "path": path, "read_only": read_only}


def start(owner, tier, *mounts, **fields):
    return owner.admin.create(runtime=tier, lifetime_ms=600_000, volumes=list(mounts), **fields)


def look(owner, volume):
    return owner.admin.call("GET", f"/v1/volumes/{volume['id']}")


def refuse(owner, tier, status, code, *mounts):
    return owner.admin.refused("POST", "/v1/sandboxes", status, code, json={"runtime": tier, "volumes": list(mounts)})


@pytest.mark.microvm
def test_what_is_written_stays_and_goes_from_tier_to_tier(owner, tier, runtimes, volume):
    v = volume()
    box = start(owner, tier, mount(v, "/workspace/a/b"))
    assert box.info["volumes"] == [mount(v, "/workspace/a/b")] and box.info["started_from"] == "cold"
    assert box.ok("ls -A /workspace/a/b") == "" and look(owner, v)["writer"] == box.id
    box.ok("cd /workspace/a/b && echo mine > u && mkdir d && ln -s ../u d/l && head -c 3000000 /dev/urandom > r && sha256sum r")
    box.ok("cd /workspace/a/b && echo root > r0 && chmod 600 r0 && mkfifo p; sync", user="root")
    digest = box.ok("sha256sum /workspace/a/b/r")[:64]
    assert box.ok("stat -c '%u %g' /workspace/a/b/u /workspace/a/b/d", user="root").split() == ["1000", "1000"] * 2
    box.kill()
    assert look(owner, v)["writer"] is None and look(owner, v)["used_bytes"] > 3_000_000
    for other in [t for t in ("container", "gvisor") if runtimes.get(t, {}).get("usable")]:
        box = start(owner, other, mount(v))
        assert box.ok("cat /data/u /data/d/l; cat /data/r0 2>&1 | tail -c 18; sha256sum /data/r").split()[-2] == digest
        assert box.ok("cat /data/r0; stat -c '%u %a' /data/r0", user="root").split() == ["root", "0", "600"]
        box.ok("echo again >> /data/u; rm -f /data/d/l; ln -s ../u /data/d/l")
        box.kill()
    assert look(owner, v)["readers"] == []


def test_one_writes_or_many_read(owner, tier, volume):
    v = volume()
    writer = start(owner, tier, mount(v))
    writer.ok("echo one > /data/f && sync")
    for read_only in (False, True):
        error = refuse(owner, tier, 409, "volume_in_use", mount(v, read_only=read_only))
        assert error["details"]["sandbox"] == writer.id
    owner.admin.refused("POST", f"/v1/sandboxes/{writer.id}/fork", 409, "conflict", json={"count": 2})
    owner.admin.refused("DELETE", f"/v1/volumes/{v['id']}", 409, "volume_in_use")
    owner.admin.refused("PATCH", f"/v1/volumes/{v['id']}", 409, "volume_in_use", json={"size_mb": 128})
    owner.admin.refused("GET", f"/v1/volumes/{v['id']}/archive", 409, "volume_in_use")
    owner.admin.refused("PUT", f"/v1/volumes/{v['id']}/archive", 409, "volume_in_use", content=tar_of([("a", b"1")]))
    writer.kill()
    readers = [start(owner, tier, mount(v, read_only=True)) for _ in range(3)]
    assert sorted(look(owner, v)["readers"]) == sorted(r.id for r in readers)
    refuse(owner, tier, 409, "volume_in_use", mount(v))
    for reader in readers:
        for user in ("root", "user"):
            done = reader.run("cat /data/f; echo x > /data/g; echo x >> /data/f; rm -f /data/f; (: > /data/f); chmod 777 /data; "
                              "python3 -c \"import os; os.truncate('/data/f', 0)\"; mount -o remount,rw /data; cat /data/f", user=user)
            assert done["stdout"] == "one\none\n", done
            assert "ead-only" in done["stderr"]
    assert owner.admin.request("GET", f"/v1/volumes/{v['id']}/archive").status_code == 200
    readers[0].kill()
    refuse(owner, tier, 409, "volume_in_use", mount(v))
    for reader in readers[1:]:
        reader.kill()
    start(owner, tier, mount(v)).kill()


def test_a_read_only_volume_cannot_be_changed_behind_the_mount(owner, tier, volume):
    """A gVisor engine has let guests truncate host files through read-only binds: the whole file system must be read-only."""
    v = volume()
    box = start(owner, tier, mount(v))
    box.ok("cp /bin/true /data/p && echo kept > /data/f && sync")
    box.kill()
    before = owner.admin.request("GET", f"/v1/volumes/{v['id']}/archive").content
    box = start(owner, tier, mount(v, read_only=True))
    box.run(r"""/data/p; python3 - <<'END'
import os
for path in ("/data/f", "/data/p", "/proc/self/root/data/f", "/proc/self/cwd/data/f"):
    for flags in (os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC, os.O_RDWR):
        try: os.close(os.open(path, flags))
        except OSError as e: print(e)
fd = os.open("/data/f", os.O_RDONLY)
for path in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}"):
    try: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    except OSError as e: print(e)
END""", user="root")
    box.kill()
    after = owner.admin.request("GET", f"/v1/volumes/{v['id']}/archive").content
    names = lambda archive: {m.name: (m.size, archive.extractfile(m).read() if m.isfile() else None) for m in archive}
    assert names(tarfile.open(fileobj=io.BytesIO(before))) == names(tarfile.open(fileobj=io.BytesIO(after)))


def test_of_many_who_want_to_write_one_gets_it(owner, tier, volume):
    v = volume()

    def attempt(n):
        response = owner.admin.request("POST", "/v1/sandboxes", json={"runtime": tier, "volumes": [mount(v)], "metadata": {"n": str(n)}})
        if response.status_code == 409:
            assert response.json()["error"]["code"] == "volume_in_use" and response.json()["error"]["details"]["sandbox"]
            return None
        assert response.status_code == 201, response.text
        return response.json()["id"]

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        winners = [w for w in pool.map(attempt, range(20)) if w]
    assert winners
    boxes = [Sandbox(owner.admin, owner.admin.call("GET", f"/v1/sandboxes/{w}")) for w in winners]
    assert len(boxes) == 1 and look(owner, v)["writer"] == winners[0]
    boxes[0].kill()


def kill_processes(box):
    for group in host.cgroups([box.id]):
        for pid in host.read(os.path.join(group, "cgroup.procs")).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def test_every_end_gives_it_back(owner, tier, volume):
    v = volume()
    # Its lifetime.
    box = start(owner, tier, mount(v))
    assert look(owner, v)["writer"] == box.id
    owner.admin.call("PATCH", box.path, json={"lifetime_ms": patience(300)})
    eventually(lambda: look(owner, v)["writer"] is None, 20, "the end of its lifetime")
    # Its idle timeout.
    box = start(owner, tier, mount(v))
    owner.admin.call("PATCH", box.path, json={"idle_timeout_ms": patience(300)})
    eventually(lambda: look(owner, v)["writer"] is None, 20, "idleness")
    # Its process was killed on the host.
    box = start(owner, tier, mount(v))
    kill_processes(box)
    eventually(lambda: look(owner, v)["writer"] is None, 20, "its death")
    # One that could not start.
    owner.admin.refused("POST", "/v1/sandboxes", 400, "user_unknown", json={"runtime": tier, "user": "nobody-at-all", "volumes": [mount(v)]})
    eventually(lambda: look(owner, v)["writer"] is None, 20, "a start that failed")
    # A paused one keeps it.
    box = start(owner, tier, mount(v))
    box.ok("echo kept > /data/paused")
    owner.admin.call("POST", box.path + "/pause")
    refuse(owner, tier, 409, "volume_in_use", mount(v))
    assert look(owner, v)["writer"] == box.id
    assert box.ok("cat /data/paused") == "kept\n"
    box.kill()
    start(owner, tier, mount(v)).kill()
    eventually(lambda: not host.loop_devices([str(owner.data_dir / "sandboxes"), str(owner.data_dir / "volumes")]), what="no device is left")


def test_a_daemon_that_is_killed_takes_nothing_along(owner, tier, volume):
    v, w = volume(), volume()
    box = start(owner, tier, mount(v), mount(w, "/more"))
    box.ok("echo before > /data/f; sync")
    owner.process.kill()
    owner.process.wait()
    owner.start()
    assert look(owner, v)["writer"] == box.id == look(owner, w)["writer"]
    refuse(owner, tier, 409, "volume_in_use", mount(v))
    box = Sandbox(owner.admin, owner.admin.call("GET", box.path))
    assert box.ok("cat /data/f; echo after >> /data/f; cat /data/f") == "before\nbefore\nafter\n"
    # It dies while no daemon looks.
    owner.process.kill()
    owner.process.wait()
    kill_processes(box)
    owner.start()
    eventually(lambda: look(owner, v)["writer"] is None, 20, "the daemon sees that it is gone")
    box = start(owner, tier, mount(v))
    assert "before" in box.ok("cat /data/f")
    box.kill()


def test_a_daemon_killed_at_any_moment_leaves_whole_volumes_or_none(owner, volume):
    """Creating, growing, importing, deleting: after a kill each is done or not begun, and nothing half made is left."""
    kept = volume(size_mb=64)
    archive = tar_of([("kept", b"k" * 5_000_000)])
    owner.admin.call("PUT", f"/v1/volumes/{kept['id']}/archive", content=archive)
    new = tar_of([("new", b"n" * 5_000_000)])
    for n in range(6):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [lambda: owner.admin.request("POST", "/v1/volumes", json={"name": f"kill-{n}", "size_mb": 256}),
                     lambda: owner.admin.request("PATCH", f"/v1/volumes/{kept['id']}", json={"size_mb": 80 + 16 * n}),
                     lambda: owner.admin.request("PUT", f"/v1/volumes/{kept['id']}/archive", content=new),
                     lambda: owner.admin.request("DELETE", f"/v1/volumes/kill-{n - 1}")]
            running = [pool.submit(call) for call in calls]
            time.sleep(0.02 + 0.06 * n)
            owner.process.kill()
            owner.process.wait()
            for done in running:
                done.exception()
        owner.start()
        eventually(lambda: not host.loop_devices([str(owner.data_dir / "volumes")]), 15, "no loop device is left")
        place = owner.data_dir / "volumes"
        known = lambda: {x["id"] for x in owner.admin.pages("/v1/volumes", "volumes", 100)}
        eventually(lambda: set(host.names_in(place)) <= known(), what="no files without a volume")
        eventually(lambda: all(host.names_in(place / name) == ["disk.img"] for name in known()), what="each has its disk, and nothing else")
        names = archive_of(owner, kept)
        assert names["kept"] == b"k" * 5_000_000 and names.get("new") in (None, b"n" * 5_000_000)
    for x in owner.admin.pages("/v1/volumes", "volumes", 100):
        if x["name"].startswith("kill-"):
            owner.admin.call("DELETE", f"/v1/volumes/{x['id']}")


def test_a_full_volume_is_an_error_inside_and_nothing_else(owner, tier, volume):
    v = volume(size_mb=32)
    box = start(owner, tier, mount(v))
    done = box.run("dd if=/dev/zero of=/data/big bs=1M count=64")
    assert done["exit_code"] == 1 and "No space left" in done["stderr"], done
    assert box.ok("rm /data/big && echo fine > /data/f && cat /data/f; echo ok > /tmp/t && cat /tmp/t") == "fine\nok\n"
    assert "No space" in box.run("""python3 -c "
import os
n = 0
try:
    while True: open(f'/data/n{n}', 'x').close(); n += 1
except OSError as e: import sys; print(e, file=sys.stderr)
for i in range(n): os.remove(f'/data/n{i}')
" """, timeout_ms=110_000)["stderr"]
    box.ok("echo again > /data/f")
    box.kill()
    grown = owner.admin.call("PATCH", f"/v1/volumes/{v['id']}", json={"size_mb": 200})
    assert grown["size_mb"] == 200
    owner.admin.refused("PATCH", f"/v1/volumes/{v['id']}", 400, "invalid_argument", json={"size_mb": 100})
    box = start(owner, tier, mount(v))
    box.ok("dd if=/dev/zero of=/data/big bs=1M count=150 && cat /data/f")
    assert 190 << 20 < int(box.ok("stat -f -c '%b %S' /data").split()[0]) * int(box.ok("stat -f -c '%S' /data")) + (20 << 20)
    box.kill()


@pytest.mark.parametrize("path", [
    "", "data", "/", "//data", "/data/", "/data/../etc", "/data/..", "/./data", "/proc", "/proc/1/root", "/sys/fs", "/dev", "/dev/shm/x",
    "/.glovebox", "/.glovebox/agent", "/run", "/run/glovebox", "/etc", "/etc/x", "/tmp", "/usr", "/a\nb", "/" + "x" * 300, "/a" * 40, "/" + "y" * 2000])
def test_hostile_paths_are_refused(owner, volume, path):
    v = volume()
    before = set(owner.live_ids())
    response = owner.admin.request("POST", "/v1/sandboxes", json={"volumes": [mount(v, path)]})
    assert response.status_code == 400 and response.json()["error"]["code"] in ("invalid_path", "invalid_argument"), response.text
    assert set(owner.live_ids()) <= before


def test_a_link_in_the_template_is_not_followed(owner, tier, volume):
    v = volume()
    for path in ("/bin/x", "/var/run/x", "/lib/x/y"):  # /bin, /lib -> usr/…, /var/run -> /run
        refuse(owner, tier, 400, "invalid_path", mount(v, path))
        assert look(owner, v)["writer"] is None
    eventually(lambda: not host.loop_devices([str(owner.data_dir)]) and not host.mounts(owner.pid, ["/volumes/"]), what="nothing is left of them")


def test_mounts_that_make_no_sense_are_refused(owner, tier, volume):
    v, w = volume(), volume()
    refuse(owner, tier, 400, "invalid_argument", mount(v, "/a"), mount(v, "/b"))
    refuse(owner, tier, 400, "invalid_argument", mount(v, "/a"), mount(w, "/a/b"))
    refuse(owner, tier, 400, "invalid_argument", mount(v, "/a"), mount(w, "/a"))
    refuse(owner, tier, 404, "volume_not_found", {"volume": "vol-none", "path": "/a"})
    box = start(owner, tier, mount(v, "/a"), {"volume": w["name"], "path": "/ab", "read_only": True})
    assert box.info["volumes"][1] == mount(w, "/ab", True)
    assert box.ok("touch /a/x; touch /ab/x 2>/dev/null; ls /a; ls /ab") == "x\n"
    box.kill()


def test_a_sandbox_sees_no_more_of_the_host_with_a_volume(owner, tier, volume):
    v = volume()
    box = start(owner, tier, mount(v))
    seen = box.ok("cat /proc/mounts /proc/self/mountinfo; ls /dev; df /data", user="root")
    assert str(owner.data_dir) not in seen and "/volumes/" not in seen and "disk.img" not in seen
    options = next(line.split() for line in seen.splitlines() if line.split()[1:2] == ["/data"])[3].split(",")
    if tier == "container":
        assert {"nosuid", "nodev"} <= set(options), options
    done = box.run("mknod /data/d b 7 0; cp /bin/id /data/id && chmod 4755 /data/id && ls /dev | grep -c loop; umount /data", user="root")
    assert "0" == done["stdout"].strip(), done
    assert box.run("/data/id -u", user="user")["stdout"].strip() == "1000", "set-id programs of a volume have no power"
    assert box.run("ls /data/d")["exit_code"] != 0
    box.kill()


# Archives ---------------------------------------------------------------------------------------------------------------------------

def tar_of(files, edit=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mtime = 1_700_000_000
            if edit:
                edit(member)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def archive_of(owner, volume):
    response = owner.admin.request("GET", f"/v1/volumes/{volume['id']}/archive")
    assert response.status_code == 200, response.text[:300]
    assert response.headers["content-type"] == "application/x-tar"
    archive = tarfile.open(fileobj=io.BytesIO(response.content))
    return {m.name.removeprefix("./"): archive.extractfile(m).read() if m.isfile() else None for m in archive}


def test_an_archive_goes_out_and_in(owner, tier, volume):
    v, w = volume(), volume()
    box = start(owner, tier, mount(v))
    box.ok("cd /data && mkdir -p a/b && echo text > a/b/f && ln a/b/f a/h && ln -s b/f a/l && printf 'x' > 'sp ace' && chmod 640 a/b/f && "
           "truncate -s 50M sparse && head -c 5000000 /dev/urandom > r")
    digest = box.ok("sha256sum /data/r")[:64]
    box.kill()
    exported = owner.admin.request("GET", f"/v1/volumes/{v['id']}/archive").content
    assert len(exported) < 8_000_000
    answer = owner.admin.call("PUT", f"/v1/volumes/{w['id']}/archive", content=exported)
    assert answer["id"] == w["id"] and answer["used_bytes"] > 5_000_000
    box = start(owner, tier, mount(w))
    seen = box.ok("cd /data && cat a/b/f a/h a/l && stat -c '%a %u %h' a/b/f && readlink a/l && stat -c %s sparse && cat 'sp ace' && sha256sum r")
    assert seen.split() == ["text", "text", "text", "640", "1000", "2", "b/f", str(50 << 20), "x" + digest, "r"]
    box.kill()


def hostile_archives():
    def kind(type, target=""):
        def edit(member):
            member.type, member.linkname, member.size = type, target, 0
        return edit
    sparse_bomb = tarfile.TarInfo("big")
    sparse_bomb.size = 1 << 42
    return {
        "upwards": tar_of([("a", b"1"), ("../../../../tmp/glovebox-out", b"x")]),
        "hard link out": tar_of([("h", b"")], kind(tarfile.LNKTYPE, "../../../etc/shadow")),
        "hard link absolute": tar_of([("h", b"")], kind(tarfile.LNKTYPE, "/etc/shadow")),
        "foreign owner": tar_of([("a", b"1")], lambda m: setattr(m, "uid", 1 << 20)),
        "far too large": sparse_bomb.tobuf() + b"x" * 4096,
        "full": tar_of([("a", b"x" * (70 << 20))]),
        "cut": tar_of([("a", b"x" * 100_000)])[:50_000],
        "noise": os.urandom(200_000),
        "deep": tar_of([("/".join(["d"] * 1000), b"1")]),
        "long": tar_of([("n" * 300, b"1")]),
    }


@pytest.mark.parametrize("kind", list(hostile_archives()))
def test_a_hostile_archive_changes_nothing(owner, volume, kind):
    v = volume()
    owner.admin.call("PUT", f"/v1/volumes/{v['id']}/archive", content=tar_of([("old", b"old")]))
    response = owner.admin.request("PUT", f"/v1/volumes/{v['id']}/archive", content=hostile_archives()[kind])
    assert 400 <= response.status_code < 500 or response.json()["error"]["code"] in ("unsupported", "disk_full"), response.text
    assert response.json()["error"]["code"] in ("invalid_argument", "unsupported", "disk_full", "payload_too_large"), response.text
    assert {k: x for k, x in archive_of(owner, v).items() if k not in ("", ".")} == {"old": b"old"}
    assert not os.path.exists("/tmp/glovebox-out")
    assert look(owner, v)["writer"] is None
    eventually(lambda: not host.loop_devices([str(owner.data_dir)]), what="no device is left")


def test_links_and_devices_in_an_archive_stay_inside(owner, tier, volume):
    v = volume()
    marker = f"glovebox-volume-{os.getpid()}"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, type, target in (("etc", tarfile.SYMTYPE, "/etc"), ("up", tarfile.SYMTYPE, "../../.."), ("dev", tarfile.BLKTYPE, "")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.devmajor, member.devminor = type, target, 7, 0
            archive.addfile(member)
    owner.admin.call("PUT", f"/v1/volumes/{v['id']}/archive", content=out.getvalue())
    owner.admin.request("PUT", f"/v1/volumes/{v['id']}/archive", content=tar_of([(f"etc/{marker}", b"x"), (f"up/{marker}", b"y")]))
    assert not os.path.exists(f"/etc/{marker}") and not os.path.exists(f"/{marker}")
    box = start(owner, tier, mount(v))
    assert "dev" not in box.ok("ls /data").split()
    box.kill()


def test_a_client_that_breaks_off_an_upload_changes_nothing(owner, volume):
    v = volume()
    owner.admin.call("PUT", f"/v1/volumes/{v['id']}/archive", content=tar_of([("old", b"old")]))

    def half():
        yield tar_of([("new", b"n" * 1_000_000)])[:500_000]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        owner.admin.request("PUT", f"/v1/volumes/{v['id']}/archive", content=half())
    eventually(lambda: owner.admin.request("GET", f"/v1/volumes/{v['id']}/archive").status_code == 200, 20, "it is free again")
    assert "new" not in archive_of(owner, v)


# The catalog ------------------------------------------------------------------------------------------------------------------------

def test_names_are_a_tenants_own(owner, volume):
    v = volume(labels={"team": "a"})
    assert look(owner, v)["labels"] == {"team": "a"} and owner.admin.call("GET", f"/v1/volumes/{v['name']}")["id"] == v["id"]
    owner.admin.refused("POST", "/v1/volumes", 409, "already_exists", json={"name": v["name"]})
    again = owner.admin.call("POST", "/v1/volumes", json={"name": v["name"], "size_mb": 999, "get_or_create": True})
    assert again["id"] == v["id"] and again["size_mb"] == v["size_mb"]
    other = owner.api("other-tenant")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/archive"), ("PUT", "/archive")):
        other.refused(method, f"/v1/volumes/{v['id']}{path}", 404, "volume_not_found", **({"content": tar_of([("a", b"1")])} if method == "PUT" else {}))
    other.refused("POST", "/v1/sandboxes", 404, "volume_not_found", json={"volumes": [mount(v)]})
    assert other.call("GET", "/v1/volumes")["volumes"] == []
    theirs = other.call("POST", "/v1/volumes", expect=201, json={"name": v["name"], "size_mb": 16})
    assert theirs["id"] != v["id"]
    other.call("DELETE", f"/v1/volumes/{v['name']}")
    assert look(owner, v)["id"] == v["id"]


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "a" * 65, "ä"])
def test_names_that_make_no_sense_are_refused(owner, name):
    owner.admin.refused("POST", "/v1/volumes", 400, "invalid_argument", json={"name": name})


def test_the_tenants_share_is_bounded_however_many_ask_at_once(owner):
    tenant = owner.api("greedy")
    tenant.refused("POST", "/v1/volumes", 400, "invalid_argument", json={"name": "huge", "size_mb": 5000})
    tenant.refused("POST", "/v1/volumes", 400, "invalid_argument", json={"name": "tiny", "size_mb": 1})
    make = lambda n: tenant.request("POST", "/v1/volumes", json={"name": f"g-{n}", "size_mb": 4096}).status_code
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(make, range(8)))
    assert codes.count(201) == 4 and codes.count(429) == 4, codes
    for v in tenant.call("GET", "/v1/volumes")["volumes"]:
        tenant.call("DELETE", f"/v1/volumes/{v['id']}")
    assert tenant.request("POST", "/v1/volumes", json={"name": "g-x", "size_mb": 4096}).status_code == 201
    tenant.call("DELETE", "/v1/volumes/g-x")


def test_one_is_made_when_many_get_or_create(owner):
    make = lambda _: owner.admin.request("POST", "/v1/volumes", json={"name": "shared", "size_mb": 64, "get_or_create": True})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(make, range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201] and len({a.json()["id"] for a in answers}) == 1
    owner.admin.call("DELETE", "/v1/volumes/shared")


def test_the_command_line(owner, tier, tmp_path):
    import subprocess
    def glovebox(*words, ok=True, **options):
        done = subprocess.run([find_program(), *words, "--url", owner.url, "--key", owner.admin.key], capture_output=True, timeout=300, **options)
        assert (done.returncode == 0) == ok, done
        return done.stdout.decode()
    assert glovebox("volume", "create", "cli", "--size", "64M", "--label", "a=b").startswith("vol-")
    run = lambda *command: subprocess.run([find_program(), "run", "--url", owner.url, "--key", owner.admin.key, "--runtime", tier,
                                           *command], capture_output=True, text=True, timeout=300)
    assert run("--volume", "cli:/data", "--", "sh", "-c", "echo hello > /data/f; sync").returncode == 0
    assert run("--volume", "cli:/data:ro", "--", "cat", "/data/f").stdout == "hello\n"
    assert run("--volume", "cli:/data:ro", "--", "touch", "/data/f").returncode == 1
    assert "cli" in glovebox("volume", "ls") and "64.0 MiB" in glovebox("volume", "show", "cli")
    glovebox("volume", "export", "cli", tmp_path / "v.tar")
    assert "./f" in tarfile.open(tmp_path / "v.tar").getnames()
    glovebox("volume", "create", "cli-2", "--size", "64M")
    glovebox("volume", "import", "cli-2", input=(tmp_path / "v.tar").read_bytes())
    assert run("--volume", "cli-2:/data", "--", "cat", "/data/f").stdout == "hello\n"
    assert "128.0 MiB" in glovebox("volume", "grow", "cli-2", "128M")
    glovebox("volume", "rm", "cli")
    glovebox("volume", "rm", "cli-2")
    glovebox("volume", "show", "cli", ok=False)


@pytest.mark.microvm
def test_what_is_written_last_is_there_after_the_end(owner, tier, volume):
    """Nobody synced: a kernel of its own has it in its memory, also when the sandbox is frozen."""
    v = volume()
    box = start(owner, tier, mount(v))
    box.ok("echo last > /data/last")
    eventually(lambda: box.refresh()["frozen"], 10, "an idle sandbox is frozen")
    box.kill()
    assert start(owner, tier, mount(v, read_only=True)).ok("cat /data/last") == "last\n"
