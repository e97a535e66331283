"""`headgate top` in a terminal, over the page of an app and over a directory of workers: its share of a core."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.contestant import WorkloadError
from bench.measure import Figures
from bench.playground import cpu_of

SECONDS = 8
WARM_UP = 3
WORKERS = 8


def measure_top(rules: int, keys: int) -> Figures:
    """Percent of a core."""
    with tempfile.TemporaryDirectory() as folder:
        app = Moving(rules, keys)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(app))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ends = threading.Event()
        writer = threading.Thread(target=app.publish, args=(Path(folder) / "watch", ends))
        writer.start()
        try:
            return {
                "page": share(f"http://127.0.0.1:{server.server_port}"),
                "directory": share(f"{folder}/watch"),
            }
        finally:
            ends.set()
            writer.join()
            server.shutdown()


class Moving:
    """Snapshots of an app in which every rule and every key counts on."""

    def __init__(self, rules: int, keys: int) -> None:
        self._rules, self._keys, self._started = rules, keys, time.time()

    def snapshot(self, worker: int = 0) -> Any:
        from headgate.observe import empty
        from headgate.observe.snapshot import ALWAYS

        seen, now = empty(time.time(), "policy"), int((time.time() - self._started) * 100)
        seen["started"] = self._started
        limits = [{"text": "100/minute", "amount": 100, "period": 60.0}]
        counts = dict.fromkeys(ALWAYS, 0)
        seen["rules"] = [
            {"namespace": "policy", "rule": f"rule-{at}", "limits": limits,
             "counts": {**counts, "allowed": now * at, "refused": now + at}}
            for at in range(self._rules)
        ]  # fmt: skip
        keys = [
            {"rule": f"rule-{at % self._rules}", "key": f"10.{worker}.{at >> 8}.{at & 255}", "count": now + keys_left,
             "error": 0, "since": self._started}
            for at, keys_left in enumerate(range(self._keys, 0, -1))
        ]  # fmt: skip
        seen["refused_keys"], seen["busiest_keys"] = keys, keys
        return seen

    def publish(self, path: Path, ends: threading.Event) -> None:
        from headgate.observe.directory import Directory

        workers = [Directory(path) for _ in range(WORKERS)]
        while not ends.is_set():
            for at, each in enumerate(workers):
                each.write(self.snapshot(at))
            ends.wait(1.0)


def handler_of(app: Moving) -> type[BaseHTTPRequestHandler]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(app.snapshot()).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Page


def share(source: str) -> float:
    """Percent of a core that `headgate top` takes, after its start, in a terminal of 80 x 24."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "headgate", "top", source]
    env = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    drawn: list[bytes] = []
    reader = threading.Thread(target=drain, args=(master, drawn), daemon=True)
    reader.start()
    try:
        time.sleep(WARM_UP)
        before, begin = cpu_of(process.pid), time.perf_counter()
        time.sleep(SECONDS)
        percent = (cpu_of(process.pid) - before) / (time.perf_counter() - begin) * 100
        os.write(master, b"q")
        if process.wait(10) != 0 or b"rule-1" not in b"".join(drawn):
            raise WorkloadError(f"headgate top did not draw {source}")
        return percent
    finally:
        process.kill()
        process.wait()


def drain(master: int, drawn: list[bytes]) -> None:
    try:
        while data := os.read(master, 65536):
            drawn.append(data)
    except OSError:  # the terminal has gone with its process
        return
