# BoundLimit, a limit on its table.

cdef enum:
    MOST_PARAMS = 9


cdef object filed_as(str name):
    """Return the number under which a name is filed."""
    from hashlib import blake2b         # loaded for limits that have a name

    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


@cython.final
cdef class BoundLimit:
    """A limit on its table, private or shared, with its parameters as C integers."""

    cdef readonly Table table
    cdef readonly SharedTable common
    cdef readonly object limit
    cdef Family family
    cdef int64_t need                   # words of a state of this limit
    cdef uint64_t name                  # the number of the limit's name, for the tags of keys
    cdef dict elsewhere                 # the same limit on other tables of the family
    cdef carry_fn carry
    cdef answer_fn answer
    cdef lend_fn lend                   # NULL if the step does not lend, or the limit has a block
    cdef charge_fn charge
    cdef give_fn give
    cdef int64_t words
    cdef int64_t block
    cdef bint grows                     # the block is longer for a key that is refused again within the memory
    cdef int64_t[8] growth              # the memory, then the times
    cdef int64_t[MOST_PARAMS] params
    cdef bint guards                    # refuses calls of paused keys, and charges nothing
    cdef bint holds_permits             # a process holds its charges, which are free when the process dies

    def __cinit__(self, table not None, limit):
        cdef Kernel kernel
        if isinstance(table, SharedTable):
            self.common = table
        else:
            self.table = table
        find_kernel(limit.step.KIND, &kernel)
        self.limit = limit
        self.family = table.family
        self.need = limit.step.words(limit.params)
        self.name = filed_as(limit.name) if limit.name else 0
        self.elsewhere = {}
        self.answer, self.charge, self.give, self.carry = kernel.answer, kernel.charge, kernel.give, kernel.carry
        self.lend = NULL if limit.block_us else kernel.lend
        self.guards = limit.guards
        self.holds_permits = limit.in_flight
        self.words = table.words
        self.block = limit.block_us
        self.grows = bool(limit.growth)
        for at, value in enumerate(limit.growth):
            self.growth[at] = value
        given = (*limit.params, table.words)
        if len(given) > MOST_PARAMS:
            raise OverflowError("more parameters than a bound limit has room for")
        for at, value in enumerate(given):
            self.params[at] = value

    cdef BoundLimit on(self, table):
        """Return the same limit on another table of the family."""
        bound = self.elsewhere.get(table)
        if bound is None:
            bound = self.elsewhere[table] = BoundLimit(table, self.limit)
        return bound

    cdef inline int tell(self) except -1:
        """Report, once for each table, that the table has dropped a key with quota in use."""
        if self.common is None:
            if self.table.evictions and not self.table.reported:
                self.table.reported = True
                self.table.engine.on_eviction(self.limit, self.table)
        elif not self.common.reported and headgate_load(&self.common.head.evictions):
            self.common.reported = True
            self.common.engine.on_eviction(self.limit, self.common)
        return 0

    cdef inline uint64_t tag(self, key) except? 0:
        """Return the tag of a key under this limit's name."""
        cdef Engine engine = self.table.engine if self.common is None else self.common.engine
        return tag_from(hash_of(key, engine.k0, engine.k1), self.name)

    cdef inline void look(self, const int64_t* state, int64_t now, int64_t cost, Answer* out) noexcept nogil:
        if self.grows:
            growing_answer(self.answer, state[self.words], self.growth, state, self.params, now, cost, out)
        elif self.block:
            block_answer(self.answer, state[self.words], self.block, state, self.params, now, cost, out)
        else:
            self.answer(state, self.params, now, cost, out)

    cdef inline void weigh(self, const int64_t* state, int64_t now, Answer* out) noexcept nogil:
        """Look at a state; the reset is the time after which it is as that of a new key."""
        cdef int64_t left
        self.look(state, now, 0, out)
        if self.grows and state[self.words]:
            left = state[self.words] - (state[self.words] & 7) + self.growth[0] - now
            if left > out.reset:
                out.reset = left

    cdef inline void ask(self, const int64_t* state, int64_t now, int64_t cost, int64_t wait, Mode mode, Answer* out) noexcept nogil:
        """Like `look`; a peek describes the state without the charge, and other modes lend a cost that fits in the wait."""
        self.look(state, now, cost, out)
        if mode == M_PEEK:
            self.describe(state, now, cost, out)
        elif wait and not out.allowed and self.lend != NULL and 0 < out.retry <= wait:
            self.lend(self.params, now, cost, out)

    cdef void describe(self, const int64_t* state, int64_t now, int64_t cost, Answer* out) noexcept nogil:
        """Let an answer tell what is there now: a peek charges nothing, and begins no block. Not inline: hits are more."""
        cdef Answer free
        if cost and (out.allowed or self.block or self.grows):
            self.look(state, now, 0, &free)
            out.remaining, out.reset = free.remaining, free.reset

    cdef int64_t* find(self, uint64_t tag) noexcept nogil:
        """Return the state of a key, or NULL if it was never charged."""
        cdef int64_t slot
        if self.common is None:
            return self.table.find(tag)
        slot = self.common.find(tag)
        return self.common.state(slot) if slot >= 0 else NULL

    cdef inline void sign(self) noexcept nogil:
        """Let this process hold the permits that are charged from now on."""
        (<ConcurrencyParams*> self.params).holder = self.common.engine.me

    cdef inline int64_t epoch(self) noexcept nogil:
        return self.table.epoch if self.common is None else self.common.head.epoch
