/* Computes the order of a chunk's rows: draws and sorts keys in one call, without the GIL.
 *
 * Called by row_order.py, whose NumPy fallback (`row_permutation`) defines the order.
 *
 * Why C: keys are random, so their first bits determine almost exactly where each key belongs.
 * NumPy's sort does not use this and takes three times as long; NumPy calls Philox number by number.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FEW_BITS 9    /* two copies of 2^9 keys, 4 KiB each, stay in the L1 cache */
#define SPLIT_BITS 12 /* keys are distributed to at most 2^12 parts at a time */

/* Return the high half of a product, and set *low to its low half. */
static inline uint64_t multiply(uint64_t a, uint64_t b, uint64_t *low) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    *low = a * b;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* Philox4x64-10 (Salmon et al., Parallel random numbers, 2011): four numbers for a counter. */
static inline void draw_four(uint64_t counter, uint64_t key0, uint64_t key1, uint64_t out[4]) {
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t low0, low1;
        uint64_t high0 = multiply(c0, 0xD2E7470EE14C6C93u, &low0);
        uint64_t high1 = multiply(c2, 0xCA5A826395121157u, &low1);
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B97F4A7C15u;
        key1 += 0xBB67AE8584CAA73Bu;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Draw the keys of all rows: random high bits, and the row's number in the low bits. Like NumPy's, the
 * counter begins at 1. */
static void draw_keys(uint64_t *keys, int64_t count, int number_bits, const uint64_t key[2]) {
    for (int64_t row = 0; row < count; row += 4) {
        uint64_t four[4];
        draw_four((uint64_t)row / 4 + 1, key[0], key[1], four);
        for (int64_t i = 0; i < 4 && row + i < count; i++)
            keys[row + i] = four[i] >> number_bits << number_bits | (uint64_t)(row + i);
    }
}

/* Return `bits` bits of a key, after its first `known` bits from the top. */
static inline uint64_t bucket_of(uint64_t key, int known, int bits) {
    return key << known >> (64 - bits);
}

/* Distribute keys to the buckets of `bucket_of`, stably; sets ends[b] to the end of bucket b. */
static void deal(const uint64_t *keys, int64_t count, int known, int bits, uint64_t *dealt,
                 uint32_t *ends) {
    uint32_t before = 0;
    memset(ends, 0, sizeof(uint32_t) << bits);
    for (int64_t i = 0; i < count; i++)
        ends[bucket_of(keys[i], known, bits)]++;
    for (int64_t b = 0; b < (int64_t)1 << bits; b++) {
        uint32_t size = ends[b];
        ends[b] = before;
        before += size;
    }
    for (int64_t i = 0; i < count; i++)
        dealt[ends[bucket_of(keys[i], known, bits)]++] = keys[i];
}

static int bits_of(int64_t number) {
    int bits = 0;
    for (; number; number >>= 1)
        bits++;
    return bits;
}

/* Sort a few keys whose first `known` bits are equal, and write their rows. There are at least as many
 * buckets as keys, so after the distribution almost every key is at its place. */
static void sort_few(const uint64_t *keys, int64_t count, int known, uint64_t row_mask,
                     uint64_t *scratch, int32_t *out) {
    uint32_t ends[1 << FEW_BITS];
    deal(keys, count, known, FEW_BITS, scratch, ends);
    for (int64_t i = 1; i < count; i++) {
        uint64_t key = scratch[i];
        int64_t at = i;
        for (; at && scratch[at - 1] > key; at--)
            scratch[at] = scratch[at - 1];
        scratch[at] = key;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)(scratch[i] & row_mask);
}

/* The same for any number of keys: divides them into parts of a few keys. Overwrites `keys` and
 * `scratch`. */
static void sort_keys(uint64_t *keys, int64_t count, int known, uint64_t row_mask,
                      uint64_t *scratch, int32_t *out) {
    if (count <= 1 << FEW_BITS || known > 64 - SPLIT_BITS) {
        sort_few(keys, count, known, row_mask, scratch, out);
        return;
    }
    uint32_t ends[1 << SPLIT_BITS];
    int bits = bits_of(count - 1) - FEW_BITS + 1;
    bits = bits > SPLIT_BITS ? SPLIT_BITS : bits;
    deal(keys, count, known, bits, scratch, ends);
    for (int64_t part = 0, start = 0; part < (int64_t)1 << bits; start = ends[part++])
        sort_keys(scratch + start, ends[part] - start, known + bits, row_mask, keys + start,
                  out + start);
}

static int write_order(int32_t *out, int64_t count, int number_bits, const uint64_t key[2]) {
    uint64_t *keys = malloc((size_t)count * 8), *scratch = malloc((size_t)count * 8);
    int made = keys && scratch;
    if (made) {
        draw_keys(keys, count, number_bits, key);
        sort_keys(keys, count, 0, ((uint64_t)1 << number_bits) - 1, scratch, out);
    }
    free(keys);
    free(scratch);
    return made;
}

PyDoc_STRVAR(order_doc,
"order(key0, key1, number_bits, out)\n--\n\n"
"Fill `out`, int32, with the row numbers 0 to len(out) - 1, sorted by their sort keys. A sort key is a\n"
"number of NumPy's raw Philox with the key (key0, key1), whose lowest `number_bits` bits are replaced by\n"
"the row's number.");

static PyObject *order(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer out;
    unsigned long long key0, key1;
    int number_bits, made = 1;
    if (!PyArg_ParseTuple(args, "KKiw*", &key0, &key1, &number_bits, &out))
        return NULL;
    const uint64_t key[2] = {key0, key1};
    int64_t count = out.len / 4;
    int fits = out.len % 4 == 0 && (uintptr_t)out.buf % 4 == 0 && number_bits >= 1 &&
               number_bits <= 31 && count <= (int64_t)1 << number_bits;
    if (fits && count) {
        Py_BEGIN_ALLOW_THREADS
        made = write_order(out.buf, count, number_bits, key);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "rows need more bits, or are not aligned");
    if (!made)
        return PyErr_NoMemory();
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"order", order, METH_VARARGS, order_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_order", "The order of a chunk's rows.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__order(void) { return PyModule_Create(&module); }
