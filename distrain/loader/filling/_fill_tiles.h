/* Fills four columns at once from a tile: a copy of the columns, stored row by row. Part of _fill.c.
 *
 * Rows are gathered in a random order. Gathering a cell from a single column costs the processor a
 * line of 64 bytes from its L2 cache. In a tile, such a line contains the cells of four columns.
 * Building the tile takes a third of the time that it saves.
 */
#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <immintrin.h>

#define TILE_COLUMNS 4
#define TILE_ROW_BYTES (4 * TILE_COLUMNS)
#define TILE_CELLS 512 /* cells of each column that are gathered at a time: 8 KiB for four columns */

/* Convert values of a column to cells. */
#define TO_CELLS(NAME, TYPE, CELL)                                                               \
    FOR_EACH_PROCESSOR static void NAME(                                                         \
        const char *restrict source, uint32_t *restrict cells, Py_ssize_t count                  \
    ) {                                                                                          \
        for (Py_ssize_t i = 0; i < count; i++) {                                                 \
            LOAD(TYPE, value, source, i);                                                        \
            cells[i] = (CELL);                                                                   \
        }                                                                                        \
    }

TO_CELLS(cells_of_uint8, uint8_t, value)
TO_CELLS(cells_of_uint16, uint16_t, value)
TO_CELLS(cells_of_float64, double, bits_of((float)value))

/* The same; return 1 if all values fit into 32 bits. */
FOR_EACH_PROCESSOR static int cells_of_int64(const char *restrict source, uint32_t *restrict cells,
                                             Py_ssize_t count) {
    uint64_t all = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        LOAD(uint64_t, value, source, i);
        cells[i] = (uint32_t)value;
        all |= value;
    }
    return all <= UINT32_MAX;
}

/* Return `count` values of a column from row `first` on as cells: the column's memory if its values
 * are cells already, otherwise `converted`; NULL if a value does not fit into a cell. */
static const char *as_cells(const Work *work, Py_ssize_t column, Py_ssize_t first, uint32_t *converted,
                            Py_ssize_t count) {
    char type = work->types[column];
    const char *source = (const char *)work->sources[column].buf + first * bytes_of(type);
    if (type == 'B')
        cells_of_uint8(source, converted, count);
    else if (type == 'H')
        cells_of_uint16(source, converted, count);
    else if (type == 'd')
        cells_of_float64(source, converted, count);
    else if (type == 'q')
        return cells_of_int64(source, converted, count) ? (const char *)converted : NULL;
    else
        return source;
    return (const char *)converted;
}

static __m128i load_four(const char *from) { return _mm_loadu_si128((const __m128i *)from); }

/* Transpose four cells of each of four columns to four rows. */
static inline void transpose(const char *const from[TILE_COLUMNS], __m128i *rows) {
    __m128i a = load_four(from[0]), b = load_four(from[1]), c = load_four(from[2]), d = load_four(from[3]);
    __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
    _mm_store_si128(rows, _mm_unpacklo_epi64(ab, cd));
    _mm_store_si128(rows + 1, _mm_unpackhi_epi64(ab, cd));
    _mm_store_si128(rows + 2, _mm_unpacklo_epi64(ab_high, cd_high));
    _mm_store_si128(rows + 3, _mm_unpackhi_epi64(ab_high, cd_high));
}

/* Build the tile of four columns; return 0 if a value does not fit into a cell. */
static int make_tile(const Work *work, Py_ssize_t column, Py_ssize_t num_rows) {
    uint32_t converted[TILE_COLUMNS][TILE_CELLS], *tile = work->tile;
    for (Py_ssize_t row = 0; row < num_rows; row += TILE_CELLS) {
        Py_ssize_t count = least(num_rows - row, TILE_CELLS), i = 0;
        const char *from[TILE_COLUMNS];
        for (int k = 0; k < TILE_COLUMNS; k++)
            if (!(from[k] = as_cells(work, column + k, row, converted[k], count)))
                return 0;
        for (; i + 4 <= count; i += 4) {
            const char *four[] = {from[0] + 4 * i, from[1] + 4 * i, from[2] + 4 * i, from[3] + 4 * i};
            transpose(four, (__m128i *)(tile + TILE_COLUMNS * (row + i)));
        }
        for (; i < count; i++)
            for (int k = 0; k < TILE_COLUMNS; k++)
                memcpy(tile + TILE_COLUMNS * (row + i) + k, from[k] + 4 * i, 4);
    }
    return 1;
}

/* Return rows rows[0] and rows[4] of a tile in the two halves of a register. */
__attribute__((target("avx2"))) static inline __m256i two_rows(const __m128i *tile, const int32_t *rows) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(tile[rows[0]]), tile[rows[4]], 1);
}

__attribute__((target("avx2"))) static inline void store_eight(uint32_t *to, __m256i eight) {
    _mm256_storeu_si256((__m256i *)to, eight);
}

/* Gather `count` rows of the tile to four columns of cells. */
__attribute__((target("avx2"))) static void
gather_rows(const uint32_t *tile, const int32_t *rows, uint32_t *const cells[TILE_COLUMNS], Py_ssize_t count) {
    Py_ssize_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i *from = (const __m128i *)tile;
        __m256i a = two_rows(from, rows + i), b = two_rows(from, rows + i + 1);
        __m256i c = two_rows(from, rows + i + 2), d = two_rows(from, rows + i + 3);
        __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        __m256i ab_high = _mm256_unpackhi_epi32(a, b), cd_high = _mm256_unpackhi_epi32(c, d);
        store_eight(cells[0] + i, _mm256_unpacklo_epi64(ab, cd));
        store_eight(cells[1] + i, _mm256_unpackhi_epi64(ab, cd));
        store_eight(cells[2] + i, _mm256_unpacklo_epi64(ab_high, cd_high));
        store_eight(cells[3] + i, _mm256_unpackhi_epi64(ab_high, cd_high));
    }
    for (; i < count; i++)
        for (int k = 0; k < TILE_COLUMNS; k++)
            cells[k][i] = tile[TILE_COLUMNS * (Py_ssize_t)rows[i] + k];
}

#define LARGEST(NAME, KEY)                                                                       \
    FOR_EACH_PROCESSOR static uint32_t NAME(const uint32_t *cells, Py_ssize_t count) {           \
        uint32_t largest = 0;                                                                    \
        for (Py_ssize_t i = 0; i < count; i++) {                                                 \
            uint32_t cell = cells[i], key = (KEY);                                               \
            largest = key > largest ? key : largest;                                             \
        }                                                                                        \
        return largest;                                                                          \
    }

LARGEST(largest_exponent, cell & EXPONENT)
LARGEST(largest_label, cell << 1 == 0 || cell == 0x3f800000u ? 0 : EXPONENT)

static int is_bad(char role, uint64_t limit, const uint32_t *cells, Py_ssize_t count) {
    switch (role) {
    case 'i':
        return largest_of(cells, count) >= limit;
    case 'v':
        return largest_exponent(cells, count) >= EXPONENT;
    case 'l':
        return largest_label(cells, count) >= EXPONENT;
    default: /* 'w' */
        return largest_of(cells, count) >= EXPONENT;
    }
}

__attribute__((target("avx2"))) static void stream_lines(char *to, const char *from, Py_ssize_t lines) {
    for (; lines; lines--, to += LINE_BYTES, from += LINE_BYTES) {
        __m256i first = _mm256_loadu_si256((const __m256i *)from);
        __m256i second = _mm256_loadu_si256((const __m256i *)(from + LINE_BYTES / 2));
        _mm256_stream_si256((__m256i *)to, first);
        _mm256_stream_si256((__m256i *)(to + LINE_BYTES / 2), second);
    }
}

/* A buffer for a run's cells of a column before they are written to the block at `to`. An incomplete
 * cache line stays in the buffer until it is complete, so that only whole lines bypass the caches. */
typedef struct {
    char *to;
    Py_ssize_t held;
    _Alignas(LINE_BYTES) char bytes[4 * TILE_CELLS + LINE_BYTES];
} Column;

static void store_bytes(Column *column, Py_ssize_t count) {
    memcpy(column->to, column->bytes, (size_t)count);
    column->to += count;
}

/* Write the whole lines of the buffer, and the bytes before the first whole line. */
static void store_lines(Column *column) {
    Py_ssize_t head = least((Py_ssize_t)(-(uintptr_t)column->to % LINE_BYTES), column->held);
    store_bytes(column, head);
    Py_ssize_t lines = (column->held - head) / LINE_BYTES, done = head + lines * LINE_BYTES;
    stream_lines(column->to, column->bytes + head, lines);
    column->to += lines * LINE_BYTES;
    column->held -= done;
    memmove(column->bytes, column->bytes + done, (size_t)column->held);
}

static void store_cells(Column *column, const uint32_t *cells, Py_ssize_t count, int past_caches) {
    Py_ssize_t num_bytes = count * (Py_ssize_t)sizeof(*cells);
    if (past_caches) { /* the cells were gathered to the buffer, after its held bytes */
        column->held += num_bytes;
        store_lines(column);
        return;
    }
    memcpy(column->to, cells, (size_t)num_bytes);
    column->to += num_bytes;
}

/* Write rows of the tile to one run's four columns, and flag columns with a suspicious value. */
static void fill_run_by_tile(const Work *work, Py_ssize_t first_column, Py_ssize_t run, Py_ssize_t first,
                             char *suspicious) {
    Column columns[TILE_COLUMNS];
    int past_caches = !work->places && goes_past_caches(work, run);
    for (int k = 0; k < TILE_COLUMNS; k++) {
        columns[k].to = (char *)(column_of(work, first_column + k, run) + work->starts[run]);
        columns[k].held = 0;
    }
    for (Py_ssize_t done = 0; done < work->counts[run]; done += TILE_CELLS) {
        Py_ssize_t count = least(work->counts[run] - done, TILE_CELLS);
        uint32_t *cells[TILE_COLUMNS];
        for (int k = 0; k < TILE_COLUMNS; k++)
            cells[k] = (uint32_t *)(columns[k].bytes + columns[k].held);
        gather_rows(work->tile, work->rows + first + done, cells, count);
        for (int k = 0; k < TILE_COLUMNS; k++) {
            Py_ssize_t c = first_column + k;
            suspicious[c] |= (char)is_bad(work->roles[c], work->limits[c], cells[k], count);
            if (work->places)
                put(cells[k], (uint32_t *)columns[k].to, work->places + first + done, count);
            else
                store_cells(&columns[k], cells[k], count, past_caches);
        }
    }
    for (int k = 0; k < TILE_COLUMNS; k++)
        store_bytes(&columns[k], columns[k].held);
}

/* Return 1 if there are four more columns whose values can be checked as cells. Labels of 64 bits
 * cannot. */
static int fits_tile(const Work *work, Py_ssize_t column) {
    if (!work->tile || column + TILE_COLUMNS > work->num_columns)
        return 0;
    for (Py_ssize_t c = column; c < column + TILE_COLUMNS; c++)
        if (work->roles[c] == 'l' && work->types[c] == 'd')
            return 0;
    return 1;
}

/* Fill four columns by a tile, and return 1; return 0 if a tile cannot be used. */
static int fill_by_tile(const Work *work, Py_ssize_t column, char *suspicious) {
    if (!fits_tile(work, column) || !make_tile(work, column, work->last_row + 1))
        return 0;
    memset(suspicious + column, 0, TILE_COLUMNS);
    for (Py_ssize_t run = 0, first = 0; run < work->num_runs; first += work->counts[run++])
        fill_run_by_tile(work, column, run, first, suspicious);
    return 1;
}

/* Return 1 if a tile is faster. It has all rows up to the last requested row, so most of these rows
 * must be requested. */
static int wants_tile(const Work *work, const Py_buffer *tile) {
    return tile->len / TILE_ROW_BYTES > work->last_row && work->num_rows > work->last_row / 3 * 2 &&
           is_aligned(tile->buf, TILE_ROW_BYTES) && __builtin_cpu_supports("avx2");
}
#else
#define TILE_COLUMNS 1
#define fill_by_tile(work, column, suspicious) 0
#define wants_tile(work, tile) 0
#endif
