"""A directory of published counts: workers live and die, and no count is lost or counted twice."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from headgate import Limiter, StoreError
from headgate.observe.directory import Directory
from headgate.observe.publish import Watched, read

WORKER = """
import sys, time
from headgate import Limiter
from headgate.observe.publish import Watched
limiter = Limiter("2/minute", namespace="jobs")
watched = Watched([limiter], sys.argv[1])
for _ in range(int(sys.argv[2])):
    limiter.hit("k")
watched._write()
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


def test_only_the_user_can_read_and_write(tmp_path):
    """The directory is 0700 and the files 0600; a directory that others can write is refused."""
    path = tmp_path / "watch"
    Watched([Limiter("1/minute")], path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}
    path.chmod(0o777)
    with pytest.raises(StoreError, match="nobody else can write"):
        Directory(path).write(read(path))


@pytest.mark.parametrize(
    "hostile", ["", "[]", "{}", "nonsense", '{"version": 1, "own": {}, "past": null}', json.dumps({"version": 9})]
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
