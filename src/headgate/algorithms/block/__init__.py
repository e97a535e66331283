"""The block modifier: mitigation that outlives the count."""

from headgate.algorithms.block.reference import shut

__all__ = ["shut"]
