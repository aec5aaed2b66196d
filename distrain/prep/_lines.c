/* Criteo's lines to columns, in one pass over the text.
 *
 * Called by raw_lines.py. Takes lines in their plainest form only: 40 fields, a label 0 or 1,
 * integers of at most 18 digits, words of 8 hex digits, and a line end that may be CR LF. Whatever
 * else a line holds, the text is refused as a whole, and Arrow's reader of CSV decides about it.
 *
 * Why C: Arrow first finds all fields, then converts each column and looks for blanks and nulls,
 * and the hex digits are read a third time. That was the largest part of `distrain prep`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { NUMBERS = 13, WORDS = 26, MOST_DIGITS = 18 };

/* Columns of `rows` values, one after another; a bit per value in `valid`, one bitmap of
 * `stride` bytes per column, numbers before words, all zero at first. */
typedef struct {
    int8_t *labels;
    int64_t *numbers;
    uint32_t *words;
    uint8_t *valid;
    int64_t *missing;
    Py_ssize_t rows, stride;
} Columns;

#define EACH(BYTE) ((BYTE) * 0x0101010101010101ull)
#define HIGH_BITS EACH(0x80ull)
/* Added to bytes below 128: sets the high bit of those that are at least the character. */
#define FROM(CHARACTER) EACH(0x80ull - (CHARACTER))

static inline uint64_t first_byte_highest(const uint8_t *at) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | at[i];
    return word;
}

/* The number that 8 hex digits spell; all bytes at a time. Returns 0 if one is no hex digit. */
static inline int spelt(const uint8_t *at, uint32_t *number) {
    uint64_t word = first_byte_highest(at), lower = word | EACH(0x20ull);
    uint64_t is_letter = (lower + FROM('a')) & ~(lower + FROM('f' + 1)) & HIGH_BITS;
    uint64_t is_digit = (word + FROM('0')) & ~(word + FROM('9' + 1)) & HIGH_BITS;
    if ((word & HIGH_BITS) || (is_letter | is_digit) != HIGH_BITS)
        return 0;
    uint64_t digits = (word & EACH(0x0full)) + (is_letter >> 7) * 9;
    digits = (digits | digits >> 4) & 0x00ff00ff00ff00ffull;
    digits = (digits | digits >> 8) & 0x0000ffff0000ffffull;
    *number = (uint32_t)(digits | digits >> 16);
    return 1;
}

/* One line into row `row`; returns where the next begins, or NULL if this is not plain. */
static const uint8_t *take_line(
    const uint8_t *at, const uint8_t *end, uint8_t delimiter, const Columns *to, Py_ssize_t row
) {
    if (end - at < 2 || (at[0] != '0' && at[0] != '1') || at[1] != delimiter)
        return NULL;
    to->labels[row] = (int8_t)(at[0] - '0');
    at += 2;
    uint8_t *valid = to->valid + (row >> 3), bit = (uint8_t)(1u << (row & 7));
    for (int column = 0; column < NUMBERS; column++, valid += to->stride) {
        int negative = at < end && *at == '-';
        const uint8_t *first = at + negative, *digit = first;
        int64_t number = 0;
        while (digit < end && (uint8_t)(*digit - '0') < 10 && digit - first < MOST_DIGITS)
            number = 10 * number + (*digit++ - '0');
        if (digit == end || *digit != delimiter || (negative && digit == first))
            return NULL;
        to->numbers[column * to->rows + row] = negative ? -number : number;
        if (digit == first)
            to->missing[column]++;
        else
            *valid |= bit;
        at = digit + 1;
    }
    for (int column = 0; column < WORDS; column++, valid += to->stride) {
        uint32_t word = 0;
        int is_last = column == WORDS - 1;
        int is_empty = at == end || *at == delimiter || *at == '\n' || *at == '\r';
        if (is_empty) {
            to->missing[NUMBERS + column]++;
        } else {
            if (end - at < 8 || !spelt(at, &word))
                return NULL;
            *valid |= bit;
            at += 8;
        }
        to->words[column * to->rows + row] = word;
        if (!is_last && (at == end || *at++ != delimiter))
            return NULL;
    }
    if (at == end)
        return at;
    if (*at == '\r' && end - at >= 2)
        at++;
    return *at == '\n' ? at + 1 : NULL;
}

static int take_lines(const uint8_t *at, const uint8_t *end, uint8_t delimiter, const Columns *to) {
    for (Py_ssize_t row = 0; row < to->rows; row++)
        if (!(at = take_line(at, end, delimiter, to, row)))
            return 0;
    return at == end;
}

static PyObject *run(const Py_buffer *text, int delimiter, Columns *to, const Py_buffer *out) {
    to->rows = out[0].len;
    to->stride = (to->rows + 7) / 8;
    to->labels = out[0].buf;
    to->numbers = out[1].buf;
    to->words = out[2].buf;
    to->valid = out[3].buf;
    to->missing = out[4].buf;
    if (out[1].len != 8 * NUMBERS * to->rows || out[2].len != 4 * WORDS * to->rows ||
        out[3].len != (NUMBERS + WORDS) * to->stride || out[4].len != 8 * (NUMBERS + WORDS)) {
        PyErr_SetString(PyExc_ValueError, "arguments differ in length");
        return NULL;
    }
    if ((uintptr_t)to->numbers % 8 || (uintptr_t)to->words % 4 || (uintptr_t)to->missing % 8) {
        PyErr_SetString(PyExc_ValueError, "arguments are not aligned");
        return NULL;
    }
    int taken;
    const uint8_t *at = text->buf;
    Py_BEGIN_ALLOW_THREADS
    taken = take_lines(at, at + text->len, (uint8_t)delimiter, to);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(taken);
}

PyDoc_STRVAR(parse_doc,
"parse(text, delimiter, labels, numbers, words, valid, missing)\n--\n\n"
"Fill columns with the lines of a text; False, and columns of no use, if one is not plain.\n"
"See distrain/prep/raw_lines.py for the arguments.");

static PyObject *parse(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer text, out[5] = {{0}};
    int delimiter;
    if (!PyArg_ParseTuple(args, "y*iw*w*w*w*w*", &text, &delimiter, &out[0], &out[1], &out[2],
                          &out[3], &out[4]))
        return NULL;
    Columns to = {0};
    PyObject *result = run(&text, delimiter, &to, out);
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(&out[i]);
    PyBuffer_Release(&text);
    return result;
}

static PyMethodDef methods[] = {
    {"parse", parse, METH_VARARGS, parse_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_lines", "Criteo's lines to columns.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__lines(void) { return PyModule_Create(&module); }
