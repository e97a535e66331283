"""Verbs as attributes of a gate, so that no Python code runs between a call and the engine's answer.

Such an attribute hides the method of the class. So a method that a subclass overrides has no attribute, and a method
that is replaced on the class, as a mock does it, has none on any gate until the method is put back.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any
from weakref import WeakSet


class GateType(ABCMeta):
    """The class of gates, which tells them when one of their methods is replaced. A subclass may be abstract."""

    _own: dict[str, Any] = {}  # noqa: RUF012 - each class has its own
    """The methods of Headgate, whatever stands in their place now."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **named: Any) -> None:  # noqa: ANN401
        super().__init__(name, bases, namespace, **named)
        own: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:]):
            own |= vars(base).get("_own", {})
        if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
            own |= {name: each for name, each in namespace.items() if isinstance(each, FunctionType)}
        type.__setattr__(cls, "_own", own)

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        cls._tell(name)

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        cls._tell(name)

    def _tell(cls, name: str) -> None:
        if name in cls._own:
            for gate in list(_gates):
                if cls in type(gate).__mro__:
                    gate._show(name)


class Carrying(metaclass=GateType):
    """An object that carries functions in place of methods."""

    def __init__(self) -> None:
        self._carried: dict[str, Any] = {}
        _gates.add(self)

    def _carry(self, functions: Mapping[str, Any]) -> None:
        """Answer by these functions in place of the methods of the same names, as far as those are Headgate's."""
        self._carried.update(functions)
        kind = type(self)
        own = kind._own
        for name, function in functions.items():
            if getattr(kind, name, None) is own.get(name):
                setattr(self, name, function)  # not by `__dict__`, which would make every attribute slower
            else:
                with suppress(AttributeError):  # there is none yet
                    delattr(self, name)

    def _show(self, name: str) -> None:
        """Set or remove the function that is carried in place of a method, now that the method has changed."""
        if name in self._carried:
            self._carry({name: self._carried[name]})


_gates: WeakSet[Any] = WeakSet()
