"""Overloads in virtual time: clients, a shedder and a service, and how well an estimator keeps the service going."""

from headgate.lab.overload.measure import Result, measure, run
from headgate.lab.overload.scenarios import Scenario, Stream
from headgate.lab.overload.table import MAKERS, SCENARIOS, table, trials

__all__ = ["MAKERS", "SCENARIOS", "Result", "Scenario", "Stream", "measure", "run", "table", "trials"]
