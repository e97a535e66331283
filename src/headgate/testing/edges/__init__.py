"""`MiddlewareSuite` and `EdgeSuite`: the tests that every web edge must pass. A new edge's test is a subclass.

    class TestMyEdge(EdgeSuite):
        @contextmanager
        def serve(self, app):
            ...                             # build the app that the `App` describes, with limits
            yield MySite(built, limits)     # has `limits` and `ask(method, path, headers, client)`

The suites use plain assertions and sleep only for a rule that delays; they run under pytest or unittest.
"""

from __future__ import annotations

from headgate.testing.edges.admission import Admission
from headgate.testing.edges.app import Answer, App, Asked, Endpoint, Reply, Site, with_functions
from headgate.testing.edges.clients import Clients
from headgate.testing.edges.decisions import Decisions
from headgate.testing.edges.endpoints import Endpoints
from headgate.testing.edges.operation import Operation
from headgate.testing.edges.outcomes import Outcomes
from headgate.testing.edges.refusals import Refusals
from headgate.testing.edges.shedding import Shedding

__all__ = ["Answer", "App", "Asked", "EdgeSuite", "Endpoint", "MiddlewareSuite", "Reply", "Site", "with_functions"]


class MiddlewareSuite(Admission, Clients, Decisions, Outcomes, Operation, Refusals, Shedding):
    """The tests of a policy in front of any app. Write a subclass that defines `serve`."""


class EdgeSuite(Endpoints, MiddlewareSuite):
    """The tests of a policy, default limits and limits at endpoints; every rule is tested in both places."""

    places = ("policy", "endpoint")
