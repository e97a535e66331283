"""Our header fields on the responses of an app: added to its own, and exposed to scripts of other origins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, AnyStr, Final

from headgate.policy.edges import HeaderStyle
from headgate.web.headers import FieldWriter, HeaderCodec, TextFields, checked_styles, fields_of

if TYPE_CHECKING:
    from headgate.engine import Decision

ALLOWS_ORIGIN: Final = len("Access-Control-Allow-Origin")
Expose = Callable[[Iterable[tuple[AnyStr, AnyStr]]], list[tuple[AnyStr, AnyStr]]]
"""Adds our fields to those that a response exposes already."""
Added = Callable[[Iterable[tuple[AnyStr, AnyStr]], "Decision"], Iterable[tuple[AnyStr, AnyStr]]]
"""Returns the headers of a response, with the fields of a decision added."""


def adding(write_fields: FieldWriter[AnyStr], allows_origin: AnyStr, expose: Expose[AnyStr]) -> Added[AnyStr]:
    """Return a function that adds the fields of a decision; they are exposed if the app allows other origins."""
    one = getattr(write_fields, "__self__", None)
    if isinstance(one, TextFields):
        return _adding_text(one, allows_origin, expose)  # type: ignore[arg-type, return-value]

    def with_fields(headers: Iterable[tuple[AnyStr, AnyStr]], decision: Decision) -> list[tuple[AnyStr, AnyStr]]:
        given: list[tuple[Any, Any]] = headers if headers.__class__ is list else list(headers)
        for name, _ in given:
            if len(name) == ALLOWS_ORIGIN and name.lower() == allows_origin:
                return expose(given + write_fields(decision))
        return given + write_fields(decision)

    return with_fields


def _adding_text(one: TextFields, allows_origin: str, expose: Expose[str]) -> Added[str]:
    """Return the same for one limit in text, without a call of `write`: most responses to WSGI servers."""
    policy, field, begin = one

    def with_fields(headers: Iterable[tuple[str, str]], decision: Decision) -> list[tuple[str, str]]:
        given: list[tuple[str, str]] = headers if headers.__class__ is list else list(headers)
        told = [*given, policy, (field, begin + decision._left)]
        for name, _ in given:
            if len(name) == ALLOWS_ORIGIN and name.lower() == allows_origin:
                return expose(told)
        return told

    return with_fields


def unchanged(headers: Iterable[tuple[AnyStr, AnyStr]], decision: Decision) -> Iterable[tuple[AnyStr, AnyStr]]:
    """Return the headers of a response whose rules disclose nothing."""
    return headers


def exposed_fields(styles: Sequence[HeaderStyle]) -> str:
    """Return the `Access-Control-Expose-Headers` that lets a browser's script read the fields of these styles."""
    return ", ".join([field for style in checked_styles(styles) for field in fields_of(style)] + ["Retry-After"])


def merge_exposed(existing: str, ours: str) -> str:
    """Join both lists, each name once. Our names follow even a `*`, which covers none if credentials are sent."""
    names: dict[str, str] = {}
    for name in f"{existing},{ours}".split(","):
        if name.strip():
            names.setdefault(name.strip().lower(), name.strip())
    return ", ".join(names.values())


def expose_for(styles: Sequence[HeaderStyle], codec: HeaderCodec[AnyStr]) -> Expose[AnyStr]:
    """Return a function that adds the fields of these styles to those that a response exposes already."""
    ours, spelling = exposed_fields(styles), codec.name("Access-Control-Expose-Headers")
    field, alone = spelling.lower(), codec.value(ours)

    def expose(headers: Iterable[tuple[AnyStr, AnyStr]]) -> list[tuple[AnyStr, AnyStr]]:
        kept: list[tuple[AnyStr, AnyStr]] = []
        found: list[tuple[AnyStr, AnyStr]] = []
        for pair in headers:
            (found if pair[0].lower() == field else kept).append(pair)
        existing = ",".join(codec.text(value) for _, value in found)
        kept.append((spelling, codec.value(merge_exposed(existing, ours)) if found else alone))
        return kept

    return expose
