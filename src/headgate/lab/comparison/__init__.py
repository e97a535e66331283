"""The same requests through several limits, side by side."""

from headgate.lab.comparison.limits import EVERY, compared
from headgate.lab.comparison.measure import Measurement
from headgate.lab.comparison.results import Comparison, Measured, RefusedClient, Series, Waits, Wrong

__all__ = [
    "EVERY", "Comparison", "Measured", "Measurement", "RefusedClient", "Series", "Waits", "Wrong", "compared",
]  # fmt: skip
