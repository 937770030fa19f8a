// What kernels of matrix products share: their argument, which tile a block computes, and how sums become numbers of C.
#pragma once

#include "device.cuh"

constexpr int BATCH_DIMS = 4;

// The argument of all kernels: a batch of products C = A B. Strides are in elements. The Rust file `matmul/launch.rs` writes
// these numbers in this order.
struct Product {
    const void* a;
    const void* b;
    void* c;          // contiguous [batch, m, n]
    void* parts;      // [parts of k][batch, m, n], where several blocks share the sums of a tile
    const void* bias; // n numbers (or one, by a step of 0), or null
    i64 batch, m, n, k;
    i64 depth;  // steps of a part of k
    i64 splits; // blocks that share the sums of a tile
    i64 a_row, a_col, b_row, b_col;
    i64 bias_step;
    i64 flags;
    // The batch's dimensions, and from one matrix to the next along each.
    i64 sizes[BATCH_DIMS], a_steps[BATCH_DIMS], b_steps[BATCH_DIMS];

    __device__ bool has(i64 flag) const { return (flags & flag) != 0; }
    __device__ i64 parts_of_k() const { return (k + depth - 1) / depth; }

    // Where the matrix of this number starts.
    __device__ i64 start_of(i64 matrix, const i64 (&steps)[BATCH_DIMS]) const {
        i64 start = 0;
#pragma unroll
        for (int dim = BATCH_DIMS - 1; dim > 0; --dim) {
            if (sizes[dim] > 1) {
                start += matrix % sizes[dim] * steps[dim];
                matrix /= sizes[dim];
            }
        }
        return start + matrix * steps[0];
    }
};

// Flags: whether neighbours along k lie nearest to each other, and whether 16 bytes can be loaded at once.
constexpr i64 A_ALONG_K = 1, A_WIDE = 2, B_ALONG_K = 4, B_WIDE = 8, C_WIDE = 16;

// Numbers that lie side by side and are moved at once.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T x[N];
};

// Stores them by one instruction: left to itself the compiler takes several, each of which touches every sector.
template <class T, int N> __device__ inline void store_at_once(T* to, const Pack<T, N>& numbers) {
    if constexpr (sizeof(T) == 8 && N == 2) {
        u64 x[2];
        memcpy(x, &numbers, 16);
        asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x[0]), "l"(x[1]) : "memory");
    } else if constexpr (sizeof(numbers) == 16) {
        u32 x[4];
        memcpy(x, &numbers, 16);
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    } else if constexpr (sizeof(numbers) == 8) {
        u32 x[2];
        memcpy(x, &numbers, 8);
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x[0]), "r"(x[1]) : "memory");
    } else {
        *(Pack<T, N>*)to = numbers;
    }
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

// What is added to the sums of column `col`.
template <class T> __device__ inline typename Computed<T>::type bias_of(const Product& p, i64 col) {
    return p.bias ? widen(((const T*)p.bias)[col * p.bias_step]) : typename Computed<T>::type(0);
}

// The number of C in column `col`, of its finished sum.
template <class T> __device__ inline T finished(const Product& p, typename Computed<T>::type sum, i64 col) {
    return narrow<T>(p.bias ? plus(sum, bias_of<T>(p, col)) : sum);
}

// Writes N neighbouring numbers of a row of `to`, or those of them that lie before column `end`.
template <class T, int N> __device__ inline void store(T* to, const Pack<T, N>& numbers, i64 col, i64 end, bool wide) {
    if (wide && col + N <= end) {
        store_at_once(to, numbers);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (col + i < end) {
            to[i] = numbers.x[i];
        }
    }
}

// Writes N neighbouring sums of a row: finished ones to C, others to their part.
template <class T, int N>
__device__ inline void put(
    const Product& p, const typename Computed<T>::type* sums, i64 matrix, i64 part, bool is_whole, i64 row, i64 col
) {
    using Sum = typename Computed<T>::type;
    const i64 at = (matrix * p.m + row) * p.n + col;
    if (is_whole) {
        Pack<T, N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (col + i < p.n) {
                out.x[i] = finished<T>(p, sums[i], col + i);
            }
        }
        store((T*)p.c + at, out, col, p.n, p.has(C_WIDE));
        return;
    }
    Pack<Sum, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        out.x[i] = sums[i];
    }
    store((Sum*)p.parts + part * p.batch * p.m * p.n + at, out, col, p.n, p.has(C_WIDE));
}
