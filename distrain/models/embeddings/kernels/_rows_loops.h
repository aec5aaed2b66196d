/* The loops of _rows.c over rows, after _rows.c has checked the arguments.
 *
 * The results are those of torch's own kernels, bit by bit: each operation is rounded separately,
 * except where torch uses a fused multiply-add, which is `multiply_add` here. So this file must be
 * compiled with -ffp-contract=off, and never with -ffast-math.
 *
 * These loops wait for memory. Rows are at random addresses, so each row is prefetched some rows
 * ahead. The loops work on blocks of a few rows over all columns, which keeps sequential reads
 * close to each other.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define PREFETCH(ADDRESS, WRITE) __builtin_prefetch((ADDRESS), (WRITE))
#define INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#else
#define ALWAYS_INLINE static inline
#define PREFETCH(ADDRESS, WRITE) ((void)(ADDRESS))
#define INDEPENDENT
#endif
#if defined(__clang__)
#undef INDEPENDENT
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif

/* Defines a loop NAME(work) from NAME_body(work, fused), compiled once per instruction set. The
 * module selects one when it is loaded. `fused`: there is an instruction for multiply_add. */
#if defined(__x86_64__) && defined(__GNUC__)
static int instructions; /* 0: any x86-64, 1: with AVX2 and FMA, 2: with AVX-512 */
static void choose_instructions(void) {
    __builtin_cpu_init();
    int wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int widest = wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    instructions = widest ? 2 : wide;
}
#define FOR_EACH_PROCESSOR(NAME, WORK)                                                           \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,"                         \
                          "prefer-vector-width=512"))) static void                               \
    NAME##_avx512(WORK *work) { NAME##_body(work, 1); }                                          \
    __attribute__((target("avx2,fma"))) static void                                              \
    NAME##_avx2(WORK *work) { NAME##_body(work, 1); }                                            \
    static void NAME##_any(WORK *work) { NAME##_body(work, 0); }                                 \
    static void NAME(WORK *work) {                                                               \
        (instructions == 2 ? NAME##_avx512 : instructions ? NAME##_avx2 : NAME##_any)(work);     \
    }
#else
static void choose_instructions(void) {}
#if defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
#define FUSED 1
#else
#define FUSED 0
#endif
#define FOR_EACH_PROCESSOR(NAME, WORK) \
    static void NAME(WORK *work) { NAME##_body(work, FUSED); }
#endif

#define LANES 16
#define BLOCK_ROWS 16
#define BLOCK_ROWS_AHEAD 8
#define ROWS_AHEAD 16
#define MOST_LINES_AHEAD 8
#define STREAMED_BYTES (8 << 20) /* larger results bypass the caches, which they would fill */

/* Runs the statement for each j of a row: in whole vectors, then the rest. */
#define FOR_EACH_VALUE(DIM, ...)                                  \
    do {                                                          \
        int64_t done_ = 0;                                        \
        for (; done_ + LANES <= (DIM); done_ += LANES) {          \
            INDEPENDENT                                           \
            for (int64_t k_ = 0; k_ < LANES; k_++) {              \
                const int64_t j = done_ + k_;                     \
                __VA_ARGS__;                                      \
            }                                                     \
        }                                                         \
        INDEPENDENT                                               \
        for (int64_t j = done_; j < (DIM); j++) {                 \
            __VA_ARGS__;                                          \
        }                                                         \
    } while (0)

/* Calls LOOP with a constant width for the most common widths, which is faster. */
#define WITH_WIDTH(DIM, LOOP, ...)                  \
    do {                                            \
        if ((DIM) == 16)                            \
            LOOP(__VA_ARGS__, 16);                  \
        else if ((DIM) == 8)                        \
            LOOP(__VA_ARGS__, 8);                   \
        else                                        \
            LOOP(__VA_ARGS__, (DIM));               \
    } while (0)

ALWAYS_INLINE void prefetch_row(const void *row, int64_t num_bytes, const int write) {
    int64_t lines = (num_bytes + 63) / 64;
    lines = lines < MOST_LINES_AHEAD ? lines : MOST_LINES_AHEAD;
    for (int64_t line = 0; line < lines; line++) {
        if (write)
            PREFETCH((const char *)row + 64 * line, 1);
        else
            PREFETCH((const char *)row + 64 * line, 0);
    }
}

ALWAYS_INLINE float multiply_add(float a, float b, float c, const int fused) {
    return fused ? __builtin_fmaf(a, b, c) : a * b + c;
}

/* ---- expand and collect: between a batch's rows and its distinct rows ---- */

typedef struct {
    int64_t num_columns, num_rows, num_places, dim, num_distinct, inverse_stride;
    const int32_t *inverse; /* [num_columns, num_rows], inverse_stride from column to column */
    const int64_t *places;  /* [num_columns] */
    float *distinct;        /* [num_distinct, dim] */
    float *batch;           /* [num_rows, num_places, dim] */
    int outside;            /* an inverse index was out of range; its block was skipped */
} BatchWork;

ALWAYS_INLINE int all_below(const int32_t *inverse, int64_t count, int64_t end) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = (uint32_t)inverse[i] > largest ? (uint32_t)inverse[i] : largest;
    return (int64_t)largest < end;
}

/* Copies a row; with `stream`, it bypasses the caches, which then need not read the old values. */
ALWAYS_INLINE void copy_row(float *restrict to, const float *restrict from, int64_t dim, int stream) {
#if defined(__x86_64__)
    if (stream) {
        for (int64_t j = 0; j < dim; j += 4)
            _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
        return;
    }
#endif
    (void)stream;
    FOR_EACH_VALUE(dim, to[j] = from[j]);
}

ALWAYS_INLINE void expand_loop(BatchWork *work, const int stream, const int64_t dim) {
    const int64_t num_rows = work->num_rows, num_places = work->num_places;
    const float *distinct = work->distinct;
    for (int64_t start = 0; start < num_rows; start += BLOCK_ROWS) {
        int64_t end = start + BLOCK_ROWS < num_rows ? start + BLOCK_ROWS : num_rows;
        for (int64_t c = 0; c < work->num_columns; c++) {
            const int32_t *inverse = work->inverse + c * work->inverse_stride;
            float *column = work->batch + work->places[c] * dim;
            if (!all_below(inverse + start, end - start, work->num_distinct)) {
                work->outside = 1;
                continue;
            }
            for (int64_t i = start; i < end; i++) {
                int64_t later = i + BLOCK_ROWS_AHEAD;
                later = later < num_rows ? later : num_rows - 1;
                prefetch_row(distinct + inverse[later] * dim, dim * 4, 0);
                copy_row(column + i * num_places * dim, distinct + inverse[i] * dim, dim, stream);
            }
        }
    }
#if defined(__x86_64__)
    if (stream)
        _mm_sfence();
#endif
}

ALWAYS_INLINE void expand_body(BatchWork *work, const int fused) {
    (void)fused;
    int stream = work->dim % 16 == 0 && (uintptr_t)work->batch % 64 == 0 &&
                 work->num_rows * work->num_places * work->dim * 4 > STREAMED_BYTES;
    if (stream)
        WITH_WIDTH(work->dim, expand_loop, work, 1);
    else
        WITH_WIDTH(work->dim, expand_loop, work, 0);
}
FOR_EACH_PROCESSOR(expand, BatchWork)

ALWAYS_INLINE void collect_loop(BatchWork *work, const int64_t dim) {
    const int64_t num_rows = work->num_rows, num_places = work->num_places;
    float *distinct = work->distinct;
    for (int64_t start = 0; start < num_rows; start += BLOCK_ROWS) {
        int64_t end = start + BLOCK_ROWS < num_rows ? start + BLOCK_ROWS : num_rows;
        for (int64_t c = 0; c < work->num_columns; c++) {
            const int32_t *inverse = work->inverse + c * work->inverse_stride;
            const float *column = work->batch + work->places[c] * dim;
            if (!all_below(inverse + start, end - start, work->num_distinct)) {
                work->outside = 1;
                continue;
            }
            for (int64_t i = start; i < end; i++) {
                int64_t later = i + BLOCK_ROWS_AHEAD;
                later = later < num_rows ? later : num_rows - 1;
                prefetch_row(distinct + inverse[later] * dim, dim * 4, 1);
                prefetch_row(column + later * num_places * dim, dim * 4, 0);
                const float *restrict from = column + i * num_places * dim;
                float *restrict to = distinct + inverse[i] * dim;
                FOR_EACH_VALUE(dim, to[j] += from[j]);
            }
        }
    }
}

ALWAYS_INLINE void collect_body(BatchWork *work, const int fused) {
    (void)fused;
    WITH_WIDTH(work->dim, collect_loop, work);
}
FOR_EACH_PROCESSOR(collect, BatchWork)

/* ---- gather and update: the rows of tables ---- */

/* The update rules of distrain/jobs/optimizers.py that have a formula in `update_row`: the number,
 * the name, and whether `first` and `second` have a value for each row or each value of a row. */
enum { NOTHING, EACH_ROW, EACH_VALUE };
#define FOR_EACH_RULE(DO) \
    DO(SGD, "sgd", NOTHING, NOTHING) \
    DO(ADAGRAD, "adagrad", EACH_VALUE, NOTHING) \
    DO(ROWWISE_ADAGRAD, "rowwise_adagrad", EACH_ROW, NOTHING) \
    DO(ADAM, "adam", EACH_VALUE, EACH_VALUE)

#define NUMBER(number, name, first, second) number,
enum { FOR_EACH_RULE(NUMBER) NUM_RULES };
#define FACTS(number, name, first, second) {name, first, second},
static const struct { const char *name; int first, second; } rules[] = {FOR_EACH_RULE(FACTS)};

typedef struct {
    int kind, is_bfloat16;
    int64_t num_keys, dim;
    const int64_t *keys, *global_keys; /* [num_keys] */
    void *weight;                      /* [rows, dim], float or bfloat16 */
    float *first, *second;             /* the optimizer's state, or NULL */
    const float *grads;                /* [num_keys, dim] */
    float *out;                        /* gather: [num_keys, dim] */
    uint32_t seed_low, seed_high;      /* of stochastic rounding */
    float rate, eps, decay2, gain1, gain2; /* gain = 1 - decay */
} RowWork;

/* Chris Wellons' lowbias32: https://github.com/skeeto/hash-prospector, public domain. */
ALWAYS_INLINE uint32_t hash32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

ALWAYS_INLINE uint32_t hash_of_row(const RowWork *work, int64_t k) {
    uint64_t key = (uint64_t)work->global_keys[k];
    uint32_t hash = hash32(hash32(work->seed_low) ^ work->seed_high);
    return hash32(hash32(hash ^ (uint32_t)key) ^ (uint32_t)(key >> 32));
}

ALWAYS_INLINE float load(const void *row, int64_t j, const int is_bfloat16) {
    if (!is_bfloat16)
        return ((const float *)row)[j];
    uint32_t bits = (uint32_t)((const uint16_t *)row)[j] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16 is the upper half of a float. A random number is added to the lower half. It carries
 * into the upper half with the probability that makes the rounding exact on average. Infinity and NaN
 * are truncated, and NaN stays NaN. */
ALWAYS_INLINE void store(void *row, int64_t j, float value, uint32_t hash, const int is_bfloat16) {
    if (!is_bfloat16) {
        ((float *)row)[j] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t is_finite = (bits & 0x7f800000u) != 0x7f800000u;
    uint32_t noise = hash32(hash + (uint32_t)j * 0x9e3779b9u) >> 16;
    uint32_t quiet = (bits & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0;
    ((uint16_t *)row)[j] = (uint16_t)(((bits + (is_finite ? noise : 0)) | quiet) >> 16);
}

ALWAYS_INLINE void *row_of(void *weight, int64_t key, int64_t dim, const int is_bfloat16) {
    return (char *)weight + key * dim * (is_bfloat16 ? 2 : 4);
}

ALWAYS_INLINE void gather_loop(RowWork *work, const int is_bfloat16, const int64_t dim) {
    const int64_t num_keys = work->num_keys, *keys = work->keys;
    void *weight = work->weight;
    for (int64_t k = 0; k < num_keys; k++) {
        int64_t later = keys[k + ROWS_AHEAD < num_keys ? k + ROWS_AHEAD : num_keys - 1];
        prefetch_row(row_of(weight, later, dim, is_bfloat16), dim * (is_bfloat16 ? 2 : 4), 0);
        const void *restrict from = row_of(weight, keys[k], dim, is_bfloat16);
        float *restrict to = work->out + k * dim;
        FOR_EACH_VALUE(dim, to[j] = load(from, j, is_bfloat16));
    }
}

ALWAYS_INLINE void gather_body(RowWork *work, const int fused) {
    (void)fused;
    if (work->is_bfloat16)
        WITH_WIDTH(work->dim, gather_loop, work, 1);
    else
        WITH_WIDTH(work->dim, gather_loop, work, 0);
}
FOR_EACH_PROCESSOR(gather, RowWork)

/* Returns the mean of squares, added in a fixed order: 16 sums of every 16th value, then halves. */
ALWAYS_INLINE float mean_of_squares(const float *restrict grads, const int64_t dim) {
    float lanes[LANES] = {0};
    int64_t done = 0;
    for (; done + LANES <= dim; done += LANES) {
        INDEPENDENT
        for (int64_t k = 0; k < LANES; k++)
            lanes[k] += grads[done + k] * grads[done + k];
    }
    for (int64_t j = done; j < dim; j++)
        lanes[j - done] += grads[j] * grads[j];
    for (int64_t half = LANES / 2; half; half /= 2) {
        INDEPENDENT
        for (int64_t k = 0; k < half; k++)
            lanes[k] += lanes[k + half];
    }
    return lanes[0] / (float)dim;
}

/* torch's lerp. */
ALWAYS_INLINE float between(float a, float b, float weight, const int fused) {
    return weight < 0.5f ? multiply_add(weight, b - a, a, fused)
                         : multiply_add(a - b, 1.0f - weight, b, fused);
}

/* Updates one row. The formulas, and the order of the operations, are those of on_torch.py. */
ALWAYS_INLINE void update_row(
    const RowWork *work, int64_t k, const int kind, const int is_bfloat16, const int fused,
    const int64_t dim
) {
    const int64_t key = work->keys[k];
    void *restrict row = row_of(work->weight, key, dim, is_bfloat16);
    const float *restrict grads = work->grads + k * dim;
    const float rate = work->rate, eps = work->eps;
    const uint32_t hash = is_bfloat16 ? hash_of_row(work, k) : 0;
    if (kind == SGD) {
        FOR_EACH_VALUE(dim, store(row, j,
            multiply_add(-rate, grads[j], load(row, j, is_bfloat16), fused), hash, is_bfloat16));
    } else if (kind == ADAGRAD) {
        float *restrict total = work->first + key * dim;
        FOR_EACH_VALUE(dim,
            const float squares = multiply_add(grads[j], grads[j], total[j], fused);
            total[j] = squares;
            store(row, j, load(row, j, is_bfloat16) + -rate * grads[j] / (sqrtf(squares) + eps),
                  hash, is_bfloat16));
    } else if (kind == ROWWISE_ADAGRAD) {
        const float squares = work->first[key] + mean_of_squares(grads, dim);
        const float row_rate = rate / (sqrtf(squares) + eps);
        work->first[key] = squares;
        FOR_EACH_VALUE(dim, store(row, j,
            load(row, j, is_bfloat16) - row_rate * grads[j], hash, is_bfloat16));
    } else if (kind == ADAM) {
        float *restrict means = work->first + key * dim;
        float *restrict squares = work->second + key * dim;
        FOR_EACH_VALUE(dim,
            const float mean = between(means[j], grads[j], work->gain1, fused);
            const float square = multiply_add(work->gain2 * grads[j], grads[j],
                                              squares[j] * work->decay2, fused);
            means[j] = mean;
            squares[j] = square;
            store(row, j, load(row, j, is_bfloat16) + -rate * mean / (sqrtf(square) + eps),
                  hash, is_bfloat16));
    }
}

ALWAYS_INLINE void prefetch_state(const float *state, int64_t key, const int has, int64_t dim) {
    if (has == EACH_ROW)
        PREFETCH(state + key, 1);
    else if (has == EACH_VALUE)
        prefetch_row(state + key * dim, dim * 4, 1);
}

ALWAYS_INLINE void update_loop(
    RowWork *work, const int kind, const int is_bfloat16, const int fused, const int64_t dim
) {
    const int64_t num_keys = work->num_keys;
    for (int64_t k = 0; k < num_keys; k++) {
        int64_t later = work->keys[k + ROWS_AHEAD < num_keys ? k + ROWS_AHEAD : num_keys - 1];
        prefetch_row(row_of(work->weight, later, dim, is_bfloat16), dim * (is_bfloat16 ? 2 : 4), 1);
        prefetch_state(work->first, later, rules[kind].first, dim);
        prefetch_state(work->second, later, rules[kind].second, dim);
        update_row(work, k, kind, is_bfloat16, fused, dim);
    }
}

ALWAYS_INLINE void update_kind(RowWork *work, const int kind, const int fused) {
    if (work->is_bfloat16)
        WITH_WIDTH(work->dim, update_loop, work, kind, 1, fused);
    else
        WITH_WIDTH(work->dim, update_loop, work, kind, 0, fused);
}

ALWAYS_INLINE void update_body(RowWork *work, const int fused) {
#define UPDATE(number, name, first, second) \
    case number: update_kind(work, number, fused); break;
    switch (work->kind) { FOR_EACH_RULE(UPDATE) }
}
FOR_EACH_PROCESSOR(update, RowWork)

/* ---- unique ---- */

typedef struct {
    int64_t num_columns, num_segments;
    const int64_t *offsets, *counts; /* [num_columns, num_segments] */
    const int32_t *ids;
    int32_t *inverse, *distinct;
    int64_t *per_column; /* [num_columns] */
    uint64_t *slots;     /* 2 to the power of `bits` */
    int bits;            /* so that no column fills more than half of the slots */
} UniqueWork;

/* Groups ids by an open-addressing hash table of entries `id << 32 | number + 1`. Numbers only
 * rise, so an entry of an earlier column is recognised by its number, and the table is cleared once. */
static int64_t unique(UniqueWork *work) {
    const uint32_t mask = (uint32_t)(((uint64_t)1 << work->bits) - 1);
    const int shift = 32 - work->bits;
    uint64_t *restrict slots = work->slots;
    uint32_t count = 0;
    memset(slots, 0, sizeof(uint64_t) << work->bits);
    for (int64_t c = 0; c < work->num_columns; c++) {
        const uint32_t before = count;
        for (int64_t s = 0; s < work->num_segments; s++) {
            const int64_t first = work->offsets[c * work->num_segments + s];
            const int64_t length = work->counts[c * work->num_segments + s];
            const int32_t *restrict ids = work->ids + first;
            int32_t *restrict inverse = work->inverse + first;
            for (int64_t i = 0; i < length; i++) {
                const uint32_t id = (uint32_t)ids[i];
                const int64_t later = i + ROWS_AHEAD < length ? i + ROWS_AHEAD : length - 1;
                PREFETCH(slots + (((uint32_t)ids[later] * 0x9e3779b1u) >> shift), 1);
                uint32_t slot = (id * 0x9e3779b1u) >> shift;
                for (;; slot = (slot + 1) & mask) {
                    const uint64_t entry = slots[slot];
                    if ((uint32_t)entry <= before) {
                        slots[slot] = (uint64_t)id << 32 | (count + 1);
                        work->distinct[count] = (int32_t)id;
                        inverse[i] = (int32_t)count++;
                        break;
                    }
                    if (entry >> 32 == id) {
                        inverse[i] = (int32_t)((uint32_t)entry - 1);
                        break;
                    }
                }
            }
        }
        work->per_column[c] = count - before;
    }
    return count;
}
