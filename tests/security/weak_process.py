# SPDX-License-Identifier: Apache-2.0
"""A process of a "sandbox" of weak_daemon.py; its specification is JSON in the first argument. Imports little: it is started often."""

import ctypes
import json
import os
import sys


def enter(spec):
    os.chroot(spec["root"])
    os.chdir(spec.get("cwd", "/"))
    if not spec["may_gain"] and ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError("no_new_privs")
    if spec["uid"] != 0:
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])


def main():
    spec = json.loads(sys.argv[1])
    try:
        enter(spec)
        if spec["work"] == "read":
            with open(spec["path"], "rb") as file:
                sys.stdout.buffer.write(file.read())
        elif spec["work"] == "write":
            with open(spec["path"], "wb") as file:
                file.write(sys.stdin.buffer.read())
            os.chmod(spec["path"], spec["mode"])
        else:
            os.execve(spec["argv"][0], spec["argv"], {})
    except OSError as error:
        sys.exit(f"not started: {error}")


main()
