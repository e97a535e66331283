# The bucket in C. State, one word: microseconds (50 bits, from the table's epoch) above their 8192-ths (13 bits).

cdef struct BucketParams:
    int64_t burst, a, p, unit_us, unit_num, depth_us, depth_num, slack_us

cdef inline void bucket_read(const int64_t* state, const BucketParams* p, int64_t* us, int64_t* num) noexcept nogil:
    # the arrival time in a-ths
    cdef int64_t part = state[0] & BUCKET_NUM_MASK
    us[0], num[0] = state[0] >> BUCKET_NUM_BITS, 0
    if part:
        num[0] = ((part - 1) * p.a >> BUCKET_NUM_BITS) + 1
        if num[0] == p.a:
            us[0], num[0] = us[0] + 1, 0

cdef inline int64_t bucket_word(const BucketParams* p, int64_t us, int64_t num) noexcept nogil:
    # the word of an arrival time: its a-ths in 8192-ths, rounded up
    if num:
        num = (<uint32_t> (num << BUCKET_NUM_BITS) + <uint32_t> p.a - 1) // <uint32_t> p.a
    return us << BUCKET_NUM_BITS | num

cdef inline void bucket_add(const BucketParams* p, int64_t cost, int64_t* us, int64_t* num) noexcept nogil:
    # (us, num) += increment(cost)
    cdef int64_t spare
    us[0] += cost * p.unit_us
    if p.a > 1:
        spare = num[0] + cost * p.unit_num
        us[0] += <uint64_t> spare // <uint64_t> p.a
        num[0] = <uint64_t> spare % <uint64_t> p.a

cdef inline void bucket_report(const BucketParams* p, int64_t us, int64_t num, int64_t now, Answer* out) noexcept nogil:
    # remaining and reset of a base
    cdef int64_t units = (now + p.depth_us - us) * p.a + p.depth_num - num
    out.remaining = <uint64_t> units // <uint64_t> p.p if units > 0 else 0
    out.reset = us - now + (num > 0)
    if out.reset < 0:
        out.reset = 0

cdef void bucket_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const BucketParams* p = <const BucketParams*> params
    cdef int64_t full_us = now + p.depth_us, full_num = p.depth_num
    cdef int64_t base_us, base_num, end_us, end_num
    bucket_read(state, p, &base_us, &base_num)
    if base_us < now:
        base_us, base_num = now, 0
    out.moved = base_us > full_us + p.slack_us
    if out.moved:
        base_us, base_num = full_us, full_num
    out.mark_us, out.mark_num = base_us, base_num
    out.allowed = False
    if cost > p.burst:
        out.retry = NEVER_FITS
        bucket_report(p, base_us, base_num, now, out)
        return
    end_us, end_num = base_us, base_num
    bucket_add(p, cost, &end_us, &end_num)
    if end_us < full_us or (end_us == full_us and end_num <= full_num) or cost == 0:
        out.allowed = True
        out.retry = 0
        bucket_report(p, end_us, end_num, now, out)
        return
    out.retry = end_us - full_us + (end_num > full_num)
    bucket_report(p, base_us, base_num, now, out)

cdef void bucket_lend(const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef int64_t end_us = out.mark_us, end_num = out.mark_num
    bucket_add(<const BucketParams*> params, cost, &end_us, &end_num)
    out.allowed = True
    bucket_report(<const BucketParams*> params, end_us, end_num, now, out)

cdef void bucket_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    bucket_add(<const BucketParams*> params, cost, &mark_us, &mark_num)
    state[0] = bucket_word(<const BucketParams*> params, mark_us, mark_num)

cdef void bucket_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const BucketParams* p = <const BucketParams*> params
    cdef int64_t inc_us = 0, inc_num = 0, us, num, back
    cdef int64_t end_us = mark_us, end_num = mark_num, full_us = now + p.depth_us
    cdef int64_t drained_us = now - mark_us if now > mark_us else 0
    if cost > p.burst:
        cost = p.burst
    bucket_add(p, cost, &inc_us, &inc_num)
    if drained_us > inc_us + 1:  # all of it has drained since
        return
    bucket_add(p, cost, &end_us, &end_num)
    bucket_read(state, p, &us, &num)
    # Beyond a burst from now, callers still wait for what they were promised: only the last promise can be given back.
    if (us > full_us or (us == full_us and num > p.depth_num)) and (us != end_us or num != end_num):
        return
    back = (inc_us - drained_us) * p.a + inc_num + (mark_num if drained_us else 0)
    if back > 0:
        us -= <uint64_t> back // <uint64_t> p.a
        num -= <int64_t> (<uint64_t> back % <uint64_t> p.a)
        if num < 0:
            us, num = us - 1, num + p.a
        state[0] = bucket_word(p, us, num) if us > 0 else 0
