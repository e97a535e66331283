# The window in C. State: slot number, counts by age (1 when fixed, slots + 1 when blended), and from two slots on the
# running sum of all counts but the oldest, so that an answer does not add them up.

cdef struct WindowParams:
    int64_t limit, period, slots, tick, offset, blendable

cdef inline int64_t window_whole(const int64_t* state, const WindowParams* p) noexcept nogil:
    return state[2 + p.slots] if p.slots > 1 else state[1]

cdef struct WindowPlace:
    # An instant as whole periods, the slot inside the period, the phase inside the slot, and the slot's number.
    int64_t whole, inside, phase, slot

cdef inline void window_place(const WindowParams* p, int64_t now, WindowPlace* at) noexcept nogil:
    cdef uint64_t ticks = now + p.offset, rest
    if p.tick > 1:
        ticks = ticks // <uint64_t> p.tick
    at.whole = ticks // <uint64_t> p.period
    rest = ticks - <uint64_t> at.whole * <uint64_t> p.period
    if p.slots <= 1:
        at.inside, at.phase, at.slot = 0, rest, at.whole
        return
    rest = rest * p.slots
    at.inside = rest // <uint64_t> p.period
    at.phase = rest - <uint64_t> at.inside * <uint64_t> p.period
    at.slot = at.whole * p.slots + at.inside

cdef inline void window_place_of(const WindowParams* p, int64_t slot, WindowPlace* at) noexcept nogil:
    at.whole, at.inside, at.phase, at.slot = slot, 0, 0, slot
    if p.slots > 1:
        at.whole = <uint64_t> slot // <uint64_t> p.slots
        at.inside = slot - at.whole * p.slots

cdef inline int64_t window_start(const WindowParams* p, const WindowPlace* at, int64_t ahead, int64_t phase) noexcept nogil:
    # the first microsecond of that phase, `ahead` slots later (at most slots + 1, so no division is needed)
    cdef int64_t whole = at.whole, inside = at.inside + ahead
    if p.slots <= 1:
        return ((whole + ahead) * p.period + phase) * p.tick - p.offset
    while inside >= p.slots:
        inside -= p.slots
        whole += 1
    phase = <uint64_t> (inside * p.period + phase + p.slots - 1) // <uint64_t> p.slots
    return (whole * p.period + phase) * p.tick - p.offset

cdef inline int64_t window_count(const int64_t* counts, int64_t by, int64_t age) noexcept nogil:
    # the count of that age, seen `by` slots later
    return counts[age - by] if age >= by else 0

cdef inline int64_t window_eight(const int64_t* counts) noexcept nogil:
    return (counts[0] + counts[1]) + (counts[2] + counts[3]) + ((counts[4] + counts[5]) + (counts[6] + counts[7]))

cdef int64_t window_wait(const int64_t* counts, int64_t by, int64_t whole, const WindowParams* p,
                         const WindowPlace* at, int64_t room, int64_t now) noexcept nogil:
    cdef int64_t age = p.slots, eight, spare, leaving, need, last = p.slots
    if last == 0:
        return 0 if whole <= room else window_start(p, at, 1, 0) - now
    # A slot does not matter while the counts of younger slots alone exceed the room; if the current slot alone does, only
    # the current one matters. At first, eight slots at a time.
    if by == 0 and counts[0] > room:
        age, whole = 0, 0
    while age - by >= 8:
        eight = window_eight(counts + age - by - 8)
        if whole - eight <= room:
            break
        age -= 8
        whole -= eight
    while whole > room and age > by:
        age -= 1
        whole -= counts[age - by]
    while age >= 0:
        spare = room - whole if whole < room else 0
        leaving = window_count(counts, by, age)
        if leaving > p.blendable:
            leaving = p.blendable
        need = 0
        if leaving > spare:
            need = p.period - <int64_t> (<uint64_t> ((spare + 1) * p.period - 1) // <uint64_t> leaving)
        if age == last and need <= at.phase:
            return 0
        if need < p.period:
            return window_start(p, at, last - age, need) - now
        age -= 1
        whole -= window_count(counts, by, age) if age >= 0 else 0
    return window_start(p, at, last + 1, 0) - now

cdef inline int64_t window_last_wait(const WindowParams* p, int64_t current, const WindowPlace* at, int64_t now) noexcept nogil:
    # The wait for room 0 while the current slot has a count: that slot leaves last, so no other slot matters.
    cdef int64_t need
    if p.slots == 0:
        return window_start(p, at, 1, 0) - now
    if current > p.blendable:
        current = p.blendable
    need = p.period - <int64_t> (<uint64_t> (p.period - 1) // <uint64_t> current)
    if need < p.period:
        return window_start(p, at, p.slots, need) - now
    return window_start(p, at, p.slots + 1, 0) - now

cdef void window_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const WindowParams* p = <const WindowParams*> params
    cdef const int64_t* counts = state + 1
    cdef WindowPlace at, ahead
    cdef int64_t newest = state[0], last = p.slots, by, age, whole, leaving, estimate, current
    window_place(p, now, &at)
    out.moved = False
    if newest > at.slot:
        window_place_of(p, newest, &ahead)
        out.moved = window_start(p, &ahead, 0, 0) - now > p.period * p.tick
        if not out.moved:
            at = ahead
    out.mark_us, out.mark_num = at.slot, 0
    by = 0 if out.moved else at.slot - newest
    if by < 0:                                  # only if another program has written to the memory
        by = last + 1
    if by == 0:
        whole = window_whole(state, p)
    elif by > last:
        by, whole = last + 1, 0
    else:
        whole = window_whole(state, p)
        for age in range(last - by, last):
            whole -= counts[age]
    estimate = whole
    if last and by <= last:
        leaving = counts[last - by]
        if leaving > p.blendable:
            leaving = p.blendable
        estimate += <uint64_t> (leaving * (p.period - at.phase)) // <uint64_t> p.period
    out.allowed = cost == 0 or estimate + cost <= p.limit
    out.retry = 0
    current = counts[0] if by == 0 else 0
    if not out.allowed:
        out.retry = NEVER_FITS
        if cost <= p.limit:
            out.retry = window_wait(counts, by, whole, p, &at, p.limit - cost, now)
    else:
        current += cost
        estimate += cost
    if current:
        out.reset = window_last_wait(p, current, &at, now)
    else:
        out.reset = window_wait(counts, by, whole, p, &at, 0, now)
    out.remaining = p.limit - estimate if estimate < p.limit else 0

cdef void window_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const WindowParams* p = <const WindowParams*> params
    cdef int64_t* counts = state + 1
    cdef int64_t age, last = p.slots, by = mark_us - state[0]
    state[0] = mark_us
    if by > 0:
        if by > last:
            by = last + 1
        memmove(counts + by, counts, (last + 1 - by) * sizeof(int64_t))
        memset(counts, 0, by * sizeof(int64_t))
        if last > 1:
            counts[last + 1] = 0
            for age in range(last):
                counts[last + 1] += counts[age]
    counts[0] += cost
    if last > 1:
        counts[last + 1] += cost

cdef void window_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const WindowParams* p = <const WindowParams*> params
    cdef int64_t age = state[0] - mark_us
    if age < 0 or age > p.slots:
        return
    if cost > state[1 + age]:
        cost = state[1 + age]
    state[1 + age] -= cost
    if p.slots > 1 and age < p.slots:
        state[2 + p.slots] -= cost
