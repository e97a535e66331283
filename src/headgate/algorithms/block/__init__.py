"""The block modifier: a refused key stays refused for a time."""

from headgate.algorithms.block.reference import shut

__all__ = ["shut"]
