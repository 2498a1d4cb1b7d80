# SPDX-License-Identifier: Apache-2.0
"""Runs inside a sandbox: network attempts, all at once, and what each of them came to.

probe.py TASKS RESULTS: files of JSON, a list each, in the same order. Bytes travel as base64 under names that end in `_b64`.

`timeout` bounds each wait of a task (20 s): for what must be answered it only says when to give up, and what must not be answered at
all needs a short one. `idle` is the bound once the first bytes have come, where an answer does not end by itself.
"""

import base64
import concurrent.futures
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time

PROTOCOLS = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "icmp": (socket.SOCK_DGRAM, 1), "raw": (socket.SOCK_RAW, 1),
             "sctp": (socket.SOCK_STREAM, 132)}


def fault(error):
    """A short name: the errno's, or the TLS alert's number as "alert 49"."""
    if isinstance(error, ssl.SSLError):
        names = {"ACCESS_DENIED": "alert 49", "TLSV1_ALERT_ACCESS_DENIED": "alert 49", "EOF": "eof"}
        reason = error.reason or str(error)
        return next((value for key, value in names.items() if key in reason), reason)
    if isinstance(error, socket.gaierror):
        return {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_AGAIN: "EAI_AGAIN", socket.EAI_FAIL: "EAI_FAIL",
                socket.EAI_NODATA: "EAI_NODATA"}.get(error.errno, f"EAI {error.errno}")
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "timeout"
    return errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def opened(task, kind="tcp"):
    address, port = task["to"]
    shape, protocol = PROTOCOLS[kind]
    sock = socket.socket(family_of(address), shape, protocol)
    sock.settimeout(task.get("timeout", 20.0))
    if task.get("bind"):
        sock.bind(tuple(task["bind"]))
    sock.connect((address, port))
    return sock


def read_all(sock, limit=1 << 20, until=None, idle=None):
    """(bytes, how it ended): "eof", "timeout", an error's name, or "until" when `until` came."""
    data = b""
    try:
        while len(data) < limit:
            if until and until in data:
                return data, "until"
            part = sock.recv(65536)
            if not part:
                return data, "eof"
            data += part
            if idle:
                sock.settimeout(idle)
        return data, "limit"
    except OSError as error:
        return data, fault(error)


def payload(task, name="send"):
    if name + "_b64" in task:
        return base64.b64decode(task[name + "_b64"])
    return task.get(name, "").encode("latin-1")


def result_of(data, end):
    return {"received_b64": base64.b64encode(data).decode(), "received": data[:4000].decode("latin-1"), "bytes": len(data), "end": end}


def wait_for_file(path, seconds=120):
    """A test puts it there when it is time to go on."""
    deadline = time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)


def do_tcp(task):
    """Connects, sends `send` or the `pieces` one by one, with a `gap` or until the file `then` is there, and reads until the end or `until`."""
    with opened(task) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces = [base64.b64decode(p) for p in task.get("pieces_b64", [])] or [payload(task)]
        broken = None
        for number, piece in enumerate(pieces):
            if number and task.get("then"):
                wait_for_file(task["then"])
            try:
                sock.sendall(piece)
            except OSError as error:
                broken = fault(error)
                break
            time.sleep(task.get("gap", 0))
        if task.get("half_close"):
            sock.shutdown(socket.SHUT_WR)
        until = payload(task, "until") or None
        return {"connected": True, "broken": broken, **result_of(*read_all(sock, task.get("limit", 1 << 20), until, task.get("idle")))}


def do_talk(task):
    """Each of `turns` is [send, until]; stops at the first that ends otherwise. The answers one by one."""
    answers = []
    with opened(task) as sock:
        for send, until in task["turns"]:
            try:
                sock.sendall(send.encode("latin-1"))
            except OSError as error:
                answers.append(result_of(b"", fault(error)))
                break
            data, end = read_http(sock) if until == "http" else read_all(sock, until=until.encode() or None)
            answers.append(result_of(data, end))
            if end != "until":
                break
    return {"connected": True, "answers": answers}


def read_http(sock):
    """One response with Content-Length."""
    data, end = read_all(sock, until=b"\r\n\r\n")
    if end != "until":
        return data, end
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        part = sock.recv(65536)
        if not part:
            return head + b"\r\n\r\n" + body, "eof"
        body += part
    return head + b"\r\n\r\n" + body, "until"


def do_tls(task):
    """A handshake with `sni`, then `request`; `verify` names the CA's file."""
    context = ssl.create_default_context(cafile=task["verify"]) if task.get("verify") else ssl._create_unverified_context()
    if task.get("alpn"):
        context.set_alpn_protocols(task["alpn"])
    with opened(task) as plain:
        if task.get("connect"):
            plain.sendall(task["connect"].encode("latin-1"))
            answer, end = read_all(plain, until=b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                return {"connected": True, "handshake": False, **result_of(answer, end)}
        with context.wrap_socket(plain, server_hostname=task.get("sni")) as sock:
            sock.sendall(payload(task, "request"))
            return {"connected": True, "handshake": True, "version": sock.version(),
                    **result_of(*read_all(sock, task.get("limit", 1 << 20), payload(task, "until") or None))}


def do_udp(task):
    with opened(task, "udp") as sock:
        sock.send(payload(task))
        data = sock.recv(65536)
        return {"answered": True, **result_of(data, "eof")}


def do_icmp(task):
    with opened(task, "icmp") as sock:
        sock.send(struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0) + payload(task))
        return {"answered": True, **result_of(sock.recv(65536), "eof")}


def do_raw(task):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, task["protocol"]) as sock:
        sock.sendto(payload(task), (task["to"][0], 0))
    return {"sent": True}


def do_sctp(task):
    with opened(task, "sctp"):
        return {"connected": True}


def do_resolve(task):
    found = socket.getaddrinfo(task["name"], task.get("port", 443), type=socket.SOCK_STREAM)
    return {"addresses": sorted({entry[4][0] for entry in found})}


def do_dns(task):
    """The raw `query` over UDP or, with `over_tcp`, over TCP."""
    query = payload(task, "query")
    with opened(task, "tcp" if task.get("over_tcp") else "udp") as sock:
        sock.sendall((struct.pack("!H", len(query)) if task.get("over_tcp") else b"") + query)
        data = sock.recv(65536)
        if task.get("over_tcp"):
            while len(data) < 2 or len(data) < 2 + struct.unpack_from("!H", data)[0]:
                part = sock.recv(65536)
                if not part:
                    break
                data += part
            data = data[2:]
        return {"answered": len(data) >= 12, "rcode": data[3] & 15 if len(data) >= 12 else None,
                "answer_count": struct.unpack_from("!H", data, 6)[0] if len(data) >= 12 else None, **result_of(data, "eof")}


def do_http(task):
    """A request as a library makes it: resolve, connect, send. `url` is http only."""
    host, _, path = task["url"].removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port or 80)), timeout=task.get("timeout", 20.0)) as sock:
        sock.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return {"connected": True, **result_of(*read_all(sock))}


def do_hold(task):
    """Opens `count` connections that send `send` and then nothing, keeps them for `seconds` in all, or until the file `stop` is there;
    how many were up at the end."""
    held, refused, begin = [], {}, time.monotonic()
    deadline, patience = begin + task["seconds"], begin + 120
    for _ in range(task["count"]):
        try:
            sock = opened(task)
            sock.sendall(payload(task))
            held.append(sock)
        except OSError as error:
            refused[fault(error)] = refused.get(fault(error), 0) + 1
            if fault(error) == "EMFILE":
                break
        if time.monotonic() > patience or is_told_to_stop(task):
            break
    opened_in = time.monotonic() - begin
    drip = payload(task, "drip")
    while time.monotonic() < deadline and not is_told_to_stop(task):
        time.sleep(0.2)
        for sock in held if drip else ():
            try:
                sock.sendall(drip)
            except OSError:
                pass
    alive = sum(1 for sock in held if is_open(sock))
    return {"opened": len(held), "refused": refused, "alive": alive, "opened_in": opened_in}


def is_open(sock):
    sock.setblocking(False)
    try:
        return bool(sock.recv(65536))
    except BlockingIOError:
        return True
    except OSError:
        return False


def is_told_to_stop(task):
    return "stop" in task and os.path.exists(task["stop"])


def do_loop(task):
    """`task` again and again for `seconds`, but `at_least` so many times, or until the file `stop` is there: [wall clock before and after,
    what came of it, the beginning of what was received] of each time."""
    outcomes, deadline = [], time.monotonic() + task["seconds"]
    while len(outcomes) < task.get("at_least", 0) or (time.monotonic() < deadline and not is_told_to_stop(task)):
        began, done = time.time(), attempt(task["task"])
        good = done.get("handshake") or done.get("rcode") == 0 or done.get("addresses") or done.get("bytes")
        outcomes.append([began, time.time(), "good" if good else done["error"] or done.get("end") or "nothing", done.get("received", "")[:300]])
        time.sleep(task.get("gap", 0.1))
    return {"outcomes": outcomes}


def do_series(task):
    """`task` so many times, one after the other."""
    return {"results": [attempt(task["task"]) for _ in range(task["count"])]}


def do_listen(task):
    """Everything that comes to a port of this sandbox during `seconds`, over TCP and UDP."""
    came, deadline = [], time.monotonic() + task["seconds"]
    with socket.create_server(("0.0.0.0", task["port"])) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("0.0.0.0", task["port"]))
        tcp.setblocking(False)
        udp.setblocking(False)
        while time.monotonic() < deadline:
            for sock, take in ((tcp, lambda: tcp.accept()[1]), (udp, lambda: udp.recvfrom(100)[1])):
                try:
                    came.append(take())
                except BlockingIOError:
                    pass
            time.sleep(0.02)
    return {"came": came}


def attempt(task):
    begin = time.monotonic()
    try:
        done = {"ok": True, "error": None, **globals()["do_" + task["op"]](task)}
    except OSError as error:
        done = {"ok": False, "error": fault(error), "text": str(error)}
    return {**done, "ms": (time.monotonic() - begin) * 1000, "ended": time.time()}


def main():
    with open(sys.argv[1]) as file:
        tasks = json.load(file)
    with concurrent.futures.ThreadPoolExecutor(max(1, min(64, len(tasks)))) as pool:
        results = list(pool.map(attempt, tasks))
    with open(sys.argv[2] + ".part", "w") as file:
        json.dump(results, file)
    os.rename(sys.argv[2] + ".part", sys.argv[2])  # whole, whoever looks


main()
