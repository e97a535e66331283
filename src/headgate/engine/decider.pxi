# Decider: the path from a method call to a Decision. The single-limit hit has no Python frame on it.

@cython.final
cdef class Decider:
    """Bound limits, and decisions over them: the hot part of a gate."""

    cdef readonly Engine engine
    cdef readonly tuple bounds
    cdef readonly tuple limits
    cdef BoundLimit only                # the bound limit, if there is only one
    cdef bint common                    # the tables are shared by processes
    cdef bint lends                     # every bound limit lends
    cdef bint guarded                   # the last bound limit is the pause of a key
    cdef bint sized                     # the states of a bound limit may be in one of several tables
    cdef bint holds                     # an admitted call is in flight until it is released
    cdef Tally tally                    # counts the answers to callers
    cdef object plan
    cdef object instead
    cdef object waiting                 # the waiting callers, by key
    cdef object wait                    # acquires for callers that have to wait
    cdef object wake                    # wakes waiting callers after a permit of their key was released
    cdef object ends                    # its own `release`, bound once
    cdef object back                    # releases decisions over several limits, and degraded ones
    cdef Decision spare, other          # the last two decisions over the only bound limit

    def __cinit__(self, Engine engine not None, tuple bounds not None):
        if not 0 < len(bounds) <= CALLS:
            raise ValueError("a decision has from 1 to 64 calls")
        self.engine = engine
        self.common = (<BoundLimit?> bounds[0]).common is not None
        self.bounds = bounds
        self.limits = tuple([bound.limit for bound in bounds])
        self.spare, self.other = self.fresh(), self.fresh()
        self.tally, self.lends = Tally(), True
        for bound in bounds:
            self.lends = self.lends and (<BoundLimit> bound).lend != NULL
            self.sized = self.sized or (<BoundLimit> bound).family is not None
            self.holds = self.holds or (<BoundLimit> bound).holds_permits
        if len(bounds) == 1:
            self.only = bounds[0]
        self.guarded = len(bounds) > 1 and (<BoundLimit> bounds[len(bounds) - 1]).guards

    cdef Decision fresh(self):
        cdef Decision decision = Decision.__new__(Decision)
        decision._limits = self.limits
        return decision

    def hit(self, key, cost=1, *, limit=None):
        """Spend the cost of every limit, or of none if any refuses."""
        cdef Decision decision
        decision = self.ask(key, cost, M_TAKE) if limit is None else ask_plan(self, limit, key, cost, M_TAKE)
        count_answer(self.tally, decision, self.holds)
        return decision

    def hit_or_none(self, key, cost=1):
        """Like `hit`, but return None for a refusal, and do not count it: the caller waits."""
        cdef Decision decision = self.ask(key, cost, M_TAKE)
        return self.counted(decision) if decision.allowed else None

    def peek(self, key, cost=1, *, limit=None):
        """Return the decision that `hit` would return; write nothing."""
        return self.ask(key, cost, M_PEEK) if limit is None else ask_plan(self, limit, key, cost, M_PEEK)

    def take_up_to(self, key, n, *, limit=None):
        """Spend as much of `n` as fits now."""
        n = checked_cost(n)
        return self.counted(self.ask(key, n, M_UP_TO) if limit is None else ask_plan(self, limit, key, n, M_UP_TO))

    cdef inline object counted(self, Decision decision):
        count_answer(self.tally, decision, self.holds)
        return decision

    def answer_instead(self, instead not None):
        """Call this function for an answer when a shared table cannot answer."""
        self.instead = instead

    def attach(self, hit, plan not None, back not None, Tally tally not None):
        """Return the verbs of a gate that need no Python frame. They count in the tally.

        `plan` finds what answers by limits chosen for one call; `back` releases all but a single permit of one limit.
        """
        self.plan, self.back, self.ends, self.tally = plan, back, self.release, tally
        return {
            "hit": self.hit, "peek": self.peek, "take_up_to": self.take_up_to, "release": self.release,
            "_reserve": self.reserve,
        }

    def wait_by(self, dict waiting not None, wait not None, wake not None):
        """Call `wait` in `acquire` if callers wait or the store refuses, and `wake` after a release."""
        self.waiting, self.wait, self.wake = waiting, wait, wake
        return {"acquire": self.acquire, "permit": self.permit}

    def acquire(self, key, cost=1, timeout=None, *, limit=None, priority=0, fair_by=None, weight=1):
        """Spend the cost, after a wait if needed."""
        cdef Decision decision
        if timeout is limit is fair_by is None and priority is ZERO and weight is ONE and not self.waiting:
            decision = self.ask(key, cost, M_TAKE)
            if decision.allowed:
                return self.counted(decision)
        return self.wait(key, cost, timeout, limit, priority, fair_by, weight)

    def permit(self, key, cost=1, timeout=0, *, limit=None):
        """Spend the cost, after a wait of at most the timeout, until the permit ends."""
        cdef Permit permit = Permit.__new__(Permit)
        if not self.waiting and is_patience(timeout):
            permit.decision = self.ask(key, cost, M_TAKE) if limit is None else ask_plan(self, limit, key, cost, M_TAKE)
        if permit.decision is None or not (permit.decision.allowed or timeout == 0):
            permit.decision = self.wait(key, cost, timeout, limit)
        else:
            self.counted(permit.decision)
        permit._give_back = self.ends
        return permit

    def release(self, Decision decision not None):
        """Give back the units in flight of a decision, at most once."""
        cdef Work work
        key = decision._keys
        if (self.only is None or not self.only.holds_permits or type(key) is not str or decision.degraded
                or decision._limits is not self.limits):
            self.back(decision)
        elif decision.allowed:
            work.count, work.mode, work.cost[0] = 1, M_TAKE, decision._cost - decision._given
            decision._given = decision._cost
            end_flight(self.tally, decision)
            if work.cost[0]:
                work.tags[0] = self.only.tag(key)
                work.mark_us[0], work.mark_num[0] = decision._mark_us, decision._mark_num
                self.give_work(key, &work)
        if self.waiting:
            self.wake(decision)

    def reserve(self, key, cost, int64_t wait, limit=None):
        """Spend a cost that fits now or, if every limit lends, within `wait` microseconds."""
        if limit is not None:
            return reserve_plan(self, limit, key, cost, wait)
        if type(key) is str and type(cost) is int and self.only is not None and is_plain(key) and 0 <= cost <= EXACT:
            return self.ask_one(key, cost, M_RESERVE, wait)
        return self.run(checked_key(key), checked_costs(self.limits, cost), M_RESERVE, wait)

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
            return self.ask_one(key, units, mode, 0)
        return self.ask_many(key, None, units, mode, 0)

    def run(self, keys, tuple costs, int mode=M_TAKE, int64_t wait=0):
        """Decide, with a cost for each bound limit: ask every one, then charge all or none."""
        return self.decide(keys, costs, <Mode> mode, wait)

    cdef object decide(self, keys, tuple costs, Mode mode, int64_t wait):
        if len(costs) != len(self.bounds) or (type(keys) is tuple and len(keys) != len(self.bounds)):
            raise ValueError("a decision needs a cost, and one key or a key, for each bound limit")
        if self.only is not None:
            return self.ask_one(keys[0] if type(keys) is tuple else keys, costs[0], mode, wait)
        return self.ask_many(keys, costs, 0, mode, wait)

    cdef object ask_one(self, key, int64_t cost, Mode mode, int64_t wait):
        cdef BoundLimit bound = self.only
        cdef Table table
        cdef Answer seen
        cdef int64_t* state
        cdef int64_t now
        cdef uint64_t tag
        cdef bint placed
        if self.common:
            with cython.critical_section(self.engine.lock):
                return ask_shared_one(self, key, cost, mode, wait)
        tag = tag_from(hash_of(key, self.engine.k0, self.engine.k1), bound.name)
        with cython.critical_section(self.engine.lock):
            now = bound.table.instant(self.engine.now())
            if self.sized and bound.family.spread():
                bound = bound_of(bound, tag, now)
            table = bound.table
            state = table.find(tag)
            if mode == M_UP_TO and cost:
                bound.look(state or NOTHING, now, 0, &seen)
                cost = max(1, min(cost, seen.remaining))
            bound.ask(state or NOTHING, now, cost, wait, mode, &seen)
            if mode != M_PEEK:
                if seen.allowed:
                    placed = state == NULL
                    if placed:
                        table.prepare(tag)
                        state = table.place(tag, bound, now)
                    bound.charge(state, bound.params, seen.mark_us, seen.mark_num, cost)
                    if placed:          # after the charge: another thread may move the state while this one reports
                        bound.tell()
                elif state != NULL:
                    refuse(bound, state, &seen)
            return answer_one(self, key, cost, mode, &seen, table.epoch)

    cdef object ask_many(self, keys, tuple costs, int64_t same, Mode mode, int64_t wait):
        """Decide over several bound limits, with `costs` or with the cost `same` for each."""
        cdef Answer[CALLS] seen
        cdef (int64_t*)[CALLS] states
        cdef Work work
        cdef BoundLimit bound
        cdef tuple bounds = self.bounds
        cdef int64_t now, room = EXACT
        cdef Py_ssize_t at
        cdef bint allowed = True
        self.write_work(keys, costs, same, mode, &work)
        work.wait, work.ahead = wait if self.lends else 0, 0
        if self.common:
            with cython.critical_section(self.engine.lock):
                return ask_shared(self, keys, costs, &work, seen)
        with cython.critical_section(self.engine.lock):
            now = self.engine.now()
            if self.sized:
                bounds = bounds_of(bounds, &work, now)
            for at in range(work.count):
                bound = <BoundLimit> bounds[at]
                work.nows[at] = bound.table.instant(now)
                states[at] = bound.table.find(work.tags[at])
                if mode == M_UP_TO and work.cost[at]:
                    bound.look(states[at] or NOTHING, work.nows[at], 0, &seen[at])
                    room = min(room, seen[at].remaining)
            if mode == M_RESERVE and self.guarded:
                at = work.count - 1
                work.ahead = pause_ahead(<BoundLimit> bounds[at], states[at] or NOTHING, &work)
            for at in range(work.count):
                bound = <BoundLimit> bounds[at]
                if mode == M_UP_TO and work.cost[at]:
                    work.cost[at] = max(1, min(work.cost[at], room))
                ask_in(bound, states[at] or NOTHING, &work, at, &seen[at])
                allowed = allowed and seen[at].allowed
            if allowed and mode != M_PEEK:
                charge_private(bounds, &work, states, seen)
            if not allowed:
                refuse_private(bounds, &work, states, seen)
            return answer_many(self, keys, costs, &work, seen)

    cdef int write_work(self, keys, tuple costs, int64_t same, Mode mode, Work* work) except -1:
        """Write tag and cost for each bound limit."""
        cdef Py_ssize_t at
        cdef uint64_t hashed = 0
        work.count, work.mode = len(self.bounds), mode
        for at in range(work.count):
            work.cost[at] = same if costs is None else costs[at]
            if at == 0 or type(keys) is tuple:
                hashed = hash_of(keys[at] if type(keys) is tuple else keys, self.engine.k0, self.engine.k1)
            work.tags[at] = tag_from(hashed, (<BoundLimit> self.bounds[at]).name)
        return 0

    def give(self, keys, tuple amounts, tuple marks):
        """Give back units that were charged at these marks; no mark means charged now.

        Units that a stuck table does not take back stay charged; permits are given back with the next decision.
        """
        cdef Work work
        cdef Py_ssize_t at
        for at, mark in enumerate(marks):
            work.mark_us[at], work.mark_num[at] = (-1, 0) if mark is None else mark
        self.write_work(keys, amounts, 0, M_TAKE, &work)
        self.give_work(keys, &work)

    cdef int give_work(self, keys, Work* work) except -1:
        cdef int64_t now = 0
        if not self.common:
            if self.only is None or not self.only.holds_permits:    # a permit is found without the time
                now = self.engine.now()
            with cython.critical_section(self.engine.lock):
                bounds = bounds_of(self.bounds, work, now) if self.sized else self.bounds
                return give_private(bounds, work, now)
        with cython.critical_section(self.engine.lock):
            return give_shared(self, keys, work)

    def holders(self, key):
        """Return the permits in flight of a key: limit index, age, units, and whether this process holds them."""
        found = []
        self.at_key(checked_key(key), list_permits_of, <void*> found)
        return permits_at(found, self.engine.now())

    def records(self, key):
        """Return, for each limit, the instant until which the key is blocked or 0, and the stamps of a log."""
        found = [(0, ())] * len(self.bounds)
        self.at_key(checked_key(key), list_records_of, <void*> found)
        return records_at(self.limits, found, self.engine.now())

    def clear(self, key):
        """Forget a key under every limit."""
        self.at_key(key, forget_key, NULL)

    cdef int at_key(self, key, attempt_fn attempt, void* out) except -1:
        """Call `attempt` with the bound limits on the tables that have the key."""
        cdef Work work
        cdef int64_t now = self.engine.now()
        with cython.critical_section(self.engine.lock):
            if self.common:
                return at_shared_key(self, key, now, attempt, out)
            self.write_work(key, None, 0, M_PEEK, &work)
            attempt(bounds_of(self.bounds, &work, now) if self.sized else self.bounds, &work, out)
