// Softmax and log-softmax over the last dimension of contiguous [rows, cols], forward and backward. Everything is computed in
// the host's order: the bits are the same. A row is read once where it fits into registers (a warp for each row) or shared
// memory (a block for each).

#include "row.cuh"

template <class S> __device__ void softmax_rows(const S* x, S* out, i64 rows, i64 cols, bool log) {
    using T = typename Computed<S>::type;
    constexpr int PAIRS = lane_pairs<S>();
    const i64 row = warp_of_launch();
    if (row >= rows) {
        return;
    }
    x += row * cols;
    out += row * cols;
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)cols, cols % 2 == 0 && is_even(x) && is_even(out)};
    T value[PAIRS][2];
    share.load(x, value);
    const T max = reduce_lanes<T, Max<T>>(share, [&](int k, int j) { return value[k][j]; });
    if (log) {
        const T sum = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return arith_exp(value[k][j] - max); });
        const T log_sum = arith_log(sum);
        share.store(out, [&](int k, int j) { return value[k][j] - max - log_sum; });
    } else {
        share.each([&](int k, int j, u32) { value[k][j] = arith_exp(value[k][j] - max); });
        const T sum = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return value[k][j]; });
        share.store(out, [&](int k, int j) { return value[k][j] / sum; });
    }
}

// A block for each row. `slots` is how many rows shared memory has room for.
template <class S> __device__ void softmax_blocks(const S* x, S* out, i64 cols, u32 slots, bool log) {
    using T = typename Computed<S>::type;
    __shared__ T parts[WARP];
    out += blockIdx.x * cols;
    const BlockRow<S> row(x + blockIdx.x * cols, cols, slots > 0, 0);
    // The exponentials take the place of the row where it isn't needed any more.
    T* exps = slots == 0 ? nullptr : !log ? row.kept : slots > 1 ? row.kept + cols : nullptr;
    T max, sum;
    block_exp_sum(row, cols, exps, parts, max, sum);
    const T log_sum = arith_log(sum);
    each_of_block(cols, [&](i64 i) {
        const T value = log ? row[i] - max - log_sum : (exps != nullptr ? exps[i] : arith_exp(row[i] - max)) / sum;
        out[i] = narrow<S>(value);
    });
}

// `y` is the result, `grad` its gradient.
template <class S> __device__ void softmax_grad_rows(const S* y, const S* grad, S* out, i64 rows, i64 cols, bool log) {
    using T = typename Computed<S>::type;
    constexpr int PAIRS = lane_pairs<S>();
    const i64 row = warp_of_launch();
    if (row >= rows) {
        return;
    }
    y += row * cols;
    grad += row * cols;
    out += row * cols;
    const bool even = cols % 2 == 0 && is_even(y) && is_even(grad) && is_even(out);
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)cols, even};
    T result[PAIRS][2], value[PAIRS][2];
    share.load(y, result);
    share.load(grad, value);
    const T sum = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return log ? value[k][j] : value[k][j] * result[k][j]; });
    share.store(out, [&](int k, int j) {
        return log ? value[k][j] - arith_exp(result[k][j]) * sum : (value[k][j] - sum) * result[k][j];
    });
}

template <class S> __device__ void softmax_grad_blocks(const S* y, const S* grad, S* out, i64 cols, u32 slots, bool log) {
    using T = typename Computed<S>::type;
    __shared__ T parts[WARP];
    out += blockIdx.x * cols;
    const BlockRow<S> result(y + blockIdx.x * cols, cols, slots > 1, 1);
    const BlockRow<S> value(grad + blockIdx.x * cols, cols, slots > 0, 0);
    const T sum = strand_sum<T>(cols, parts, [&](i64 i) { return log ? value[i] : value[i] * result[i]; });
    each_of_block(cols, [&](i64 i) {
        out[i] = narrow<S>(log ? value[i] - arith_exp(result[i]) * sum : (value[i] - sum) * result[i]);
    });
}

#define FORMS(PREFIX, LOG, S, NAME)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) PREFIX##softmax_rows_##NAME(                                  \
        const S* x, S* out, i64 rows, i64 cols                                                                         \
    ) {                                                                                                                \
        softmax_rows(x, out, rows, cols, LOG);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2) PREFIX##softmax_blocks_##NAME(                            \
        const S* x, S* out, i64 cols, u32 slots                                                                        \
    ) {                                                                                                                \
        softmax_blocks(x, out, cols, slots, LOG);                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) PREFIX##softmax_grad_rows_##NAME(                             \
        const S* y, const S* grad, S* out, i64 rows, i64 cols                                                          \
    ) {                                                                                                                \
        softmax_grad_rows(y, grad, out, rows, cols, LOG);                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2) PREFIX##softmax_grad_blocks_##NAME(                       \
        const S* y, const S* grad, S* out, i64 cols, u32 slots                                                         \
    ) {                                                                                                                \
        softmax_grad_blocks(y, grad, out, cols, slots, LOG);                                                           \
    }

#define KERNELS(S, NAME)                                                                                               \
    FORMS(, false, S, NAME)                                                                                            \
    FORMS(log_, true, S, NAME)

KERNELS(float, f32)
KERNELS(double, f64)
KERNELS(bf16, bf16)
KERNELS(f16, f16)
