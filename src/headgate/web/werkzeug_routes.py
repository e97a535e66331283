"""The routes of Flask and Quart, which use Werkzeug's URL maps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from headgate.web.unmatched_rules import Route, read_route

NAMES: Final = re.compile(r"<(?:([A-Za-z_]\w*)(?:\(.*?\))?:)?\w+>")


def routes_in(app: Any) -> Iterator[Route]:  # noqa: ANN401
    """Yield every route of an app; a converter that matches no slashes is one wild segment."""
    for rule in app.url_map.iter_rules():
        kinds = {match[1] or "default" for match in NAMES.finditer(rule.rule)}
        several = any(not app.url_map.converters[kind].part_isolating for kind in kinds)
        methods = ("WEBSOCKET", "MESSAGE") if getattr(rule, "websocket", False) else rule.methods
        template = NAMES.sub(lambda match: match[0].replace("/", "|"), rule.rule)
        yield read_route(template, methods, "<", "<" if several else r"(?!)")
