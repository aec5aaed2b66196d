/* Reads the page headers of a column chunk: structs in Thrift's compact protocol.
 *
 * Headers with another layout than writers use are rejected, even if Arrow may read them: Arrow then
 * reads the column. So no value comes from bytes that Arrow would reject. */
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *at, *end;
    const char *problem; /* why the bytes cannot be read; reading then stops */
} Bytes;

enum { KIND_DATA = 0, KIND_DICTIONARY = 2, KIND_DATA_V2 = 3 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, BIT_PACKED = 4, RLE_DICTIONARY = 8 };
enum { TRUE_FIELD = 1, FALSE_FIELD = 2, I32 = 5, I64 = 6, BINARY = 8, STRUCT = 12 };

static uint64_t refuse(Bytes *bytes, const char *problem) {
    if (!bytes->problem)
        bytes->problem = problem;
    bytes->at = bytes->end;
    return 0;
}

static int next_byte(Bytes *bytes) {
    if (bytes->at >= bytes->end)
        return (int)refuse(bytes, "bytes end early");
    return *bytes->at++;
}

/* Read a varint (seven bits a byte, the lowest first) of at most `bits` bits. */
static uint64_t next_number(Bytes *bytes, int bits) {
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        int byte = next_byte(bytes);
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return bits < 64 && value >> bits ? refuse(bytes, "a number is too large") : value;
    }
    return refuse(bytes, "a number is too long");
}

static int64_t next_signed(Bytes *bytes, int bits) {
    uint64_t value = next_number(bytes, bits);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static void skip(Bytes *bytes, uint64_t count) {
    if (count > (uint64_t)(bytes->end - bytes->at))
        refuse(bytes, "bytes end early");
    else
        bytes->at += count;
}

/* Return the type of a struct's next field, 0 at the end, and set *number to the field's number.
 * Numbers must ascend. */
static int next_field(Bytes *bytes, int *number) {
    int head = next_byte(bytes), type = head & 15;
    if (!head || bytes->problem)
        return 0;
    int64_t next = head >> 4 ? *number + (head >> 4) : next_signed(bytes, 32);
    if (!type || next <= *number || next > INT16_MAX)
        return (int)refuse(bytes, "a field is out of order");
    *number = (int)next;
    return type;
}

static void skip_statistics(Bytes *bytes) {
    int number = 0, type;
    while ((type = next_field(bytes, &number))) {
        if (type == BINARY)
            skip(bytes, next_number(bytes, 32));
        else if (type == I64 || type == I32)
            next_number(bytes, 64);
        else if (type != TRUE_FIELD && type != FALSE_FIELD)
            refuse(bytes, "statistics hold a field of an unknown type");
    }
}

/* Read a struct's i32 and boolean fields to `fields`, by number. `types` has a letter for each number
 * from 1 on: i an i32, b a boolean, s statistics, - rejected. Returns a bit mask of the present
 * fields. */
static uint32_t next_struct(Bytes *bytes, const char *types, int64_t *fields) {
    uint32_t found = 0;
    int number = 0, type, count = (int)strlen(types);
    while ((type = next_field(bytes, &number))) {
        char expected = number <= count ? types[number - 1] : '-';
        if (expected == 'i' && type == I32)
            fields[number] = next_signed(bytes, 32);
        else if (expected == 'b' && (type == TRUE_FIELD || type == FALSE_FIELD))
            fields[number] = type == TRUE_FIELD;
        else if (expected == 's' && type == STRUCT)
            skip_statistics(bytes);
        else
            return (uint32_t)refuse(bytes, "a header holds an unknown field");
        found |= 1u << number;
    }
    return found;
}

/* A page, from its header. `levels_bytes` is -1 if the length of the levels is stored with them;
 * `num_nulls` is -1 if it follows only from the levels. */
typedef struct {
    int64_t kind, encoding, num_values, num_nulls, levels_bytes, is_compressed;
    int64_t uncompressed, compressed, crc;
} Page;

static int is_of_levels(int64_t encoding, int optional) {
    return encoding == RLE || (encoding == BIT_PACKED && !optional);
}

static void next_data_header(Bytes *bytes, Page *page, int optional) {
    int64_t fields[6] = {0};
    uint32_t found = next_struct(bytes, "iiiis", fields);
    if ((found & 0x1e) != 0x1e || !is_of_levels(fields[3], optional) || !is_of_levels(fields[4], 0))
        refuse(bytes, "a page's levels are of an unknown kind");
    page->num_values = fields[1];
    page->encoding = fields[2];
    page->is_compressed = 1;
    page->levels_bytes = -1;
}

static void next_data_header_v2(Bytes *bytes, Page *page, int optional) {
    int64_t fields[9] = {[7] = 1};
    uint32_t found = next_struct(bytes, "iiiiiibs", fields);
    if ((found & 0x7e) != 0x7e || fields[6] || fields[5] < 0 || (!optional && fields[5]))
        refuse(bytes, "a page's levels are of an unknown kind");
    if (fields[2] < 0 || fields[2] > (optional ? fields[1] : 0))
        refuse(bytes, "a page's nulls are no part of its values");
    if (fields[3] != fields[1])
        refuse(bytes, "a page's rows are not its values");
    page->num_values = fields[1];
    page->num_nulls = fields[2];
    page->encoding = fields[4];
    page->levels_bytes = fields[5];
    page->is_compressed = fields[7];
}

static void next_dictionary_header(Bytes *bytes, Page *page) {
    int64_t fields[4] = {0};
    uint32_t found = next_struct(bytes, "iib", fields);
    if ((found & 6) != 6)
        refuse(bytes, "a dictionary's header is incomplete");
    page->num_values = fields[1];
    page->encoding = fields[2];
    page->is_compressed = 1;
    page->levels_bytes = -1;
}

static void check_page(Bytes *bytes, const Page *page) {
    int is_dictionary = page->kind == KIND_DICTIONARY, in_ids = page->encoding == RLE_DICTIONARY;
    if (page->encoding != PLAIN && page->encoding != PLAIN_DICTIONARY && (is_dictionary || !in_ids))
        refuse(bytes, "an encoding that Arrow reads");
    if (page->compressed < 0 || page->uncompressed < 0 || page->levels_bytes > page->compressed ||
        page->levels_bytes > page->uncompressed || page->num_values < !is_dictionary)
        refuse(bytes, "a page's sizes are impossible");
}

/* Read the next header. Its page follows, and may extend beyond the bytes. */
static Page next_header(Bytes *bytes, int optional) {
    Page page = {.crc = -1, .kind = -1, .num_nulls = -1};
    int number = 0, type, needed = 0, body = 0;
    while ((type = next_field(bytes, &number))) {
        if (type == I32 && number <= 4) {
            int64_t value = next_signed(bytes, 32);
            *(number == 1   ? &page.kind
              : number == 2 ? &page.uncompressed
              : number == 3 ? &page.compressed
                            : &page.crc) = number == 4 ? (int64_t)(uint32_t)value : value;
            needed += number < 4;
        } else if (type != STRUCT || number != (page.kind == KIND_DATA        ? 5
                                                : page.kind == KIND_DICTIONARY ? 7
                                                : page.kind == KIND_DATA_V2    ? 8
                                                                               : -1)) {
            refuse(bytes, "a header holds an unknown field");
        } else {
            body = 1;
            if (number == 5)
                next_data_header(bytes, &page, optional);
            else if (number == 7)
                next_dictionary_header(bytes, &page);
            else
                next_data_header_v2(bytes, &page, optional);
        }
    }
    if (needed != 3 || !body)
        refuse(bytes, "a header is incomplete");
    check_page(bytes, &page);
    return page;
}

/* The same for a page that must be completely in the bytes. */
static Page next_page(Bytes *bytes, int optional) {
    Page page = next_header(bytes, optional);
    if (page.compressed > bytes->end - bytes->at)
        refuse(bytes, "a page is longer than its column chunk");
    return page;
}
