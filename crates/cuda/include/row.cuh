// Rows in registers and shared memory: how threads share the elements of one, and sums of it in the host's order.
#pragma once

#include "device.cuh"

// Threads of a block that works on one row.
constexpr u32 BLOCK_THREADS = 512;

// Two neighbours in memory, read and written at once.
template <class S> struct alignas(2 * sizeof(S)) Pair {
    S first, second;
};

// Whether pairs of a row at this address lie evenly; a null address does.
template <class S> __device__ inline bool is_even(const S* address) {
    return (u64)address % (2 * sizeof(S)) == 0;
}

// Which elements of a row a thread of THREADS has: PAIRS times two, neighbours where pairs lie evenly, else THREADS apart.
template <int PAIRS, u32 THREADS> struct Share {
    u32 thread, cols;
    bool even;

    __device__ u32 at(int k, int j) const { return 2 * THREADS * k + (even ? 2 * thread + j : thread + THREADS * j); }

    // Calls f(k, j, i) for each of this thread's elements i.
    template <class Function> __device__ void each(Function f) const {
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (at(k, j) < cols) {
                    f(k, j, at(k, j));
                }
            }
        }
    }

    // Reads pair number k; zeros where there is no element.
    template <class S, class T> __device__ void load_pair(const S* from, int k, T (&to)[2]) const {
        to[0] = to[1] = T(0);
        if (even) {
            if (at(k, 0) < cols) {
                const Pair<S> pair = *reinterpret_cast<const Pair<S>*>(from + at(k, 0));
                to[0] = widen(pair.first);
                to[1] = widen(pair.second);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (at(k, j) < cols) {
                    to[j] = widen(from[at(k, j)]);
                }
            }
        }
    }

    template <class S, class T> __device__ void load(const S* from, T (&to)[PAIRS][2]) const {
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            load_pair(from, k, to[k]);
        }
    }

    // Writes f(k, j) for the elements of pair number k.
    template <class S, class Function> __device__ void store_pair(S* to, int k, Function f) const {
        if (even) {
            if (at(k, 0) < cols) {
                *reinterpret_cast<Pair<S>*>(to + at(k, 0)) = {narrow<S>(f(k, 0)), narrow<S>(f(k, 1))};
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (at(k, j) < cols) {
                    to[at(k, j)] = narrow<S>(f(k, j));
                }
            }
        }
    }

    // Writes f(k, j) for each element.
    template <class S, class Function> __device__ void store(S* to, Function f) const {
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            store_pair(to, k, f);
        }
    }
};

// Pairs of a row that a lane keeps in softmax and its kin; doubles take twice the room.
template <class S> constexpr int lane_pairs() { return sizeof(S) == 8 ? 2 : 4; }

// Merges the places of a warp's lanes, two of each (neighbours if they are `even`, else a warp apart): the halves of all 64 places
// are merged, and so on. Every lane gets the result.
template <class T, class Operation> __device__ inline T merge_lanes(T (&places)[2], bool even) {
    if (!even) {
        places[0] = Operation::merge(places[0], places[1]);
    }
    for (u32 half = WARP / 2; half > 0; half /= 2) {
        places[0] = Operation::merge(places[0], __shfl_down_sync(EVERY_LANE, places[0], half));
        if (even) {
            places[1] = Operation::merge(places[1], __shfl_down_sync(EVERY_LANE, places[1], half));
        }
    }
    if (even) {
        places[0] = Operation::merge(places[0], places[1]);
    }
    return __shfl_sync(EVERY_LANE, places[0], 0);
}

// Reduces what the lanes of a warp have, at most a block of the host's: element i goes to place i % 64, two of which a lane
// has, then they are merged. Every lane gets the result.
template <class T, class Operation, int PAIRS, class Element>
__device__ inline T reduce_lanes(const Share<PAIRS, WARP>& share, Element element) {
    T places[2] = {Operation::identity(), Operation::identity()};
    share.each([&](int k, int j, u32) { places[j] = Operation::merge(places[j], element(k, j)); });
    return merge_lanes<T, Operation>(places, share.even);
}

// As in cpu/src/softmax.rs: what a warp adds up at once, and how many sums these are dealt to, a warp of a block each.
constexpr i64 STRAND_BLOCK = 512;
constexpr u32 STRANDS = BLOCK_THREADS / WARP;

// The sum of a row by a block of BLOCK_THREADS: see Note [Order of a row's sum] of the host. Every thread gets the result. `parts` is
// shared and has a place for each warp; all threads must come here.
template <class T, class Element> __device__ inline T strand_sum(i64 cols, T* parts, Element element) {
    const u32 warp = threadIdx.x / WARP;
    T mine = T(0);
#pragma unroll 1
    for (i64 start = warp * STRAND_BLOCK; start < cols; start += STRANDS * STRAND_BLOCK) {
        const i64 first = start + threadIdx.x % WARP;
        const i64 left = cols - first;
        const int count = left < STRAND_BLOCK ? (int)left : (int)STRAND_BLOCK;
        // As `reduce_block` does it; few elements at once, since those that are computed take many registers.
        T places[2] = {T(0), T(0)};
#pragma unroll(8 / sizeof(T))
        for (int i = 0; i < count; i += 2 * WARP) {
            places[0] = places[0] + element(first + i);
            if (i + (int)WARP < count) {
                places[1] = places[1] + element(first + i + WARP);
            }
        }
        mine = mine + merge_lanes<T, Sum<T>>(places, false);
    }
    if (threadIdx.x % WARP == 0) {
        parts[warp] = mine;
    }
    __syncthreads();
    T total = parts[0];
    for (u32 at = 1; at < STRANDS && at * STRAND_BLOCK < cols; ++at) {
        total = total + parts[at];
    }
    __syncthreads();
    return total;
}

// The sum of a row by a whole block of up to 32 warps: a warp takes a block of 4096, whose sums are added from the first to the
// last. Every thread gets the result. `parts` is shared and has a place for each warp; all threads must come here.
template <class T, class Total, class Element> __device__ inline Total block_sum(i64 cols, T* parts, Element element) {
    const u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    Total total = Total(0);
    for (i64 start = 0; start < cols; start += BLOCK * warps) {
        const i64 mine = start + warp * BLOCK;
        if (mine < cols) {
            const T part = reduce_block<T, Sum<T>>(mine, mine + BLOCK < cols ? mine + BLOCK : cols, element);
            if (threadIdx.x % WARP == 0) {
                parts[warp] = part;
            }
        }
        __syncthreads();
        for (u32 at = 0; at < warps && start + at * BLOCK < cols; ++at) {
            total = total + (Total)parts[at];
        }
        __syncthreads();
    }
    return total;
}

// The largest element by a whole block, of what each thread has seen. Every thread gets it. `parts` is as for `block_sum`.
template <class T> __device__ inline T block_max(T mine, T* parts) {
    for (u32 half = WARP / 2; half > 0; half /= 2) {
        mine = later_max(mine, __shfl_down_sync(EVERY_LANE, mine, half));
    }
    if (threadIdx.x % WARP == 0) {
        parts[threadIdx.x / WARP] = mine;
    }
    __syncthreads();
    T most = parts[0];
    for (u32 warp = 1; warp < blockDim.x / WARP; ++warp) {
        most = later_max(most, parts[warp]);
    }
    __syncthreads();
    return most;
}

extern __shared__ __align__(16) double shared_memory[];

// A row for which a whole block works: kept in shared memory where it fits, else read again each time.
template <class S> struct BlockRow {
    using T = typename Computed<S>::type;
    const S* from;
    T* kept;

    // Reads it; `slot` is which of the rows that shared memory has room for it takes. All threads must come here.
    __device__ BlockRow(const S* row, i64 cols, bool staged, int slot) : from(row), kept(nullptr) {
        if (staged) {
            kept = reinterpret_cast<T*>(shared_memory) + slot * cols;
            if (is_even(row) && cols % 2 == 0) {
                for (i64 i = 2 * threadIdx.x; i < cols; i += 2 * blockDim.x) {
                    const Pair<S> pair = *reinterpret_cast<const Pair<S>*>(row + i);
                    kept[i] = widen(pair.first);
                    kept[i + 1] = widen(pair.second);
                }
            } else {
                for (i64 i = threadIdx.x; i < cols; i += blockDim.x) {
                    kept[i] = widen(row[i]);
                }
            }
            __syncthreads();
        }
    }

    __device__ T operator[](i64 i) const { return kept != nullptr ? kept[i] : widen(from[i]); }
};

// Calls f(i) for this thread's elements of a row for which a whole block works.
template <class Function> __device__ inline void each_of_block(i64 cols, Function f) {
    for (i64 i = threadIdx.x; i < cols; i += blockDim.x) {
        f(i);
    }
}

// The largest of a row. A whole block.
template <class T, class Row> __device__ inline T block_row_max(const Row& x, i64 cols, T* parts) {
    T mine = Limits<T>::lowest();
    each_of_block(cols, [&](i64 i) { mine = later_max(mine, x[i]); });
    return block_max(mine, parts);
}

// The largest of a row, and the sum of exp(x - max). `exps` is shared memory for the exponentials, or null. A whole block.
template <class T, class Row> __device__ inline void block_exp_sum(const Row& x, i64 cols, T* exps, T* parts, T& max, T& sum) {
    max = block_row_max(x, cols, parts);
    const T most = max;
    if (exps == nullptr) {
        sum = strand_sum<T>(cols, parts, [&](i64 i) { return arith_exp(x[i] - most); });
        return;
    }
    each_of_block(cols, [&](i64 i) { exps[i] = arith_exp(x[i] - most); });
    __syncthreads();
    sum = strand_sum<T>(cols, parts, [&](i64 i) { return exps[i]; });
}
