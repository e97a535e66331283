# The log in C. State: number of stamps, place of the oldest in the ring, and the ring.

cdef struct LogParams:
    int64_t limit, period, words

cdef inline int64_t log_stamp(const int64_t* state, const LogParams* p, int64_t nth) noexcept nogil:
    # the nth stamp, oldest first
    cdef int64_t ring = p.words - 2, place = state[1] + nth
    return state[2 + (place if place < ring else place - ring)]

cdef inline void log_set(int64_t* state, const LogParams* p, int64_t nth, int64_t stamp) noexcept nogil:
    cdef int64_t ring = p.words - 2, place = state[1] + nth
    state[2 + (place if place < ring else place - ring)] = stamp

cdef inline bint log_is_whole(const int64_t* state, const LogParams* p) noexcept nogil:
    # False only if another program has written to the memory
    return 0 <= state[0] <= p.words - 2 and 0 <= state[1] < p.words - 2

cdef int64_t log_not_after(const int64_t* state, const LogParams* p, int64_t instant) noexcept nogil:
    # the number of stamps at or before the instant
    cdef int64_t low = 0, high = state[0], middle
    if high == 0 or log_stamp(state, p, 0) > instant:
        return 0
    if log_stamp(state, p, high - 1) <= instant:
        return high
    while low < high:
        middle = (low + high) >> 1
        if log_stamp(state, p, middle) <= instant:
            low = middle + 1
        else:
            high = middle
    return low

cdef void log_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const LogParams* p = <const LogParams*> params
    if not log_is_whole(state, p):
        state = NOTHING
    cdef int64_t newest = log_stamp(state, p, state[0] - 1) if state[0] else now
    cdef int64_t at = newest if newest > now else now, shift = 0, gone, held
    out.moved = newest - now > p.period
    if out.moved:
        at, shift = now, newest - now
    gone = log_not_after(state, p, at + shift - p.period)
    held = state[0] - gone
    out.mark_us, out.mark_num = at, 0
    out.reset = newest - shift + p.period - now if held else 0
    out.remaining = p.limit - held if held < p.limit else 0
    out.retry = 0
    out.allowed = cost == 0 or held + cost <= p.limit
    if not out.allowed:
        out.retry = NEVER_FITS
        if cost <= p.limit:
            out.retry = log_stamp(state, p, gone + held + cost - p.limit - 1) - shift + p.period - now
    elif cost:
        out.reset = at + p.period - now
        out.remaining = p.limit - held - cost

cdef void log_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const LogParams* p = <const LogParams*> params
    cdef int64_t nth, shift, gone, ring = p.words - 2
    if not log_is_whole(state, p):
        state[0] = state[1] = 0
    if state[0] and log_stamp(state, p, state[0] - 1) > mark_us:
        shift = log_stamp(state, p, state[0] - 1) - mark_us
        for nth in range(state[0]):
            log_set(state, p, nth, log_stamp(state, p, nth) - shift)
    gone = log_not_after(state, p, mark_us - p.period)
    state[0] -= gone
    state[1] += gone
    if state[1] >= ring:
        state[1] -= ring
    for nth in range(state[0], state[0] + cost):
        log_set(state, p, nth, mark_us)
    state[0] += cost

cdef void log_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const LogParams* p = <const LogParams*> params
    cdef int64_t nth, end = log_not_after(state, p, mark_us) if log_is_whole(state, p) else 0
    if cost > end:
        cost = end
    for nth in range(end, state[0]):
        log_set(state, p, nth - cost, log_stamp(state, p, nth))
    state[0] -= cost

cdef void log_carry(const int64_t* state, int64_t words, int64_t* larger) noexcept nogil:
    # The oldest stamp comes first in the larger ring.
    cdef int64_t nth, ring = words - 2, place
    if not (0 <= state[0] <= ring and 0 <= state[1] < ring):
        return
    for nth in range(state[0]):
        place = state[1] + nth
        larger[2 + nth] = state[2 + (place if place < ring else place - ring)]
    larger[0], larger[1] = state[0], 0
