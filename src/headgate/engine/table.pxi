# A Table: the states of keys under limits of one algorithm and period, in memory of fixed slots.
#
# A key under a limit is a 64-bit tag. The top bits of the tag choose a segment; in the segment, a key is in one of two
# sets of 8 slots: 16 places, no chains, no tombstones. Slots are overwritten, never emptied. A segment whose two sets are
# full of keys in use grows by half, alone, so that no request has to wait until a whole table has moved; at its bound,
# the segment drops the key with the least quota in use instead.

cdef size_t SEGMENT_BYTES = 1 << 20     # moving this much takes well under a millisecond
cdef size_t MAPPED_FROM = 1 << 13       # larger blocks are mapped, so that all of a block is freed when a segment grows
cdef size_t WIDE_SLOT = 4096            # slots of whole pages are mapped at full size: unused pages take no memory

cdef struct Segment:
    int64_t sets
    uint64_t* tags
    int64_t* states

cdef void* map_zeros(size_t size) noexcept nogil:
    cdef void* block
    if size < MAPPED_FROM:
        return calloc(1, size)
    block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if block == MAP_FAILED else block

cdef inline int64_t epoch_at(int64_t now) noexcept nogil:
    """Return the epoch of a table made now: a multiple of 8, as the ends of blocks that grow."""
    return (now - EPOCH_LEAD) & ~<int64_t> 7

cdef void unmap(void* block, size_t size) noexcept nogil:
    if size < MAPPED_FROM:
        free(block)
    elif block != NULL:
        munmap(block, size)


@cython.final
cdef class Family:
    """The tables of one algorithm and period whose states differ in size, the smallest first.

    The smallest table that has a key has its state. A state that is too small for a limit moves to a larger table at the
    next decision.
    """

    cdef readonly list tables

    def __cinit__(self):
        self.tables = []

    def add(self, table):
        """Add a table, unless it is here already."""
        if table not in self.tables:
            self.tables.insert(sum([other.words < table.words for other in self.tables]), table)

    cdef inline bint spread(self) noexcept:
        """Return whether a key may be in one of several tables."""
        return len(self.tables) > 1


@cython.final
cdef class Table:
    cdef readonly Engine engine
    cdef readonly Family family         # None if all states have one size
    cdef readonly int64_t words         # of the step's state
    cdef readonly int64_t evictions
    cdef bint reported                  # the first eviction was
    cdef int64_t used                   # slots that hold a key
    cdef int64_t stride                 # words of a slot, with that of the block
    cdef Kernel kernel
    cdef Segment* segments
    cdef int segment_bits
    cdef int64_t most_sets              # of a segment
    cdef int64_t first_sets
    cdef int64_t epoch
    cdef int64_t span

    def __cinit__(self, Engine engine not None, limit, int64_t max_keys, Family family):
        cdef int64_t total
        find_kernel(limit.step.KIND, &self.kernel)
        self.engine = engine
        self.family = family
        self.words = words_for(limit)
        self.stride = self.words + (1 if limit.block_us else 0)
        self.epoch = epoch_at(engine.now()) if self.kernel.relative else 0
        self.span = EPOCH_SPAN if self.kernel.relative else NO_EPOCH_SPAN
        total = slots_for(max_keys) // WAYS
        while total >> self.segment_bits > 64 and (total >> self.segment_bits) * self.set_bytes() > SEGMENT_BYTES:
            self.segment_bits += 1
        self.most_sets = total >> self.segment_bits
        self.first_sets = self.most_sets if self.stride * 8 >= WIDE_SLOT else 1
        self.segments = <Segment*> calloc(1 << self.segment_bits, sizeof(Segment))
        if self.segments == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.segments != NULL:
            self.release()
            free(self.segments)

    def __len__(self):
        return self.used

    def clear(self):
        """Forget every key."""
        with cython.critical_section(self.engine.lock):
            self.release()
            self.used = 0

    cdef void release(self) noexcept:
        cdef int64_t at
        for at in range(1 << self.segment_bits):
            unmap(self.segments[at].tags, self.segments[at].sets * self.set_bytes())
        memset(self.segments, 0, sizeof(Segment) << self.segment_bits)

    @property
    def slots(self):
        """The most keys in the table."""
        return self.most_sets * WAYS << self.segment_bits

    @property
    def bytes(self):
        """The bytes of memory of the table."""
        cdef int64_t at, sets = 0
        for at in range(1 << self.segment_bits):
            sets += self.segments[at].sets
        return sets * self.set_bytes() + (<int64_t> 1 << self.segment_bits) * sizeof(Segment)

    cdef inline size_t set_bytes(self) noexcept nogil:
        return WAYS * 8 * (1 + self.stride)

    cdef inline Segment* segment(self, uint64_t tag) noexcept nogil:
        return &self.segments[tag >> 1 >> (63 - self.segment_bits)]

    cdef inline int64_t* find(self, uint64_t tag) noexcept nogil:
        """Return the state of a key, or NULL if it was never charged."""
        cdef Segment* segment = self.segment(tag)
        cdef int64_t slot, base
        if segment.sets == 0:
            return NULL
        base = first_set(segment, tag)
        for slot in range(base, base + WAYS):
            if segment.tags[slot] == tag:
                return segment.states + slot * self.stride
        base = second_set(segment, tag)
        for slot in range(base, base + WAYS):
            if segment.tags[slot] == tag:
                return segment.states + slot * self.stride
        return NULL

    cdef void forget(self, uint64_t tag) noexcept:
        """Empty the slot of a key whose state has moved to another table."""
        cdef Segment* segment = self.segment(tag)
        cdef int64_t* state = self.find(tag)
        segment.tags[(state - segment.states) // self.stride] = 0
        memset(state, 0, self.stride * 8)
        self.used -= 1

    cdef inline int prepare(self, uint64_t tag) except -1:
        """Allocate the key's segment if needed: the only part of placing a key that can fail."""
        cdef Segment* segment = self.segment(tag)
        if segment.sets == 0 and not self.allocate(segment, self.first_sets):
            raise MemoryError("no memory for the states of keys")
        return 0

    cdef int64_t* place(self, uint64_t tag, BoundLimit bound, int64_t now) noexcept nogil:
        """Return a slot for a new key: an empty or unused one, one of a larger segment, or that of a victim."""
        cdef Segment* segment = self.segment(tag)
        cdef int64_t slot
        while True:
            slot = empty_slot(segment, tag)
            if slot >= 0:
                self.used += 1
                break
            slot = self.victim(segment, tag, bound, now, segment.sets < self.most_sets)
            if slot >= 0:
                break
            if not self.grow(segment, bound, now):
                slot = self.victim(segment, tag, bound, now, False)
                break
        segment.tags[slot] = tag
        memset(segment.states + slot * self.stride, 0, self.stride * 8)
        return segment.states + slot * self.stride

    cdef int64_t victim(self, Segment* segment, uint64_t tag, BoundLimit bound, int64_t now, bint only_new) noexcept nogil:
        """Return an unused slot; else -1 with `only_new`, or the slot with the least quota in use, then the nearest reset.

        Of two sets with unused slots, the set with more of them is chosen, so that sets stay evenly full.
        """
        cdef Answer seen
        cdef int64_t way, half, slot, found = -1, remaining = -1, reset = 0
        cdef int64_t[2] fresh, first
        first[0], first[1] = first_set(segment, tag), second_set(segment, tag)
        for half in range(2):
            fresh[half] = 0
            for way in range(WAYS):
                slot = first[half] + way
                bound.weigh(segment.states + slot * self.stride, now, &seen)
                if seen.reset == 0:
                    fresh[half] += 1
                    if fresh[half] > fresh[0] or half == 0:
                        found, remaining = slot, INT64_MAX
                elif seen.remaining > remaining or (seen.remaining == remaining and seen.reset < reset):
                    found, remaining, reset = slot, seen.remaining, seen.reset
        if remaining == INT64_MAX:
            return found
        if only_new:
            return -1
        self.evictions += 1
        return found

    cdef bint allocate(self, Segment* segment, int64_t sets) noexcept nogil:
        cdef void* block = map_zeros(sets * self.set_bytes())
        if block == NULL:
            return False
        segment.sets = sets
        segment.tags = <uint64_t*> block
        segment.states = <int64_t*> block + sets * WAYS
        return True

    cdef bint grow(self, Segment* segment, BoundLimit bound, int64_t now) noexcept nogil:
        """Move the keys in use into a segment half as large again. False if there is no memory for it."""
        cdef Segment larger
        cdef int64_t sets = segment.sets
        while True:
            sets += (sets + 1) // 2
            if sets > self.most_sets:
                sets = self.most_sets
            if not self.allocate(&larger, sets):
                return False
            if self.move(segment, &larger, bound, now):
                break
            unmap(larger.tags, sets * self.set_bytes())
        unmap(segment.tags, segment.sets * self.set_bytes())
        segment[0] = larger
        return True

    cdef bint move(self, const Segment* segment, Segment* larger, BoundLimit bound, int64_t now) noexcept nogil:
        """Copy the keys in use. False if the sets of a key are full and the segment may grow further."""
        cdef Answer seen
        cdef int64_t slots = segment.sets * WAYS, old = 0, new, had = 0, kept = 0
        cdef int64_t leap = 7919 if slots % 7919 else 7927
        for _ in range(slots):
            # Not in order: neighbours would fill neighbouring sets first, and the sets of the last keys would be full.
            old = (old + leap) % slots
            if segment.tags[old] == 0:
                continue
            had += 1
            bound.weigh(segment.states + old * self.stride, now, &seen)
            if seen.reset == 0:
                continue
            new = empty_slot(larger, segment.tags[old])
            if new >= 0:
                kept += 1
            elif larger.sets < self.most_sets:
                return False
            else:
                new = self.victim(larger, segment.tags[old], bound, now, False)
            larger.tags[new] = segment.tags[old]
            memcpy(larger.states + new * self.stride, segment.states + old * self.stride, self.stride * 8)
        self.used += kept - had
        return True

    cdef void rebase(self, int64_t now) noexcept nogil:
        """Count packed times from a new epoch, because the clock has left the span that fits in a word."""
        cdef int64_t at, slot, us, epoch = epoch_at(now)
        cdef int64_t* state
        for at in range(1 << self.segment_bits):
            for slot in range(self.segments[at].sets * WAYS):
                state = self.segments[at].states + slot * self.stride
                if state[0]:
                    us = (state[0] >> BUCKET_NUM_BITS) + self.epoch - epoch
                    us = 1 if us < 1 else us if us < EPOCH_SPAN * 2 else EPOCH_SPAN * 2 - 1
                    state[0] = us << BUCKET_NUM_BITS | (state[0] & BUCKET_NUM_MASK)
                if self.stride > self.words and state[self.words]:
                    state[self.words] += self.epoch - epoch
        self.epoch = epoch

    cdef inline int64_t instant(self, int64_t now) noexcept nogil:
        """Return an instant, counted from the table's epoch."""
        if not 0 <= now - self.epoch < self.span:
            self.rebase(now)
        return now - self.epoch


# Each set is chosen by other bits of the tag, and neither by the bits that choose the segment.
cdef inline int64_t first_set(const Segment* segment, uint64_t tag) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> tag * <uint64_t> segment.sets >> 32) * WAYS

cdef inline int64_t second_set(const Segment* segment, uint64_t tag) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> (tag >> 20) * <uint64_t> segment.sets >> 32) * WAYS

cdef int64_t empty_slot(const Segment* segment, uint64_t tag) noexcept nogil:
    """Return an empty slot in the emptier of the two sets, or -1. Sets fill from the front."""
    cdef int64_t way, first = first_set(segment, tag), second = second_set(segment, tag)
    for way in range(WAYS):
        if segment.tags[first + way] == 0:
            return first + way
        if segment.tags[second + way] == 0:
            return second + way
    return -1
