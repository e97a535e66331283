# Memory that processes share: ordered loads and stores, compare-and-swap, and locks on bytes of a file. A lock belongs to
# an open file description, so it ends with the process, however the process ends.

cdef extern from *:
    """
    #include <fcntl.h>
    #include <unistd.h>
    static inline int64_t headgate_load(const int64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static inline void headgate_store(int64_t* at, int64_t word) { __atomic_store_n(at, word, __ATOMIC_RELEASE); }
    static inline int64_t headgate_add(int64_t* at, int64_t n) { return __atomic_add_fetch(at, n, __ATOMIC_RELAXED); }
    static inline int headgate_swap(int64_t* at, int64_t old, int64_t word) {
        return __atomic_compare_exchange_n(at, &old, word, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline void headgate_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    #if defined(F_OFD_SETLK) && defined(F_OFD_GETLK)
    #define HEADGATE_SHARES 1
    static int headgate_byte_lock(int fd, int64_t byte, int command) {
        struct flock lock = {0};
        lock.l_type = F_WRLCK; lock.l_whence = SEEK_SET; lock.l_start = byte; lock.l_len = 1;
        if (fcntl(fd, command, &lock) != 0) return -1;
        return lock.l_type == F_UNLCK ? 0 : 1;
    }
    static int headgate_take_byte(int fd, int64_t byte) { return headgate_byte_lock(fd, byte, F_OFD_SETLK) != -1; }
    static int headgate_byte_is_free(int fd, int64_t byte) { return headgate_byte_lock(fd, byte, F_OFD_GETLK) == 0; }
    #else
    #define HEADGATE_SHARES 0
    static int headgate_take_byte(int fd, int64_t byte) { return 0; }
    static int headgate_byte_is_free(int fd, int64_t byte) { return 0; }
    #endif
    """
    int64_t headgate_load(const int64_t* at) noexcept nogil
    void headgate_store(int64_t* at, int64_t word) noexcept nogil
    int64_t headgate_add(int64_t* at, int64_t n) noexcept nogil
    bint headgate_swap(int64_t* at, int64_t old, int64_t word) noexcept nogil
    void headgate_fence() noexcept nogil
    bint HEADGATE_SHARES
    bint headgate_take_byte(int fd, int64_t byte) noexcept nogil
    bint headgate_byte_is_free(int fd, int64_t byte) noexcept nogil


cdef inline int64_t steady_ns() noexcept nogil:
    cdef timespec ts
    clock_gettime(CLOCK_MONOTONIC, &ts)
    return ts.tv_sec * 1_000_000_000 + ts.tv_nsec


cdef int64_t HELD = <int64_t> 1 << 63   # in the word of a bucket: its stripe is held

# The times that a thread waits for a lock word: see SharedTable.wait_for.
cdef int64_t TEST_AFTER_NS = 1_000_000
cdef int64_t LONGEST_NAP_NS = 400_000
# About a quarter of a second, and longer on a busy machine, where a nap takes longer too: a holder that lost its core to
# other work must have it back by then. Only a holder that is stopped keeps its lock for so long.
cdef int GIVE_UP_AFTER_NAPS = 500
