"""The engine: tables of states and the gates that decide over them, native or pure."""

from headgate.engine.choice import NATIVE, Book, Decision, Permit, Table, later
from headgate.engine.gate import Gate

__all__ = ["NATIVE", "Book", "Decision", "Gate", "Permit", "Table", "later"]
