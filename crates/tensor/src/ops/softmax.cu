// Softmax and log-softmax over the last dimension of contiguous [rows, cols], forward and backward: a warp for each row.
// Everything is computed in the host's order: the bits are the same.

#include "device.cuh"

// The row of this warp; all of its lanes leave together.
__device__ inline i64 row_of_warp() {
    return thread_of_launch() / WARP;
}

template <class T> __device__ void softmax(const T* x, T* out, i64 rows, i64 cols, bool log) {
    const i64 row = row_of_warp();
    if (row >= rows) {
        return;
    }
    x += row * cols;
    out += row * cols;
    const T max = row_max<T>(cols, [&](i64 i) { return x[i]; });
    const T sum = row_sum<T>(cols, [&](i64 i) { return arith_exp(x[i] - max); });
    const T log_sum = arith_log(sum);
    for (i64 i = threadIdx.x % WARP; i < cols; i += WARP) {
        out[i] = log ? x[i] - max - log_sum : arith_exp(x[i] - max) / sum;
    }
}

// `y` is the result, `grad` its gradient.
template <class T> __device__ void softmax_grad(const T* y, const T* grad, T* out, i64 rows, i64 cols, bool log) {
    const i64 row = row_of_warp();
    if (row >= rows) {
        return;
    }
    y += row * cols;
    grad += row * cols;
    out += row * cols;
    const T sum = row_sum<T>(cols, [&](i64 i) { return log ? grad[i] : grad[i] * y[i]; });
    for (i64 i = threadIdx.x % WARP; i < cols; i += WARP) {
        out[i] = log ? grad[i] - arith_exp(y[i]) * sum : (grad[i] - sum) * y[i];
    }
}

#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void softmax_##NAME(const T* x, T* out, i64 rows, i64 cols) {                               \
        softmax(x, out, rows, cols, false);                                                                            \
    }                                                                                                                  \
    extern "C" __global__ void log_softmax_##NAME(const T* x, T* out, i64 rows, i64 cols) {                           \
        softmax(x, out, rows, cols, true);                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void softmax_grad_##NAME(const T* y, const T* grad, T* out, i64 rows, i64 cols) {           \
        softmax_grad(y, grad, out, rows, cols, false);                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void log_softmax_grad_##NAME(const T* y, const T* grad, T* out, i64 rows, i64 cols) {       \
        softmax_grad(y, grad, out, rows, cols, true);                                                                  \
    }

KERNELS(float, f32)
KERNELS(double, f64)
