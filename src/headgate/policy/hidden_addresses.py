"""Keys without addresses: for lists and logs that must not show them."""

from __future__ import annotations

from headgate.policy.key_escaping import EMPTY, MISSING
from headgate.policy.rule import Rule

HASH = "\\h"
"""How a hash begins: values are escaped, so no value begins so."""


def without_addresses(rule: Rule, key: str) -> str:
    """Return a key of a rule with each address hashed, and nothing else.

    An address is the value of the part `ip`, or replaces a missing part, after a mark that no value begins with.
    """
    if len(rule.parts) == 1:
        return _hidden(rule, rule.parts[0], key)
    values = key.split("|")
    if len(values) != len(rule.parts):  # a long key, which is one hash
        return key
    return "|".join(_hidden(rule, part, value) for part, value in zip(rule.parts, values, strict=True))


def _hidden(rule: Rule, part: str, value: str) -> str:
    mark = MISSING if value.startswith(MISSING) else ""
    address = value[len(mark) :]
    if not (mark or part == "ip") or address in ("", EMPTY) or address.startswith(HASH):
        return value
    return mark + rule.digest(address)
