# SPDX-License-Identifier: Apache-2.0
"""Templates that E2B's clients build, call by call: whose they are, links that are not good any more, and a daemon that dies within a build.
What the clients themselves do with them is in tests/clients/e2b."""

import hashlib
import io
import os
import re
import tarfile
import time

import pytest

from client import Sandbox, eventually

pytestmark = pytest.mark.skipif("container" not in os.environ.get("GLOVEBOX_TIERS", "container"), reason="only on container")


class Client:
    """A tenant's key, as E2B's clients use it."""

    def __init__(self, daemon, tenant):
        self.api = daemon.api(tenant)
        self.key = daemon.new_key(tenant, default_runtime="container")["key"]

    def call(self, method, path, expect=200, **options):
        answer = self.api.http.request(method, path, headers={"X-API-Key": self.key}, **options)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code >= 400:
            assert answer.json()["code"] == expect and answer.json()["message"]
        return answer.json() if answer.content else None

    def ask(self, name, **fields):
        return self.call("POST", "/v3/templates", 202, json={"name": name, **fields})

    def start(self, build, *steps):
        self.call("POST", path_of(build), 202, json={"fromImage": "e2bdev/base", "steps": list(steps)})

    def status(self, build):
        return self.call("GET", path_of(build, "/status"))

    def build(self, name, *steps, **fields):
        build = self.ask(name, **fields)
        self.start(build, *steps)
        done = eventually(lambda: (s := self.status(build))["status"] in ("ready", "error") and s, 60, "the build has ended")
        assert done["status"] == "ready", done
        return build

    def send(self, build, content):
        digest = hashlib.sha256(content).hexdigest()
        link = self.call("GET", f"/templates/{build['templateID']}/files/{digest}", 201)
        return digest, link

    def sandboxes(self):
        return self.api.pages("/v1/sandboxes", "sandboxes", 100)

    def try_template(self, name, command="cat /tmp/made"):
        """What the command prints in a sandbox of the template; None where there is no such template."""
        answer = self.api.http.post("/v2/sandboxes", json={"templateID": name, "timeout": 60}, headers={"X-API-Key": self.key})
        if answer.status_code == 404 or answer.status_code == 400:
            return None
        assert answer.status_code == 201, answer.text
        try:
            (info,) = [info for info in self.sandboxes() if info["id"].replace("-", "") == answer.json()["sandboxID"]]
            return Sandbox(self.api, info).ok(command)
        finally:
            self.call("DELETE", "/sandboxes/" + answer.json()["sandboxID"], 204)


def path_of(build, rest=""):
    return ("/v2" if not rest else "") + f"/templates/{build['templateID']}/builds/{build['buildID']}{rest}"


def run(command):
    return {"type": "RUN", "args": [command]}


def copy(digest, to):
    return {"type": "COPY", "args": [".", to], "filesHash": digest}


def archive(name, content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def ours(daemon):
    return Client(daemon, "builds-ours")


@pytest.fixture
def theirs(daemon):
    return Client(daemon, "builds-theirs")


def forget_snapshots(*clients):
    for client in clients:
        for made in client.api.pages("/v1/snapshots", "snapshots", 100):
            client.api.call("DELETE", "/v1/snapshots/" + made["id"])


def test_another_tenant_has_none_of_it(ours, theirs):
    mine = ours.build("shared-name", run("echo ours >/tmp/made"))
    assert theirs.try_template("shared-name") is None and theirs.try_template(mine["templateID"]) is None
    theirs.call("GET", path_of(mine, "/status"), 404)
    theirs.call("POST", path_of(mine), 404, json={"fromImage": "e2bdev/base", "steps": []})
    theirs.call("GET", f"/templates/{mine['templateID']}/files/{'0' * 64}", 404)
    theirs.call("GET", "/templates/aliases/shared-name", 404)
    assert ours.call("GET", "/templates/aliases/shared-name")["templateID"] == mine["templateID"]
    other = theirs.build("shared-name", run("echo theirs >/tmp/made"))
    assert other["templateID"] != mine["templateID"]
    assert ours.try_template("shared-name") == "ours\n" and theirs.try_template("shared-name") == "theirs\n"
    assert ours.try_template(other["templateID"]) is None
    ours.call("POST", path_of(mine), 409, json={"fromImage": "e2bdev/base", "steps": []})
    forget_snapshots(ours, theirs)
    assert ours.try_template("shared-name") is None


def test_files_are_the_tenants_own_and_links_say_what_they_are_good_for(ours, theirs):
    content = archive("sent", b"contents\n")
    build = ours.ask("with-files")
    digest, link = ours.send(build, content)
    assert link["present"] is False
    path = link["url"][link["url"].index("/templates/"):]
    send = lambda to, body=content, **options: ours.api.http.put(to, content=body, **options).status_code
    until = int(re.search(r"until=(\d+)", path).group(1))
    assert abs(until - time.time() - 3600) < 60
    for spoilt in (path.replace(digest, "1" * 64), path.replace(f"until={until}", f"until={until + 1}"), path.replace(f"until={until}", "until=1"),
                   path.replace(build["templateID"], "tplother"), path[:-1] + ("0" if path[-1] != "0" else "1"), path.split("&upload=")[0], path.split("?")[0]):
        assert send(spoilt) == 401, spoilt
    assert ours.api.http.put(path, content=iter([content])).status_code == 400, "its length has to be said"
    assert ours.send(build, content)[1]["present"] is False, "nothing of that was kept"
    assert send(path) == 200 and ours.send(build, content)[1]["present"] is True
    for bad in ("a" * 63, "A" * 64, "%2e%2e%2f" + "0" * 61):
        assert ours.api.http.get(f"/templates/{build['templateID']}/files/{bad}", headers={"X-API-Key": ours.key}).status_code in (400, 404), bad
    theirs_build = theirs.ask("with-files")
    assert theirs.send(theirs_build, content)[1]["present"] is False, "what another tenant has sent is not there"
    theirs.start(theirs_build, copy(digest, "/tmp/"))
    failed = eventually(lambda: (s := theirs.status(theirs_build))["status"] == "error" and s, 60, "it fails")
    assert "not sent" in failed["reason"]["message"] and failed["reason"]["step"] == "1"
    ours.start(build, copy(digest, "/opt/files/"), run("cat /opt/files/sent >/tmp/made"))
    eventually(lambda: ours.status(build)["status"] == "ready", 60, "it is ready")
    assert ours.try_template("with-files") == "contents\n"
    forget_snapshots(ours)


def test_a_daemon_that_dies_within_a_build_leaves_nothing_of_it(make_daemon):
    daemon = make_daemon()
    client = Client(daemon, "mortal")
    client.build("kept", run("echo kept >/tmp/made"))
    build = client.ask("unfinished")
    client.start(build, run("sleep 300"))
    eventually(lambda: any("sleep 300" in line for line in client.status(build)["logs"]) and client.sandboxes(), 30, "it builds")
    (box,) = client.sandboxes()
    os.kill(daemon.pid, 9)
    daemon.process.wait()
    daemon.start()
    client.api = daemon.api("mortal")
    client.call("GET", path_of(build, "/status"), 404)
    eventually(lambda: not client.sandboxes(), 30, f"the build's sandbox {box['id']} ends")
    assert client.try_template("unfinished") is None
    assert client.try_template("kept") == "kept\n"
    forget_snapshots(client)


def test_builds_end_with_their_daemon(make_daemon):
    daemon = make_daemon()
    client = Client(daemon, "stopped")
    build = client.ask("unfinished")
    client.start(build, run("sleep 300"))
    eventually(lambda: any("sleep 300" in line for line in client.status(build)["logs"]) and client.sandboxes(), 30, "it builds")
    began = time.monotonic()
    daemon.stop()
    assert daemon.stopped_in_time and time.monotonic() - began < 60
    daemon.start()
    client.api = daemon.api("stopped")
    eventually(lambda: not client.sandboxes(), what="its sandbox has ended")
