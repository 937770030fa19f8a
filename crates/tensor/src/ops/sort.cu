// Sorting rows, stably: chunks of a row by a block each, then passes that merge neighbouring runs. Numbers are compared as whole
// numbers of the same order, equal ones by their places, so there is one result. The last pass writes it.

#include "device.cuh"

// Elements that a block sorts.
constexpr u32 CHUNK = 1024;
// Elements that a block merges.
constexpr u32 PIECE = 1024;

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

template <class S> __device__ inline u64 key_of(S x, bool descending) {
    const u64 key = key_of(x);
    return descending ? ~key : key;
}

// What rows of entries look like: `runs` sorted runs of `run` places each, the last one with `last` entries.
struct Runs {
    i64 rows, runs, run, last, keep, cols, unused[2];

    __device__ i64 len(i64 number) const { return number + 1 == runs ? last : run; }
};

// Sorted elements and their places: in between as 32 bits, in the end as indices. The others are null.
template <class S> struct Sorted {
    S* values;
    u32* places;
    i64* indices;

    __device__ void put(i64 at, S value, u32 place) const {
        values[at] = value;
        if (indices != nullptr) {
            indices[at] = place;
        } else {
            places[at] = place;
        }
    }
};

// A block for each chunk of each row: its first `run` elements in order.
template <class S> __device__ void sort_chunks(const S* x, const Sorted<S>& sorted, const Runs& to, bool descending) {
    __shared__ u64 key[CHUNK];
    __shared__ u32 place[CHUNK];
    __shared__ S value[CHUNK];
    const i64 row = blockIdx.x / to.runs, chunk = blockIdx.x % to.runs;
    const i64 first = chunk * CHUNK;
    const u32 count = to.cols - first < CHUNK ? (u32)(to.cols - first) : CHUNK;
    const u32 room = 2 * blockDim.x;
    for (u32 i = threadIdx.x; i < room; i += blockDim.x) {
        if (i < count) {
            value[i] = x[row * to.cols + first + i];
        }
        key[i] = i < count ? key_of(value[i], descending) : ~0ull;
        place[i] = i < count ? i : 0xffffffffu;
    }
    __syncthreads();
    for (u32 size = 2; size <= room; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            const u32 low = 2 * threadIdx.x - (threadIdx.x & (step - 1)), high = low + step;
            const u64 a = key[low], b = key[high];
            const u32 place_a = place[low], place_b = place[high];
            // Runs of `size` go up and down in turn.
            const bool turned = a != b ? b < a : place_b < place_a;
            if (turned == ((low & size) == 0)) {
                key[low] = b;
                place[low] = place_b;
                key[high] = a;
                place[high] = place_a;
            }
            __syncthreads();
        }
    }
    const i64 start = (row * to.runs + chunk) * to.run;
    const i64 len = to.len(chunk);
    for (u32 i = threadIdx.x; i < len; i += blockDim.x) {
        sorted.put(start + i, value[place[i]], (u32)first + place[i]);
    }
}

// How many of the sorted elements before `high` come before one of this key, if `low` of them do; equal ones do or don't.
template <class S>
__device__ inline i64 rank_among(const S* sorted, i64 low, i64 high, u64 key, bool equal_too, bool descending) {
    while (low < high) {
        const i64 middle = (low + high) / 2;
        const u64 other = key_of(sorted[middle], descending);
        if (other < key || (equal_too && other == key)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// How many of the first `count` elements of two merged runs are of the first run, whose elements come before equal ones.
template <class S> __device__ inline i64 share_of_first(const S* a, i64 in_a, const S* b, i64 in_b, i64 count, bool descending) {
    i64 low = count < in_b ? 0 : count - in_b, high = count < in_a ? count : in_a;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (key_of(a[middle], descending) <= key_of(b[count - 1 - middle], descending)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Merges neighbouring runs, of which the first `to_run` elements are kept: a block for a piece of the result. What it takes of the
// two runs is brought into shared memory, and written in order.
template <class S>
__device__ void sort_merge(
    const S* values, const u32* places, const Sorted<S>& sorted, const Runs& from, i64 to_run, bool descending
) {
    __shared__ S value[PIECE];
    __shared__ u32 place[PIECE], order[PIECE];
    __shared__ i64 bounds[2];
    const i64 pieces = (to_run + PIECE - 1) / PIECE, pairs = (from.runs + 1) / 2;
    const i64 piece = blockIdx.x % pieces, pair = blockIdx.x / pieces % pairs, row = blockIdx.x / pieces / pairs;
    const i64 start_a = (row * from.runs + 2 * pair) * from.run, start_b = start_a + from.run;
    const i64 in_a = from.len(2 * pair), in_b = 2 * pair + 1 < from.runs ? from.len(2 * pair + 1) : 0;
    const i64 len = in_a + in_b < to_run ? in_a + in_b : to_run;
    const i64 first = piece * PIECE, last = first + PIECE < len ? first + PIECE : len;
    if (first >= last) {
        return;
    }
    if (threadIdx.x < 2) {
        const i64 count = threadIdx.x == 0 ? first : last;
        bounds[threadIdx.x] = share_of_first(values + start_a, in_a, values + start_b, in_b, count, descending);
    }
    __syncthreads();
    const i64 first_a = bounds[0], first_b = first - first_a;
    const u32 of_a = (u32)(bounds[1] - first_a), all = (u32)(last - first);
    for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
        const i64 at = i < of_a ? start_a + first_a + i : start_b + first_b + (i - of_a);
        value[i] = values[at];
        place[i] = places[at];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
        const u64 key = key_of(value[i], descending);
        // Of equal elements those of the first run come first: their places do.
        const u32 rank = i < of_a ? i + (u32)rank_among(value, of_a, all, key, false, descending) - of_a
                                  : i - of_a + (u32)rank_among(value, 0, of_a, key, true, descending);
        order[rank] = i;
    }
    __syncthreads();
    const i64 to = (row * pairs + pair) * to_run + first;
    for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
        sorted.put(to + i, value[order[i]], place[order[i]]);
    }
}

// Elements to the places of their rows that indices name, of which no two are equal: zeros lie there before.
template <class S> __device__ void unsort(const S* values, const i64* indices, S* out, i64 total, i64 cols, i64 keep) {
    const i64 at = thread_of_launch();
    if (at < total) {
        out[at / keep * cols + indices[at]] = values[at];
    }
}

#define SORT(S, NAME)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(512, 2) sort_chunks_##NAME(                                           \
        const S* x, S* values, u32* places, i64* indices, Runs to, u32 descending                                      \
    ) {                                                                                                                \
        sort_chunks(x, Sorted<S>{values, places, indices}, to, descending != 0);                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) sort_merge_##NAME(                                               \
        const S* values, const u32* places, S* to_values, u32* to_places, i64* to_indices, Runs from, i64 to_run,      \
        u32 descending                                                                                                 \
    ) {                                                                                                                \
        sort_merge(values, places, Sorted<S>{to_values, to_places, to_indices}, from, to_run, descending != 0);        \
    }

SORT(float, f32)
SORT(double, f64)
SORT(bf16, bf16)
SORT(f16, f16)
SORT(i64, i64)
SORT(int, i32)
SORT(short, i16)
SORT(signed char, i8)
SORT(unsigned char, u8)

#define UNSORT(S, NAME)                                                                                                \
    extern "C" __global__ void unsort_##NAME(                                                                          \
        const S* values, const i64* indices, S* out, i64 total, i64 cols, i64 keep                                     \
    ) {                                                                                                                \
        unsort(values, indices, out, total, cols, keep);                                                               \
    }

// By the bytes of an element, whatever it is.
UNSORT(unsigned char, 1)
UNSORT(unsigned short, 2)
UNSORT(u32, 4)
UNSORT(u64, 8)
