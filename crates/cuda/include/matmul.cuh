// What the kernels of matrix products share: their argument, the place of a block in the result, the epilogue, and the kernel
// that adds parts of sums. The Rust file `ops/matmul/launch.rs` has the same argument as a structure of its own.
#pragma once

#include "device.cuh"

// One batch of products C = A B. Strides are in elements.
struct Product {
    const void* a;
    const void* b;
    void* c;              // contiguous [batch, m, n]
    void* parts;          // [parts of k][batch, m, n] in the type of sums, where several blocks share the sums of a tile
    const void* bias;     // n numbers (or one, by a step of 0), or null
    const void* residual; // contiguous [batch, m, n], or null
    i64 batch, m, n, k;
    i64 depth;  // steps of a part of k
    i64 splits; // blocks that share the sums of a tile
    i64 a_row, a_col, b_row, b_col;
    i64 sizes[2]; // of the last two dimensions of the batch
    i64 a_step[3], b_step[3];
    i64 bias_step;
    i64 flags;

    __device__ bool has(i64 flag) const { return (flags & flag) != 0; }
    __device__ i64 parts_of_k() const { return (k + depth - 1) / depth; }
};

// Flags: whether neighbours along k lie nearest to each other, and whether 16 bytes can be loaded at once.
constexpr i64 A_ALONG_K = 1, A_WIDE = 2, B_ALONG_K = 4, B_WIDE = 8, C_WIDE = 16, RELU = 32;

// Numbers that lie side by side and are moved at once.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T x[N];
};

// Where a matrix of the batch starts.
__device__ inline i64 start_of(i64 matrix, const i64* sizes, const i64* step) {
    const i64 rest = matrix / sizes[1];
    return matrix % sizes[1] * step[2] + rest % sizes[0] * step[1] + rest / sizes[0] * step[0];
}

// What a block computes. Blocks that run at the same time share rows of A and columns of B: eight tiles one below the other
// come first.
struct Place {
    i64 matrix, split, row, col;
};
template <int ROWS, int COLS> __device__ inline Place place_of_block(const Product& p) {
    const i64 tiles_m = (p.m + ROWS - 1) / ROWS, tiles_n = (p.n + COLS - 1) / COLS;
    const i64 tile = blockIdx.x % (tiles_m * tiles_n), rest = blockIdx.x / (tiles_m * tiles_n);
    const i64 band = tile / (8 * tiles_n) * 8, within = tile % (8 * tiles_n);
    const i64 rows = tiles_m - band < 8 ? tiles_m - band : 8;
    return {rest / p.splits, rest % p.splits, (band + within % rows) * ROWS, within / rows * COLS};
}

// The number of C at `at`, in column `col`, of its finished sum.
template <class T, class Sum> __device__ inline T finished(const Product& p, Sum sum, i64 at, i64 col) {
    if (p.bias) {
        sum = plus(sum, (Sum)widen(((const T*)p.bias)[col * p.bias_step]));
    }
    if (p.has(RELU)) {
        sum = sum < Sum(0) ? Sum(0) : sum;
    }
    if (p.residual) {
        sum = plus(sum, (Sum)widen(((const T*)p.residual)[at]));
    }
    return narrow<T>(sum);
}

// Writes N neighbouring sums of a row: finished ones to C, others to their part.
template <class T, int N, class Sum>
__device__ inline void put(const Product& p, const Sum* sums, i64 matrix, i64 part, bool is_whole, i64 row, i64 col) {
    const i64 at = (matrix * p.m + row) * p.n + col;
    const bool wide = p.has(C_WIDE) && col + N <= p.n;
    if (is_whole) {
        T* to = (T*)p.c + at;
        Pack<T, N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (col + i < p.n) {
                out.x[i] = finished<T>(p, sums[i], at + i, col + i);
                if (!wide) {
                    to[i] = out.x[i];
                }
            }
        }
        if (wide) {
            *(Pack<T, N>*)to = out;
        }
        return;
    }
    Sum* to = (Sum*)p.parts + part * p.batch * p.m * p.n + at;
    if (wide) {
        Pack<Sum, N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            out.x[i] = sums[i];
        }
        *(Pack<Sum, N>*)to = out;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (col + i < p.n) {
            to[i] = sums[i];
        }
    }
}

// Adds the parts of the sums, the first one first. Sums of nothing have no parts.
template <class T> __device__ void add_parts(const Product& p) {
    using Sum = typename Computed<T>::type;
    const i64 count = p.batch * p.m * p.n, parts = p.parts_of_k();
    const i64 at = thread_of_launch();
    if (at >= count) {
        return;
    }
    const Sum* from = (const Sum*)p.parts + at;
    Sum sum = parts > 0 ? from[0] : Sum(0);
    for (i64 part = 1; part < parts; ++part) {
        sum = plus(sum, from[part * count]);
    }
    ((T*)p.c)[at] = finished<T>(p, sum, at, at % p.n);
}
