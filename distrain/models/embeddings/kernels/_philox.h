/* Philox4x32-10, the generator of initial values; random_bits.py computes the same in torch.
 *
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: "Parallel random numbers: as easy as 1, 2, 3"
 * (SC 2011). Its words are a function of a key and a counter, so a row's values can be computed
 * without those of any other row.
 */
#include <stdint.h>

#define PHILOX_ROUNDS 10
#define PHILOX_LANES 16

typedef struct {
    int64_t num_rows, dim;
    const int64_t *rows; /* [num_rows] */
    float *out;          /* [num_rows, dim] */
    uint32_t key_low, key_high;
    float scale;
} DrawWork;

ALWAYS_INLINE void philox_rounds(
    uint32_t *restrict c0, uint32_t *restrict c1, uint32_t *restrict c2, uint32_t *restrict c3,
    uint32_t k0, uint32_t k1
) {
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        INDEPENDENT
        for (int k = 0; k < PHILOX_LANES; k++) {
            uint64_t first = (uint64_t)0xD2511F53u * c0[k];
            uint64_t second = (uint64_t)0xCD9E8D57u * c2[k];
            c0[k] = (uint32_t)(second >> 32) ^ c1[k] ^ k0;
            c1[k] = (uint32_t)second;
            c2[k] = (uint32_t)(first >> 32) ^ c3[k] ^ k1;
            c3[k] = (uint32_t)first;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The counter is the number of four neighbouring values of the row, and the row's number. */
ALWAYS_INLINE void draw_body(DrawWork *work, const int fused) {
    (void)fused;
    const int64_t dim = work->dim;
    for (int64_t start = 0; start < work->num_rows; start += PHILOX_LANES) {
        const int64_t left = work->num_rows - start;
        const int64_t count = left < PHILOX_LANES ? left : PHILOX_LANES;
        float *out = work->out + start * dim;
        for (int64_t first = 0; first < dim; first += 4) {
            uint32_t words[4][PHILOX_LANES];
            for (int64_t k = 0; k < PHILOX_LANES; k++) {
                uint64_t row = (uint64_t)work->rows[start + (k < count ? k : 0)];
                words[0][k] = (uint32_t)(first / 4);
                words[1][k] = (uint32_t)row;
                words[2][k] = (uint32_t)(row >> 32);
                words[3][k] = 0;
            }
            philox_rounds(
                words[0], words[1], words[2], words[3], work->key_low, work->key_high
            );
            const int64_t num_words = dim - first < 4 ? dim - first : 4;
            for (int64_t k = 0; k < count; k++)
                for (int64_t word = 0; word < num_words; word++)
                    out[k * dim + first + word] =
                        (float)((int32_t)(words[word][k] >> 8) - (1 << 23)) * work->scale;
        }
    }
}
FOR_EACH_PROCESSOR(draw, DrawWork)
