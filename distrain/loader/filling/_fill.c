/* Writes rows of decoded columns to their places in batches: gathers, converts and checks in one pass.
 *
 * Called by filler.py. The NumPy fallback (fill_numpy.py) defines the results. One call fills all
 * columns of a row group and releases the GIL while it works, so loader threads do not slow down the
 * training loop's Python.
 *
 * Why C: a row group of 65,536 rows and 40 columns goes to about two dozen batches. In NumPy that
 * takes a thousand calls, each of which takes the GIL, and checks that read all values again.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The compiler builds one version per instruction set; the best is chosen when the module loads. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#define EXPONENT 0x7f800000u

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* memcpy, since columns of cache entries may start at any byte. */
#define LOAD(TYPE, NAME, SOURCE, INDEX) \
    TYPE NAME;                          \
    memcpy(&NAME, (SOURCE) + (size_t)(INDEX) * sizeof(TYPE), sizeof(TYPE))

/* Each gather function writes `count` cells and returns the largest "key" of their values. A key that
 * reaches the column's limit is suspicious. The key of an id is the id as an unsigned number, so that
 * negative ids are large. The key of a float is its exponent, or all its bits if negative values are
 * suspicious as well. */
#define GATHER(NAME, TYPE, KEY_TYPE, KEY, CELL)                                                  \
    FOR_EACH_PROCESSOR static KEY_TYPE NAME(                                                     \
        const char *restrict source, const int32_t *restrict rows, uint32_t *restrict cells,     \
        Py_ssize_t count                                                                         \
    ) {                                                                                          \
        KEY_TYPE largest = 0;                                                                    \
        for (Py_ssize_t i = 0; i < count; i++) {                                                 \
            LOAD(TYPE, value, source, rows[i]);                                                  \
            uint32_t cell = (CELL);                                                              \
            KEY_TYPE key = (KEY);                                                                \
            cells[i] = cell;                                                                     \
            largest = key > largest ? key : largest;                                             \
        }                                                                                        \
        return largest;                                                                          \
    }

GATHER(gather_int64_ids, int64_t, uint64_t, (uint64_t)value, (uint32_t)value)
GATHER(gather_float64, double, uint32_t, cell & EXPONENT, bits_of((float)value))
GATHER(gather_labels32, float, uint32_t, cell << 1 == 0 || cell == 0x3f800000u ? 0 : EXPONENT, bits_of(value))
GATHER(gather_labels64, double, uint32_t, value == 0.0 || value == 1.0 ? 0 : EXPONENT, bits_of((float)value))
GATHER(gather_weights64, double, uint32_t, cell, bits_of((float)value))

/* Open batches together are larger than any cache, so cells that are written to them are not read
 * soon. Non-temporal stores bypass the caches: whole cache lines need not be read from memory first,
 * and do not evict the columns that are gathered from. They are not used for small batches, which may
 * still be in the cache when they are used, and for short runs, which have few whole lines. */
#define PAST_CACHES_ROWS 8192 /* of a batch */
#define PAST_CACHES_CELLS 256 /* of a run */
#define LINE_BYTES 64

#ifdef __SSE2__
#include <emmintrin.h>
#define STORE_PAST_CACHES(TO, FOUR) _mm_stream_si128((__m128i *)(TO), (__m128i)(FOUR))
/* Must run before other threads read the stored cells. */
#define END_STORES() _mm_sfence()
#else
#define STORE_PAST_CACHES(TO, FOUR) memcpy(TO, &(FOUR), 16)
#define END_STORES() (void)0
#endif

static Py_ssize_t least(Py_ssize_t left, Py_ssize_t right) { return left < right ? left : right; }

typedef uint32_t Four __attribute__((vector_size(16)));

/* Gather functions for 4-byte values, which are cells already, and for narrower ids; the key is
 * `cell & mask`. */
#define GATHER_CELLS(NAME, TYPE)                                                                 \
    FOR_EACH_PROCESSOR static uint32_t NAME(                                                     \
        const char *restrict source, const int32_t *restrict rows, uint32_t *restrict cells,     \
        Py_ssize_t count, uint32_t mask, int past_caches                                         \
    ) {                                                                                          \
        uint32_t largest = 0;                                                                    \
        Py_ssize_t i = 0, first = count;                                                         \
        if (past_caches) /* from the first whole line on */                                      \
            first = least(count, (Py_ssize_t)(-(uintptr_t)cells % LINE_BYTES / 4));              \
        for (; i < first; i++) {                                                                 \
            LOAD(TYPE, cell, source, rows[i]);                                                   \
            cells[i] = cell;                                                                     \
            largest = (cell & mask) > largest ? cell & mask : largest;                           \
        }                                                                                        \
        Four most = {0};                                                                         \
        for (; i + 4 <= count; i += 4) {                                                         \
            LOAD(TYPE, a, source, rows[i]);                                                      \
            LOAD(TYPE, b, source, rows[i + 1]);                                                  \
            LOAD(TYPE, c, source, rows[i + 2]);                                                  \
            LOAD(TYPE, d, source, rows[i + 3]);                                                  \
            Four four = {a, b, c, d}, keys = four & mask, is_more = (Four)(keys > most);         \
            STORE_PAST_CACHES(cells + i, four);                                                  \
            most = (keys & is_more) | (most & ~is_more);                                         \
        }                                                                                        \
        for (; i < count; i++) {                                                                 \
            LOAD(TYPE, cell, source, rows[i]);                                                   \
            cells[i] = cell;                                                                     \
            largest = (cell & mask) > largest ? cell & mask : largest;                           \
        }                                                                                        \
        for (int k = 0; k < 4; k++)                                                              \
            largest = most[k] > largest ? most[k] : largest;                                     \
        return largest;                                                                          \
    }

GATHER_CELLS(gather_cells, uint32_t)
GATHER_CELLS(gather_uint8_ids, uint8_t)
GATHER_CELLS(gather_uint16_ids, uint16_t)

/* Gather one column into one run of cells; return 1 if a value is suspicious. */
static int gather(
    char role, char type, uint64_t limit, const char *source, const int32_t *rows, uint32_t *cells,
    Py_ssize_t count, int past_caches
) {
    int wide = type == 'q' || type == 'd';
    uint32_t mask = role == 'v' ? EXPONENT : UINT32_MAX;
    if (type == 'B')
        return gather_uint8_ids(source, rows, cells, count, mask, past_caches) >= limit;
    if (type == 'H')
        return gather_uint16_ids(source, rows, cells, count, mask, past_caches) >= limit;
    if (!wide && role != 'l')
        return gather_cells(source, rows, cells, count, mask, past_caches) >=
               (role == 'i' ? limit : EXPONENT);
    switch (role) {
    case 'i':
        return gather_int64_ids(source, rows, cells, count) >= limit;
    case 'v':
        return gather_float64(source, rows, cells, count) >= EXPONENT;
    case 'l':
        return (wide ? gather_labels64(source, rows, cells, count)
                     : gather_labels32(source, rows, cells, count)) >= EXPONENT;
    default: /* 'w' */
        return gather_weights64(source, rows, cells, count) >= EXPONENT;
    }
}

/* The arguments of one call. Run k takes the next counts[k] entries of `rows` and writes these rows to
 * its block from cell starts[k] on: consecutively, or at `places` relative to that cell. */
typedef struct {
    Py_ssize_t num_columns, num_runs, num_rows;
    const char *roles, *types;
    const uint64_t *limits;
    const int32_t *rows, *places;
    const int64_t *starts, *counts;
    Py_buffer *sources, *blocks;
    /* The number in a block of the first column, and the number of columns of a block. */
    Py_ssize_t first_column, block_columns;
    /* Memory for a tile (_fill_tiles.h), NULL for no tile; and the largest of `rows`. */
    uint32_t *tile;
    Py_ssize_t last_row;
} Work;

#define SCRATCH_CELLS 4096

static Py_ssize_t rows_of(const Work *work, Py_ssize_t run) {
    return work->blocks[run].len / (4 * work->block_columns);
}

static uint32_t *column_of(const Work *work, Py_ssize_t column, Py_ssize_t run) {
    return (uint32_t *)work->blocks[run].buf + (work->first_column + column) * rows_of(work, run);
}

/* Write cells to their places in a run of a column. */
static void put(const uint32_t *cells, uint32_t *column, const int32_t *places, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        column[places[i]] = cells[i];
}

/* Fill a run that has `places`: gather cells to scratch memory in the L1 cache first. Returns 1 if a
 * value is suspicious. */
static int fill_by_scratch(const Work *work, Py_ssize_t column, Py_ssize_t run, Py_ssize_t first) {
    uint32_t scratch[SCRATCH_CELLS];
    uint32_t *cells = column_of(work, column, run) + work->starts[run];
    int bad = 0;
    for (Py_ssize_t done = 0; done < work->counts[run]; done += SCRATCH_CELLS) {
        Py_ssize_t count = work->counts[run] - done;
        count = count < SCRATCH_CELLS ? count : SCRATCH_CELLS;
        bad |= gather(work->roles[column], work->types[column], work->limits[column],
                      work->sources[column].buf, work->rows + first + done, scratch, count, 0);
        put(scratch, cells, work->places + first + done, count);
    }
    return bad;
}

static int goes_past_caches(const Work *work, Py_ssize_t run) {
    return rows_of(work, run) >= PAST_CACHES_ROWS && work->counts[run] >= PAST_CACHES_CELLS;
}

static int fill_run(const Work *work, Py_ssize_t column, Py_ssize_t run, Py_ssize_t first) {
    if (work->places)
        return fill_by_scratch(work, column, run, first);
    uint32_t *cells = column_of(work, column, run) + work->starts[run];
    return gather(work->roles[column], work->types[column], work->limits[column],
                  work->sources[column].buf, work->rows + first, cells, work->counts[run],
                  goes_past_caches(work, run));
}

static int is_one_of(char letter, const char *letters) { return letter && strchr(letters, letter) != NULL; }

static Py_ssize_t bytes_of(char type) {
    return is_one_of(type, "qd") ? 8 : is_one_of(type, "if") ? 4 : type == 'H' ? 2 : 1;
}

/* Blocks and arrays of numbers must be aligned; only columns are read with memcpy. */
static int is_aligned(const void *memory, size_t item_bytes) {
    return (uintptr_t)memory % item_bytes == 0;
}

FOR_EACH_PROCESSOR static uint32_t largest_of(const uint32_t *numbers, Py_ssize_t count) {
    uint32_t largest = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        largest = numbers[i] > largest ? numbers[i] : largest;
    return largest;
}

#include "_fill_tiles.h"

/* Fill four columns at a time by a tile, or one at a time, so that they stay in the cache. */
static void fill_all(const Work *work, char *suspicious) {
    for (Py_ssize_t column = 0; column < work->num_columns; column++) {
        if (fill_by_tile(work, column, suspicious)) {
            column += TILE_COLUMNS - 1;
            continue;
        }
        Py_ssize_t first = 0;
        int bad = 0;
        for (Py_ssize_t run = 0; run < work->num_runs; run++) {
            bad |= fill_run(work, column, run, first);
            first += work->counts[run];
        }
        suspicious[column] = (char)bad;
    }
    END_STORES();
}

static const char *problem_of_memory(const Work *work) {
    int aligned = is_aligned(work->limits, 8) && is_aligned(work->rows, 4) &&
                  is_aligned(work->starts, 8) && is_aligned(work->counts, 8) &&
                  is_aligned(work->places, 4);
    for (Py_ssize_t k = 0; k < work->num_runs; k++) {
        aligned = aligned && is_aligned(work->blocks[k].buf, 4);
        if (work->blocks[k].len % (4 * work->block_columns))
            return "a block does not hold whole columns";
    }
    return aligned ? NULL : "a block or an array of numbers is not aligned";
}

/* Return what is wrong with the arguments, so that no index is out of bounds; NULL if nothing is.
 * Sets `last_row`. */
static const char *problem_of(Work *work) {
    /* Compared as unsigned numbers, so that negative rows are large. */
    uint32_t largest = largest_of((const uint32_t *)work->rows, work->num_rows);
    if (largest > INT32_MAX)
        return "a row is negative";
    work->last_row = work->num_rows ? (Py_ssize_t)largest : -1;
    for (Py_ssize_t c = 0; c < work->num_columns; c++) {
        if (!is_one_of(work->roles[c], "ivlw") || !is_one_of(work->types[c], "ifqdBH"))
            return "unknown role or type";
        if ((work->roles[c] == 'i') != is_one_of(work->types[c], "iqBH"))
            return "ids are integers, all else is not";
        if (work->last_row >= work->sources[c].len / bytes_of(work->types[c]))
            return "a row is beyond its column";
    }
    Py_ssize_t first = 0;
    for (Py_ssize_t k = 0; k < work->num_runs; k++) {
        int64_t start = work->starts[k], count = work->counts[k];
        int64_t width = rows_of(work, k);
        if (start < 0 || count < 0 || start > width || count > width - start)
            return "a run leaves its block";
        if (count > work->num_rows - first)
            return "runs take more rows than there are";
        for (Py_ssize_t i = 0; work->places && i < count; i++) {
            int32_t place = work->places[first + i];
            if (place < 0 || place >= width - start)
                return "a place leaves its block";
        }
        first += count;
    }
    return first == work->num_rows ? NULL : "runs take fewer rows than there are";
}

static Py_buffer *get_buffers(PyObject *objects, int flags, Py_ssize_t *count) {
    *count = PySequence_Size(objects);
    if (*count < 0)
        return NULL;
    Py_buffer *buffers = PyMem_Calloc(*count ? *count : 1, sizeof(Py_buffer));
    if (!buffers)
        return (Py_buffer *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *object = PySequence_GetItem(objects, i);
        int failed = !object || PyObject_GetBuffer(object, &buffers[i], flags);
        Py_XDECREF(object);
        if (failed) {
            while (i--)
                PyBuffer_Release(&buffers[i]);
            PyMem_Free(buffers);
            return NULL;
        }
    }
    return buffers;
}

static void release_buffers(Py_buffer *buffers, Py_ssize_t count) {
    if (!buffers)
        return;
    for (Py_ssize_t i = 0; i < count; i++)
        PyBuffer_Release(&buffers[i]);
    PyMem_Free(buffers);
}

static PyObject *run_fill(Work *work, Py_buffer *args, Py_ssize_t num_blocks) {
    enum { ROLES, TYPES, LIMITS, ROWS, STARTS, COUNTS, PLACES, TILE };
    work->roles = args[ROLES].buf;
    work->types = args[TYPES].buf;
    work->limits = args[LIMITS].buf;
    work->rows = args[ROWS].buf;
    work->starts = args[STARTS].buf;
    work->counts = args[COUNTS].buf;
    work->places = args[PLACES].len ? args[PLACES].buf : NULL;
    work->num_rows = args[ROWS].len / 4;
    work->num_runs = args[COUNTS].len / 8;
    int fits = work->num_columns && args[ROLES].len == work->num_columns &&
               args[TYPES].len == work->num_columns && args[LIMITS].len == 8 * work->num_columns &&
               args[STARTS].len == args[COUNTS].len && num_blocks == work->num_runs &&
               (!work->places || args[PLACES].len == args[ROWS].len);
    if (!work->block_columns)
        work->block_columns = work->num_columns;
    fits = fits && work->first_column >= 0 &&
           work->block_columns <= PY_SSIZE_T_MAX / 4 &&
           work->first_column <= work->block_columns - work->num_columns;
    const char *problem = fits ? problem_of_memory(work) : "arguments differ in length";
    PyObject *suspicious = problem ? NULL : PyBytes_FromStringAndSize(NULL, work->num_columns);
    if (suspicious) {
        char *flags = PyBytes_AsString(suspicious);
        Py_BEGIN_ALLOW_THREADS
        problem = problem_of(work);
        if (!problem && wants_tile(work, &args[TILE]))
            work->tile = args[TILE].buf;
        if (!problem)
            fill_all(work, flags);
        Py_END_ALLOW_THREADS
    }
    if (problem) {
        Py_CLEAR(suspicious);
        PyErr_SetString(PyExc_ValueError, problem);
    }
    return suspicious;
}

PyDoc_STRVAR(fill_doc,
"fill(sources, blocks, roles, types, limits, rows, starts, counts, places, first_column, num_columns, tile)\n--\n\n"
"Gather rows of columns into blocks; a byte per column, 1 if a value of it is suspicious.\n"
"See distrain.loader.filling.fill_numpy.fill for the arguments.");

static PyObject *fill(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *sources, *blocks;
    Py_buffer flat[8] = {{0}};
    Work work = {0};
    if (!PyArg_ParseTuple(args, "OOy*y*y*y*y*y*y*|nnw*", &sources, &blocks, &flat[0], &flat[1],
                          &flat[2], &flat[3], &flat[4], &flat[5], &flat[6], &work.first_column,
                          &work.block_columns, &flat[7]))
        return NULL;
    Py_ssize_t num_blocks = 0;
    PyObject *result = NULL;
    work.sources = get_buffers(sources, PyBUF_SIMPLE, &work.num_columns);
    if (work.sources)
        work.blocks = get_buffers(blocks, PyBUF_WRITABLE, &num_blocks);
    if (work.blocks)
        result = run_fill(&work, flat, num_blocks);
    release_buffers(work.blocks, num_blocks);
    release_buffers(work.sources, work.num_columns);
    for (int i = 0; i < 8; i++)
        PyBuffer_Release(&flat[i]);
    return result;
}

#include "_fill_lists.h"

static PyMethodDef methods[] = {
    {"fill", fill, METH_VARARGS, fill_doc},
    {"measure_lists", measure_lists, METH_VARARGS, measure_lists_doc},
    {"gather_lists", gather_lists, METH_VARARGS, gather_lists_doc},
    {"place_lists", place_lists, METH_VARARGS, place_lists_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_fill", "Rows of columns to their places in batches.", 0, methods,
    NULL, NULL, NULL, NULL,
};

/* Increase it with every change of the functions that Python calls; kernel.py has the same number. */
#define VERSION 4

PyMODINIT_FUNC PyInit__fill(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION))
        Py_CLEAR(made);
    return made;
}
