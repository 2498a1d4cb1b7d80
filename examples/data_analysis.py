#!/usr/bin/env python3
"""A data analysis as an agent would run it: upload a CSV of 100 000 rows, compute in a sandbox, fetch JSON and a file.

Plain HTTP, standard library only. GLOVEBOX_API_URL and GLOVEBOX_API_KEY say where the server is; RUNTIME chooses a tier.
"""
import csv
import io
import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("GLOVEBOX_API_URL", "http://127.0.0.1:7070")
KEY = os.environ["GLOVEBOX_API_KEY"]
ROWS = 100_000

PROGRAM = r"""
import csv, json, statistics
from collections import defaultdict

by_region = defaultdict(list)
with open("sales.csv", newline="") as f:
    for row in csv.DictReader(f):
        by_region[row["region"]].append(float(row["amount"]))

report = {
    region: {
        "orders": len(amounts),
        "revenue": round(sum(amounts), 2),
        "median": round(statistics.median(amounts), 2),
    }
    for region, amounts in sorted(by_region.items())
}
with open("report.md", "w") as f:
    f.write("| region | orders | revenue | median |\n|---|---|---|---|\n")
    for region, r in report.items():
        f.write(f"| {region} | {r['orders']} | {r['revenue']:.2f} | {r['median']:.2f} |\n")
print(json.dumps({"rows": sum(r["orders"] for r in report.values()), "by_region": report}))
"""


def call(method, path, body=None, query=None):
    url = URL + path + ("?" + urllib.parse.urlencode(query) if query else "")
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    request = urllib.request.Request(url, data=data, method=method, headers={"Authorization": f"Bearer {KEY}"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return json.loads(answer) if is_json else answer
    except urllib.error.HTTPError as error:
        details = json.loads(error.read())["error"]
        sys.exit(f"{method} {path}: {details['code']}: {details['message']}\n{details['hint']}")


def make_csv():
    """The same 100 000 rows each time, so the answer can be checked on this side."""
    rng = random.Random(4711)
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["order", "region", "amount"])
    total = 0
    for order in range(ROWS):
        cents = rng.randrange(100, 100_000)
        total += cents
        rows.writerow([order, rng.choice(["north", "south", "east", "west"]), f"{cents / 100:.2f}"])
    return text.getvalue().encode(), total / 100


def main():
    data, expected_total = make_csv()
    times = {}

    def timed(name, work):
        start = time.perf_counter()
        result = work()
        times[name] = round((time.perf_counter() - start) * 1000, 1)
        return result

    box = timed("create", lambda: call("POST", "/v1/sandboxes", {"template": "base", "runtime": os.environ.get("RUNTIME", "auto")}))
    path = f"/v1/sandboxes/{box['id']}"
    try:
        timed("upload", lambda: call("PUT", path + "/files", data, {"path": "sales.csv"}))
        timed("upload program", lambda: call("PUT", path + "/files", PROGRAM.encode(), {"path": "analyse.py"}))
        run = timed("compute", lambda: call("POST", path + "/executions", {"argv": ["python3", "analyse.py"], "timeout_ms": 60_000},
                                            {"wait": "true"}))
        if run["outcome"] != {"type": "exited", "exit_code": 0}:
            sys.exit(f"the analysis failed: {run['outcome']}\n{run['stderr']}")
        report = timed("download", lambda: call("GET", path + "/files", query={"path": "report.md"})).decode()
    finally:
        timed("kill", lambda: call("DELETE", path))

    result = json.loads(run["stdout"])
    revenue = sum(r["revenue"] for r in result["by_region"].values())
    if result["rows"] != ROWS or abs(revenue - expected_total) > 0.05:
        sys.exit(f"wrong answer: {result['rows']} rows, {revenue} instead of {expected_total}")
    print(f"sandbox {box['id']}: runtime {box['runtime']}, template {box['template']['name']}")
    print(f"{result['rows']} rows analysed, revenue {revenue:.2f} (checked against {expected_total:.2f})\n")
    print(report)
    print("milliseconds: " + ", ".join(f"{name} {ms}" for name, ms in times.items()))


if __name__ == "__main__":
    main()
