"""Work in a forked child of the test's process."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> Any:
    """Return the result of work in a forked child; a child that hangs, even while it starts, is killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writes)
    waiting = select.poll()
    waiting.register(reads, select.POLLIN)
    if not waiting.poll(20_000):
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reads) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    assert text, "the child hung or failed"
    return json.loads(text)
