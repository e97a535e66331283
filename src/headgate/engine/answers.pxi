# Decisions from answers.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define headgate_held_by_one(thing) 0
    #define HEADGATE_FREE_THREADED 1
    #else
    #define headgate_held_by_one(thing) (Py_REFCNT(thing) == 1)
    #define HEADGATE_FREE_THREADED 0
    #endif
    """
    bint FREE_THREADED "HEADGATE_FREE_THREADED"
    bint headgate_held_by_one(PyObject* thing) nogil


cdef object answer_one(Decider decider, key, int64_t cost, Mode mode, const Answer* seen, int64_t epoch):
    cdef Decision decision
    # Most decisions are read and dropped. A decision without other references is written again, as zip() does with its
    # tuples, which saves making and freeing an object. Two decisions alternate, because a caller keeps the last answer
    # until it has the next.
    if not headgate_held_by_one(<PyObject*> decider.other):
        decision = decider.fresh()
        if not FREE_THREADED:
            decider.other = decision
    else:
        decision = decider.other
    if not FREE_THREADED:
        decider.spare, decider.other = decider.other, decider.spare
    decision.allowed = seen.allowed
    decision.remaining = seen.remaining
    decision.retry_us = seen.retry
    decision.reset_us = seen.reset
    decision._keys = key
    decision._cost = cost
    decision._given = cost if mode == M_PEEK else 0
    decision._mark_us = seen.mark_us + epoch
    decision._mark_num = seen.mark_num
    decision._held = False              # a permit may have been dropped without a release
    return decision


cdef inline int64_t rank_of(int64_t retry) noexcept nogil:
    """Return the rank of a retry: times first, then NOBODY_KNOWS, then NEVER_FITS."""
    return INT64_MAX if retry == NEVER_FITS else INT64_MAX - 1 if retry == NOBODY_KNOWS else retry


cdef Py_ssize_t tightest_of(const Work* work, const Answer* seen) noexcept nogil:
    """Like `tightest` in decision.py; a test compares both."""
    cdef int64_t further, fewest = INT64_MAX
    cdef bint same = True
    cdef Py_ssize_t at, found = 0
    for at in range(1, work.count):
        same = same and work.cost[at] == work.cost[0]
    for at in range(work.count):
        further = seen[at].remaining
        if not same:
            further = further // work.cost[at] if work.cost[at] else INT64_MAX
        if further < fewest:
            fewest, found = further, at
    return found


cdef object answer_many(Decider decider, keys, costs, const Work* work, const Answer* seen):
    """Return the Decision over several answers, by the rules of Decision.__init__; a test compares both."""
    cdef int64_t[CALLS * ANSWER_WORDS] flat
    cdef int64_t* row = flat
    cdef BoundLimit bound
    cdef Py_ssize_t at, binding = 0, least
    cdef int64_t longest = -1, reset = 0, delay = 0
    cdef bint allowed = True
    cdef Decision decision = decider.fresh()
    for at in range(work.count):
        bound = <BoundLimit> decider.bounds[at]
        row[0], row[1], row[2], row[3] = seen[at].allowed, seen[at].remaining, seen[at].retry, seen[at].reset
        row[4], row[5] = seen[at].mark_us + bound.epoch(), seen[at].mark_num
        row += ANSWER_WORDS
        reset = NOBODY_KNOWS if NOBODY_KNOWS in (reset, seen[at].reset) else max(reset, seen[at].reset)
        delay = max(delay, seen[at].retry)
        allowed = allowed and seen[at].allowed
    least = binding = tightest_of(work, seen)
    if not allowed:
        for at in range(work.count):
            if rank_of(seen[at].retry) > longest:
                longest, binding = rank_of(seen[at].retry), at
    if costs is None or work.mode == M_UP_TO:
        costs = work.cost[0]
    decision.allowed = allowed
    decision.remaining = seen[least].remaining
    decision.retry_us = delay if allowed else seen[binding].retry
    decision.reset_us = reset
    decision._keys = keys
    decision._bound = binding
    decision._cost = work.cost[binding]
    decision._given = work.cost[binding] if work.mode == M_PEEK else 0
    decision._mark_us = seen[binding].mark_us + (<BoundLimit> decider.bounds[binding]).epoch()
    decision._mark_num = seen[binding].mark_num
    answers = PyBytes_FromStringAndSize(<char*> flat, work.count * ANSWER_WORDS * sizeof(int64_t))
    decision._more = (costs, answers)
    decision._returned = tuple([work.cost[at] for at in range(work.count)]) if work.mode == M_PEEK else None
    return decision
