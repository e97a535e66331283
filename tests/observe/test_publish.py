"""A directory of published counts: workers live and die, and no count is lost or counted twice."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter

import pytest

from headgate import Limiter, StoreError
from headgate.observe import tell_of_end
from headgate.observe.directory import Directory
from headgate.observe.publish import Watched, read
from headgate.observe.published import ALL_KEYS, FIRST_KEYS
from headgate.observe.sketch import Sketch
from headgate.observe.snapshot import Snapshot, empty
from headgate.observe.snapshot_parts import key_list
from tests.support.flight import forks, in_child

WORKER = """
import sys, time
from headgate import Limiter
from headgate.observe import tell_of_end
from headgate.observe.publish import Watched
limiter = Limiter("2/minute", namespace="jobs")
watched = Watched([limiter], sys.argv[1])
for _ in range(int(sys.argv[2])):
    limiter.hit("k")
tell_of_end()
print("ready", flush=True)
sys.stdin.read()
"""


def worker(path, hits):
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(hits)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def counts(path):
    (jobs,) = read(path)["limiters"]
    return jobs["counts"]["allowed"], jobs["counts"]["refused"]


def test_counts_of_killed_workers_are_kept_and_their_files_reused(tmp_path):
    """Ten workers, two at a time, killed with -9: two files, and every decision is counted once."""
    path = tmp_path / "watch"
    for turn in range(5):
        both = [worker(path, 3), worker(path, 5)]
        assert read(path)["workers"] == 2
        assert counts(path) == (4 * (turn + 1), 4 * (turn + 1))
        for process in both:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert read(path)["workers"] == 0
    assert counts(path) == (20, 20)
    assert sorted(os.listdir(path)) == ["worker-0.json", "worker-0.lock", "worker-1.json", "worker-1.lock"]


def test_the_scraped_worker_tells_the_sum(tmp_path):
    """Its own counts are those of now; the others are as they were published."""
    path = tmp_path / "watch"
    other = worker(path, 3)
    limiter = Limiter("1/minute", namespace="jobs")
    watched = Watched([limiter], path)
    limiter.hit("k")
    (jobs,) = watched.snapshot()["limiters"]
    assert (jobs["counts"]["allowed"], jobs["counts"]["refused"]) == (3, 1)
    watched.close()
    other.communicate("")


@pytest.mark.parametrize("keys", [FIRST_KEYS, ALL_KEYS])
def test_lists_of_keys_from_files_are_within_their_errors(tmp_path, keys):
    """Of three workers, one of them dead and taken over: each true sum is between `count - error` and `count`.

    A reader that needs only the first keys gets fewer of them, with larger errors that hold too.
    """
    chance, directories = random.Random(3), [Directory(tmp_path / "watch") for _ in range(3)]
    exact: Counter[str] = Counter()

    def published() -> Snapshot:
        sketch, seen = Sketch(places=300), empty(1.0)
        for _ in range(5_000):
            key = str(int(chance.paretovariate(0.8)))
            exact[key] += 1
            sketch.add("r", key)
        seen["refused_keys"], seen["floors"]["refused"] = key_list(sketch.listed()), sketch.floor
        return seen

    for directory in directories:
        directory.write(published())
    directories[0].leave()
    directories.append(Directory(tmp_path / "watch"))
    directories[3].write(published())
    assert len(os.listdir(tmp_path / "watch")) == 6
    total = read(tmp_path / "watch", keys)
    listed = {one["key"]: one for one in total["refused_keys"]}
    assert len(listed) > 50
    assert all(one["count"] - one["error"] <= exact[key] <= one["count"] for key, one in listed.items())
    assert all(count <= total["floors"]["refused"] for key, count in exact.items() if key not in listed)


@forks
def test_a_forked_worker_publishes_as_another_one(tmp_path):
    """A server that loads the app and forks: each child has a number and counts of its own; none counts twice.

    A child of an app whose export is closed publishes nothing.
    """
    path, limiter = tmp_path / "watch", Limiter("2/minute", namespace="jobs")
    watched = Watched([limiter], path)
    limiter.hit("k")

    def work() -> tuple[int, int]:
        limiter.hit("j")
        limiter.hit("j")
        tell_of_end()
        return read(path)["workers"], threading.active_count()

    assert in_child(work) == "(2, 2)"  # with the thread that publishes
    tell_of_end()
    assert (read(path)["workers"], counts(path)) == (1, (3, 0))
    watched.close()
    assert in_child(work) == "(1, 1)"
    assert counts(path) == (3, 0)


def test_only_the_user_can_read_and_write(tmp_path):
    """The directory is 0700 and the files 0600; a directory that others can write is refused."""
    path = tmp_path / "watch"
    Watched([Limiter("1/minute")], path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}
    path.chmod(0o777)
    with pytest.raises(StoreError, match="nobody else can write"):
        Directory(path).write(read(path))


def of_rules(table: str) -> str:
    """The first line of a file with this table of rules."""
    return f'{{"format": 3, "counts": {{"rules": {{"limits": {table}}}}}}}'


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"format": 3, "counts": []}',
        json.dumps({"format": 9}),
        '{"format": 3, "counts": {"rules": []}}',
        of_rules('[[]], "names": [["allowed"]], "rows": [["a", "b", 0, 0, ["7"]]]'),
        of_rules('[[]], "names": [["allowed"]], "rows": [["a", "b", 0, 0, []]]'),
        of_rules('[], "names": [["allowed"]], "rows": [["a", "b", 0, 0, [7]]]'),
        of_rules('[], "names": [], "rows": []') + '\n{"refused": {"rows": [[1, 2]], "floor": 0}}\n{}',
    ],
)
def test_hostile_files_are_left_out(tmp_path, hostile, caplog):
    """A file that is none of ours is logged and left out; links, pipes and folders too."""
    path = tmp_path / "watch"
    watched = Watched([Limiter("1/minute")], path)
    (path / "worker-7.json").write_text(hostile)
    (path / "worker-8.json").symlink_to("/etc/passwd")
    (path / "worker-9.json").mkdir()
    os.mkfifo(path / "worker-10.json")
    (path / "worker-..json").write_text(hostile)
    assert watched.snapshot()["workers"] == 1
    assert read(path)["workers"] == 1
    assert "worker-7.json cannot be read" in caplog.text
    watched.close()
