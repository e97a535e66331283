# Decisions over private tables, under the lock of their book. What is the same for shared ones stands in core.pxi.

cdef tuple lanes_of(tuple lanes, const Work* work, int64_t now):
    """Each limit on the table that has the state of its key."""
    cdef Py_ssize_t at
    cdef Lane lane
    if not any_spread(lanes):
        return lanes
    found = []
    for at in range(work.count):
        lane = <Lane> lanes[at]
        found.append(lane_of(lane, work.tags[at], now) if lane.family is not None and lane.family.spread() else lane)
    return tuple(found)


cdef bint any_spread(tuple lanes) noexcept:
    cdef Py_ssize_t at
    for at in range(len(lanes)):
        if (<Lane> lanes[at]).family is not None and (<Lane> lanes[at]).family.spread():
            return True
    return False


cdef Lane lane_of(Lane lane, uint64_t tag, int64_t now):
    """The limit on the table that has the state of the key; a state that is too small for it is carried to its own table."""
    cdef Table table
    cdef int64_t* state
    cdef int64_t* larger
    for table in lane.family.tables:
        state = table.find(tag)
        if state == NULL:
            continue
        if table.words >= lane.need:
            return lane if table is lane.table else lane.on(table)
        lane.table.prepare(tag)
        larger = lane.table.find(tag) or lane.table.place(tag, lane, now)
        lane.carry(state, table.words, larger)
        if lane.block:
            larger[lane.table.words] = state[table.words]
        table.forget(tag)
        return lane
    return lane


cdef int charge_private(tuple lanes, Work* work, int64_t** states, Answer* seen) except -1:
    """Charge every lane; what can fail, fails before the first charge."""
    cdef Lane lane
    cdef int at
    cdef bint placed = False
    for at in range(work.count):
        if states[at] == NULL:
            (<Lane> lanes[at]).table.prepare(work.tags[at])
    for at in range(work.count):
        lane = <Lane> lanes[at]
        if placed:                      # which may have moved the others
            states[at] = lane.table.find(work.tags[at])
        if states[at] == NULL:
            states[at] = lane.table.place(work.tags[at], lane, work.nows[at])
            lane.tell()
            placed = True
        lane.charge(states[at], lane.params, seen[at].mark_us, seen[at].mark_num, work.cost[at])
    return 0


cdef void refuse_private(tuple lanes, Work* work, int64_t** states, Answer* seen) noexcept:
    cdef Lane lane
    cdef int at
    for at in range(work.count):
        lane = <Lane> lanes[at]
        if work.mode != M_PEEK and states[at] != NULL:
            refuse(lane, states[at], &seen[at])
        if seen[at].allowed:            # nothing was charged: say what it holds without the charge
            lane.look(states[at] or NOTHING, work.nows[at], 0, &seen[at])


cdef inline void refuse(Lane lane, int64_t* state, const Answer* seen) noexcept:
    """A no charges nothing; it starts blocks, and keeps a state that had to follow the clock back."""
    if seen.moved:
        lane.charge(state, lane.params, seen.mark_us, seen.mark_num, 0)
    if lane.block and not seen.allowed:
        state[lane.words] = seen.until


cdef int give_private(tuple lanes, Work* work, int64_t now) except -1:
    """Give back what was charged at the marks; no mark means charged now."""
    cdef Lane lane
    cdef Answer seen
    cdef int64_t* state
    cdef int at
    for at in range(work.count):
        lane = <Lane> lanes[at]
        work.nows[at] = lane.table.instant(now)
        state = lane.table.find(work.tags[at])
        if state != NULL:
            if work.mark_us[at] < 0:
                lane.answer(state, lane.params, work.nows[at], 0, &seen)
            else:
                seen.mark_us, seen.mark_num = work.mark_us[at] - lane.table.epoch, work.mark_num[at]
            lane.give(state, lane.params, work.nows[at], seen.mark_us, seen.mark_num, work.cost[at])
    return 0


cdef int list_private(tuple lanes, Work* work, list found) except -1:
    """The permits of keys."""
    cdef Lane lane
    cdef const int64_t* state
    cdef int at
    for at in range(work.count):
        lane = <Lane> lanes[at]
        state = lane.table.find(work.tags[at]) if lane.flies else NULL
        if state != NULL:
            list_permits(at, state, lane, found)
    return 0


cdef void clear_private(tuple lanes, Work* work) noexcept:
    """Make keys as new."""
    cdef Lane lane
    cdef int64_t* state
    cdef int at
    for at in range(work.count):
        lane = <Lane> lanes[at]
        state = lane.table.find(work.tags[at])
        if state != NULL:
            memset(state, 0, lane.table.stride * 8)
