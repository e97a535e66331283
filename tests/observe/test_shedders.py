"""Load shedders in snapshots and metrics: the numbers of `stats()`, over all workers."""

from __future__ import annotations

from headgate.observe.merging import merged
from headgate.observe.metrics import values
from headgate.observe.shedders import shed_part
from headgate.observe.snapshot import ShedPart, Snapshot, empty
from headgate.shed import Stats
from headgate.web.wsgi import RateLimitMiddleware

CALLER = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.9"}


def _hello(environ, start_response):
    start_response("200 OK", [])
    return iter([b"hello"])


def _told(seen: Snapshot) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    """The metrics of load shedders, without their common beginning."""
    return {
        metric.name.removeprefix("headgate_shed_"): [(tuple(labels), value) for labels, value in samples]
        for metric, samples, _ in values(seen)
        if metric.name.startswith("headgate_shed_")
    }


def test_the_numbers_of_a_shedder_are_metrics():
    """Limit, requests in flight, and refusals by class and reason are told with the namespace of the policy."""
    app = RateLimitMiddleware(_hello, {"namespace": "api", "rules": [], "shed": {"limit": 1, "timeout": 0}})
    under_way = app(CALLER, lambda *_: None)
    for _ in range(2):
        app(CALLER, lambda *_: None)
    told = _told(app.snapshot())
    latencies = {name: told.pop(name) for name in ("base_latency_seconds", "latency_seconds")}
    assert told == {
        "limit": [(("api",), 1)],
        "in_flight": [(("api",), 1)],
        "waiting": [(("api",), 0)],
        "admitted_total": [(("api",), 1)],
        "refused_total": [(("api", "sheddable_plus", "limit"), 2)],
    }
    assert [len(each) for each in latencies.values()] == [1, 1]
    under_way.close()
    assert _told(app.snapshot())["in_flight"] == [(("api",), 0)]


def test_an_app_without_a_shedder_tells_nothing_of_one():
    """A series of zeros would look like a shedder that refuses none."""
    app = RateLimitMiddleware(_hello, {"rules": [{"key": "ip", "limits": "9/second"}]})
    assert app.snapshot()["shedders"] == []
    assert set(map(len, _told(app.snapshot()).values())) == {0}


def _worker(stats: Stats, namespace: str = "api") -> Snapshot:
    seen = empty(0.0, namespace)
    seen["shedders"] = [shed_part(namespace, stats)]
    return seen


def test_the_shedders_of_workers_are_summed():
    """Limits and requests add up, the slowest latency counts; of a dead worker only counts that grow are left."""
    first = _worker(Stats(20, 3, 1, 0.05, 0.06, 100, {("critical", "queue"): 1, ("sheddable", "limit"): 5}))
    second = _worker(Stats(30, 4, 0, 0.04, 0.09, 200, {("sheddable", "limit"): 7, ("sheddable", "loop"): 2}))
    dead = _worker(Stats(40, 9, 9, 9.0, 9.0, 1_000, {("sheddable", "limit"): 100}))
    other = _worker(Stats(7, 0, 0, 0.0, 0.0, 0, {}), "other")
    assert merged([first, second, other], 0.0, [dead])["shedders"] == [
        ShedPart(
            namespace="api",
            limit=50,
            in_flight=7,
            waiting=1,
            base_latency=0.05,
            latency=0.09,
            admitted=1_300,
            refused={"critical": {"queue": 1}, "sheddable": {"limit": 112, "loop": 2}},
        ),
        ShedPart(
            namespace="other", limit=7, in_flight=0, waiting=0, base_latency=0.0, latency=0.0, admitted=0, refused={}
        ),
    ]
