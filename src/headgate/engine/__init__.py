"""The engine: tables of states and the deciders over them, native or pure."""

from headgate.engine.choice import NATIVE, Decider, Decision, Engine, Permit, Table, pending

__all__ = ["NATIVE", "Decider", "Decision", "Engine", "Permit", "Table", "pending"]
