# The pause in C. State, one word: the instant until which the key is paused.

cdef struct PauseParams:
    int64_t burst, longest, sets

cdef void pause_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const PauseParams* p = <const PauseParams*> params
    cdef int64_t until = state[0], left
    out.moved = until > now + p.longest
    if out.moved:
        until = now + p.longest
    if p.sets and cost:
        left = cost if cost < p.longest else p.longest
        if until < now + left:
            until = now + left
    left = until - now if until > now else 0
    out.allowed = p.sets or not (cost and left)
    out.remaining = 0 if left else EXACT
    out.retry = 0 if out.allowed else left
    out.reset = left
    out.mark_us, out.mark_num = until, 0

cdef void pause_lend(const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    out.allowed = True

cdef void pause_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    state[0] = mark_us

cdef void pause_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    pass
