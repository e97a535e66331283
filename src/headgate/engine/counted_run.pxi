# CountedRun: decisions over the limits of some rules, counted for each rule. counted_run.py is the definition.

@cython.final
cdef class CountedRun:
    """A decider whose decisions are counted. A decision that raises counts nothing."""

    cdef Decider decider
    cdef tuple admitting                # the tally of each rule
    cdef tuple refusing                 # for each bound limit: the tally of its rule, and the number that counts
    cdef object on_refusal, on_sample
    cdef int64_t left                   # decisions until the next call of `on_sample`

    def __init__(self, Decider decider not None, counting):
        self.decider = decider
        self.admitting, self.refusing, self.on_refusal, self.on_sample = counting
        self.left = 1

    def run(self, keys, tuple costs not None):
        """Decide, with a cost for each bound limit, and count the decision."""
        cdef Decision decision = self.decider.decide(keys, costs, M_TAKE, 0)
        cdef Tally tally
        cdef int64_t left
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
