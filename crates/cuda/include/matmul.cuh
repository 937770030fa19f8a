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
    // Where the flag MORE is set: C = activation(alpha * sums + bias) + beta * residual.
    const void* residual; // or null
    void* kept;           // gets what the activation is applied to, as C lies; or null
    i64 residual_matrix, residual_row, residual_col; // strides
    double alpha, beta;
    i64 activation; // an Activation
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

// Flags: whether neighbours along k lie nearest to each other, whether 16 bytes can be loaded at once, and whether more than a
// bias is applied to the sums.
constexpr i64 A_ALONG_K = 1, A_WIDE = 2, B_ALONG_K = 4, B_WIDE = 8, C_WIDE = 16, RESIDUAL_WIDE = 32, MORE = 64;

// What is applied to a sum with its bias. The numbers are those of the Rust enum `Activation`.
enum Activation { NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU };

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

template <class T> constexpr bool IS_WHOLE = T(0.5) == T(0);

// What is added to the sums of column `col`. Whole numbers are only multiplied.
template <class T> __device__ inline typename Computed<T>::type bias_of(const Product& p, i64 col) {
    using Sum = typename Computed<T>::type;
    const bool is_there = !IS_WHOLE<Sum> && p.bias && col < p.n;
    return is_there ? widen(((const T*)p.bias)[col * p.bias_step]) : Sum(0);
}

// A sum with its bias; there is none where there is a factor.
template <class Sum> __device__ inline Sum biased(const Product& p, Sum sum, Sum bias) {
    if constexpr (IS_WHOLE<Sum>) {
        return sum;
    } else if (p.bias) {
        return sum + bias;
    } else {
        return p.has(MORE) ? (Sum)p.alpha * sum : sum;
    }
}

// The activation as the pointwise ops compute it.
template <class Sum> __device__ inline Sum activate(const Product& p, Sum x) {
    if constexpr (IS_WHOLE<Sum>) {
        return x;
    } else {
        switch ((int)p.activation) {
        case RELU: return arith_relu(x);
        case GELU: return arith_gelu(x);
        case GELU_TANH: return arith_gelu_tanh(x);
        case SILU: return arith_silu(x);
        default: return x;
        }
    }
}

// Loads N neighbouring numbers by one instruction.
template <class T, int N> __device__ inline Pack<T, N> load_at_once(const T* from) {
    Pack<T, N> numbers;
    if constexpr (sizeof(numbers) == 16) {
        u32 x[4];
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
        memcpy(&numbers, x, 16);
    } else if constexpr (sizeof(numbers) == 8) {
        u32 x[2];
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "l"(from));
        memcpy(&numbers, x, 8);
    } else {
        numbers = *(const Pack<T, N>*)from;
    }
    return numbers;
}

// Adds beta times the residual to N neighbours of a row.
template <class T, int N>
__device__ inline void add_residual(const Product& p, typename Computed<T>::type (&x)[N], i64 matrix, i64 row, i64 col) {
    using Sum = typename Computed<T>::type;
    const T* from = (const T*)p.residual + matrix * p.residual_matrix + row * p.residual_row + col * p.residual_col;
    Pack<T, N> numbers;
    if (N > 1 && p.has(RESIDUAL_WIDE) && col + N <= p.n) {
        numbers = load_at_once<T, N>(from);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (col + i < p.n) {
                numbers.x[i] = from[i * p.residual_col];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = plus(x[i], (Sum)((Sum)p.beta * widen(numbers.x[i])));
    }
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

// Writes N neighbouring numbers of a row of a matrix, rounded, to where C, or what lies as it, starts.
template <class T, int N>
__device__ inline void
write_rounded(const Product& p, void* to, const typename Computed<T>::type (&x)[N], i64 matrix, i64 row, i64 col) {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        out.x[i] = narrow<T>(x[i]);
    }
    store((T*)to + (matrix * p.m + row) * p.n + col, out, col, p.n, p.has(C_WIDE));
}

// Writes N neighbouring sums of a row to their part.
template <class Sum, int N>
__device__ inline void put_part(const Product& p, const Sum* sums, i64 matrix, i64 part, i64 row, i64 col) {
    Pack<Sum, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        out.x[i] = sums[i];
    }
    const i64 at = ((part * p.batch + matrix) * p.m + row) * p.n + col;
    store((Sum*)p.parts + at, out, col, p.n, p.has(C_WIDE));
}

// Writes N neighbouring numbers of C, of their sums with bias.
template <class T, int N>
__device__ inline void put(const Product& p, typename Computed<T>::type (&x)[N], i64 matrix, i64 row, i64 col) {
    using Sum = typename Computed<T>::type;
    if (!IS_WHOLE<Sum> && p.has(MORE)) {
        if (p.kept) {
            write_rounded<T, N>(p, p.kept, x, matrix, row, col);
        }
        if (p.activation != NO_ACTIVATION) {
            // The numbers go round, so that the functions stand here once.
#pragma unroll 1
            for (int i = 0; i < N; ++i) {
                const Sum now = activate(p, x[0]);
#pragma unroll
                for (int j = 1; j < N; ++j) {
                    x[j - 1] = x[j];
                }
                x[N - 1] = now;
            }
        }
        if (p.residual) {
            add_residual<T, N>(p, x, matrix, row, col);
        }
    }
    write_rounded<T, N>(p, p.c, x, matrix, row, col);
}
