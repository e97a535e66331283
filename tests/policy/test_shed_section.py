"""The section `shed`: the classes of requests, and the fleet's limit that is decided together with the rules."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import InvalidPolicy, MemoryStore
from headgate.policy import Policy, RequestView
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import explain
from headgate.policy.outcome import Outcome
from headgate.policy.settling import release
from headgate.policy.shed_section import Bounds, ShedSection
from headgate.steps import run
from headgate.testing import ManualClock

pytestmark = pytest.mark.engineless

CLASSES = {"critical": {"method": "POST", "path": "/charges/**"}, "sheddable": {"header": {"x-test": True}}}
FLEET = {"limit": "10 in flight", "reserve": "20%"}


def section(**fields: Any) -> ShedSection:
    found = Policy({"rules": [], "shed": fields}).shed
    assert found is not None
    return found


def request(method: str = "GET", path: str = "/", request_class: str | None = None, **headers: str) -> RequestView:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    view = RequestView(method, path, named, "203.0.113.9")
    view.request_class = request_class
    return view


def test_an_empty_section_is_the_adaptive_limit_with_a_second_of_waiting():
    """Every field has a default; the tenant is the client's address."""
    found = section()
    assert (found.limit, found.bounds, found.timeout, found.mode) == ("adaptive", None, 1.0, "enforce")
    assert (found.tenant, dict(found.weights), found.signals, found.fleet) == (None, {}, (), ())
    assert found.classes.order == ("critical_plus", "critical", "sheddable_plus", "sheddable")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [({}, (20, 1, 1000)), ({"max": 8}, (8, 1, 8)), ({"min": 30}, (30, 30, 1000)), ({"min": 2000}, (2000, 2000, 2000))],
)
def test_numbers_that_are_not_given_fit_those_that_are(numbers, expected):
    """A highest limit below 20 is also the first limit, and so is a lowest limit above it."""
    assert section(limit={"vegas": numbers}).bounds == Bounds(*expected)


def test_the_first_class_whose_conditions_hold_counts():
    """Method and path may decide alone; otherwise the request is looked at; without a match, the default class."""
    classes = section(classes=CLASSES).classes
    charge, page = classes.candidates("POST", "/charges/7"), classes.candidates("GET", "/page")
    assert (charge.only, page.only) == ("critical", None)
    assert page.class_of(request(x_test="1")) == "sheddable"
    assert page.class_of(request()) == "sheddable_plus"
    assert classes.candidates("POST", "//charges//7/").only == "critical"


@pytest.mark.parametrize(
    ("order", "critical", "default"), [("a", "a", "a"), ("ab", "a", "b"), ("abc", "ab", "c"), ("abcd", "ab", "c")]
)
def test_the_first_half_of_an_own_order_is_critical(order, critical, default):
    """Rounded up; the default class is the first that is not critical, or else the last."""
    classes = section(order=list(order)).classes
    assert (classes.critical, classes.default) == (frozenset(critical), default)


def test_a_function_is_a_signal_of_busy_workers():
    """A mapping may have one beside the names; one that has to be awaited is a mistake, since no loop runs it."""

    def pool_in_use() -> float:
        return 0.5

    async def awaited() -> float:
        return 0.5

    assert section(workers={"signals": ["busy", pool_in_use]}).signals == ("busy", pool_in_use)
    assert section(workers={"signals": pool_in_use}).signals == (pool_in_use,)
    for wrong, told in ((awaited, "plain function"), (3, "a signal such as busy")):
        with pytest.raises(InvalidPolicy, match=told):
            section(workers={"signals": ["busy", wrong]})


def test_an_exempt_request_has_no_class():
    """All values that a client sends must fit, so that a client gains nothing by sending more."""
    classes = section(exempt={"path": "/healthz", "header": {"x-probe": "yes"}}).classes
    probe = classes.candidates("GET", "/healthz")
    assert probe.only is None
    assert probe.class_of(request(x_probe="yes")) is None
    twice = RequestView("GET", "/healthz", {"x-probe": ["yes", "no"]})
    assert probe.class_of(twice) == "sheddable_plus"
    assert section(exempt={"path": "/healthz"}).classes.candidates("GET", "/healthz").exempt == ()


def test_a_condition_that_cannot_be_read_does_not_hold():
    """A query that is too long gives no class; the rules refuse such a request if they read it."""
    classes = section(classes={"critical_plus": {"query": {"a": "b"}}}).classes
    view = request()
    view.query_string = "a=" + "b" * 100_000
    assert classes.candidates("GET", "/").class_of(view) == "sheddable_plus"


def test_sections_of_the_same_limit_have_the_same_estimator():
    """A shedder goes on with what it has learned while these stay: the number, or the name and all of its numbers."""
    limits = [4, 5, "adaptive", {"adaptive": {"max": 50}}, {"adaptive": {"initial": 20, "min": 1, "max": 50}}]
    told = [section(limit=limit, mode="off", timeout=0).estimator for limit in limits]
    assert told == [(4, None), (5, None), ("adaptive", None), *[("adaptive", (20, 1, 50))] * 2]


class Fleet:
    """A policy with a limit of the fleet, asked by requests that stay in flight."""

    def __init__(self, *rules: Any, stores: tuple[str, ...] = (), **fleet: Any) -> None:
        named = dict.fromkeys(stores, "memory://")
        policy = Policy({"rules": list(rules), "stores": named, "shed": {"fleet": {**FLEET, **fleet}}})
        clock = ManualClock()
        opened = {name: MemoryStore(clock=clock) for name in ("", *stores)}
        self.compiled = CompiledPolicy(policy, opened, awaited=False)
        self.compiled.bind()

    def ask(self, request_class: str | None, observed: list[str] | None = None) -> Outcome:
        view = request(request_class=request_class)
        view.would_refuse = observed
        return run(self.compiled.before(view))

    def count(self, request_class: str | None, times: int) -> int:
        return sum(self.ask(request_class).kind == "pass" for _ in range(times))


def test_the_reserve_is_for_critical_classes():
    """One state: others have 8 of 10, critical requests the rest, and permits that end are free for both."""
    fleet = Fleet()
    first = fleet.ask("sheddable")
    assert fleet.count("sheddable_plus", 9) == 7
    assert fleet.count("critical", 5) == 2
    refused = fleet.ask("critical_plus")
    assert (refused.kind, refused.status, refused.overload, refused.decision) == ("deny", 503, "fleet", None)
    run(release(first.charges))
    assert [fleet.count("sheddable", 1), fleet.count("critical", 1)] == [0, 1]


def test_a_request_without_a_class_is_none_of_the_fleet():
    """An exempt request, or one of an app whose shedder is off, is neither counted nor refused."""
    fleet = Fleet(limit="1 in flight")
    assert (fleet.count(None, 5), fleet.count("critical", 5), fleet.count(None, 5)) == (5, 1, 5)


def test_a_request_that_is_observed_counts_and_is_never_refused():
    """The names of rules that would refuse are noted on the view."""
    fleet = Fleet(limit="1 in flight")
    told: list[str] = []
    assert [fleet.ask("critical", told).kind for _ in range(3)] == ["pass"] * 3
    assert told == ["shed.fleet"] * 2
    assert fleet.count("critical", 1) == 0


@pytest.mark.parametrize("stores", [(), ("far",)])
def test_rules_and_fleet_are_charged_all_or_none(stores):
    """A request that the fleet refuses costs nothing of a rate, in the same store and in another one."""
    where = {"store": "far"} if stores else {}
    fleet = Fleet({"name": "rate", "key": "ip", "limits": "3/hour"}, stores=stores, limit="1 in flight", **where)
    first = fleet.ask("critical")
    assert [fleet.ask("critical").overload for _ in range(5)] == ["fleet"] * 5
    run(release(first.charges))
    run(release(fleet.ask("critical").charges))
    last = fleet.ask("critical")
    assert last.group is not None and last.decision is not None
    rates = [verdict.remaining for limit, verdict in zip(last.group.limits, last.decision.verdicts, strict=True)
             if not limit.in_flight]  # fmt: skip
    assert (last.kind, rates) == ("pass", [0])


def test_limits_at_endpoints_do_not_ask_the_fleet_again():
    """A policy with other rules has neither the section nor its rules."""
    policy = Policy({"rules": [], "shed": {"fleet": FLEET}})
    assert len(policy.every_rule) == 2
    other = policy.with_rules([{"key": "ip", "limits": "1/minute"}])
    assert (other.shed, len(other.every_rule)) == (None, 1)


@pytest.mark.parametrize(
    ("fields", "view", "expected"),
    [
        ({}, request(), ["shed: class sheddable_plus; waits for at most 1 s; enforce", "allowed: no rule matches"]),
        ({"classes": CLASSES, "timeout": 0}, request("POST", "/charges/1"),
         ["shed: class critical, critical; waits for at most 0 s; enforce", "allowed: no rule matches"]),
        ({"class_header": "x-class"}, request(x_class="critical"),
         ["shed: class sheddable_plus; waits for at most 1 s; enforce", "allowed: no rule matches"]),
        ({"exempt": {"path": "/"}, "fleet": FLEET}, request(), ["shed: exempt", "allowed: no rule matches"]),
        ({"mode": "off"}, request(), ["shed: off", "allowed: no rule matches"]),
    ],
)  # fmt: skip
def test_a_request_is_explained(fields, view, expected):
    """The class comes before the rules; a class in a header of a client is not believed."""
    assert explain(Policy({"rules": [], "shed": fields}), view) == expected


def test_the_fleet_is_explained_like_a_rule():
    """Its limit is that of the request's class."""
    told = explain(Policy({"rules": [], "shed": {"fleet": FLEET, "classes": CLASSES}}), request("POST", "/charges/1"))
    assert told[1:] == [
        "rule shed.fleet: counted by *; 10 in flight as shed.fleet; cost 1; act deny",
        "binding: rule shed.fleet, 10 in flight as shed.fleet",
        "with nothing spent yet: allowed, 9 of 10 left after it",
    ]
