# Decisions over private tables, under the lock of their engine. decider.pxi has the code that shared tables use too.

cdef tuple bounds_of(tuple bounds, const Work* work, int64_t now):
    """Return each limit on the table that has the state of its key."""
    cdef Py_ssize_t at
    cdef BoundLimit bound
    if not any_spread(bounds):
        return bounds
    found = []
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        found.append(bound_of(bound, work.tags[at], now) if bound.family is not None and bound.family.spread() else bound)
    return tuple(found)


cdef bint any_spread(tuple bounds) noexcept:
    cdef Py_ssize_t at
    for at in range(len(bounds)):
        if (<BoundLimit> bounds[at]).family is not None and (<BoundLimit> bounds[at]).family.spread():
            return True
    return False


cdef BoundLimit bound_of(BoundLimit bound, uint64_t tag, int64_t now):
    """Return the limit on the table that has the state of the key; a state that is too small moves to the limit's table."""
    cdef Table table
    cdef int64_t* state
    cdef int64_t* larger
    for table in bound.family.tables:
        state = table.find(tag)
        if state == NULL:
            continue
        if table.words >= bound.need:
            return bound if table is bound.table else bound.on(table)
        bound.table.prepare(tag)
        larger = bound.table.find(tag) or bound.table.place(tag, bound, now)
        bound.carry(state, table.words, larger)
        if bound.block:
            larger[bound.table.words] = state[table.words]
        table.forget(tag)
        return bound
    return bound


cdef int64_t pause_ahead(BoundLimit guard, const int64_t* state, const Work* work) noexcept nogil:
    """Return what is left of a pause that ends within the wait: a reservation is charged as of its end (steps.py)."""
    cdef Answer seen
    guard.look(state, work.nows[work.count - 1], work.cost[work.count - 1], &seen)
    return seen.retry if seen.retry <= work.wait else 0


cdef inline void ask_in(BoundLimit bound, const int64_t* state, const Work* work, Py_ssize_t at, Answer* out) noexcept nogil:
    """Ask one limit of a decision; its times count from now, also if it is asked as of the end of a pause."""
    bound.ask(state, work.nows[at] + work.ahead, work.cost[at], work.wait - work.ahead, work.mode, out)
    if work.ahead:
        out.remaining = 0
        out.reset += work.ahead
        if out.retry >= 0:
            out.retry += work.ahead


cdef int charge_private(tuple bounds, Work* work, int64_t** states, Answer* seen) except -1:
    """Charge every bound limit. Errors are raised before the first charge."""
    cdef BoundLimit bound
    cdef int at
    cdef bint placed = False
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if states[at] == NULL and not bound.guards:
            bound.table.prepare(work.tags[at])
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if bound.guards and not seen[at].moved:
            continue
        if placed:                      # placing a key may have moved the others
            states[at] = bound.table.find(work.tags[at])
        if states[at] == NULL:
            states[at] = bound.table.place(work.tags[at], bound, work.nows[at])
            placed = True
        bound.charge(states[at], bound.params, seen[at].mark_us, seen[at].mark_num, work.cost[at])
    if placed:                          # after every charge: another thread may move a state while this one reports
        for at in range(work.count):
            (<BoundLimit> bounds[at]).tell()
    return 0


cdef void refuse_private(tuple bounds, Work* work, int64_t** states, Answer* seen) noexcept:
    cdef BoundLimit bound
    cdef int at
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if work.mode != M_PEEK and states[at] != NULL:
            refuse(bound, states[at], &seen[at])
        if seen[at].allowed:            # the answer describes the state without the charge
            bound.look(states[at] or NOTHING, work.nows[at], 0, &seen[at])


cdef inline void refuse(BoundLimit bound, int64_t* state, const Answer* seen) noexcept:
    """Keep the effects of a refusal: a block, and a state that was corrected because the clock stepped back."""
    if seen.moved:
        bound.charge(state, bound.params, seen.mark_us, seen.mark_num, 0)
    if bound.block and not seen.allowed:
        state[bound.words] = seen.until


cdef int give_private(tuple bounds, Work* work, int64_t now) except -1:
    """Give back units that were charged at these marks; no mark means charged now."""
    cdef BoundLimit bound
    cdef Answer seen
    cdef int64_t* state
    cdef int at
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        work.nows[at] = bound.table.instant(now)
        state = bound.table.find(work.tags[at])
        if state != NULL:
            if work.mark_us[at] < 0:
                bound.answer(state, bound.params, work.nows[at], 0, &seen)
            else:
                seen.mark_us, seen.mark_num = work.mark_us[at] - bound.table.epoch, work.mark_num[at]
            bound.give(state, bound.params, work.nows[at], seen.mark_us, seen.mark_num, work.cost[at])
    return 0
