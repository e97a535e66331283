"""The routes of a site, for comparison with the paths of rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.urls import URLResolver, get_resolver
from django.urls.resolvers import LocalePrefixPattern, RoutePattern

from headgate.web.unreached import Route, read_route


def routes_in() -> Iterator[Route]:
    """Yield every route of the site; the part that is a regular expression is wild."""
    return _below(get_resolver(), "", "/")


def _below(resolver: URLResolver, template: str, known: str) -> Iterator[Route]:
    for each in resolver.url_patterns:
        written = template + str(each.pattern)
        for read in _read(each.pattern):
            if isinstance(each, URLResolver):
                yield from _below(each, written, known + read)
            else:
                yield read_route(known + read, None, "<", r"<\*\*>")._replace(template=f"/{written}")


def _read(pattern: Any) -> list[str]:  # noqa: ANN401
    """Return a pattern with `<*>` for any text within a segment, and `<**>` for several segments."""
    if isinstance(pattern, LocalePrefixPattern):
        languages = [f"{code}/" for code, _ in settings.LANGUAGES]
        return languages if pattern.prefix_default_language else ["", *languages]
    if not isinstance(pattern, RoutePattern):
        return ["<**>/"]  # a regular expression
    spans = [re.fullmatch(each.regex, "a/b") for each in pattern.converters.values()]
    return [re.sub(r"<[^>]*>", "<**>" if any(spans) else "<*>", str(pattern))]
