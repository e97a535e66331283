# CountedRun: decisions over the limits of some rules, counted for each rule. counted_run.py is the definition.

cdef int64_t NEVER_DUE = <int64_t> 1 << 62


@cython.final
cdef class CountedRun:
    """A decider whose decisions are counted. A decision that raises counts nothing."""

    cdef Decider decider
    cdef tuple admitting                # the tally of each rule
    cdef tuple refusing                 # for each bound limit: the tally of its rule, and the number that counts
    cdef object on_refusal, on_sample, on_due, now_us
    cdef object __weakref__
    cdef int64_t left                   # decisions until the next call of `on_sample`
    cdef public int64_t due             # the instant of the next call of `on_due`

    def __init__(self, Decider decider not None, counting):
        self.decider = decider
        self.admitting, self.refusing, self.on_refusal, self.on_sample, self.on_due, self.now_us = counting
        self.left, self.due = 1, 0

    def run(self, keys, tuple costs not None):
        """Decide, with a cost for each bound limit, and count the decision."""
        cdef Decision decision
        cdef Tally tally
        cdef int64_t left
        if self.due != NEVER_DUE and self.decider.engine.now() >= self.due:
            self.on_due(self)
        decision = self.decider.decide(keys, costs, M_TAKE, 0)
        if decision.allowed:
            for tally in self.admitting:
                with cython.critical_section(tally):
                    tally.n[T_ALLOWED] += 1
        else:
            tally, number = self.refusing[decision._bound]
            tally.add(number)
            self.on_refusal(decision)
        with cython.critical_section(self):
            self.left -= 1
            left = self.left
        if left <= 0:
            self.left = self.on_sample(keys)
        return decision
