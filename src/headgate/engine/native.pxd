# C types for the attributes of the classes whose text is shared with Python (decision.py, permit.py, entry.py, entry_permit.py, pending_call.py).

from libc.stdint cimport int64_t

cdef class Decision:
    cdef readonly bint allowed
    cdef readonly bint degraded
    cdef readonly int64_t remaining
    cdef readonly int64_t retry_us
    cdef readonly int64_t reset_us
    cdef tuple _limits
    cdef object _keys
    cdef Py_ssize_t _bound
    cdef int64_t _cost
    cdef int64_t _given
    cdef int64_t _mark_us
    cdef int64_t _mark_num
    cdef tuple _more
    cdef tuple _returned
    cdef public bint _held

cdef class Permit:
    cdef readonly Decision decision
    cdef readonly object outcome
    cdef object _give_back
    cdef bint _claim_end(self, outcome)

cdef class LoopIteration:
    cdef readonly object loop
    cdef readonly object close
    cdef public int64_t began
    cdef readonly int64_t apart
    cdef public int64_t requests
    cdef public bint open
    cdef unsigned long thread
    cdef bint is_here(self, int64_t now) except? -1
    cpdef int64_t delay(self, int64_t now) except? -1

cdef class EntryPermit

cdef class Places:
    cdef public object estimator
    cdef public object now_ns
    cdef public bint plain
    cdef readonly int64_t in_flight
    cdef readonly int64_t ended
    cdef readonly int64_t waiting
    cdef readonly object abandoned
    cpdef int64_t now(self) except? -1
    cpdef int64_t take(self, int64_t limit) except? -1
    cpdef bint give(self, bint served) except? -1
    cdef bint end(self, EntryPermit permit, object outcome) except? -1

cdef class Entry:
    cdef readonly Places places
    cdef readonly str name
    cdef readonly int64_t rank
    cdef readonly int64_t below
    cdef bint _critical
    cdef readonly object variable
    cdef readonly object shedder
    cdef object _loops
    cdef int64_t _bound
    cdef object _running
    cdef LoopIteration _turn
    cdef int64_t _take(self, int64_t now) except? -1
    cdef LoopIteration _find_turn(self, int64_t now)

cdef class EntryPermit:
    cdef public Entry entry
    cdef public str state
    cdef public object outcome
    cdef public int64_t began
    cdef public object mark
    cdef public object deadline
    cdef bint _shown
    cdef object _outer
    cdef bint _end(self, object outcome) except? -1
    cdef int _show(self) except -1
    cdef int _hide(self) except -1

cdef class PendingCall:
    cdef object _function
    cdef tuple _args
    cdef dict _named
    cdef bint _awaits
    cdef bint _begun
    cdef object _coroutine
    cdef object _entered
    cdef object _begin(self)

cdef class PendingMethod:
    cdef dict __dict__
    cdef object _function
    cdef bint _awaits
