"""Load shedding: keep serving what can be served when more is asked for."""

from headgate.shed.admissions import Stats
from headgate.shed.context import current_class, deadline_ns, outgoing_headers, request_class
from headgate.shed.permit import ShedPermit
from headgate.shed.shedder import LoadShedder

__all__ = [
    "LoadShedder", "ShedPermit", "Stats", "current_class", "deadline_ns", "outgoing_headers", "request_class",
]  # fmt: skip
