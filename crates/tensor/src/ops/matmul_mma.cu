// Matrix products on the tensor cores: bf16 and f16, and f32 rounded to tf32; sums are f32. Any sizes, strides and alignment.
//
// Steps of 64 bytes along k of a tile's rows of A and columns of B come to shared memory by copies that nobody waits for, three
// stages at a time: two are under way while one is multiplied. They lie there as in global memory, along k or across it; matrix
// loads turn what lies across. Chunks of 16 bytes change places within a row of shared memory, so that neither copies nor loads
// meet in a bank. An instruction adds 32 bytes of k in an order of its own, so sums differ from the host's by their rounding.
//
// Targets: 80.

#include "matmul.cuh"

__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Starts to copy the first `bytes` of 16 bytes; the others become zero.
__device__ inline void copy_async(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void copy_word_async(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT stages are under way.
template <int LEFT> __device__ inline void wait_for_stage() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Four matrices of 8 rows of 16 bytes, of which each lane gives the address of a row.
__device__ inline void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ inline void load_turned_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ inline u32 load_word(u32 from) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

// Adds the product of 16 x 32 bytes of A and 32 bytes x 8 of B.
#define MULTIPLY(T, SHAPE)                                                                                             \
    __device__ inline void multiply(T, float (&c)[4], const u32 (&a)[4], u32 low, u32 high) {                          \
        asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"               \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                           \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));                                        \
    }
MULTIPLY(bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MULTIPLY(f16, "m16n8k16.row.col.f32.f16.f16.f32")
MULTIPLY(float, "m16n8k8.row.col.f32.tf32.tf32.f32")

// Bytes of a stage along k, and stages.
constexpr int STEP_BYTES = 64, STAGES = 3;

// One side's part of a stage: LINES rows of A, or columns of B, by STEP steps of k. Stored rows are lines if they lie along k,
// else steps.
template <class T, int LINES, bool ALONG_K, int THREADS> struct Side {
    static constexpr int CHUNK = 16 / sizeof(T), STEP = STEP_BYTES / sizeof(T);
    // Numbers and chunks of a stored row.
    static constexpr int LENGTH = ALONG_K ? STEP : LINES, CHUNKS = LENGTH / CHUNK;
    static constexpr int BYTES = LINES * STEP_BYTES;
    // Chunks that a thread copies, and stored rows from one to the next.
    static constexpr int EACH = BYTES / 16 / THREADS, ROWS_APART = THREADS / CHUNKS;
    static_assert(EACH > 0 && ROWS_APART > 0, "every thread copies whole chunks");

    // What is added, without carry, to the number of a chunk: rows that are read together use all banks. Tensor cores read eight
    // rows of a chunk each time, but of f32 across k four rows of two chunks.
    static __device__ constexpr int turn(int row) {
        return CHUNKS == 4 ? row / 2 % 4 : sizeof(T) == 4 ? row % 4 * 2 : row % 8;
    }
    static __device__ constexpr int place(int row, int chunk) { return (row * CHUNKS + (chunk ^ turn(row))) * 16; }

    const T* at;       // this thread's first chunk of the next step; without 16-byte loads where the step starts
    i64 across, along; // strides over lines and over k
    i64 apart;         // from a chunk of this thread to the next
    int line, step;    // of the first chunk
    int lines;         // that exist
    bool wide;

    __device__ Side(const T* from, i64 across, i64 along, i64 count, bool wide)
        : at(from), across(across), along(along), apart(ROWS_APART * (ALONG_K ? across : along)), wide(wide) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        line = ALONG_K ? row : chunk * CHUNK;
        step = ALONG_K ? chunk * CHUNK : row;
        lines = count < LINES ? (int)count : LINES;
        if (wide) {
            at += line * across + step * along;
        }
    }

    // Starts to copy the next `steps` steps of k, and goes on to those after them.
    __device__ void copy(u32 to, int steps) {
        if (wide) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int line_i = line + (ALONG_K ? i * ROWS_APART : 0), step_i = step + (ALONG_K ? 0 : i * ROWS_APART);
                const int left = ALONG_K ? steps - step_i : lines - line_i;
                const bool inside = ALONG_K ? line_i < lines : step_i < steps;
                const int taken = inside && left > 0 ? (left < CHUNK ? left : CHUNK) : 0;
                const int row = threadIdx.x / CHUNKS + i * ROWS_APART;
                copy_async(to + place(row, threadIdx.x % CHUNKS), at + i * apart, taken * (int)sizeof(T));
            }
        } else {
            copy_one_by_one(to, steps);
        }
        at += STEP * along;
    }

    // The same number by number, neighbours by neighbouring lanes, for what lies at odd addresses. A copy that nobody waits for
    // has at least four bytes; smaller ones are loaded and stored.
    __device__ void copy_one_by_one(u32 to, int steps) const {
        constexpr int AHEAD = 4;
#pragma unroll 1
        for (int first = threadIdx.x; first < LINES * STEP; first += AHEAD * THREADS) {
            T held[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const int row = (first + i * THREADS) / LENGTH, number = (first + i * THREADS) % LENGTH;
                const int line = ALONG_K ? row : number, step = ALONG_K ? number : row;
                const bool inside = line < lines && step < steps;
                const T* from = at + (line * across + step * along);
                const u32 place_i = to + place(row, number / CHUNK) + number % CHUNK * (int)sizeof(T);
                if constexpr (sizeof(T) == 4) {
                    copy_word_async(place_i, from, inside ? 4 : 0);
                } else {
                    held[i] = inside ? *from : T{};
                }
            }
            if constexpr (sizeof(T) == 2) {
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    const int row = (first + i * THREADS) / LENGTH, number = (first + i * THREADS) % LENGTH;
                    const u32 place_i = to + place(row, number / CHUNK) + number % CHUNK * (int)sizeof(T);
                    asm volatile("st.shared.u16 [%0], %1;" ::"r"(place_i), "h"(held[i].bits) : "memory");
                }
            }
        }
    }

    // What a lane multiplies of lines `first` + 16 * i to + 15, a multiple of the warp's share, by 32 bytes of k: number `inner` of
    // the stage. Words are of lines 0 to 7 and 8 to 15, for the first 16 bytes of k and then the others.
    static __device__ void load(u32 (&to)[4], u32 from, int first, int i, int inner) {
        const int lane = threadIdx.x % WARP;
        if constexpr (ALONG_K) {
            const int row = lane % 16, chunk = (inner * 2 + lane / 16) ^ turn(row);
            load_matrices(to, from + (first + i * 16) * STEP_BYTES + (row * CHUNKS + chunk) * 16);
        } else if constexpr (sizeof(T) == 2) {
            const int row = lane / 16 * 8 + lane % 8, chunk = (first / CHUNK + lane / 8 % 2) ^ turn(row) ^ i * 2;
            load_turned_matrices(to, from + ((inner * 16 + row) * CHUNKS + chunk) * 16);
        } else {
            const int row = lane % 4, line = first + lane / 4;
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                // The third bit is that of no turn, so it can be added.
                const int piece = i * 4 + word % 2 * 2, chunk = ((line / CHUNK) ^ turn(row) ^ piece % 8) + piece / 8 * 8;
                const int at = ((inner * 8 + word / 2 * 4 + row) * CHUNKS + chunk) * 16 + line % CHUNK * 4;
                to[word] = load_word(from + at);
            }
        }
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[word]) : "f"(__int_as_float((int)to[word])));
            }
        }
    }
};

// A tile of ROWS x COLS numbers of C by WARPS_M x WARPS_N warps.
template <class T, int ROWS, int COLS, int WARPS_M, int WARPS_N, bool A_ROWS, bool B_COLS> struct MmaProduct {
    static constexpr int THREADS = WARPS_M * WARPS_N * WARP;
    // Numbers of C of a warp, and their pieces of 16 x 8.
    static constexpr int WARP_M = ROWS / WARPS_M, WARP_N = COLS / WARPS_N, EACH_M = WARP_M / 16, EACH_N = WARP_N / 8;
    static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "warps load 16 lines of each side at a time");
    using SideA = Side<T, ROWS, A_ROWS, THREADS>;
    using SideB = Side<T, COLS, B_COLS, THREADS>;
    // C passes through shared memory in the end, in so many parts; each has PART_M rows of every warp.
    static constexpr int PARTS = ROWS * COLS * 4 > STAGES * (ROWS + COLS) * STEP_BYTES ? 2 : 1;
    static constexpr int PART_ROWS = ROWS / PARTS, PART_M = WARP_M / PARTS;
    static_assert(PART_M % 16 == 0, "a part has whole pieces");
    static constexpr int STEP = SideA::STEP, STAGE_BYTES = SideA::BYTES + SideB::BYTES;

    static __device__ void run(const Product& p) {
        __shared__ alignas(128) unsigned char stages[STAGES * STAGE_BYTES];
        const u32 shared = shared_address(stages);
        const Place place = place_of_block<ROWS, COLS>(p);
        const i64 first = place.split * p.depth;
        i64 left = p.k - first < p.depth ? p.k - first : p.depth;
        const int count = (int)((left + STEP - 1) / STEP);
        const T* a = (const T*)p.a + p.start_of(place.matrix, p.a_steps) + place.row * p.a_row + first * p.a_col;
        const T* b = (const T*)p.b + p.start_of(place.matrix, p.b_steps) + place.col * p.b_col + first * p.b_row;
        SideA side_a(a, p.a_row, p.a_col, p.m - place.row, p.has(A_WIDE));
        SideB side_b(b, p.b_col, p.b_row, p.n - place.col, p.has(B_WIDE));
        const int warp = threadIdx.x / WARP;
        const int row = warp / WARPS_N * WARP_M, col = warp % WARPS_N * WARP_N;

        // Starts a stage, or nothing where k ends: also then a group is counted.
        const auto start_stage = [&](u32 to) {
            if (left > 0) {
                const int steps = left < STEP ? (int)left : STEP;
                side_a.copy(to, steps);
                side_b.copy(to + SideA::BYTES, steps);
                left -= STEP;
            }
            end_of_stage();
        };
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            start_stage(shared + stage * STAGE_BYTES);
        }
        float sums[EACH_M][EACH_N][4] = {};
        u32 now = shared, next = shared + (STAGES - 1) * STAGE_BYTES;
        const u32 end = shared + STAGES * STAGE_BYTES;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            wait_for_stage<STAGES - 2>();
            // Everybody's copies are there, and nobody reads the stage that is filled next.
            __syncthreads();
            start_stage(next);
            multiply_stage(sums, now, now + SideA::BYTES, row, col);
            now = now + STAGE_BYTES == end ? shared : now + STAGE_BYTES;
            next = next + STAGE_BYTES == end ? shared : next + STAGE_BYTES;
        }
        wait_for_stage<0>();
        write(p, sums, place, row, col, (float*)stages);
    }

    static __device__ void multiply_stage(float (&sums)[EACH_M][EACH_N][4], u32 a, u32 b, int row, int col) {
#pragma unroll
        for (int inner = 0; inner < STEP_BYTES / 32; ++inner) {
            u32 right[EACH_N / 2][4];
#pragma unroll
            for (int j = 0; j < EACH_N / 2; ++j) {
                SideB::load(right[j], b, col, j, inner);
            }
#pragma unroll
            for (int i = 0; i < EACH_M; ++i) {
                u32 left[4];
                SideA::load(left, a, row, i, inner);
#pragma unroll
                for (int j = 0; j < EACH_N; ++j) {
                    multiply(T{}, sums[i][j], left, right[j / 2][j % 2], right[j / 2][j % 2 + 2]);
                }
            }
        }
    }

    // Where in shared memory number `col` of row `row` of a part of C lies. Neither those that lanes have of their sums nor those
    // that they store to C meet in a bank: units of 16 bytes change places within a row. Of 16-bit numbers two units are stored
    // at once; the first ones of these pairs lie before the second ones.
    static __device__ int place_of_sum(int row, int col) {
        const int unit = col / 4;
        int at = unit ^ row % 4 * 2;
        if (sizeof(T) == 2) {
            at = (unit % 2 * (COLS / 8) + unit / 2) ^ (COLS > 32 ? unit % 2 * 4 : 0) ^ (row % 2 * 5) ^ (row / 2 % 2 * 2);
        }
        return row * COLS + at * 4 + col % 4;
    }

    // Of each piece a lane has two neighbours of row lane / 4, and those eight rows below.
    static __device__ void write(
        const Product& p, const float (&sums)[EACH_M][EACH_N][4], const Place& place, int row, int col, float* shared
    ) {
        const int lane = threadIdx.x % WARP;
        col += lane % 4 * 2;
        row += lane / 4;
        if (p.splits > 1) {
            // Four lanes fill a sector of 32 bytes.
#pragma unroll
            for (int i = 0; i < EACH_M * 2; ++i) {
                const i64 at_row = place.row + row + i * 8;
                if (at_row < p.m) {
#pragma unroll
                    for (int j = 0; j < EACH_N; ++j) {
                        const i64 at_col = place.col + col + j * 8;
                        put_part<float, 2>(p, &sums[i / 2][j][i % 2 * 2], place.matrix, place.split, at_row, at_col);
                    }
                }
            }
            return;
        }
        // The first of this lane's rows in a part.
        const int part_row = row / WARP_M * PART_M + lane / 4;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            __syncthreads();
#pragma unroll
            for (int j = 0; j < EACH_N; ++j) {
                const float bias[2] = {
                    bias_of<T>(p, place.col + col + j * 8), bias_of<T>(p, place.col + col + j * 8 + 1)
                };
#pragma unroll
                for (int i = 0; i < EACH_M * 2; ++i) {
                    if (i / (EACH_M * 2 / PARTS) == part) {
                        const int at_row = part_row + i % (EACH_M * 2 / PARTS) * 8;
                        Pack<float, 2> pair;
#pragma unroll
                        for (int side = 0; side < 2; ++side) {
                            pair.x[side] = biased(p, sums[i / 2][j][i % 2 * 2 + side], bias[side]);
                        }
                        *(Pack<float, 2>*)&shared[place_of_sum(at_row, col + j * 8)] = pair;
                    }
                }
            }
            __syncthreads();
            if (p.has(MORE) && p.kept) {
                move<false>(p, p.kept, shared, place, part);
            }
            if (p.has(MORE) && p.activation != NO_ACTIVATION) {
                __syncthreads();
#pragma unroll 1
                for (int id = threadIdx.x; id < PART_ROWS * COLS; id += THREADS) {
                    shared[id] = activate(p, shared[id]);
                }
                __syncthreads();
            }
            move<true>(p, p.c, shared, place, part);
        }
    }

    // Moves a part of C from shared memory to where C, or what lies as it, starts.
    template <bool LAST>
    static __device__ void move(const Product& p, void* to, const float* shared, const Place& place, int part) {
        constexpr int CHUNK = 16 / sizeof(T), CHUNKS = COLS / CHUNK;
        const auto row_of = [&](int row) { return place.row + row / PART_M * WARP_M + part * PART_M + row % PART_M; };
        const bool adds = LAST && p.has(MORE) && p.residual;
        if (p.has(C_WIDE)) {
#pragma unroll 1
            for (int id = threadIdx.x; id < PART_ROWS * CHUNKS; id += THREADS) {
                const int row = id / CHUNKS, col = id % CHUNKS * CHUNK;
                const i64 at_row = row_of(row), at_col = place.col + col;
                if (at_row < p.m && at_col < p.n) {
                    float x[CHUNK];
#pragma unroll
                    for (int i = 0; i < CHUNK; i += 4) {
                        const Pack<float, 4> four = *(const Pack<float, 4>*)&shared[place_of_sum(row, col + i)];
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            x[i + j] = four.x[j];
                        }
                    }
                    if (adds) {
                        add_residual<T, CHUNK>(p, x, place.matrix, at_row, at_col);
                    }
                    write_rounded<T, CHUNK>(p, to, x, place.matrix, at_row, at_col);
                }
            }
        } else {
#pragma unroll 1
            for (int id = threadIdx.x; id < PART_ROWS * COLS; id += THREADS) {
                const i64 at_row = row_of(id / COLS), at_col = place.col + id % COLS;
                if (at_row < p.m && at_col < p.n) {
                    float x[1] = {shared[place_of_sum(id / COLS, id % COLS)]};
                    if (adds) {
                        add_residual<T, 1>(p, x, place.matrix, at_row, at_col);
                    }
                    write_rounded<T, 1>(p, to, x, place.matrix, at_row, at_col);
                }
            }
        }
    }
};

// Kernels of a tile: n where a matrix lies row by row, t where it lies column by column; the first is A.
#define FORM(T, NAME, ROWS, COLS, WARPS_M, WARPS_N, LIE, A_ROWS, B_COLS)                                               \
    extern "C" __global__ void __launch_bounds__(WARPS_M * WARPS_N * 32, ROWS == 128 ? 2 : 5)                             \
        matmul_##NAME##_##ROWS##x##COLS##_##LIE(const Product p) {                                                     \
        MmaProduct<T, ROWS, COLS, WARPS_M, WARPS_N, A_ROWS, B_COLS>::run(p);                                           \
    }
#define TILE(T, NAME, ROWS, COLS, WARPS_M, WARPS_N)                                                                    \
    FORM(T, NAME, ROWS, COLS, WARPS_M, WARPS_N, nn, true, false)                                                       \
    FORM(T, NAME, ROWS, COLS, WARPS_M, WARPS_N, nt, true, true)                                                        \
    FORM(T, NAME, ROWS, COLS, WARPS_M, WARPS_N, tn, false, false)                                                      \
    FORM(T, NAME, ROWS, COLS, WARPS_M, WARPS_N, tt, false, true)
#define TILES(T, NAME)                                                                                                 \
    TILE(T, NAME, 128, 128, 2, 4)                                                                                      \
    TILE(T, NAME, 64, 64, 2, 2)                                                                                        \
    TILE(T, NAME, 32, 32, 1, 2)

TILES(bf16, mma_bf16)
TILES(f16, mma_f16)
TILES(float, mma_tf32)
