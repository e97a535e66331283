"""Endpoints in Python: functions, methods, partials and objects; their names and their parameters."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import Any, Final, get_type_hints

from headgate.errors import InvalidCall
from headgate.wording import is_decorated_at

LIMITED_AS: Final = "__headgate_limited_as__"
"""An attribute of an endpoint: the endpoint itself, and the wrappers that `limited` made of it."""
WITHIN: Final = "__headgate_within__"
"""An attribute of a wrapper that `limited` made: the wrapper itself, and the endpoint within. Other decorators copy
attributes, and the first part tells which function it was set on."""


def without_partials(endpoint: Any) -> Any:  # noqa: ANN401
    """Return the function inside of `functools.partial`."""
    while isinstance(endpoint, functools.partial):
        endpoint = endpoint.func
    return endpoint


def called(endpoint: Any) -> Any:  # noqa: ANN401
    """Return the function that a call runs: for an object, its `__call__`."""
    plain = inspect.isroutine(endpoint) or isinstance(endpoint, functools.partial)
    return endpoint if plain else endpoint.__call__


def mark_of(endpoint: Any, name: str) -> Any:  # noqa: ANN401
    """Return the mark that a decorator has set on an endpoint, or None."""
    while isinstance(endpoint, functools.partial) and not hasattr(endpoint, name):
        endpoint = endpoint.func
    return getattr(endpoint, name, None)


def note_within(made: Any, endpoint: Any) -> None:  # noqa: ANN401
    """Note on a wrapper the endpoint within."""
    setattr(made, WITHIN, (made, endpoint))


def endpoint_within(made: Any) -> Any:  # noqa: ANN401
    """Return the endpoint within a wrapper that `limited` made; any other endpoint itself."""
    noted, endpoint = getattr(made, WITHIN, (None, None))
    return endpoint if noted is made else made


def unwrapped(endpoint: Any) -> list[Any]:  # noqa: ANN401
    """Return an endpoint, and the functions that it wraps: a route may have one of them, below another decorator."""
    found: list[Any] = []
    while endpoint is not None and not any(each is endpoint for each in found):
        found.append(endpoint)
        endpoint = getattr(endpoint, "__wrapped__", None)
    return found


def note_limited(endpoint: Any, made: Any) -> None:  # noqa: ANN401
    """Note on an endpoint, and on the functions that it wraps, the wrapper made of it.

    Decorators copy attributes, so the note names its endpoint.
    """
    for each in unwrapped(endpoint):
        with suppress(AttributeError, TypeError):  # a bound method has no attributes of its own
            whose, before = vars(each).get(LIMITED_AS, (None, ()))
            setattr(each, LIMITED_AS, (each, (*(before if whose is each else ()), made)))


def misplaced(endpoints: Iterable[Any]) -> str | None:
    """Return the name of an endpoint that is registered without the wrapper that `limited` made of it, or None."""
    registered = [without_partials(each) for each in endpoints]
    known = {id(within) for each in registered for within in unwrapped(each)}
    for endpoint in registered:
        whose, made = getattr(endpoint, "__dict__", {}).get(LIMITED_AS, (None, ()))
        if whose is endpoint and any(id(each) not in known and stands_for(each, endpoint) for each in made):
            return full_name(endpoint)
    return None


def stands_for(made: Any, endpoint: Any) -> bool:  # noqa: ANN401
    """Return whether the endpoint's name in its module now refers to the wrapper that a decorator made of it."""
    name = getattr(endpoint, "__qualname__", "")
    if "<locals>" in name:  # names inside of a function cannot be looked up
        return True
    named = getattr(sys.modules.get(endpoint.__module__), name, None)
    while named is not None and named is not made:
        named = getattr(named, "__wrapped__", None)
    return named is made


def is_named(endpoint: Any, frame: FrameType) -> bool:  # noqa: ANN401
    """Return whether the endpoint's name refers to it, in the caller's code or in its module; not so in a decorator."""
    name, function = getattr(endpoint, "__name__", ""), inspect.unwrap(endpoint)
    module = vars(sys.modules.get(getattr(endpoint, "__module__", ""), object))
    named = [names.get(name) for names in (frame.f_locals, frame.f_globals, module)]
    return any(each is endpoint or each is function for each in named)


def named_while_decorated(endpoint: Any, frame: FrameType) -> tuple[Any, ...]:  # noqa: ANN401
    """Return all that a caller's code names, apps and routers among it, while it decorates an endpoint.

    Nothing for a function that has its name already: it may be at one route as it is, and at another with limits.
    """
    return () if is_named(endpoint, frame) else (*frame.f_globals.values(), *frame.f_locals.values())


@functools.lru_cache(maxsize=4096)
def full_name(endpoint: Any) -> str:  # noqa: ANN401
    """Return the name of an endpoint, the same in every process."""
    named = without_partials(endpoint)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(named).__name__)}"


def refuse_bare(given: Any, frame: FrameType) -> None:  # noqa: ANN401
    """Raise for `@limited` without parentheses, which is given the function to limit as a function of limits."""
    if is_decorated_at(given, frame):
        raise InvalidCall(f'@limited needs limits before it decorates {full_name(given)}: write @limited("5/minute")')


def name_after(endpoint: Any, wrapper: Any) -> None:  # noqa: ANN401
    """Give a wrapper the name of its endpoint."""
    wrapper.__module__ = endpoint.__module__
    for name in ("__name__", "__qualname__"):  # partials and objects have none
        setattr(wrapper, name, getattr(endpoint, name, type(endpoint).__name__))


def asking_for(kind: type, name: str, call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with a parameter of this type added under this name if it has none, and types resolved."""
    signature = inspect.signature(call)
    names = getattr(inspect.unwrap(without_partials(call)), "__globals__", {})
    parameters = [each.replace(annotation=_typed(each.annotation, names)) for each in signature.parameters.values()]
    if not any(inspect.isclass(each.annotation) and issubclass(each.annotation, kind) for each in parameters):
        ours = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        takes_any = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        parameters.insert(len(parameters) - takes_any, ours)
    return signature.replace(parameters=parameters, return_annotation=_typed(signature.return_annotation, names))


def _typed(annotation: Any, names: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the type that an annotation names; an unknown name is left to the framework."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True)["it"]
    except (NameError, TypeError):
        return annotation
