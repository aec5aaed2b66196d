/* Decodes pages of parquet files: headers, checksums, levels and values.
 *
 * Called by column_stream.py and pages_of_file.py. Every length and offset is checked before memory is
 * accessed. If anything is unknown or wrong, it is reported, and Arrow reads the column instead. Long
 * loops run without the GIL.
 *
 * Why C: ids are bit-packed, and a row group has a hundred page headers. Arrow decodes through more
 * layers, with a level for every value, and takes up to twice as long.
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

/* Increase it with every change of the functions that Python calls; footer.py has the same number. */
#define VERSION 8

static PyMethodDef methods[] = {
    {"row_groups", row_groups, METH_O, row_groups_doc},
    {"chunks", chunks, METH_O, chunks_doc},
    {"memory", new_memory, METH_NOARGS, new_memory_doc},
    {"decode", decode, METH_VARARGS, decode_doc},
    {"stream", new_stream, METH_VARARGS, new_stream_doc},
    {"read", read_streams, METH_VARARGS, read_streams_doc},
    {"skip", skip_stream, METH_VARARGS, skip_stream_doc},
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
