"""The entries of a load shedder, one for each class: for edges whose requests need no permit while they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine import Entry
from headgate.shed.context import request_class
from headgate.shed.loop_delay import BOUND

if TYPE_CHECKING:
    from headgate.shed.shedder import LoadShedder


def entry_of(shedder: LoadShedder, name: str) -> Entry:
    """Return an entry for requests of this class that an event loop serves."""
    from asyncio import _get_running_loop  # not above: an app of threads does not load it

    critical = shedder.classes.ranks[name] < shedder.classes.critical
    loops = (_get_running_loop, shedder._loops.turn_of, BOUND)
    return Entry(shedder._places, name, critical, request_class, shedder.fill, loops)
