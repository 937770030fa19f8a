// Cross entropy of logits [rows, cols] and class numbers, forward and backward: a warp or, for long rows, a block for each row,
// then one block for all rows. Everything is computed in the host's order: the bits are the same. The backward pass writes
// the gradient straight from the logits.

#include "row.cuh"

// What belongs to the rows of logits.
template <class T> struct Targets {
    const i64* targets;
    T* losses;
    T* log_sums;
    i64 ignored;
    Check* check;
    u32 site;

    // By one thread: a row's loss, 0 where the target is ignored, and log(sum(exp(x - max(x)))).
    template <class Row> __device__ void finish(i64 row, i64 cols, const Row& x, T max, T sum) const {
        const T log_sum = arith_log(sum);
        const i64 target = targets[row];
        log_sums[row] = log_sum;
        losses[row] = T(0);
        if (target == ignored) {
            return;
        }
        if (target < 0 || target >= cols) {
            raise(check, site, target, row);
        } else {
            losses[row] = (max - x(target)) + log_sum;
        }
    }
};

template <class S, class T> __device__ void rows_of(const S* logits, const Targets<T>& given, i64 rows, i64 cols) {
    constexpr int PAIRS = lane_pairs<S>();
    const i64 row = warp_of_launch();
    if (row >= rows) {
        return;
    }
    const S* x = logits + row * cols;
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)cols, cols % 2 == 0 && is_even(x)};
    T value[PAIRS][2];
    share.load(x, value);
    const T max = reduce_lanes<T, Max<T>>(share, [&](int k, int j) { return value[k][j]; });
    const T sum = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return arith_exp(value[k][j] - max); });
    if (share.thread == 0) {
        given.finish(row, cols, [&](i64 i) { return widen(x[i]); }, max, sum);
    }
}

template <class S, class T> __device__ void blocks_of(const S* logits, const Targets<T>& given, i64 cols, u32 slots) {
    __shared__ T parts[WARP];
    const i64 row = blockIdx.x;
    const S* from = logits + row * cols;
    const BlockRow<S> x(from, cols, slots > 0, 0);
    T max, sum;
    block_exp_sum(x, cols, x.kept, parts, max, sum);
    if (threadIdx.x == 0) {
        given.finish(row, cols, [&](i64 i) { return widen(from[i]); }, max, sum);
    }
}

// One block: how many rows count, and their losses' sum or mean, taken in doubles.
template <class S, class T>
__device__ void total_of(const T* losses, const i64* targets, S* loss, T* count, i64 rows, i64 ignored, bool mean) {
    __shared__ double parts[WARP];
    const double counted = strand_sum<double>(rows, parts, [&](i64 i) { return targets[i] != ignored ? 1.0 : 0.0; });
    const double sum = loss == nullptr ? 0.0 : strand_sum<double>(rows, parts, [&](i64 i) { return (double)losses[i]; });
    if (threadIdx.x == 0) {
        *count = (T)counted;
        if (loss != nullptr) {
            *loss = narrow<S>((T)(mean ? sum / counted : sum));
        }
    }
}

// What the loss's gradient has to be multiplied with: of a row (kind 0), of the sum (1), of the mean (2).
template <class S, class T> __device__ inline T scale_of(const S* grad, const T* count, i64 row, u32 kind) {
    return kind == 0 ? widen(grad[row]) : kind == 1 ? widen(grad[0]) : widen(grad[0]) / count[0];
}

template <class T> __device__ inline T grad_of(T x, T max, T log_sum, T scale, bool is_target, bool ignored) {
    T value = arith_exp(x - max - log_sum);
    if (is_target) {
        value = value - T(1);
    }
    return ignored ? T(0) : value * scale;
}

template <class S, class T>
__device__ void grad_rows_of(
    const S* logits, const i64* targets, const S* grad, const T* log_sums, const T* count, S* out, i64 rows, i64 cols,
    i64 ignored, u32 kind
) {
    constexpr int PAIRS = lane_pairs<S>();
    const i64 row = warp_of_launch();
    if (row >= rows) {
        return;
    }
    logits += row * cols;
    out += row * cols;
    const bool even = cols % 2 == 0 && is_even(logits) && is_even(out);
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)cols, even};
    T value[PAIRS][2];
    share.load(logits, value);
    const T max = reduce_lanes<T, Max<T>>(share, [&](int k, int j) { return value[k][j]; });
    const T log_sum = log_sums[row], scale = scale_of(grad, count, row, kind);
    const i64 target = targets[row];
    share.store(out, [&](int k, int j) {
        return grad_of(value[k][j], max, log_sum, scale, share.at(k, j) == target, target == ignored);
    });
}

template <class S, class T>
__device__ void grad_blocks_of(
    const S* logits, const i64* targets, const S* grad, const T* log_sums, const T* count, S* out, i64 cols, i64 ignored,
    u32 kind, u32 slots
) {
    __shared__ T parts[WARP], row_log_sum, row_scale;
    __shared__ i64 row_target;
    const i64 row = blockIdx.x;
    out += row * cols;
    if (threadIdx.x == 0) {
        // Read once for all; they are there when the largest is.
        row_log_sum = log_sums[row];
        row_scale = scale_of(grad, count, row, kind);
        row_target = targets[row];
    }
    const BlockRow<S> x(logits + row * cols, cols, slots > 0, 0);
    const T max = block_row_max(x, cols, parts);
    const T log_sum = row_log_sum, scale = row_scale;
    const i64 target = row_target;
    each_of_block(cols, [&](i64 i) {
        out[i] = narrow<S>(grad_of(x[i], max, log_sum, scale, i == target, target == ignored));
    });
}

#define KERNELS(S, T, NAME)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) cross_entropy_rows_##NAME(                                    \
        const S* logits, const i64* targets, T* losses, T* log_sums, i64 rows, i64 cols, i64 ignored, Check* check,    \
        u32 site                                                                                                       \
    ) {                                                                                                                \
        rows_of(logits, Targets<T>{targets, losses, log_sums, ignored, check, site}, rows, cols);                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2) cross_entropy_blocks_##NAME(                              \
        const S* logits, const i64* targets, T* losses, T* log_sums, i64 cols, u32 slots, i64 ignored, Check* check,   \
        u32 site                                                                                                       \
    ) {                                                                                                                \
        blocks_of(logits, Targets<T>{targets, losses, log_sums, ignored, check, site}, cols, slots);                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) cross_entropy_total_##NAME(                            \
        const T* losses, const i64* targets, S* loss, T* count, i64 rows, i64 ignored, u32 mean                        \
    ) {                                                                                                                \
        total_of(losses, targets, loss, count, rows, ignored, mean != 0);                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) cross_entropy_grad_rows_##NAME(                               \
        const S* logits, const i64* targets, const S* grad, const T* log_sums, const T* count, S* out, i64 rows,       \
        i64 cols, i64 ignored, u32 kind                                                                                \
    ) {                                                                                                                \
        grad_rows_of(logits, targets, grad, log_sums, count, out, rows, cols, ignored, kind);                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2) cross_entropy_grad_blocks_##NAME(                         \
        const S* logits, const i64* targets, const S* grad, const T* log_sums, const T* count, S* out, i64 cols,       \
        u32 slots, i64 ignored, u32 kind                                                                               \
    ) {                                                                                                                \
        grad_blocks_of(logits, targets, grad, log_sums, count, out, cols, ignored, kind, slots);                       \
    }

KERNELS(float, float, f32)
KERNELS(double, double, f64)
KERNELS(bf16, float, bf16)
KERNELS(f16, float, f16)

// Losses of rows rounded to 16 bits, for which a loss per row is asked.
template <class S> __device__ void narrow_all(const float* from, S* to, i64 count) {
    if (thread_of_launch() < count) {
        to[thread_of_launch()] = narrow<S>(from[thread_of_launch()]);
    }
}

extern "C" __global__ void narrow_bf16(const float* from, bf16* to, i64 count) { narrow_all(from, to, count); }
extern "C" __global__ void narrow_f16(const float* from, f16* to, i64 count) { narrow_all(from, to, count); }
