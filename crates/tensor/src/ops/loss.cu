// Cross entropy of logits [rows, cols] and class numbers, forward and backward: a warp for each row, then one for all rows.
// Everything is computed in the host's order: the bits are the same.

#include "device.cuh"

// The losses of rows, 0 where the target is ignored, and log(sum(exp(x - max(x)))) of each.
template <class T>
__device__ void rows_of(
    const T* logits, const i64* targets, T* losses, T* log_sums, i64 rows, i64 cols, i64 ignored, Check* check, u32 site
) {
    const i64 row = thread_of_launch() / WARP;
    if (row >= rows) {
        return;
    }
    const T* x = logits + row * cols;
    const T max = row_max<T>(cols, [&](i64 i) { return x[i]; });
    const T sum = row_sum<T>(cols, [&](i64 i) { return arith_exp(x[i] - max); });
    if (threadIdx.x % WARP != 0) {
        return;
    }
    const T log_sum = arith_log(sum);
    const i64 target = targets[row];
    log_sums[row] = log_sum;
    if (target == ignored) {
        losses[row] = T(0);
    } else if (target < 0 || target >= cols) {
        losses[row] = T(0);
        raise(check, site, target, row);
    } else {
        losses[row] = (max - x[target]) + log_sum;
    }
}

// One warp: how many rows count, and their losses' sum or mean, taken in doubles.
template <class T>
__device__ void total_of(const T* losses, const i64* targets, T* loss, T* count, i64 rows, i64 ignored, bool reduce, bool mean) {
    const double counted = row_sum<double>(rows, [&](i64 i) { return targets[i] != ignored ? 1.0 : 0.0; });
    const double sum = reduce ? row_sum<double>(rows, [&](i64 i) { return (double)losses[i]; }) : 0.0;
    if (threadIdx.x == 0) {
        *count = (T)counted;
        if (reduce) {
            *loss = (T)(mean ? sum / counted : sum);
        }
    }
}

// What the loss's gradient has to be multiplied with: of a row (kind 0), of the sum (1), of the mean (2).
template <class T>
__device__ void grad_of(
    const T* logits, const i64* targets, const T* grad, const T* log_sums, const T* count, T* out, i64 rows, i64 cols,
    i64 ignored, u32 kind
) {
    const i64 row = thread_of_launch() / WARP;
    if (row >= rows) {
        return;
    }
    const T* x = logits + row * cols;
    out += row * cols;
    const i64 target = targets[row];
    const T max = row_max<T>(cols, [&](i64 i) { return x[i]; });
    const T log_sum = log_sums[row];
    const T scale = kind == 0 ? grad[row] : kind == 1 ? grad[0] : grad[0] / count[0];
    for (i64 i = threadIdx.x % WARP; i < cols; i += WARP) {
        T value = arith_exp(x[i] - max - log_sum);
        if (i == target) {
            value = value - T(1);
        }
        out[i] = target == ignored ? T(0) : value * scale;
    }
}

#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void cross_entropy_rows_##NAME(                                                              \
        const T* logits, const i64* targets, T* losses, T* log_sums, i64 rows, i64 cols, i64 ignored, Check* check,    \
        u32 site                                                                                                       \
    ) {                                                                                                                \
        rows_of(logits, targets, losses, log_sums, rows, cols, ignored, check, site);                                  \
    }                                                                                                                  \
    extern "C" __global__ void cross_entropy_total_##NAME(                                                             \
        const T* losses, const i64* targets, T* loss, T* count, i64 rows, i64 ignored, u32 reduce, u32 mean            \
    ) {                                                                                                                \
        total_of(losses, targets, loss, count, rows, ignored, reduce != 0, mean != 0);                                 \
    }                                                                                                                  \
    extern "C" __global__ void cross_entropy_grad_##NAME(                                                              \
        const T* logits, const i64* targets, const T* grad, const T* log_sums, const T* count, T* out, i64 rows,       \
        i64 cols, i64 ignored, u32 kind                                                                                \
    ) {                                                                                                                \
        grad_of(logits, targets, grad, log_sums, count, out, rows, cols, ignored, kind);                               \
    }

KERNELS(float, f32)
KERNELS(double, f64)
