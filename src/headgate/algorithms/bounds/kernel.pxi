# The window with given bounds in C. State: the beginning of the window that was charged last, and its count.

cdef struct BoundsParams:
    int64_t limit
    int64_t[5] seams

cdef inline int bounds_place(const BoundsParams* p, int64_t at) noexcept nogil:
    # the index of the seam at which the window of this instant begins; beyond the seams, of the nearest window
    cdef int place = 0
    while place < 3 and at >= p.seams[place + 1]:
        place += 1
    return place

cdef inline bint bounds_own(const BoundsParams* p, int64_t start) noexcept nogil:
    cdef int at
    for at in range(5):
        if p.seams[at] == start:
            return True
    return False

cdef void bounds_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const BoundsParams* p = <const BoundsParams*> params
    cdef int64_t start = state[0], count = state[1], held = 0, length
    cdef int place = bounds_place(p, now)
    cdef int64_t begin = p.seams[place], end = p.seams[place + 1], left
    out.moved = start >= p.seams[bounds_place(p, end) + 1]
    length = end - begin
    if start >= end and not out.moved:
        place = bounds_place(p, start)
        begin, end = p.seams[place], p.seams[place + 1]
    elif count and start <= now < start + length and not bounds_own(p, start):
        begin, end = start, start + length
    if out.moved or start >= begin:
        held = count
    left = end - now if end > now else 1
    out.allowed = cost == 0 or held + cost <= p.limit
    out.retry = 0
    if out.allowed:
        held += cost
    else:
        out.retry = NEVER_FITS if cost > p.limit else left
    out.remaining = p.limit - held if held < p.limit else 0
    out.reset = left if held else 0
    out.mark_us, out.mark_num = begin, 0

cdef void bounds_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    if mark_us > state[0]:
        state[1] = 0
    state[0] = mark_us
    state[1] += cost

cdef void bounds_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    if state[0] == mark_us:
        state[1] -= cost if cost < state[1] else state[1]
