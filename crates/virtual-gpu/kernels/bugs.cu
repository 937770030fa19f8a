// Kernels with one planted bug each, for the checks to find, and next to each its twin without the bug.

#define KERNEL extern "C" __global__ void

// Reads one element too many: `<=` for `<`.
KERNEL read_out_of_bounds(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i % n] = in[i] * 2.0f;
}
KERNEL read_out_of_bounds_fixed(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i % n] = in[i] * 2.0f;
}

// Writes without looking at the length.
KERNEL write_out_of_bounds(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (float)n;
}
KERNEL write_out_of_bounds_fixed(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (float)n;
}

// Shared memory with room for the block, read one further by the last thread; blockDim.x = 64.
KERNEL shared_out_of_bounds(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x + 1];
}
KERNEL shared_out_of_bounds_fixed(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

// Dynamic shared memory of half the size that the kernel uses, when launched with 4 bytes a thread.
KERNEL dynamic_shared_overflow(const double* in, double* out) {
    extern __shared__ double room[];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

// A float4 from an address that is a multiple of 4 only, when `start` is not a multiple of 4.
KERNEL misaligned(const float* in, float4* out, int start) {
    out[threadIdx.x] = *(const float4*)(in + start + threadIdx.x * 4);
}
KERNEL misaligned_fixed(const float* in, float4* out, int start) {
    const float* from = in + start + threadIdx.x * 4;
    out[threadIdx.x] = make_float4(from[0], from[1], from[2], from[3]);
}

// For use after free: the host frees `in` before or while this is queued.
KERNEL sum_into(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += in[i];
}

// Reverses a block through shared memory, without a barrier between the write and the read; blockDim.x = 128.
KERNEL missing_barrier(const int* in, int* out) {
    __shared__ int values[128];
    values[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = values[127 - threadIdx.x];
}
KERNEL missing_barrier_fixed(const int* in, int* out) {
    __shared__ int values[128];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[127 - threadIdx.x];
}

// The second barrier of a loop is missing: the next round overwrites what a slow warp still reads.
KERNEL missing_loop_barrier(const int* in, int* out, int rounds) {
    __shared__ int values[128];
    int sum = 0;
    for (int round = 0; round < rounds; round++) {
        values[threadIdx.x] = in[round * 128 + threadIdx.x];
        __syncthreads();
        sum += values[127 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
KERNEL missing_loop_barrier_fixed(const int* in, int* out, int rounds) {
    __shared__ int values[128];
    int sum = 0;
    for (int round = 0; round < rounds; round++) {
        values[threadIdx.x] = in[round * 128 + threadIdx.x];
        __syncthreads();
        sum += values[127 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// A sum over shared memory by plain additions of every thread.
KERNEL lost_updates(const int* in, int* out) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    total += in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) *out = total;
}
KERNEL lost_updates_fixed(const int* in, int* out) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) *out = total;
}

// An asynchronous copy whose data is read before a wait; blockDim.x = 32.
KERNEL missing_wait(const int* in, int* out) {
    __shared__ __align__(16) int values[128];
    unsigned to = (unsigned)__cvta_generic_to_shared(values + threadIdx.x * 4);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;"
        ::"r"(to), "l"(in + threadIdx.x * 4) : "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) out[i] = values[127 - i];
}
KERNEL missing_wait_fixed(const int* in, int* out) {
    __shared__ __align__(16) int values[128];
    unsigned to = (unsigned)__cvta_generic_to_shared(values + threadIdx.x * 4);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;"
        ::"r"(to), "l"(in + threadIdx.x * 4) : "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) out[i] = values[127 - i];
}

// Waits for all groups but one, and reads the last one.
KERNEL wrong_wait_count(const int* in, int* out) {
    __shared__ __align__(16) int values[2][128];
    for (int k = 0; k < 2; k++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(values[k] + threadIdx.x * 4);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;"
            ::"r"(to), "l"(in + k * 128 + threadIdx.x * 4) : "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) out[i] = values[1][127 - i];
}
KERNEL wrong_wait_count_fixed(const int* in, int* out) {
    __shared__ __align__(16) int values[2][128];
    for (int k = 0; k < 2; k++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(values[k] + threadIdx.x * 4);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;"
            ::"r"(to), "l"(in + k * 128 + threadIdx.x * 4) : "memory");
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) out[i] = values[1][127 - i];
}

// A barrier in a branch that splits a warp: the two halves wait at two different barriers.
KERNEL divergent_barrier(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
        out[threadIdx.x] = values[63 - threadIdx.x];
    } else {
        out[threadIdx.x] = -1;
        __syncthreads();
        out[threadIdx.x] += values[63 - threadIdx.x] * 3;
    }
}
KERNEL divergent_barrier_fixed(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x % 2 == 0) {
        out[threadIdx.x] = values[63 - threadIdx.x];
    } else {
        out[threadIdx.x] = -1 + values[63 - threadIdx.x] * 3;
    }
}

// A barrier that some warps never come to: a different named one is used by the other half.
KERNEL barrier_deadlock(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    out[threadIdx.x] = 1;
}

// Reads `in`, of which the host wrote only the first half.
KERNEL uninitialized_global(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 1.0f;
}

// Odd elements of shared memory are read and never written; blockDim.x = 32.
KERNEL uninitialized_shared(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x * 2] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x] + values[threadIdx.x + 32];
}
KERNEL uninitialized_shared_fixed(const int* in, int* out) {
    __shared__ int values[64];
    values[threadIdx.x * 2] = in[threadIdx.x];
    values[threadIdx.x * 2 + 1] = 0;
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x] + values[threadIdx.x + 32];
}

// Never ends: the flag is raised by nobody.
KERNEL endless_loop(int* flag, int* out) {
    while (*(volatile int*)flag == 0) {}
    out[threadIdx.x] = 1;
}

// The mask names all lanes, of which half have taken another branch that ends the thread.
KERNEL shuffle_missing_lanes(const int* in, int* out) {
    int x = in[threadIdx.x];
    if (threadIdx.x >= 16) {
        out[threadIdx.x] = x;
        return;
    }
    for (int offset = 8; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
    out[threadIdx.x] = x;
}
KERNEL shuffle_missing_lanes_fixed(const int* in, int* out) {
    int x = in[threadIdx.x];
    if (threadIdx.x >= 16) {
        out[threadIdx.x] = x;
        return;
    }
    for (int offset = 8; offset > 0; offset >>= 1) x += __shfl_xor_sync(0x0000ffffu, x, offset);
    out[threadIdx.x] = x;
}

// A lane that takes part in a shuffle whose mask does not name it.
KERNEL shuffle_wrong_mask(const int* in, int* out) {
    out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, in[threadIdx.x], 1);
}

// For a race between streams: one writes what the other reads, and the host orders them by an event, or not.
KERNEL race_writer(int* data, int value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = value + i;
}
KERNEL race_reader(const int* data, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = data[i] * 2;
}

// A null pointer that the host passes by mistake.
KERNEL null_pointer(int* out) { out[threadIdx.x] = 1; }

// Too deep a recursion for the stack, with n large.
__noinline__ int deep(int n, int* cells) {
    int own[16];
    for (int k = 0; k < 16; k++) own[k] = cells[k] + n;
    return n == 0 ? own[3] : deep(n - 1, own) + own[n & 15];
}
KERNEL stack_overflow(int n, int* out) {
    int cells[16] = {};
    out[threadIdx.x] = deep(n, cells);
}
