# The window in C. State: slot number, counts by age (1 when fixed, slots + 1 when blended), and from two slots on the
# running sum of all counts but the oldest, so that an answer does not add them up.

cdef struct WindowParams:
    int64_t limit, period, slots, tick, offset, blendable

cdef inline int64_t window_whole(const int64_t* state, const WindowParams* p) noexcept nogil:
    return state[2 + p.slots] if p.slots > 1 else state[1]

cdef inline int64_t window_place(const WindowParams* p, int64_t now, int64_t* phase) noexcept nogil:
    cdef uint64_t ticks = now + p.offset, whole, rest
    if p.tick > 1:
        ticks = ticks // <uint64_t> p.tick
    whole = ticks // <uint64_t> p.period
    rest = ticks - whole * p.period
    if p.slots <= 1:
        phase[0] = rest
        return whole
    rest = rest * p.slots
    phase[0] = rest % <uint64_t> p.period
    return whole * p.slots + rest // <uint64_t> p.period

cdef inline int64_t window_start(const WindowParams* p, int64_t slot, int64_t phase) noexcept nogil:
    cdef uint64_t n, whole, inside
    if p.slots <= 1:
        return (slot * p.period + phase) * p.tick - p.offset
    n = p.slots
    whole = <uint64_t> slot // n
    inside = slot - whole * n
    return <int64_t> (whole * p.period + (inside * p.period + phase + n - 1) // n) * p.tick - p.offset

cdef inline int64_t window_count(const int64_t* counts, int64_t by, int64_t age) noexcept nogil:
    # the count of that age, seen `by` slots later
    return counts[age - by] if age >= by else 0

cdef int64_t window_wait(const int64_t* counts, int64_t by, int64_t whole, const WindowParams* p,
                         int64_t slot, int64_t phase, int64_t room, int64_t now) noexcept nogil:
    cdef int64_t age = p.slots, spare, leaving, need, last = p.slots
    if last == 0:
        return 0 if whole <= room else window_start(p, slot + 1, 0) - now
    while whole > room and age > by:            # no slot matters while the younger ones alone are too many
        age -= 1
        whole -= counts[age - by]
    while age >= 0:
        spare = room - whole
        leaving = window_count(counts, by, age)
        if leaving > p.blendable:
            leaving = p.blendable
        need = 0
        if leaving > spare:
            need = p.period - <int64_t> (<uint64_t> ((spare + 1) * p.period - 1) // <uint64_t> leaving)
        if age == last and need <= phase:
            return 0
        if need < p.period:
            return window_start(p, slot + last - age, need) - now
        age -= 1
        whole -= window_count(counts, by, age) if age >= 0 else 0
    return window_start(p, slot + last + 1, 0) - now

cdef inline int64_t window_last_wait(const WindowParams* p, int64_t current, int64_t slot, int64_t now) noexcept nogil:
    # The wait for room 0 when the current slot holds something: it is the last to leave, so no other need be looked at.
    cdef int64_t need
    if p.slots == 0:
        return window_start(p, slot + 1, 0) - now
    if current > p.blendable:
        current = p.blendable
    need = p.period - <int64_t> (<uint64_t> (p.period - 1) // <uint64_t> current)
    if need < p.period:
        return window_start(p, slot + p.slots, need) - now
    return window_start(p, slot + p.slots + 1, 0) - now

cdef void window_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const WindowParams* p = <const WindowParams*> params
    cdef const int64_t* counts = state + 1
    cdef int64_t phase, slot = window_place(p, now, &phase), newest = state[0], last = p.slots
    cdef int64_t by, age, whole, leaving, estimate, current
    out.moved = newest > slot and window_start(p, newest, 0) - now > p.period * p.tick
    if newest > slot and not out.moved:
        slot, phase = newest, 0
    out.mark_us, out.mark_num = slot, 0
    by = 0 if out.moved else slot - newest
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
        estimate += <uint64_t> (leaving * (p.period - phase)) // <uint64_t> p.period
    out.allowed = cost == 0 or estimate + cost <= p.limit
    out.retry = 0
    current = counts[0] if by == 0 else 0
    if not out.allowed:
        out.retry = NEVER_FITS
        if cost <= p.limit:
            out.retry = window_wait(counts, by, whole, p, slot, phase, p.limit - cost, now)
    else:
        current += cost
        estimate += cost
    if current:
        out.reset = window_last_wait(p, current, slot, now)
    else:
        out.reset = window_wait(counts, by, whole, p, slot, phase, 0, now)
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
