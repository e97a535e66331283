"""The effect of a policy as text."""

from __future__ import annotations

from headgate.lab.numbers import several
from headgate.lab.policies.results import Change, PolicyEffect, PolicyReplay
from headgate.lab.text import about_log, printed_key, share
from headgate.wording import columns, printable


def table(replay: PolicyReplay) -> str:
    """Return the whole text."""
    parts = [f"{several(replay.requests, 'request')} of {several(replay.clients, 'client')}"]
    if replay.log:
        parts[0] += f"\n{about_log(replay.log)}"
    effects = [effect for effect in (replay.new, replay.old) if effect is not None]
    parts += map(_effect, effects)
    skipped = {name: what for effect in effects for name, what in effect.skipped.items()}
    if skipped:
        lines = (f"  {printable(name)} needs {printable(what)}" for name, what in skipped.items())
        parts.append("\n".join(["Not replayed, because the log does not have it:", *lines]))
    if replay.newly_refused is not None and replay.let_in is not None:
        parts += [_change("newly refused", replay.newly_refused), _change("let in again", replay.let_in)]
    return "\n\n".join(parts)


def _effect(effect: PolicyEffect) -> str:
    head = f"{printable(effect.name)}: {several(effect.refused, 'request')} refused"
    head += f", {effect.denied:,} of them by deny" if effect.denied else ""
    rows: list[tuple[str, ...]] = [("rule", "matched", "refused", "clients", "also", "limits")]
    for rule in effect.rules:
        also = [
            f"{count:,} {word}"
            for count, word in (
                (rule.observed, "would be refused"),
                (rule.shadowed, "answered in place of the app"),
                (rule.delayed, f"delayed, at most {rule.longest_delay:.3f} s"),
            )
            if count
        ]
        counts = [f"{count:,}" for count in (rule.matched, rule.refused, rule.clients)]
        rows.append((rule.name, *counts, ", ".join(also), rule.limits))
    if effect.forgotten:
        head += f" (not exact: {several(effect.forgotten, 'key')} did not fit in memory)"
    return "\n".join([head, *_aligned(rows)])


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the columns; leave out `also` if no rule has anything there."""
    words = [row[4:] if any(each[4] for each in rows[1:]) else row[5:] for row in rows]
    numbers = columns([row[:4] for row in rows])
    return [f"{left}  {right}" for left, right in zip(numbers, columns(words, len(words[0])), strict=True)]


def _change(what: str, change: Change) -> str:
    head = f"{several(change.requests, 'request')} of {several(change.clients, 'client')}: {what}"
    if not change.most:
        return head
    rows = [("client", "requests", what, "errors")]
    rows += [
        (printed_key(each.key), f"{each.requests:,}", f"{each.changed:,}", share(each.errors, each.requests))
        for each in change.most
    ]
    return "\n".join([head, *columns(rows)])
