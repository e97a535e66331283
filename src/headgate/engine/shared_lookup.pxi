# The places of keys in shared tables: the stripes that are held while keys are used, and the tables of a family, between
# which the state of a key may move.

cdef enum:
    MOST_HELD = 512

cdef struct Holding:
    # The stripes that a decision holds, in the order of locking. The bound limits keep the tables alive.
    int count
    int64_t[MOST_HELD] orders
    int64_t[MOST_HELD] stripes
    (PyObject*)[MOST_HELD] tables

cdef bint hold_too(Holding* holding, SharedTable table, uint64_t tag) noexcept:
    """Add a stripe to hold, in an order that is the same in every process. False if there are too many."""
    cdef int64_t order = table.order, stripe = table.stripe_of(tag)
    cdef int to = holding.count
    if holds(holding, order, stripe):
        return True
    if to == MOST_HELD:
        return False
    while to > 0 and (holding.orders[to - 1] > order
                      or (holding.orders[to - 1] == order and holding.stripes[to - 1] > stripe)):
        holding.orders[to], holding.stripes[to] = holding.orders[to - 1], holding.stripes[to - 1]
        holding.tables[to] = holding.tables[to - 1]
        to -= 1
    holding.orders[to], holding.stripes[to], holding.tables[to] = order, stripe, <PyObject*> table
    holding.count += 1
    return True

cdef bint lock_all(Holding* holding):
    """Lock all stripes. If one is stuck, return False and hold none."""
    cdef int at
    for at in range(holding.count):
        if not (<SharedTable> holding.tables[at]).lock(holding.stripes[at]):
            holding.count = at
            unlock_all(holding)
            return False
    return True

cdef void unlock_all(Holding* holding) noexcept:
    cdef int at
    for at in range(holding.count):
        (<SharedTable> holding.tables[at]).unlock(holding.stripes[at])

cdef inline bint holds(const Holding* holding, int64_t order, int64_t stripe) noexcept nogil:
    cdef int at
    for at in range(holding.count):
        if holding.orders[at] == order and holding.stripes[at] == stripe:
            return True
    return False


cdef enum Attempt:
    STUCK, DONE, MOVED                  # MOVED: a key moved to another table before its stripe was held

cdef enum:
    MOST_TRIES = 16                     # a key moves once each time that a limit outgrows a table


cdef tuple shared_bounds_of(Decider decider, const Work* work):
    """Return each limit on the table that has the state of its key, as seen without locks; None if a stripe is stuck."""
    cdef BoundLimit bound
    cdef int at
    if not decider.sized:
        return decider.bounds
    if not decider.engine.learn_tables():
        return None
    if not any_spread(decider.bounds):
        return decider.bounds
    found = []
    for at in range(work.count):
        bound = <BoundLimit> decider.bounds[at]
        if bound.family is not None and bound.family.spread():
            bound = shared_bound_of(bound, work.tags[at], work.nows[at])
            if bound is None:
                return None
        found.append(bound)
    return tuple(found)


cdef BoundLimit shared_bound_of(BoundLimit bound, uint64_t tag, int64_t now):
    cdef SharedTable table
    for table in bound.family.tables:
        if table.find(tag) < 0:
            continue
        if table.words >= bound.need:
            return bound if table is bound.common else bound.on(table)
        return bound if move_state(bound, table, tag, now) else None
    return bound


cdef bint move_state(BoundLimit bound, SharedTable small, uint64_t tag, int64_t now):
    """Move a state to the limit's own table, and hold all stripes of the key meanwhile. False if one is stuck.

    A process that dies meanwhile leaves the key in both tables; then the state in the smaller table counts.
    """
    cdef Holding holding
    cdef SharedTable table, large = bound.common
    cdef int64_t old, new, stripe = large.stripe_of(tag)
    cdef bint placed = True
    holding.count = 0
    for table in bound.family.tables:
        if not hold_too(&holding, table, tag):
            return False
    if not lock_all(&holding):
        return False
    old = small.find(tag)
    if old >= 0:
        new = large.find(tag)
        if new < 0:
            new = large.place(tag, bound, now, &holding)
        placed = new >= 0
        if placed:
            large.begin(stripe, new)
            memset(large.state(new), 0, large.stride * 8)
            bound.carry(small.state(old), small.words, large.state(new))
            if bound.block:
                headgate_store(large.state(new) + large.words, small.state(old)[small.words])
            large.finish(stripe)
            small.empty(old, stripe)
    unlock_all(&holding)
    return placed


cdef Attempt take_stripes(tuple bounds, const Work* work, Holding* holding):
    """Hold the stripe of every key; for a key without a state, those of every table in which it can be placed.

    Private tables have no stripes: the lock of their engine is held.
    """
    cdef BoundLimit bound
    cdef SharedTable table
    cdef int at
    cdef bint sized = False
    holding.count = 0
    if (<BoundLimit> bounds[0]).common is None:
        return DONE
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if not hold_too(holding, bound.common, work.tags[at]):
            return STUCK
        if bound.family is not None:
            sized = True
            if bound.family.spread() and bound.common.find(work.tags[at]) < 0:
                for table in bound.family.tables:
                    if not hold_too(holding, table, work.tags[at]):
                        return STUCK
    if not lock_all(holding):
        return STUCK
    if sized and not keys_stayed(bounds, work):
        unlock_all(holding)
        return MOVED
    return DONE


cdef bint keys_stayed(tuple bounds, const Work* work):
    """Return whether keys are still in the tables in which they were seen, now that their stripes are held."""
    cdef BoundLimit bound
    cdef SharedTable table
    cdef int at
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if bound.family is None:
            continue
        if not bound.common.engine.knows_tables():
            return False
        if not bound.family.spread():
            continue
        for table in bound.family.tables:
            if table is bound.common and table.find(work.tags[at]) >= 0:
                break
            if table is not bound.common and table.find(work.tags[at]) >= 0:
                return False
    return True


ctypedef Attempt (*attempt_fn)(tuple bounds, Work* work, void* out)

cdef Attempt where_keys_are(Decider decider, Work* work, attempt_fn attempt, void* out):
    """Call `attempt` with the bound limits on the tables that have the keys; again if a key moves meanwhile."""
    cdef Attempt outcome = MOVED
    for _ in range(MOST_TRIES):
        bounds = shared_bounds_of(decider, work)
        outcome = STUCK if bounds is None else attempt(bounds, work, out)
        if outcome != MOVED:
            break
    return outcome
