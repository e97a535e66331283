# Permits in C. State: the number of permits, the number of their units, then three words for each permit, in the order of
# the marks: the instant of the charge, the number, and the holder above the units held. The holder is 0 in private tables
# and the signature of a process in shared ones, which take back the permits of dead processes (shared_decider.pxi).

cdef struct ConcurrencyParams:
    int64_t limit, ttl, words, holder

cdef struct HeldPermit:
    int64_t since, number, held

cdef inline int64_t permits_within(int64_t words) noexcept nogil:
    return (words - PERMITS_AT) // PERMIT_WORDS

cdef inline HeldPermit* held_permits(const int64_t* state) noexcept nogil:
    return <HeldPermit*> (state + PERMITS_AT)

cdef inline bint concurrency_is_whole(const int64_t* state, const ConcurrencyParams* p) noexcept nogil:
    # False only if another program has written to the memory
    return 0 <= state[0] <= permits_within(p.words) and state[0] <= state[1] <= permits_within(p.words)

cdef int64_t concurrency_serial(const int64_t* state, int64_t now) noexcept nogil:
    # Return the least number that no permit of this instant has.
    cdef int64_t serial = 0, at = state[0]
    cdef HeldPermit* permits = held_permits(state)
    while at > 0 and permits[at - 1].since >= now:
        at -= 1
    while at < state[0] and permits[at].since == now and permits[at].number >> UNIT_BITS == serial:
        serial, at = serial + 1, at + 1
    return serial

cdef void concurrency_answer(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil:
    cdef const ConcurrencyParams* p = <const ConcurrencyParams*> params
    if not concurrency_is_whole(state, p):
        state = NOTHING
    cdef int64_t held = state[1]
    out.moved = False
    out.mark_us, out.mark_num = now, 0
    out.allowed = cost == 0 or held + cost <= p.limit
    if out.allowed:
        out.retry = 0
        out.mark_num = concurrency_serial(state, now) << UNIT_BITS | cost
        held += cost
    else:
        out.retry = NEVER_FITS if cost > p.limit else NOBODY_KNOWS
    out.remaining = p.limit - held if held < p.limit else 0
    out.reset = NOBODY_KNOWS if held else 0

cdef void concurrency_charge(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const ConcurrencyParams* p = <const ConcurrencyParams*> params
    if not concurrency_is_whole(state, p):
        state[0] = state[1] = 0
    if cost == 0 or state[0] >= permits_within(p.words):
        return
    cdef int64_t at = state[0]
    cdef HeldPermit* permits = held_permits(state)
    while at > 0 and (permits[at - 1].since > mark_us
                      or (permits[at - 1].since == mark_us and permits[at - 1].number > mark_num)):
        permits[at] = permits[at - 1]
        at -= 1
    permits[at] = HeldPermit(mark_us, mark_num, p.holder << UNIT_BITS | cost)
    state[0] += 1
    state[1] += cost

cdef void concurrency_take_back(int64_t* state, int64_t at, int64_t cost) noexcept nogil:
    cdef HeldPermit* permit = held_permits(state) + at
    cdef int64_t units = permit.held & UNIT_MASK
    if cost > units:
        cost = units
    permit.held -= cost
    state[1] -= cost
    if cost == units:
        state[0] -= 1
        memmove(permit, permit + 1, (state[0] - at) * sizeof(HeldPermit))

cdef void concurrency_give(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil:
    cdef const ConcurrencyParams* p = <const ConcurrencyParams*> params
    cdef HeldPermit* permits = held_permits(state)
    cdef int64_t at
    if not concurrency_is_whole(state, p):
        return
    for at in range(state[0]):
        # Only permits of the same holder: a forked child has copies of its parent's permits, and must not end them.
        if (permits[at].since == mark_us and permits[at].number == mark_num
                and permits[at].held >> UNIT_BITS == p.holder):
            concurrency_take_back(state, at, cost)
            return

cdef void concurrency_carry(const int64_t* state, int64_t words, int64_t* larger) noexcept nogil:
    memcpy(larger, state, words * sizeof(int64_t))
