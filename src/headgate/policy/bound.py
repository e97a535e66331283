"""A policy and its stores, without an app: for scripts, workers and consoles that look at a key or reset it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from headgate.policy.rule_keys import CountedRule, RuleKeys, rule_named
from headgate.stores import Store, open_store

if TYPE_CHECKING:
    from headgate.policy.policy import Policy


class BoundPolicy(RuleKeys):
    """The rules of a policy, by name, on the stores that count for it: `Policy.load("policy.yaml").bind("redis://cache")`.

    `with` and `async with` close the stores that were opened here.
    """

    def __init__(self, policy: Policy, store: Store | str | None) -> None:
        self.policy = policy
        opened = {name: open_store(url, None) for name, url in policy.stores.items()}
        self._stores: Mapping[str, Store] = {"": open_store(store, None), **opened}
        self._owned = [each for each in self._stores.values() if each is not store]

    def _counted(self, rule: str) -> CountedRule:
        return CountedRule(rule_named(rule, self.policy.every_rule), self.policy.namespace, self._stores)

    def close(self) -> None:
        """Close the stores that were opened here."""
        for store in self._owned:
            if hasattr(store, "close"):
                store.close()

    async def aclose(self) -> None:
        """Like `close`, in an event loop."""
        for store in self._owned:
            if hasattr(store, "aclose"):
                await store.aclose()
            elif hasattr(store, "close"):
                store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
