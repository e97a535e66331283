"""The same requests through several limits, side by side."""

from headgate.lab.comparison.limits import EVERY, compared
from headgate.lab.comparison.measure import Measurement
from headgate.lab.comparison.results import Comparison, Measured, RefusedClient, Series, Waits, Wrong
from headgate.lab.comparison.table import MEASURES
from headgate.lab.comparison.trailing import Trailing

__all__ = [
    "EVERY", "MEASURES", "Comparison", "Measured", "Measurement", "RefusedClient", "Series", "Trailing", "Waits",
    "Wrong", "compared",
]  # fmt: skip
