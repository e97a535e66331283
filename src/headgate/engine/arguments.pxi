# The values that a verb checks without a Python frame: keys, and times to wait.

cdef enum:
    LONGEST_KEY_CHARS = 1024            # a key of at most 1,024 characters has at most 4,096 bytes

cdef object ZERO = 0
cdef object ONE = 1


cdef inline bint is_patience(timeout):
    """Return whether this is a valid time to wait; `wait` raises the error for any other value."""
    return timeout is ZERO or timeout is None or ((type(timeout) is float or type(timeout) is int) and timeout >= 0)


cdef inline bint is_plain(key):
    """Return whether this is a valid key; `checked_key` decides about any other value."""
    return isinstance(key, str) and 0 < PyUnicode_GET_LENGTH(key) <= LONGEST_KEY_CHARS
