"""Logs of servers, and any CSV, TSV or JSON lines, as requests in the order of their times."""

from headgate.lab.logs.facts import BadLine, Input, LogFacts
from headgate.lab.logs.log import Log
from headgate.lab.logs.request import NOBODY, Request, Row

__all__ = ["NOBODY", "BadLine", "Input", "Log", "LogFacts", "Request", "Row"]
