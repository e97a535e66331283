# Tally: counts of decisions, in plain integers. tally.py is the definition.

cdef enum:
    TALLIED = 8
    T_ALLOWED = 0, T_REFUSED = 1, T_NEVER = 2, T_DEGRADED = 3, T_IN_FLIGHT = 4


@cython.final
cdef class Tally:
    """Eight numbers of one limiter or of one rule, in this process."""

    cdef int64_t[TALLIED] n
    cdef object __weakref__

    def add(self, int at, int64_t more=1):
        """Add to one of the numbers."""
        if not 0 <= at < TALLIED:
            raise IndexError(at)
        with cython.critical_section(self):
            self.n[at] += more

    def values(self):
        """Return all numbers, as of one instant."""
        with cython.critical_section(self):
            return (self.n[0], self.n[1], self.n[2], self.n[3], self.n[4], self.n[5], self.n[6], self.n[7])

    def forget(self):
        """Begin at zero, in a forked child: the parent keeps its counts."""
        with cython.critical_section(self):
            memset(self.n, 0, sizeof(self.n))

    def count(self, Decision decision not None, bint holds=False):
        """Count the answer that a caller of a limiter got; `holds`: an admitted caller is in flight from now on."""
        count_answer(self, decision, holds)

    def end(self, Decision decision not None):
        """Count that a caller is no longer in flight, once."""
        end_flight(self, decision)


cdef inline int count_answer(Tally tally, Decision decision, bint holds) except -1:
    with cython.critical_section(tally):
        if decision.allowed:
            tally.n[T_ALLOWED] += 1
            if holds and (decision._given < decision._cost if decision._more is None else decision._holds_permits):
                decision._held = True
                tally.n[T_IN_FLIGHT] += 1
        else:
            tally.n[T_NEVER if decision.retry_us == NEVER_FITS else T_REFUSED] += 1
        if decision.degraded:
            tally.n[T_DEGRADED] += 1
    return 0


cdef inline void end_flight(Tally tally, Decision decision) noexcept:
    with cython.critical_section(tally):
        if decision._held:
            decision._held = False
            tally.n[T_IN_FLIGHT] -= 1
