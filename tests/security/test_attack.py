# SPDX-License-Identifier: Apache-2.0
"""`glovebox doctor --attack`: nothing gets out of any tier; and every single attempt does get through where its defence is missing."""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]

# For every attempt, a weakening (weakened.py) in which it has to get through.
PROOFS = {
    "inherited_directory": ["own_descriptors", "init_descriptors", "working_directory_in_descriptor"],
    "throwaway_init": ["write_program_files", "write_program_by_path_descriptor", "hardlink_agent", "overwrite_agent"],
    "no_sandbox": ["mount_tmpfs", "mount_bind", "remount_writable", "pivot_root", "mount_with_new_calls", "join_namespaces", "new_namespaces",
                   "mount_in_user_namespace", "clone_user_namespace", "other_socket_families", "read_canary", "read_canary_by_link", "leave_chroot",
                   "overlay_attributes", "setuid_program", "file_capabilities", "hold_capabilities", "kernel_command_line", "kernel_log",
                   "environments", "host_name", "bpf", "perf_event_open", "keyctl", "add_key", "userfaultfd", "io_uring", "kexec_load",
                   "kexec_file_load", "init_module", "finit_module", "reboot", "swapon", "acct", "iopl", "set_hostname", "open_by_handle"],
    "host_pid_namespace": ["trace_init", "read_init_memory", "probe_all_pids", "garbage_on_channel", "rewrite_agent_memory", "stop_agent", "kill_agent"],
    "visible_process": ["signal_host_processes", "list_processes"],
    "yes_kernel": ["set_clock"],
    "yes_hypervisor": ["hypervisor_socket"],
    "kept_capabilities": ["read_other_users_memory"],
    "mask_in_reach": ["unmount_mask"],
    "writable_switches": ["write_settings", "open_triggers", "write_uevent_helper", "write_cgroups", "search_sys"],
    "device_nodes": ["make_nodes", "open_nodes", "list_nodes"],
    "host_directory": ["mount_table", "search_proc"],
    "open_network": ["connect_host", "connect_beyond"],
    "second_interface": ["list_interfaces"],
    "sockets_in_reach": ["known_sockets", "host_sockets", "find_sockets"],
    "no_limits": ["fork_bomb", "thread_bomb", "memory_hog", "fill_shared_memory", "fill_disk", "fill_inodes", "exhaust_descriptors", "exhaust_inotify"],
}


def find_program(variable, name):
    places = [os.environ.get(variable)] if os.environ.get(variable) else [
        ROOT / "build" / preset / "src/programs" / name for preset in ("release", "dev")]
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    pytest.exit(f"no program at {', '.join(map(str, places))}: build it or set {variable}", 2)


@pytest.fixture(scope="session")
def glovebox():
    return find_program("GLOVEBOX_BIN", "glovebox/glovebox")


@pytest.fixture(scope="session")
def attacker(glovebox):
    """A copy where no weakening mounts anything over it: the build may be below /tmp."""
    if os.environ.get("GLOVEBOX_BIN") and not os.environ.get("GLOVEBOX_ATTACK_BIN"):
        program = pathlib.Path(glovebox).parents[1] / "attack/glovebox-attack"
    else:
        program = find_program("GLOVEBOX_ATTACK_BIN", "attack/glovebox-attack")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield shutil.copy(program, directory)


@pytest.fixture(scope="session")
def attempts(attacker):
    lines = subprocess.run([attacker, "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def facts(tmp_path):
    """What the host would tell, with this host's own answers: the attacker is then told that it runs on the host's kernel."""
    secret = f"canary-{os.urandom(16).hex()}"
    canary = tmp_path / "canary.txt"
    canary.write_text(secret)
    names = os.uname()
    path = tmp_path / "facts"
    path.write_text(f"kernel={names.release} {names.version}\npidns={os.readlink('/proc/self/ns/pid')}\nhostname={names.nodename}\n"
                    f"cmdline={pathlib.Path('/proc/cmdline').read_text().strip()}\ncanary={canary}\nsecret={secret}\nword={secret}\n")
    return path


def run_weakened(attacker, weakening, facts, names):
    """attempt -> (result, evidence)"""
    done = subprocess.run([sys.executable, HERE / "weakened.py", attacker, weakening, facts, *names], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=300, check=False)
    results = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith('{"id"'):
            entry = json.loads(line)
            results[entry["attempt"]] = (entry["result"], entry["evidence"])
    assert set(results) == set(names), (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return results


def test_every_attempt_has_a_weakening(attempts):
    proven = [name for names in PROOFS.values() for name in names]
    assert sorted(proven) == sorted(a["attempt"] for a in attempts)


@pytest.mark.parametrize("weakening", PROOFS)
def test_attempts_get_through_where_the_defence_is_missing(attacker, facts, weakening):
    results = run_weakened(attacker, weakening, facts, PROOFS[weakening])
    # What this kernel was built without is no defence that could be taken away: a filter says yes in its place.
    lacking = [name for name, (_, evidence) in results.items() if evidence.endswith(": ENOSYS")]
    if lacking:
        assert set(lacking) <= {"kexec_load", "kexec_file_load", "init_module", "finit_module", "iopl", "io_uring", "userfaultfd", "acct"}
        results |= run_weakened(attacker, "yes_kernel", facts, lacking)
    assert {name: r for name, r in results.items() if r[0] != "GOT_THROUGH"} == {}


def test_the_attacker_refuses_to_run_on_the_host(attacker, facts):
    done = subprocess.run([attacker, "run"], stdin=facts.open(), capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no sandbox" in done.stdout


# The whole of it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def data_dir(tmp_path):
    source = pathlib.Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", "/var/lib/glovebox")) / "templates"
    if not (source / "names" / "base").exists():
        pytest.skip(f"no `base` template in {source}")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "templates").symlink_to(source)
    return tmp_path / "data"


def attack(glovebox, data_dir, *options, target=()):
    return subprocess.Popen([glovebox, "--data-dir", str(data_dir), "--json", *target, "doctor", "--attack", *options],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("tier", ["container", "gvisor", "microvm"])
def test_nothing_gets_through(glovebox, data_dir, attempts, tier, monkeypatch):
    if tier == "microvm":
        if os.environ.get("GLOVEBOX_ALL_TIERS") != "1":
            pytest.skip("microvm: run with ./test --all-tiers")
        monkeypatch.setenv("GLOVEBOX_MICROVM_ALLOW_EMULATION", "1")
        (data_dir / "kernels").symlink_to(data_dir.joinpath("templates").resolve().parent / "kernels")
    process = attack(glovebox, data_dir, "--runtime", tier)
    out, err = process.communicate(timeout=900 if tier != "microvm" else 1800)
    if process.returncode == 125 and "runtime_unavailable" in err:
        pytest.skip(err.strip())
    report = json.loads(out)
    failures = [a for a in report["attempts"] if a["result"] not in ("refused", "harmless", "not_applicable")]
    assert failures == [] and err == ""
    assert process.returncode == 0 and report["failures"] == 0
    seen = collections.Counter((a["attempt"], a["user"]) for a in report["attempts"])
    for user in ("user", "root"):
        for attempt in attempts:
            assert seen[attempt["attempt"], user] == 1, (attempt, user)
    assert all(a["evidence"] for a in report["attempts"])
    ids = {a["id"] for a in report["attempts"]}
    assert ids >= {f"B{number:02}" for number in range(1, 13)}
    # "Not applicable" is a way to try nothing: only these few may say it.
    skipped = {(a["attempt"], a["user"]) for a in report["attempts"] if a["result"] == "not_applicable"}
    assert skipped <= {("read_other_users_memory", "user"), ("setuid_program", "user")}


def canaries_of(pid):
    """Names of the abstract sockets that the process listens at: others on this host may be under attack as well."""
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
    return [words[7][1:] for words in lines if words[7:] and words[7].startswith("@glovebox-canary-") and f"socket:[{words[6]}]" in own]


def test_what_gets_through_makes_the_command_fail(glovebox, data_dir):
    """Somebody reaches the listener that was laid out for the sandbox."""
    process = attack(glovebox, data_dir, "--runtime", "container")
    stop = threading.Event()
    reached = []

    def reach():
        while not stop.wait(0.05) and not reached:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:  # it has a name before it listens
                for name in canaries_of(process.pid):
                    one.connect("\0" + name)
                    reached.append(name)

    thread = threading.Thread(target=reach)
    thread.start()
    out, err = process.communicate(timeout=900)
    stop.set()
    thread.join()
    assert reached, err
    report = json.loads(out)
    assert [a["attempt"] for a in report["attempts"] if a["result"] == "GOT_THROUGH"] == ["host_listeners"]
    assert process.returncode == 1 and report["failures"] == 1


# What the command tries through the API, and the weakness of a daemon (weak_daemon.py) in which it has to get through.
API_PROOFS = {
    "none": [],
    "inherited_directory": ["execute_in_descriptor"],
    "follows_links": ["read_link_by_api", "race_links_by_api", "host_canary"],  # the host's side sees the file that was written
    "checks_then_opens": ["race_links_by_api", "host_canary"],
    "keeps_marks": ["setuid_from_archive"],
    "root_is_root": ["self_script_as_shell", "read_link_by_api"],
}


@pytest.mark.parametrize("weakness", API_PROOFS)
def test_attempts_through_the_api_get_through_where_the_defence_is_missing(glovebox, attacker, tmp_path, weakness):
    """And only there: the same daemon without this weakness stops them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        daemon = subprocess.Popen([sys.executable, HERE / "weak_daemon.py", weakness, place], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True)
        try:
            url = daemon.stdout.readline().strip()
            process = attack(glovebox, tmp_path, "--runtime", "container", target=("--url", url, "--key", "none"))
            out, err = process.communicate(timeout=900)
        finally:
            daemon.terminate()
            daemon.wait()
    report = json.loads(out) if out else pytest.fail(err)
    tried = {a["attempt"] for a in report["attempts"]}
    assert tried >= {name for names in API_PROOFS.values() for name in names}
    through = {a["attempt"]: a["evidence"] for a in report["attempts"] if a["result"] not in ("refused", "harmless")}
    assert set(through) == set(API_PROOFS[weakness]), through
    assert process.returncode == (1 if through else 0)


def test_a_missing_template_is_named_with_what_to_do(glovebox, tmp_path):
    process = attack(glovebox, tmp_path, "--runtime", "container", "--template", "nobody-has-this")
    out, err = process.communicate(timeout=300)
    if "runtime_unavailable" in err:
        pytest.skip(err.strip())
    assert process.returncode == 125 and out == ""
    assert "nobody-has-this" in err and "glovebox template build" in err


def test_runtime_needs_attack(glovebox):
    assert subprocess.run([glovebox, "doctor", "--runtime", "gvisor"], capture_output=True, check=False).returncode == 120
