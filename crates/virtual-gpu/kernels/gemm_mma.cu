// Matrix products on the tensor cores by inline assembly, row-major C = A B with f32 (or s32) sums: f16 and bf16 with a
// three-stage cp.async pipeline and ldmatrix; tf32 and s8 straight from global memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void

unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Copies 16 bytes, or fills with zeros when `inside` is false.
void copy_async(void* to, const void* from, bool inside) {
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
        : "memory");
}
void commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int left> void wait_groups() { asm volatile("cp.async.wait_group %0;\n" ::"n"(left) : "memory"); }

void load_matrices(unsigned (&r)[4], const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from))
                 : "memory");
}
void load_matrices_transposed(unsigned (&r)[4], const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from))
                 : "memory");
}

template <class T> void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <> void multiply<__half>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> void multiply<__nv_bfloat16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Block of 128 threads, 64x64 outputs, 32x32 a warp, steps of 32 along k. Any m; n and k are multiples of 8, because
// an asynchronous copy moves eight elements. Rows are padded by 8 elements against bank conflicts.
constexpr int STAGES = 3, TILE = 64, STEP = 32, PITCH_A = STEP + 8, PITCH_B = TILE + 8;

template <class T> __device__ __forceinline__ void gemm(const T* a, const T* b, float* c, int m, int n, int k) {
    __shared__ __align__(16) T tile_a[STAGES][TILE][PITCH_A];
    __shared__ __align__(16) T tile_b[STAGES][STEP][PITCH_B];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    auto fetch = [&](int stage, int start) {
        for (int chunk = t; chunk < TILE * STEP / 8; chunk += 128) {
            int row = chunk / (STEP / 8), column = chunk % (STEP / 8) * 8;
            bool inside = first_row + row < m && start + column < k;
            copy_async(&tile_a[stage][row][column], inside ? a + (size_t)(first_row + row) * k + start + column : a,
                       inside);
        }
        for (int chunk = t; chunk < STEP * TILE / 8; chunk += 128) {
            int row = chunk / (TILE / 8), column = chunk % (TILE / 8) * 8;
            bool inside = start + row < k && first_column + column < n;
            copy_async(&tile_b[stage][row][column], inside ? b + (size_t)(start + row) * n + first_column + column : b,
                       inside);
        }
    };
    float sum[2][4][4] = {};
    int steps = (k + STEP - 1) / STEP;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(s, s * STEP);
        commit();
    }
    for (int step = 0; step < steps; step++) {
        wait_groups<STAGES - 2>();
        __syncthreads();
        int ahead = step + STAGES - 1;
        if (ahead < steps) fetch(ahead % STAGES, ahead * STEP);
        commit();
        int stage = step % STAGES;
#pragma unroll
        for (int inner = 0; inner < STEP; inner += 16) {
            unsigned left[2][4], right[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
                load_matrices(left[i], &tile_a[stage][warp_row + i * 16 + lane % 16][inner + lane / 16 * 8]);
#pragma unroll
            for (int j = 0; j < 2; j++)
                load_matrices_transposed(right[j],
                    &tile_b[stage][inner + lane % 16][warp_column + j * 16 + lane / 16 * 8]);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    multiply<T>(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
        }
    }
    wait_groups<0>();
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++) {
                int row = first_row + warp_row + i * 16 + lane / 4 + half * 8;
                int column = first_column + warp_column + j * 8 + lane % 4 * 2;
                if (row < m && column < n)
                    *(float2*)&c[(size_t)row * n + column] = make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
            }
}

KERNEL gemm_mma_f16(const __half* a, const __half* b, float* c, int m, int n, int k) { gemm<__half>(a, b, c, m, n, k); }
KERNEL gemm_mma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    gemm<__nv_bfloat16>(a, b, c, m, n, k);
}

// One warp a 16x8 tile with f16 sums; sizes are multiples of the tile and of 16.
KERNEL gemm_mma_f16_sums(const __half* a, const __half* b, __half* c, int m, int n, int k) {
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, pair = lane % 4 * 2;
    unsigned sum[2] = {0, 0};
    for (int start = 0; start < k; start += 16) {
        unsigned left[4];
        for (int i = 0; i < 4; i++) left[i] = *(const unsigned*)&a[(row + i % 2 * 8) * k + start + pair + i / 2 * 8];
        __half2 right[2];
        for (int i = 0; i < 2; i++) {
            const __half* from = &b[(start + pair + i * 8) * n + blockIdx.x * 8 + lane / 4];
            right[i] = __halves2half2(from[0], from[n]);
        }
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};\n"
                     : "+r"(sum[0]), "+r"(sum[1])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(*(unsigned*)&right[0]),
                         "r"(*(unsigned*)&right[1]));
    }
    for (int i = 0; i < 2; i++) *(unsigned*)&c[(row + i * 8) * n + blockIdx.x * 8 + pair] = sum[i];
}

unsigned to_tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(x));
    return bits;
}

// One warp a 16x8 tile; sizes are multiples of the tile and of 8.
KERNEL gemm_mma_tf32(const float* a, const float* b, float* c, int m, int n, int k) {
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, column = blockIdx.x * 8 + lane / 4, i = lane % 4;
    float sum[4] = {};
    for (int start = 0; start < k; start += 8) {
        unsigned a0 = to_tf32(a[row * k + start + i]), a1 = to_tf32(a[(row + 8) * k + start + i]);
        unsigned a2 = to_tf32(a[row * k + start + i + 4]), a3 = to_tf32(a[(row + 8) * k + start + i + 4]);
        unsigned b0 = to_tf32(b[(start + i) * n + column]), b1 = to_tf32(b[(start + i + 4) * n + column]);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    for (int half = 0; half < 2; half++)
        *(float2*)&c[(row + half * 8) * n + blockIdx.x * 8 + i * 2] = make_float2(sum[half * 2], sum[half * 2 + 1]);
}

// One warp a 16x8 tile; sizes are multiples of the tile and of 32; B is stored by columns.
KERNEL gemm_mma_s8(const signed char* a, const signed char* b, int* c, int m, int n, int k) {
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, column = blockIdx.x * 8 + lane / 4, i = lane % 4 * 4;
    int sum[4] = {};
    for (int start = 0; start < k; start += 32) {
        int left[4], right[2];
        for (int q = 0; q < 4; q++) left[q] = *(const int*)&a[(row + q % 2 * 8) * k + start + i + q / 2 * 16];
        for (int q = 0; q < 2; q++) right[q] = *(const int*)&b[column * k + start + i + q * 16];
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
    for (int half = 0; half < 2; half++)
        *(int2*)&c[(row + half * 8) * n + blockIdx.x * 8 + lane % 4 * 2] = make_int2(sum[half * 2], sum[half * 2 + 1]);
}
