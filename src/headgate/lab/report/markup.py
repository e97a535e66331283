"""HTML from text that strangers wrote: everything is escaped, except what was made here."""

from __future__ import annotations

import json
from html import escape

from headgate.lab.text import printed_key
from headgate.wording import printable

_IN_SCRIPTS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

_VOID = {"input"}
"""Elements that have no end."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(element: str, /, *children: str, **attributes: str | int | None) -> Markup:
    """Return an element. `class_` is the attribute `class`, `aria_label` is `aria-label`; None leaves one out."""
    written = [
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    end = "" if element in _VOID else f"</{element}>"
    return Markup(f"<{element}{''.join(written)}>{joined(*children)}{end}")


def joined(*parts: str) -> Markup:
    """Return the parts one after another, each escaped unless it is HTML already."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def client(key: str) -> Markup:
    """Return the key of a client: shortened, and kept from turning the text around it when it is written leftwards."""
    return tag("bdi", printed_key(key))


def data_block(name: str, value: object) -> Markup:
    """Return data for the script of the page. No value can end the element: the three signs that could are escaped.

    All that is not ASCII is escaped too, line separators among it.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(f'<script type="application/json" id="{name}">{text.translate(_IN_SCRIPTS)}</script>')


def _escaped(text: str) -> str:
    """Escape signs of HTML, and unprintable ones as well: marks that turn the direction of text would mislead."""
    return escape(printable(text))
