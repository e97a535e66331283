"""Load shedding: keep serving what can be served when more is asked for."""

from headgate.shed.admissions import Stats
from headgate.shed.context import current_class, deadline_ns, outgoing_headers, request_class
from headgate.shed.entry import Entry
from headgate.shed.permit import ShedPermit
from headgate.shed.shedder import LoadShedder

__all__ = [
    "Entry",
    "LoadShedder",
    "ShedPermit",
    "Stats",
    "current_class",
    "deadline_ns",
    "outgoing_headers",
    "request_class",
]
