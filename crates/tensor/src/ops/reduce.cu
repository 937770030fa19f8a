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

// Of [outer, reduce, inner] the place along `reduce`, of `count` places: all, or the candidates [results, count]. Each result's are
// parts of `len`, a block for each, whose choices out [results, parts] are the candidates of another launch.
template <class T>
__device__ void arg_extreme(
    const T* x, const i64* candidates, i64* out, i64 reduce, i64 inner, i64 count, i64 parts, i64 len, bool largest
) {
    constexpr int TOGETHER = 4;
    __shared__ T values[THREADS];
    __shared__ i64 places[THREADS];
    const i64 result = blockIdx.x / parts, start = blockIdx.x % parts * len;
    const i64 end = start + len < count ? start + len : count;
    x += result / inner * reduce * inner + result % inner;
    Best<T> best = {T(0), -1};
    for (i64 first = start + threadIdx.x; first < end; first += TOGETHER * THREADS) {
        Best<T> next[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) {
            const i64 i = first + k * THREADS;
            next[k] = {T(0), -1};
            if (i < end) {
                next[k].at = candidates == nullptr ? i : candidates[result * count + i];
                next[k].value = x[next[k].at * inner];
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) {
            if (before(next[k], best, largest)) {
                best = next[k];
            }
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
        out[blockIdx.x] = best.at;
    }
}

// A warp for each result, for short rows.
template <class T> __device__ void arg_extreme_rows(const T* x, i64* out, i64 results, i64 reduce, bool largest) {
    const i64 result = warp_of_launch();
    if (result >= results) {
        return;
    }
    x += result * reduce;
    Best<T> best = {T(0), -1};
    for (i64 i = threadIdx.x % WARP; i < reduce; i += WARP) {
        const Best<T> next = {x[i], i};
        if (before(next, best, largest)) {
            best = next;
        }
    }
    for (u32 half = WARP / 2; half > 0; half /= 2) {
        const Best<T> other = {
            __shfl_down_sync(EVERY_LANE, best.value, half), __shfl_down_sync(EVERY_LANE, best.at, half)
        };
        if (before(other, best, largest)) {
            best = other;
        }
    }
    if (threadIdx.x % WARP == 0) {
        out[result] = best.at;
    }
}

// A thread for each result, for columns: neighbouring threads read neighbours.
template <class T> __device__ void arg_extreme_columns(const T* x, i64* out, i64 results, i64 reduce, i64 inner, bool largest) {
    const i64 result = thread_of_launch();
    if (result >= results) {
        return;
    }
    x += result / inner * reduce * inner + result % inner;
    Best<T> best = {T(0), -1};
    for (i64 i = 0; i < reduce; ++i) {
        const Best<T> next = {x[i * inner], i};
        if (before(next, best, largest)) {
            best = next;
        }
    }
    out[result] = best.at;
}

#define KERNELS(NAME, LARGEST, T, TYPE)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME##_##TYPE(                                               \
        const T* x, const i64* candidates, i64* out, i64 reduce, i64 inner, i64 count, i64 parts, i64 len              \
    ) {                                                                                                                \
        arg_extreme(x, candidates, out, reduce, inner, count, parts, len, LARGEST);                                    \
    }                                                                                                                  \
    extern "C" __global__ void NAME##_rows_##TYPE(const T* x, i64* out, i64 results, i64 reduce) {                     \
        arg_extreme_rows(x, out, results, reduce, LARGEST);                                                            \
    }                                                                                                                  \
    extern "C" __global__ void NAME##_columns_##TYPE(const T* x, i64* out, i64 results, i64 reduce, i64 inner) {       \
        arg_extreme_columns(x, out, results, reduce, inner, LARGEST);                                                  \
    }

#define BOTH(T, TYPE)                                                                                                  \
    KERNELS(argmax, true, T, TYPE)                                                                                     \
    KERNELS(argmin, false, T, TYPE)

BOTH(float, f32)
BOTH(double, f64)
BOTH(i64, i64)
