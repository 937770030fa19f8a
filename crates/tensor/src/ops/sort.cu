// Sorting rows, stably: chunks of a row by a block each, then passes that merge neighbouring runs. Numbers are compared as whole
// numbers of the same order, equal ones by their places, so there is one result.

#include "device.cuh"

// Elements that a block sorts.
constexpr u32 CHUNK = 1024;

// A number as a whole number of the same order: zeros are equal, NaN is the largest.
__device__ inline u64 key_of(float x) {
    const u32 bits = x == 0.0f ? 0u : (u32)__float_as_int(x);
    return x != x ? 0xffffffffu : (bits >> 31 ? ~bits : bits | 0x80000000u);
}
__device__ inline u64 key_of(double x) {
    const u64 bits = x == 0.0 ? 0ull : (u64)__double_as_longlong(x);
    return x != x ? ~0ull : (bits >> 63 ? ~bits : bits | (1ull << 63));
}
__device__ inline u64 key_of(f16 x) { return key_of(widen(x)); }
__device__ inline u64 key_of(bf16 x) { return key_of(widen(x)); }
__device__ inline u64 key_of(i64 x) { return (u64)x ^ (1ull << 63); }
__device__ inline u64 key_of(int x) { return key_of((i64)x); }
__device__ inline u64 key_of(short x) { return key_of((i64)x); }
__device__ inline u64 key_of(signed char x) { return key_of((i64)x); }
__device__ inline u64 key_of(unsigned char x) { return key_of((i64)x); }

// A key and its place in the row.
struct Entry {
    u64 key;
    u32 place;
};

__device__ inline bool before(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
}

// What rows of entries look like: `runs` sorted runs of `run` places each, the last one with `last` entries.
struct Runs {
    i64 rows, runs, run, last, keep, cols, unused[2];

    __device__ i64 len(i64 number) const { return number + 1 == runs ? last : run; }
};

// A block for each chunk of each row: its first `run` entries in order.
template <class S> __device__ void sort_chunks(const S* x, u64* keys, u32* places, const Runs& to, bool descending) {
    __shared__ u64 key[CHUNK];
    __shared__ u32 place[CHUNK];
    const i64 row = blockIdx.x / to.runs, chunk = blockIdx.x % to.runs;
    const i64 first = chunk * CHUNK;
    const u32 count = to.cols - first < CHUNK ? (u32)(to.cols - first) : CHUNK;
    const u32 room = 2 * blockDim.x;
    for (u32 i = threadIdx.x; i < room; i += blockDim.x) {
        const u64 own = i < count ? key_of(x[row * to.cols + first + i]) : 0ull;
        key[i] = i < count ? (descending ? ~own : own) : ~0ull;
        place[i] = i < count ? (u32)(first + i) : 0xffffffffu;
    }
    __syncthreads();
    for (u32 size = 2; size <= room; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            const u32 low = 2 * threadIdx.x - (threadIdx.x & (step - 1)), high = low + step;
            const Entry a = {key[low], place[low]}, b = {key[high], place[high]};
            // Runs of `size` go up and down in turn.
            if (before(b, a) == ((low & size) == 0)) {
                key[low] = b.key;
                place[low] = b.place;
                key[high] = a.key;
                place[high] = a.place;
            }
            __syncthreads();
        }
    }
    const i64 start = (row * to.runs + chunk) * to.run;
    const i64 len = to.len(chunk);
    for (u32 i = threadIdx.x; i < len; i += blockDim.x) {
        keys[start + i] = key[i];
        places[start + i] = place[i];
    }
}

// Merges neighbouring runs, of which the first `to_run` entries are kept: a thread for each entry, which finds how many of the
// other run come before it.
extern "C" __global__ void __launch_bounds__(256) sort_merge(
    const u64* keys, const u32* places, u64* to_keys, u32* to_places, Runs from, i64 to_run
) {
    const i64 at = thread_of_launch();
    if (at >= from.rows * from.runs * from.run) {
        return;
    }
    const i64 place = at % from.run, run = at / from.run % from.runs, row = at / (from.run * from.runs);
    if (place >= from.len(run)) {
        return;
    }
    const Entry own = {keys[at], places[at]};
    const i64 other = run ^ 1;
    i64 low = 0;
    if (other < from.runs) {
        const i64 start = (row * from.runs + other) * from.run;
        i64 high = from.len(other);
        while (low < high) {
            const i64 middle = (low + high) / 2;
            const Entry entry = {keys[start + middle], places[start + middle]};
            if (before(entry, own)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    const i64 rank = place + low;
    if (rank < to_run) {
        const i64 to = (row * ((from.runs + 1) / 2) + run / 2) * to_run + rank;
        to_keys[to] = own.key;
        to_places[to] = own.place;
    }
}

// The elements that sorted places name, and the places as indices.
template <class S> __device__ void sort_finish(const S* x, const u32* places, S* values, i64* indices, i64 total, i64 cols, i64 keep) {
    const i64 at = thread_of_launch();
    if (at < total) {
        const u32 place = places[at];
        values[at] = x[at / keep * cols + place];
        indices[at] = place;
    }
}

// Elements to the places of their rows that indices name, of which no two are equal: zeros lie there before.
template <class S> __device__ void unsort(const S* values, const i64* indices, S* out, i64 total, i64 cols, i64 keep) {
    const i64 at = thread_of_launch();
    if (at < total) {
        out[at / keep * cols + indices[at]] = values[at];
    }
}

#define CHUNKS(S, NAME)                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 2) sort_chunks_##NAME(                                           \
        const S* x, u64* keys, u32* places, Runs to, u32 descending                                                    \
    ) {                                                                                                                \
        sort_chunks(x, keys, places, to, descending != 0);                                                             \
    }

CHUNKS(float, f32)
CHUNKS(double, f64)
CHUNKS(bf16, bf16)
CHUNKS(f16, f16)
CHUNKS(i64, i64)
CHUNKS(int, i32)
CHUNKS(short, i16)
CHUNKS(signed char, i8)
CHUNKS(unsigned char, u8)

#define MOVES(S, NAME)                                                                                                 \
    extern "C" __global__ void sort_finish_##NAME(                                                                     \
        const S* x, const u32* places, S* values, i64* indices, i64 total, i64 cols, i64 keep                          \
    ) {                                                                                                                \
        sort_finish(x, places, values, indices, total, cols, keep);                                                    \
    }                                                                                                                  \
    extern "C" __global__ void unsort_##NAME(                                                                          \
        const S* values, const i64* indices, S* out, i64 total, i64 cols, i64 keep                                     \
    ) {                                                                                                                \
        unsort(values, indices, out, total, cols, keep);                                                               \
    }

// By the bytes of an element, whatever it is.
MOVES(unsigned char, 1)
MOVES(unsigned short, 2)
MOVES(u32, 4)
MOVES(u64, 8)
