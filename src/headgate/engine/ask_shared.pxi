# Decisions over shared tables: the files are checked first, and a fallback answers if the tables cannot.
#
# The caller holds the lock of the engine: the files may be exchanged only where a thread calls Python or sleeps.

cdef object ask_shared_one(Decider decider, key, int64_t cost, Mode mode, int64_t wait):
    cdef BoundLimit bound = decider.only
    cdef Answer seen
    cdef Work work
    cdef int64_t now = decider.engine.now()
    if not decider.engine.files_are_there(now):
        return ask_instead(decider, key, (cost,), mode, wait)
    if decider.engine.late:
        decider.engine.give_late()
    work.count, work.mode, work.wait, work.cost[0] = 1, mode, wait, cost
    work.tags[0] = tag_from(hash_of(key, decider.engine.k0, decider.engine.k1), bound.name)
    work.nows[0] = bound.common.instant(now)
    if not (bound.common.one_word
            and charge_lock_free(bound, work.tags[0], work.nows[0], &work.cost[0], mode, wait, &seen)):
        work.cost[0] = cost
        if where_keys_are(decider, &work, settle_holding, &seen) != DONE:
            return ask_instead(decider, key, (cost,), mode, wait)
    return answer_one(decider, key, work.cost[0], mode, &seen, bound.common.head.epoch)


cdef object ask_shared(Decider decider, keys, tuple costs, Work* work, Answer* seen):
    cdef int64_t now = decider.engine.now()
    cdef Py_ssize_t at
    asked = costs if costs is not None else (work.cost[0],) * work.count
    if not decider.engine.files_are_there(now):
        return ask_instead(decider, keys, asked, work.mode, work.wait)
    if decider.engine.late:
        decider.engine.give_late()
    decider.write_work(keys, asked, 0, work.mode, work)        # again: the secret may have changed with the files
    for at in range(work.count):
        work.nows[at] = (<BoundLimit> decider.bounds[at]).common.instant(now)
    if where_keys_are(decider, work, settle_holding, seen) != DONE:
        return ask_instead(decider, keys, asked, work.mode, work.wait)
    return answer_many(decider, keys, costs, work, seen)


cdef object ask_instead(Decider decider, keys, tuple costs, Mode mode, int64_t wait):
    """Return the fallback's answer: a process that holds a stripe is stopped, or the files are gone."""
    if decider.instead is None:
        raise StoreError("the shared table cannot answer now: a process that holds it is stopped, or its files are gone")
    return decider.instead(decider.limits, keys, costs, mode, wait)


cdef int give_shared(Decider decider, keys, Work* work) except -1:
    """Give back units; permits that a stuck table does not take back are given back with the next decision."""
    cdef Py_ssize_t at
    cdef int64_t now = decider.engine.now()
    if not decider.engine.files_are_there(now):
        return 0
    for at in range(work.count):
        work.nows[at] = (<BoundLimit> decider.bounds[at]).common.instant(now)
    if where_keys_are(decider, work, give_holding, NULL) != DONE:
        held = [at for at in range(work.count) if (<BoundLimit> decider.bounds[at]).holds_permits and work.cost[at]]
        if held:
            each = (keys,) * work.count if type(keys) is str else keys
            amounts = tuple([work.cost[at] if at in held else 0 for at in range(work.count)])
            marks = tuple([(work.mark_us[at], work.mark_num[at]) for at in range(work.count)])
            decider.engine.late.append((decider, each, amounts, marks))
    return 0


cdef int at_shared_key(Decider decider, key, int64_t now, attempt_fn attempt, void* out) except -1:
    """Call `attempt` with the bound limits on the tables that have the key."""
    cdef Work work
    cdef Py_ssize_t at
    if not decider.engine.files_are_there(now):
        raise StoreError("the files of the shared store are gone")
    if decider.engine.late:
        decider.engine.give_late()
    decider.write_work(key, None, 0, M_PEEK, &work)
    for at in range(work.count):
        work.nows[at] = (<BoundLimit> decider.bounds[at]).common.instant(now)
    if where_keys_are(decider, &work, attempt, out) != DONE:
        raise StoreError("a process that holds this part of the shared table is stopped")
    return 0
