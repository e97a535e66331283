# Decisions over shared tables. What is the same for private ones (arguments, answers) stands in core.pxi.

cdef bint charge_lock_free(Lane lane, uint64_t tag, int64_t now, int64_t* cost, Mode mode, int64_t wait, Answer* seen) noexcept:
    """Settle a plain bucket by compare-and-swap. False if that takes its stripe: a new key, or one being worked on."""
    cdef SharedTable table = lane.common
    cdef int64_t slot, word, charged, asked = cost[0]
    while True:
        slot = table.find(tag)
        word = headgate_load(table.state(slot)) if slot >= 0 else 0
        if word < 0:
            return False
        if slot >= 0 and <uint64_t> headgate_load(table.tag_at(slot)) != tag:
            continue
        if mode == M_UP_TO and asked:
            lane.look(&word, now, 0, seen)
            cost[0] = max(1, min(asked, seen.remaining))
        lane.look_ahead(&word, now, cost[0], wait, seen)
        if mode == M_PEEK or not (seen.allowed or seen.moved):
            return True
        if slot < 0:
            return not seen.allowed
        charged = word
        lane.charge(&charged, lane.params, seen.mark_us, seen.mark_num, cost[0] if seen.allowed else 0)
        if headgate_swap(table.state(slot), word, charged):
            return True


cdef Attempt settle_holding(tuple lanes, Work* work, void* out):
    """One decision over lanes whose stripes are taken for it. STUCK also if no slot can be had."""
    cdef Answer* seen = <Answer*> out
    cdef Holding holding
    cdef Lane lane
    cdef int at
    cdef bint allowed = True, placed = True, placing = False
    cdef int64_t room = EXACT
    cdef Attempt taken = take_stripes(lanes, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        lane = <Lane> lanes[at]
        work.slots[at] = lane.common.find(work.tags[at])
        work.words[at] = lane.common.hold_word(work.slots[at]) if lane.common.one_word and work.slots[at] >= 0 else 0
        if work.mode == M_UP_TO and work.cost[at]:
            if lane.flies:
                bury(lane, work.slots[at], work.tags[at])
            lane.look(state_of(lane, work, at), work.nows[at], 0, &seen[at])
            room = min(room, seen[at].remaining)
    for at in range(work.count):
        lane = <Lane> lanes[at]
        if work.mode == M_UP_TO and work.cost[at]:
            work.cost[at] = max(1, min(work.cost[at], room))
        lane.look_ahead(state_of(lane, work, at), work.nows[at], work.cost[at], work.wait, &seen[at])
        if lane.flies and (not seen[at].allowed or work.mode == M_PEEK) and bury(lane, work.slots[at], work.tags[at]):
            lane.look_ahead(state_of(lane, work, at), work.nows[at], work.cost[at], work.wait, &seen[at])
        allowed = allowed and seen[at].allowed
    if allowed and work.mode != M_PEEK:
        for at in range(work.count):        # places first: a charge is only begun when all can be made
            lane = <Lane> lanes[at]
            if work.slots[at] < 0:
                work.slots[at] = lane.common.place(work.tags[at], lane, work.nows[at], &holding)
                placing = True
                placed = placed and work.slots[at] >= 0
    for at in range(work.count):
        lane = <Lane> lanes[at]
        if work.slots[at] >= 0:
            write_down(lane, work, at, &seen[at], allowed and placed)
        if not allowed and seen[at].allowed:
            lane.look(state_of(lane, work, at), work.nows[at], 0, &seen[at])
    unlock_all(&holding)
    if placing:
        for at in range(work.count):
            (<Lane> lanes[at]).tell()
    return DONE if placed else STUCK


cdef bint bury(Lane lane, int64_t slot, uint64_t tag) noexcept:
    """Take back what processes hold that have died; whether there was anything. The key's stripe is held.

    Only asked where it matters, before a no: a live holder is looked up in a file's locks, which takes a system call.
    """
    cdef SharedTable table = lane.common
    cdef int64_t at, holder, alive = 0, stripe = table.stripe_of(tag)
    cdef int64_t* state
    cdef bint found = False
    if slot < 0 or not flight_is_whole(table.state(slot), <const FlightParams*> lane.params):
        return False
    state = table.state(slot)
    at = 0
    while at < state[0]:
        holder = flying(state)[at].held >> UNIT_BITS
        if holder == alive or table.book.is_alive(holder):
            alive = holder
            at += 1
            continue
        if not found:
            table.begin(stripe, slot)
            found = True
        flight_take_back(state, at, UNIT_MASK)
    if found:
        table.finish(stripe)
    return found


cdef inline const int64_t* state_of(Lane lane, Work* work, int at) noexcept nogil:
    if lane.common.one_word:
        return &work.words[at]
    return lane.common.state(work.slots[at]) if work.slots[at] >= 0 else NOTHING


cdef void write_down(Lane lane, Work* work, int at, const Answer* seen, bint allowed) noexcept:
    """Charge a state, or keep what a refusal leaves: a block begun, a state that had to follow the clock back."""
    cdef SharedTable table = lane.common
    cdef int64_t slot = work.slots[at], stripe = table.stripe_of(work.tags[at])
    cdef int64_t cost = work.cost[at] if allowed else 0
    cdef bint changes = work.mode != M_PEEK and (allowed or seen.moved)
    if table.one_word:
        if changes:
            lane.charge(&work.words[at], lane.params, seen.mark_us, seen.mark_num, cost)
        headgate_store(table.state(slot), work.words[at])
        return
    if changes:
        if lane.flies:
            lane.sign()
        if table.head.journal < table.words and cost:
            # A log's ring is not journalled: its expired stamps are dropped first, so that the new ones fall on none.
            table.begin(stripe, slot)
            lane.charge(table.state(slot), lane.params, seen.mark_us, seen.mark_num, 0)
            table.finish(stripe)
        table.begin(stripe, slot)
        lane.charge(table.state(slot), lane.params, seen.mark_us, seen.mark_num, cost)
        table.finish(stripe)
    if lane.block and not seen.allowed and work.mode != M_PEEK:
        headgate_store(table.state(slot) + table.words, seen.until)


cdef Attempt give_holding(tuple lanes, Work* work, void* out):
    """Give back under the stripes of the keys."""
    cdef Holding holding
    cdef Lane lane
    cdef SharedTable table
    cdef Answer seen
    cdef int64_t* state
    cdef int64_t word, slot, stripe
    cdef int at
    cdef Attempt taken = take_stripes(lanes, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        lane = <Lane> lanes[at]
        table = lane.common
        slot, stripe = table.find(work.tags[at]), table.stripe_of(work.tags[at])
        if slot < 0:
            continue
        word = table.hold_word(slot) if table.one_word else 0
        state = &word if table.one_word else table.state(slot)
        if work.mark_us[at] < 0:
            lane.answer(state, lane.params, work.nows[at], 0, &seen)
        else:
            seen.mark_us, seen.mark_num = work.mark_us[at] - lane.epoch(), work.mark_num[at]
        if lane.flies:
            lane.sign()
        if not table.one_word:
            table.begin(stripe, slot)
        lane.give(state, lane.params, work.nows[at], seen.mark_us, seen.mark_num, work.cost[at])
        if table.one_word:
            headgate_store(table.state(slot), word)
        else:
            table.finish(stripe)
    unlock_all(&holding)
    return DONE


cdef Attempt list_holding(tuple lanes, Work* work, void* out):
    """The permits of keys, under their stripes, without those of the dead."""
    cdef Holding holding
    cdef Lane lane
    cdef int64_t slot
    cdef int at
    cdef Attempt taken = take_stripes(lanes, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        lane = <Lane> lanes[at]
        slot = lane.common.find(work.tags[at]) if lane.flies else -1
        if slot >= 0:
            bury(lane, slot, work.tags[at])
            lane.sign()
            list_permits(at, lane.common.state(slot), lane, <list> out)
    unlock_all(&holding)
    return DONE


cdef void list_permits(int place, const int64_t* state, Lane lane, list found):
    cdef const FlightParams* p = <const FlightParams*> lane.params
    cdef Flying* permits = flying(state)
    cdef int64_t at
    if flight_is_whole(state, p):
        for at in range(state[0]):
            found.append((place, permits[at].since, permits[at].held & UNIT_MASK, permits[at].held >> UNIT_BITS == p.holder))


cdef Attempt clear_holding(tuple lanes, Work* work, void* out):
    """Make keys as new under their stripes."""
    cdef Holding holding
    cdef SharedTable table
    cdef int64_t slot
    cdef int at
    cdef Attempt taken = take_stripes(lanes, work, &holding)
    if taken != DONE:
        return taken
    for at in range(work.count):
        table = (<Lane> lanes[at]).common
        slot = table.find(work.tags[at])
        if slot >= 0:
            memset(table.state(slot), 0, table.stride * 8)
    unlock_all(&holding)
    return DONE
