# Book and Lane: what tables share, and a limit on its table.

cdef enum:
    MOST_PARAMS = 8


@cython.final
cdef class Book:
    """What the tables of one store share: a clock, a secret, and (without the GIL) the lock of a decision."""

    cdef readonly object clock
    cdef int64_t anchor_ns
    cdef clockid_t clock_id
    cdef bint steady
    cdef uint64_t k0, k1

    def __cinit__(self, clock):
        self.clock = clock
        self.steady = type(clock) is SystemClock and STEADY_CLOCK_ID is not None
        if self.steady:
            self.anchor_ns = clock.anchor_ns
            self.clock_id = STEADY_CLOCK_ID
        secret = os.urandom(16)
        self.k0 = int.from_bytes(secret[:8], "little")
        self.k1 = int.from_bytes(secret[8:], "little")

    def table(self, limit, max_keys):
        """A table for the states of a limit's keys."""
        return Table(self, limit, max_keys)

    def core(self, tables, limits, plan=None):
        """Decisions over limits, each on its table; `plan` finds the core of limits chosen for one call."""
        return Core(self, tuple(map(Lane, tables, limits)), plan)

    cdef inline int64_t now(self) except -1:
        return self.steady_now() if self.steady else self.told_now()

    cdef inline int64_t steady_now(self) noexcept nogil:
        cdef timespec ts
        clock_gettime(self.clock_id, &ts)
        return <int64_t> (<uint64_t> (ts.tv_sec * 1_000_000_000 + ts.tv_nsec + self.anchor_ns) // 1000)

    cdef int64_t told_now(self) except -1:
        return read_clock(self.clock)


@cython.final
cdef class Lane:
    """A limit on its table: parameters as C integers."""

    cdef readonly Table table
    cdef readonly object limit
    cdef answer_fn answer
    cdef charge_fn charge
    cdef int64_t block
    cdef int64_t burst
    cdef int64_t[MOST_PARAMS] params

    def __cinit__(self, Table table not None, limit):
        self.table = table
        self.limit = limit
        self.answer = table.kernel.answer
        self.charge = table.kernel.charge
        self.block = limit.block_us
        self.burst = limit.burst
        given = (*limit.params, table.words)
        if len(given) > MOST_PARAMS:
            raise OverflowError("more parameters than a lane has room for")
        for at, value in enumerate(given):
            self.params[at] = value

    cdef inline void look(self, const int64_t* state, int64_t now, int64_t cost, Answer* out) noexcept nogil:
        if self.block:
            block_answer(self.answer, state[self.table.words], self.block, state, self.params, now, cost, out)
        else:
            self.answer(state, self.params, now, cost, out)
