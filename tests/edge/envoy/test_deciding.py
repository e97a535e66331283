"""Decisions over the descriptors of a request: hits, modes, replaced limits, and all or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import InvalidCall
from tests.edge.envoy.support import Service, request

OK, OVER = 1, 2
ENDLESS = 2**32 - 1
FILE = """\
domain: d
descriptors:
  - {key: two, rate_limit: {unit: minute, requests_per_unit: 2, name: two}}
  - {key: five, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: zero, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: free}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: ban, value: soft, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: quota, value: one, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, value: two, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: better, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: two}]}}
  - {key: free_of_two, rate_limit: {unlimited: true, replaces: [{name: two}]}}
  - {key: shared, value: a*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: apart, value: a*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: bucket, rate_limit: {unit: second, requests_per_unit: 1, burst: 3, algorithm: token-bucket}}
"""
TWO, FIVE, ZERO, OPEN = [("two", "x")], [("five", "x")], [("zero", "x")], [("open", "x")]
SHADOW, ONE, BETTER = [("shadow", "x")], [("quota", "one")], [("better", "x")]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path, FILE)


def test_exactly_the_limit_passes_in_each_window(service: Service) -> None:
    """Two of three requests pass in a minute, and two more in the next; the answer has every field."""
    service.clock.set(600.0)
    told = []
    for _ in range(3):
        response = service.ask(TWO)
        status = response.statuses[0]
        told.append((response.overall_code, status.code, status.limit_remaining, status.duration_until_reset.seconds))
        assert (status.current_limit.requests_per_unit, status.current_limit.unit, status.current_limit.name) == (
            2,
            2,
            "two",
        )
    assert told == [(OK, OK, 1, 60), (OK, OK, 0, 60), (OVER, OVER, 0, 60)]
    assert [(header.key, header.value) for header in response.response_headers_to_add] == [("retry-after", "60")]
    service.clock.advance(60)
    assert service.codes(TWO) == (OK, [(OK, 1)])


def test_resets_are_whole_seconds_rounded_up(service: Service) -> None:
    """A client that waits for the time it is told is never too early."""
    service.clock.set(600.25)
    service.codes(TWO, hits=2)
    response = service.ask(TWO)
    assert response.statuses[0].duration_until_reset.seconds == 60
    assert response.response_headers_to_add[0].value == "60"


@pytest.mark.parametrize(
    ("descriptors", "answer"),
    [
        ([[("none", "x")]], (OK, [(OK, 0)])),
        ([[("free", "x")]], (OK, [(OK, 0)])),
        ([OPEN], (OK, [(OK, ENDLESS)])),
        ([ZERO], (OVER, [(OVER, 0)])),
        ([[("ban", "soft")]], (OK, [(OK, 0)])),
        ([FIVE, ZERO], (OVER, [(OK, 5), (OVER, 0)])),
        ([FIVE, TWO, [("none", "x")]], (OK, [(OK, 4), (OK, 1), (OK, 0)])),
        ([TWO, BETTER], (OK, [(OK, 0), (OK, 8)])),
        ([BETTER, TWO], (OK, [(OK, 8), (OK, 0)])),
        ([TWO, [("free_of_two", "x")]], (OK, [(OK, 0), (OK, ENDLESS)])),
    ],
)
def test_a_first_request(service: Service, descriptors: list, answer: tuple) -> None:  # type: ignore[type-arg]
    """No rule, whitelisted, unlimited, 0 requests, several descriptors, and a limit that replaces another."""
    assert service.codes(*descriptors) == answer


def test_an_unknown_domain_has_no_limits(service: Service) -> None:
    """A domain that no file names lets every request pass, also one that brings a limit."""
    assert service.codes(TWO, domain="other", limit=(1, 2), hits=5) == (OK, [(OK, 0)])


def test_a_refused_request_is_charged_nowhere(service: Service) -> None:
    """One descriptor refuses: the others keep their whole count, and say so."""
    service.codes(TWO, hits=2)
    assert service.codes(FIVE, TWO) == (OVER, [(OK, 5), (OVER, 0)])
    assert service.codes(FIVE) == (OK, [(OK, 4)])


def test_one_hit_that_is_spelled_out_is_the_hit_of_every_request(service: Service) -> None:
    """A client that sends `hits_addend: 1` is charged as one that sends none: nowhere, if its request is refused."""
    service.codes(TWO, hits=2)
    assert service.codes(FIVE, TWO, request_hits=1) == (OVER, [(OK, 5), (OVER, 0)])
    assert service.codes(FIVE, request_hits=1) == (OK, [(OK, 4)])


def test_a_replaced_limit_is_not_charged(service: Service) -> None:
    """The limit that is replaced keeps its count."""
    service.codes(TWO, BETTER)
    assert service.codes(TWO) == (OK, [(OK, 1)])


def test_hits_of_the_request_and_of_a_descriptor(service: Service) -> None:
    """A request without hits adds 1; those of a descriptor come before those of the request."""
    assert service.codes(FIVE, request_hits=2) == (OK, [(OK, 3)])
    assert service.codes(FIVE, request_hits=5, hits=1) == (OK, [(OK, 2)])
    assert service.codes(FIVE, request_hits=3) == (OVER, [(OVER, 0)])


def test_zero_hits_only_ask(service: Service) -> None:
    """A question charges nothing; it is refused when nothing is left, together with the rest of its request."""
    assert service.codes(TWO, hits=0) == (OK, [(OK, 2)])
    service.codes(TWO, hits=2)
    assert service.codes(TWO, hits=0) == (OVER, [(OVER, 0)])
    assert service.codes(TWO, FIVE, hits=0) == (OVER, [(OVER, 0), (OK, 5)])


def test_negative_hits_give_back(service: Service) -> None:
    """Hits that are given back can be spent again; a count never falls below zero."""
    service.codes(FIVE, hits=4)
    assert service.codes(FIVE, hits=-3) == (OK, [(OK, 4)])
    assert service.codes(FIVE, hits=-9) == (OK, [(OK, 5)])


def test_more_hits_than_the_limit_never_pass(service: Service) -> None:
    """A refusal without end has no `retry-after`."""
    response = service.ask(TWO, hits=2**60)
    assert response.overall_code == OVER
    assert not response.response_headers_to_add


@pytest.mark.parametrize("hits", ["hits", "request_hits"])
def test_hits_that_are_brought_and_do_not_fit_take_what_is_left(service: Service, hits: str) -> None:
    """Envoy tells the use of a finished response so, and nobody gets the answer: the next request must be refused."""
    service.clock.set(600.0)
    assert service.codes(FIVE, **{hits: 4}) == (OK, [(OK, 1)])
    response = service.ask(FIVE, **{hits: 4})
    assert (response.overall_code, response.statuses[0].limit_remaining) == (OVER, 0)
    assert response.response_headers_to_add[0].value == "60"
    assert service.codes(FIVE, hits=0) == (OVER, [(OVER, 0)])
    service.clock.advance(60)
    assert service.codes(FIVE, **{hits: 99}) == (OVER, [(OVER, 0)])
    assert service.codes(FIVE) == (OVER, [(OVER, 0)])


def test_the_wait_is_that_of_the_state_after_the_charge(service: Service) -> None:
    """A bucket that gives its last 2 of 3 to hits of 3 has 3 again in 3 seconds, and not in 1."""
    service.codes([("bucket", "x")])
    response = service.ask([("bucket", "x")], hits=3)
    assert response.response_headers_to_add[0].value == "3"
    service.clock.advance(3)
    assert service.codes([("bucket", "x")], hits=3) == (OK, [(OK, 0)])


def test_each_descriptor_that_brings_hits_is_charged(service: Service) -> None:
    """One does not fit: the others are charged and given back as they say; the plain one is not charged."""
    service.codes(TWO)
    other = [("five", "other")]
    service.codes(other, hits=5)
    made = request(TWO, FIVE, other, SHADOW, [("apart", "a")])
    for place, hits in enumerate((3, 4, 1, 1)):
        made.descriptors[place].hits_addend.value = hits
    made.descriptors[2].is_negative_hits = True
    answer = service.answer(made)
    assert answer.overall_code == OVER
    assert [(each.code, each.limit_remaining) for each in answer.statuses] == [
        (OVER, 0), (OK, 1), (OK, 1), (OK, 0), (OK, 2)
    ]  # fmt: skip


def test_shadow_mode_counts_and_never_refuses(service: Service) -> None:
    """The status is OK with nothing left; the other limits of the request decide."""
    assert service.codes(SHADOW, FIVE) == (OK, [(OK, 0), (OK, 4)])
    assert service.codes(SHADOW, FIVE) == (OK, [(OK, 0), (OK, 3)])
    assert service.codes(SHADOW, ZERO) == (OVER, [(OK, 0), (OVER, 0)])


def test_quotas_refuse_only_together(service: Service) -> None:
    """Of limits in quota mode one with room is enough, and each is charged while it has room."""
    two = [("quota", "two")]
    assert service.codes(ONE, two) == (OK, [(OK, 0), (OK, 1)])
    assert service.codes(ONE, two) == (OK, [(OVER, 0), (OK, 0)])
    assert service.codes(ONE, two) == (OVER, [(OVER, 0), (OVER, 0)])


def test_quotas_beside_other_limits_refuse_only_together(service: Service) -> None:
    """One quota with room is enough, as in the reference; if none has, the other limits are not charged."""
    two = [("quota", "two")]
    assert service.codes(ONE, FIVE, two) == (OK, [(OK, 0), (OK, 4), (OK, 1)])
    assert service.codes(ONE, FIVE, two) == (OK, [(OVER, 0), (OK, 3), (OK, 0)])
    assert service.codes(ONE, FIVE, two) == (OVER, [(OVER, 0), (OK, 3), (OVER, 0)])
    assert service.codes(FIVE, ONE) == (OVER, [(OK, 3), (OVER, 0)])
    assert service.codes(FIVE) == (OK, [(OK, 2)])


def test_a_quota_is_not_charged_if_another_limit_refuses(service: Service) -> None:
    """The request is charged nowhere."""
    two = [("quota", "two")]
    assert service.codes(two, ZERO) == (OVER, [(OK, 2), (OVER, 0)])
    assert service.codes(two) == (OK, [(OK, 1)])


def test_hits_are_given_back_once_to_a_quota_of_a_refused_request(service: Service) -> None:
    """Units that a request gives back to one quota count once, also if another limit refuses it."""
    two = [("quota", "two")]
    service.codes(two, hits=2)
    made = request(two, ZERO)
    made.descriptors[0].hits_addend.value = 1
    made.descriptors[0].is_negative_hits = True
    assert [each.limit_remaining for each in service.answer(made).statuses] == [1, 0]


def test_a_limit_in_the_request_wins(service: Service) -> None:
    """The numbers of the request replace those of the file, and shadow mode does not apply."""
    assert service.codes(SHADOW, limit=(3, 2), hits=3) == (OK, [(OK, 0)])
    assert service.codes(SHADOW, limit=(3, 2)) == (OVER, [(OVER, 0)])
    assert service.codes([("none", "y")], limit=(1, 3)) == (OK, [(OK, 0)])
    assert service.codes([("none", "y")], limit=(1, 3)) == (OVER, [(OVER, 0)])
    assert service.codes([("none", "y")], limit=(0, 3)) == (OVER, [(OVER, 0)])


def test_a_limit_in_the_request_needs_a_unit(service: Service) -> None:
    """Unit 0 is no unit; nor is a number that Envoy does not have."""
    for unit in (0, 99):
        with pytest.raises(InvalidCall):
            service.ask(TWO, limit=(1, unit))


@pytest.mark.parametrize("fields", [{"domain": ""}, {"descriptors": []}])
def test_a_request_needs_domain_and_descriptors(service: Service, fields: dict[str, object]) -> None:
    """Such a request is an error, as in the reference."""
    with pytest.raises(InvalidCall):
        service.ask(*fields.get("descriptors", [TWO]), domain=fields.get("domain", "d"))  # type: ignore[misc]


def test_wildcards_count_apart_unless_they_share(service: Service) -> None:
    """`share_threshold` makes one count of all values of a wildcard."""
    assert [service.codes([("apart", value)])[1][0][1] for value in ("a1", "a2", "a1")] == [1, 1, 0]
    assert [service.codes([("shared", value)])[0] for value in ("a1", "a2", "a3")] == [OK, OK, OVER]


def test_one_descriptor_twice_counts_twice(service: Service) -> None:
    """Each of two equal descriptors adds its hit; if one does not fit, neither is charged."""
    assert service.codes(FIVE, FIVE) == (OK, [(OK, 4), (OK, 3)])
    service.codes(FIVE, hits=2)
    assert service.codes(FIVE, FIVE)[0] == OVER
    assert service.codes(FIVE, hits=0) == (OK, [(OK, 1)])


def test_a_request_of_many_descriptors_is_one_decision(service: Service) -> None:
    """More descriptors than one decision takes are charged all or none."""
    many = [[("five", str(number))] for number in range(200)]
    service.codes(many[-1], hits=5)
    overall, statuses = service.codes(*many)
    assert (overall, set(statuses[:-1]), statuses[-1]) == (OVER, {(OK, 5)}, (OVER, 0))
    assert service.codes(*many[:-1]) == (OK, [(OK, 4)] * 199)


def test_other_algorithms_by_file_and_by_default(tmp_path: Path) -> None:
    """A bucket fills up a request a second; `algorithm` of the limits is for files that name none."""
    service = Service(tmp_path, FILE, algorithm="sliding-log")
    assert [service.codes([("bucket", "x")])[0] for _ in range(4)] == [OK, OK, OK, OVER]
    service.clock.advance(1)
    assert service.codes([("bucket", "x")]) == (OK, [(OK, 0)])
    service.clock.set(659.0)
    service.codes(TWO, hits=2)
    service.clock.advance(2)  # a fixed window would be a new one
    assert service.codes(TWO) == (OVER, [(OVER, 0)])


def test_a_thousand_descriptors_are_few_tables(tmp_path: Path) -> None:
    """States are by algorithm and period, not by descriptor: a store has room for any number of descriptors."""
    rows = [
        f"  - {{key: k{number}, rate_limit: {{unit: {unit}, requests_per_unit: {number + 1}}}}}"
        for number, unit in enumerate(["second", "minute", "hour", "day"] * 250)
    ]
    service = Service(tmp_path, "\n".join(["domain: d", "descriptors:", *rows]))
    assert [service.codes([(f"k{number}", "x")]) for number in range(1000)] == [
        (OK, [(OK, number)]) for number in range(1000)
    ]


def test_requests_may_bring_any_number_of_limits(service: Service) -> None:
    """The kept limits are bounded; a limit that was dropped and comes again finds its count."""
    for amount in range(1, 3000):
        service.ask(FIVE, limit=(amount, 2), hits=int(amount == 1))
    assert service.codes(FIVE, limit=(1, 2)) == (OVER, [(OVER, 0)])
