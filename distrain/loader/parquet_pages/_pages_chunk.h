/* Decodes whole column chunks, several in one call, each to an array.
 *
 * A chunk of 65,536 rows has five pages or more. Python code between pages would take longer than the
 * values, and decoding threads would wait for the GIL. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNCOMPRESSED = 0, SNAPPY = 1, LZ4 = 7 };
#define TOO_WIDE "a value has more bits than there is room for"
#define HOLDS_NULLS "a page holds nulls"
#define MOST_KEPT_BYTES (4 << 20) /* larger memory of a thread is freed after a call */

/* Memory that is reused for the next page, and grows if needed. */
typedef struct {
    uint8_t *memory;
    size_t size;
} Scratch;

static void drop(Scratch *scratch) {
    free(scratch->memory);
    scratch->memory = NULL;
    scratch->size = 0;
}

static const char *grow(Scratch *scratch, size_t size) {
    if (size <= scratch->size)
        return NULL;
    drop(scratch);
    scratch->memory = malloc(size);
    scratch->size = scratch->memory ? size : 0;
    return scratch->memory ? NULL : "there is no memory for a page";
}

/* A data page whose rows are decoded in order. `at` to `end` (the values) and `levels` (which rows are
 * null) point to the bytes read from the file (`is_raw`, `has_raw_levels`), or to decompressed
 * bytes. */
typedef struct {
    int64_t left; /* rows that are not decoded yet */
    const uint8_t *at, *end;
    int is_plain, is_raw;
    Run ids; /* if the encoding is not plain; positions are relative to `at` */
    int has_nulls, has_raw_levels;
    const uint8_t *levels;
    int64_t levels_bytes;
    Run level;
} OpenPage;

/* A column chunk that is being decoded. Values of `file_bytes` bytes become values of `item_bytes`
 * bytes. Nulls become `fill`, or are rejected. */
typedef struct {
    int codec, optional, file_bytes, item_bytes, fills_nulls;
    uint64_t fill;
    Scratch page, dictionary;
    int64_t num_entries;
    OpenPage open;
} Decoder;

/* Convert integers to a narrower type; TOO_WIDE if one does not fit. `from` may be unaligned. */
#define NARROW(NAME, FROM, TO)                                                                 \
    FOR_EACH_PROCESSOR static const char *NAME(const uint8_t *from, TO *to, int64_t count) {   \
        FROM wide = 0;                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                  \
            FROM value;                                                                        \
            memcpy(&value, from + i * (int64_t)sizeof value, sizeof value);                    \
            to[i] = (TO)value;                                                                 \
            wide |= value ^ (FROM)(TO)value;                                                   \
        }                                                                                      \
        return wide ? TOO_WIDE : NULL;                                                         \
    }

NARROW(narrow64_to_32, int64_t, int32_t)
NARROW(narrow64_to_16, int64_t, uint16_t)
NARROW(narrow64_to_8, int64_t, uint8_t)
NARROW(narrow32_to_16, int32_t, uint16_t)
NARROW(narrow32_to_8, int32_t, uint8_t)

static const char *narrow(const uint8_t *from, int file_bytes, void *to, int item_bytes,
                          int64_t count) {
    if (item_bytes == 4)
        return narrow64_to_32(from, to, count);
    if (item_bytes == 2)
        return file_bytes == 8 ? narrow64_to_16(from, to, count) : narrow32_to_16(from, to, count);
    return file_bytes == 8 ? narrow64_to_8(from, to, count) : narrow32_to_8(from, to, count);
}

static const char *store(const Decoder *decoder, const uint8_t *from, int64_t num_bytes, void *to,
                         int64_t count) {
    if (count > num_bytes / decoder->file_bytes)
        return "a page ends before its values";
    if (decoder->item_bytes != decoder->file_bytes)
        return narrow(from, decoder->file_bytes, to, decoder->item_bytes, count);
    memcpy(to, from, (size_t)(count * decoder->file_bytes));
    return NULL;
}

/* Decompress `num_bytes` bytes to `size` bytes, and set *content to them. Returns what is wrong, or
 * NULL. */
static const char *decompress(Decoder *decoder, const uint8_t *from, int64_t num_bytes, int64_t size,
                              const uint8_t **content) {
    Bytes bytes = {from, from + num_bytes, NULL};
    if (size / 256 > num_bytes) /* no codec compresses that much: do not allocate the memory */
        return "a page does not hold as much as its header says";
    const char *problem = grow(&decoder->page, (size_t)size + 1);
    *content = decoder->page.memory;
    if (problem)
        return problem;
    return decoder->codec == SNAPPY ? snappy_block(&bytes, decoder->page.memory, (uint64_t)size)
                                    : lz4_block(&bytes, decoder->page.memory, (uint64_t)size);
}

static int is_raw(const Decoder *decoder, const Page *page) {
    return decoder->codec == UNCOMPRESSED || !page->is_compressed;
}

/* Check a page's checksum, and set *at and *end to its decompressed content, without the levels that
 * are stored before it uncompressed. Returns what is wrong, or NULL. */
static const char *content_of(Decoder *decoder, const Page *page, const uint8_t *raw,
                              const uint8_t **at, const uint8_t **end) {
    int64_t levels = page->levels_bytes > 0 ? page->levels_bytes : 0;
    if (page->crc >= 0 && checksum_of(raw, (size_t)page->compressed) != (uint32_t)page->crc)
        return "a page's checksum is wrong";
    *at = raw + levels;
    *end = raw + page->compressed;
    if (is_raw(decoder, page))
        return page->compressed == page->uncompressed ? NULL : "a page's sizes contradict each other";
    int64_t size = page->uncompressed - levels;
    const char *problem = decompress(decoder, *at, page->compressed - levels, size, at);
    *end = *at + size;
    return problem;
}

/* Find the levels of a page and count its values that are not null. In pages of version 1, the levels
 * are in the content, after their length, and `open->at` moves behind them; in version 2, they are
 * before the content. */
static const char *open_levels(const Decoder *decoder, const Page *page, const uint8_t *raw,
                               OpenPage *open, int64_t *num_valid) {
    open->levels = raw;
    open->levels_bytes = page->levels_bytes;
    open->has_raw_levels = page->levels_bytes >= 0 || open->is_raw;
    if (page->levels_bytes < 0) {
        uint32_t length;
        if (open->end - open->at < 4)
            return "levels are longer than their page";
        memcpy(&length, open->at, 4);
        open->levels = open->at + 4;
        open->levels_bytes = length;
        if (length > open->end - open->levels)
            return "levels are longer than their page";
        open->at = open->levels + length;
    }
    const char *problem = count_levels(open->levels, open->levels_bytes, page->num_values, num_valid);
    if (problem)
        return problem;
    int64_t nulls = page->num_values - *num_valid;
    if (page->num_nulls >= 0 && page->num_nulls != nulls)
        return "a page holds other nulls than its header says";
    open->has_nulls = nulls > 0;
    return nulls && !decoder->fills_nulls ? HOLDS_NULLS : NULL;
}

static const char *open_page(Decoder *decoder, const Page *page, const uint8_t *raw) {
    OpenPage open = {.is_plain = page->encoding == PLAIN, .level = {.width = 1}};
    int64_t num_valid = page->num_values;
    open.is_raw = is_raw(decoder, page);
    const char *problem = content_of(decoder, page, raw, &open.at, &open.end);
    if (!problem && decoder->optional)
        problem = open_levels(decoder, page, raw, &open, &num_valid);
    if (problem)
        return problem;
    if (open.is_plain && num_valid > (open.end - open.at) / decoder->file_bytes)
        return "a page ends before its values";
    if (!open.is_plain) {
        int is_empty = open.at >= open.end;
        if (num_valid && is_empty) /* if all values are null, writers may omit the width */
            return "a page of ids ends before their width";
        open.ids = (Run){.position = 1, .width = is_empty ? 0 : *open.at};
        if ((num_valid && open.ids.width < 1) || open.ids.width > 32)
            return "ids have an unknown width";
    }
    open.left = page->num_values;
    decoder->open = open;
    return NULL;
}

static const char *open_dictionary(Decoder *decoder, const Page *page, const uint8_t *raw) {
    const uint8_t *at, *end;
    const char *problem = content_of(decoder, page, raw, &at, &end);
    if (!problem && page->num_values > (end - at) / decoder->file_bytes)
        problem = "a page ends before its values";
    if (!problem)
        problem = grow(&decoder->dictionary, (size_t)(page->num_values * decoder->item_bytes + 1));
    if (problem)
        return problem;
    decoder->num_entries = page->num_values;
    return store(decoder, at, end - at, decoder->dictionary.memory, page->num_values);
}

/* Decode the next `count` values of the open page that are not null. */
static const char *take_values(Decoder *decoder, void *out, int64_t count) {
    OpenPage *open = &decoder->open;
    if (!open->is_plain)
        return lookup(open->at, open->end - open->at, &open->ids, decoder->dictionary.memory,
                      decoder->num_entries, out, count, decoder->item_bytes);
    const char *problem = store(decoder, open->at, open->end - open->at, out, count);
    open->at += count * decoder->file_bytes;
    return problem;
}

static const char *take_with_nulls(Decoder *decoder, uint8_t *out, int64_t count) {
    OpenPage *open = &decoder->open;
    uint8_t levels[BLOCK];
    uint64_t values[BLOCK];
    for (int64_t some; count > 0; count -= some, out += some * decoder->item_bytes) {
        some = count < BLOCK ? count : BLOCK;
        take_levels(open->levels, open->levels_bytes, &open->level, levels, some);
        int64_t num_valid = 0;
        for (int64_t i = 0; i < some; i++)
            num_valid += levels[i];
        const char *problem = num_valid ? take_values(decoder, values, num_valid) : NULL;
        if (problem)
            return problem;
        spread(levels, values, decoder->fill, out, some, decoder->item_bytes);
    }
    return NULL;
}

/* Decode the next `count` rows of the open page; it must have as many rows left. */
static const char *take_rows(Decoder *decoder, uint8_t *out, int64_t count) {
    decoder->open.left -= count;
    return decoder->open.has_nulls ? take_with_nulls(decoder, out, count)
                                   : take_values(decoder, out, count);
}

static const char *decode_pages(Decoder *decoder, Bytes *bytes, uint8_t *out, int64_t left) {
    for (int is_first = 1; left > 0; is_first = 0) {
        Page page = next_page(bytes, decoder->optional);
        int is_dictionary = page.kind == KIND_DICTIONARY;
        if (bytes->problem)
            return bytes->problem;
        if (is_dictionary && !is_first)
            return "a dictionary is not the first page";
        if (!is_dictionary && page.num_values > left)
            return "pages hold more values than the row group";
        const char *problem = is_dictionary ? open_dictionary(decoder, &page, bytes->at)
                                            : open_page(decoder, &page, bytes->at);
        if (!problem && !is_dictionary) {
            problem = take_rows(decoder, out, page.num_values);
            out += page.num_values * decoder->item_bytes;
            left -= page.num_values;
        }
        if (problem)
            return problem;
        skip(bytes, (uint64_t)page.compressed);
    }
    return bytes->at == bytes->end ? NULL : "bytes follow the last page";
}

/* The memory of one thread, reused for each column. */
typedef struct {
    Scratch raw, page, dictionary;
    int busy;
} Memory;

#define MEMORY_NAME "distrain.loader.parquet_pages.thread_memory"

static void free_memory(PyObject *capsule) {
    Memory *memory = PyCapsule_GetPointer(capsule, MEMORY_NAME);
    if (memory) {
        drop(&memory->raw);
        drop(&memory->page);
        drop(&memory->dictionary);
        free(memory);
    }
}

PyDoc_STRVAR(new_memory_doc,
"memory()\n--\n\nReturn memory for decoding columns, for one thread.");

static PyObject *new_memory(PyObject *module, PyObject *args) {
    (void)module, (void)args;
    Memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(memory, MEMORY_NAME, free_memory);
    if (!capsule)
        free(memory);
    return capsule;
}

/* Mark memory as used by a call; the caller holds the GIL. Returns NULL and sets an error if another
 * call uses it. */
static Memory *take_memory(PyObject *capsule) {
    Memory *memory = PyCapsule_GetPointer(capsule, MEMORY_NAME);
    if (memory && memory->busy)
        return (Memory *)raise_problem("memory is in use by another thread");
    if (memory)
        memory->busy = 1;
    return memory;
}

static void give_memory_back(Memory *memory) {
    Scratch *all[] = {&memory->raw, &memory->page, &memory->dictionary};
    for (int i = 0; i < 3; i++)
        if (all[i]->size > MOST_KEPT_BYTES)
            drop(all[i]);
    memory->busy = 0;
}

static PyObject *raise_decoding(const char *problem) {
    if (strcmp(problem, TOO_WIDE))
        return raise_problem(problem);
    PyErr_SetString(PyExc_OverflowError, problem);
    return NULL;
}

static const char *problem_of_decoder(Decoder *decoder, const Py_buffer *fill) {
    int item_bytes = decoder->item_bytes, file_bytes = decoder->file_bytes;
    if ((file_bytes != 4 && file_bytes != 8) || item_bytes > file_bytes ||
        (item_bytes != 1 && item_bytes != 2 && item_bytes != 4 && item_bytes != 8))
        return "values have 4 or 8 bytes, and become no wider";
    if (decoder->codec != UNCOMPRESSED && decoder->codec != SNAPPY && decoder->codec != LZ4)
        return "a codec that is not decompressed here";
    if (fill->len && fill->len != item_bytes)
        return "what fills nulls has another size than values";
    decoder->fills_nulls = fill->len > 0;
    if (fill->len)
        memcpy(&decoder->fill, fill->buf, (size_t)fill->len);
    return NULL;
}

static const char *problem_of_out(const Decoder *decoder, const Py_buffer *out) {
    size_t item_bytes = (size_t)decoder->item_bytes;
    return (size_t)out->len % item_bytes || (uintptr_t)out->buf % item_bytes
               ? "values are not aligned"
               : NULL;
}

/* A column chunk of a file, and the array for its values. */
typedef struct {
    long long start, count;
    Decoder decoder;
    Py_buffer out;
    const char *problem;
} Job;

static const char *read_bytes(int descriptor, int64_t start, int64_t count, uint8_t *to) {
    for (int64_t done = 0; done < count;) {
        ssize_t some = pread(descriptor, to + done, (size_t)(count - done), start + done);
        if (!some)
            return "a column chunk ends early";
        if (some < 0 && errno != EINTR)
            return "a column chunk cannot be read";
        done += some > 0 ? some : 0;
    }
    return NULL;
}

static const char *run_job(Job *job, int descriptor, Memory *memory) {
    Decoder *decoder = &job->decoder;
    const char *problem = grow(&memory->raw, (size_t)job->count + 1);
    if (!problem)
        problem = read_bytes(descriptor, job->start, job->count, memory->raw.memory);
    if (problem)
        return problem;
    Bytes bytes = {memory->raw.memory, memory->raw.memory + job->count, NULL};
    decoder->page = memory->page;
    decoder->dictionary = memory->dictionary;
    problem = decode_pages(decoder, &bytes, job->out.buf, job->out.len / decoder->item_bytes);
    memory->page = decoder->page;
    memory->dictionary = decoder->dictionary;
    return problem;
}

/* Fill a job from its tuple; return 1 if it now holds a buffer, otherwise set an error. */
static int take_job(PyObject *tuple, Job *job) {
    Py_buffer fill;
    Decoder *decoder = &job->decoder;
    if (!PyArg_ParseTuple(tuple, "LLipiw*iy*", &job->start, &job->count, &decoder->codec,
                          &decoder->optional, &decoder->file_bytes, &job->out, &decoder->item_bytes,
                          &fill))
        return 0;
    const char *problem = problem_of_decoder(decoder, &fill);
    if (!problem)
        problem = problem_of_out(decoder, &job->out);
    if (job->start < 0 || job->count < 0 || job->count > INT64_MAX / 4)
        problem = "a column chunk has impossible bounds";
    PyBuffer_Release(&fill);
    if (!problem)
        return 1;
    PyBuffer_Release(&job->out);
    raise_problem(problem);
    return 0;
}

/* Set an item of a list to a problem's text, or to None. */
static int put_problem(PyObject *list, Py_ssize_t place, const char *problem) {
    PyObject *text = problem ? PyUnicode_FromString(problem) : Py_NewRef(Py_None);
    return text ? PyList_SetItem(list, place, text) : -1;
}

static PyObject *problems_of(const Job *jobs, Py_ssize_t count) {
    PyObject *problems = PyList_New(count);
    for (Py_ssize_t i = 0; problems && i < count; i++)
        if (put_problem(problems, i, jobs[i].problem))
            Py_CLEAR(problems);
    return problems;
}

static PyObject *run_jobs(PyObject *tuples, Job *jobs, Py_ssize_t count, int descriptor,
                          PyObject *capsule) {
    Py_ssize_t taken = 0;
    PyObject *problems = NULL;
    for (int fits = 1; fits && taken < count; taken += fits) {
        PyObject *tuple = PySequence_GetItem(tuples, taken);
        fits = tuple && take_job(tuple, &jobs[taken]);
        Py_XDECREF(tuple); /* the list still refers to it */
        if (!fits)
            break;
    }
    Memory *memory = taken == count ? take_memory(capsule) : NULL;
    if (memory) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++)
            jobs[i].problem = run_job(&jobs[i], descriptor, memory);
        Py_END_ALLOW_THREADS
        give_memory_back(memory);
        problems = problems_of(jobs, count);
    }
    while (taken--)
        PyBuffer_Release(&jobs[taken].out);
    return problems;
}

PyDoc_STRVAR(decode_doc,
"decode(descriptor, memory, chunks)\n--\n\n"
"Decode column chunks of an open file. Each is a tuple: offset, number of bytes, codec (0: none, 1:\n"
"Snappy, 7: LZ4), whether the column may have nulls, bytes of a value in the file, the array to fill\n"
"(one item per row), bytes of an item, and the bytes of the item that replaces nulls (if empty, nulls\n"
"are rejected). Items may be narrower than the file's integers; items of 1 and 2 bytes are unsigned.\n"
"Returns for each chunk what is wrong, or None; `TOO_WIDE` if an integer does not fit.");

static PyObject *decode(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *tuples, *problems = NULL;
    int descriptor;
    if (!PyArg_ParseTuple(args, "iOO", &descriptor, &capsule, &tuples))
        return NULL;
    Py_ssize_t count = PySequence_Size(tuples);
    if (count < 0)
        return NULL;
    Job *jobs = PyMem_Calloc(count ? (size_t)count : 1, sizeof *jobs);
    if (!jobs)
        return PyErr_NoMemory();
    problems = run_jobs(tuples, jobs, count, descriptor, capsule);
    PyMem_Free(jobs);
    return problems;
}
