# Engine, which the tables of a store share.

@cython.final
cdef class Engine:
    """The common parts of the tables of one store: a clock, a secret and, without the GIL, the lock of a decision.

    The lock is held as the GIL would be: a thread that calls Python or sleeps may lose it meanwhile. A store that
    processes share also has the participants, and the functions that look after its files.
    """

    cdef readonly object clock
    cdef object lock
    cdef int64_t anchor_ns
    cdef clockid_t clock_id
    cdef bint steady
    cdef bint by_hand                   # the clock is a field that its owner sets
    cdef uint64_t k0, k1
    cdef int64_t me                     # the signature of this participant: number + 1 << 32 | generation
    cdef int roll                       # the file whose bytes the participants hold
    cdef int64_t* generations           # of each participant's number, in that file
    cdef int64_t[::1] roll_words        # keeps its mapping alive
    cdef object look_after              # called once a second; returns whether the files are still there
    cdef int64_t looked
    cdef int64_t napping                # threads of this process that wait for a stripe without the GIL
    cdef list late                      # permits that a stuck table did not take back
    cdef object on_eviction             # called once for each table that dropped a key with quota in use
    cdef object find_tables             # called when there are new tables, which another process may have made
    cdef int64_t known_tables           # the number of tables at its last call

    def __cinit__(self, clock):
        self.late = []
        self.on_eviction = no_report
        self.renew_lock()
        self.use_clock(clock)
        self.use_secret(os.urandom(16))

    def renew_lock(self):
        """Replace the lock in a forked child: a thread that waited for it may have had it at the fork."""
        self.lock = object()
        self.napping = 0                # the waiting threads are the parent's too

    def tell_evictions(self, on_eviction):
        """Call this with a limit and its table, once for each table that has to drop a key with quota in use."""
        self.on_eviction = on_eviction

    def use_clock(self, clock):
        """Use this clock from now on."""
        self.clock = clock
        self.steady = type(clock) is SystemClock and STEADY_CLOCK_ID is not None
        self.by_hand = type(clock) is HandClock
        if self.steady:
            self.anchor_ns = clock.anchor_ns
            self.clock_id = STEADY_CLOCK_ID

    def use_secret(self, bytes secret):
        """Hash keys with these 16 bytes from now on."""
        self.k0 = int.from_bytes(secret[:8], "little")
        self.k1 = int.from_bytes(secret[8:16], "little")

    def leave(self):
        """Take no part any more: until `join`, decisions find the files gone."""
        with cython.critical_section(self.lock):
            self.check_nobody_sleeps()
            self.me = 0
            self.looked = -(<int64_t> 1 << 62)
        self.late.clear()               # the permits of another signature

    cdef int check_nobody_sleeps(self) except -1:
        """Raise an error while a thread waits for a stripe: it would wake up under another signature or in other memory."""
        if self.napping:
            raise StoreError("a thread waits for a part of the shared store, whose files were removed")
        return 0

    def join(self, int roll, int64_t[::1] words, look_after, find_tables):
        """Take part: hold a byte of the roll while the file description is open. False if all bytes are held.

        The word after those of the participants is the number of tables that were made.
        """
        cdef int64_t number
        if words.shape[0] != PARTICIPANTS + 1:
            raise ValueError("the roll has another length")
        with cython.critical_section(self.lock):
            self.check_nobody_sleeps()
            for number in range(PARTICIPANTS):
                if headgate_take_byte(roll, number):
                    self.roll, self.generations = roll, &words[0]
                    self.look_after, self.find_tables = look_after, find_tables
                    self.known_tables = -1
                    self.looked = -(<int64_t> 1 << 62)
                    self.me = (number + 1) << 32 | <int64_t> <uint32_t> headgate_add(&words[number], 1)
                    self.roll_words = words     # last: the former memory is unmapped, and another thread may run meanwhile
                    return True
            return False

    def count_table(self):
        """Count a new table, so that every participant looks for it before its next decision."""
        headgate_add(&self.generations[PARTICIPANTS], 1)

    cdef inline bint knows_tables(self) noexcept:
        return headgate_load(&self.generations[PARTICIPANTS]) == self.known_tables

    cdef bint learn_tables(self) except -1:
        """Open every table that was made so far. False if one cannot be opened."""
        cdef int64_t made = headgate_load(&self.generations[PARTICIPANTS])
        if made != self.known_tables:
            if not self.find_tables():
                return False
            self.known_tables = made
        return True

    def give_late(self):
        """Try again to give back permits that a stuck table did not take."""
        for _ in range(len(self.late)):
            try:
                decider, keys, amounts, marks = self.late.pop(0)
            except IndexError:          # another thread gives them back
                return
            decider.give(keys, amounts, marks)

    def family(self):
        """Return a family, for tables of one algorithm and period whose states differ in size."""
        return Family()

    def table(self, limit, max_keys, family=None):
        """Return a table for the states of this limit and of limits like it."""
        return Table(self, limit, max_keys, family)

    def shared_table(self, limit, view, family=None):
        """Return a table in memory that processes share."""
        return SharedTable(self, limit, view, family)

    def decider(self, tables, limits):
        """Return a decider over limits, each on its table."""
        return Decider(self, tuple(map(BoundLimit, tables, limits)))

    cdef inline int64_t now(self) except -1:
        return self.steady_now() if self.steady else self.clock_now()

    cdef inline int64_t steady_now(self) noexcept nogil:
        cdef timespec ts
        clock_gettime(self.clock_id, &ts)
        return <int64_t> (<uint64_t> (ts.tv_sec * 1_000_000_000 + ts.tv_nsec + self.anchor_ns) // 1000)

    cdef int64_t clock_now(self) except -1:
        cdef int beyond = 1
        cdef int64_t now
        if self.by_hand:                # read without a call: an experiment sets the clock for each question
            us = self.clock.us
            now = PyLong_AsLongLongAndOverflow(us, &beyond) if type(us) is int else -1
            if not beyond and 0 <= now < EXACT:
                return now
        return read_clock(self.clock)

    cdef inline bint files_are_there(self, int64_t now) except -1:
        """Ask the store once a second whether its files are there; the store makes removed files again if it can.

        The store is not asked while a thread waits for a stripe: the thread would wake up in another table.
        """
        if 0 <= now - self.looked < 1_000_000 or (self.napping and self.me):
            return True
        if not self.look_after() or self.me == 0:
            return False
        self.looked = now
        return True

    cdef bint is_alive(self, int64_t signature) noexcept nogil:
        """Return whether the process with this signature still runs: it holds its byte, under the same generation."""
        cdef int64_t number = (signature >> 32) - 1
        if signature == self.me:
            return True
        if not 0 <= number < PARTICIPANTS:
            return False
        if <uint32_t> headgate_load(&self.generations[number]) != <uint32_t> signature:
            return False
        return not headgate_byte_is_free(self.roll, number)


def no_report(limit, table):
    """Report no eviction."""
