// Running sums and products of rows, and linear recurrences, in the host's order (Note [Order of a scan] in cpu/src/scan.rs): a
// thread has a segment, a block a chunk or several short rows.

#include "device.cuh"

// As in cpu/src/scan.rs.
constexpr u32 SEGMENT = 8;
constexpr u32 CHUNK = 1024;
constexpr u32 THREADS = CHUNK / SEGMENT;

template <class T> __device__ inline T times(T a, T b) { return a * b; }
template <> __device__ inline i64 times(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

template <class T, bool PRODUCT> __device__ inline T combine(T a, T b) { return PRODUCT ? times(a, b) : plus(a, b); }

// What the threads of a block work on: a chunk of a row, or `packed` short rows, each of which has whole segments in shared memory.
struct Work {
    i64 row, chunk, first, cols;
    u32 width, segments, here;
    bool reverse;

    __device__ Work(i64 rows, i64 cols, i64 chunks, u32 packed, bool reverse) : cols(cols), reverse(reverse) {
        row = packed > 1 ? (i64)blockIdx.x * packed : blockIdx.x / chunks;
        chunk = packed > 1 ? 0 : blockIdx.x % chunks;
        first = chunk * CHUNK;
        width = cols - first < CHUNK ? (u32)(cols - first) : CHUNK;
        segments = (width + SEGMENT - 1) / SEGMENT;
        here = rows - row < packed ? (u32)(rows - row) : packed;
    }

    // Calls f(place in memory, place among the segments, whether it is the first of its row) for each element.
    template <class Function> __device__ void each(Function f) const {
        for (u32 i = threadIdx.x; i < width * here; i += THREADS) {
            const u32 r = here == 1 ? 0 : i / width, e = i - r * width;
            const i64 at = first + e;
            f((row + r) * cols + (reverse ? cols - 1 - at : at), r * segments * SEGMENT + e, at == 0);
        }
    }

    // Whether this thread has a segment, from threadIdx.x * SEGMENT on; which of its row; how many elements.
    __device__ bool works() const { return threadIdx.x < here * segments; }
    __device__ u32 segment() const { return threadIdx.x % segments; }
    __device__ u32 count() const { return width - segment() * SEGMENT < SEGMENT ? width - segment() * SEGMENT : SEGMENT; }
};

// A place is left free after each 32, so that the threads' segments start in different banks.
__device__ inline u32 slot(u32 i) { return i + i / 32; }

// The totals of chunks, where `out` is null, into totals [rows, chunks]; else the results, from the running totals of the chunks.
template <class S, class T, bool PRODUCT>
__device__ void scan_chunks(
    const S* x, S* out, T* totals, i64 rows, i64 cols, i64 chunks, u32 packed, bool reverse
) {
    __shared__ T elements[CHUNK + CHUNK / 32];
    __shared__ T before[THREADS];
    const T none = PRODUCT ? T(1) : T(0);
    const Work work(rows, cols, chunks, packed, reverse);
    work.each([&](i64 place, u32 i, bool) { elements[slot(i)] = widen(x[place]); });
    __syncthreads();
    if (work.works()) {
        T sum = none;
        for (u32 i = threadIdx.x * SEGMENT; i < threadIdx.x * SEGMENT + work.count(); ++i) {
            sum = combine<T, PRODUCT>(sum, elements[slot(i)]);
            elements[slot(i)] = sum;
        }
        before[threadIdx.x] = sum;
    }
    __syncthreads();
    if (work.works() && work.segment() == 0) {
        T all = none;
        for (u32 at = threadIdx.x; at < threadIdx.x + work.segments; ++at) {
            const T mine = before[at];
            before[at] = all;
            all = combine<T, PRODUCT>(all, mine);
        }
        if (out == nullptr) {
            totals[blockIdx.x] = all;
        }
    }
    if (out == nullptr) {
        return;
    }
    __syncthreads();
    const T carried = totals != nullptr && work.chunk > 0 ? totals[blockIdx.x - 1] : none;
    work.each([&](i64 place, u32 i, bool) {
        out[place] = narrow<S>(combine<T, PRODUCT>(carried, combine<T, PRODUCT>(before[i / SEGMENT], elements[slot(i)])));
    });
}

// What follows c by s + a * c; of a zero nothing, if that is `sure`. See `step` of the host.
__device__ inline double step(double s, double a, double c, bool sure) { return sure && c == 0.0 ? s : s + a * c; }

// The recurrence out[i] = g[i] + a[i] * out[i - 1] of rows, or from their ends: see `linear_rows` of the host. Where `out` is null,
// what chunks make of the number before them, into factors and sums [rows, chunks]; else the results, from the running sums.
// `products`: the coefficients are such factors.
template <class S>
__device__ void linear_chunks(
    const S* a, const S* g, S* out, double* factors, double* sums, i64 rows, i64 cols, i64 chunks, u32 packed, bool reverse,
    bool products
) {
    using C = typename Computed<S>::type;
    __shared__ C links[CHUNK + CHUNK / 32];
    __shared__ C elements[CHUNK + CHUNK / 32];
    __shared__ double segment_factors[THREADS];
    __shared__ double segment_sums[THREADS];
    const Work work(rows, cols, chunks, packed, reverse);
    work.each([&](i64 place, u32 i, bool is_first) {
        links[slot(i)] = is_first ? C(0) : widen(a[reverse ? place + 1 : place]);
        elements[slot(i)] = widen(g[place]);
    });
    __syncthreads();
    const u32 start = threadIdx.x * SEGMENT;
    if (work.works()) {
        double factor = links[slot(start)], sum = elements[slot(start)];
        for (u32 i = start + 1; i < start + work.count(); ++i) {
            const double link = links[slot(i)];
            sum = step(elements[slot(i)], link, sum, products);
            factor = factor * link;
        }
        segment_factors[threadIdx.x] = factor;
        segment_sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (work.works() && work.segment() == 0) {
        if (out == nullptr) {
            double factor = segment_factors[threadIdx.x], sum = segment_sums[threadIdx.x];
            for (u32 at = threadIdx.x + 1; at < threadIdx.x + work.segments; ++at) {
                sum = step(segment_sums[at], segment_factors[at], sum, true);
                factor = segment_factors[at] * factor;
            }
            factors[blockIdx.x] = factor;
            sums[blockIdx.x] = sum;
        } else {
            double before = work.chunk > 0 ? sums[blockIdx.x - 1] : 0.0;
            for (u32 at = threadIdx.x; at < threadIdx.x + work.segments; ++at) {
                const double sum = segment_sums[at];
                segment_sums[at] = before;
                before = step(sum, segment_factors[at], before, true);
            }
        }
    }
    if (out == nullptr) {
        return;
    }
    __syncthreads();
    if (work.works()) {
        double number = segment_sums[threadIdx.x];
        for (u32 i = start; i < start + work.count(); ++i) {
            number = step(elements[slot(i)], links[slot(i)], number, products);
            elements[slot(i)] = (C)number;
        }
    }
    __syncthreads();
    work.each([&](i64 place, u32 i, bool) { out[place] = narrow<S>(elements[slot(i)]); });
}

#define SCAN(S, T, NAME, KIND, PRODUCT)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) scan_##KIND##_##NAME(                                        \
        const S* x, S* out, T* totals, i64 rows, i64 cols, i64 chunks, u32 packed, u32 reverse                         \
    ) {                                                                                                                \
        scan_chunks<S, T, PRODUCT>(x, out, totals, rows, cols, chunks, packed, reverse != 0);                          \
    }

#define KERNELS(S, T, NAME)                                                                                            \
    SCAN(S, T, NAME, sum, false)                                                                                       \
    SCAN(S, T, NAME, product, true)

KERNELS(float, float, f32)
KERNELS(double, double, f64)
KERNELS(bf16, float, bf16)
KERNELS(f16, float, f16)
KERNELS(i64, i64, i64)

#define LINEAR(S, NAME)                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS) linear_##NAME(                                               \
        const S* a, const S* g, S* out, double* factors, double* sums, i64 rows, i64 cols, i64 chunks, u32 packed,     \
        u32 reverse, u32 products                                                                                      \
    ) {                                                                                                                \
        linear_chunks(a, g, out, factors, sums, rows, cols, chunks, packed, reverse != 0, products != 0);              \
    }

LINEAR(float, f32)
LINEAR(double, f64)
LINEAR(bf16, bf16)
LINEAR(f16, f16)
