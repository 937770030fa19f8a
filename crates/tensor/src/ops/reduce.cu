// The place of the largest or smallest element: the first of equal ones, and a NaN before all others.

#include "device.cuh"

constexpr u32 THREADS = 256;

template <class T> struct Best {
    T value;
    i64 at;
};

// Whether `a` is to be chosen before `b`; a place of -1 is none.
template <class T> __device__ inline bool before(const Best<T>& a, const Best<T>& b, bool largest) {
    if (a.at < 0 || b.at < 0) {
        return a.at >= 0;
    }
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) {
        return a_nan && b_nan ? a.at < b.at : a_nan;
    }
    if (a.value == b.value) {
        return a.at < b.at;
    }
    return largest ? a.value > b.value : a.value < b.value;
}

// A block for each result: of [outer, reduce, inner] the place along `reduce`.
template <class T> __device__ void arg_extreme(const T* x, i64* out, i64 reduce, i64 inner, bool largest) {
    __shared__ T values[THREADS];
    __shared__ i64 places[THREADS];
    const i64 result = blockIdx.x;
    x += result / inner * reduce * inner + result % inner;
    Best<T> best = {T(0), -1};
    for (i64 i = threadIdx.x; i < reduce; i += THREADS) {
        const Best<T> next = {x[i * inner], i};
        if (before(next, best, largest)) {
            best = next;
        }
    }
    values[threadIdx.x] = best.value;
    places[threadIdx.x] = best.at;
    __syncthreads();
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const Best<T> other = {values[threadIdx.x + half], places[threadIdx.x + half]};
            if (before(other, best, largest)) {
                best = other;
                values[threadIdx.x] = best.value;
                places[threadIdx.x] = best.at;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[result] = best.at;
    }
}

#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void argmax_##NAME(const T* x, i64* out, i64 reduce, i64 inner) {                           \
        arg_extreme(x, out, reduce, inner, true);                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void argmin_##NAME(const T* x, i64* out, i64 reduce, i64 inner) {                           \
        arg_extreme(x, out, reduce, inner, false);                                                                     \
    }

KERNELS(float, f32)
KERNELS(double, f64)
KERNELS(i64, i64)
