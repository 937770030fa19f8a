// Matrix products on the CUDA cores: tiles in shared memory, of any strides, sizes and alignment; and vectors times matrices.
//
// Every number of C is one sum over k in the order of the host (`cpu/src/gemm.rs`): ascending, cut into parts of `depth`, each
// step a fused multiply-add; for a vector and rows along k a sum of 128 bytes of sums. Parts that several blocks compute are
// added in the same order. So the bits are those of a host with fused multiply-add. 16-bit floats are widened as they come and
// rounded once; their tiles are for devices whose tensor cores `matmul_mma.cu` can't use.

#include "matmul.cuh"

template <class T> __device__ inline T zero() { return T(0); }
template <> __device__ inline f16 zero() { return {0}; }
template <> __device__ inline bf16 zero() { return {0}; }

// Adds the parts of the sums, the first one first. Sums of nothing have no parts.
template <class T> __device__ void add_parts(const Product& p) {
    const i64 count = p.batch * p.m * p.n, parts = p.parts_of_k();
    const i64 at = thread_of_launch();
    if (at >= count) {
        return;
    }
    using Sum = typename Computed<T>::type;
    const Sum* from = (const Sum*)p.parts + at;
    Sum sum = parts > 0 ? from[0] : Sum(0);
    for (i64 part = 1; part < parts; ++part) {
        sum = plus(sum, from[part * count]);
    }
    const i64 col = at % p.n, row = at / p.n % p.m;
    Sum x[1] = {biased(p, sum, bias_of<T>(p, col))};
    put<T, 1>(p, x, at / p.n / p.m, row, col);
}

// The step of k that comes at place `i` when numbers are loaded along rows: 0, 4, 1, 5, and so on, so that the lanes that
// store together use all banks also where rows are short.
__device__ constexpr int step_at(int i) { return i / 8 * 8 + i % 2 * 4 + i / 2 % 4; }

// Moves tiles of `ROWS` rows of A (or columns of B) by `STEP` steps of k to shared memory, transposed.
//
// What can be loaded 16 bytes at once waits in registers while the step before is computed; the rest goes one by one.
template <class T, int ROWS, int STEP, int THREADS> struct Mover {
    using Sum = typename Computed<T>::type;
    // Numbers that are loaded at once, and that fill 16 bytes of shared memory.
    static constexpr int WIDE = 16 / sizeof(Sum);
    static constexpr int PITCH = ROWS + WIDE;
    static constexpr int EACH = ROWS * STEP / THREADS / WIDE;
    static_assert(EACH > 0, "every thread loads whole packs");

    // The row and the step of k of number, or pack, `id`. Both are sums of what the bits of `id` give, so those of a thread's
    // pack `i` are those of its first one and a constant.
    static __device__ constexpr int row_of(int id, bool along_k, int size) {
        return along_k ? id / (8 / size) % ROWS : id % (ROWS / size) * size;
    }
    static __device__ constexpr int step_of(int id, bool along_k, int size) {
        // Along k, eight steps of a row are 32 bytes or more, and the rows' numbers go to different banks.
        return along_k ? id / (8 / size) / ROWS * 8 + id % (8 / size) * size : step_at(id / (ROWS / size));
    }

    const T* at;       // of this thread's first pack
    i64 across, along; // strides over rows and over k
    int row, step;     // of the first pack
    int rows;          // that exist
    bool along_k, wide;
    Pack<T, WIDE> held[EACH];

    __device__ Mover(const T* from, i64 across, i64 along, i64 rows, bool along_k, bool wide)
        : at(from), across(across), along(along), row(row_of(threadIdx.x, along_k, WIDE)),
          step(step_of(threadIdx.x, along_k, WIDE)), rows(rows < ROWS ? (int)rows : ROWS), along_k(along_k), wide(wide) {
        if (wide) {
            at += row * across + step * along;
        }
    }

    template <bool ALONG_K> __device__ void load_wide(int steps) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            constexpr int SIZE = WIDE;
            const int row_i = row_of(i * THREADS, ALONG_K, SIZE), step_i = step_of(i * THREADS, ALONG_K, SIZE);
            const T* from = at + (row_i * across + step_i * along);
            const int rows_left = rows - row - row_i, steps_left = steps - step - step_i;
            const int left = ALONG_K ? steps_left : rows_left, other = ALONG_K ? rows_left : steps_left;
            if (other > 0 && left >= WIDE) {
                held[i] = *(const Pack<T, WIDE>*)from;
            } else {
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    held[i].x[j] = other > 0 && j < left ? from[j] : zero<T>();
                }
            }
        }
    }

    // Loads `steps` steps, and goes on to the next ones. What is not held in registers goes to `to`.
    __device__ void load(Sum (&to)[STEP][PITCH], int steps) {
        if (!wide) {
#pragma unroll 4
            for (int id = threadIdx.x; id < ROWS * STEP; id += THREADS) {
                const int row = row_of(id, along_k, 1), step = step_of(id, along_k, 1);
                to[step][row] = widen(row < rows && step < steps ? at[row * across + step * along] : zero<T>());
            }
        } else if (along_k) {
            load_wide<true>(steps);
        } else {
            load_wide<false>(steps);
        }
        at += steps * along;
    }

    // Stores what is held in registers.
    __device__ void store(Sum (&to)[STEP][PITCH]) const {
        if (!wide) {
            return;
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            Pack<Sum, WIDE> pack;
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                pack.x[j] = widen(held[i].x[j]);
            }
            if (along_k) {
                Sum* from = &to[step + step_of(i * THREADS, true, WIDE)][row + row_of(i * THREADS, true, WIDE)];
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    from[j * PITCH] = pack.x[j];
                }
            } else {
                const int step_i = step_of(i * THREADS, false, WIDE), row_i = row_of(i * THREADS, false, WIDE);
                *(Pack<Sum, WIDE>*)&to[step + step_i][row + row_i] = pack;
            }
        }
    }
};

// A tile of ROWS x COLS numbers of C by EACH_M x EACH_N a thread; shared memory is filled for the next step while this one is
// computed.
template <class T, int ROWS, int COLS, int STEP, int EACH_M, int EACH_N> struct TileProduct {
    static constexpr int SIDE_M = ROWS / EACH_M, SIDE_N = COLS / EACH_N, THREADS = SIDE_M * SIDE_N;
    // Lanes of a warp that lie side by side: few rows of A and columns of B are read by a warp.
    static constexpr int LANES_N = SIDE_N < 8 ? SIDE_N : 8, LANES_M = 32 / LANES_N, WARPS_N = SIDE_N / LANES_N;
    using Sum = typename Computed<T>::type;
    using MoveA = Mover<T, ROWS, STEP, THREADS>;
    using MoveB = Mover<T, COLS, STEP, THREADS>;
    static constexpr int WIDE = MoveA::WIDE;

    // Adds one step of k to the sums.
    static __device__ void add_step(
        Sum (&sums)[EACH_M][EACH_N], const Sum* a, const Sum* b, int row, int col
    ) {
        Sum left[EACH_M], right[EACH_N];
#pragma unroll
        for (int i = 0; i < EACH_M; i += WIDE) {
            *(Pack<Sum, WIDE>*)&left[i] = *(const Pack<Sum, WIDE>*)&a[row + i * SIDE_M];
        }
#pragma unroll
        for (int j = 0; j < EACH_N; j += WIDE) {
            *(Pack<Sum, WIDE>*)&right[j] = *(const Pack<Sum, WIDE>*)&b[col + j * SIDE_N];
        }
#pragma unroll
        for (int i = 0; i < EACH_M; ++i) {
#pragma unroll
            for (int j = 0; j < EACH_N; ++j) {
                sums[i][j] = multiply_add(left[i], right[j], sums[i][j]);
            }
        }
    }

    static __device__ void run(const Product& p) {
        __shared__ alignas(16) Sum a_tile[2][STEP][MoveA::PITCH];
        __shared__ alignas(16) Sum b_tile[2][STEP][MoveB::PITCH];
        const Place place = place_of_block<ROWS, COLS>(p);
        const T* a = (const T*)p.a + p.start_of(place.matrix, p.a_steps) + place.row * p.a_row;
        const T* b = (const T*)p.b + p.start_of(place.matrix, p.b_steps) + place.col * p.b_col;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int row = (warp / WARPS_N * LANES_M + lane / LANES_N) * WIDE;
        const int col = (warp % WARPS_N * LANES_N + lane % LANES_N) * WIDE;
        const i64 parts = p.parts_of_k();
        const bool is_whole = p.splits == 1;
        i64 part = parts * place.split / p.splits;
        const i64 last = parts * (place.split + 1) / p.splits;
        i64 k = part * p.depth;
        const i64 end = last * p.depth < p.k ? last * p.depth : p.k;
        i64 part_end = k + p.depth < p.k ? k + p.depth : p.k;
        a += k * p.a_col;
        b += k * p.b_row;
        MoveA move_a(a, p.a_row, p.a_col, p.m - place.row, p.has(A_ALONG_K), p.has(A_WIDE));
        MoveB move_b(b, p.b_col, p.b_row, p.n - place.col, p.has(B_ALONG_K), p.has(B_WIDE));
        Sum total[EACH_M][EACH_N], sums[EACH_M][EACH_N] = {};
        bool is_first = true;
        int buffer = 0;
        int steps = part_end - k < STEP ? (int)(part_end - k) : STEP;
        move_a.load(a_tile[0], steps);
        move_b.load(b_tile[0], steps);
        move_a.store(a_tile[0]);
        move_b.store(b_tile[0]);
        __syncthreads();
        while (true) {
            k += steps;
            const bool part_ends = k == part_end, ends = k == end;
            if (part_ends) {
                part_end = k + p.depth < p.k ? k + p.depth : p.k;
            }
            const int next = part_end - k < STEP ? (int)(part_end - k) : STEP;
            if (!ends) {
                move_a.load(a_tile[buffer ^ 1], next);
                move_b.load(b_tile[buffer ^ 1], next);
            }
            if (steps == STEP) {
#pragma unroll
                for (int step = 0; step < STEP; ++step) {
                    add_step(sums, a_tile[buffer][step], b_tile[buffer][step], row, col);
                }
            } else {
#pragma unroll 1
                for (int step = 0; step < steps; ++step) {
                    add_step(sums, a_tile[buffer][step], b_tile[buffer][step], row, col);
                }
            }
            if (part_ends) {
#pragma unroll
                for (int i = 0; i < EACH_M; ++i) {
#pragma unroll
                    for (int j = 0; j < EACH_N; ++j) {
                        total[i][j] = is_first ? sums[i][j] : plus(total[i][j], sums[i][j]);
                        sums[i][j] = Sum(0);
                    }
                }
                if (!is_whole) {
                    write_part(p, total, place, part, row, col);
                }
                is_first = !is_whole;
                ++part;
            }
            if (ends) {
                break;
            }
            steps = next;
            buffer ^= 1;
            move_a.store(a_tile[buffer]);
            move_b.store(b_tile[buffer]);
            __syncthreads();
        }
        if (is_whole) {
            write(p, total, place, row, col);
        }
    }

    static __device__ void write_part(
        const Product& p, const Sum (&sums)[EACH_M][EACH_N], const Place& place, i64 part, int row, int col
    ) {
#pragma unroll
        for (int i = 0; i < EACH_M; ++i) {
            const i64 at_row = place.row + row + i / WIDE * WIDE * SIDE_M + i % WIDE;
            if (at_row < p.m) {
#pragma unroll
                for (int j = 0; j < EACH_N; j += WIDE) {
                    const i64 at_col = place.col + col + j * SIDE_N;
                    put_part<Sum, WIDE>(p, &sums[i][j], place.matrix, part, at_row, at_col);
                }
            }
        }
    }

    // In a loop that is not unrolled, so that what is applied to the sums stands here once: nothing is to whole numbers.
    static __device__ void write(const Product& p, const Sum (&sums)[EACH_M][EACH_N], const Place& place, int row, int col) {
        constexpr int PASSES = EACH_M * EACH_N / WIDE, UNROLLED = IS_WHOLE<Sum> ? PASSES : 1;
        Sum bias[WIDE];
#pragma unroll UNROLLED
        for (int pass = 0; pass < PASSES; ++pass) {
            const int i = pass % EACH_M, j = pass / EACH_M;
            const i64 at_row = place.row + row + i / WIDE * WIDE * SIDE_M + i % WIDE;
            const i64 at_col = place.col + col + j * WIDE * SIDE_N;
            Sum now[WIDE];
#pragma unroll
            for (int other = 0; other < PASSES; ++other) {
                if (pass == other) {
#pragma unroll
                    for (int lane = 0; lane < WIDE; ++lane) {
                        now[lane] = sums[other % EACH_M][other / EACH_M * WIDE + lane];
                    }
                }
            }
#pragma unroll
            for (int lane = 0; lane < WIDE; ++lane) {
                if (i == 0) {
                    bias[lane] = bias_of<T>(p, at_col + lane);
                }
                now[lane] = biased(p, now[lane], bias[lane]);
            }
            if (at_row < p.m) {
                put<T, WIDE>(p, now, place.matrix, at_row, at_col);
            }
        }
    }
};

// A vector (A, one row) times a matrix whose columns lie along k: 128 bytes of sums a column, which are merged by halves.
template <class T> __device__ void dots(const Product& p) {
    using Sum = typename Computed<T>::type;
    constexpr int LANES = 128 / sizeof(Sum), AHEAD = 8, COLS = 128 / LANES;
    const i64 tiles = (p.n + COLS - 1) / COLS;
    const i64 tile = blockIdx.x % tiles, split = blockIdx.x / tiles % p.splits, matrix = blockIdx.x / tiles / p.splits;
    const i64 col = tile * COLS + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    // Every lane takes part in the merging.
    const i64 from_col = col < p.n ? col : p.n - 1;
    const T* a = (const T*)p.a + p.start_of(matrix, p.a_steps);
    const T* b = (const T*)p.b + p.start_of(matrix, p.b_steps) + from_col * p.b_col;
    const i64 parts = p.parts_of_k();
    const i64 first = parts * split / p.splits, last = parts * (split + 1) / p.splits;
    Sum total = Sum(0);
    for (i64 part = first; part < last; ++part) {
        const i64 end = (part + 1) * p.depth < p.k ? (part + 1) * p.depth : p.k;
        Sum sum = Sum(0);
        i64 k = part * p.depth + lane;
        for (; k + (AHEAD - 1) * LANES < end; k += AHEAD * LANES) {
            T x[AHEAD], y[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                x[i] = a[(k + i * LANES) * p.a_col];
                y[i] = b[(k + i * LANES) * p.b_row];
            }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                sum = multiply_add(widen(y[i]), widen(x[i]), sum);
            }
        }
        for (; k < end; k += LANES) {
            sum = multiply_add(widen(b[k * p.b_row]), widen(a[k * p.a_col]), sum);
        }
#pragma unroll
        for (int half = LANES / 2; half > 0; half /= 2) {
            sum = plus(sum, __shfl_down_sync(EVERY_LANE, sum, half, LANES));
        }
        if (p.splits > 1 && lane == 0 && col < p.n) {
            put_part<Sum, 1>(p, &sum, matrix, part, 0, col);
        }
        total = part == first ? sum : plus(total, sum);
    }
    if (p.splits == 1 && lane == 0 && col < p.n) {
        Sum x[1] = {biased(p, total, bias_of<T>(p, col))};
        put<T, 1>(p, x, matrix, 0, col);
    }
}

// A vector (A, one row) times a matrix whose rows lie along n: a thread for WIDE neighbouring columns.
template <class T, int WIDE> __device__ void weighted_rows(const Product& p) {
    using Sum = typename Computed<T>::type;
    constexpr int AHEAD = 8, COLS = 64 * WIDE;
    const i64 tiles = (p.n + COLS - 1) / COLS;
    const i64 tile = blockIdx.x % tiles, split = blockIdx.x / tiles % p.splits, matrix = blockIdx.x / tiles / p.splits;
    const i64 col = tile * COLS + threadIdx.x * WIDE;
    if (col >= p.n) {
        return;
    }
    const T* a = (const T*)p.a + p.start_of(matrix, p.a_steps);
    const T* b = (const T*)p.b + p.start_of(matrix, p.b_steps) + col * p.b_col;
    const i64 parts = p.parts_of_k();
    const i64 first = parts * split / p.splits, last = parts * (split + 1) / p.splits;
    Sum total[WIDE] = {};
    for (i64 part = first; part < last; ++part) {
        const i64 end = (part + 1) * p.depth < p.k ? (part + 1) * p.depth : p.k;
        Sum sums[WIDE] = {};
        i64 k = part * p.depth;
        for (; k + AHEAD <= end; k += AHEAD) {
            T x[AHEAD];
            Pack<T, WIDE> y[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                x[i] = a[(k + i) * p.a_col];
                y[i] = *(const Pack<T, WIDE>*)&b[(k + i) * p.b_row];
            }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    sums[j] = multiply_add(widen(x[i]), widen(y[i].x[j]), sums[j]);
                }
            }
        }
        for (; k < end; ++k) {
            const Pack<T, WIDE> y = *(const Pack<T, WIDE>*)&b[k * p.b_row];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                sums[j] = multiply_add(widen(a[k * p.a_col]), widen(y.x[j]), sums[j]);
            }
        }
        if (p.splits > 1) {
            put_part<Sum, WIDE>(p, sums, matrix, part, 0, col);
        }
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            total[j] = part == first ? sums[j] : plus(total[j], sums[j]);
        }
    }
    if (p.splits == 1) {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            total[j] = biased(p, total[j], bias_of<T>(p, col + j));
        }
        put<T, WIDE>(p, total, matrix, 0, col);
    }
}

#define TILE(T, NAME, ROWS, COLS, STEP, EACH_M, EACH_N)                                                                \
    extern "C" __global__ void __launch_bounds__(ROWS / EACH_M * (COLS / EACH_N))                                      \
        matmul_##NAME##_##ROWS##x##COLS(const Product p) {                                                             \
        TileProduct<T, ROWS, COLS, STEP, EACH_M, EACH_N>::run(p);                                                      \
    }

#define REST(T, NAME)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) matmul_##NAME##_dots(const Product p) { dots<T>(p); }            \
    extern "C" __global__ void __launch_bounds__(64) matmul_##NAME##_weighted_rows(const Product p) {                  \
        if (p.has(B_WIDE)) {                                                                                           \
            weighted_rows<T, 16 / sizeof(Computed<T>::type)>(p);                                                       \
        } else {                                                                                                       \
            weighted_rows<T, 1>(p);                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) matmul_##NAME##_add_parts(const Product p) { add_parts<T>(p); }

TILE(float, f32, 128, 128, 8, 8, 8)
TILE(float, f32, 128, 64, 8, 8, 8)
TILE(float, f32, 64, 64, 8, 8, 4)
TILE(float, f32, 32, 32, 8, 4, 4)
TILE(float, f32, 16, 128, 16, 4, 8)
TILE(float, f32, 128, 16, 16, 8, 4)
REST(float, f32)

TILE(double, f64, 64, 64, 8, 8, 4)
TILE(double, f64, 32, 32, 8, 4, 4)
TILE(double, f64, 16, 64, 8, 4, 4)
TILE(double, f64, 64, 16, 8, 4, 4)
REST(double, f64)

TILE(i64, i64, 64, 64, 8, 8, 4)
TILE(i64, i64, 32, 32, 8, 4, 4)
REST(i64, i64)

TILE(bf16, bf16, 64, 64, 8, 8, 4)
TILE(bf16, bf16, 32, 32, 8, 4, 4)
REST(bf16, bf16)

TILE(f16, f16, 64, 64, 8, 8, 4)
TILE(f16, f16, 32, 32, 8, 4, 4)
REST(f16, f16)
