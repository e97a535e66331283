"""Metrics: one list of names for every sink, with true values, and never a key as a label."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headgate import InvalidCall, Limiter, MemoryStore
from headgate.observe import asgi, otel, prometheus, wsgi
from headgate.observe.metrics import METRICS
from headgate.observe.snapshot import Snapshot, StorePart, empty
from headgate.observe.snapshot_parts import snapshot_of
from headgate.observe.text import exposition
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware

NAMES = """
headgate_decisions_total{namespace,rule,result} counter
headgate_limit{namespace,rule,limit} gauge
headgate_limit_period_seconds{namespace,rule,limit} gauge
headgate_store_seconds{store,kind} histogram
headgate_store_up{store,kind} gauge
headgate_store_errors_total{store,kind} counter
headgate_store_keys{store,kind} gauge
headgate_store_evictions_total{store,kind} counter
headgate_in_flight{namespace} gauge
headgate_waiting{namespace} gauge
headgate_lease_permits{namespace} gauge
headgate_shed_limit{namespace} gauge
headgate_shed_in_flight{namespace} gauge
headgate_shed_waiting{namespace} gauge
headgate_shed_base_latency_seconds{namespace} gauge
headgate_shed_latency_seconds{namespace} gauge
headgate_shed_admitted_total{namespace} counter
headgate_shed_refused_total{namespace,class,reason} counter
headgate_policy_loaded_timestamp_seconds{namespace} gauge
headgate_policy_reload_failures_total{namespace} counter
"""


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


def ask(app, address="203.0.113.7", count=1):
    for _ in range(count):
        list(app({"REQUEST_METHOD": "GET", "PATH_INFO": "/a", "REMOTE_ADDR": address}, lambda *_: None))


def limited(limits="2/minute"):
    store = MemoryStore(clock=ManualClock(1_000_000_020.0))
    return RateLimitMiddleware(hello, {"rules": [{"name": "api", "key": "ip", "limits": limits}]}, store=store)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            series = one.name, tuple(sorted(one.labels.items()))
            assert series not in found, "Prometheus refuses a page that has a series twice"
            found[series] = one.value
    return found


def test_the_names_are_pinned_and_in_the_page():
    """The list of names, and the same list in docs/observe.md."""
    listed = [f"{each.name}{{{','.join(each.labels)}}} {each.kind}" for each in METRICS]
    assert listed == NAMES.split("\n")[1:-1]
    page = (Path(__file__).parents[2] / "docs" / "observe.md").read_text()
    assert re.findall(r"^\| `(headgate_\w+)", page, re.MULTILINE) == [each.name for each in METRICS]


def test_the_library_and_the_page_tell_the_same():
    """A registry of prometheus_client, and our own text, are read as the same true values."""
    app, limiter = limited(), Limiter("5 in flight", namespace="jobs")
    ask(app, count=3)
    with limiter.permit("k"):
        registry = CollectorRegistry()
        prometheus.export(app, limiter, registry=registry)
        told = samples(generate_latest(registry).decode())
        assert samples(exposition(snapshot_of([app, limiter]))) == told
    rule = (("namespace", "policy"), ("rule", "api"))
    assert told["headgate_decisions_total", (rule[0], ("result", "allowed"), rule[1])] == 2
    assert told["headgate_decisions_total", (rule[0], ("result", "refused"), rule[1])] == 1
    assert told["headgate_decisions_total", (("namespace", "jobs"), ("result", "allowed"), ("rule", "(limiter)"))] == 1
    limit = (("limit", "2/minute as api"), *rule)
    assert (told["headgate_limit", limit], told["headgate_limit_period_seconds", limit]) == (2, 60)
    assert told["headgate_in_flight", (("namespace", "jobs"),)] == 1
    assert told["headgate_waiting", (("namespace", "jobs"),)] == 0
    store = (("kind", "memory"), ("store", ""))
    assert (told["headgate_store_up", store], told["headgate_store_keys", store]) == (1, 2)  # of two stores
    assert told["headgate_policy_reload_failures_total", (("namespace", "policy"),)] == 0


def test_edges_and_limiters_on_one_store_are_one_series_each():
    """Two apps with one rule, and a limiter, on one store: sums of the rule, and the store counts once."""
    one, store = limited(), MemoryStore()
    other = RateLimitMiddleware(hello, {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}, store=store)
    more = {"namespace": "more", "rules": [{"name": "api", "key": "ip", "limits": "5/hour"}]}
    apps = [one, other, RateLimitMiddleware(hello, more, store=store)]
    for app in apps:
        ask(app, count=3)
    registry = CollectorRegistry()
    prometheus.export(*apps, Limiter("1/minute", store=store), registry=registry)
    told = samples(generate_latest(registry).decode())
    allowed = {labels: value for (name, labels), value in told.items() if ("result", "allowed") in labels}
    assert {dict(labels)["namespace"]: value for labels, value in allowed.items() if ("rule", "api") in labels} == {
        "policy": 4, "more": 3,
    }  # fmt: skip
    assert told["headgate_store_keys", (("kind", "memory"), ("store", ""))] == 3
    limits = [dict(labels) for (name, labels) in told if name == "headgate_limit"]
    assert sorted((one["namespace"], one["limit"]) for one in limits) == [
        ("more", "5/hour as api"), ("policy", "2/minute as api"),
    ]  # fmt: skip


def test_open_telemetry_observes_the_same_counts():
    """The in-memory reader of the SDK gets the counts when it asks."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    app, reader = limited(), InMemoryMetricReader()
    otel.export(app, meter=MeterProvider([reader]).get_meter("test"))
    ask(app, count=3)
    read: Any = reader.get_metrics_data()
    data = read.resource_metrics[0].scope_metrics[0].metrics
    found = {one.name: {point.attributes.get("result"): point.value for point in one.data.data_points} for one in data}
    assert (found["headgate_decisions_total"]["allowed"], found["headgate_decisions_total"]["refused"]) == (2, 1)
    assert found.keys() <= {each.name for each in METRICS}


class Counting:
    """A source that tells how often it was asked; its store is on a server."""

    def __init__(self) -> None:
        self.asked = 0

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return the number of questions as the number of store errors."""
        self.asked += 1
        seen = empty(0.0, "policy")
        seconds = {"buckets": [[0.001, 3], [0.1, 2], [None, 1]], "sum": 2.5, "count": 6}
        store = StorePart(
            id=0, name="", kind="redis", up=True, errors=self.asked, keys=None, evictions=None, degraded=False,
            seconds=seconds,
        )  # fmt: skip
        seen["stores"] = [store]
        return seen


def test_open_telemetry_reads_one_snapshot_for_each_collection():
    """All instruments of a collection tell the same instant; a histogram is told by three counters, and adds up."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    source, reader = Counting(), InMemoryMetricReader()
    otel.export(source, meter=MeterProvider([reader]).get_meter("test"))
    for turn in (1, 2, 3):
        read: Any = reader.get_metrics_data()
        found = {one.name: one.data.data_points for one in read.resource_metrics[0].scope_metrics[0].metrics}
        assert source.asked == turn
        assert found["headgate_store_errors_total"][0].value == turn
    buckets = {point.attributes["le"]: point.value for point in found["headgate_store_seconds_bucket"]}
    assert buckets == {"0.001": 3, "0.1": 5, "+Inf": 6}
    assert found["headgate_store_seconds_count"][0].value == 6
    assert found["headgate_store_seconds_sum"][0].value == 2.5


def test_a_flood_of_keys_adds_no_series():
    """20,000 random addresses are refused: the text is as long as before, and the lists stay within their places."""
    app = limited("1/minute")
    ask(app, count=2)
    before = len(samples(exposition(app.snapshot())))
    for number in range(20_000):
        ask(app, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1 + (number % 10 == 0))
    seen = app.snapshot()
    assert len(samples(exposition(seen))) == before
    assert "203.0.113" not in exposition(seen)
    assert len(seen["refused_keys"]) == 1_000
    assert seen["rules"][0]["counts"]["refused"] == 2_001


@pytest.mark.parametrize(
    ("peer", "token", "given", "status"),
    [
        ("127.0.0.1", None, "", 200),
        ("::ffff:127.0.0.1", None, "", 200),
        ("203.0.113.7", None, "", 403),
        (None, None, "", 403),
        ("203.0.113.7", "s" * 16, "Bearer " + "s" * 16, 200),
        ("127.0.0.1", "s" * 16, "", 403),
        ("127.0.0.1", "s" * 16, "Bearer wrong", 403),
    ],
)
def test_pages_answer_loopback_or_the_bearer_of_a_token(peer, token, given, status):
    """Without a token only loopback; with one only its bearers."""
    app = limited()
    ask(app, count=3)
    told: list[str] = []
    page = wsgi.pages(app, token=token)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/top", "REMOTE_ADDR": peer, "HTTP_AUTHORIZATION": given}
    body = b"".join(page(environ, lambda line, headers: told.append(line)))
    assert told[0].startswith(str(status))
    if status == 200:
        assert json.loads(body)["refused_keys"][0] | {"since": 0} == {
            "rule": "api", "key": "203.0.113.7", "count": 1, "error": 0, "since": 0,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("host", "127.0.0.1:8000", 200),
        ("host", "localhost", 200),
        ("host", "[::1]:8000", 200),
        ("host", "evil.example:8000", 403),
        ("host", "127.0.0.1.evil.example", 403),
        ("x-forwarded-for", "203.0.113.7", 403),
        ("forwarded", "for=203.0.113.7", 403),
        ("x-real-ip", "203.0.113.7", 403),
    ],
)
def test_a_proxy_or_a_name_of_another_site_is_not_loopback(field, value, status):
    """A client behind a proxy on this machine, and a site whose name leads to loopback, need a token."""
    told: list[int] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/top", "REMOTE_ADDR": "127.0.0.1"}
    environ[f"HTTP_{field.upper().replace('-', '_')}"] = value
    list(wsgi.pages(limited())(environ, lambda line, headers: told.append(int(line[:3]))))

    async def send(message: Any) -> None:
        if "status" in message:
            told.append(message["status"])

    headers = [(field.encode(), value.encode())]
    scope = {"type": "http", "method": "GET", "path": "/top", "headers": headers, "client": ("127.0.0.1", 4000)}
    asyncio.run(asgi.pages(limited())(scope, send, send))
    assert told == [status, status]


@pytest.mark.parametrize("given", [(), (hello,), (Limiter("2/minute"), {"rules": []})])
def test_only_edges_and_limiters_can_be_watched(given: tuple[Any, ...]):
    """An app around the edge, or nothing, is refused where it is given, not in the scrapes to come."""
    for watch in (asgi.pages, wsgi.pages, otel.export, lambda *each: prometheus.export(*each, registry=None)):
        with pytest.raises(InvalidCall, match=r"cannot be watched: give a RateLimitMiddleware|nothing to watch: give"):
            watch(*given)


def test_a_registry_takes_one_export(tmp_path):
    """A second one would tell the same series again, and publish nothing twice; one call takes several sources."""
    registry, app, limiter = CollectorRegistry(), limited(), Limiter("2/minute")
    prometheus.export(app, registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        prometheus.export(limiter, publish=tmp_path / "watch", registry=registry)
    assert not (tmp_path / "watch").exists()
    both = CollectorRegistry()
    prometheus.export(app, limiter, registry=both)
    asked = both.restricted_registry(["headgate_decisions_total"])
    assert {one.name for family in asked.collect() for one in family.samples} == {"headgate_decisions_total"}
