"""Waiting for an instant: exactly once, and never less than was promised."""

from headgate.waiting.alarm import Alarm, Alarms
from headgate.waiting.sleep import sleep_until

__all__ = ["Alarm", "Alarms", "sleep_until"]
