# The block in C: the answer of a step, and the instant until which the key is blocked.

cdef void block_answer(answer_fn answer, int64_t until, int64_t block, const int64_t* state, const int64_t* params,
                       int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef int64_t left = until - now if until > now else 0
    answer(state, params, now, cost, out)
    out.until = until
    if out.allowed and cost and left:
        answer(state, params, now, 0, out)
        out.allowed = False
    if left > block and left > out.reset:
        left = block if block > out.reset else out.reset
    if out.allowed or out.retry == NEVER_FITS:
        if left:
            out.remaining = 0
        if left > out.reset:
            out.reset = left
        return
    out.remaining = 0
    if left == 0:
        left = block
    if left > out.retry:
        out.retry = left
    if out.retry > out.reset:
        out.reset = out.retry
    out.until = now + out.retry


cdef void growing_answer(answer_fn answer, int64_t word, const int64_t* growth, const int64_t* state, const int64_t* params,
                         int64_t now, int64_t cost, Answer* out) noexcept nogil:
    """The block of a key that is refused again and again; `growth` has the memory, then seven times."""
    cdef int64_t nth = word & 7, until = word - (word & 7), block
    if until > now:
        block = growth[nth] + 7
    else:
        nth = 1 if nth == 0 or now >= until + growth[0] else nth + 1 if nth < 7 else 7
        block = growth[nth]
    block_answer(answer, until, block, state, params, now, cost, out)
    if out.allowed or out.retry == NEVER_FITS:
        out.until = word
        return
    out.until = (out.until + 7) & ~<int64_t> 7
    out.retry = out.until - now
    if out.retry > out.reset:
        out.reset = out.retry
    out.until += nth
