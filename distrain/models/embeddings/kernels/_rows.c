/* The CPU kernels of embedding tables: group ids, gather rows, expand, collect, update, draw.
 *
 * Called by cpu.py. on_torch.py computes the same in torch, with the same results bit by bit. This
 * file checks the arguments; the loops are in _rows_loops.h. Wrong arguments never cause accesses
 * outside an array. The GIL is released while a loop runs.
 *
 * Why C: a batch of 65,536 rows and 26 columns looks up 1.7 million rows of 64 bytes, at random
 * addresses in gigabytes. Torch waits for each row in turn; these loops prefetch them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_rows_loops.h"
#include "_philox.h"

#define MOST_BUFFERS 8

typedef struct {
    Py_buffer views[MOST_BUFFERS];
    int count;
} Buffers;

static void release(Buffers *buffers) {
    while (buffers->count)
        PyBuffer_Release(&buffers->views[--buffers->count]);
}

/* Returns whether all axes except the first are contiguous; the first may have any stride. */
static int lies_close(const Py_buffer *view) {
    Py_ssize_t bytes = view->itemsize;
    for (int axis = view->ndim - 1; axis > 0; axis--) {
        if (view->shape[axis] > 1 && view->strides[axis] != bytes)
            return 0;
        bytes *= view->shape[axis];
    }
    return 1;
}

static int is_contiguous(const Py_buffer *view) {
    return lies_close(view) &&
           (view->shape[0] < 2 || view->strides[0] * view->shape[0] == view->len);
}

static int has_type(const Py_buffer *view, char type) {
    const char *formats = type == 'i' ? "il" : type == 'q' ? "lq" : type == 'Q' ? "LQ"
                        : type == 'f' ? "f" : "h";
    Py_ssize_t bytes = type == 'h' ? 2 : type == 'q' || type == 'Q' ? 8 : 4;
    const char *format = view->format ? view->format : "B";
    return format[0] && !format[1] && strchr(formats, format[0]) && view->itemsize == bytes;
}

enum { READ, READ_ROWS_APART, WRITE };

/* Returns the buffer of an array with this type ('i': int32, 'q': int64, 'Q': uint64, 'f': float32,
 * 'h': bfloat16 as int16) and number of axes; NULL with an exception set if the array differs. */
static Py_buffer *get(
    Buffers *buffers, PyObject *object, const char *name, char type, int num_axes, int use
) {
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(object, view, use == WRITE ? PyBUF_RECORDS : PyBUF_RECORDS_RO))
        return NULL;
    buffers->count++;
    const char *problem = NULL;
    if (!has_type(view, type))
        problem = "has the wrong type";
    else if (view->ndim != num_axes)
        problem = "has the wrong number of axes";
    else if (!(use == READ_ROWS_APART ? lies_close(view) : is_contiguous(view)))
        problem = "is not contiguous";
    else if ((uintptr_t)view->buf % (size_t)view->itemsize ||
             view->strides[0] % view->itemsize)
        problem = "is not aligned";
    if (!problem)
        return view;
    PyErr_Format(PyExc_ValueError, "%s %s", name, problem);
    return NULL;
}

static PyObject *refuse(Buffers *buffers, const char *problem) {
    release(buffers);
    if (problem)
        PyErr_SetString(PyExc_ValueError, problem);
    return NULL;
}

/* ---- unique ---- */

static const char *problem_of_unique(const UniqueWork *work, int64_t num_ids, int64_t room) {
    const int64_t *offsets = work->offsets, *counts = work->counts;
    int64_t total = 0;
    for (int64_t c = 0; c < work->num_columns; c++) {
        int64_t column = 0;
        for (int64_t s = 0; s < work->num_segments; s++, offsets++, counts++) {
            if (*offsets < 0 || *counts < 0 || *offsets > num_ids || *counts > num_ids - *offsets)
                return "a segment leaves the ids";
            column += *counts;
            if (column > INT32_MAX)
                return "too many ids";
        }
        total += column;
        if (column > (int64_t)1 << (work->bits - 1))
            return "a column needs more slots";
        if (total > INT32_MAX - 1)
            return "too many ids";
    }
    return total <= room ? NULL : "the distinct ids need more room";
}

PyDoc_STRVAR(unique_doc,
"unique(ids, offsets, counts, inverse, distinct, per_column, slots)\n--\n\n"
"Number the distinct ids of each column; returns how many there are.");

static PyObject *py_unique(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *in[7];
    if (!PyArg_ParseTuple(args, "OOOOOOO", &in[0], &in[1], &in[2], &in[3], &in[4], &in[5], &in[6]))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *ids, *offsets, *counts, *inverse, *distinct, *per_column, *slots;
    if (!(ids = get(&buffers, in[0], "ids", 'i', 1, READ)) ||
        !(offsets = get(&buffers, in[1], "offsets", 'q', 2, READ)) ||
        !(counts = get(&buffers, in[2], "counts", 'q', 2, READ)) ||
        !(inverse = get(&buffers, in[3], "inverse", 'i', 1, WRITE)) ||
        !(distinct = get(&buffers, in[4], "distinct", 'i', 1, WRITE)) ||
        !(per_column = get(&buffers, in[5], "per_column", 'q', 1, WRITE)) ||
        !(slots = get(&buffers, in[6], "slots", 'Q', 1, WRITE)))
        return refuse(&buffers, NULL);
    if (memcmp(offsets->shape, counts->shape, 2 * sizeof *counts->shape) ||
        per_column->shape[0] != counts->shape[0] || inverse->shape[0] != ids->shape[0])
        return refuse(&buffers, "arguments differ in shape");
    UniqueWork work = {
        .num_columns = counts->shape[0], .num_segments = counts->shape[1],
        .offsets = offsets->buf, .counts = counts->buf, .ids = ids->buf, .inverse = inverse->buf,
        .distinct = distinct->buf, .per_column = per_column->buf, .slots = slots->buf,
    };
    while (work.bits < 31 && (int64_t)2 << work.bits <= slots->shape[0])
        work.bits++;
    if (work.bits < 1)
        return refuse(&buffers, "a column needs more slots");
    const char *problem = problem_of_unique(&work, ids->shape[0], distinct->shape[0]);
    if (problem)
        return refuse(&buffers, problem);
    int64_t count;
    Py_BEGIN_ALLOW_THREADS
    count = unique(&work);
    Py_END_ALLOW_THREADS
    release(&buffers);
    return PyLong_FromLongLong(count);
}

/* ---- expand and collect ---- */

static PyObject *run_batch(PyObject *args, int is_collect) {
    PyObject *in[4];
    if (!PyArg_ParseTuple(args, "OOOO", &in[0], &in[1], &in[2], &in[3]))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *distinct, *inverse, *places, *batch;
    if (!(distinct = get(&buffers, in[0], "distinct rows", 'f', 2, is_collect ? WRITE : READ)) ||
        !(inverse = get(&buffers, in[1], "inverse", 'i', 2, READ_ROWS_APART)) ||
        !(places = get(&buffers, in[2], "places", 'q', 1, READ)) ||
        !(batch = get(&buffers, in[3], "batch", 'f', 3, is_collect ? READ : WRITE)))
        return refuse(&buffers, NULL);
    if (places->shape[0] != inverse->shape[0] || batch->shape[0] != inverse->shape[1] ||
        batch->shape[2] != distinct->shape[1])
        return refuse(&buffers, "arguments differ in shape");
    for (Py_ssize_t c = 0; c < places->shape[0]; c++)
        if ((uint64_t)((int64_t *)places->buf)[c] >= (uint64_t)batch->shape[1])
            return refuse(&buffers, "a place is outside the batch");
    BatchWork work = {
        .num_columns = inverse->shape[0], .num_rows = inverse->shape[1],
        .num_places = batch->shape[1], .dim = batch->shape[2],
        .num_distinct = distinct->shape[0], .inverse_stride = inverse->strides[0] / 4,
        .inverse = inverse->buf, .places = places->buf, .distinct = distinct->buf,
        .batch = batch->buf,
    };
    Py_BEGIN_ALLOW_THREADS
    if (is_collect)
        collect(&work);
    else
        expand(&work);
    Py_END_ALLOW_THREADS
    if (work.outside)
        return refuse(&buffers, "an inverse index is outside the distinct rows");
    release(&buffers);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(expand_doc,
"expand(rows, inverse, places, out)\n--\n\nout[i, places[c]] = rows[inverse[c, i]]");

static PyObject *py_expand(PyObject *module, PyObject *args) {
    (void)module;
    return run_batch(args, 0);
}

PyDoc_STRVAR(collect_doc,
"collect(sums, inverse, places, grads)\n--\n\nsums[inverse[c, i]] += grads[i, places[c]], i rising");

static PyObject *py_collect(PyObject *module, PyObject *args) {
    (void)module;
    return run_batch(args, 1);
}

/* ---- gather and update ---- */

static int all_rows(const int64_t *keys, int64_t count, int64_t num_rows) {
    uint64_t largest = 0;
    for (int64_t k = 0; k < count; k++)
        largest = (uint64_t)keys[k] > largest ? (uint64_t)keys[k] : largest;
    return count == 0 || largest < (uint64_t)num_rows;
}

PyDoc_STRVAR(gather_doc,
"gather(weight, is_bfloat16, keys, out)\n--\n\nout[k] = weight[keys[k]], as float32");

static PyObject *py_gather(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *in[3];
    RowWork work = {0};
    if (!PyArg_ParseTuple(args, "OpOO", &in[0], &work.is_bfloat16, &in[1], &in[2]))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *weight, *keys, *out;
    if (!(weight = get(&buffers, in[0], "weight", work.is_bfloat16 ? 'h' : 'f', 2, READ)) ||
        !(keys = get(&buffers, in[1], "keys", 'q', 1, READ)) ||
        !(out = get(&buffers, in[2], "out", 'f', 2, WRITE)))
        return refuse(&buffers, NULL);
    if (out->shape[0] != keys->shape[0] || out->shape[1] != weight->shape[1])
        return refuse(&buffers, "arguments differ in shape");
    if (!all_rows(keys->buf, keys->shape[0], weight->shape[0]))
        return refuse(&buffers, "a key is outside the weight");
    work.weight = weight->buf;
    work.keys = keys->buf;
    work.out = out->buf;
    work.num_keys = keys->shape[0];
    work.dim = weight->shape[1];
    Py_BEGIN_ALLOW_THREADS
    gather(&work);
    Py_END_ALLOW_THREADS
    release(&buffers);
    Py_RETURN_NONE;
}

/* Gets an array of the optimizer's state: with the shape of the weight, or with one value a row. */
static int get_state(
    Buffers *buffers, PyObject *object, const Py_buffer *weight, int has, float **state
) {
    if (has == NOTHING)
        return 1;
    int per_value = has == EACH_VALUE;
    Py_buffer *view = get(buffers, object, "state", 'f', per_value ? 2 : 1, WRITE);
    if (!view)
        return 0;
    if (view->shape[0] != weight->shape[0] || (per_value && view->shape[1] != weight->shape[1])) {
        PyErr_SetString(PyExc_ValueError, "arguments differ in shape");
        return 0;
    }
    *state = view->buf;
    return 1;
}

PyDoc_STRVAR(update_doc,
"update(kind, weight, is_bfloat16, first, second, keys, global_keys, grads, seed, rate, eps, beta1, "
"beta2)\n--\n\nUpdate the touched rows; kind is a number of RULES.");

static PyObject *py_update(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *in[6];
    RowWork work = {0};
    unsigned long long seed;
    double rate, eps, beta1, beta2;
    if (!PyArg_ParseTuple(args, "iOpOOOOOKdddd", &work.kind, &in[0], &work.is_bfloat16, &in[1],
                          &in[2], &in[3], &in[4], &in[5], &seed, &rate, &eps, &beta1, &beta2))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *weight, *keys, *global_keys, *grads;
    if (work.kind < 0 || work.kind >= NUM_RULES)
        return refuse(&buffers, "unknown kind of update rule");
    if (!(weight = get(&buffers, in[0], "weight", work.is_bfloat16 ? 'h' : 'f', 2, WRITE)) ||
        !get_state(&buffers, in[1], weight, rules[work.kind].first, &work.first) ||
        !get_state(&buffers, in[2], weight, rules[work.kind].second, &work.second) ||
        !(keys = get(&buffers, in[3], "keys", 'q', 1, READ)) ||
        !(global_keys = get(&buffers, in[4], "global keys", 'q', 1, READ)) ||
        !(grads = get(&buffers, in[5], "gradients", 'f', 2, READ)))
        return refuse(&buffers, NULL);
    if (global_keys->shape[0] != keys->shape[0] || grads->shape[0] != keys->shape[0] ||
        grads->shape[1] != weight->shape[1])
        return refuse(&buffers, "arguments differ in shape");
    if (!all_rows(keys->buf, keys->shape[0], weight->shape[0]))
        return refuse(&buffers, "a key is outside the weight");
    work.weight = weight->buf;
    work.keys = keys->buf;
    work.global_keys = global_keys->buf;
    work.grads = grads->buf;
    work.num_keys = keys->shape[0];
    work.dim = weight->shape[1];
    work.seed_low = (uint32_t)seed;
    work.seed_high = (uint32_t)(seed >> 32);
    work.rate = (float)rate;
    work.eps = (float)eps;
    work.gain1 = (float)(1 - beta1);
    work.decay2 = (float)beta2;
    work.gain2 = (float)(1 - beta2);
    Py_BEGIN_ALLOW_THREADS
    update(&work);
    Py_END_ALLOW_THREADS
    release(&buffers);
    Py_RETURN_NONE;
}

/* ---- draw ---- */

PyDoc_STRVAR(draw_doc,
"draw(key, rows, scale, out)\n--\n\nPhilox words of the rows, as float32 in -2**23 .. 2**23-1, "
"times scale");

static PyObject *py_draw(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *in[2];
    unsigned long long key;
    DrawWork work = {0};
    if (!PyArg_ParseTuple(args, "KOfO", &key, &in[0], &work.scale, &in[1]))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *rows, *out;
    if (!(rows = get(&buffers, in[0], "rows", 'q', 1, READ)) ||
        !(out = get(&buffers, in[1], "out", 'f', 2, WRITE)))
        return refuse(&buffers, NULL);
    if (out->shape[0] != rows->shape[0])
        return refuse(&buffers, "arguments differ in shape");
    work.num_rows = rows->shape[0];
    work.dim = out->shape[1];
    work.rows = rows->buf;
    work.out = out->buf;
    work.key_low = (uint32_t)key;
    work.key_high = (uint32_t)(key >> 32);
    Py_BEGIN_ALLOW_THREADS
    draw(&work);
    Py_END_ALLOW_THREADS
    release(&buffers);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"unique", py_unique, METH_VARARGS, unique_doc},
    {"gather", py_gather, METH_VARARGS, gather_doc},
    {"expand", py_expand, METH_VARARGS, expand_doc},
    {"collect", py_collect, METH_VARARGS, collect_doc},
    {"update", py_update, METH_VARARGS, update_doc},
    {"draw", py_draw, METH_VARARGS, draw_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_rows", "The CPU kernels of embedding tables.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void) {
    choose_instructions();
    PyObject *made = PyModule_Create(&module), *numbers = made ? PyDict_New() : NULL;
    for (int kind = 0; numbers && kind < NUM_RULES; kind++) {
        PyObject *number = PyLong_FromLong(kind);
        if (!number || PyDict_SetItemString(numbers, rules[kind].name, number))
            Py_CLEAR(numbers);
        Py_XDECREF(number);
    }
    if (!numbers || PyModule_AddObject(made, "RULES", numbers)) { /* takes it over, unless it fails */
        Py_XDECREF(numbers);
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
