# Decisions over shared tables. decider.pxi has the code that private tables use too: arguments and answers.

cdef bint charge_lock_free(BoundLimit bound, uint64_t tag, int64_t now, int64_t* cost, Mode mode, int64_t wait, Answer* seen) noexcept:
    """Decide over a plain bucket by compare-and-swap. False if the key is new, or its stripe is held."""
    cdef SharedTable table = bound.common
    cdef int64_t slot, word, charged, asked = cost[0]
    while True:
        slot = table.find(tag)
        word = headgate_load(table.state(slot)) if slot >= 0 else 0
        if word < 0:
            return False
        if slot >= 0 and <uint64_t> headgate_load(table.tag_at(slot)) != tag:
            continue
        if mode == M_UP_TO and asked:
            bound.look(&word, now, 0, seen)
            cost[0] = max(1, min(asked, seen.remaining))
        bound.ask(&word, now, cost[0], wait, mode, seen)
        if mode == M_PEEK or not (seen.allowed or seen.moved):
            return True
        if slot < 0:
            return not seen.allowed
        charged = word
        bound.charge(&charged, bound.params, seen.mark_us, seen.mark_num, cost[0] if seen.allowed else 0)
        if headgate_swap(table.state(slot), word, charged):
            return True


cdef Attempt settle_holding(tuple bounds, Work* work, void* out):
    """Decide over bound limits, and hold their stripes meanwhile. STUCK also if no slot is found."""
    cdef Answer* seen = <Answer*> out
    cdef Holding holding
    cdef BoundLimit bound
    cdef int at
    cdef bint allowed = True, placed = True, placing = False
    cdef int64_t room = EXACT
    cdef Attempt taken = take_stripes(bounds, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        work.slots[at] = bound.common.find(work.tags[at])
        work.words[at] = bound.common.hold_word(work.slots[at]) if bound.common.one_word and work.slots[at] >= 0 else 0
        if work.mode == M_UP_TO and work.cost[at]:
            if bound.holds_permits:
                reclaim_dead(bound, work.slots[at], work.tags[at])
            bound.look(state_of(bound, work, at), work.nows[at], 0, &seen[at])
            room = min(room, seen[at].remaining)
    work.ahead = 0
    if work.mode == M_RESERVE and work.count > 1 and bound.guards:      # the last one
        work.ahead = pause_ahead(bound, state_of(bound, work, work.count - 1), work)
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if work.mode == M_UP_TO and work.cost[at]:
            work.cost[at] = max(1, min(work.cost[at], room))
        ask_in(bound, state_of(bound, work, at), work, at, &seen[at])
        if bound.holds_permits and (not seen[at].allowed or work.mode == M_PEEK) and reclaim_dead(bound, work.slots[at], work.tags[at]):
            ask_in(bound, state_of(bound, work, at), work, at, &seen[at])
        allowed = allowed and seen[at].allowed
    if allowed and work.mode != M_PEEK:
        for at in range(work.count):        # slots first: no charge begins before every key has a slot
            bound = <BoundLimit> bounds[at]
            if work.slots[at] < 0 and not bound.guards:
                work.slots[at] = bound.common.place(work.tags[at], bound, work.nows[at], &holding)
                placing = True
                placed = placed and work.slots[at] >= 0
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        if work.slots[at] >= 0:
            write_down(bound, work, at, &seen[at], allowed and placed)
        if not allowed and seen[at].allowed:
            bound.look(state_of(bound, work, at), work.nows[at], 0, &seen[at])
    unlock_all(&holding)
    if placing:
        for at in range(work.count):
            (<BoundLimit> bounds[at]).tell()
    return DONE if placed else STUCK


cdef bint reclaim_dead(BoundLimit bound, int64_t slot, uint64_t tag) noexcept:
    """Take back the permits of processes that have died; return whether there were any. The key's stripe is held.

    Called only before a refusal: a holder is looked up in the locks of a file, which takes a system call.
    """
    cdef SharedTable table = bound.common
    cdef int64_t at, holder, alive = 0, stripe = table.stripe_of(tag)
    cdef int64_t* state
    cdef bint found = False
    if slot < 0 or not concurrency_is_whole(table.state(slot), <const ConcurrencyParams*> bound.params):
        return False
    state = table.state(slot)
    at = 0
    while at < state[0]:
        holder = held_permits(state)[at].held >> UNIT_BITS
        if holder == alive or table.engine.is_alive(holder):
            alive = holder
            at += 1
            continue
        if not found:
            table.begin(stripe, slot)
            found = True
        concurrency_take_back(state, at, UNIT_MASK)
    if found:
        table.finish(stripe)
    return found


cdef inline const int64_t* state_of(BoundLimit bound, Work* work, int at) noexcept nogil:
    if bound.common.one_word:
        return &work.words[at]
    return bound.common.state(work.slots[at]) if work.slots[at] >= 0 else NOTHING


cdef void write_down(BoundLimit bound, Work* work, int at, const Answer* seen, bint allowed) noexcept:
    """Charge a state, or keep the effects of a refusal: a block, and a state corrected because the clock stepped back."""
    cdef SharedTable table = bound.common
    cdef int64_t slot = work.slots[at], stripe = table.stripe_of(work.tags[at])
    cdef int64_t cost = work.cost[at] if allowed else 0
    cdef bint changes = work.mode != M_PEEK and ((allowed and not bound.guards) or seen.moved)
    if table.one_word:
        if changes:
            bound.charge(&work.words[at], bound.params, seen.mark_us, seen.mark_num, cost)
        headgate_store(table.state(slot), work.words[at])
        return
    if changes:
        if bound.holds_permits:
            bound.sign()
        if table.head.journal < table.words and cost:
            # A log's ring is not journalled: expired stamps are dropped first, so that no stamp in use is overwritten.
            table.begin(stripe, slot)
            bound.charge(table.state(slot), bound.params, seen.mark_us, seen.mark_num, 0)
            table.finish(stripe)
        table.begin(stripe, slot)
        bound.charge(table.state(slot), bound.params, seen.mark_us, seen.mark_num, cost)
        table.finish(stripe)
    if bound.block and not seen.allowed and work.mode != M_PEEK:
        headgate_store(table.state(slot) + table.words, seen.until)


cdef Attempt give_holding(tuple bounds, Work* work, void* out):
    """Give back, and hold the stripes of the keys meanwhile."""
    cdef Holding holding
    cdef BoundLimit bound
    cdef SharedTable table
    cdef Answer seen
    cdef int64_t* state
    cdef int64_t word, slot, stripe
    cdef int at
    cdef Attempt taken = take_stripes(bounds, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        table = bound.common
        slot, stripe = table.find(work.tags[at]), table.stripe_of(work.tags[at])
        if slot < 0:
            continue
        word = table.hold_word(slot) if table.one_word else 0
        state = &word if table.one_word else table.state(slot)
        if work.mark_us[at] < 0:
            bound.answer(state, bound.params, work.nows[at], 0, &seen)
        else:
            seen.mark_us, seen.mark_num = work.mark_us[at] - bound.epoch(), work.mark_num[at]
        if bound.holds_permits:
            bound.sign()
        if not table.one_word:
            table.begin(stripe, slot)
        bound.give(state, bound.params, work.nows[at], seen.mark_us, seen.mark_num, work.cost[at])
        if table.one_word:
            headgate_store(table.state(slot), word)
        else:
            table.finish(stripe)
    unlock_all(&holding)
    return DONE


cdef Attempt list_permits_of(tuple bounds, Work* work, void* out):
    """List the permits of keys, without those of processes that have died."""
    cdef Holding holding
    cdef BoundLimit bound
    cdef int64_t* state
    cdef int at
    cdef Attempt taken = take_stripes(bounds, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        state = bound.find(work.tags[at]) if bound.holds_permits else NULL
        if state != NULL:
            if bound.common is not None:
                reclaim_dead(bound, bound.common.find(work.tags[at]), work.tags[at])
                bound.sign()
            list_permits(at, state, bound, <list> out)
    unlock_all(&holding)
    return DONE


cdef Attempt list_records_of(tuple bounds, Work* work, void* out):
    """List the end of a key's block, and the stamps of a log as they are kept."""
    cdef Holding holding
    cdef BoundLimit bound
    cdef int64_t* state
    cdef int at
    cdef Attempt taken = take_stripes(bounds, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        state = bound.find(work.tags[at])
        if state != NULL:
            until = state[bound.words] + bound.epoch() if bound.block and state[bound.words] else 0
            until -= until % 8 if bound.grows else 0
            (<list> out)[at] = (until, stamps_in(state, bound) if bound.limit.step.KIND == "log" else [])
    unlock_all(&holding)
    return DONE


cdef list permits_at(list found, now):
    """Return permits with their ages in place of their starts."""
    return [(at, max(0, now - since), units, own) for at, since, units, own in found]


cdef list records_at(tuple limits, list found, now):
    """Return records without blocks that have ended, and without stamps that have expired."""
    return [
        (until if until > now else 0, tuple(limit.step.counting(stamps, limit.step.Params(*limit.params), now)) if stamps else ())
        for limit, (until, stamps) in zip(limits, found)
    ]


cdef list stamps_in(const int64_t* state, BoundLimit bound):
    cdef const LogParams* p = <const LogParams*> bound.params
    cdef int64_t nth
    return [log_stamp(state, p, nth) for nth in range(state[0])] if log_is_whole(state, p) else []


cdef void list_permits(int place, const int64_t* state, BoundLimit bound, list found):
    cdef const ConcurrencyParams* p = <const ConcurrencyParams*> bound.params
    cdef HeldPermit* permits = held_permits(state)
    cdef int64_t at
    if concurrency_is_whole(state, p):
        for at in range(state[0]):
            found.append((place, permits[at].since, permits[at].held & UNIT_MASK, permits[at].held >> UNIT_BITS == p.holder))


cdef Attempt forget_key(tuple bounds, Work* work, void* out):
    """Make the states of keys zero."""
    cdef Holding holding
    cdef BoundLimit bound
    cdef int64_t* state
    cdef int at
    cdef Attempt taken = take_stripes(bounds, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        bound = <BoundLimit> bounds[at]
        state = bound.find(work.tags[at])
        if state != NULL:
            memset(state, 0, (bound.table.stride if bound.common is None else bound.common.stride) * 8)
    unlock_all(&holding)
    return DONE
