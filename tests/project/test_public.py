"""The front door: what is public stays public, and nothing else becomes so by accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headgate
import headgate.testing


def test_public_names():
    """The names users may rely on."""
    assert sorted(headgate.__all__) == [
        "AsyncLimiter", "AsyncShaper", "Budget", "BudgetExhausted", "Call", "Clock", "Counts", "Decision",
        "HeadgateError", "InvalidCall", "InvalidLimit", "InvalidPolicy", "Lease", "Limit", "LimitWarning", "Limiter",
        "LoadShedder", "MemoryStore", "Overloaded", "Permit", "Policy", "RateLimited", "Reservation", "Shaper", "Store",
        "StoreError", "Verdict", "__version__",
    ]  # fmt: skip
    assert sorted(headgate.testing.__all__) == [
        "EdgeSuite", "ManualClock", "MiddlewareSuite", "ReferenceStore", "StoreSuite", "disabled", "frozen", "refusing",
        "reset_all",
    ]  # fmt: skip
    for module in (headgate, headgate.testing):
        assert all(hasattr(module, name) for name in module.__all__)


def test_public_words_of_a_limiter_and_a_decision():
    """The methods of the small API and the fields of an answer."""

    def public(thing: type) -> list[str]:
        return [name for name in dir(thing) if not name.startswith("_") and hasattr(thing, name)]

    assert public(headgate.Limiter) == [
        "acquire", "acquire_all", "close", "counts", "decide", "hit", "holders", "in_flight", "leased", "limited",
        "pause", "paused", "peek", "permit", "refund", "release", "reserve", "reset", "stream", "take_up_to", "waiting",
    ]  # fmt: skip
    assert public(headgate.Decision) == [
        "allowed", "as_dict", "binding", "calls", "costs", "degraded", "granted", "limit", "never",
        "remaining", "reset_after", "reset_us", "retry_after", "retry_after_spread", "retry_us", "unknown", "verdicts",
    ]  # fmt: skip


def test_an_old_word_names_the_new_one():
    """The project is an alpha: no alias stays behind, and nobody has to search."""
    limiter = headgate.Limiter("1/s")
    for word, new in {"slot": "permit", "guard": "limited", "bind": "frozen", "flies": "in_flight"}.items():
        with pytest.raises(AttributeError, match=f"Limiter has no {word}: .*{new}"):
            getattr(limiter, word)
    with pytest.raises(ImportError, match="headgate has no Concurrency: .*20 in flight"):
        from headgate import Concurrency  # noqa: F401


def test_the_core_imports_nothing_but_the_standard_library():
    """`import headgate` works where nothing else is installed."""
    code = (
        "import sys; import headgate; "
        "tops = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names); "
        "print(sorted(name for name in tops - {'headgate', '__main__'} if 'cython' not in name))"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, env=_source())
    assert ran.stdout.strip() == "[]", ran.stderr


def _source() -> dict[str, str]:
    """Only the folder that holds the package: no site-packages at all."""
    import os

    return {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(headgate.__file__))}


def test_errors_form_one_tree():
    """Everything raised on purpose is a HeadgateError; bad input is also a ValueError."""
    for name in ("InvalidCall", "InvalidLimit", "RateLimited", "StoreError"):
        assert issubclass(getattr(headgate, name), headgate.HeadgateError)
    assert issubclass(headgate.InvalidCall, ValueError)
    assert issubclass(headgate.InvalidLimit, ValueError)
