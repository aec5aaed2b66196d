/* Writes the lists of a row group to batches: measures lists, gathers their items run by run, and
 * copies items to their places. Part of _fill.c; the NumPy fallback is in fill_numpy.py.
 *
 * Why C: for lists of six ids or fewer, NumPy takes a dozen calls for each run and column, each with
 * an index per item, which takes longer than decoding the items.
 */

/* The rows of one call: run k takes the next counts[k] entries of `rows`. The first `most` items of
 * each list are kept. */
typedef struct {
    const int32_t *offsets, *rows;
    const int64_t *counts;
    Py_ssize_t num_lists, num_rows, num_runs;
    int64_t most, num_items;
} Lists;

/* Return the number of a row's items, at most `most`, and set *first to the index of the first item.
 * Returns -1 if the row or its items are out of bounds. */
static inline int64_t find_list(const Lists *lists, Py_ssize_t entry, int64_t *first) {
    int32_t row = lists->rows[entry];
    if (row < 0 || row >= lists->num_lists)
        return -1;
    int64_t start = lists->offsets[row], count = lists->offsets[row + 1] - start;
    if (start < 0 || count < 0 || count > lists->num_items - start)
        return -1;
    *first = start;
    return count < lists->most ? count : lists->most;
}

#define NO_LIST "a row has no list, or its list no items"
#define OTHER_ITEMS "the rows have other items than the blocks are for"

/* Compute the length of each row's list, the number of items of each run, and the longest list. */
static const char *measure_all(const Lists *lists, int32_t *lengths, int64_t *totals, int32_t *longest) {
    Py_ssize_t entry = 0;
    int64_t most = 0;
    for (Py_ssize_t run = 0; run < lists->num_runs; run++) {
        if (lists->counts[run] < 0 || lists->counts[run] > lists->num_rows - entry)
            return "runs take more rows than there are";
        int64_t total = 0;
        for (Py_ssize_t end = entry + lists->counts[run]; entry < end; entry++) {
            int64_t first, count = find_list(lists, entry, &first);
            if (count < 0)
                return NO_LIST;
            lengths[entry] = (int32_t)count;
            total += count;
            most = count > most ? count : most;
        }
        totals[run] = total;
    }
    *longest = (int32_t)most;
    return entry == lists->num_rows ? NULL : "runs take fewer rows than there are";
}

/* Each list of up to SHORT_ITEMS items is copied as SHORT_ITEMS items, and the next list overwrites
 * the excess: a copy of constant length has no branch to mispredict. */
#define SHORT_ITEMS 8

/* Copy the 4-byte items of a run's rows; return 1 if there are exactly `capacity` items. */
static int copy_lists(
    const Lists *lists, const char *source, Py_ssize_t entry, Py_ssize_t end, uint32_t *cells, int64_t capacity
) {
    int64_t done = 0;
    for (; entry < end; entry++) {
        int64_t first = 0, count = find_list(lists, entry, &first);
        if (count < 0 || count > capacity - done)
            return 0;
        int has_room = first + SHORT_ITEMS <= lists->num_items && done + SHORT_ITEMS <= capacity;
        if (count <= SHORT_ITEMS && has_room)
            memcpy(cells + done, source + 4 * first, 4 * SHORT_ITEMS);
        else
            memcpy(cells + done, source + 4 * first, 4 * (size_t)count);
        done += count;
    }
    return done == capacity;
}

FOR_EACH_PROCESSOR static uint32_t largest_key(const uint32_t *cells, int64_t count, uint32_t mask) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = (cells[i] & mask) > largest ? cells[i] & mask : largest;
    return largest;
}

/* The same for items of other sizes, which are converted to cells; updates *largest, the largest key
 * (see GATHER). */
#define CONVERT_LISTS(NAME, TYPE, KEY, CELL)                                                        \
    static int NAME(                                                                                \
        const Lists *lists, const char *source, Py_ssize_t entry, Py_ssize_t end, uint32_t *cells,  \
        int64_t capacity, uint64_t *largest                                                         \
    ) {                                                                                             \
        int64_t done = 0;                                                                           \
        for (; entry < end; entry++) {                                                              \
            int64_t first = 0, count = find_list(lists, entry, &first);                             \
            if (count < 0 || count > capacity - done)                                               \
                return 0;                                                                           \
            for (int64_t i = 0; i < count; i++) {                                                   \
                LOAD(TYPE, value, source, first + i);                                               \
                uint32_t cell = (CELL);                                                             \
                uint64_t key = (KEY);                                                               \
                cells[done + i] = cell;                                                             \
                *largest = key > *largest ? key : *largest;                                         \
            }                                                                                       \
            done += count;                                                                          \
        }                                                                                           \
        return done == capacity;                                                                    \
    }

CONVERT_LISTS(convert_int64_lists, int64_t, (uint64_t)value, (uint32_t)value)
CONVERT_LISTS(convert_uint8_lists, uint8_t, value, value)
CONVERT_LISTS(convert_uint16_lists, uint16_t, value, value)
CONVERT_LISTS(convert_float64_lists, double, cell & EXPONENT, bits_of((float)value))

/* Write the items of each run to its block, and set *suspicious if one is suspicious. Returns what is
 * wrong with the arguments, or NULL. */
static const char *gather_all(
    const Lists *lists, const Py_buffer *items, char role, char type, uint64_t limit,
    const Py_buffer *blocks, int *suspicious
) {
    Py_ssize_t entry = 0;
    for (Py_ssize_t run = 0; run < lists->num_runs; run++) {
        if (lists->counts[run] < 0 || lists->counts[run] > lists->num_rows - entry)
            return "runs take more rows than there are";
        Py_ssize_t end = entry + lists->counts[run];
        uint32_t *cells = blocks[run].buf;
        int64_t capacity = blocks[run].len / 4;
        uint64_t largest = 0;
        int fits;
        if (type == 'q')
            fits = convert_int64_lists(lists, items->buf, entry, end, cells, capacity, &largest);
        else if (type == 'B')
            fits = convert_uint8_lists(lists, items->buf, entry, end, cells, capacity, &largest);
        else if (type == 'H')
            fits = convert_uint16_lists(lists, items->buf, entry, end, cells, capacity, &largest);
        else if (type == 'd')
            fits = convert_float64_lists(lists, items->buf, entry, end, cells, capacity, &largest);
        else if ((fits = copy_lists(lists, items->buf, entry, end, cells, capacity)))
            largest = largest_key(cells, capacity, role == 'i' ? UINT32_MAX : EXPONENT);
        if (!fits)
            return OTHER_ITEMS;
        *suspicious |= largest >= (role == 'i' ? limit : EXPONENT);
        entry = end;
    }
    return entry == lists->num_rows ? NULL : "runs take fewer rows than there are";
}

/* Copy the items of rows to `values`: those of the i-th row begin at offsets[places[i]]. Returns what
 * is wrong with the arguments, or NULL. */
static const char *place_all(
    const uint32_t *items, int64_t num_items, const int32_t *places, Py_ssize_t num_rows,
    const int32_t *offsets, Py_ssize_t num_places, uint32_t *values, int64_t num_values
) {
    int64_t done = 0;
    for (Py_ssize_t i = 0; i < num_rows; i++) {
        int32_t place = places[i];
        if (place < 0 || place >= num_places)
            return "a place is not in the batch";
        int64_t to = offsets[place], count = offsets[place + 1] - to;
        if (to < 0 || count < 0 || count > num_values - to || count > num_items - done)
            return OTHER_ITEMS;
        for (int64_t k = 0; k < count; k++)
            values[to + k] = items[done + k];
        done += count;
    }
    return done == num_items ? NULL : OTHER_ITEMS;
}

static int has_numbers(const Py_buffer *buffer, size_t item_bytes) {
    return is_aligned(buffer->buf, item_bytes) && buffer->len % item_bytes == 0;
}

static const char *set_lists(
    Lists *lists, const Py_buffer *offsets, const Py_buffer *rows, const Py_buffer *counts
) {
    if (!has_numbers(offsets, 4) || !has_numbers(rows, 4) || !has_numbers(counts, 8) || !offsets->len)
        return "offsets, rows or counts are no array of numbers";
    lists->offsets = offsets->buf;
    lists->num_lists = offsets->len / 4 - 1;
    lists->rows = rows->buf;
    lists->num_rows = rows->len / 4;
    lists->counts = counts->buf;
    lists->num_runs = counts->len / 8;
    return lists->most < 0 ? "fewer than no items are to be kept" : NULL;
}

static void release_all(Py_buffer *buffers, int count) {
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&buffers[i]);
}

static PyObject *none_unless(const char *problem) {
    if (problem) {
        PyErr_SetString(PyExc_ValueError, problem);
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(measure_lists_doc,
"measure_lists(offsets, num_items, rows, counts, most, lengths, totals)\n--\n\n"
"Compute the list length of each row and the items of each run; return the maximum length.\n"
"See distrain.loader.filling.fill_numpy.measure_lists for the arguments.");

static PyObject *measure_lists(PyObject *module, PyObject *args) {
    (void)module;
    enum { OFFSETS, ROWS, COUNTS, LENGTHS, TOTALS, NUM_BUFFERS };
    Py_buffer own[NUM_BUFFERS] = {{0}};
    long long num_items, most;
    if (!PyArg_ParseTuple(args, "y*Ly*y*Lw*w*", &own[OFFSETS], &num_items, &own[ROWS], &own[COUNTS],
                          &most, &own[LENGTHS], &own[TOTALS]))
        return NULL;
    Lists lists = {.most = most, .num_items = num_items};
    int32_t longest = 0;
    const char *problem = set_lists(&lists, &own[OFFSETS], &own[ROWS], &own[COUNTS]);
    if (!problem && (own[LENGTHS].len != own[ROWS].len || own[TOTALS].len != own[COUNTS].len ||
                     !has_numbers(&own[LENGTHS], 4) || !has_numbers(&own[TOTALS], 8)))
        problem = "lengths are one a row, and totals one a run";
    Py_BEGIN_ALLOW_THREADS
    if (!problem)
        problem = measure_all(&lists, own[LENGTHS].buf, own[TOTALS].buf, &longest);
    Py_END_ALLOW_THREADS
    release_all(own, NUM_BUFFERS);
    PyObject *done = none_unless(problem);
    if (!done)
        return NULL;
    Py_DECREF(done);
    return PyLong_FromLong(longest);
}

PyDoc_STRVAR(gather_lists_doc,
"gather_lists(offsets, items, role, type, limit, rows, counts, most, blocks)\n--\n\n"
"Write the items of rows, run by run; return True if one is suspicious.\n"
"See distrain.loader.filling.fill_numpy.gather_lists for the arguments.");

static PyObject *gather_lists(PyObject *module, PyObject *args) {
    (void)module;
    enum { OFFSETS, ITEMS, ROWS, COUNTS, NUM_BUFFERS };
    Py_buffer own[NUM_BUFFERS] = {{0}};
    PyObject *objects;
    const char *role, *type;
    unsigned long long limit;
    long long most;
    if (!PyArg_ParseTuple(args, "y*y*yyKy*y*LO", &own[OFFSETS], &own[ITEMS], &role, &type, &limit,
                          &own[ROWS], &own[COUNTS], &most, &objects))
        return NULL;
    Lists lists = {.most = most};
    const char *problem = set_lists(&lists, &own[OFFSETS], &own[ROWS], &own[COUNTS]);
    int is_known = (*role == 'i' && is_one_of(*type, "iqBH")) || (*role == 'v' && is_one_of(*type, "fd"));
    if (!is_known)
        problem = "ids are integers, values are not";
    lists.num_items = own[ITEMS].len / bytes_of(*type);
    Py_ssize_t num_blocks = 0;
    Py_buffer *blocks = get_buffers(objects, PyBUF_WRITABLE, &num_blocks);
    int suspicious = 0;
    if (blocks && !problem && num_blocks != lists.num_runs)
        problem = "there is not one block a run";
    for (Py_ssize_t k = 0; blocks && k < num_blocks; k++)
        if (!has_numbers(&blocks[k], 4))
            problem = "a block is no array of cells";
    Py_BEGIN_ALLOW_THREADS
    if (blocks && !problem)
        problem = gather_all(&lists, &own[ITEMS], *role, *type, limit, blocks, &suspicious);
    Py_END_ALLOW_THREADS
    PyObject *done = blocks ? none_unless(problem) : NULL;
    release_buffers(blocks, num_blocks);
    release_all(own, NUM_BUFFERS);
    if (!done)
        return NULL;
    Py_DECREF(done);
    return PyBool_FromLong(suspicious);
}

PyDoc_STRVAR(place_lists_doc,
"place_lists(items, places, offsets, values)\n--\n\n"
"Copy the items of rows to their rows' places.\n"
"See distrain.loader.filling.fill_numpy.place_lists for the arguments.");

static PyObject *place_lists(PyObject *module, PyObject *args) {
    (void)module;
    enum { ITEMS, PLACES, OFFSETS, VALUES, NUM_BUFFERS };
    Py_buffer own[NUM_BUFFERS] = {{0}};
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &own[ITEMS], &own[PLACES], &own[OFFSETS], &own[VALUES]))
        return NULL;
    const char *problem = own[OFFSETS].len ? NULL : "there are no offsets";
    for (int k = 0; k < NUM_BUFFERS; k++)
        if (!has_numbers(&own[k], 4))
            problem = "items, places, offsets or values are no array of 4 bytes each";
    Py_BEGIN_ALLOW_THREADS
    if (!problem)
        problem = place_all(own[ITEMS].buf, own[ITEMS].len / 4, own[PLACES].buf, own[PLACES].len / 4,
                            own[OFFSETS].buf, own[OFFSETS].len / 4 - 1, own[VALUES].buf,
                            own[VALUES].len / 4);
    Py_END_ALLOW_THREADS
    release_all(own, NUM_BUFFERS);
    return none_unless(problem);
}
