# Plans: decisions by limits that are chosen for one call. Where the store has no room for them, the gate answers.

cdef object ask_plan(Decider decider, limit, key, cost, Mode mode):
    """Return the decision by the limits of this call."""
    cdef object chosen = decider.plan(limit)
    if type(chosen) is Decider:
        return (<Decider> chosen).ask(key, cost, mode)
    return chosen.answer(checked_key(key), checked_costs(chosen.limits, cost), mode, 0)


cdef object reserve_plan(Decider decider, limit, key, cost, int64_t wait):
    """Return the reservation by the limits of this call."""
    cdef object chosen = decider.plan(limit)
    if type(chosen) is Decider:
        return (<Decider> chosen).reserve(key, cost, wait)
    return chosen.answer(checked_key(key), checked_costs(chosen.limits, cost), M_RESERVE, wait)
