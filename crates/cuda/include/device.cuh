// What kernels share: names of numbers, checks of indices, and the order in which a row is reduced.
#pragma once

#include "arith.cuh"

using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 WARP = 32;
constexpr u32 EVERY_LANE = 0xffffffffu;

// 16-bit floats as they lie in memory. Computations are in f32, and round once.
struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

// What numbers of a type are computed in.
template <class T> struct Computed { using type = T; };
template <> struct Computed<f16> { using type = float; };
template <> struct Computed<bf16> { using type = float; };

// A number from memory, as it is computed with.
template <class T> __device__ inline T widen(T x) { return x; }
__device__ inline float widen(f16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
__device__ inline float widen(bf16 x) { return __int_as_float((int)((u32)x.bits << 16)); }

// A number for memory, to the nearest, ties to even; a NaN stays one.
template <class T> struct Narrow {
    static __device__ T of(T x) { return x; }
};
template <> struct Narrow<f16> {
    static __device__ f16 of(float x) {
        f16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
        return narrow;
    }
};
template <> struct Narrow<bf16> {
    // In whole numbers, since the conversion instruction is newer than the oldest devices.
    static __device__ bf16 of(float x) {
        const u32 bits = (u32)__float_as_int(x);
        const u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
        return {(unsigned short)((x != x ? bits | 0x400000u : rounded) >> 16)};
    }
};
template <class T> __device__ inline T narrow(typename Computed<T>::type x) { return Narrow<T>::of(x); }

// The number of this thread among all of the launch.
__device__ inline i64 thread_of_launch() {
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// The number of this thread's warp among all of the launch.
__device__ inline i64 warp_of_launch() { return thread_of_launch() / WARP; }

// Where a kernel reports what it finds wrong; the host reads it after the next wait. See the Rust file `check.rs`, whose
// `Slot` this is.
struct Check {
    u32 state;
    u32 site;
    i64 index;
    i64 position;
};

// Reports that `index`, the element number `position` of the indices, is out of range. The first report is kept.
__device__ inline void raise(Check* check, u32 site, i64 index, i64 position) {
    if (atomicCAS(&check->state, 0u, 1u) == 0u) {
        check->site = site;
        check->index = index;
        check->position = position;
        __threadfence_system();
        atomicExch(&check->state, 2u);
    }
}

// a + b; whole numbers wrap around.
template <class T> __device__ inline T plus(T a, T b) { return a + b; }
template <> __device__ inline i64 plus(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }

// a * b + c, rounded once; whole numbers wrap around.
__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline i64 multiply_add(i64 a, i64 b, i64 c) { return (i64)((u64)a * (u64)b + (u64)c); }

template <class T> struct Limits;
template <> struct Limits<float> {
    static __device__ float lowest() { return __int_as_float(0xff800000); }
};
template <> struct Limits<double> {
    static __device__ double lowest() { return __longlong_as_double(0xfff0000000000000ll); }
};

// The larger number; a NaN stays, and a later one takes its place.
template <class T> __device__ inline T later_max(T value, T next) {
    return (next > value || next != next) ? next : value;
}

template <class T> struct Sum {
    static __device__ T identity() { return T(0); }
    static __device__ T merge(T value, T next) { return value + next; }
};
template <class T> struct Max {
    static __device__ T identity() { return Limits<T>::lowest(); }
    static __device__ T merge(T value, T next) { return later_max(value, next); }
};

// Reduces elements `start` to `end - 1` by a warp, in the order of the host's blocks (Note [Order of a reduction]): element
// i goes to place i % 64, two of which a lane has, then halves are merged. Every lane gets the result.
template <class T, class Operation, class Element>
__device__ inline T reduce_block(i64 start, i64 end, Element element) {
    const u32 lane = threadIdx.x % WARP;
    T low = Operation::identity(), high = Operation::identity();
    for (i64 i = start + lane; i < end; i += 2 * WARP) {
        low = Operation::merge(low, element(i));
        if (i + WARP < end) {
            high = Operation::merge(high, element(i + WARP));
        }
    }
    low = Operation::merge(low, high);
    for (u32 half = WARP / 2; half > 0; half /= 2) {
        low = Operation::merge(low, __shfl_down_sync(EVERY_LANE, low, half));
    }
    return __shfl_sync(EVERY_LANE, low, 0);
}

constexpr i64 BLOCK = 4096;

// The largest of a row.
template <class T, class Element> __device__ inline T row_max(i64 cols, Element element) {
    return reduce_block<T, Max<T>>(0, cols, element);
}

// The sum of a row: its blocks of 4096 are added from the first to the last.
template <class T, class Element> __device__ inline T row_sum(i64 cols, Element element) {
    T sum = T(0);
    for (i64 start = 0; start < cols; start += BLOCK) {
        const i64 end = start + BLOCK < cols ? start + BLOCK : cols;
        sum = sum + reduce_block<T, Sum<T>>(start, end, element);
    }
    return sum;
}
