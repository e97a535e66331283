# A table in memory that processes share: the same slots in one file of fixed size, with locks and journals.
#
# A plain bucket is one word and is charged by compare-and-swap, without a lock. Every other use (wider states, new keys,
# decisions over several limits, giving back) holds the stripe of the key: a lock word that its holder signs. A thread that
# finds a stripe held waits, and tests after a millisecond whether the holder still lives. The lock of a dead holder is
# taken over, that of a stopped one never is. A process that takes over a stripe restores a wide state from the stripe's
# journal; a bucket's word with the bit HELD is stale then.

@cython.final
cdef class SharedTable:
    cdef readonly Engine engine
    cdef readonly Family family         # None if all states have one size
    cdef readonly int64_t words
    cdef int64_t[::1] view              # keeps the mapping alive
    cdef SharedHead* head
    cdef Stripe* stripes
    cdef int64_t* journals
    cdef Segment segment
    cdef int64_t stride
    cdef int64_t order                  # the same in every process: locks are taken in this order
    cdef bint one_word                  # a plain bucket
    cdef bint reported                  # the first eviction was, by this process

    def __cinit__(self, Engine engine not None, limit, view, Family family):
        self.engine = engine
        self.family = family
        self.one_word = limit.step.KIND == "bucket" and not limit.block_us
        self.attach(view)

    def attach(self, int64_t[::1] view):
        """Use this memory from now on; its header was checked against the size of the file."""
        with cython.critical_section(self.engine.lock):
            if self.head != NULL:
                self.engine.check_nobody_sleeps()
            self.use(view)

    cdef use(self, int64_t[::1] view):
        cdef SharedHead* head = <SharedHead*> &view[0]
        cdef int64_t at = HEADER_WORDS + STRIPES * (STRIPE_WORDS + head.journal)
        if view.shape[0] != at + head.sets * WAYS * (1 + head.stride):
            raise ValueError("the header does not describe the memory")
        self.head = head
        self.stripes = <Stripe*> (&view[0] + HEADER_WORDS)
        self.journals = &view[0] + HEADER_WORDS + STRIPES * (STRIPE_WORDS)
        self.segment.sets = head.sets
        self.segment.tags = <uint64_t*> (&view[0] + at)
        self.segment.states = &view[0] + at + head.sets * WAYS
        self.words, self.stride, self.order = head.words, head.stride, head.order
        self.view = view                # last: the former memory is unmapped, and another thread may run meanwhile

    def __len__(self):
        return headgate_load(&self.head.used)

    @property
    def evictions(self):
        """The number of keys that were dropped while they had quota in use."""
        return headgate_load(&self.head.evictions)

    @property
    def slots(self):
        """The most keys in the table."""
        return self.head.sets * WAYS

    @property
    def bytes(self):
        """The bytes of memory of the table."""
        return self.view.shape[0] * 8

    def clear(self):
        """Forget every key. False if a stopped process held a part of the table."""
        cdef int64_t stripe, taken = 0
        with cython.critical_section(self.engine.lock):
            while taken < STRIPES and self.lock(taken):
                taken += 1
            if taken == STRIPES:
                memset(self.segment.states, 0, self.head.sets * WAYS * self.stride * 8)
            for stripe in range(taken):
                self.unlock(stripe)
        return taken == STRIPES

    cdef inline int64_t instant(self, int64_t now) except -1:
        """Return an instant, counted from the table's epoch."""
        if not 0 <= now - self.head.epoch < (EPOCH_SPAN if self.head.epoch else NO_EPOCH_SPAN):
            raise StoreError("the clock has left the years that a shared table can count; remove the store")
        return now - self.head.epoch

    cdef inline int64_t* state(self, int64_t slot) noexcept nogil:
        return self.segment.states + slot * self.stride

    cdef inline int64_t* tag_at(self, int64_t slot) noexcept nogil:
        return <int64_t*> self.segment.tags + slot

    cdef inline int64_t stripe_of(self, uint64_t tag) noexcept nogil:
        return tag >> 58

    cdef inline int64_t find(self, uint64_t tag) noexcept nogil:
        """Return the slot of a key, or -1."""
        cdef int64_t slot, half, base
        for half in range(2):
            base = second_set(&self.segment, tag) if half else first_set(&self.segment, tag)
            for slot in range(base, base + WAYS):
                if <uint64_t> headgate_load(self.tag_at(slot)) == tag:
                    return slot
        return -1

    cdef bint lock(self, int64_t number):
        """Hold a stripe. False if a live holder keeps it for too long."""
        cdef bint held
        for _ in range(100):
            if self.try_lock(number):
                return True
        headgate_add(&self.engine.napping, 1)
        with nogil:
            held = self.wait_for(number)
        headgate_add(&self.engine.napping, -1)
        return held

    cdef bint wait_for(self, int64_t number) noexcept nogil:
        cdef Stripe* stripe = &self.stripes[number]
        cdef int64_t owner, turn = -1, start = 0
        cdef int naps = 0
        cdef bint overdue
        cdef timespec nap
        nap.tv_sec, nap.tv_nsec = 0, 15_000
        while not self.try_lock(number):
            owner = headgate_load(&stripe.lock)
            if headgate_load(&stripe.turns) != turn:
                turn, start, naps = headgate_load(&stripe.turns), steady_ns(), 0
            overdue = owner != 0 and owner == headgate_load(&stripe.stuck)
            if (overdue or steady_ns() - start > TEST_AFTER_NS) and owner and not self.engine.is_alive(owner):
                if headgate_swap(&stripe.lock, owner, self.engine.me):
                    headgate_store(&stripe.stuck, 0)
                    self.restore(number)
                    return True
                continue
            if overdue:
                return False
            if naps > GIVE_UP_AFTER_NAPS:
                headgate_store(&stripe.stuck, owner)
                return False
            # Not a yield: a holder that lost its core needs this core. Each sleep is longer than the last, because threads
            # that wake all the time would keep the core from the holder too.
            nanosleep(&nap, NULL)
            naps += 1
            if nap.tv_nsec < LONGEST_NAP_NS:
                nap.tv_nsec *= 2
        return True

    cdef inline bint try_lock(self, int64_t number) noexcept nogil:
        cdef Stripe* stripe = &self.stripes[number]
        if self.engine.me == 0 or headgate_load(&stripe.lock) or not headgate_swap(&stripe.lock, 0, self.engine.me):
            return False
        stripe.turns += 1
        return True

    cdef inline void unlock(self, int64_t number) noexcept nogil:
        if headgate_load(&self.stripes[number].stuck):      # this holder does run: other threads may wait for it again
            headgate_store(&self.stripes[number].stuck, 0)
        headgate_store(&self.stripes[number].lock, 0)

    cdef void restore(self, int64_t number) noexcept nogil:
        """Undo the unfinished change of a dead holder."""
        cdef int64_t slot = headgate_load(&self.stripes[number].slot) - 1
        # A slot that the dead holder had emptied is left alone: it may have another key by now, under another stripe.
        if 0 <= slot < self.head.sets * WAYS and headgate_load(self.tag_at(slot)) and (
                self.stripe_of(<uint64_t> headgate_load(self.tag_at(slot))) == number):
            memcpy(self.state(slot), self.journals + number * self.head.journal, self.head.journal * 8)
            headgate_fence()
        headgate_store(&self.stripes[number].slot, 0)

    cdef inline void begin(self, int64_t number, int64_t slot) noexcept nogil:
        """Copy a state to the journal, so that a change of it can be undone."""
        memcpy(self.journals + number * self.head.journal, self.state(slot), self.head.journal * 8)
        headgate_fence()
        headgate_store(&self.stripes[number].slot, slot + 1)
        headgate_fence()

    cdef inline void finish(self, int64_t number) noexcept nogil:
        headgate_store(&self.stripes[number].slot, 0)

    cdef void empty(self, int64_t slot, int64_t number) noexcept nogil:
        """Empty the slot of a key whose state has moved to another table; its stripe is held."""
        self.begin(number, slot)
        self.state(slot)[0] = self.state(slot)[1] = 0
        if self.stride > self.words:
            headgate_store(self.state(slot) + self.words, 0)
        headgate_fence()
        headgate_store(self.tag_at(slot), 0)
        self.finish(number)
        headgate_add(&self.head.used, -1)

    cdef inline int64_t hold_word(self, int64_t slot) noexcept nogil:
        """Return the word of a bucket, and mark it, so that no thread charges it without a lock while its stripe is held."""
        cdef int64_t word
        while True:
            word = headgate_load(self.state(slot))
            if headgate_swap(self.state(slot), word, word | HELD):
                return word & ~HELD

    cdef int64_t place(self, uint64_t tag, BoundLimit bound, int64_t now, const Holding* holding) noexcept nogil:
        """Return a slot for a new key, whose stripe is held; -1 if every candidate is locked.

        A bucket's word is zero with the bit HELD, for the charge that follows.
        """
        cdef int64_t way, half, slot, victim, tried
        cdef int64_t[2] first
        cdef uint64_t refused = 0
        first[0], first[1] = first_set(&self.segment, tag), second_set(&self.segment, tag)
        for way in range(WAYS):
            for half in range(2):
                slot = first[half] + way
                if headgate_load(self.tag_at(slot)) == 0 and self.claim_empty(slot, tag):
                    headgate_add(&self.head.used, 1)
                    return slot
        for tried in range(2 * WAYS):
            victim = self.victim(first, bound, now, refused)
            if victim < 0:
                return -1
            slot = first[victim // WAYS] + victim % WAYS
            if self.take_over(slot, tag, bound, now, holding):
                return slot
            refused |= <uint64_t> 1 << victim
        return -1

    cdef inline bint claim_empty(self, int64_t slot, uint64_t tag) noexcept nogil:
        if not self.one_word:
            return headgate_swap(self.tag_at(slot), 0, <int64_t> tag)
        if not headgate_swap(self.state(slot), 0, HELD):
            return False
        if headgate_swap(self.tag_at(slot), 0, <int64_t> tag):
            return True
        headgate_store(self.state(slot), 0)
        return False

    cdef int64_t victim(self, const int64_t* first, BoundLimit bound, int64_t now, uint64_t refused) noexcept nogil:
        """Return the number of the candidate to drop: an unused slot in the set with more of them, else the least in use."""
        cdef Answer seen
        cdef int64_t at, found = -1, remaining = -1, reset = 0
        cdef int64_t[2] fresh
        fresh[0] = fresh[1] = 0
        for at in range(2 * WAYS):
            if refused >> at & 1 or not self.glance(first[at // WAYS] + at % WAYS, bound, now, &seen):
                continue
            if seen.reset == 0:
                fresh[at // WAYS] += 1
                if at < WAYS or fresh[1] > fresh[0]:
                    found, remaining = at, INT64_MAX
            elif seen.remaining > remaining or (seen.remaining == remaining and seen.reset < reset):
                found, remaining, reset = at, seen.remaining, seen.reset
        return found

    cdef inline bint glance(self, int64_t slot, BoundLimit bound, int64_t now, Answer* seen) noexcept nogil:
        """Read the state of a slot without its stripe. False if the slot is being changed."""
        cdef int64_t word
        if self.one_word:
            word = headgate_load(self.state(slot))
            if word < 0:
                return False
            bound.look(&word, now, 0, seen)
        else:
            bound.weigh(self.state(slot), now, seen)
            if bound.holds_permits and seen.reset:
                self.leave_out_dead(self.state(slot), bound, seen)
        return True

    cdef void leave_out_dead(self, const int64_t* state, BoundLimit bound, Answer* seen) noexcept nogil:
        """Leave out permits of dead holders: a key that gets no more requests would keep its slot for ever."""
        cdef const ConcurrencyParams* p = <const ConcurrencyParams*> bound.params
        cdef int64_t at, holder, alive = self.engine.me, held = 0
        for at in range(min(state[0], permits_within(p.words))):
            holder = held_permits(state)[at].held >> UNIT_BITS
            if holder == alive or self.engine.is_alive(holder):
                alive = holder
                held += held_permits(state)[at].held & UNIT_MASK
        seen.remaining = p.limit - held if held < p.limit else 0
        seen.reset = NOBODY_KNOWS if held else 0

    cdef bint take_over(self, int64_t slot, uint64_t tag, BoundLimit bound, int64_t now, const Holding* holding) noexcept nogil:
        """Give a slot to another key, and hold the stripe of its present key meanwhile."""
        cdef uint64_t present = <uint64_t> headgate_load(self.tag_at(slot))
        cdef int64_t number = self.stripe_of(present), word
        cdef bint taken = False
        cdef Answer seen
        # A stripe that this decision holds may guard another of its own keys, which must keep its slot.
        if holds(holding, self.order, number) or not self.try_lock(number):
            return False
        if <uint64_t> headgate_load(self.tag_at(slot)) == present and self.glance(slot, bound, now, &seen):
            taken = True
            if self.one_word:
                word = headgate_load(self.state(slot))
                taken = word >= 0 and headgate_swap(self.state(slot), word, HELD)
            else:
                memset(self.state(slot), 0, self.stride * 8)
                headgate_fence()
            if taken:
                headgate_store(self.tag_at(slot), <int64_t> tag)
                if seen.reset:
                    headgate_add(&self.head.evictions, 1)
        self.unlock(number)
        return taken
