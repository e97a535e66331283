"""The shapers: leaky buckets as queues."""

from headgate.shaper.async_ import AsyncShaper
from headgate.shaper.pump import AsyncPump, Pump
from headgate.shaper.sync import Shaper

__all__ = ["AsyncPump", "AsyncShaper", "Pump", "Shaper"]
