"""Limits for the tasks of a queue: `headgate.tasks.celery`, `.dramatiq` and `.rq`, and their common parts."""

from __future__ import annotations

from headgate.tasks.throttle import Throttle, Turn, settle

__all__ = ["Throttle", "Turn", "settle"]
