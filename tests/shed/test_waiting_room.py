"""The waiting room: classes, the newest first under lasting load, and who is dropped."""

from __future__ import annotations

import pytest

from headgate.clock import MILLISECOND
from headgate.shed.waiting_room import WaitingRoom

pytestmark = pytest.mark.engineless


def room_with(*requests, now=0):
    """A room of three classes."""
    room: WaitingRoom[str] = WaitingRoom(3)
    for rank, request in requests:
        room.add(now, rank, "", 1, request)
    return room


def test_the_highest_class_is_served_first():
    """The order of arrival counts inside a class only."""
    room = room_with((2, "low"), (0, "high"), (1, "middle"), (0, "high too"))
    assert [room.take(0, 3) for _ in range(5)] == ["high", "high too", "middle", "low", None]


def test_only_some_classes_are_served():
    """During a dip the lower classes stay where they are."""
    room = room_with((2, "low"), (1, "middle"))
    assert [room.take(0, 2), room.take(0, 2), room.size] == ["middle", None, 1]


def test_the_lowest_class_is_dropped_first():
    """A drop takes the request that would be served last: the newest of the lowest class."""
    room = room_with((0, "high"), (2, "old"), (2, "new"))
    assert [room.drop(0) for _ in range(4)] == ["new", "old", "high", None]


def test_after_a_tenth_of_a_second_the_newest_goes_first():
    """Once the room has not been empty for 100 ms, the newest is served first and the oldest dropped first."""
    room = room_with((1, "a"), (1, "b"), (1, "c"), (1, "d"))
    assert room.take(100 * MILLISECOND - 1, 3) == "a"
    assert room.take(100 * MILLISECOND, 3) == "d"
    assert room.drop(100 * MILLISECOND) == "b"


def test_an_empty_room_starts_anew():
    """When the room was empty, the oldest goes first again."""
    room = room_with((1, "a"))
    room.take(500 * MILLISECOND, 3)
    room.add(600 * MILLISECOND, 1, "", 1, "b")
    room.add(600 * MILLISECOND, 1, "", 1, "c")
    assert room.take(650 * MILLISECOND, 3) == "b"


@pytest.mark.parametrize("left", ["served", "dropped", "given up"])
@pytest.mark.parametrize(("empty_us", "first"), [(10 * MILLISECOND - 1, "c"), (10 * MILLISECOND, "b")])
def test_a_room_that_is_empty_for_a_moment_does_not_start_anew(left, empty_us, first):
    """Permits that come back together empty a room for less than 10 ms under a load that lasts."""
    room, emptied = room_with((1, "a")), 500 * MILLISECOND
    {
        "served": lambda: room.take(emptied, 3),
        "dropped": lambda: room.drop(emptied),
        "given up": lambda: room.remove(emptied, 1, "", "a"),
    }[left]()
    for request in "bc":
        room.add(emptied + empty_us, 1, "", 1, request)
    assert room.take(550 * MILLISECOND, 3) == first


def test_a_request_that_gives_up_leaves_its_place():
    """The size counts the places that are taken."""
    room = room_with((1, "a"), (2, "b"))
    assert room.remove(0, 1, "", "a")
    assert not room.remove(0, 1, "", "a")
    assert room.size == 1
