# SPDX-License-Identifier: Apache-2.0
"""What was written in a sandbox, and only that, is its difference from its template."""

import base64

import pytest

from client import quote


def pages(box, limit=1000):
    """Every page. One may be empty and not the last: each of them costs a bounded time."""
    cursor = ""
    while cursor is not None:
        page = box.api.call("GET", f"{box.path}/diff?limit={limit}&cursor={quote(cursor)}")
        assert len(page["items"]) <= limit
        yield page["items"]
        cursor = page["next_cursor"]


def diff(box, limit=1000):
    return [item for page in pages(box, limit) for item in page]


def marks(box, limit=1000):
    return [(item["change"], item["path"]) for item in diff(box, limit)]


def test_a_new_sandbox_is_its_template(create):
    for box in (create(), create(user="root")):
        box.ok("true")
        assert diff(box) == []


def test_what_was_added_changed_and_deleted(create):
    box = create(user="root")
    box.ok("""
        echo hello >/root/new; chmod 640 /root/new; ln -s new /root/link; mkdir -p /opt/a/b; echo 12345 >/opt/a/b/c
        echo more >>/etc/passwd; chmod 600 /etc/fstab 2>/dev/null || chmod 600 /etc/group; rm /etc/issue
        rm -r /usr/share/doc; chmod 700 /var/tmp
        rm /etc/debian_version; mkdir /etc/debian_version; echo inside >/etc/debian_version/inside""")
    found = {item["path"]: item for item in diff(box)}
    entry = {"change": "added", "type": "file", "size": 6, "mode": "0640"}
    assert found["/root/new"] == {"path": "/root/new", **entry}
    assert found["/root/link"]["type"] == "symlink"
    assert found["/opt/a/b"] == {"path": "/opt/a/b", "change": "added", "type": "directory", "size": 0, "mode": "0755"}
    assert found["/opt/a/b/c"]["size"] == 6
    assert found["/etc/passwd"]["change"] == "changed" and found["/etc/passwd"]["size"] == box.stat("/etc/passwd")["size_bytes"]
    assert found["/etc/issue"]["change"] == "deleted" and found["/etc/issue"]["size"] > 0
    assert found["/usr/share/doc"]["change"] == "deleted" and found["/usr/share/doc"]["type"] == "directory"
    assert not [path for path in found if path.startswith("/usr/share/doc/")]
    assert found["/var/tmp"]["change"] == "changed" and found["/var/tmp"]["mode"] == "0700"
    assert (found["/etc/debian_version"]["change"], found["/etc/debian_version"]["type"]) == ("changed", "directory")
    assert found["/etc/debian_version/inside"]["change"] == "added"
    others = {path for path in found if path not in ("/etc/fstab", "/etc/group")} - {
        "/root/new", "/root/link", "/opt/a", "/opt/a/b", "/opt/a/b/c", "/etc/passwd", "/etc/issue", "/usr/share/doc", "/var/tmp",
        "/etc/debian_version", "/etc/debian_version/inside"}
    assert others == set()


def test_a_change_that_hides_its_time_and_size_is_found(create):
    box = create(user="root")
    box.ok("""
        cp -p /etc/passwd /tmp/saved; tr a-z A-Z </tmp/saved >/tmp/other; touch -r /tmp/saved /tmp/other
        cat /tmp/other >/etc/passwd; touch -r /tmp/saved /etc/passwd; cmp -s /tmp/saved /etc/passwd && exit 1
        rm /tmp/saved /tmp/other""")
    assert marks(box) == [("changed", "/etc/passwd")]


def test_what_comes_and_goes_leaves_no_difference(create):
    box = create(user="root")
    box.ok("mkdir -p /opt/x/y; echo 1 >/opt/x/y/z; rm -r /opt/x; echo 1 >/tmp/a; mv /tmp/a /tmp/b; rm /tmp/b")
    assert marks(box) == []


def test_pages_of_any_size_are_the_whole(create):
    box = create(user="root")
    box.ok("mkdir -p /opt/d; cd /opt/d; for i in $(seq 30); do mkdir d$i; for j in $(seq 50); do echo $j >d$i/f$j; done; done; rm /etc/issue /etc/issue.net")
    whole = marks(box)
    assert len(whole) == 2 + 1 + 30 + 30 * 50
    assert [path.split("/") for _, path in whole] == sorted(path.split("/") for _, path in whole)
    for limit in (1000, 97):
        assert marks(box, limit) == whole, limit


def test_names_are_bytes(create):
    box = create(user="root")
    raw = b"/root/\xff\xfe name\n"
    box.put(raw, b"x")
    (item,) = diff(box)
    assert base64.b64decode(item["path_b64"]) == raw and item["path"] == "/root/\ufffd\ufffd name\n"
    assert [len(page) for page in pages(box, 1)][0] == 1
    assert diff(box, 1) == [item]


def test_a_paused_one_is_resumed_an_ended_one_is_gone(create, api):
    box = create(user="root")
    box.ok("echo 1 >/root/new")
    api.call("POST", box.path + "/pause")
    assert marks(box) == [("added", "/root/new")]
    assert box.refresh()["state"] == "ready"
    box.kill()
    api.refused("GET", box.path + "/diff", 410, "sandbox_ended")


def test_since_a_snapshot(create, api):
    box = create(user="root")
    box.ok("echo 1 >/root/before; echo 1 >/root/kept; rm /etc/issue; mkdir /root/d; echo 1 >/root/d/e")
    snapshot = api.call("POST", box.path + "/snapshots", expect=201)
    copy = create(snapshot=snapshot["id"])
    try:
        for one in (box, copy):
            assert marks_since(one, snapshot) == []
            one.ok("echo 2 >>/root/before; rm -r /root/d; echo 1 >/etc/issue; echo 1 >/root/new")
            assert marks_since(one, snapshot) == [("added", "/etc/issue"), ("changed", "/root/before"), ("deleted", "/root/d"), ("added", "/root/new")]
            assert ("added", "/root/kept") in marks(one)
        stranger = create()
        api.refused("GET", f"{stranger.path}/diff?against={snapshot['id']}", 400, "invalid_argument")
    finally:
        api.call("DELETE", "/v1/snapshots/" + snapshot["id"])
    api.refused("GET", f"{box.path}/diff?against={snapshot['id']}", 404, "snapshot_not_found")


def marks_since(box, snapshot):
    items = box.api.call("GET", f"{box.path}/diff?against={snapshot['id']}&limit=1000")["items"]
    return [(item["change"], item["path"]) for item in items]


@pytest.mark.parametrize("query", ["cursor=x", "cursor=Li4v", "limit=0", "limit=1001", "what=x"])
def test_wrong_queries_are_refused(sandbox, api, query):
    api.refused("GET", f"{sandbox.path}/diff?{query}", 400, "invalid_argument")


def test_what_is_not_there_is_not_found(sandbox, api, daemon):
    api.refused("GET", "/v1/sandboxes/sb-nonesuch/diff", 404, "sandbox_not_found")
    api.refused("GET", sandbox.path + "/diff?against=snap-nonesuch", 404, "snapshot_not_found")
    stranger = daemon.api("stranger")
    stranger.refused("GET", sandbox.path + "/diff", 404, "sandbox_not_found")
