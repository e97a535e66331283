# LeasedTokens: tokens charged at a server in advance, spent without asking the server. lease_cache.py is the definition.

@cython.final
cdef class Lease:
    """The tokens of one key."""

    cdef public int64_t tokens         # left
    cdef public int64_t low             # at this number of tokens or fewer, the next lease is due
    cdef public int64_t until_us        # the instant at which the tokens expire
    cdef tuple left                     # the units that the server had left besides these tokens, under each limit
    cdef tuple resets                   # the instant at which the server's state is full again, under each limit
    cdef public int64_t serial          # of the grant that the tokens come from


@cython.final
cdef class LeasedTokens:
    """The leases of some limits, by key."""

    cdef Decider decider
    cdef readonly dict leases
    cdef object slow
    cdef public Tally tally             # counts the hits that a lease pays

    def __init__(self, Decider decider not None, slow):
        self.decider, self.leases, self.slow, self.tally = decider, {}, slow, Tally()

    def open(self, key):
        """Return the key's lease, a new empty one if it had none."""
        return self.leases.setdefault(key, Lease())

    def hit(self, key, cost=1, *, limit=None):
        """Spend one token of the lease; every other case is passed to the slow path."""
        cdef Lease lease
        cdef int64_t now
        if limit is None and cost is ONE and isinstance(key, str):
            lease = <Lease> self.leases.get(key)
            if lease is not None and lease.tokens > lease.low:
                now = self.decider.engine.now()
                if now < lease.until_us:
                    decision = self.pay(key, lease, 1, now)
                    if decision is not None:
                        count_answer(self.tally, decision, False)
                        return decision
        return self.slow(key, cost, limit)

    def spend(self, key, int64_t units):
        """Spend from the lease, down to its last token; None if it has too few tokens or has expired."""
        cdef Lease lease = <Lease> self.leases.get(key)
        cdef int64_t now
        if lease is None or units <= 0 or lease.tokens < units:
            return None
        now = self.decider.engine.now()
        return self.pay(key, lease, units, now) if now < lease.until_us else None

    def drain(self, Lease lease not None):
        """Take out the remaining tokens, and return their number."""
        cdef int64_t left
        with cython.critical_section(lease):
            left, lease.tokens = lease.tokens, 0
        return left

    def begin(self, Lease lease not None, grant, int64_t low, int64_t serial):
        """Start to spend the tokens of a grant."""
        cdef int64_t tokens = grant.units, until_us = grant.until_us
        cdef tuple left = grant.left, resets = grant.resets
        with cython.critical_section(lease):
            lease.tokens, lease.low, lease.until_us, lease.serial = tokens, low, until_us, serial
            lease.left, lease.resets = left, resets

    def fill(self, Lease lease not None, int64_t units, int64_t most):
        """Add units to the lease, up to `most`."""
        with cython.critical_section(lease):
            lease.tokens = min(most, lease.tokens + units)

    cdef object pay(self, key, Lease lease, int64_t units, int64_t now):
        cdef Answer[CALLS] seen
        cdef Work work
        cdef int64_t tokens, serial
        cdef tuple left, resets
        cdef int at, count = len(self.decider.bounds)
        with cython.critical_section(lease):
            if lease.tokens < units:
                return None
            lease.tokens -= units
            tokens, serial, left, resets = lease.tokens, lease.serial, lease.left, lease.resets
        for at in range(count):
            seen[at].allowed, seen[at].retry = True, 0
            seen[at].remaining = <int64_t> left[at] + tokens
            seen[at].reset = max(0, <int64_t> resets[at] - now)
            seen[at].mark_us, seen[at].mark_num = LEASED, serial
        if count == 1:
            return answer_one(self.decider, key, units, M_TAKE, seen, 0)
        work.count, work.mode = count, M_TAKE
        for at in range(count):
            work.cost[at] = units
            seen[at].mark_us -= (<BoundLimit> self.decider.bounds[at]).epoch()
        return answer_many(self.decider, key, None, &work, seen)
