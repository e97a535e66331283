# The roster in C: the kernels by kind. `__init__.py` beside this file is the same roster by name.

cdef struct Answer:
    # A Verdict with C integers, and the instant until which the block modifier blocks the key.
    bint allowed
    bint moved
    int64_t remaining
    int64_t retry
    int64_t reset
    int64_t mark_us
    int64_t mark_num
    int64_t until

# State and parameters are arrays of words; a kernel lays its own struct over them, fields in the order of its Params.
# The word after the last parameter is the number of words a state has in the table.
ctypedef void (*answer_fn)(const int64_t* state, const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil
ctypedef void (*lend_fn)(const int64_t* params, int64_t now, int64_t cost, Answer* out) noexcept nogil
ctypedef void (*charge_fn)(int64_t* state, const int64_t* params, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil
ctypedef void (*carry_fn)(const int64_t* state, int64_t words, int64_t* larger) noexcept nogil
ctypedef void (*give_fn)(int64_t* state, const int64_t* params, int64_t now, int64_t mark_us, int64_t mark_num, int64_t cost) noexcept nogil

cdef int64_t NEVER_FITS = _NEVER
cdef int64_t NOBODY_KNOWS = _UNKNOWN

cdef enum:
    MOST_WORDS = 10_003                 # of a state that is read as a whole: a window of 10,000 slots

cdef int64_t[MOST_WORDS + 1] NOTHING    # the state of a key that was never charged

include "bucket/kernel.pxi"
include "window/kernel.pxi"
include "log/kernel.pxi"
include "concurrency/kernel.pxi"
include "pause/kernel.pxi"
include "bounds/kernel.pxi"
include "block/kernel.pxi"

cdef struct Kernel:
    answer_fn answer
    lend_fn lend        # of a step that lends
    charge_fn charge
    give_fn give
    carry_fn carry      # of a step whose states differ in size: copies a small state into a larger one of zeros
    bint relative       # times are packed, and counted from the table's own epoch

cdef int find_kernel(str kind, Kernel* kernel) except -1:
    if kind == "bucket":
        kernel[0] = Kernel(bucket_answer, bucket_lend, bucket_charge, bucket_give, NULL, True)
    elif kind == "window":
        kernel[0] = Kernel(window_answer, NULL, window_charge, window_give, NULL, False)
    elif kind == "log":
        kernel[0] = Kernel(log_answer, NULL, log_charge, log_give, log_carry, False)
    elif kind == "concurrency":
        kernel[0] = Kernel(concurrency_answer, NULL, concurrency_charge, concurrency_give, concurrency_carry, False)
    elif kind == "pause":
        kernel[0] = Kernel(pause_answer, pause_lend, pause_charge, pause_give, NULL, False)
    elif kind == "bounds":
        kernel[0] = Kernel(bounds_answer, NULL, bounds_charge, bounds_give, NULL, False)
    else:
        raise LookupError(f"no native kernel for {kind!r}")
    return 0
