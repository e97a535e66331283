"""Overloads in virtual time: clients, a shedder and a service, and how well an estimator keeps the service going."""

from headgate.lab.overload.comparison import MAKERS, SCENARIOS, table, trials
from headgate.lab.overload.result import Result, measure, run
from headgate.lab.overload.scenarios import Scenario, Stream

__all__ = ["MAKERS", "SCENARIOS", "Result", "Scenario", "Stream", "measure", "run", "table", "trials"]
