/* Decodes the values of pages: dictionary ids, which are run-length encoded or bit-packed, and the
 * levels that mark nulls. */
#include <stdint.h>
#include <string.h>

/* The compiler builds one version per instruction set; the best is chosen when the module loads. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && \
    !defined(__SANITIZE_ADDRESS__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#define BLOCK 1024 /* ids that are unpacked at once, to stay in the L1 cache; a multiple of 8 */
#define PADDING 16 /* bytes that may be read beyond the last id */

/* Eight ids of W bits are W bytes. W is a constant, so that the compiler unrolls the loop. */
#define CASE_OF_WIDTH(W)                                                                \
    case W:                                                                             \
        for (int64_t g = 0; g < groups; g++, from += W, ids += 8)                       \
            for (int i = 0; i < 8; i++) {                                               \
                uint64_t word;                                                          \
                memcpy(&word, from + (i * W >> 3), 8);                                  \
                ids[i] = (uint32_t)(word >> (i * W & 7)) & (uint32_t)((1ull << W) - 1); \
            }                                                                           \
        break;

/* Unpack groups of eight ids. `PADDING` bytes after the last group must be readable. The machine must
 * be little-endian, as parquet is. */
static void unpack(const uint8_t *restrict from, uint32_t *restrict ids, int64_t groups, int width) {
    switch (width) {
        CASE_OF_WIDTH(1) CASE_OF_WIDTH(2) CASE_OF_WIDTH(3) CASE_OF_WIDTH(4)
        CASE_OF_WIDTH(5) CASE_OF_WIDTH(6) CASE_OF_WIDTH(7) CASE_OF_WIDTH(8)
        CASE_OF_WIDTH(9) CASE_OF_WIDTH(10) CASE_OF_WIDTH(11) CASE_OF_WIDTH(12)
        CASE_OF_WIDTH(13) CASE_OF_WIDTH(14) CASE_OF_WIDTH(15) CASE_OF_WIDTH(16)
        CASE_OF_WIDTH(17) CASE_OF_WIDTH(18) CASE_OF_WIDTH(19) CASE_OF_WIDTH(20)
        CASE_OF_WIDTH(21) CASE_OF_WIDTH(22) CASE_OF_WIDTH(23) CASE_OF_WIDTH(24)
        CASE_OF_WIDTH(25) CASE_OF_WIDTH(26) CASE_OF_WIDTH(27) CASE_OF_WIDTH(28)
        CASE_OF_WIDTH(29) CASE_OF_WIDTH(30) CASE_OF_WIDTH(31) CASE_OF_WIDTH(32)
    }
}

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <immintrin.h>
#define MOST_SHUFFLED_WIDTH 25 /* such an id is within four bytes, at any bit offset */

/* The same, eight ids at a time: each half of a register gets the bytes of four ids; a shuffle moves
 * the bytes of each id to its place, and a shift aligns them. */
__attribute__((target("avx2"))) static void
unpack_by_shuffles(const uint8_t *from, uint32_t *ids, int64_t groups, int width) {
    int second = 4 * width / 8; /* the byte in which the fifth id begins */
    uint8_t bytes[32];
    uint32_t shifts[8];
    for (int i = 0; i < 8; i++) {
        int bit = i * width - (i < 4 ? 0 : 8 * second);
        shifts[i] = (uint32_t)(bit % 8);
        for (int b = 0; b < 4; b++)
            bytes[4 * i + b] = (uint8_t)(bit / 8 + b);
    }
    const __m256i places = _mm256_loadu_si256((const __m256i *)bytes);
    const __m256i shift = _mm256_loadu_si256((const __m256i *)shifts);
    const __m256i mask = _mm256_set1_epi32((int)((1u << width) - 1));
    for (int64_t g = 0; g < groups; g++, from += width, ids += 8) {
        __m256i both = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)from));
        both = _mm256_inserti128_si256(both, _mm_loadu_si128((const __m128i *)(from + second)), 1);
        both = _mm256_srlv_epi32(_mm256_shuffle_epi8(both, places), shift);
        _mm256_storeu_si256((__m256i *)ids, _mm256_and_si256(both, mask));
    }
}

static int can_shuffle(int width) {
    return width <= MOST_SHUFFLED_WIDTH && __builtin_cpu_supports("avx2");
}
#else
#define unpack_by_shuffles unpack
#define can_shuffle(width) 0
#endif

FOR_EACH_PROCESSOR static uint32_t largest_of(const uint32_t *ids, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = ids[i] > largest ? ids[i] : largest;
    return largest;
}

#define LOOKUP(NAME, TYPE)                                                                 \
    FOR_EACH_PROCESSOR static void NAME(                                                   \
        const uint32_t *restrict ids, const TYPE *restrict dictionary, TYPE *restrict out, \
        int64_t count                                                                      \
    ) {                                                                                    \
        for (int64_t i = 0; i < count; i++)                                                \
            out[i] = dictionary[ids[i]];                                                   \
    }
#define REPEAT(NAME, TYPE)                                                           \
    FOR_EACH_PROCESSOR static void NAME(TYPE *restrict out, TYPE value, int64_t count) { \
        for (int64_t i = 0; i < count; i++)                                          \
            out[i] = value;                                                          \
    }

/* Unrolled by four: otherwise compilers use gathers of four bytes per value, which take two to four
 * times as long. */
#define LOOKUP_NARROW(NAME, TYPE)                                                          \
    FOR_EACH_PROCESSOR static void NAME(                                                   \
        const uint32_t *restrict ids, const TYPE *restrict dictionary, TYPE *restrict out, \
        int64_t count                                                                      \
    ) {                                                                                    \
        int64_t i = 0;                                                                     \
        for (; i + 4 <= count; i += 4) {                                                   \
            TYPE a = dictionary[ids[i]], b = dictionary[ids[i + 1]];                       \
            TYPE c = dictionary[ids[i + 2]], d = dictionary[ids[i + 3]];                   \
            out[i] = a, out[i + 1] = b, out[i + 2] = c, out[i + 3] = d;                    \
        }                                                                                  \
        for (; i < count; i++)                                                             \
            out[i] = dictionary[ids[i]];                                                   \
    }

LOOKUP_NARROW(lookup8, uint8_t)
LOOKUP_NARROW(lookup16, uint16_t)
LOOKUP(lookup32, uint32_t)
LOOKUP(lookup64, uint64_t)
REPEAT(repeat16, uint16_t)
REPEAT(repeat32, uint32_t)
REPEAT(repeat64, uint64_t)

/* Write the dictionary's entry for each id; entries have 1, 2, 4 or 8 bytes. */
static void look_up(const uint32_t *ids, const void *dictionary, void *out, int64_t count,
                    int item_bytes) {
    switch (item_bytes) {
    case 1:
        lookup8(ids, dictionary, out, count);
        break;
    case 2:
        lookup16(ids, dictionary, out, count);
        break;
    case 4:
        lookup32(ids, dictionary, out, count);
        break;
    default:
        lookup64(ids, dictionary, out, count);
    }
}

/* Write a dictionary's entry `count` times. */
static void repeat(const void *dictionary, int64_t id, void *out, int64_t count, int item_bytes) {
    switch (item_bytes) {
    case 1:
        memset(out, ((const uint8_t *)dictionary)[id], (size_t)count);
        break;
    case 2:
        repeat16(out, ((const uint16_t *)dictionary)[id], count);
        break;
    case 4:
        repeat32(out, ((const uint32_t *)dictionary)[id], count);
        break;
    default:
        repeat64(out, ((const uint64_t *)dictionary)[id], count);
    }
}

/* The position in a sequence of runs of ids or levels. */
typedef struct {
    int64_t position; /* offset of the next run's header, or of a packed run's next byte */
    int64_t width;    /* bits of an id */
    int64_t left;     /* ids left in the run */
    int64_t packed;   /* whether the run is bit-packed; otherwise `id` repeats */
    int64_t id;
    int64_t inside;   /* ids taken of the packed group at `position`, 0 to 7 */
} Run;

/* Read the header of the next run. A packed run must end within the page. */
static const char *next_run(const uint8_t *page, int64_t length, Run *run) {
    Bytes bytes = {page + run->position, page + length, NULL};
    uint64_t head = next_number(&bytes, 32);
    int64_t count = (int64_t)(head >> 1);
    if (!bytes.problem && !count)
        refuse(&bytes, "a run is empty");
    int64_t room = bytes.end - bytes.at, id_bytes = (run->width + 7) / 8;
    run->packed = head & 1;
    run->inside = 0;
    if (run->packed) {
        run->left = count * 8;
        if (count * run->width > room)
            refuse(&bytes, "a run is longer than its page");
    } else {
        uint32_t id = 0;
        run->left = count;
        if (id_bytes > room) {
            refuse(&bytes, "a run is longer than its page");
        } else {
            memcpy(&id, bytes.at, (size_t)id_bytes);
            bytes.at += id_bytes;
            if ((uint64_t)id >> run->width)
                refuse(&bytes, "an id has more bits than others");
        }
        run->id = id;
    }
    run->position = bytes.at - page;
    return bytes.problem;
}

/* Unpack up to BLOCK ids of the packed run; `ids` has space for BLOCK + 8. Returns their number, and
 * sets *first to the index of the first one in `ids`. */
static int64_t take_packed(const uint8_t *page, int64_t length, Run *run, int64_t wanted,
                           uint32_t *ids, int64_t *first) {
    uint8_t copy[(BLOCK / 8 + 1) * 32 + PADDING];
    int64_t count = run->left < wanted ? run->left : wanted;
    count = count < BLOCK ? count : BLOCK;
    int64_t groups = (run->inside + count + 7) / 8, num_bytes = groups * run->width;
    const uint8_t *from = page + run->position;
    if (num_bytes + PADDING > length - run->position) {
        memcpy(copy, from, (size_t)num_bytes);
        memset(copy + num_bytes, 0, PADDING);
        from = copy;
    }
    if (can_shuffle((int)run->width))
        unpack_by_shuffles(from, ids, groups, (int)run->width);
    else
        unpack(from, ids, groups, (int)run->width);
    *first = run->inside;
    run->position += (run->inside + count) / 8 * run->width;
    run->inside = (run->inside + count) % 8;
    run->left -= count;
    if (!run->left && run->inside)
        run->position += run->width, run->inside = 0;
    return count;
}

/* Write the dictionary's entries for the next `count` ids. */
static const char *lookup(const uint8_t *page, int64_t length, Run *run, const void *dictionary,
                          int64_t num_entries, void *out, int64_t count, int item_bytes) {
    uint32_t ids[BLOCK + 8];
    for (int64_t done = 0, some, first; done < count; done += some) {
        if (!run->left) {
            const char *problem = next_run(page, length, run);
            if (problem)
                return problem;
        }
        char *to = (char *)out + done * item_bytes;
        if (run->packed) {
            some = take_packed(page, length, run, count - done, ids, &first);
            if (largest_of(ids + first, some) >= num_entries)
                return "an id is beyond its dictionary";
            look_up(ids + first, dictionary, to, some, item_bytes);
            continue;
        }
        some = run->left < count - done ? run->left : count - done;
        if (run->id >= num_entries)
            return "an id is beyond its dictionary";
        repeat(dictionary, run->id, to, some, item_bytes);
        run->left -= some;
    }
    return NULL;
}

/* Return how many of the first `count` bits are 1. */
FOR_EACH_PROCESSOR static int64_t ones_of(const uint8_t *bits, int64_t count) {
    int64_t ones = 0, whole = count / 64;
    for (int64_t i = 0; i < whole; i++) {
        uint64_t word;
        memcpy(&word, bits + 8 * i, 8);
        ones += __builtin_popcountll(word);
    }
    for (int64_t i = 64 * whole; i < count; i++)
        ones += bits[i / 8] >> i % 8 & 1;
    return ones;
}

/* Set *ones to the number of a page's levels, of one bit each, that are 1: the values that are not
 * null. The levels must fill all `length` bytes. */
static const char *count_levels(const uint8_t *levels, int64_t length, int64_t num_values,
                                int64_t *ones) {
    Run run = {.width = 1};
    for (*ones = 0; num_values > 0; num_values -= run.left) {
        const char *problem = next_run(levels, length, &run);
        if (problem)
            return problem;
        if (run.left - num_values > (run.packed ? 7 : 0))
            return "there are more levels than values";
        int64_t count = run.left < num_values ? run.left : num_values;
        if (run.packed) {
            *ones += ones_of(levels + run.position, count);
            run.position += run.left / 8;
        } else if (run.id) {
            *ones += count;
        }
    }
    return run.position == length ? NULL : "there are more levels than values";
}

/* Write the next `count` levels, one byte each. `count_levels` has checked that they exist. */
static void take_levels(const uint8_t *levels, int64_t length, Run *run, uint8_t *out,
                        int64_t count) {
    while (count > 0) {
        if (!run->left && next_run(levels, length, run))
            return;
        int64_t some = run->left < count ? run->left : count;
        if (!run->packed)
            memset(out, (int)run->id, (size_t)some);
        for (int64_t i = 0; run->packed && i < some;) {
            uint64_t byte = levels[run->position];
            if (!run->inside && some - i >= 8) { /* spread bit k to byte k */
                uint64_t spread = byte * 0x0101010101010101u & 0x8040201008040201u;
                spread = (spread + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
                memcpy(out + i, &spread, 8);
                run->position++;
                i += 8;
                continue;
            }
            out[i++] = (uint8_t)(byte >> run->inside & 1);
            run->inside = (run->inside + 1) % 8;
            run->position += !run->inside;
        }
        run->left -= some;
        if (!run->left && run->inside)
            run->position++, run->inside = 0;
        out += some;
        count -= some;
    }
}

/* Write the values to the places whose level is 1, and `fill` to the others. */
#define SPREAD(NAME, TYPE)                                                                    \
    FOR_EACH_PROCESSOR static void NAME(const uint8_t *restrict levels,                       \
                                        const TYPE *restrict values, TYPE fill,               \
                                        TYPE *restrict out, int64_t count) {                  \
        for (int64_t i = 0, next = 0; i < count; next += levels[i++])                         \
            out[i] = levels[i] ? values[next] : fill;                                         \
    }

SPREAD(spread8, uint8_t)
SPREAD(spread16, uint16_t)
SPREAD(spread32, uint32_t)
SPREAD(spread64, uint64_t)

/* The same for values of 1, 2, 4 or 8 bytes. */
static void spread(const uint8_t *levels, const void *values, uint64_t fill, void *out,
                   int64_t count, int item_bytes) {
    switch (item_bytes) {
    case 1:
        spread8(levels, values, (uint8_t)fill, out, count);
        break;
    case 2:
        spread16(levels, values, (uint16_t)fill, out, count);
        break;
    case 4:
        spread32(levels, values, (uint32_t)fill, out, count);
        break;
    default:
        spread64(levels, values, fill, out, count);
    }
}
