"""Helpers for the tests of a site."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test.utils import override_settings


class override(override_settings):  # noqa: N801 - as Django's own
    """Django's `override_settings` for single keys of `HEADGATE`: `with override(enabled=False):`, or a decorator.

    In memory, counts start from zero inside, and are restored afterwards.
    """

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._changes = {name.upper(): value for name, value in changes.items()}

    def _merge(self) -> None:
        self.options = {"HEADGATE": {**getattr(settings, "HEADGATE", {}), **self._changes}}

    def enable(self) -> None:
        """Apply the settings at the start of a block or a test."""
        self._merge()
        super().enable()

    def save_options(self, test_func: Any) -> None:  # noqa: ANN401
        """Apply the settings to a decorated class of tests."""
        self._merge()
        super().save_options(test_func)
