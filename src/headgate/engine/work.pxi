# What a decision is while it is taken: the same for private tables and for shared ones.

cdef enum Mode:
    M_TAKE, M_PEEK, M_UP_TO, M_RESERVE  # engine.modes, in the same order

cdef struct Work:
    # One decision: of each bound the tag, the instant in its table's terms, the cost, the slot (-1: none) and, of a bucket,
    # the word that was found there.
    int count
    Mode mode
    int64_t wait
    uint64_t[CALLS] tags
    int64_t[CALLS] nows
    int64_t[CALLS] cost
    int64_t[CALLS] slots
    int64_t[CALLS] words
    # Of what is given back: where it was charged; a negative instant means now.
    int64_t[CALLS] mark_us
    int64_t[CALLS] mark_num
