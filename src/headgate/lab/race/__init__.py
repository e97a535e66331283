"""Races: limiters that everybody copies, and ours, under many threads on a real server."""

from headgate.lab.race.contest import run_race

__all__ = ["run_race"]
