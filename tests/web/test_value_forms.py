"""What a policy counts is what the app sees, in every framework and in every form that a client can send."""

from __future__ import annotations

import pytest

from tests.support.forms import FORMS, KEYS, passed_the_lists, served_twice
from tests.support.frameworks import READERS, Sent, asking

pytestmark = pytest.mark.engineless

SLOW = ("aiohttp", "uvicorn", "django async")
"""Asked through sockets or threads."""
APPS = [each for each in READERS if each != "uvicorn"]  # behind which is Starlette, and which takes time to start


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("reader", READERS)
def test_no_value_that_an_app_sees_is_served_more_often_than_its_limit(reader, source):
    """Doubled, reordered, hidden, re-encoded: a request is refused, or counted as what the app sees."""
    assert served_twice(reader, source, seed=1, count=80 if reader in SLOW else 150) == []


FOUND: dict[str, list[tuple[bytes, ...]]] = {
    "header": [(b"k1", b"%d"), (b"%d", b"k1"), (b"", b"%d", b"k1"), (b"k1", b"\xa0%d")],
    "token": [(b"Bearer k1", b"Bearer %d"), (b"Bearer %d", b"Bearer k1"), (b"Bearer k1", b"%d")],
    "query": [
        (b"key=k1&key=%d",), (b"key=%d&key=k1",), (b"key=%d&k%%65y=k1",), (b"key=%d&" + b"f=1&" * 300 + b"key=k1",),
        (b"f=1&" * 300 + b"key=k1&key=%d",), (b"key&key=%d&key=k1",),
    ],
    "cookie": [
        (b"key=k1; key=%d",), (b"key=%d; key=k1",), (b"key=k1", b"key=%d"), (b"key=%d", b"key=k1"), (b"key=k1 x%d",),
        (b"key=%d; a=1 key=k1",), (b"key=%d; \xc2\xa0key=k1",), (b'key="k1"; key=%d',), (b"key; key=%d; key=k1",),
        (b"key=%d; " + b"f=1; " * 300 + b"key=k1",),
    ],
}  # fmt: skip
"""Ways in which one value once had as many budgets as a client liked."""


@pytest.mark.parametrize("source", FOUND)
@pytest.mark.parametrize("reader", APPS)
def test_ways_around_that_were_found_stay_closed(reader, source):
    """Twelve requests of each way: the app sees `k1` once at most."""
    policy = {"rules": [{"key": KEYS[source], "missing": "deny", "limits": "1/hour"}]}
    for way in FOUND[source]:
        said = [tuple(part % at if b"%d" in part else part % () for part in way) for at in range(12)]
        name = {"header": b"X-Key", "token": b"Authorization", "cookie": b"Cookie"}.get(source)
        requests = [Sent((), each[0]) if name is None else Sent(tuple((name, part) for part in each)) for each in said]
        seen = [answer.values.get(source) for answer in asking(reader, policy, requests) if answer.status == 200]
        assert seen.count("k1") <= 1, way


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("reader", APPS)
def test_no_list_is_passed_by_saying_more(reader, source):
    """`deny` sees every value, `allow` wants all of them; `not` turns that round."""
    assert passed_the_lists(reader, source, seed=2, count=15 if reader in SLOW else 30) == []


@pytest.mark.parametrize("reader", READERS)
def test_a_request_that_says_each_thing_once_is_seen_alike_by_the_app_and_the_policy(reader):
    """Nothing of the above refuses what browsers and clients send."""
    lines = ((b"X-Key", b"k1"), (b"Authorization", b"Bearer t1"), (b"Cookie", b'a=1; key=c1; b="x y"'))
    key = [{"header": "x-key"}, {"header": "authorization"}, {"cookie": "key"}, {"query": "key"}]
    policy = {"rules": [{"key": key, "missing": "deny", "limits": "1/hour"}]}
    first, second, other = asking(
        reader, policy, [Sent(lines, b"a=b;c&key=q+%31"), Sent(lines, b"key=q%201"), Sent(lines, b"key=q2")]
    )
    assert (first.status, second.status, other.status) == (200, 429, 200)
    assert first.values == {"header": "k1", "token": "t1", "cookie": "c1", "query": "q 1"}
