"""The search for servers: which are asked, in which order, and what follows from the answers; without a network."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from headgate.stores.redis.discovery import SLOTS, Address, NoTimeLeft, Sentinels, Slots, Steps

pytestmark = pytest.mark.engineless

A, B, C = ("a", 1), ("b", 2), ("c", 3)
SILENT = TimeoutError("no answer")
PRIMARY = [b"name", b"mymaster", b"ip", b"10.0.0.1", b"port", b"6379", b"flags", b"master"]
DOWN = [*PRIMARY[:-1], b"s_down,master"]
STRANGE = [b"OK", [b"flags"], 7, None, [b"ip", b"h", b"port", b"x", b"flags", b"master"]]


def follow(steps: Steps[Any], replies: dict[Address, Any]) -> tuple[list[Address], Any]:
    """Whom they ask, and what they come to, where these are the replies."""
    asked: list[Address] = []
    try:
        question = next(steps)
        while True:
            asked.append(question.address)
            assert question.shares == 1 + len(replies) - len(asked) + 1
            reply = replies[question.address]
            question = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
    except StopIteration as done:
        return asked, done.value
    except ConnectionError as error:
        return asked, str(error)


def test_sentinels_are_asked_one_after_the_other_and_next_time_first_the_one_that_answered():
    """A sentinel that is silent is asked last from then on."""
    sentinels = Sentinels([A, B, C], "mymaster")
    here = ("10.0.0.1", 6379)
    assert follow(sentinels.find(), {A: SILENT, B: PRIMARY, C: PRIMARY}) == ([A, B], here)
    assert follow(sentinels.find(), {A: PRIMARY, B: PRIMARY, C: PRIMARY}) == ([B], here)
    assert follow(sentinels.find(), {A: PRIMARY, B: SILENT, C: SILENT}) == ([B, C, A], here)
    assert follow(sentinels.find(), {A: PRIMARY, B: SILENT, C: SILENT}) == ([A], here)


@pytest.mark.parametrize("reply", [DOWN, ResponseError("ERR No such master with that name")])
def test_a_sentinel_that_knows_of_no_primary_that_is_up_is_not_the_last_word(reply):
    """The next one is asked, and an error names the service when none knows."""
    sentinels = Sentinels([A, B], "mymaster")
    assert follow(sentinels.find(), {A: reply, B: PRIMARY}) == ([A, B], ("10.0.0.1", 6379))
    nobody = "no sentinel knows the primary of mymaster"
    assert follow(sentinels.find(), {A: reply, B: reply}) == ([B, A], nobody)
    assert follow(sentinels.find(), {A: reply, B: SILENT}) == ([B, A], nobody)


def test_a_primary_is_where_it_was_only_while_every_sentinel_is_silent():
    """The address of before is used when nobody contradicts it."""
    sentinels = Sentinels([A, B], "mymaster")
    assert follow(sentinels.find(), {A: SILENT, B: SILENT})[1] == "no sentinel knows the primary of mymaster"
    assert follow(sentinels.find(), {A: PRIMARY, B: PRIMARY})[1] == ("10.0.0.1", 6379)
    assert follow(sentinels.find(), {A: SILENT, B: SILENT})[1] == ("10.0.0.1", 6379)


@pytest.mark.parametrize("reply", STRANGE)
def test_what_does_not_talk_like_a_sentinel_is_none(reply):
    """A strange reply is taken for silence."""
    assert follow(Sentinels([A, B], "mymaster").find(), {A: reply, B: PRIMARY}) == ([A, B], ("10.0.0.1", 6379))


def served(*ranges: tuple[int, int, Address]) -> list[Any]:
    return [[first, last, [host.encode(), port, b"id", []]] for first, last, (host, port) in ranges]


WHOLE = served((0, 8191, A), (8192, SLOTS - 1, B))


def test_those_for_whom_no_time_is_left_keep_their_places():
    """Only nodes that were asked in vain move to the end."""
    late = NoTimeLeft("no time left to ask another server")
    slots, sentinels = Slots([A, B, C]), Sentinels([A, B, C], "mymaster")
    for steps in (slots.find, sentinels.find):
        assert follow(steps(), {A: SILENT, B: late, C: late})[0] == [A, B]
        assert follow(steps(), {A: SILENT, B: SILENT, C: SILENT})[0] == [B, C, A]


def test_a_cluster_is_known_from_one_node_that_knows_all_of_it():
    """The addresses of all slots come from the first whole answer."""
    slots = Slots([C, A])
    assert slots.address_of(0) is None and slots.addresses() == []
    assert follow(slots.find(), {C: SILENT, A: WHOLE}) == ([C, A], None)
    assert [slots.address_of(slot) for slot in (0, 8191, 8192, SLOTS - 1)] == [A, A, B, B]
    assert slots.addresses() == [A, B]


def test_next_time_the_node_that_answered_is_asked_first_then_the_others_last_those_that_did_not():
    """The order of the next search follows the answers of the last one."""
    slots = Slots([C, A])
    follow(slots.find(), {C: SILENT, A: WHOLE})
    assert follow(slots.find(), {A: SILENT, B: SILENT, C: SILENT})[0] == [A, C, B]
    assert follow(slots.find(), {A: WHOLE, B: WHOLE, C: WHOLE}) == ([A], None)


def test_replicas_are_asked_too():
    """A replica is a node to ask, and no address of a slot."""
    slots = Slots([A])
    follow(slots.find(), {A: [[0, SLOTS - 1, [b"a", 1, b"id"], [b"c", 3, b"id"]]]})
    assert slots.addresses() == [A]
    assert follow(slots.find(), {A: SILENT, C: SILENT})[0] == [A, C]


def test_of_nodes_that_know_only_a_part_the_one_that_knows_most_counts():
    """The answer with the most slots is taken where none is whole."""
    slots = Slots([A, B, C])
    replies = {A: served((0, 9, A)), B: served((0, 99, B)), C: []}
    assert follow(slots.find(), replies) == ([A, B, C], None)
    assert [slots.address_of(slot) for slot in (0, 99, 100)] == [B, B, None]


def test_nodes_of_which_none_answers_leave_what_was_known():
    """The error tells the last reply, and the addresses of before stay."""
    slots = Slots([A, B])
    follow(slots.find(), {A: WHOLE, B: WHOLE})
    asked, told = follow(slots.find(), {A: SILENT, B: ResponseError("ERR This instance has cluster support disabled")})
    assert (asked, told) == (
        [A, B],
        "no node of the cluster knows which node serves which slot: ERR This instance has cluster support disabled",
    )
    assert slots.address_of(0) == A


def test_a_slot_that_moved_is_there_until_the_nodes_are_found_again():
    """A redirection is one slot's, and the next whole answer replaces it."""
    slots = Slots([A, B])
    follow(slots.find(), {A: WHOLE, B: WHOLE})
    slots.move(0, C)
    assert (slots.address_of(0), slots.address_of(1), slots.addresses()) == (C, A, [A, B, C])
    follow(slots.find(), {A: WHOLE, B: WHOLE})
    assert slots.address_of(0) == A


@pytest.mark.parametrize("host", [b"", None])
def test_a_node_that_has_no_name_is_where_it_was_asked(host):
    """An empty host in the answer is the host of the node that gave it."""
    slots = Slots([A])
    follow(slots.find(), {A: [[0, SLOTS - 1, [host, 7, b"id"]]]})
    assert slots.address_of(5) == ("a", 7)


@pytest.mark.parametrize(
    "reply", [b"OK", [[0]], [[0, 5]], [[0, SLOTS, [b"a", 1]]], [[0, 5, [b"a"]]], [[b"x", 5, [b"a", 1]]]]
)
def test_what_does_not_talk_like_a_node_is_none(reply):
    """A strange reply is taken for silence."""
    assert follow(Slots([A, B]).find(), {A: reply, B: WHOLE}) == ([A, B], None)
