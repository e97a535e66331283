# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: annotation_typing=False, freethreading_compatible=True, binding=False, optimize.use_switch=True
# cython: embedsignature=True, embedsignature.format=clinic
"""The native twin of `pure.py`: the same steps, with C integers on memory of its own."""

cimport cython
from cpython.ref cimport PyObject
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, clockid_t, nanosleep, timespec

import os

from headgate.algorithms import EXACT as _EXACT, NEVER as _NEVER, UNKNOWN as _UNKNOWN
from headgate.call import checked_cost, checked_costs, checked_key
from headgate.clock import STEADY_CLOCK_ID, HandClock, SystemClock
from headgate.engine.modes import LEASED as _LEASED
from headgate.engine.modes import read_clock, slots_for, words_for
from headgate.errors import InvalidCall, StoreError

cdef int64_t EXACT = _EXACT
cdef int64_t LEASED = _LEASED

include "layout.pxi"              # layout.py, in C: setup.py
include "siphash.pxi"
include "../algorithms/roster.pxi"
include "decision.pxi"            # decision.py, as a C class: setup.py
include "permit.pxi"              # permit.py, likewise
include "entry.pxi"               # entry.py, likewise
include "entry_permit.pxi"        # entry_permit.py, likewise
include "table.pxi"
include "atomics.pxi"
include "work.pxi"
include "shared_table.pxi"
include "engine.pxi"
include "bound_limit.pxi"
include "arguments.pxi"
include "tally.pxi"
include "private_decider.pxi"
include "shared_lookup.pxi"
include "shared_decider.pxi"
include "decider.pxi"
include "plans.pxi"
include "ask_shared.pxi"
include "answers.pxi"
include "lease_cache.pxi"
include "counted_run.pxi"
include "pending_call.pxi"        # pending_call.py, likewise
include "pending.pxi"

SHARES = HEADGATE_SHARES
