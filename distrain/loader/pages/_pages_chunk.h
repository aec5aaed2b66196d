/* A whole column chunk in one call: its pages one after another, into one array.
 *
 * A chunk of 65,536 rows has five pages or more. Python between them takes longer than their values. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { UNCOMPRESSED = 0, SNAPPY = 1, LZ4 = 7 };
#define TOO_WIDE "a value has more than 32 bits"

/* Memory that grows and is used for page after page. */
typedef struct {
    uint8_t *memory;
    size_t size;
} Scratch;

static const char *grow(Scratch *scratch, size_t size) {
    if (size <= scratch->size)
        return NULL;
    free(scratch->memory);
    scratch->memory = malloc(size);
    scratch->size = scratch->memory ? size : 0;
    return scratch->memory ? NULL : "there is no memory for a page";
}

/* A column chunk that is being decoded. Values of `file_bytes` become values of `item_bytes`. */
typedef struct {
    int codec, optional, file_bytes, item_bytes;
    Scratch page, dictionary;
    int64_t num_entries;
    uint8_t *out;
    int64_t left; /* values that `out` has still room for */
} Decoder;

/* 8-byte integers as 4-byte ones, if they are no larger. They may lie at any byte. */
FOR_EACH_PROCESSOR static const char *narrow(const uint8_t *from, int32_t *to, int64_t count) {
    int64_t wide = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t value;
        memcpy(&value, from + 8 * i, 8);
        to[i] = (int32_t)value;
        wide |= value ^ (int32_t)value;
    }
    return wide ? TOO_WIDE : NULL;
}

static const char *store(const Decoder *decoder, const uint8_t *from, int64_t num_bytes, void *to,
                         int64_t count) {
    if (count > num_bytes / decoder->file_bytes)
        return "a page ends before its values";
    if (decoder->item_bytes != decoder->file_bytes)
        return narrow(from, to, count);
    memcpy(to, from, (size_t)(count * decoder->file_bytes));
    return NULL;
}

/* What is compressed at `from`, `size` bytes: *content is where they are. */
static const char *decompress(Decoder *decoder, const uint8_t *from, int64_t num_bytes, int64_t size,
                              const uint8_t **content) {
    Bytes bytes = {from, from + num_bytes, NULL};
    if (size / 256 > num_bytes) /* neither codec can do that: do not ask for so much memory */
        return "a page does not hold as much as its header says";
    const char *problem = grow(&decoder->page, (size_t)size + 1);
    *content = decoder->page.memory;
    if (problem)
        return problem;
    return decoder->codec == SNAPPY ? snappy_block(&bytes, decoder->page.memory, (uint64_t)size)
                                    : lz4_block(&bytes, decoder->page.memory, (uint64_t)size);
}

/* A page's values: *values to *end. Levels are checked: nothing may be null. */
static const char *open_page(Decoder *decoder, const Page *page, const uint8_t *raw,
                             const uint8_t **values, const uint8_t **end) {
    const char *problem;
    int64_t levels = page->levels_bytes > 0 ? page->levels_bytes : 0;
    int is_data = page->kind != KIND_DICTIONARY;
    if (page->crc >= 0 && checksum_of(raw, (size_t)page->compressed) != (uint32_t)page->crc)
        return "a page's checksum is wrong";
    if (is_data && decoder->optional && page->levels_bytes >= 0 &&
        (problem = check_levels(raw, levels, page->num_values)))
        return problem;
    *values = raw + levels;
    *end = raw + page->compressed;
    if (decoder->codec == UNCOMPRESSED || !page->is_compressed) {
        if (page->compressed != page->uncompressed)
            return "a page's sizes contradict each other";
    } else {
        int64_t size = page->uncompressed - levels;
        problem = decompress(decoder, *values, page->compressed - levels, size, values);
        if (problem)
            return problem;
        *end = *values + size;
    }
    if (is_data && decoder->optional && page->levels_bytes < 0) {
        uint32_t length;
        if (*end - *values < 4)
            return "levels are longer than their page";
        memcpy(&length, *values, 4);
        *values += 4;
        if (length > *end - *values)
            return "levels are longer than their page";
        if ((problem = check_levels(*values, length, page->num_values)))
            return problem;
        *values += length;
    }
    return NULL;
}

static const char *decode_ids(Decoder *decoder, const uint8_t *at, const uint8_t *end, int64_t count) {
    if (at >= end)
        return "a page of ids ends before their width";
    Run run = {.position = 1, .width = *at};
    if (run.width < 1 || run.width > 32)
        return "ids have an unknown width";
    return lookup(at, end - at, &run, decoder->dictionary.memory, decoder->num_entries, decoder->out,
                  count, decoder->item_bytes);
}

static const char *decode_page(Decoder *decoder, const Page *page, const uint8_t *raw, int is_first) {
    const uint8_t *values, *end;
    int64_t count = page->num_values;
    if (page->kind == KIND_DICTIONARY && !is_first)
        return "a dictionary is not the first page";
    if (page->kind != KIND_DICTIONARY && count > decoder->left)
        return "pages hold more values than the row group";
    const char *problem = open_page(decoder, page, raw, &values, &end);
    if (problem)
        return problem;
    if (page->kind == KIND_DICTIONARY) {
        if (count > (end - values) / decoder->file_bytes)
            return "a page ends before its values";
        if ((problem = grow(&decoder->dictionary, (size_t)(count * decoder->item_bytes + 1))))
            return problem;
        decoder->num_entries = count;
        return store(decoder, values, end - values, decoder->dictionary.memory, count);
    }
    problem = page->encoding == PLAIN ? store(decoder, values, end - values, decoder->out, count)
                                      : decode_ids(decoder, values, end, count);
    decoder->out += count * decoder->item_bytes;
    decoder->left -= count;
    return problem;
}

static const char *decode_pages(Decoder *decoder, const uint8_t *at, const uint8_t *end) {
    Bytes bytes = {at, end, NULL};
    for (int is_first = 1; decoder->left > 0; is_first = 0) {
        Page page = next_page(&bytes, decoder->optional);
        const uint8_t *raw = bytes.at;
        const char *problem = bytes.problem;
        if (!problem)
            problem = decode_page(decoder, &page, raw, is_first);
        if (problem)
            return problem;
        skip(&bytes, (uint64_t)page.compressed);
    }
    return bytes.at == bytes.end ? NULL : "bytes follow the last page";
}

static const char *problem_of_decoder(const Decoder *decoder, const Py_buffer *out) {
    int item_bytes = decoder->item_bytes, file_bytes = decoder->file_bytes;
    if ((item_bytes != 4 && item_bytes != 8) || (file_bytes != item_bytes && file_bytes != 8))
        return "values have 4 or 8 bytes";
    if (out->len % item_bytes || (uintptr_t)out->buf % (size_t)item_bytes)
        return "values are not aligned";
    if (decoder->codec != UNCOMPRESSED && decoder->codec != SNAPPY && decoder->codec != LZ4)
        return "a codec that is not decompressed here";
    return NULL;
}

PyDoc_STRVAR(decode_doc,
"decode(chunk, codec, optional, file_bytes, out, item_bytes)\n--\n\n"
"Fill `out` with a column chunk's values, of which there must be as many; codec is 0, 1 (snappy) or 7\n"
"(LZ4). Integers of 8 bytes in the file may become 4; OverflowError if one of them is too large.");

static PyObject *decode(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer chunk, out;
    Decoder decoder = {0};
    if (!PyArg_ParseTuple(args, "y*ipiw*i", &chunk, &decoder.codec, &decoder.optional,
                          &decoder.file_bytes, &out, &decoder.item_bytes))
        return NULL;
    const char *problem = problem_of_decoder(&decoder, &out);
    if (!problem) {
        decoder.out = out.buf;
        decoder.left = out.len / decoder.item_bytes;
        Py_BEGIN_ALLOW_THREADS
        problem = decode_pages(&decoder, chunk.buf, (const uint8_t *)chunk.buf + chunk.len);
        free(decoder.page.memory);
        free(decoder.dictionary.memory);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&chunk);
    PyBuffer_Release(&out);
    if (problem && !strcmp(problem, TOO_WIDE)) {
        PyErr_SetString(PyExc_OverflowError, problem);
        return NULL;
    }
    return problem ? raise_problem(problem) : Py_NewRef(Py_None);
}
