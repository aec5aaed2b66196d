/* Pages of parquet files: their headers, checksums, levels and values.
 *
 * Called by column_chunk.py, column_stream.py and pages_of_file.py. Every length and offset is checked before memory is touched, whatever
 * the bytes and the arguments are; what is unknown or wrong raises ValueError, and Arrow reads the
 * column instead. Long loops hold no Python lock.
 *
 * Why C: ids lie at any bit, and a row group has a hundred page headers. Arrow does the same through
 * more layers, with levels for every value, and takes up to twice as long.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *raise_problem(const char *problem) {
    PyErr_SetString(PyExc_ValueError, problem);
    return NULL;
}

#include "_pages_headers.h"
#include "_pages_footer.h"
#include "_pages_values.h"
#include "_pages_bytes.h"
#include "_pages_chunk.h"
#include "_pages_stream.h"

/* Grows with every change of what Python calls here: footer.py has the same number. */
#define VERSION 7

static PyObject *as_tuple(const Page *page, Py_ssize_t start) {
    return Py_BuildValue("(LLLnLLLLL)", (long long)page->kind, (long long)page->encoding,
                         (long long)page->num_values, start, (long long)page->compressed,
                         (long long)page->uncompressed, (long long)page->levels_bytes,
                         (long long)page->is_compressed, (long long)page->crc);
}

static PyObject *list_pages(const Py_buffer *chunk, long long num_values, int optional) {
    Bytes bytes = {chunk->buf, (const uint8_t *)chunk->buf + chunk->len, NULL};
    PyObject *pages = PyList_New(0);
    while (pages && num_values > 0) {
        Page page = next_page(&bytes, optional);
        int is_dictionary = page.kind == KIND_DICTIONARY;
        if (is_dictionary && PyList_Size(pages))
            refuse(&bytes, "a dictionary is not the first page");
        if (!is_dictionary && page.num_values > num_values)
            refuse(&bytes, "pages hold more values than the row group");
        if (page.num_nulls > 0)
            refuse(&bytes, HOLDS_NULLS);
        PyObject *tuple = NULL;
        if (bytes.problem)
            raise_problem(bytes.problem);
        else
            tuple = as_tuple(&page, bytes.at - (const uint8_t *)chunk->buf);
        if (!tuple || PyList_Append(pages, tuple))
            Py_CLEAR(pages);
        Py_XDECREF(tuple);
        num_values -= is_dictionary ? 0 : page.num_values;
        skip(&bytes, (uint64_t)page.compressed);
    }
    if (pages && bytes.at != bytes.end) {
        Py_CLEAR(pages);
        raise_problem("bytes follow the last page");
    }
    return pages;
}

PyDoc_STRVAR(headers_doc,
"headers(chunk, num_values, optional)\n--\n\n"
"The pages of a column chunk, each a tuple: kind, encoding, values, where it begins, compressed and\n"
"uncompressed bytes, bytes of levels (-1: they tell), whether it is compressed, checksum or -1.");

static PyObject *headers(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer chunk;
    long long num_values;
    int optional;
    if (!PyArg_ParseTuple(args, "y*Lp", &chunk, &num_values, &optional))
        return NULL;
    PyObject *pages = list_pages(&chunk, num_values, optional);
    PyBuffer_Release(&chunk);
    return pages;
}

PyDoc_STRVAR(skip_levels_doc,
"skip_levels(page, num_values, levels_bytes)\n--\n\n"
"Where the values begin behind the levels, all of which must be 1; -1 bytes: 4 bytes tell them.");

static PyObject *skip_levels(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer page;
    long long num_values, length;
    if (!PyArg_ParseTuple(args, "y*LL", &page, &num_values, &length))
        return NULL;
    Py_ssize_t start = 0;
    if (length < 0 && page.len >= 4) {
        uint32_t prefix;
        memcpy(&prefix, page.buf, 4);
        length = prefix;
        start = 4;
    }
    int64_t ones = num_values;
    const char *problem = "levels are longer than their page";
    if (length >= 0 && length <= page.len - start)
        problem = count_levels((const uint8_t *)page.buf + start, length, num_values, &ones);
    if (!problem && ones != num_values)
        problem = HOLDS_NULLS;
    PyBuffer_Release(&page);
    return problem ? raise_problem(problem) : PyLong_FromLongLong(start + length);
}

/* No address may leave its memory, whatever the caller got wrong. */
static const char *problem_of(const Py_buffer *page, const Py_buffer *state, const Run *run,
                              const Py_buffer *dictionary, const Py_buffer *out, int item_bytes) {
    if (item_bytes != 4 && item_bytes != 8)
        return "values have 4 or 8 bytes";
    if (state->len != sizeof(Run) || out->len % item_bytes)
        return "arguments have other lengths";
    if ((uintptr_t)dictionary->buf % (size_t)item_bytes || (uintptr_t)out->buf % (size_t)item_bytes)
        return "values are not aligned";
    if (run->width < 1 || run->width > 32)
        return "ids have an unknown width";
    if (run->position < 0 || run->position > page->len || run->left < 0 ||
        run->left >= INT64_MAX / 64 || run->inside < 0 || run->inside > 7 || run->id < 0)
        return "the run's state is impossible";
    int64_t groups = (run->left + run->inside + 7) / 8;
    if (run->packed && groups * run->width > page->len - run->position)
        return "a run is longer than its page";
    return NULL;
}

static PyObject *run_lookup(const Py_buffer *page, const Py_buffer *state,
                            const Py_buffer *dictionary, const Py_buffer *out, int item_bytes) {
    Run run = {0};
    if (state->len == sizeof run)
        memcpy(&run, state->buf, sizeof run);
    const char *problem = problem_of(page, state, &run, dictionary, out, item_bytes);
    if (problem)
        return raise_problem(problem);
    Py_BEGIN_ALLOW_THREADS
    problem = lookup(page->buf, page->len, &run, dictionary->buf, dictionary->len / item_bytes,
                     out->buf, out->len / item_bytes, item_bytes);
    Py_END_ALLOW_THREADS
    memcpy(state->buf, &run, sizeof run);
    return problem ? raise_problem(problem) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(lookup_doc,
"lookup(page, run, dictionary, out, item_bytes)\n--\n\n"
"Fill `out` with the values of the page's next ids; `run` says where they are and is moved on: six\n"
"int64, at first the position and the width of ids, and zeros.");

static PyObject *lookup_ids(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer page, state, dictionary, out;
    int item_bytes;
    if (!PyArg_ParseTuple(args, "y*w*y*w*i", &page, &state, &dictionary, &out, &item_bytes))
        return NULL;
    PyObject *result = run_lookup(&page, &state, &dictionary, &out, item_bytes);
    PyBuffer_Release(&page);
    PyBuffer_Release(&state);
    PyBuffer_Release(&dictionary);
    PyBuffer_Release(&out);
    return result;
}

PyDoc_STRVAR(checksum_doc, "checksum(page)\n--\n\nThe CRC-32 of bytes, as zlib has it.");

static PyObject *checksum(PyObject *module, PyObject *page) {
    (void)module;
    Py_buffer bytes;
    if (PyObject_GetBuffer(page, &bytes, PyBUF_SIMPLE))
        return NULL;
    uint32_t found;
    Py_BEGIN_ALLOW_THREADS
    found = checksum_of(bytes.buf, (size_t)bytes.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&bytes);
    return PyLong_FromUnsignedLong(found);
}

PyDoc_STRVAR(content_bytes_doc,
"content_bytes(codec, page)\n--\n\n"
"How many bytes a page of a codec (SNAPPY, ZSTD) holds, as it says itself; -1 if it does not.");

static PyObject *content_bytes(PyObject *module, PyObject *args) {
    (void)module;
    const char *codec;
    Py_buffer page;
    if (!PyArg_ParseTuple(args, "sy*", &codec, &page))
        return NULL;
    Bytes bytes = {page.buf, (const uint8_t *)page.buf + page.len, NULL};
    int64_t found = -1;
    Py_BEGIN_ALLOW_THREADS
    if (!strcmp(codec, "SNAPPY"))
        found = (int64_t)next_number(&bytes, 32);
    else if (!strcmp(codec, "ZSTD"))
        found = zstd_content(&bytes);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&page);
    return PyLong_FromLongLong(bytes.problem ? -1 : found);
}

PyDoc_STRVAR(lz4_doc,
"lz4(page, out)\n--\n\nDecompress a block of LZ4 that fills `out`.");

static PyObject *lz4(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer page, out;
    if (!PyArg_ParseTuple(args, "y*w*", &page, &out))
        return NULL;
    Bytes bytes = {page.buf, (const uint8_t *)page.buf + page.len, NULL};
    const char *problem;
    Py_BEGIN_ALLOW_THREADS
    problem = lz4_block(&bytes, out.buf, (uint64_t)out.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&page);
    PyBuffer_Release(&out);
    return problem ? raise_problem(problem) : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"row_groups", row_groups, METH_O, row_groups_doc},
    {"chunks", chunks, METH_O, chunks_doc},
    {"memory", new_memory, METH_NOARGS, new_memory_doc},
    {"decode", decode, METH_VARARGS, decode_doc},
    {"stream", new_stream, METH_VARARGS, new_stream_doc},
    {"read", read_streams, METH_VARARGS, read_streams_doc},
    {"skip", skip_stream, METH_VARARGS, skip_stream_doc},
    {"headers", headers, METH_VARARGS, headers_doc},
    {"skip_levels", skip_levels, METH_VARARGS, skip_levels_doc},
    {"lookup", lookup_ids, METH_VARARGS, lookup_doc},
    {"checksum", checksum, METH_O, checksum_doc},
    {"content_bytes", content_bytes, METH_VARARGS, content_bytes_doc},
    {"lz4", lz4, METH_VARARGS, lz4_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_pages", "Pages of parquet files.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__pages(void) {
    make_checksum_tables();
    PyObject *made = PyModule_Create(&module);
    if (made && (PyModule_AddIntConstant(made, "VERSION", VERSION) ||
                 PyModule_AddStringConstant(made, "TOO_WIDE", TOO_WIDE)))
        Py_CLEAR(made);
    return made;
}
