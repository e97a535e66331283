"""The answers of an edge's functions `client`, `claims` and `plan`: one that cannot be used fails its request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.errors import InvalidCall
from headgate.policy.edges import is_awaited
from headgate.wording import shown

WANTED: Final[Mapping[str, tuple[type, str]]] = {
    "client": (str, "an address as text"),
    "claims": (Mapping, "a mapping of claims"),
    "plan": (str, "the name of a plan"),
}
"""The type of each function's answer that is not None, and its name in messages."""
Asked = Callable[..., Any]


def checked(name: str, function: Asked) -> Asked:
    """Return the function, which raises `InvalidCall` for an answer of another type: such a plan would be unknown."""
    kind, wanted = WANTED[name]

    def usable(answer: Any) -> Any:  # noqa: ANN401
        if answer is None or isinstance(answer, kind):
            return answer
        raise InvalidCall(f"{name} must return {wanted}, or None; it returned {shown(answer)}")

    @functools.wraps(function)
    def asked(*args: Any) -> Any:  # noqa: ANN401
        return usable(function(*args))

    @functools.wraps(function)
    async def awaited(*args: Any) -> Any:  # noqa: ANN401
        return usable(await function(*args))

    return awaited if is_awaited(function) else asked
