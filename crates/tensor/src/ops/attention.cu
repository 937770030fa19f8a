// Scaled dot-product attention, forward and backward, without the scores ever being in global memory.
//
// A block has a tile of 48 rows of its own: queries, or keys where it computes the gradient of keys or values. The rows of the
// other side pass by in tiles of 64: of each, the scores (and in the backward pass the gradients of the weights) are computed
// in registers, become weights in shared memory, and those times rows of the other side are added to the result in registers.
// Operands come to shared memory by chunks: 16 steps of the width, or as many rows as have 1024 columns.
//
// Everything is computed in the order of the host, Note [Order of attention] in `cpu/src/attention.rs`: the bits are the same. A tile
// of 48 is the host's panel, so that also a NaN or an infinity that a causal query doesn't see reaches the same results.

#include "device.cuh"

constexpr int OWN = 48, OTHER = 64;
constexpr int STEP = 16;
constexpr int THREADS = 192;
// The distance of rows in shared memory, with which the eight lanes whose packs are written together use all banks.
constexpr int OWN_PITCH = OWN + 4, OTHER_PITCH = OTHER + 4;
// Columns of a result that 16 lanes have, 4 each.
constexpr int COLUMNS = 64;

// Rows of an operand: strides in elements over batch, head and row. The elements of a row lie side by side.
struct Rows {
    const void* data;
    i64 batch, head, row;
    i64 wide; // whether packs of a row lie evenly
};

// The argument of all kernels. The Rust file `attention_cuda.rs` writes these numbers in this order.
struct Attention {
    Rows query, key, value;
    Rows grad, result; // for the backward pass
    const void* mask;  // over [batch, heads, queries, keys], or null
    i64 mask_strides[4];
    i64 mask_keeps; // whether its elements are bytes, 0 where a key is hidden; else they are added to scores
    i64 mask_wide;  // whether it has whole packs of 4 neighbours along the keys (2 with doubles), which can be loaded at once
    void* out;      // contiguous: the result, or the gradient that the kernel computes
    void* log_sums; // contiguous [batch, heads, queries]
    void* dots;     // as log_sums: sums of gradient times result
    i64 batch, heads, kv_heads, queries, keys, width, value_width;
    i64 causal;
    double scale;
    // Where tiles of the block's own rows are in shared memory, in rows of OWN_PITCH, and whether all of their columns are
    // there, not just a chunk: of queries or keys, then of what comes with them.
    i64 second;
    i64 stays[2];
};

// Numbers that lie side by side and are moved at once.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T x[N];
};

// A tile of rows in global memory, and how many rows and columns of it exist.
template <class S> struct Source {
    const S* at;
    i64 row;
    int rows, cols;
    bool wide;
};

template <class S> __device__ inline const S* head_of(const Rows& rows, i64 batch, i64 head) {
    return (const S*)rows.data + batch * rows.batch + head * rows.head;
}

// The number itself, which the compiler doesn't know: what follows from it is not computed ahead of a loop and kept in registers.
__device__ inline int anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// How many numbers of a row are loaded at once, and how many lanes load a sector of it.
template <class S> constexpr int PACK = sizeof(S) == 8 ? 2 : 4;
template <class S> constexpr int SECTOR_LANES = 32 / (PACK<S> * (int)sizeof(S));
// How many numbers fill 16 bytes of shared memory.
template <class T> constexpr int WIDE = 16 / (int)sizeof(T);

// Which columns of a step's row are exchanged in shared memory: eights of the upper eight steps, so that the lanes that
// load a sector of 16-bit numbers write to different banks.
__device__ constexpr int swapped(int step) { return step & 8; }

// Moves STEP columns of a tile of ROWS rows to shared memory, transposed: `to[step][row]`. What can be loaded by packs waits in
// registers while the chunk before is computed with.
template <class S, int ROWS, int PITCH> struct Turned {
    using T = typename Computed<S>::type;
    static constexpr int LANES = SECTOR_LANES<S>, N = PACK<S>;
    static constexpr int PACKS = ROWS * STEP / N, EACH = (PACKS + THREADS - 1) / THREADS;
    Pack<S, N> held[EACH];

    static __device__ int row_of(int id) { return id / LANES % ROWS; }
    static __device__ int step_of(int id) { return id / LANES / ROWS * (LANES * N) + id % LANES * N; }

    __device__ void load(const Source<S>& from, int first) {
        if (!from.wide) {
            return;
        }
        const int thread = anew((int)threadIdx.x);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int id = thread + i * THREADS;
            const int row = row_of(id), col = first + step_of(id);
            const S* at = from.at + row * from.row + col;
            const bool exists = row < from.rows && (PACKS % THREADS == 0 || id < PACKS);
            if (exists && from.cols - col >= N) {
                held[i] = *(const Pack<S, N>*)at;
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    held[i].x[j] = exists && j < from.cols - col ? at[j] : S{};
                }
            }
        }
    }

    __device__ void store(const Source<S>& from, int first, T* to) const {
        const int thread = anew((int)threadIdx.x);
        if (from.wide) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int id = thread + i * THREADS;
                if (PACKS % THREADS == 0 || id < PACKS) {
                    const int row = row_of(id), step = step_of(id);
#pragma unroll
                    for (int j = 0; j < N; ++j) {
                        to[(step + j) * PITCH + (row ^ swapped(step + j))] = widen(held[i].x[j]);
                    }
                }
            }
            return;
        }
        constexpr int SIDE = sizeof(S) == 8 ? 4 : 8;
#pragma unroll 1
        for (int id = thread; id < ROWS * STEP; id += THREADS) {
            const int row = id / SIDE % ROWS, step = id / SIDE / ROWS * SIDE + id % SIDE;
            const bool exists = row < from.rows && first + step < from.cols;
            to[step * PITCH + (row ^ swapped(step))] = exists ? widen(from.at[row * from.row + first + step]) : T(0);
        }
    }
};

// Moves COLS columns of STEP * OTHER / COLS rows to shared memory as they lie: `to[row][column]`.
template <class S, int COLS> struct Straight {
    using T = typename Computed<S>::type;
    static constexpr int ROWS = STEP * OTHER / COLS, N = PACK<S>;
    static constexpr int PACKS = ROWS * COLS / N, EACH = (PACKS + THREADS - 1) / THREADS;
    Pack<S, N> held[EACH];

    __device__ void load(const Source<S>& from, int first) {
        if (!from.wide) {
            return;
        }
        const int thread = anew((int)threadIdx.x);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int id = thread + i * THREADS;
            const int row = first + id / (COLS / N), col = id % (COLS / N) * N;
            const S* at = from.at + row * from.row + col;
            const bool exists = row < from.rows && (PACKS % THREADS == 0 || id < PACKS);
            if (exists && from.cols - col >= N) {
                held[i] = *(const Pack<S, N>*)at;
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    held[i].x[j] = exists && j < from.cols - col ? at[j] : S{};
                }
            }
        }
    }

    __device__ void store(const Source<S>& from, int first, T* to) const {
        const int thread = anew((int)threadIdx.x);
        if (from.wide) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int id = thread + i * THREADS;
                if (PACKS % THREADS == 0 || id < PACKS) {
                    Pack<T, N> wide;
#pragma unroll
                    for (int j = 0; j < N; ++j) {
                        wide.x[j] = widen(held[i].x[j]);
                    }
                    *(Pack<T, N>*)&to[id * N] = wide;
                }
            }
            return;
        }
#pragma unroll 1
        for (int id = thread; id < ROWS * COLS; id += THREADS) {
            const int row = first + id / COLS, col = id % COLS;
            to[id] = row < from.rows && col < from.cols ? widen(from.at[row * from.row + col]) : T(0);
        }
    }
};

// Which four rows of the own tile and four of the other one a thread has: a warp has 16 by 32, a quarter of it lies in all banks.
template <class T> struct Share {
    int own, other; // the first ones

    static __device__ Share of_thread() {
        const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        return {warp % 3 * 16 + lane % 4 * WIDE<T>, warp / 3 * 32 + lane / 4 * WIDE<T>};
    }
    // Distances of packs, and of the rows in them.
    static __device__ constexpr int own_pack(int pack) { return pack * 4 * WIDE<T>; }
    static __device__ constexpr int other_pack(int pack) { return pack * 8 * WIDE<T>; }
    __device__ int own_row(int j) const { return own + own_pack(j / WIDE<T>) + j % WIDE<T>; }
    __device__ int other_row(int i) const { return other + other_pack(i / WIDE<T>) + i % WIDE<T>; }
};

// Adds one step of the width: `other` and `own` are its rows in shared memory.
template <class T>
__device__ inline void add_step(T (&sums)[4][4], const Share<T>& share, const T* other, const T* own, int step) {
    T left[4], right[4];
#pragma unroll
    for (int pack = 0; pack < 4 / WIDE<T>; ++pack) {
        const int a = (share.other + share.other_pack(pack)) ^ swapped(step);
        const int b = (share.own + share.own_pack(pack)) ^ swapped(step);
        *(Pack<T, WIDE<T>>*)&left[pack * WIDE<T>] = *(const Pack<T, WIDE<T>>*)&other[a];
        *(Pack<T, WIDE<T>>*)&right[pack * WIDE<T>] = *(const Pack<T, WIDE<T>>*)&own[b];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
        }
    }
}

// The block's own rows: in shared memory as a whole, or chunk by chunk.
template <class S> struct Own {
    using T = typename Computed<S>::type;
    Source<S> from;
    T* tile;
    bool stays;
    Turned<S, OWN, OWN_PITCH> chunk;

    // Brings all columns, if they stay. A barrier must come before they are read.
    __device__ void bring() {
        if (!stays) {
            return;
        }
        for (int first = 0; first < from.cols; first += STEP) {
            chunk.load(from, first);
            chunk.store(from, first, tile + first * OWN_PITCH);
        }
    }
    __device__ void load(int first) {
        if (!stays) {
            chunk.load(from, first);
        }
    }
    __device__ void store(int first) {
        if (!stays) {
            chunk.store(from, first, tile);
        }
    }
    __device__ const T* steps(int first) const { return stays ? tile + first * OWN_PITCH : tile; }
};

// Products of rows of two tiles, along their width. The first chunk has been loaded to registers; `then` loads what comes next.
template <class S, class T, class Then>
__device__ inline void product(
    T (&sums)[4][4], const Share<T>& share, const Source<S>& other, Turned<S, OTHER, OTHER_PITCH>& held, Own<S>& own, T* chunk,
    Then then
) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sums[i][j] = T(0);
        }
    }
    if (other.cols == 0) {
        __syncthreads();
        then();
    }
#pragma unroll 1
    for (int first = 0; first < other.cols; first += STEP) {
        held.store(other, first, chunk);
        own.store(first);
        __syncthreads();
        if (first + STEP < other.cols) {
            held.load(other, first + STEP);
            own.load(first + STEP);
        } else {
            then();
        }
        const T* steps = own.steps(first);
        if (other.cols - first >= STEP) {
#pragma unroll 4
            for (int step = 0; step < STEP; ++step) {
                add_step(sums, share, chunk + step * OTHER_PITCH, steps + step * OWN_PITCH, step);
            }
        } else {
#pragma unroll 1
            for (int step = 0; step < other.cols - first; ++step) {
                add_step(sums, share, chunk + step * OTHER_PITCH, steps + step * OWN_PITCH, step);
            }
        }
        __syncthreads();
    }
}

// A thread's part of the result: four of the block's own rows by four columns of each 64.
template <class T, int BLOCKS> using Result = T[4][BLOCKS][4];

template <class T, int BLOCKS>
__device__ inline void add_row(Result<T, BLOCKS>& sums, const Share<T>& share, const T* weights, const T* columns) {
    T left[4];
#pragma unroll
    for (int pack = 0; pack < 4 / WIDE<T>; ++pack) {
        *(Pack<T, WIDE<T>>*)&left[pack * WIDE<T>] = *(const Pack<T, WIDE<T>>*)&weights[share.own + share.own_pack(pack)];
    }
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        T right[4];
#pragma unroll
        for (int pack = 0; pack < 4 / WIDE<T>; ++pack) {
            const int at = block * COLUMNS + share.other + share.other_pack(pack);
            *(Pack<T, WIDE<T>>*)&right[pack * WIDE<T>] = *(const Pack<T, WIDE<T>>*)&columns[at];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                sums[j][block][i] = multiply_add(left[j], right[i], sums[j][block][i]);
            }
        }
    }
}

// Adds weights times the rows of a tile. The first chunk has been loaded to registers; `then` loads what comes next. Weights
// may have been written just before.
template <class S, class T, int BLOCKS, class Then>
__device__ inline void add_weighted(
    Result<T, BLOCKS>& sums, const Share<T>& share, const Source<S>& rows, Straight<S, BLOCKS * COLUMNS>& held, const T* weights,
    T* chunk, Then then
) {
    constexpr int ROWS = Straight<S, BLOCKS * COLUMNS>::ROWS;
#pragma unroll 1
    for (int first = 0; first < rows.rows; first += ROWS) {
        held.store(rows, first, chunk);
        __syncthreads();
        if (first + ROWS < rows.rows) {
            held.load(rows, first + ROWS);
        } else {
            then();
        }
        const T* weights_here = weights + first * OWN_PITCH;
        if (rows.rows - first >= ROWS) {
#pragma unroll 4
            for (int row = 0; row < ROWS; ++row) {
                add_row<T, BLOCKS>(sums, share, weights_here + row * OWN_PITCH, chunk + row * BLOCKS * COLUMNS);
            }
        } else {
#pragma unroll 1
            for (int row = 0; row < rows.rows - first; ++row) {
                add_row<T, BLOCKS>(sums, share, weights_here + row * OWN_PITCH, chunk + row * BLOCKS * COLUMNS);
            }
        }
        __syncthreads();
    }
}

// What the mask adds to the scores of neighbouring keys, from place `at` of it on; they lie evenly.
template <class T> __device__ inline Pack<T, WIDE<T>> mask_pack(const Attention& p, i64 at) {
    if (!p.mask_keeps) {
        return *(const Pack<T, WIDE<T>>*)((const T*)p.mask + at);
    }
    const auto keeps = *(const Pack<unsigned char, WIDE<T>>*)((const unsigned char*)p.mask + at);
    Pack<T, WIDE<T>> added;
#pragma unroll
    for (int i = 0; i < WIDE<T>; ++i) {
        added.x[i] = keeps.x[i] ? T(0) : Limits<T>::lowest();
    }
    return added;
}

// As `mask_pack`, of one key.
template <class T> __device__ inline T mask_number(const Attention& p, i64 at) {
    return !p.mask_keeps ? ((const T*)p.mask)[at] : ((const unsigned char*)p.mask)[at] ? T(0) : Limits<T>::lowest();
}

// Writes scores to shared memory, `[other][own]`, of products of queries and keys from `query` and `key` on; those that don't
// exist or are hidden are negative infinity. `OWN_KEYS` says whether the block's own rows are the keys.
template <bool OWN_KEYS, class T>
__device__ inline void put_scores(
    const T (&products)[4][4], const Attention& p, const Share<T>& given, i64 batch, i64 head, i64 query, i64 key, T* scores
) {
    constexpr int N = WIDE<T>;
    const Share<T> share = {anew(given.own), anew(given.other)};
    const T scale = (T)p.scale;
    const i64 mask = batch * p.mask_strides[0] + head * p.mask_strides[1] + query * p.mask_strides[2] + key * p.mask_strides[3];
    const bool masked = p.mask != nullptr;
    // Of the tile.
    const int queries = (int)(p.queries - query < OTHER ? p.queries - query : OTHER);
    const int keys = (int)(p.keys - key < OTHER ? p.keys - key : OTHER);
    // Hidden are keys that are further down than the query by more than this.
    const int ahead = !p.causal ? OTHER : query - key > OTHER ? OTHER : (int)(query - key);
    T numbers[4][4];
#pragma unroll
    for (int pack = 0; pack < 4 / N; ++pack) {
        const int k = OWN_KEYS ? share.own + share.own_pack(pack) : share.other + share.other_pack(pack);
#pragma unroll
        for (int row = 0; row < 4; ++row) {
            const int q = OWN_KEYS ? share.other_row(row) : share.own_row(row);
            Pack<T, N> added = {};
            if (masked && p.mask_wide && q < queries && k < keys) {
                added = mask_pack<T>(p, mask + q * p.mask_strides[2] + k);
            }
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const int at = pack * N + i;
                const T product = OWN_KEYS ? products[row][at] : products[at][row];
                T& score = OWN_KEYS ? numbers[row][at] : numbers[at][row];
                score = q < queries && k + i < keys && k + i - q <= ahead ? product * scale + added.x[i] : Limits<T>::lowest();
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int pack = 0; pack < 4 / N; ++pack) {
            Pack<T, N> out;
#pragma unroll
            for (int j = 0; j < N; ++j) {
                out.x[j] = numbers[i][pack * N + j];
            }
            *(Pack<T, N>*)&scores[share.other_row(i) * OWN_PITCH + share.own + share.own_pack(pack)] = out;
        }
    }
    if (masked && !p.mask_wide) {
#pragma unroll 1
        for (int at = 0; at < 16; ++at) {
            const int own = share.own_row(at % 4), other = share.other_row(at / 4);
            const int q = OWN_KEYS ? other : own, k = OWN_KEYS ? own : other;
            if (q < queries && k < keys) {
                T& score = scores[other * OWN_PITCH + own];
                score = score + mask_number<T>(p, mask + q * p.mask_strides[2] + k * p.mask_strides[3]);
            }
        }
    }
}

// Stores neighbours at once. In so many words, since the compiler makes single stores of a structure's, where those are near.
__device__ inline void put_pack(float* to, const float* from) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3])
                 : "memory");
}
__device__ inline void put_pack(double* to, const double* from) {
    asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(to), "d"(from[0]), "d"(from[1]) : "memory");
}
template <class S> __device__ inline void put_pack(S* to, const S* from) {
    const u64 low = from[0].bits | (u32)from[1].bits << 16, high = from[2].bits | (u32)from[3].bits << 16;
    *(u64*)to = low | high << 32;
}

// Writes f(row, number) for the result's columns from `first` on to rows of `cols` columns, of which `rows` exist.
template <class S, int BLOCKS, class T, class Function>
__device__ inline void put_result(
    const Result<T, BLOCKS>& sums, const Share<T>& share, S* out, i64 rows, i64 cols, i64 first, Function f
) {
    const bool wide = cols % WIDE<T> == 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int row = share.own_row(j);
#pragma unroll
        for (int at = 0; at < 4 / WIDE<T> * BLOCKS; ++at) {
            const int block = at % BLOCKS, pack = at / BLOCKS;
            const i64 col = first + block * COLUMNS + share.other + share.other_pack(pack);
            if (row >= rows || col >= cols) {
                continue;
            }
            S* to = out + row * cols + col;
            S from[WIDE<T>];
#pragma unroll
            for (int i = 0; i < WIDE<T>; ++i) {
                from[i] = narrow<S>(f(row, sums[j][block][pack * WIDE<T> + i]));
                if (!wide && col + i < cols) {
                    to[i] = from[i];
                }
            }
            if (wide) {
                put_pack(to, from);
            }
        }
    }
}

// What a block computes: a tile of a head's own rows, and columns of the result. Blocks of a head come together; where tiles
// further down see more, they come first.
struct Place {
    i64 batch, head, first, column;
};
__device__ inline Place place_of_block(i64 heads, i64 batch, i64 rows, int columns, bool last_first) {
    const i64 tiles = (rows + OWN - 1) / OWN;
    const i64 tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    const i64 head = rest % (heads * batch);
    return {head / heads, head % heads, (last_first ? tiles - 1 - tile : tile) * OWN, rest / (heads * batch) * columns};
}

template <class S> __device__ inline Source<S> tile_of(const Rows& rows, const S* head, i64 first, i64 end, int most, i64 cols) {
    const i64 left = end - first;
    return {head + first * rows.row, rows.row, (int)(left < most ? left : most), (int)cols, rows.wide != 0};
}

extern __shared__ __align__(16) double shared_memory[];

// The result of a tile of queries.
template <class S, int BLOCKS> __device__ void attend(const Attention& p) {
    using T = typename Computed<S>::type;
    constexpr int COLS = BLOCKS * COLUMNS;
    __shared__ alignas(16) T weights[OTHER * OWN_PITCH];
    __shared__ alignas(16) T chunk[STEP * OTHER_PITCH];
    __shared__ T factors[OWN];
    const Place place = place_of_block(p.heads, p.batch, p.queries, COLS, p.causal);
    const i64 kv_head = place.head / (p.heads / p.kv_heads);
    const Share<T> share = Share<T>::of_thread();
    const S* queries = head_of<S>(p.query, place.batch, place.head);
    const S* keys = head_of<S>(p.key, place.batch, kv_head);
    const S* values = head_of<S>(p.value, place.batch, kv_head) + place.column;
    Own<S> own = {tile_of(p.query, queries, place.first, p.queries, OWN, p.width), (T*)shared_memory, p.stays[0] != 0};
    const i64 end_of_queries = place.first + own.from.rows;
    const i64 end = p.causal && end_of_queries < p.keys ? end_of_queries : p.keys;
    Turned<S, OTHER, OTHER_PITCH> keys_held;
    Straight<S, COLS> values_held;
    Source<S> key_tile = tile_of(p.key, keys, 0, end, OTHER, p.width);
    own.bring();
    own.load(0);
    keys_held.load(key_tile, 0);
    Result<T, BLOCKS> sums = {};
    // Of the query that this lane and three others work for.
    const int lane = threadIdx.x % WARP, query = threadIdx.x / WARP * 8 + lane % 8, part = lane / 8;
    T max = Limits<T>::lowest(), sum = T(0);
#pragma unroll 1
    for (i64 first = 0; first < end; first += OTHER) {
        const Source<S> value_tile = tile_of(p.value, values, first, end, OTHER, p.value_width - place.column);
        T products[4][4];
        product(products, share, key_tile, keys_held, own, chunk, [&] { values_held.load(value_tile, 0); });
        put_scores<false>(products, p, share, place.batch, place.head, place.first, first, weights);
        __syncthreads();
        {
            // Keys 8 i + 2 part + j, by which lanes use different banks; of class 8 (i % 2) + 2 part + j.
            T* from = weights + 2 * part * OWN_PITCH + query;
            T score[8][2];
            T top = max;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    score[i][j] = from[(8 * i + j) * OWN_PITCH];
                    top = score[i][j] > top ? score[i][j] : top;
                }
            }
#pragma unroll
            for (int far = 8; far < WARP; far *= 2) {
                const T theirs = __shfl_xor_sync(EVERY_LANE, top, far);
                top = theirs > top ? theirs : top;
            }
            const T subtracted = top == Limits<T>::lowest() ? T(0) : top;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    score[i][j] = arith_exp(score[i][j] - subtracted);
                    from[(8 * i + j) * OWN_PITCH] = score[i][j];
                }
            }
            T total[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                total[j] = (((score[0][j] + score[2][j]) + score[4][j]) + score[6][j]) +
                           (((score[1][j] + score[3][j]) + score[5][j]) + score[7][j]);
                total[j] = total[j] + __shfl_xor_sync(EVERY_LANE, total[j], 16);
                total[j] = total[j] + __shfl_xor_sync(EVERY_LANE, total[j], 8);
            }
            const T correction = arith_exp(max - subtracted);
            sum = multiply_add(sum, correction, total[0] + total[1]);
            max = top;
            if (part == 0) {
                factors[query] = correction;
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const T factor = factors[share.own_row(j)];
#pragma unroll
            for (int i = 0; i < 4 * BLOCKS; ++i) {
                sums[j][i / 4][i % 4] = sums[j][i / 4][i % 4] * factor;
            }
        }
        add_weighted<S, T, BLOCKS>(sums, share, value_tile, values_held, weights, chunk, [&] {
            if (first + OTHER < end) {
                key_tile = tile_of(p.key, keys, first + OTHER, end, OTHER, p.width);
                keys_held.load(key_tile, 0);
                own.load(0);
            }
        });
    }
    const bool blind = sum == T(0);
    const i64 row = (place.batch * p.heads + place.head) * p.queries + place.first;
    if (part == 0) {
        factors[query] = blind ? T(1) : sum;
        if (query < own.from.rows && place.column == 0) {
            ((T*)p.log_sums)[row + query] = blind ? -Limits<T>::lowest() : max + arith_log(sum);
        }
    }
    __syncthreads();
    put_result<S, BLOCKS>(sums, share, (S*)p.out + row * p.value_width, own.from.rows, p.value_width, place.column,
        [&](int row, T x) { return x / factors[row]; });
}

// For each row the sum of gradient times result, by a warp.
template <class S> __device__ void dots(const Attention& p) {
    using T = typename Computed<S>::type;
    const i64 row = warp_of_launch(), rows = p.batch * p.heads * p.queries;
    if (row >= rows) {
        return;
    }
    const i64 head = row / p.queries, query = row % p.queries;
    const S* grad = head_of<S>(p.grad, head / p.heads, head % p.heads) + query * p.grad.row;
    const S* result = head_of<S>(p.result, head / p.heads, head % p.heads) + query * p.result.row;
    const T dot = row_sum<T>(p.value_width, [&](i64 i) { return widen(grad[i]) * widen(result[i]); });
    if (threadIdx.x % WARP == 0) {
        ((T*)p.dots)[row] = dot;
    }
}

// What a kernel of the backward pass computes the gradient of.
enum class Of { QUERY, KEY, VALUE };

// A tile of queries, or of keys or values.
template <class S, Of OF, int BLOCKS> __device__ void attend_grad(const Attention& p) {
    using T = typename Computed<S>::type;
    constexpr int COLS = BLOCKS * COLUMNS;
    constexpr bool OWN_KEYS = OF != Of::QUERY;
    __shared__ alignas(16) T weights[OTHER * OWN_PITCH];
    __shared__ alignas(16) T chunk[STEP * OTHER_PITCH];
    // Of the queries: logarithms of sums, and sums of gradient times result.
    __shared__ T log_sums[OTHER], dots[OTHER];
    const i64 heads = OWN_KEYS ? p.kv_heads : p.heads, group = p.heads / p.kv_heads;
    const i64 own_rows = OWN_KEYS ? p.keys : p.queries;
    const Place place = place_of_block(heads, p.batch, own_rows, COLS, !OWN_KEYS && p.causal);
    const Share<T> share = Share<T>::of_thread();
    const i64 kv_head = OWN_KEYS ? place.head : place.head / group;
    // Own rows and those that pass by, for scores; then for the gradients of weights; then those that are added up.
    const Rows &own_of_scores = OWN_KEYS ? p.key : p.query, &other_of_scores = OWN_KEYS ? p.query : p.key;
    const Rows &own_of_slopes = OWN_KEYS ? p.value : p.grad, &other_of_slopes = OWN_KEYS ? p.grad : p.value;
    const Rows& added = OF == Of::VALUE ? p.grad : other_of_scores;
    const i64 added_cols = OF == Of::VALUE ? p.value_width : p.width;
    Own<S> own = {
        tile_of(own_of_scores, head_of<S>(own_of_scores, place.batch, place.head), place.first, own_rows, OWN, p.width),
        (T*)shared_memory, p.stays[0] != 0
    };
    Own<S> own_second = {
        tile_of(own_of_slopes, head_of<S>(own_of_slopes, place.batch, place.head), place.first, own_rows, OWN, p.value_width),
        (T*)shared_memory + p.second * OWN_PITCH, p.stays[1] != 0
    };
    own.bring();
    if (OF != Of::VALUE) {
        own_second.bring();
    }
    const i64 end_of_own = place.first + own.from.rows;
    // Queries before a tile of keys don't see it; keys behind a tile of queries are not seen by it.
    const i64 start = OWN_KEYS && p.causal ? place.first : 0;
    const i64 end = OWN_KEYS ? p.queries : p.causal && end_of_own < p.keys ? end_of_own : p.keys;
    const i64 first_head = OWN_KEYS ? place.head * group : kv_head, heads_end = OWN_KEYS ? first_head + group : kv_head + 1;
    auto tile = [&](const Rows& rows, i64 head, i64 first, i64 cols) {
        return tile_of(rows, head_of<S>(rows, place.batch, head), first, end, OTHER, cols);
    };
    // Of `count` queries of a head from number `first` on.
    auto bring_state = [&](i64 head, i64 first, i64 count) {
        const i64 row = (place.batch * p.heads + head) * p.queries + first;
        const int query = threadIdx.x % OTHER;
        if (threadIdx.x < OTHER) {
            log_sums[query] = query < count ? ((const T*)p.log_sums)[row + query] : -Limits<T>::lowest();
        } else if (OF != Of::VALUE && threadIdx.x < 2 * OTHER) {
            dots[query] = query < count ? ((const T*)p.dots)[row + query] : T(0);
        }
    };
    if (!OWN_KEYS) {
        bring_state(place.head, place.first, own.from.rows);
    }
    Turned<S, OTHER, OTHER_PITCH> held;
    Straight<S, COLS> added_held;
    Result<T, BLOCKS> sums = {};
    i64 head = first_head, first = start;
    Source<S> scored = tile(other_of_scores, head, first, p.width);
    if (start < end) {
        own.load(0);
        held.load(scored, 0);
    } else {
        head = heads_end;
    }
#pragma unroll 1
    while (head < heads_end) {
        if (OWN_KEYS) {
            bring_state(head, first, scored.rows);
        }
        T numbers[4][4];
        Source<S> sloped, added_tile;
        auto begin_to_add = [&] {
            added_tile = tile(added, head, first, added_cols);
            added_tile.at += place.column;
            added_tile.cols -= (int)place.column;
            added_held.load(added_tile, 0);
        };
        product(numbers, share, scored, held, own, chunk, [&] {
            if (OF == Of::VALUE) {
                begin_to_add();
            } else {
                sloped = tile(other_of_slopes, head, first, p.value_width);
                own_second.load(0);
                held.load(sloped, 0);
            }
        });
        put_scores<OWN_KEYS>(
            numbers, p, share, place.batch, OWN_KEYS ? head : place.head, OWN_KEYS ? first : place.first,
            OWN_KEYS ? place.first : first, weights
        );
        if (OF != Of::VALUE) {
            product(numbers, share, sloped, held, own_second, chunk, begin_to_add);
        }
        // Scores become weights, or gradients of scores; each thread goes on with what it wrote.
        auto weigh = [&](int i) {
#pragma unroll
            for (int pack = 0; pack < 4 / WIDE<T>; ++pack) {
                auto& place = *(Pack<T, WIDE<T>>*)&weights[share.other_row(i) * OWN_PITCH + share.own + share.own_pack(pack)];
                Pack<T, WIDE<T>> row = place;
#pragma unroll
                for (int j = 0; j < WIDE<T>; ++j) {
                    const int own = pack * WIDE<T> + j, query = OWN_KEYS ? share.other_row(i) : share.own_row(own);
                    row.x[j] = arith_exp(row.x[j] - log_sums[query]);
                    if (OF != Of::VALUE) {
                        row.x[j] = row.x[j] * (numbers[i][own] - dots[query]);
                    }
                }
                place = row;
            }
        };
        if (OF == Of::VALUE) {
#pragma unroll 1
            for (int i = 0; i < 4; ++i) {
                weigh(i);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weigh(i);
            }
        }
        first += OTHER;
        if (first >= end) {
            first = start;
            ++head;
        }
        add_weighted<S, T, BLOCKS>(sums, share, added_tile, added_held, weights, chunk, [&] {
            if (head < heads_end) {
                scored = tile(other_of_scores, head, first, p.width);
                own.load(0);
                held.load(scored, 0);
            }
        });
    }
    const i64 row = (place.batch * heads + place.head) * own_rows + place.first;
    const T scale = OF == Of::VALUE ? T(1) : (T)p.scale;
    // Keys behind the last query are seen by none: nothing was added for them on the host.
    const i64 seen = OWN_KEYS && p.causal ? p.queries - place.first : OWN;
    put_result<S, BLOCKS>(sums, share, (S*)p.out + row * added_cols, own.from.rows, added_cols, place.column, [&](int row, T x) {
        const T sum = row < seen ? x : T(0);
        return OF == Of::VALUE ? sum : sum * scale;
    });
}

#define FORM(NAME, COLS, TYPE, RESIDENT)                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) NAME##_##COLS##_##TYPE(const Attention p)

// So many blocks fit a multiprocessor, of the forward pass and of the backward pass.
#define FORMS(S, TYPE, BLOCKS, COLS, RESIDENT, RESIDENT_BACK)                                                          \
    FORM(attention, COLS, TYPE, RESIDENT) { attend<S, BLOCKS>(p); }                                                    \
    FORM(attention_grad_of_query, COLS, TYPE, RESIDENT_BACK) { attend_grad<S, Of::QUERY, BLOCKS>(p); }                 \
    FORM(attention_grad_of_key, COLS, TYPE, RESIDENT_BACK) { attend_grad<S, Of::KEY, BLOCKS>(p); }                     \
    FORM(attention_grad_of_value, COLS, TYPE, RESIDENT_BACK) { attend_grad<S, Of::VALUE, BLOCKS>(p); }

#define DOTS(S, TYPE)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) attention_dots_##TYPE(const Attention p) { dots<S>(p); }

#define SINGLES(S, TYPE)                                                                                               \
    FORMS(S, TYPE, 1, 64, 3, 2)                                                                                        \
    FORMS(S, TYPE, 2, 128, 2, 2)                                                                                       \
    DOTS(S, TYPE)

SINGLES(float, f32)
SINGLES(bf16, bf16)
SINGLES(f16, f16)
FORMS(double, f64, 1, 64, 1, 1)
FORMS(double, f64, 2, 128, 1, 1)
DOTS(double, f64)
