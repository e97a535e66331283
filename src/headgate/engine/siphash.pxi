# SipHash-1-3 (Aumasson and Bernstein, 2012) over the buffer of a str, so that clients cannot aim at one set of a table.

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    #define headgate_str_ready(text) PyUnicode_READY(text)
    #else
    #define headgate_str_ready(text) 0
    #endif
    """
    int headgate_str_ready(object text) except -1
    int PyUnicode_KIND(object text)
    const void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef inline uint64_t rotate(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)

cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]; v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]; v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]; v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]; v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)

cdef inline uint64_t tail(const uint8_t* data, size_t size) noexcept nogil:
    # The bytes after the last whole word, without a copy of odd length, which would take as long as the hash.
    cdef uint64_t word
    cdef uint32_t low, high
    cdef size_t rest = size & 7
    if rest == 0:
        return 0
    if size > 8:
        memcpy(&word, data + size - 8, 8)
        return word >> (64 - 8 * rest)
    if rest >= 4:
        memcpy(&low, data, 4)
        memcpy(&high, data + rest - 4, 4)
        return low | <uint64_t> high << (8 * (rest - 4))
    return data[0] | <uint64_t> data[rest >> 1] << (8 * (rest >> 1)) | <uint64_t> data[rest - 1] << (8 * (rest - 1))

cdef inline uint64_t sip_hash(const uint8_t* data, size_t size, uint64_t k0, uint64_t k1, uint64_t salt) noexcept nogil:
    cdef uint64_t[4] v
    cdef uint64_t word, last = <uint64_t> size << 56
    cdef size_t at = 0, whole = size & ~(<size_t> 7)
    v[0] = k0 ^ <uint64_t> 0x736f6d6570736575ULL
    v[1] = k1 ^ <uint64_t> 0x646f72616e646f6dULL
    v[2] = k0 ^ <uint64_t> 0x6c7967656e657261ULL
    v[3] = k1 ^ <uint64_t> 0x7465646279746573ULL ^ salt
    while at < whole:
        memcpy(&word, data + at, 8)
        v[3] ^= word
        sip_round(v)
        v[0] ^= word
        at += 8
    last |= tail(data, size)
    v[3] ^= last
    sip_round(v)
    v[0] ^= last
    v[2] ^= 0xff
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]

cdef inline uint64_t hash_of(object key, uint64_t k0, uint64_t k1) except? 0:
    # Equal strings have equal buffers, but unequal strings of different widths may too: the width is hashed as well.
    cdef int width
    headgate_str_ready(key)
    width = PyUnicode_KIND(key)
    return sip_hash(<const uint8_t*> PyUnicode_DATA(key), <size_t> PyUnicode_GET_LENGTH(key) * width, k0, k1, width)

cdef inline uint64_t tag_from(uint64_t hashed, uint64_t name) noexcept nogil:
    # Limits of several names share a table, so the name is in the tag. 0 marks an empty slot, so no tag is 0.
    cdef uint64_t tag = hashed ^ name
    return tag if tag else 1
