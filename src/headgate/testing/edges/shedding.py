"""Tests of load shedding: permits from the policy's shedder, refusals, classes, and its switches."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.shed import current_class, outgoing_headers
from headgate.testing.control import disabled
from headgate.testing.edges.app import Asked, Endpoint, Reply
from headgate.testing.edges.browser import SOON, Browser, Serving, logged
from headgate.testing.edges.outcomes import Gate, as_asked
from headgate.web.refusal import Refusal

ONE_AT_ONCE = {"limit": 1, "timeout": 0}
FIELDS = ("cache-control", "content-type", "ratelimit", "ratelimit-policy")


def told_class(asked: Asked) -> Reply:
    """Return the class of the request and the fields for other services, as a view sees them."""
    return Reply(body=json.dumps([current_class(), sorted(outgoing_headers())]).encode())


def settled(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds that another thread or an event loop brings about; False if it does not."""
    until = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


class Shedding(Serving):
    """A load shedder in front of the app."""

    @contextmanager
    def shedding(self, handle: Any, *rules: Any, **shed: Any) -> Iterator[Browser]:  # noqa: ANN401
        """Serve an app with this handler at `/`, `/pay` and `/healthz`, by default one request at once."""
        options = {"refusal": shed.pop("refusal")} if "refusal" in shed else {}
        policy = {"rules": list(rules), "shed": {**ONE_AT_ONCE, **shed}}
        paths = [Endpoint(path=path, handle=handle) for path in ("/", "/pay", "/healthz")]
        with self.site(*paths, policy=policy, **options) as site:
            yield site

    @contextmanager
    def full(self, site: Browser, gate: Gate) -> Iterator[None]:
        """Let one slow request be under way; at the end its permit is free again."""
        with site.asking(1, "/?slow=1") as [first]:
            gate.reached()
            try:
                yield
            finally:
                gate.open()
            assert first.result(SOON).status == 200
        assert self.is_idle(site)

    @staticmethod
    def is_idle(site: Browser) -> bool:
        """Return whether no request holds a permit."""
        return settled(lambda: site.limits.shedder.stats().in_flight == 0)

    def test_a_request_with_a_permit_is_served(self) -> None:
        """The response is the app's own, with the fields of the rules; its permit is free after it."""
        with self.shedding(told_class, {"name": "api", "key": "ip", "limits": "2/minute"}) as site:
            answers = [site.ask() for _ in range(2)]
            assert [each.status for each in answers] == [200, 200]
            assert [each.fields["ratelimit"] for each in answers] == ['"api";r=1;t=30', '"api";r=0;t=60']
            assert site.codes() == [429]
            assert self.is_idle(site)
            stats = site.limits.shedder.stats()
            assert (stats.limit, stats.admitted, dict(stats.refused)) == (1, 3, {})

    def test_a_policy_without_the_section_has_no_shedder(self) -> None:
        """The shedder of the app's limits is None."""
        with self.limiting("policy") as site:
            assert site.limits.shedder is None

    def test_a_request_without_a_permit_is_refused_with_503(self) -> None:
        """The refusal names its reason and the time to come back, has no fields of limits, and charges no rule."""
        gate = Gate()
        with self.shedding(gate, {"name": "api", "key": "ip", "limits": "3/hour"}) as site:
            with self.full(site, gate):
                answer, other = site.ask(), site.ask(accept="application/json")
            assert site.told() == '"api";r=1;t=2400'
            assert dict(site.limits.shedder.stats().refused) == {("sheddable_plus", "limit"): 2}
            wait = int(answer.fields["retry-after"])
            assert 1 <= wait <= 31
            assert (answer.status, json.loads(answer.body)) == (503, {
                "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "title": "The server has less capacity than usual",
                "status": 503,
                "reason": "limit",
                "detail": f"Retry after {wait} s.",
            })  # fmt: skip
            found = [answer.fields.get(name) for name in FIELDS]
            assert found == ["no-store", "application/problem+json", None, None]
            told, wait = json.loads(other.body), int(other.fields["retry-after"])
            assert told == {"error": "temporary-reduced-capacity", "reason": "limit", "retry_after": wait}

    def test_the_body_of_such_a_refusal_is_made_with_the_request(self) -> None:
        """The function that makes the bodies of refusals sees the request that has no permit."""
        gate = Gate()
        body = Refusal(lambda reason, decision, seconds, request: f"{reason.overload} {request is not None}")
        with self.shedding(gate, refusal=body) as site, self.full(site, gate):
            assert site.ask().body == b"limit True"

    def test_a_request_waits_for_its_permit(self) -> None:
        """A request that comes while the permits are held is served when one is free."""
        gate = Gate()
        with self.shedding(gate, timeout=SOON) as site, self.full(site, gate), site.asking(1) as [second]:
            assert settled(lambda: site.limits.shedder.stats().waiting == 1)
            gate.open()
            assert (second.result(SOON).status, second.result().body) == (200, b"short")

    def test_a_request_that_waits_in_vain_is_refused(self) -> None:
        """The reason is `queue` then."""
        gate = Gate()
        with self.shedding(gate, timeout=0.01) as site, self.full(site, gate):
            answer = site.ask()
            assert (answer.status, json.loads(answer.body)["reason"]) == (503, "queue")

    def test_a_condition_gives_a_request_its_class(self) -> None:
        """The first class that matches counts, by path or by header; views see it, and can pass it on."""
        classes = {"critical": {"path": "/pay"}, "sheddable": {"header": {"x-test": True}}}
        with self.shedding(told_class, classes=classes) as site:
            found = [json.loads(each.body) for each in (site.ask("/pay", x_test="1"), site.ask(x_test="1"), site.ask())]
            assert found == [[name, ["x-request-class"]] for name in ("critical", "sheddable", "sheddable_plus")]
        assert current_class() is None

    def test_an_exempt_request_is_never_counted_and_never_refused(self) -> None:
        """It is served while all permits are held, and takes none; it has no class."""
        gate, seen = Gate(), []

        def handle(asked: Asked) -> Reply:
            seen.append(current_class())
            return gate(asked)

        exempt = {"any": [{"path": "/healthz"}, {"header": {"x-probe": "1"}}]}
        with self.shedding(handle, exempt=exempt) as site, self.full(site, gate):
            assert (site.codes("/healthz"), site.codes(x_probe="1"), site.codes()) == ([200], [200], [503])
            assert seen == ["sheddable_plus", None, None]
            assert site.limits.shedder.stats().in_flight == 1

    def test_a_class_in_a_header_is_believed_from_trusted_proxies_only(self) -> None:
        """A client cannot raise its class; a proxy can; an unknown class is the default one, logged once."""
        policy = {"rules": [], "shed": {**ONE_AT_ONCE, "class_header": "x-request-class"}}
        for trusted, expected in (((), ["sheddable_plus"] * 3), ([self.client], ["critical", *["sheddable_plus"] * 2])):
            with (
                logged("headgate.web", logging.WARNING) as log,
                self.site(Endpoint(handle=told_class), policy=policy, trusted_proxies=trusted) as site,
            ):
                sent = ("critical", "urgent", "urgent")
                assert [json.loads(site.ask(x_request_class=each).body)[0] for each in sent] == expected, trusted
            assert len([line for line in log if "unknown class 'urgent'" in line]) == bool(trusted), trusted

    def test_a_deadline_that_cannot_be_met_is_refused(self) -> None:
        """The time that is left reaches views; a text that is no number of milliseconds is no deadline."""
        with self.shedding(told_class, deadline_header="x-timeout-ms") as site:
            answer = site.ask(x_timeout_ms="0")
            assert (answer.status, json.loads(answer.body)["reason"]) == (503, "deadline")
            told = [json.loads(site.ask(x_timeout_ms=each).body)[1] for each in ("60000", "soon")]
            assert told == [["x-request-class", "x-timeout-ms"], ["x-request-class"]]

    def test_a_reload_switches_the_shedder_and_keeps_it(self) -> None:
        """`off` in the file takes effect at once, and also lets waiting requests go on; the counts stay."""
        with tempfile.TemporaryDirectory() as folder:
            file, gate = Path(folder) / "policy.json", Gate()

            def write(mode: str) -> None:
                file.write_text(json.dumps({"rules": [], "shed": {"limit": 1, "timeout": SOON, "mode": mode}}))

            write("enforce")
            with self.site(Endpoint(handle=gate), policy=file) as site, site.asking(1, "/?slow=1") as [first]:
                gate.reached()
                shedder = site.limits.shedder
                with site.asking(1) as [second]:
                    assert settled(lambda: shedder.stats().waiting == 1)
                    write("off")
                    assert site.limits.reload() is True
                    assert second.result(SOON).status == 200
                assert site.codes(times=3) == [200] * 3
                write("observe")
                assert site.limits.reload() is True
                assert (site.codes(), shedder.stats().refused) == ([200], {("sheddable_plus", "limit"): 1})
                gate.open()
                assert (first.result(SOON).status, site.limits.shedder) == (200, shedder)
                assert self.is_idle(site)

    def test_a_mode_that_is_set_by_hand_is_at_once(self) -> None:
        """`limits.shedder.mode` is the kill switch; `disabled` switches the shedder off as well."""
        gate = Gate()
        with self.shedding(gate) as site, self.full(site, gate):
            with disabled(site.limits):
                assert site.codes(times=2) == [200, 200]
            assert site.codes() == [503]
            site.limits.shedder.mode = "off"
            assert site.codes(times=2) == [200, 200]

    def test_no_permit_is_left_behind(self) -> None:
        """Errors, refusals by rules and every status give their permits back; only good responses are samples."""
        rule = {"name": "api", "key": "ip", "limits": "6/hour"}
        with self.shedding(as_asked, rule, limit=9) as site:
            statuses = ("raise", "200", "404", "500", "503", "504", "200")
            assert site.codes(*[f"/?status={each}" for each in statuses]) == [500, 200, 404, 500, 503, 504, 429]
            assert self.is_idle(site)
            assert site.limits.shedder.stats().admitted == 7

    def test_a_stream_holds_its_permit_until_its_end(self) -> None:
        """A request beside it is refused; one after it is served."""
        gate = Gate()
        with self.shedding(gate) as site, site.asking(1, "/?stream=1") as [first]:
            gate.reached()
            during = site.ask().status
            gate.open()
            assert (during, first.result(SOON).body) == (503, b"ab")
            assert self.is_idle(site)
            assert site.codes() == [200]

    def test_a_limit_at_an_endpoint_gives_the_permit_back(self) -> None:
        """A request that its endpoint refuses has no permit after it, though the policy admitted it."""
        for where in self.places:
            policy = {"rules": [], "shed": ONE_AT_ONCE}
            if where == "endpoint":
                with self.limiting(where, {"limits": "1/minute"}, policy=policy) as site:
                    assert site.codes(times=3) == [200, 429, 429]
                    assert self.is_idle(site)

    def test_the_fleet_keeps_a_reserve_for_critical_requests(self) -> None:
        """A request of another class is refused above it, with `fleet`, and gives its permit back."""
        gate, fleet = Gate(), {"limit": "2 in flight", "reserve": "50%"}
        with self.shedding(gate, limit=9, fleet=fleet, classes={"critical": {"path": "/pay"}}) as site:
            with self.full(site, gate):
                answer = site.ask()
                assert (answer.status, json.loads(answer.body)["reason"]) == (503, "fleet")
                assert (int(answer.fields["retry-after"]) >= 1, "ratelimit" in answer.fields) == (True, False)
                assert site.codes("/pay", times=2) == [200, 200]
                assert settled(lambda: site.limits.shedder.stats().in_flight == 1)
                site.limits.shedder.mode = "observe"
                assert site.codes() == [200]
                assert dict(site.limits.shedder.stats().refused) == {("sheddable_plus", "fleet"): 2}
            site.limits.shedder.mode = "enforce"
            assert site.codes() == [200]

    def test_requests_of_several_tenants_wait(self) -> None:
        """The key of the tenant is read for requests that wait; all of them are served when permits are free."""
        gate = Gate()
        with self.shedding(gate, limit=2, timeout=SOON, tenant={"header": "x-org"}) as site:
            with site.asking(2, "/?slow=1", x_org="a") as _:
                gate.reached(2)
                with site.asking(1, x_org="a") as [second], site.asking(1, x_org="b") as [third]:
                    assert settled(lambda: site.limits.shedder.stats().waiting == 2)
                    gate.open()
                    assert (second.result(SOON).status, third.result(SOON).status) == (200, 200)
            assert self.is_idle(site)
