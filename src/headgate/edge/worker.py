"""The start of every worker process: it listens to its supervisor, and ends when that is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.edge.supervisor import Worker

Ready = Callable[[], None]
"""Tells the supervisor that the worker can serve."""


def run_worker(worker: Worker, pipe: Connection) -> None:
    """Run a worker in this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the supervisor decides
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with_supervisor, args=(pipe,), daemon=True).start()
    try:
        worker.run(lambda: pipe.send_bytes(b"ready"))
    except HeadgateError as error:
        print(f"headgate: {worker.name}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def _end_with_supervisor(pipe: Connection) -> None:
    """End this process when its supervisor is gone, even if that was killed."""
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
