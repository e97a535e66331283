"""The engine: tables of states and the gates that decide over them, native or pure."""

from headgate.engine.choice import NATIVE, Decision, Engine, Permit, Table, pending
from headgate.engine.gate import Gate

__all__ = ["NATIVE", "Decision", "Engine", "Gate", "Permit", "Table", "pending"]
