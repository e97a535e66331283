"""Results as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from headgate.limit import Limit


def plain(value: object) -> Any:  # noqa: ANN401 - a tree of dicts, lists, strings and numbers
    """Return a result as dicts, lists, strings and numbers; a limit becomes its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Limit) else value
