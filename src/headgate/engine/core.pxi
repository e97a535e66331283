# Core: the path from a method call to a Decision. The single-limit hit has no Python frame on it.

cdef enum:
    CALLS = 64                          # engine.modes.MOST_CALLS
    LONGEST_KEY_CHARS = 1024            # a key of up to so many characters cannot have more than 4,096 bytes

cdef enum Mode:
    M_TAKE, M_PEEK, M_UP_TO             # engine.modes, in the same order

cdef object ONE = 1

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define headgate_held_by_one(thing) 0
    #else
    #define headgate_held_by_one(thing) (Py_REFCNT(thing) == 1)
    #endif
    """
    bint headgate_held_by_one(PyObject* thing) nogil


@cython.final
cdef class Core:
    """Lanes, and decisions over them: the hot part of a gate."""

    cdef readonly Book book
    cdef readonly tuple lanes
    cdef readonly tuple limits
    cdef Lane only                      # the one lane, where there is one
    cdef object plan
    cdef Decision spare, other          # the last two decisions over the one lane

    def __cinit__(self, Book book not None, tuple lanes not None, plan):
        if not 0 < len(lanes) <= CALLS:
            raise ValueError("a decision has from 1 to 64 calls")
        self.book = book
        self.plan = plan
        self.lanes = lanes
        self.limits = tuple([lane.limit for lane in lanes])
        self.spare, self.other = self.fresh(), self.fresh()
        if len(lanes) == 1:
            self.only = lanes[0]

    cdef Decision fresh(self):
        cdef Decision decision = Decision.__new__(Decision)
        decision._limits = self.limits
        return decision

    def hit(self, key, cost=1, *, limit=None):
        """Spend, if every limit allows."""
        if limit is None:
            return self.ask(key, cost, M_TAKE)
        return self.with_plan(limit).ask(key, cost, M_TAKE)

    def peek(self, key, cost=1, *, limit=None):
        """What `hit` would answer; writes nothing."""
        if limit is None:
            return self.ask(key, cost, M_PEEK)
        return self.with_plan(limit).ask(key, cost, M_PEEK)

    def take_up_to(self, key, n, *, limit=None):
        """Spend as much of `n` as fits now."""
        if limit is None:
            return self.ask(key, checked_cost(n), M_UP_TO)
        return self.with_plan(limit).ask(key, checked_cost(n), M_UP_TO)

    cdef Core with_plan(self, limit):
        return self.plan(limit)

    cdef inline object ask(self, key, cost, Mode mode):
        cdef int64_t units
        if not is_plain(key):
            checked_key(key)
        if cost is ONE:
            units = 1
        elif type(cost) is int:
            units = cost if 0 <= cost <= EXACT else checked_cost(cost)
        else:
            return self.run(key, checked_costs(self.limits, cost), mode)
        if self.only is not None:
            return self.ask_one(key, units, mode)
        return self.ask_many(key, None, units, mode)

    def run(self, keys, tuple costs, int mode):
        """One decision, a cost for each lane: every lane is asked, then all are charged or none is."""
        if len(costs) != len(self.lanes) or (type(keys) is tuple and len(keys) != len(self.lanes)):
            raise ValueError("a decision needs a cost, and one key or a key, for each lane")
        if self.only is not None:
            return self.ask_one(keys[0] if type(keys) is tuple else keys, costs[0], <Mode> mode)
        return self.ask_many(keys, costs, 0, <Mode> mode)

    cdef object ask_one(self, key, int64_t cost, Mode mode):
        cdef Lane lane = self.only
        cdef Table table = lane.table
        cdef Answer seen
        cdef int64_t* state
        cdef int64_t now
        cdef uint64_t tag = tag_of(key, self.book.k0, self.book.k1)
        cdef Decision decision
        with cython.critical_section(self.book):
            now = table.instant(self.book.now())
            state = table.find(tag)
            if mode == M_UP_TO and cost:
                lane.look(state or NOTHING, now, 0, &seen)
                cost = max(1, min(cost, seen.remaining))
            lane.look(state or NOTHING, now, cost, &seen)
            if mode != M_PEEK:
                if seen.allowed:
                    if state == NULL:
                        table.prepare(tag)
                        state = table.place(tag, lane, now)
                    lane.charge(state, lane.params, seen.mark_us, seen.mark_num, cost)
                elif state != NULL:
                    refuse(lane, state, &seen)
        # Most decisions are read and dropped: one that nobody else holds any more is written anew, as zip() does with
        # its tuples, which saves making and freeing an object. Two take turns, for a caller keeps the last answer until
        # it has the next.
        self.spare, self.other = self.other, self.spare
        if not headgate_held_by_one(<PyObject*> self.spare):
            self.spare = self.fresh()
        decision = self.spare
        decision.allowed = seen.allowed
        decision.remaining = seen.remaining
        decision.retry_us = seen.retry
        decision.reset_us = seen.reset
        decision._keys = key
        decision._cost = cost
        decision._given = cost if mode == M_PEEK else 0
        decision._mark_us = seen.mark_us + table.epoch
        decision._mark_num = seen.mark_num
        return decision

    cdef object ask_many(self, keys, tuple costs, int64_t same, Mode mode):
        """`costs`, or the `same` for every lane."""
        cdef Answer[CALLS] seen
        cdef (int64_t*)[CALLS] states
        cdef int64_t[CALLS] nows
        cdef int64_t[CALLS] cost
        cdef uint64_t[CALLS] tags
        cdef Lane lane
        cdef int64_t now, room = EXACT
        cdef Py_ssize_t at, count = len(self.lanes)
        cdef bint allowed = True
        for at in range(count):
            cost[at] = same if costs is None else costs[at]
            if at and type(keys) is not tuple:
                tags[at] = tags[0]
            else:
                tags[at] = tag_of(keys[at] if type(keys) is tuple else keys, self.book.k0, self.book.k1)
        with cython.critical_section(self.book):
            now = self.book.now()
            for at in range(count):
                lane = <Lane> self.lanes[at]
                nows[at] = lane.table.instant(now)
                states[at] = lane.table.find(tags[at])
                if mode == M_UP_TO and cost[at]:
                    lane.look(states[at] or NOTHING, nows[at], 0, &seen[at])
                    room = min(room, seen[at].remaining)
            for at in range(count):
                lane = <Lane> self.lanes[at]
                if mode == M_UP_TO and cost[at]:
                    cost[at] = max(1, min(cost[at], room))
                lane.look(states[at] or NOTHING, nows[at], cost[at], &seen[at])
                allowed = allowed and seen[at].allowed
            if allowed and mode != M_PEEK:
                self.charge_many(tags, states, nows, cost, seen)
            if not allowed:
                self.refuse_many(states, nows, seen, mode)
        same_for_all = costs is None or mode == M_UP_TO
        return self.answer_many(keys, cost[0] if same_for_all else costs, cost, seen, allowed, mode)

    cdef int charge_many(self, uint64_t* tags, int64_t** states, int64_t* nows, int64_t* cost, Answer* seen) except -1:
        cdef Lane lane
        cdef Py_ssize_t at
        cdef bint placed = False
        for at in range(len(self.lanes)):       # what can fail, fails before the first charge
            if states[at] == NULL:
                (<Lane> self.lanes[at]).table.prepare(tags[at])
        for at in range(len(self.lanes)):
            lane = <Lane> self.lanes[at]
            if placed:                          # which may have moved the others
                states[at] = lane.table.find(tags[at])
            if states[at] == NULL:
                states[at] = lane.table.place(tags[at], lane, nows[at])
                placed = True
            lane.charge(states[at], lane.params, seen[at].mark_us, seen[at].mark_num, cost[at])
        return 0

    cdef void refuse_many(self, int64_t** states, int64_t* nows, Answer* seen, Mode mode) noexcept:
        cdef Lane lane
        cdef Py_ssize_t at
        for at in range(len(self.lanes)):
            lane = <Lane> self.lanes[at]
            if mode != M_PEEK and states[at] != NULL:
                refuse(lane, states[at], &seen[at])
            if seen[at].allowed:        # nothing was charged: say what it holds without the charge
                lane.look(states[at] or NOTHING, nows[at], 0, &seen[at])

    cdef object answer_many(self, keys, costs, const int64_t* cost, const Answer* seen, bint allowed, Mode mode):
        """The Decision over several answers: the same rules as Decision.__init__, which the twins' test compares."""
        cdef int64_t[CALLS * ANSWER_WORDS] flat
        cdef int64_t* row = flat
        cdef Lane lane
        cdef Py_ssize_t at, bound = 0, count = len(self.lanes)
        cdef double share, least = 2
        cdef int64_t longest = -1, reset = 0
        cdef Decision decision
        for at in range(count):
            lane = <Lane> self.lanes[at]
            row[0], row[1], row[2], row[3] = seen[at].allowed, seen[at].remaining, seen[at].retry, seen[at].reset
            row[4], row[5] = seen[at].mark_us + lane.table.epoch, seen[at].mark_num
            row += ANSWER_WORDS
            reset = max(reset, seen[at].reset)
            if allowed:
                share = <double> seen[at].remaining / <double> lane.burst
                if share < least:
                    least, bound = share, at
            elif longest != INT64_MAX and (seen[at].retry == NEVER_FITS or seen[at].retry > longest):
                longest = INT64_MAX if seen[at].retry == NEVER_FITS else seen[at].retry
                bound = at
        decision = self.fresh()
        decision.allowed = allowed
        decision.remaining = seen[bound].remaining
        decision.retry_us = seen[bound].retry
        decision.reset_us = reset
        decision._keys = keys
        decision._bound = bound
        decision._cost = cost[bound]
        decision._given = cost[bound] if mode == M_PEEK else 0
        decision._mark_us = seen[bound].mark_us + (<Lane> self.lanes[bound]).table.epoch
        decision._mark_num = seen[bound].mark_num
        given = tuple([cost[at] for at in range(count)]) if mode == M_PEEK else None
        answers = PyBytes_FromStringAndSize(<char*> flat, count * ANSWER_WORDS * sizeof(int64_t))
        decision._more = (costs, answers, given)
        return decision

    def give(self, tuple keys, tuple amounts, tuple marks):
        """Give back what was charged at the marks; no mark means charged now."""
        cdef Lane lane
        cdef Answer seen
        cdef int64_t* state
        cdef int64_t now, instant
        with cython.critical_section(self.book):
            now = self.book.now()
            for a_lane, key, amount, mark in zip(self.lanes, keys, amounts, marks):
                lane = a_lane
                instant = lane.table.instant(now)
                state = lane.table.find(tag_of(key, self.book.k0, self.book.k1))
                if state != NULL:
                    if mark is None:
                        lane.answer(state, lane.params, instant, 0, &seen)
                    else:
                        seen.mark_us, seen.mark_num = mark[0] - lane.table.epoch, mark[1]
                    lane.table.kernel.give(state, lane.params, instant, seen.mark_us, seen.mark_num, amount)

    def clear(self, key):
        """Make a key as new."""
        cdef Lane lane
        cdef int64_t* state
        cdef uint64_t tag = tag_of(key, self.book.k0, self.book.k1)
        with cython.critical_section(self.book):
            for a_lane in self.lanes:
                lane = a_lane
                state = lane.table.find(tag)
                if state != NULL:
                    memset(state, 0, lane.table.stride * 8)


cdef inline bint is_plain(key):
    """A key that needs no closer look; anything else is judged by `checked_key`, which raises."""
    return isinstance(key, str) and 0 < PyUnicode_GET_LENGTH(key) <= LONGEST_KEY_CHARS

cdef inline void refuse(Lane lane, int64_t* state, const Answer* seen) noexcept:
    """A no charges nothing; it starts blocks, and keeps a state that had to follow the clock back."""
    if seen.moved:
        lane.charge(state, lane.params, seen.mark_us, seen.mark_num, 0)
    if lane.block and not seen.allowed:
        state[lane.table.words] = seen.until
