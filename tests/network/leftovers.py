# SPDX-License-Identifier: Apache-2.0
"""Sandboxes outlive their daemon, and so a test run that was killed. The next run ends what such a one has left."""

import contextlib
import os
import pathlib
import signal

import host
from daemon import Daemon

RECORDS = pathlib.Path("/run/glovebox-network-tests")


@contextlib.contextmanager
def recorded(directory):
    """While this runs, `directory` is known as the place of this process's data directories."""
    RECORDS.mkdir(exist_ok=True)  # it stays: another run may be about to write its record
    record = RECORDS / str(os.getpid())
    record.write_text(str(directory))
    try:
        yield
    finally:
        record.unlink(missing_ok=True)


def sweep():
    for record in RECORDS.glob("*"):
        if not os.path.exists(f"/proc/{record.name}"):
            try:
                directory = pathlib.Path(record.read_text())
                record.unlink()
            except FileNotFoundError:
                continue  # another run sweeps too, and was faster
            kill_all(f"--log-facility={directory}/")  # the resolver
            for place in [place for place in directory.glob("data*") if not place.is_symlink()]:
                end_all(place)


def kill_all(words):
    for line in host.command_lines([words]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


def end_all(data_dir):
    """Ends the daemon of the directory, if it still runs, and every sandbox through another one."""
    kill_all(f" up --data-dir {data_dir} ")
    if (data_dir / "admin.key").exists():
        daemon = Daemon(data_dir).start()
        daemon.end_sandboxes()
        daemon.stop()
