// The plain matrix product: tiles in shared memory, 4 x 4 numbers a thread, any strides and sizes.
//
// Every number of C is one sum over k in ascending order, cut into blocks of `depth` as the host cuts it, each step a fused
// multiply-add. So its bits are those of the host, where the host has fused multiply-add and neither m nor n is 1 (it has
// other orders for vectors).

#include "device.cuh"

constexpr int TILE = 64;
constexpr int STEP = 16;
constexpr int EACH = 4;
constexpr int SIDE = TILE / EACH;
constexpr int THREADS = SIDE * SIDE;

__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline i64 multiply_add(i64 a, i64 b, i64 c) { return (i64)((u64)a * (u64)b + (u64)c); }

struct Matrix {
    i64 batch, row, col;
};

// Loads `TILE` rows (of A, or columns of B) by up to `STEP` steps of k: `across` steps over the former, `along` over k.
template <class T>
__device__ inline void load_tile(T (*to)[TILE + 1], const T* from, i64 across, i64 along, i64 count, int steps) {
    for (int place = threadIdx.x; place < TILE * STEP; place += THREADS) {
        // Neighbouring threads read neighbouring numbers, however the matrix lies.
        const int row = along == 1 ? place / STEP : place % TILE;
        const int k = along == 1 ? place % STEP : place / TILE;
        if (k < steps) {
            to[k][row] = row < count ? from[row * across + k * along] : T(0);
        }
    }
}

template <class T>
__device__ void product(const T* a, const T* b, T* c, const T* bias, i64 m, i64 n, i64 k, i64 depth, Matrix as, Matrix bs) {
    __shared__ T a_tile[STEP][TILE + 1];
    __shared__ T b_tile[STEP][TILE + 1];
    const i64 tiles_n = (n + TILE - 1) / TILE, tiles_m = (m + TILE - 1) / TILE;
    const i64 tile = blockIdx.x;
    const i64 first_col = tile % tiles_n * TILE, first_row = tile / tiles_n % tiles_m * TILE;
    const i64 matrix = tile / tiles_n / tiles_m;
    a += matrix * as.batch + first_row * as.row;
    b += matrix * bs.batch + first_col * bs.col;
    c += matrix * m * n;
    const int row = threadIdx.x / SIDE, col = threadIdx.x % SIDE;
    T total[EACH][EACH] = {};
    for (i64 block = 0; block < k; block += depth) {
        const i64 end = block + depth < k ? block + depth : k;
        T sums[EACH][EACH] = {};
        for (i64 first = block; first < end; first += STEP) {
            const int steps = end - first < STEP ? (int)(end - first) : STEP;
            load_tile(a_tile, a + first * as.col, as.row, as.col, m - first_row, steps);
            load_tile(b_tile, b + first * bs.row, bs.col, bs.row, n - first_col, steps);
            __syncthreads();
            for (int step = 0; step < steps; ++step) {
                T left[EACH], right[EACH];
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    left[i] = a_tile[step][row + i * SIDE];
                    right[i] = b_tile[step][col + i * SIDE];
                }
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
#pragma unroll
                    for (int j = 0; j < EACH; ++j) {
                        sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
                    }
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                total[i][j] = block == 0 ? sums[i][j] : plus(total[i][j], sums[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const i64 at_row = first_row + row + i * SIDE, at_col = first_col + col + j * SIDE;
            if (at_row < m && at_col < n) {
                c[at_row * n + at_col] = bias ? plus(total[i][j], bias[at_col]) : total[i][j];
            }
        }
    }
}

#define KERNEL(T, NAME)                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) matmul_##NAME(                                               \
        const T* a, const T* b, T* c, const T* bias, i64 m, i64 n, i64 k, i64 depth, i64 a_batch, i64 a_row, i64 a_col, \
        i64 b_batch, i64 b_row, i64 b_col                                                                              \
    ) {                                                                                                                \
        product<T>(a, b, c, bias, m, n, k, depth, {a_batch, a_row, a_col}, {b_batch, b_row, b_col});                   \
    }

KERNEL(float, f32)
KERNEL(double, f64)
KERNEL(i64, i64)
