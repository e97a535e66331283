"""Races: limiters that everybody copies, and ours, under many threads on a real server."""

from headgate.lab.race.contest import Race, run_race

__all__ = ["Race", "run_race"]
