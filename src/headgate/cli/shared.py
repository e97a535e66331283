"""`headgate shared`: look at a store that processes share, or remove it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from headgate.errors import InvalidCall
from headgate.stores.command import holders, remove, split, survey
from headgate.wording import columns, printable, shown

COLUMNS: Final = ("namespace", "limits", "keys", "max_keys", "fill", "evictions", "bytes")
HOLDERS: Final = ("namespace", "limit", "age", "units", "key", "process")
MOST_ROWS: Final = 100
WORDS: Final = 2
"""The number of columns, from the left, that hold words and are aligned left; numbers are aligned right."""


def add_verbs(verbs: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    """Add `ls`, `holders`, `stat` and `rm`, each with a path."""
    about = "look at a store that processes share, or remove it"
    parser = verbs.add_parser("shared", help=about, description=f"{about.capitalize()}.")
    actions = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    each: tuple[tuple[str, Callable[[str], str], str], ...] = (
        ("ls", ls, "the tables of a store: limits, keys, fill, evictions"),
        ("holders", list_holders, "the permits in flight, the oldest first: age, units and process"),
        ("stat", stat, "the store as a whole: owner, participants, totals"),
        ("rm", rm, "remove a store; processes that use it start a new one within a second"),
    )
    for name, verb, says in each:
        action = actions.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        action.add_argument("path", metavar="PATH", type=read_path, help="a directory, or shared:///dev/shm/api")
        action.set_defaults(verb=lambda chosen, verb=verb: verb(chosen.path))


def read_path(text: str) -> str:
    """Return the directory that was given, or the directory in the URL of a store."""
    try:
        parts = split(text)
    except InvalidCall as reason:
        raise argparse.ArgumentTypeError(str(reason)) from None
    if parts.scheme != "shared":
        return os.path.abspath(text)
    if parts.netloc or len(parts.path) < 2:
        raise argparse.ArgumentTypeError(f"cannot read {shown(text)}; write for instance shared:///dev/shm/api")
    return os.path.abspath(unquote(parts.path))


def ls(path: str) -> str:
    """Return a row for each table, and a line for each file that is not a table."""
    seen = survey(path)
    rows = [COLUMNS] + [
        (printable(table.namespace), printable(table.limits), *map(str, (table.keys, table.max_keys)),
         f"{100 * table.keys / table.slots:.1f}%", *map(str, (table.evictions, table.size)))
        for table in seen.tables
    ]  # fmt: skip
    return "\n".join([*columns(rows, WORDS), *map(printable, (*seen.unread, *seen.foreign))])


def list_holders(path: str) -> str:
    """Return a row for each permit in flight, the oldest first, at most `MOST_ROWS` of them."""
    seen = holders(path)
    rows = [HOLDERS] + [
        (printable(each.namespace), printable(each.limit), f"{each.age:.1f} s", str(each.units), each.key,
         str(each.process) if each.alive else "gone")
        for each in seen[:MOST_ROWS]
    ]  # fmt: skip
    more = len(seen) - MOST_ROWS
    return "\n".join([*columns(rows, WORDS), *([f"and {more} younger permits"] if more > 0 else [])])


def stat(path: str) -> str:
    """Return the facts about the whole store, one in each line."""
    seen = survey(path)
    missing = len(seen.unread) + len(seen.foreign)
    facts = {
        "path": printable(seen.path),
        "mode": f"{seen.mode:04o}",
        "owner": _owner(seen.uid),
        "made": "in this boot" if seen.this_boot else "in an earlier boot; the next process to open it empties it",
        "participants": str(seen.participants),
        "tables": str(len(seen.tables)) + (f", and {missing} other files: see ls" if missing else ""),
        "keys": str(sum(table.keys for table in seen.tables)),
        "evictions": str(sum(table.evictions for table in seen.tables)),
        "bytes": str(seen.size),
    }
    return "\n".join(f"{name:<14}{fact}" for name, fact in facts.items())


def rm(path: str) -> str:
    """Remove a store, and return what was removed."""
    seen = remove(path)
    return f"removed {printable(seen.path)} (tables: {len(seen.tables)}, bytes: {seen.size})"


def _owner(uid: int) -> str:
    import pwd  # not on Windows, which has no shared stores

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
