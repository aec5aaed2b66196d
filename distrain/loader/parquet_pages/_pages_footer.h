/* Reads the parts of parquet footers that the page decoder needs.
 *
 * pyarrow's metadata of a column chunk aborts the process if a damaged footer has an unknown codec, or
 * statistics of another type than the column's, and creates ten objects per chunk. Here every length
 * is checked, and footers with another layout are rejected. */
#include <stdint.h>
#include <string.h>

enum { BYTE = 3, I16 = 4, DOUBLE = 7, LIST = 9, SET = 10 };
enum { MOST_NESTED = 16, MOST_ENCODING = 31 };

static void skip_value(Bytes *bytes, int type, int nested, int depth);

/* Return the type of a list's items, and set *count to their number. An item has at least one byte. */
static int next_list(Bytes *bytes, uint64_t *count) {
    int head = next_byte(bytes);
    *count = (uint64_t)head >> 4;
    if (*count == 15)
        *count = next_number(bytes, 32);
    if (*count > (uint64_t)(bytes->end - bytes->at))
        refuse(bytes, "a list is longer than its footer");
    return bytes->problem ? 0 : head & 15;
}

static void skip_struct(Bytes *bytes, int depth) {
    int number = 0, type;
    while ((type = next_field(bytes, &number)))
        skip_value(bytes, type, 0, depth);
}

/* Skip a value of a Thrift type; `nested` is 1 in a list. A boolean is a byte in a list; as a field, it
 * has no bytes, because its type is its value. */
static void skip_value(Bytes *bytes, int type, int nested, int depth) {
    uint64_t count = 0;
    if (depth >= MOST_NESTED) {
        refuse(bytes, "a footer is nested too deep");
    } else if (type == TRUE_FIELD || type == FALSE_FIELD) {
        skip(bytes, (uint64_t)nested);
    } else if (type == BYTE) {
        skip(bytes, 1);
    } else if (type == I16 || type == I32 || type == I64) {
        next_number(bytes, 64);
    } else if (type == DOUBLE) {
        skip(bytes, 8);
    } else if (type == BINARY) {
        skip(bytes, next_number(bytes, 32));
    } else if (type == LIST || type == SET) {
        int items = next_list(bytes, &count);
        while (count-- && !bytes->problem)
            skip_value(bytes, items, 1, depth + 1);
    } else if (type == STRUCT) {
        skip_struct(bytes, depth + 1);
    } else {
        refuse(bytes, "a footer holds a field of an unknown type");
    }
}

/* The fields of a column chunk; -1 for missing ones. `encodings` has a bit for each encoding. */
typedef struct {
    int64_t type, codec, num_values, num_bytes, data_page, dictionary_page, nulls, encodings;
    int is_elsewhere; /* in another file, or encrypted */
} ChunkFacts;

static void next_encodings(Bytes *bytes, ChunkFacts *chunk) {
    uint64_t count;
    if (next_list(bytes, &count) != I32)
        refuse(bytes, "encodings are of another type");
    chunk->encodings = 0;
    while (!bytes->problem && count--) {
        int64_t encoding = next_signed(bytes, 32);
        chunk->encodings |= 1ll << (encoding < 0 || encoding > MOST_ENCODING ? MOST_ENCODING : encoding);
    }
}

static void next_null_count(Bytes *bytes, ChunkFacts *chunk) {
    int number = 0, type;
    while ((type = next_field(bytes, &number)))
        if (number == 3 && type == I64)
            chunk->nulls = next_signed(bytes, 64);
        else
            skip_value(bytes, type, 0, 0);
}

static void next_chunk_metadata(Bytes *bytes, ChunkFacts *chunk) {
    int number = 0, type;
    while ((type = next_field(bytes, &number)))
        if (number == 1 && type == I32)
            chunk->type = next_signed(bytes, 32);
        else if (number == 2 && type == LIST)
            next_encodings(bytes, chunk);
        else if (number == 4 && type == I32)
            chunk->codec = next_signed(bytes, 32);
        else if (number == 5 && type == I64)
            chunk->num_values = next_signed(bytes, 64);
        else if (number == 7 && type == I64)
            chunk->num_bytes = next_signed(bytes, 64);
        else if (number == 9 && type == I64)
            chunk->data_page = next_signed(bytes, 64);
        else if (number == 11 && type == I64)
            chunk->dictionary_page = next_signed(bytes, 64);
        else if (number == 12 && type == STRUCT)
            next_null_count(bytes, chunk);
        else
            skip_value(bytes, type, 0, 0);
}

static ChunkFacts next_chunk(Bytes *bytes) {
    ChunkFacts chunk = {-1, -1, -1, -1, -1, -1, -1, -1, 0};
    int number = 0, type;
    while ((type = next_field(bytes, &number)))
        if (number == 3 && type == STRUCT) {
            next_chunk_metadata(bytes, &chunk);
        } else {
            chunk.is_elsewhere |= number == 1 || number == 8 || number == 9;
            skip_value(bytes, type, 0, 0);
        }
    return chunk;
}

static PyObject *chunk_tuple(const ChunkFacts *chunk) {
    return Py_BuildValue("(LLLLLLLLi)", (long long)chunk->type, (long long)chunk->codec,
                         (long long)chunk->num_values, (long long)chunk->num_bytes,
                         (long long)chunk->data_page, (long long)chunk->dictionary_page,
                         (long long)chunk->nulls, (long long)chunk->encodings, chunk->is_elsewhere);
}

/* Return the column chunks of a row group; other fields of its struct are skipped. */
static PyObject *list_chunks(Bytes *bytes) {
    PyObject *chunks = PyList_New(0);
    int number = 0, type;
    while (chunks && (type = next_field(bytes, &number))) {
        uint64_t count = 0;
        if (number != 1 || type != LIST) {
            skip_value(bytes, type, 0, 0);
            continue;
        }
        if (next_list(bytes, &count) != STRUCT)
            refuse(bytes, "column chunks are of another type");
        while (chunks && !bytes->problem && count--) {
            ChunkFacts chunk = next_chunk(bytes);
            PyObject *tuple = chunk_tuple(&chunk);
            if (!tuple || PyList_Append(chunks, tuple))
                Py_CLEAR(chunks);
            Py_XDECREF(tuple);
        }
    }
    return chunks;
}

/* Return the offset of each row group in a footer, then the end of the last one. */
static PyObject *list_row_groups(const Py_buffer *footer) {
    const uint8_t *start = footer->buf;
    Bytes bytes = {start, start + footer->len, NULL};
    PyObject *bounds = PyList_New(0);
    int number = 0, type;
    while (bounds && (type = next_field(&bytes, &number))) {
        uint64_t count = 0;
        if (number != 4 || type != LIST) {
            skip_value(&bytes, type, 0, 0);
            continue;
        }
        if (next_list(&bytes, &count) != STRUCT && count)
            refuse(&bytes, "row groups are of another type");
        for (uint64_t i = 0; bounds && !bytes.problem && i <= count; i++) {
            PyObject *at = PyLong_FromSsize_t(bytes.at - start);
            if (!at || PyList_Append(bounds, at))
                Py_CLEAR(bounds);
            Py_XDECREF(at);
            if (i < count)
                skip_struct(&bytes, 0);
        }
    }
    if (bounds && bytes.problem) {
        Py_CLEAR(bounds);
        raise_problem(bytes.problem);
    }
    return bounds;
}

PyDoc_STRVAR(row_groups_doc,
"row_groups(footer)\n--\n\n"
"Return the offset of each row group's part in a footer, then the end of the last part.");

static PyObject *row_groups(PyObject *module, PyObject *footer) {
    (void)module;
    Py_buffer bytes;
    if (PyObject_GetBuffer(footer, &bytes, PyBUF_SIMPLE))
        return NULL;
    PyObject *bounds = list_row_groups(&bytes);
    PyBuffer_Release(&bytes);
    return bounds;
}

PyDoc_STRVAR(chunks_doc,
"chunks(row_group)\n--\n\n"
"Return the column chunks of a row group, from its part of the footer, each as a tuple: type, codec,\n"
"number of values, compressed bytes, offset of the first data page, offset of the dictionary, number of\n"
"nulls, a bit mask of the encodings, and 1 if it is in another file or encrypted. Missing numbers are\n"
"-1.");

static PyObject *chunks(PyObject *module, PyObject *row_group) {
    (void)module;
    Py_buffer buffer;
    if (PyObject_GetBuffer(row_group, &buffer, PyBUF_SIMPLE))
        return NULL;
    Bytes bytes = {buffer.buf, (const uint8_t *)buffer.buf + buffer.len, NULL};
    PyObject *found = list_chunks(&bytes);
    if (found && bytes.problem) {
        Py_CLEAR(found);
        raise_problem(bytes.problem);
    }
    PyBuffer_Release(&buffer);
    return found;
}
