# LeasedTokens: tokens bought from a server in advance, spent without asking anybody. engine/lease_cache.py is the definition.

@cython.final
cdef class Lease:
    """Permits of one key."""

    cdef public int64_t tokens         # left
    cdef public int64_t low             # with so many left, it is time to buy more
    cdef public int64_t until_us        # when they are void
    cdef public tuple left              # what the server had left beside them, under each limit
    cdef public tuple resets            # when its state is as new, under each limit
    cdef public int64_t serial          # of the grant they come from


@cython.final
cdef class LeasedTokens:
    """The leases of some limits, by key."""

    cdef Decider decider
    cdef readonly dict leases
    cdef object slow

    def __init__(self, Decider decider not None, slow):
        self.decider, self.leases, self.slow = decider, {}, slow

    def open(self, key):
        """The key's lease; empty, if it had none."""
        return self.leases.setdefault(key, Lease())

    def hit(self, key, cost=1, *, limit=None):
        """Spend from the lease; what is not simply that goes the slow way."""
        cdef Lease lease
        cdef int64_t now
        if limit is None and cost is ONE and isinstance(key, str):
            lease = <Lease> self.leases.get(key)
            if lease is not None and lease.tokens > lease.low:
                now = self.decider.engine.now()
                if now < lease.until_us:
                    decision = self.pay(key, lease, 1, now)
                    if decision is not None:
                        return decision
        return self.slow(key, cost, limit)

    def spend(self, key, int64_t units):
        """Spend from the lease, down to its last token; None where that is not enough, or void."""
        cdef Lease lease = <Lease> self.leases.get(key)
        cdef int64_t now
        if lease is None or units <= 0 or lease.tokens < units:
            return None
        now = self.decider.engine.now()
        return self.pay(key, lease, units, now) if now < lease.until_us else None

    def drain(self, Lease lease not None):
        """Take out what is left."""
        cdef int64_t left
        with cython.critical_section(lease):
            left, lease.tokens = lease.tokens, 0
        return left

    def fill(self, Lease lease not None, int64_t units, int64_t most):
        """Put something in."""
        with cython.critical_section(lease):
            lease.tokens = min(most, lease.tokens + units)

    cdef object pay(self, key, Lease lease, int64_t units, int64_t now):
        cdef Answer[CALLS] seen
        cdef Work work
        cdef int64_t tokens
        cdef int at, count = len(self.decider.bounds)
        with cython.critical_section(lease):
            if lease.tokens < units:
                return None
            lease.tokens -= units
            tokens = lease.tokens
        for at in range(count):
            seen[at].allowed, seen[at].retry = True, 0
            seen[at].remaining = <int64_t> lease.left[at] + tokens
            seen[at].reset = max(0, <int64_t> lease.resets[at] - now)
            seen[at].mark_us, seen[at].mark_num = LEASED, lease.serial
        if count == 1:
            return answer_one(self.decider, key, units, M_TAKE, seen, 0)
        work.count, work.mode = count, M_TAKE
        for at in range(count):
            work.cost[at] = units
            seen[at].mark_us -= (<BoundLimit> self.decider.bounds[at]).epoch()
        return answer_many(self.decider, key, None, &work, seen)
