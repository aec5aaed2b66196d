/* Checksums of pages, and decompression of Snappy and LZ4. A page must have exactly as many bytes as
 * its header says. */
#include <stdint.h>
#include <string.h>

/* For checksums of 16 bytes at a time: table k has what a byte contributes if k bytes follow it. */
static uint32_t checksum_tables[16][256];

static void make_checksum_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        checksum_tables[0][byte] = sum;
    }
    for (int k = 1; k < 16; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t sum = checksum_tables[k - 1][byte];
            checksum_tables[k][byte] = sum >> 8 ^ checksum_tables[0][sum & 255];
        }
}

/* Return the checksum of earlier bytes, whose checksum is `sum`, and `count` more bytes. Neither
 * checksum is inverted. */
static uint32_t checksum_by_table(uint32_t sum, const uint8_t *at, size_t count) {
    for (; count >= 16; count -= 16, at += 16) {
        uint32_t words[4], next = 0;
        memcpy(words, at, 16);
        words[0] ^= sum;
#pragma GCC unroll 4
        for (int w = 0; w < 4; w++)
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++)
                next ^= checksum_tables[15 - 4 * w - b][words[w] >> 8 * b & 255];
        sum = next;
    }
    for (; count; count--, at++)
        sum = sum >> 8 ^ checksum_tables[0][(sum ^ *at) & 255];
    return sum;
}

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <immintrin.h>
#define MULTIPLY(A, B, HALVES) _mm_clmulepi64_si128(A, B, HALVES)
#define FOLD(X, KEYS) _mm_xor_si128(MULTIPLY(X, KEYS, 0x00), MULTIPLY(X, KEYS, 0x11))
#define AT(I) _mm_loadu_si128((const __m128i *)(at + 16 * (I)))

/* The same for 64 bytes or more, in steps of 64 (Gopal et al., Fast CRC computation, Intel 2009).
 * Bytes are polynomials: two products with powers of x, modulo the CRC's polynomial, shift 128 bits by
 * 512 or 128 bits. The result is 16 bytes with the same checksum, which the tables then compute. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
checksum_by_products(uint32_t sum, const uint8_t *at, size_t count) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i x[4] = {_mm_xor_si128(AT(0), _mm_cvtsi32_si128((int)sum)), AT(1), AT(2), AT(3)};
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64)
        for (int i = 0; i < 4; i++)
            x[i] = _mm_xor_si128(FOLD(x[i], by_512), AT(i));
    for (int i = 1; i < 4; i++)
        x[i] = _mm_xor_si128(FOLD(x[i - 1], by_128), x[i]);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, x[3]);
    return checksum_by_table(checksum_by_table(0, rest, 16), at, count);
}

static int has_products(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
#define checksum_by_products checksum_by_table
#define has_products() 0
#endif

static uint32_t checksum_of(const uint8_t *at, size_t count) {
    uint32_t none = 0xffffffffu;
    if (count >= 64 && has_products())
        return ~checksum_by_products(none, at, count);
    return ~checksum_by_table(none, at, count);
}

static uint64_t lz4_length(Bytes *bytes, uint64_t length) {
    int byte = 255;
    while (length >= 15 && byte == 255 && !bytes->problem)
        length += (uint64_t)(byte = next_byte(bytes));
    return length;
}

/* Copy `length` bytes from `offset` bytes before `to`; source and target may overlap. Up to `room`
 * bytes from `to` on may be overwritten. */
static void copy_before(uint8_t *to, uint64_t offset, uint64_t length, uint64_t room) {
    const uint8_t *from = to - offset;
    if (offset >= 16 && length + 16 <= room) {
        for (uint64_t done = 0; done < length; done += 16)
            memcpy(to + done, from + done, 16);
    } else if (offset >= 8 && length + 8 <= room) {
        for (uint64_t done = 0; done < length; done += 8)
            memcpy(to + done, from + done, 8);
    } else {
        for (uint64_t done = 0; done < length; done++)
            to[done] = from[done];
    }
}

/* Decompress an LZ4 block: pairs of literals and a copy of earlier output, and last literals only. The
 * output must have exactly `size` bytes. Returns what is wrong, or NULL. */
static const char *lz4_block(Bytes *bytes, uint8_t *out, uint64_t size) {
    uint64_t done = 0;
    for (;;) {
        int token = next_byte(bytes);
        uint64_t literals = lz4_length(bytes, (uint64_t)token >> 4);
        const uint8_t *from = bytes->at;
        uint64_t left = (uint64_t)(bytes->end - from), room = size - done;
        if (bytes->problem || literals > left || literals > room)
            return "a page cannot be decompressed";
        if (literals <= 16 && left >= 16 && room >= 16)
            memcpy(out + done, from, 16);
        else
            memcpy(out + done, from, (size_t)literals);
        bytes->at += literals;
        done += literals;
        if (bytes->at == bytes->end)
            return done == size ? NULL : "a page does not hold as much as its header says";
        /* The limits of LZ4's own decoder, so that blocks that Arrow rejects are rejected here, too. */
        if (bytes->end - bytes->at < 8 || size - done < 12)
            return "a page cannot be decompressed";
        uint64_t offset = (uint64_t)next_byte(bytes);
        offset |= (uint64_t)next_byte(bytes) << 8;
        uint64_t length = lz4_length(bytes, (uint64_t)token & 15) + 4;
        if (bytes->problem || !offset || offset > done || length + 5 > size - done)
            return "a page cannot be decompressed";
        copy_before(out + done, offset, length, size - done);
        done += length;
    }
}

/* Read a little-endian number of `count` bytes. */
static uint64_t next_little(Bytes *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)next_byte(bytes) << 8 * i;
    return value;
}

/* Decompress a Snappy block: its size, then literals and copies of earlier output. The output must
 * have exactly `size` bytes. Returns what is wrong, or NULL. */
static const char *snappy_block(Bytes *bytes, uint8_t *out, uint64_t size) {
    uint64_t done = 0;
    if (next_number(bytes, 32) != size || bytes->problem)
        return "a page does not hold as much as its header says";
    while (bytes->at < bytes->end) {
        int tag = *bytes->at++;
        uint64_t left = (uint64_t)(bytes->end - bytes->at), room = size - done;
        if (!(tag & 3)) {
            uint64_t length = (uint64_t)(tag >> 2) + 1;
            if (length <= 16 && left >= 16 && room >= 16) {
                memcpy(out + done, bytes->at, 16);
            } else {
                if (length > 60)
                    length = next_little(bytes, (int)length - 60) + 1;
                left = (uint64_t)(bytes->end - bytes->at);
                if (bytes->problem || length > left || length > room)
                    return "a page cannot be decompressed";
                memcpy(out + done, bytes->at, (size_t)length);
            }
            bytes->at += length;
            done += length;
            continue;
        }
        uint64_t length = (uint64_t)(tag >> 2) + 1, offset;
        if ((tag & 3) == 1) {
            length = (uint64_t)(tag >> 2 & 7) + 4;
            offset = (uint64_t)(tag >> 5) << 8 | (uint64_t)next_byte(bytes);
        } else {
            offset = next_little(bytes, (tag & 3) == 2 ? 2 : 4);
        }
        if (bytes->problem || !offset || offset > done || length > room)
            return "a page cannot be decompressed";
        copy_before(out + done, offset, length, room);
        done += length;
    }
    return done == size ? NULL : "a page does not hold as much as its header says";
}
