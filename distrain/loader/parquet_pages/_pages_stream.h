/* Decodes a column chunk in parts: some rows per call, read from the file when they are requested.
 *
 * Between calls, a stream keeps the dictionary and the current page, decompressed. Other bytes are
 * read into the memory of the calling thread. */

#define HEADER_BYTES 4096           /* added to the estimate of a read, for page headers */
#define MOST_HEADER_BYTES (1 << 16) /* maximum size of a valid header */
#define MOST_AHEAD_BYTES (1 << 20)  /* maximum read-ahead, unless a page is larger */

typedef struct {
    Decoder decoder;
    Scratch levels;        /* levels of the open page, if they are not compressed with it */
    int64_t position, end; /* offsets in the file of the next page's header, and the chunk's end */
    int64_t left;          /* rows of pages that are not opened yet */
    int64_t latest_bytes;  /* size of the latest page with its header */
    int is_first, busy;
    const char *problem; /* the error that ended the stream */
} Stream;

/* Bytes of a file from offset `start` on, in memory. */
typedef struct {
    Scratch *raw;
    int descriptor;
    int64_t start, length;
} Window;

static const char *read_window(Window *window, int64_t start, int64_t length) {
    const char *problem = grow(window->raw, (size_t)length);
    if (!problem)
        problem = read_bytes(window->descriptor, start, length, window->raw->memory);
    window->start = start;
    window->length = problem ? 0 : length;
    return problem;
}

static int64_t least(int64_t left, int64_t right) { return left < right ? left : right; }

/* Estimate the number of bytes to read for the next `count` rows, from the mean size of a row. */
static int64_t bytes_for(const Stream *stream, int64_t count) {
    int64_t all = stream->end - stream->position;
    double share = stream->left > 0 ? (double)count / (double)stream->left : 1.0;
    double guess = share < 1.0 ? (double)all * share : (double)all;
    return least((int64_t)guess, MOST_AHEAD_BYTES) + least(stream->latest_bytes, MOST_AHEAD_BYTES) +
           HEADER_BYTES;
}

/* Read the next page's header; `count` rows are requested. Sets *raw to the page's bytes. They are in
 * memory unless the page has at most `most_skipped` rows. */
static const char *next_in_file(Stream *stream, Window *window, int64_t count, int64_t most_skipped,
                                Page *page, const uint8_t **raw) {
    int64_t rest = stream->end - stream->position;
    for (;;) {
        int64_t inside = stream->position - window->start, have = window->length - inside;
        Bytes bytes = {0};
        if (inside >= 0 && have > 0) {
            bytes.at = window->raw->memory + inside;
            bytes.end = bytes.at + have;
        } else {
            have = 0;
        }
        const uint8_t *begin = bytes.at;
        *page = next_header(&bytes, stream->decoder.optional);
        int64_t wanted = have ? 2 * have : bytes_for(stream, count);
        if (!bytes.problem) {
            int64_t header = bytes.at - begin;
            *raw = bytes.at;
            int64_t size = header + page->compressed;
            if (size > rest)
                return "a page is longer than its column chunk";
            if (size <= have || page->num_values <= most_skipped) {
                stream->position += size;
                stream->latest_bytes = size;
                return NULL;
            }
            wanted = bytes_for(stream, count);
            wanted = wanted > size ? wanted : size;
        } else if (have >= least(rest, MOST_HEADER_BYTES)) {
            return bytes.problem;
        }
        const char *problem = read_window(window, stream->position, least(wanted, rest));
        if (problem)
            return problem;
    }
}

/* Read the next page: open a data page or a dictionary. A data page with at most `most_skipped` rows
 * is skipped, and its rows are added to *skipped. */
static const char *enter_page(Stream *stream, Window *window, int64_t count, int64_t most_skipped,
                              int64_t *skipped) {
    Page page;
    const uint8_t *raw;
    /* The first page may be a dictionary, which must not be skipped. */
    int64_t most = stream->is_first ? -1 : most_skipped;
    const char *problem = next_in_file(stream, window, count, most, &page, &raw);
    if (problem)
        return problem;
    int is_first = stream->is_first;
    stream->is_first = 0;
    if (page.kind == KIND_DICTIONARY)
        return is_first ? open_dictionary(&stream->decoder, &page, raw)
                        : "a dictionary is not the first page";
    if (page.num_values > stream->left)
        return "pages hold more values than the row group";
    stream->left -= page.num_values;
    if (page.num_values > most)
        return open_page(&stream->decoder, &page, raw);
    *skipped += page.num_values;
    return NULL;
}

/* Copy the open page's bytes from the window, since the window is not valid after the call. */
static const char *keep_page(Stream *stream) {
    OpenPage *open = &stream->decoder.open;
    const char *problem = NULL;
    if (!open->left)
        return NULL;
    if (open->has_nulls && open->has_raw_levels) {
        if ((problem = grow(&stream->levels, (size_t)open->levels_bytes + 1)))
            return problem;
        memcpy(stream->levels.memory, open->levels, (size_t)open->levels_bytes);
        open->levels = stream->levels.memory;
        open->has_raw_levels = 0;
    }
    if (open->is_raw) {
        Scratch *page = &stream->decoder.page;
        size_t size = (size_t)(open->end - open->at);
        if ((problem = grow(page, size + 1)))
            return problem;
        memcpy(page->memory, open->at, size);
        open->at = page->memory;
        open->end = open->at + size;
        open->is_raw = 0;
    }
    return NULL;
}

/* Decode the next `count` rows to `out`; skip them if `out` is NULL. */
static const char *next_rows(Stream *stream, Window *window, uint8_t *out, int64_t count) {
    uint64_t dropped[BLOCK];
    Decoder *decoder = &stream->decoder;
    const char *problem = NULL;
    if (count > stream->left + decoder->open.left)
        return "there are fewer values than rows are wanted";
    while (count > 0 && !problem) {
        int64_t skipped = 0, some = least(decoder->open.left, out ? count : least(count, BLOCK));
        if (!some) {
            problem = enter_page(stream, window, count, out ? -1 : count, &skipped);
            count -= skipped;
            continue;
        }
        problem = take_rows(decoder, out ? out : (uint8_t *)dropped, some);
        out = out ? out + some * decoder->item_bytes : NULL;
        count -= some;
    }
    if (!problem && !stream->left && !decoder->open.left && stream->position != stream->end)
        problem = "bytes follow the last page";
    return problem ? problem : keep_page(stream);
}

#define STREAM_NAME "distrain.loader.parquet_pages.column_stream"

static void free_stream(PyObject *capsule) {
    Stream *stream = PyCapsule_GetPointer(capsule, STREAM_NAME);
    if (stream) {
        drop(&stream->decoder.page);
        drop(&stream->decoder.dictionary);
        drop(&stream->levels);
        free(stream);
    }
}

PyDoc_STRVAR(new_stream_doc,
"stream(start, end, num_values, codec, optional, file_bytes, item_bytes, fill)\n--\n\n"
"Return a stream of the column chunk from offset `start` to `end` of a file, for `read` and `skip`.\n"
"The other arguments are as for `decode`.");

static PyObject *new_stream(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer fill;
    long long start, end, num_values;
    Stream stream = {.is_first = 1};
    Decoder *decoder = &stream.decoder;
    if (!PyArg_ParseTuple(args, "LLLipiiy*", &start, &end, &num_values, &decoder->codec,
                          &decoder->optional, &decoder->file_bytes, &decoder->item_bytes, &fill))
        return NULL;
    const char *problem = problem_of_decoder(decoder, &fill);
    PyBuffer_Release(&fill);
    if (start < 0 || end < start || end > INT64_MAX / 4 || num_values < 0)
        problem = "a column chunk has impossible bounds";
    if (problem)
        return raise_problem(problem);
    stream.position = start;
    stream.end = end;
    stream.left = num_values;
    Stream *kept = malloc(sizeof *kept);
    if (!kept)
        return PyErr_NoMemory();
    *kept = stream;
    PyObject *capsule = PyCapsule_New(kept, STREAM_NAME, free_stream);
    if (!capsule)
        free(kept);
    return capsule;
}

/* A stream whose next rows are requested, and the array for them. `is_taken`: this call has set the
 * stream's `busy`, which excludes other threads. */
typedef struct {
    Stream *stream;
    int descriptor, is_taken;
    Py_buffer out;
    const char *problem;
} Reading;

/* Fill a reading from its tuple; return 1 if it now holds a buffer, otherwise set an error. */
static int take_reading(PyObject *tuple, Reading *reading) {
    PyObject *capsule;
    if (!PyArg_ParseTuple(tuple, "Oiw*", &capsule, &reading->descriptor, &reading->out))
        return 0;
    Stream *stream = reading->stream = PyCapsule_GetPointer(capsule, STREAM_NAME);
    if (!stream) {
        PyBuffer_Release(&reading->out);
        return 0;
    }
    reading->problem = stream->busy      ? "a stream is in use by another thread"
                       : stream->problem ? stream->problem
                                         : problem_of_out(&stream->decoder, &reading->out);
    if (!reading->problem)
        stream->busy = reading->is_taken = 1;
    return 1;
}

static void give_reading_back(Reading *reading) {
    if (reading->is_taken)
        reading->stream->busy = 0;
    PyBuffer_Release(&reading->out);
}

/* Decode or skip the next rows of a stream; an error ends the stream. */
static const char *run_stream(Stream *stream, Memory *memory, int descriptor, uint8_t *out,
                              int64_t count) {
    Window window = {.raw = &memory->raw, .descriptor = descriptor};
    return stream->problem = next_rows(stream, &window, out, count);
}

static void run_readings(Reading *readings, Py_ssize_t count, Memory *memory) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Reading *reading = &readings[i];
        if (!reading->is_taken || !reading->out.len)
            continue;
        int64_t rows = reading->out.len / reading->stream->decoder.item_bytes;
        reading->problem = run_stream(reading->stream, memory, reading->descriptor,
                                      reading->out.buf, rows);
    }
}

static PyObject *problems_of_readings(const Reading *readings, Py_ssize_t count) {
    PyObject *problems = PyList_New(count);
    for (Py_ssize_t i = 0; problems && i < count; i++)
        if (put_problem(problems, i, readings[i].problem))
            Py_CLEAR(problems);
    return problems;
}

PyDoc_STRVAR(read_streams_doc,
"read(memory, columns)\n--\n\n"
"Decode the next rows of several streams, without the GIL. `columns` has a tuple for each: the stream,\n"
"the descriptor of its file, and the array to fill. Returns for each what is wrong, or None; `TOO_WIDE`\n"
"if an integer does not fit. An error ends its stream.");

static PyObject *read_streams(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *tuples, *problems = NULL;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &tuples))
        return NULL;
    Py_ssize_t taken = 0, count = PySequence_Size(tuples);
    Reading *readings = count < 0 ? NULL : PyMem_Calloc(count ? (size_t)count : 1, sizeof *readings);
    if (!readings)
        return count < 0 ? NULL : PyErr_NoMemory();
    for (int fits = 1; fits && taken < count; taken += fits) {
        PyObject *tuple = PySequence_GetItem(tuples, taken);
        fits = tuple && take_reading(tuple, &readings[taken]);
        Py_XDECREF(tuple); /* the list still refers to it */
    }
    Memory *memory = taken == count ? take_memory(capsule) : NULL;
    if (memory) {
        Py_BEGIN_ALLOW_THREADS
        run_readings(readings, count, memory);
        Py_END_ALLOW_THREADS
        give_memory_back(memory);
        problems = problems_of_readings(readings, count);
    }
    while (taken--)
        give_reading_back(&readings[taken]);
    PyMem_Free(readings);
    return problems;
}

PyDoc_STRVAR(skip_stream_doc,
"skip(stream, descriptor, memory, count)\n--\n\n"
"Skip the next rows of a stream. Pages of which all rows are skipped are not decompressed.");

static PyObject *skip_stream(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule, *memory_capsule;
    int descriptor;
    long long count;
    if (!PyArg_ParseTuple(args, "OiOL", &capsule, &descriptor, &memory_capsule, &count))
        return NULL;
    Stream *stream = PyCapsule_GetPointer(capsule, STREAM_NAME);
    if (!stream)
        return NULL;
    if (count < 0)
        return raise_problem("rows cannot be skipped backwards");
    if (stream->busy || stream->problem)
        return raise_problem(stream->busy ? "a stream is in use by another thread" : stream->problem);
    Memory *memory = take_memory(memory_capsule);
    if (!memory)
        return NULL;
    stream->busy = 1;
    const char *problem;
    Py_BEGIN_ALLOW_THREADS
    problem = run_stream(stream, memory, descriptor, NULL, count);
    Py_END_ALLOW_THREADS
    stream->busy = 0;
    give_memory_back(memory);
    return problem ? raise_decoding(problem) : Py_NewRef(Py_None);
}
