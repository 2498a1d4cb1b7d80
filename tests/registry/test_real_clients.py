# SPDX-License-Identifier: Apache-2.0
"""Real pip and npm, and the registries that this machine is configured to use. Skipped, with the reason, where none answers."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import upstream

CA = os.environ.get("SSL_CERT_FILE") or ("/etc/ssl/certs/ca-certificates.crt" if os.path.exists("/etc/ssl/certs/ca-certificates.crt") else "")


def configured(command, fallback):
    try:
        value = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except FileNotFoundError:
        value = ""
    return (value if value.startswith("http") else fallback).rstrip("/")


def answering(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "glovebox-tests"}), timeout=15):
            return ""
    except (urllib.error.URLError, OSError) as error:
        return str(error)


@pytest.fixture(scope="session")
def pypi():
    url = os.environ.get("PIP_INDEX_URL", "").rstrip("/") or configured([sys.executable, "-m", "pip", "config", "get", "global.index-url"], "https://pypi.org/simple")
    if problem := answering(url + "/six/"):
        pytest.skip(f"no PyPI: {url} does not answer ({problem}): real installs not proven")
    return url


@pytest.fixture(scope="session")
def npm():
    if not shutil.which("npm"):
        pytest.skip("no npm on this machine: real installs not proven")
    url = configured(["npm", "config", "get", "registry"], "https://registry.npmjs.org")
    if problem := answering(url + "/is-odd"):
        pytest.skip(f"no npm registry: {url} does not answer ({problem}): real installs not proven")
    return url


def test_pip_installs_and_the_second_time_from_the_cache(pypi, registries, client, record_property):
    registry = registries({"pypi": pypi}, ca_bundle=CA)
    bridge = registry.sandbox()
    seconds = []
    for name in ("first", "second"):
        started = time.monotonic()
        done = client.pip(bridge, "six", "requests", target=name)
        seconds.append(time.monotonic() - started)
        assert done.returncode == 0, done.stderr
        assert (client.home / name / "six.py").exists() and (client.home / name / "requests").is_dir()
    record_property("seconds", seconds)
    served = lambda: [e for e in list(registry.events) if e["package"] == "six" and e["outcome"] == "served" and e["file"]]
    deadline = time.monotonic() + 60
    while len(served()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [e["source"] for e in served()] == ["upstream", "cache"]
    event = registry.wait_event(package="six", source="upstream")
    assert event["client"].startswith("pip/") and len(event["sha256"]) == 64 and event["bytes"] > 0 and event["version"]


def test_pip_shows_the_rule_that_refuses(pypi, registries, client):
    registry = registries({"pypi": pypi}, ca_bundle=CA)
    denied = client.pip(registry.sandbox("sb-deny", deny=["six"]), "six")
    assert denied.returncode != 0 and 'Refused by packages.deny[0]: pypi package six is denied by "six".' in denied.stderr
    young = client.pip(registry.sandbox("sb-young", minimum_age_hours=24 * 365 * 200 // 20), "six==1.17.0")
    if young.returncode == 0:
        pytest.skip("the upstream's six is older than the policy can demand")
    assert "packages.minimum_age_hours" in young.stderr
    ranged = client.pip(registry.sandbox("sb-range", deny=["six>=1.10"]), "six>=1.10")
    assert ranged.returncode != 0 and "refused.by.packages.deny.0" in ranged.stderr
    older = client.pip(registry.sandbox("sb-range", deny=["six>=1.10"]), "six", target="older")
    assert older.returncode == 0, older.stderr
    closed = client.pip(registry.sandbox("sb-npm-only", registries=["npm"]), "six")
    assert "Refused by packages.registries" in closed.stderr
    offline = client.pip(registry.sandbox("sb-offline", offline=True), "flask")
    assert "offline mode" in offline.stderr
    for rule in ("packages.deny[0]", "packages.registries", "packages.offline"):
        registry.wait_event(outcome="denied", rule=rule)


def test_pip_with_required_hashes_is_lockfile_only(pypi, registries, client):
    registry = registries({"pypi": pypi}, ca_bundle=CA)
    bridge = registry.sandbox(require_hashes=True)
    listing = urllib.request.Request(bridge.url + "/pypi/simple/six/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    files = {f["filename"]: f for f in json.load(urllib.request.urlopen(listing, timeout=30))["files"]}
    right = files["six-1.16.0-py2.py3-none-any.whl"]["hashes"]["sha256"]
    for digest, succeeds in ((right, True), ("0" * 64, False)):
        (client.home / "locked.txt").write_text(f"six==1.16.0 --hash=sha256:{digest}\n")
        done = client.pip(bridge, "--require-hashes", "-r", client.home / "locked.txt", target="locked" + digest[:4])
        assert (done.returncode == 0) == succeeds, done.stderr


def test_npm_installs_and_shows_the_rule_that_refuses(npm, registries, client):
    registry = registries({"npm": npm}, ca_bundle=CA)
    bridge = registry.sandbox()
    done = client.npm(bridge, "is-odd", "left-pad", "@types/ms")
    assert done.returncode == 0, done.stderr
    assert (client.home / "node_modules/left-pad/package.json").exists()
    assert (client.home / "node_modules/@types/ms/package.json").exists()
    again = registry.wait_event(package="left-pad", outcome="served")
    assert again["source"] == "upstream" and len(again["sha256"]) == 64 and again["client"].startswith("npm/")
    denied = client.npm(registry.sandbox("sb-deny", deny=["left-pad"]), "left-pad", "--force")
    assert denied.returncode != 0 and "packages.deny[0]" in denied.stderr
    exact = client.npm(registry.sandbox("sb-exact", deny=["npm:is-odd@>=2"]), "is-odd@3.0.1", "--force")
    assert exact.returncode != 0 and "packages.deny[0]" in exact.stderr


def test_npm_runs_no_scripts_of_packages_that_have_them(fake, registry, client):
    if not shutil.which("npm"):
        pytest.skip("no npm on this machine: install scripts not proven")
    proof = client.home / "proof"
    fake.add_npm("scripted", "1.0.0", scripts={"postinstall": f"touch {proof}"})
    with_scripts = client.npm(registry.sandbox("sb-scripts"), "scripted", "--foreground-scripts", "--ignore-scripts=false")
    assert with_scripts.returncode == 0, with_scripts.stderr
    ran_before = proof.exists()  # newer versions of npm ask first; then this proves less
    proof.unlink(missing_ok=True)
    shutil.rmtree(client.home / "node_modules")
    (client.home / "package-lock.json").unlink()
    shutil.rmtree(client.home / "npm-cache")
    without = client.npm(registry.sandbox("sb-none", install_scripts=False), "scripted", "--ignore-scripts=false")
    assert without.returncode == 0, without.stderr
    assert not proof.exists()
    manifest = json.loads((client.home / "node_modules/scripted/package.json").read_text())
    assert "postinstall" not in manifest["scripts"], ran_before


def test_sources_are_not_served_without_install_scripts(fake, registry, client):
    body = upstream.npm_package("x", "1")  # any bytes: it is not opened
    fake.answers["/files/src-1.0.tar.gz"] = (200, {}, body)
    fake.answers["/simple/src/"] = (200, {"Content-Type": "text/html"}, f'<a href="{fake.url}/files/src-1.0.tar.gz">src</a>'.encode())
    done = client.pip(registry.sandbox(install_scripts=False), "src")
    assert done.returncode != 0 and "Refused by packages.install_scripts" in done.stderr
    assert "/files/src-1.0.tar.gz" not in fake.hits


def test_the_configuration_points_every_client_at_the_proxy():
    import proxy
    policy = {"registries": ["pypi", "npm", "debian"], "install_scripts": False, "require_hashes": True}
    out = subprocess.run([proxy.DRIVER, "--client-configuration", json.dumps(policy), "trixie"], capture_output=True, text=True, check=True).stdout
    files = json.loads(out)
    base = "http://packages.glovebox.internal"
    assert f"index-url = {base}/pypi/simple/" in files["/etc/pip.conf"] and "break-system-packages = true" in files["/etc/pip.conf"]
    assert "require-hashes = true" in files["/etc/pip.conf"]
    for path in ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"):
        assert f"registry={base}/npm/\n" in files[path] and "ignore-scripts=true" in files[path]
    assert f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {base}/debian-security trixie-security main" in files["/etc/apt/glovebox.list"]
    assert all(pathlib.PurePath(path).is_absolute() for path in files)


def test_pip_reads_the_configuration_file_as_written(fake, registry, client):
    import proxy
    out = subprocess.run([proxy.DRIVER, "--client-configuration", '{"registries":["pypi"]}', ""], capture_output=True, text=True, check=True).stdout
    bridge = registry.sandbox()
    config = json.loads(out)["/etc/pip.conf"].replace("packages.glovebox.internal/", f"127.0.0.1:{bridge.port}/").replace(
        "packages.glovebox.internal", "127.0.0.1")
    (client.home / "pip.conf").write_text(config)
    client.environment["PIP_CONFIG_FILE"] = str(client.home / "pip.conf")
    fake.add_wheel("tiny", "1.0")
    done = client.run(sys.executable, "-m", "pip", "install", "--no-cache-dir", "--target", client.home / "site", "tiny")
    assert done.returncode == 0, done.stderr
    assert (client.home / "site/tiny.py").exists()
