"""A page that shows limits at work: the same requests through six algorithms of the real engine."""

from headgate.playground.server import playground

__all__ = ["playground"]
