"""`MiddlewareSuite` and `EdgeSuite`: what every web edge must do. A new edge's test is a subclass with one method.

    class TestMyEdge(EdgeSuite):
        @contextmanager
        def serve(self, app):
            ...                             # build what the `App` describes, with limits
            yield MySite(built, limits)     # has `limits` and `ask(method, path, headers, client)`

Plain assertions, no sleeps but those of a rule that delays: pytest or unittest run it as it is.
"""

from __future__ import annotations

from headgate.testing.edges.admission import Admission
from headgate.testing.edges.app import Answer, App, Asked, Endpoint, Reply, Site, with_functions
from headgate.testing.edges.clients import Clients
from headgate.testing.edges.endpoints import Endpoints
from headgate.testing.edges.operation import Operation
from headgate.testing.edges.outcomes import Outcomes

__all__ = ["Answer", "App", "Asked", "EdgeSuite", "Endpoint", "MiddlewareSuite", "Reply", "Site", "with_functions"]


class MiddlewareSuite(Admission, Clients, Outcomes, Operation):
    """A policy in front of an app that may be anything. Subclass it, and give `serve`."""


class EdgeSuite(Endpoints, MiddlewareSuite):
    """A policy, default limits, and limits at endpoints; every rule is tried in the policy and at an endpoint."""

    places = ("policy", "endpoint")
