# SPDX-License-Identifier: Apache-2.0
"""What agents do all day: fix a repository until its tests pass, and analyse a table."""

import csv
import io
import json
import random
import statistics
import subprocess
import tarfile

import pytest

BROKEN = """def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
"""
TESTS = """from stats import median


def test_odd():
    assert median([3, 1, 2]) == 2


def test_even():
    assert median([4, 1, 2, 3]) == 2.5
"""
FIXED = """def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
"""


def git(folder, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder):
    """A repository whose head has a failing test; returns (tar of its bare form, its head)."""
    source, bare = folder / "source", folder / "project.git"
    source.mkdir()
    git(source, "init", "-q")
    (source / "stats.py").write_text(BROKEN)
    (source / "test_stats.py").write_text(TESTS)
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "A median that is wrong for even counts")
    git(folder, "clone", "-q", "--bare", "source", "project.git")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(bare, "project.git")
    return buffer.getvalue(), git(source, "rev-parse", "HEAD").strip(), source


@pytest.mark.microvm
def test_coding_agent(sandbox, tmp_path):
    archive, head, source = repository(tmp_path)
    sandbox.api.call("PUT", sandbox.file_url("/tmp/origin", "archive"), content=archive)
    sandbox.ok(["git", "clone", "-q", "/tmp/origin/project.git", "/tmp/project"])
    assert sandbox.ok(["git", "rev-parse", "HEAD"], cwd="/tmp/project").strip() == head

    run_tests = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    first = sandbox.run(run_tests, cwd="/tmp/project", timeout_ms=280_000)
    assert first["exit_code"] == 1 and "1 failed, 1 passed" in first["stdout"], first

    assert sandbox.get("/tmp/project/stats.py").decode() == BROKEN
    sandbox.put("/tmp/project/stats.py", FIXED.encode())
    second = sandbox.run(run_tests, cwd="/tmp/project", timeout_ms=280_000)
    assert second["exit_code"] == 0 and "2 passed" in second["stdout"], second

    author = {"GIT_AUTHOR_NAME": "Agent", "GIT_AUTHOR_EMAIL": "agent@example.invalid",
              "GIT_COMMITTER_NAME": "Agent", "GIT_COMMITTER_EMAIL": "agent@example.invalid"}
    sandbox.ok("git commit -q -am 'Average the two middle values' && git push -q origin HEAD:fix",
               cwd="/tmp/project", env=author)
    patch = sandbox.ok(["git", "format-patch", "--stdout", head], cwd="/tmp/project")
    (tmp_path / "fix.patch").write_text(patch)
    git(source, "am", "-q", str(tmp_path / "fix.patch"))
    assert (source / "stats.py").read_text() == FIXED
    assert git(source, "log", "-1", "--format=%an: %s") == "Agent: Average the two middle values\n"


ANALYSIS = """import csv, collections, json, statistics
groups = collections.defaultdict(list)
with open('/tmp/sales.csv', newline='') as file:
    for row in csv.DictReader(file):
        groups[row['region']].append(int(row['cents']))
with open('/tmp/report.json', 'w') as file:
    json.dump({r: {'rows': len(v), 'sum': sum(v), 'median': statistics.median(v)} for r, v in groups.items()}, file)
print('rows', sum(map(len, groups.values())))
"""


@pytest.mark.microvm
def test_data_analysis(sandbox):
    chance = random.Random(7)
    rows = [(n, chance.choice(["north", "süd", "east, far", 'we"st']), chance.randrange(1_000_000)) for n in range(100_000)]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "region", "cents"])
    writer.writerows(rows)
    sandbox.put("/tmp/sales.csv", table.getvalue().encode())
    sandbox.put("/tmp/analyse.py", ANALYSIS.encode())
    assert sandbox.ok(["python3", "/tmp/analyse.py"], timeout_ms=280_000) == "rows 100000\n"
    expected = {}
    for region in {r[1] for r in rows}:
        values = [cents for _, place, cents in rows if place == region]
        expected[region] = {"rows": len(values), "sum": sum(values), "median": statistics.median(values)}
    assert json.loads(sandbox.get("/tmp/report.json")) == expected
