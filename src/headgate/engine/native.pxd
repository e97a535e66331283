# C types for the attributes of the classes whose text is shared with Python (decision.py, permit.py, entry.py, pending_call.py).

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

cdef class Turn:
    cdef readonly object loop
    cdef readonly object close
    cdef public int64_t began
    cdef readonly int64_t apart
    cdef public int64_t requests
    cdef public bint open
    cpdef int64_t delay(self, int64_t now) except? -1

cdef class Places:
    cdef public object estimator
    cdef public object now_ns
    cdef public bint plain
    cdef readonly int64_t in_flight
    cdef readonly int64_t ended
    cdef readonly int64_t waiting
    cpdef int64_t now(self) except? -1
    cpdef int64_t take(self, int64_t limit) except? -1
    cpdef bint give(self, bint served) except? -1

cdef class Entry:
    cdef Places _places
    cdef str _name
    cdef bint _critical
    cdef object _variable
    cdef object _fill
    cdef object _running
    cdef object _meet
    cdef int64_t _bound
    cdef Turn _turn

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
