/* Bytes of pages before they are decompressed: their checksum, and how much they hold.
 *
 * pyarrow's codecs do not tell how many bytes they wrote. Where a damaged page holds fewer than its
 * header says, what follows them would be whatever the memory held; so it is asked for beforehand. */
#include <stdint.h>
#include <string.h>

/* 16 bytes at a time: table k has a byte's part in the checksum when k bytes follow it. */
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

static uint32_t checksum_of(const uint8_t *at, size_t count) {
    uint32_t sum = 0xffffffffu;
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
    return ~sum;
}

static uint64_t lz4_length(Bytes *bytes, uint64_t length) {
    int byte = 255;
    while (length >= 15 && byte == 255 && !bytes->problem)
        length += (uint64_t)(byte = next_byte(bytes));
    return length;
}

/* Walk over the sequences of a block: literals, then a copy of what came before. */
static int64_t lz4_content(Bytes *bytes) {
    uint64_t found = 0;
    while (!bytes->problem) {
        int token = next_byte(bytes);
        uint64_t literals = lz4_length(bytes, (uint64_t)token >> 4);
        skip(bytes, literals);
        found += literals;
        if (bytes->at == bytes->end)
            break;
        skip(bytes, 2);
        found += lz4_length(bytes, (uint64_t)token & 15) + 4;
    }
    return (int64_t)found;
}

/* A frame's head: magic number, what follows, and the size of the content if it is told. */
static int64_t zstd_content(Bytes *bytes) {
    static const int size_bytes[4] = {0, 2, 4, 8}, dictionary_bytes[4] = {0, 1, 2, 4};
    uint64_t size = 0;
    for (int i = 0; i < 4; i++)
        if (next_byte(bytes) != (int)(0xfd2fb528u >> 8 * i & 255))
            return -1;
    int head = next_byte(bytes), single = head >> 5 & 1, count = size_bytes[head >> 6];
    if (!count && !single)
        return -1;
    skip(bytes, (uint64_t)!single + (uint64_t)dictionary_bytes[head & 3]);
    count = count ? count : 1;
    for (int i = 0; i < count; i++)
        size |= (uint64_t)next_byte(bytes) << 8 * i;
    return size >> 62 ? -1 : (int64_t)(size + (count == 2 ? 256 : 0));
}
