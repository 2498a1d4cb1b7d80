# SPDX-License-Identifier: Apache-2.0
"""A real development server in a sandbox, in a real browser through its preview link: a file that is changed through the API shows without
a reload. And what a browser makes of path URLs."""

import io
import pathlib
import subprocess
import tarfile
import urllib.parse

import pytest

from client import eventually

PROJECT = pathlib.Path(__file__).parent / "vite"


@pytest.fixture(scope="session")
def project():
    """The project with its dependencies, as a tar archive; they come from the npm registry that this machine is set to."""
    if not (PROJECT / "node_modules/vite").exists():
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=PROJECT, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip("the npm registry cannot be reached: hot reload not proven: " + done.stderr[-200:])
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(PROJECT, arcname=".")
    return archive.getvalue()


def open_link(api, box, port):
    info = api.call("GET", f"{box.path}/ports/{port}")
    assert info["listening"] is True
    return info


def test_hot_reload_through_a_preview(api, create, project, browser):
    box = create()
    box.api.call("PUT", box.file_url("/home/user/app", "archive"), content=project)
    server = box.start(["node", "node_modules/vite/bin/vite.js", "--port", "5173", "--strictPort"], cwd="/home/user/app")
    eventually(lambda: api.call("GET", f"{box.path}/ports/5173")["listening"], 60, "vite listens")
    info = open_link(api, box, 5173)
    page = browser.open(info["link"])
    page.wait_for("document.getElementById('text')?.textContent === 'first'", 60)
    assert page.evaluate("location.href") == info["urls"]["localhost"]
    assert info["token"] not in page.evaluate("document.cookie + document.documentElement.outerHTML")
    page.evaluate("window.kept = 'since the first load'")
    eventually(lambda: any("[vite] connected." in str(e["params"].get("args")) for e in browser.events
                           if e["method"] == "Runtime.consoleAPICalled" and e.get("sessionId") == page.session), 60, "its WebSocket is open")
    box.put("/home/user/app/text.js", b'export const text = "second";\n')
    page.wait_for("document.getElementById('text').textContent === 'second'")
    assert page.evaluate("window.kept") == "since the first load", "the page was loaded anew: no hot reload"
    assert server.refresh()["state"] == "running"


def test_what_a_browser_makes_of_path_urls(api, create, browser):
    box = create()
    box.put("/home/user/index.html", b"<title>app</title><script>document.title = 'ran'</script>")
    box.start(["python3", "-m", "http.server", "8000", "--directory", "/home/user"])
    eventually(lambda: api.call("GET", f"{box.path}/ports/8000")["listening"], 60, "it listens")
    info = open_link(api, box, 8000)
    query = "?glovebox_token=" + info["token"]
    # On this host's own name the browser is sent to where the app has an origin of its own.
    page = browser.open(info["urls"]["path"] + query)
    page.wait_for("document.title === 'ran'")
    assert page.evaluate("location.href") == info["urls"]["localhost"]
    assert page.evaluate("self.origin") == info["urls"]["localhost"].rstrip("/")
    # On another name it stays, and is nobody there: no origin, so neither the API's storage nor another preview's pages.
    outside = urllib.parse.urlsplit(info["urls"]["path"])
    url = f"http://glovebox.test:{outside.port}{outside.path}"
    page = browser.open(url + query)
    page.wait_for("document.title === 'ran'")
    assert page.evaluate("location.href") == url
    assert page.evaluate("self.origin") == "null"
    assert page.evaluate("localStorage.length").startswith("threw")
    assert page.evaluate("fetch('/healthz').then(r => r.text())").startswith("threw")
    page.go(url)
    page.wait_for("document.title === 'ran'")
