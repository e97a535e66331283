# The arguments of a decision, for private and for shared tables.

cdef enum Mode:
    M_TAKE, M_PEEK, M_UP_TO, M_RESERVE  # engine.modes, in the same order

cdef struct Work:
    # For each bound limit: the tag, the instant from the table's epoch, the cost, the slot (-1: none) and the word of a
    # bucket.
    int count
    Mode mode
    int64_t wait
    int64_t ahead                       # what is left of a pause, at whose end a reservation is charged
    uint64_t[CALLS] tags
    int64_t[CALLS] nows
    int64_t[CALLS] cost
    int64_t[CALLS] slots
    int64_t[CALLS] words
    # The mark of each charge that is given back; a negative instant means now.
    int64_t[CALLS] mark_us
    int64_t[CALLS] mark_num
