"""Reads `settings.HEADGATE`; `manage.py check` and the start of the site report every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from django.utils.module_loading import import_string

from headgate.errors import HeadgateError, InvalidCall, InvalidPolicy
from headgate.policy import Policy
from headgate.stores import open_store
from headgate.web.clients import UserOf
from headgate.web.django.limits import ViewLimit
from headgate.web.django.request import primary_key
from headgate.web.option_answers import checked
from headgate.web.options import NO_RULES, OPTION_NAMES, WebOptions
from headgate.web.refusal import Refusal
from headgate.wording import shown, suggestion

KEYS: Final = tuple(
    dict.fromkeys(
        ("ENABLED", "STORE", "POLICY", "DEFAULT", "KEY", *map(str.upper, OPTION_NAMES), "REFUSAL_VIEW", "EXEMPT_ADMIN")
    )
)
MISTAKE: Final = (HeadgateError, ImportError, TypeError, ValueError)
UNKNOWN, UNUSABLE = "headgate.E001", "headgate.E002"
T = TypeVar("T")


class Mistake(NamedTuple):
    """A mistake in `HEADGATE`, for a system check."""

    id: str
    message: str


class Setup:
    """The values of `HEADGATE`. Functions may be dotted paths, as settings are read before apps."""

    def __init__(self, given: Any) -> None:  # noqa: ANN401
        self.mistakes: list[Mistake] = []
        if not isinstance(given, Mapping):
            self._note(UNUSABLE, f"HEADGATE must be a dict; got {shown(given)}")
            given = {}
        self._given: Mapping[str, Any] = given
        for name in given:
            if name not in KEYS:
                self._note(UNKNOWN, f"HEADGATE[{name!r}] is unknown; {suggestion(str(name).upper(), KEYS)}")
        self.enabled = self._flag("ENABLED", True)
        self.exempt_admin = self._flag("EXEMPT_ADMIN", False)
        self.user_of: UserOf = self._function("USER") or primary_key
        plan_of = self._function("PLAN")
        self.plan_of = None if plan_of is None else checked("plan", plan_of)
        self.refusal_view = self._function("REFUSAL_VIEW")
        self.store = given.get("STORE")
        self.policy = given.get("POLICY")
        self.default = self._default()
        as_given = {name: given[name.upper()] for name in OPTION_NAMES if name.upper() in given}
        known = {
            "enabled": self.enabled,
            "store": None,
            "user": None,
            "plan": None,
            "claims": self._function("CLAIMS"),
            "client": self._function("CLIENT"),
        }
        self.options = WebOptions(**{**as_given, **known, "refusal": self._refusal()})
        self.by_user = self._look_at_the_rest()
        """Whether the policy counts by user."""

    def _note(self, id: str, message: str) -> None:  # noqa: A002
        self.mistakes.append(Mistake(id, message))

    def _try(self, key: str, make: Callable[[], T], otherwise: T) -> T:
        """Return the result of `make`; if it raises, note the mistake and return `otherwise`."""
        try:
            return make()
        except InvalidPolicy as wrong:
            for each in wrong.mistakes:
                self._note(UNUSABLE, f"HEADGATE[{key!r}]: {each}")
        except MISTAKE as wrong:
            self._note(UNUSABLE, f"HEADGATE[{key!r}]: {wrong}")
        return otherwise

    def _flag(self, key: str, default: bool) -> bool:
        value = self._given.get(key, default)
        if not isinstance(value, bool):  # a value from the environment is a string, and every string is true
            self._note(UNUSABLE, f"HEADGATE[{key!r}] must be True or False; got {shown(value)}")
        return value is True

    def _function(self, key: str) -> Callable[..., Any] | None:
        return self._try(key, lambda: _imported(self._given.get(key)), None)

    def _default(self) -> ViewLimit | None:
        limits, key = self._given.get("DEFAULT"), self._given.get("KEY", "ip")
        return None if limits is None else self._try("DEFAULT", lambda: ViewLimit(limits, {"key": key}), None)

    def _refusal(self) -> Refusal | None:
        refusal = self._given.get("REFUSAL")
        if refusal is None or isinstance(refusal, Refusal):
            return refusal
        self._note(UNUSABLE, f"HEADGATE['REFUSAL'] must be a headgate.web.refusal.Refusal; got {shown(refusal)}")
        return None

    def _look_at_the_rest(self) -> bool:
        """Try what the site opens at its start, but no shared store: the checker's user would own its files."""
        self._try("TRUSTED_PROXIES", lambda: self.options.proxies, None)
        if not (isinstance(self.store, str) and self.store.startswith("shared:")):
            self._try("STORE", lambda: open_store(self.store, None), None)
        given = NO_RULES if self.policy is None else self.policy
        policy = self._try("POLICY", lambda: Policy.load(given), None)
        return policy is not None and any("user" in rule.parts for rule in policy.rules)


def _imported(value: Any) -> Callable[..., Any] | None:  # noqa: ANN401
    function: Callable[..., Any] | None = import_string(value) if isinstance(value, str) else value
    if function is not None and not callable(function):
        raise InvalidCall(f"expected a function, or the dotted path of one; got {shown(value)}")
    return function
