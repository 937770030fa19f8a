// Running sums and products of rows, in the host's order (Note [Order of a scan] in cpu/src/scan.rs): a thread has a segment, a
// block a chunk.

#include "device.cuh"

// As in cpu/src/scan.rs.
constexpr u32 SEGMENT = 8;
constexpr u32 CHUNK = 1024;
constexpr u32 THREADS = CHUNK / SEGMENT;

template <class T> __device__ inline T times(T a, T b) { return a * b; }
template <> __device__ inline i64 times(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

template <class T, bool PRODUCT> __device__ inline T combine(T a, T b) { return PRODUCT ? times(a, b) : plus(a, b); }

// The totals of chunks, where `out` is null, into totals [rows, chunks]; else the results, from the totals of the chunks before.
template <class S, class T, bool PRODUCT>
__device__ void scan_chunks(const S* x, S* out, T* totals, i64 cols, i64 chunks, bool reverse) {
    __shared__ T elements[CHUNK + CHUNK / 32];
    __shared__ T before[THREADS + 1];
    const T none = PRODUCT ? T(1) : T(0);
    const i64 row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const i64 first = chunk * CHUNK;
    const u32 count = cols - first < CHUNK ? (u32)(cols - first) : CHUNK;
    const auto place = [&](u32 i) { return row * cols + (reverse ? cols - 1 - (first + i) : first + i); };
    // A place is left free after each 32, so that the threads' segments start in different banks.
    const auto slot = [](u32 i) { return i + i / 32; };
    for (u32 i = threadIdx.x; i < CHUNK; i += THREADS) {
        elements[slot(i)] = i < count ? widen(x[place(i)]) : none;
    }
    __syncthreads();
    T sum = none;
    for (u32 i = threadIdx.x * SEGMENT; i < (threadIdx.x + 1) * SEGMENT; ++i) {
        sum = combine<T, PRODUCT>(sum, elements[slot(i)]);
        elements[slot(i)] = sum;
    }
    before[threadIdx.x + 1] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        T all = none;
        before[0] = all;
        for (u32 at = 1; at <= THREADS; ++at) {
            all = combine<T, PRODUCT>(all, before[at]);
            before[at] = all;
        }
    }
    __syncthreads();
    if (out == nullptr) {
        if (threadIdx.x == 0) {
            totals[blockIdx.x] = before[THREADS];
        }
        return;
    }
    const T carried = totals != nullptr && chunk > 0 ? totals[blockIdx.x - 1] : none;
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        out[place(i)] = narrow<S>(combine<T, PRODUCT>(carried, combine<T, PRODUCT>(before[i / SEGMENT], elements[slot(i)])));
    }
}

// The totals of chunks become running ones, a thread for each row.
template <class T, bool PRODUCT> __device__ void scan_totals(T* totals, i64 rows, i64 chunks) {
    const i64 row = thread_of_launch();
    if (row >= rows) {
        return;
    }
    T all = PRODUCT ? T(1) : T(0);
    for (i64 chunk = 0; chunk < chunks; ++chunk) {
        all = combine<T, PRODUCT>(all, totals[row * chunks + chunk]);
        totals[row * chunks + chunk] = all;
    }
}

// The gradient of running products, a thread for each row: see `product_gradient` of the host.
template <class S, class T> __device__ void product_grad(const S* x, const S* grad, T* before, S* out, i64 rows, i64 cols) {
    const i64 row = thread_of_launch();
    if (row >= rows) {
        return;
    }
    x += row * cols;
    grad += row * cols;
    before += row * cols;
    out += row * cols;
    T product = T(1);
    for (i64 i = 0; i < cols; ++i) {
        before[i] = product;
        product = product * widen(x[i]);
    }
    T sum = T(0), next = T(0);
    for (i64 i = cols - 1; i >= 0; --i) {
        sum = widen(grad[i]) + next * sum;
        out[i] = narrow<S>(before[i] * sum);
        next = widen(x[i]);
    }
}

#define SCAN(S, T, NAME, KIND, PRODUCT)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) scan_##KIND##_##NAME(                                        \
        const S* x, S* out, T* totals, i64 cols, i64 chunks, u32 reverse                                               \
    ) {                                                                                                                \
        scan_chunks<S, T, PRODUCT>(x, out, totals, cols, chunks, reverse != 0);                                        \
    }

#define TOTALS(T, NAME, KIND, PRODUCT)                                                                                 \
    extern "C" __global__ void scan_totals_##KIND##_##NAME(T* totals, i64 rows, i64 chunks) {                          \
        scan_totals<T, PRODUCT>(totals, rows, chunks);                                                                 \
    }

#define KERNELS(S, T, NAME)                                                                                            \
    SCAN(S, T, NAME, sum, false)                                                                                       \
    SCAN(S, T, NAME, product, true)

KERNELS(float, float, f32)
KERNELS(double, double, f64)
KERNELS(bf16, float, bf16)
KERNELS(f16, float, f16)
KERNELS(i64, i64, i64)

#define BOTH_TOTALS(T, NAME)                                                                                           \
    TOTALS(T, NAME, sum, false)                                                                                        \
    TOTALS(T, NAME, product, true)

BOTH_TOTALS(float, f32)
BOTH_TOTALS(double, f64)
BOTH_TOTALS(i64, i64)

#define GRAD(S, T, NAME)                                                                                               \
    extern "C" __global__ void product_grad_##NAME(                                                                    \
        const S* x, const S* grad, T* before, S* out, i64 rows, i64 cols                                               \
    ) {                                                                                                                \
        product_grad(x, grad, before, out, rows, cols);                                                                \
    }

GRAD(float, float, f32)
GRAD(double, double, f64)
GRAD(bf16, float, bf16)
GRAD(f16, float, f16)
