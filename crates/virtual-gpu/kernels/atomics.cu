// Atomic operations of every type, on global and shared memory, whose outcome does not depend on the order (or whose
// returned values are a permutation that a test can check).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
typedef long long i64;
typedef unsigned long long u64;

// Cells: add, sub, min, max of s32 (0-3), of u32 min and max (4, 5), and, or, xor (6-8), inc and dec with wrap (9, 10).
KERNEL atomics_32(const int* in, int* cells, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i];
    atomicAdd(&cells[0], x);
    atomicSub(&cells[1], x);
    atomicMin(&cells[2], x);
    atomicMax(&cells[3], x);
    atomicMin((unsigned*)&cells[4], (unsigned)x);
    atomicMax((unsigned*)&cells[5], (unsigned)x);
    atomicAnd(&cells[6], x | 0xf0);
    atomicOr(&cells[7], x & 0x0f0f);
    atomicXor(&cells[8], x);
    atomicInc((unsigned*)&cells[9], 99);
    atomicDec((unsigned*)&cells[10], 49);
}

// Cells: add, min and max of s64 (0-2), of u64 min and max (3, 4), and, or, xor (5-7).
KERNEL atomics_64(const i64* in, i64* cells, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    i64 x = in[i];
    atomicAdd((u64*)&cells[0], (u64)x);
    atomicMin(&cells[1], x);
    atomicMax(&cells[2], x);
    atomicMin((u64*)&cells[3], (u64)x);
    atomicMax((u64*)&cells[4], (u64)x);
    atomicAnd((u64*)&cells[5], (u64)x | 0xff00ff00ull);
    atomicOr((u64*)&cells[6], (u64)x & 0x0f0f0f0full);
    atomicXor((u64*)&cells[7], (u64)x);
}

// Small integers, so that every order gives the same sum.
KERNEL atomics_float(const float* in, float* f32, double* f64, __half2* h2, __half* h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(f32, in[i]);
    atomicAdd(f64, (double)in[i] * 0.5);
    atomicAdd(h2, __floats2half2_rn(1.0f, in[i] > 0.0f ? 1.0f : 0.0f));
    atomicAdd(h, __float2half(1.0f));
}

#if __CUDA_ARCH__ >= 800
KERNEL atomics_bfloat(const float* in, __nv_bfloat162* pair, __nv_bfloat16* one, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(pair, __floats2bfloat162_rn(1.0f, in[i] > 0.0f ? 1.0f : 0.0f));
    atomicAdd(one, __float2bfloat16(1.0f));
}
#endif

// The previous values of an add and an inc are each a permutation of 0..n; every exchange hands a value on once.
KERNEL atomics_returned(int* added, int* incremented, int* exchanged, int* cells, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    added[i] = atomicAdd(&cells[0], 1);
    incremented[i] = (int)atomicInc((unsigned*)&cells[1], 0xffffffffu);
    exchanged[i] = atomicExch(&cells[2], i + 1);
}

// Read-modify-write by compare and swap: a product modulo 65521 in 32 bits, a maximum of f32 by its bits, a sum in 64
// bits, a sum in 16 bits.
KERNEL atomics_cas(const int* in, unsigned* product, float* top, u64* sum, unsigned short* small, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned factor = (unsigned)(in[i] & 0xffff) % 65520 + 1, seen = *(volatile unsigned*)product, expected;
    do {
        expected = seen;
        seen = atomicCAS(product, expected, (unsigned)((u64)expected * factor % 65521));
    } while (seen != expected);
    int old = *(volatile int*)top, assumed;
    do {
        assumed = old;
        old = atomicCAS((int*)top, assumed, __float_as_int(fmaxf((float)in[i], __int_as_float(assumed))));
    } while (old != assumed);
    u64 was = *(volatile u64*)sum, guess;
    do {
        guess = was;
        was = atomicCAS(sum, guess, guess + (u64)(i64)in[i]);
    } while (was != guess);
    unsigned short half = *(volatile unsigned short*)small, half_guess;
    do {
        half_guess = half;
        half = atomicCAS(small, half_guess, (unsigned short)(half_guess + in[i]));
    } while (half != half_guess);
}

// In shared memory, then added to global; eight cells a block.
KERNEL atomics_shared(const int* in, int* out) {
    __shared__ int cells[6];
    __shared__ u64 wide;
    __shared__ float sum;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 6; k++) cells[k] = k == 1 ? 0x7fffffff : 0;
        wide = 0;
        sum = 0.0f;
    }
    __syncthreads();
    int x = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&cells[0], x);
    atomicMin(&cells[1], x);
    atomicMax(&cells[2], x);
    atomicOr(&cells[3], x);
    atomicXor(&cells[4], x);
    atomicInc((unsigned*)&cells[5], 30);
    atomicAdd(&wide, (u64)(unsigned)x << 8);
    atomicAdd(&sum, (float)(x & 15));
    __syncthreads();
    int* to = out + blockIdx.x * 9;
    if (threadIdx.x < 6) to[threadIdx.x] = cells[threadIdx.x];
    if (threadIdx.x == 6) to[6] = (int)wide;
    if (threadIdx.x == 7) to[7] = (int)(wide >> 32);
    if (threadIdx.x == 8) to[8] = (int)sum;
}

// The scopes and orders of the memory model: a message passed through a release and an acquire.
KERNEL acquire_release(int* data, int* flag, int* out) {
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            *data = 42;
            asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
        }
    } else if (threadIdx.x == 0) {
        int seen;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (seen == 0);
        int value, old;
        asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(data) : "memory");
        asm volatile("atom.add.acq_rel.sys.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(out), "r"(value) : "memory");
        atomicMax(out + 2, old);
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(out + 1) : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
}
