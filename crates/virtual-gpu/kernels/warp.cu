// What the lanes of a warp and the warps of a block do together: votes, matches, shuffles, named barriers, locks, early
// return, divergent loops, a barrier over the whole grid.

#define KERNEL extern "C" __global__ void
typedef unsigned long long u64;

// Eight words a thread.
KERNEL votes(const int* in, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    unsigned* to = out + i * 8;
    to[0] = __ballot_sync(0xffffffffu, x & 1);
    to[1] = __any_sync(0xffffffffu, x > 90);
    to[2] = __all_sync(0xffffffffu, x >= 0);
    to[3] = __match_any_sync(0xffffffffu, x % 5);
    int all;
    to[4] = __match_all_sync(0xffffffffu, x / 1000, &all);
    to[5] = all;
    to[6] = __match_any_sync(0xffffffffu, (u64)(x % 3) << 40);
    if (x & 1) to[7] = __ballot_sync(to[0], x & 2);
    else to[7] = 0;
}

// The lanes that take a branch together, and the number of a lane among them.
KERNEL active_lanes(const int* in, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned mask = 0, less, self;
    if (in[i] % 3 == 0) mask = __activemask();
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(less));
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(self));
    out[i * 2] = mask;
    out[i * 2 + 1] = __popc(mask & less) | (self == 1u << (threadIdx.x & 31)) << 8;
}

// Five shuffles a thread: by index, up and down within a width of 8, by exclusive or, of 64 bits.
KERNEL shuffles(const int* in, u64* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    u64* to = out + i * 5;
    to[0] = (unsigned)__shfl_sync(0xffffffffu, x, threadIdx.x * 7 + 3);
    to[1] = (unsigned)__shfl_up_sync(0xffffffffu, x, 3, 8);
    to[2] = (unsigned)__shfl_down_sync(0xffffffffu, x, 2, 8);
    to[3] = (unsigned)__shfl_xor_sync(0xffffffffu, x, 5, 16);
    to[4] = __shfl_sync(0xffffffffu, (u64)x << 32 | threadIdx.x, 9, 16);
}

// Each lane walks its own number of steps.
KERNEL collatz(const unsigned* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x = in[i];
    int steps = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        if (++steps == 1000) break;
    }
    out[i] = steps;
}

// Nested divergence with a switch, continue and break.
KERNEL branches(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], sum = 0;
    for (int k = 0; k < 20; k++) {
        if ((x + k) % 7 == 3) continue;
        switch ((x ^ k) & 7) {
            case 0: sum += k; break;
            case 1: sum -= x; break;
            case 2: for (int j = 0; j < (x & 3); j++) sum += j * k; break;
            case 3: sum ^= 0x55; break;
            case 4: sum = sum * 3 + 1; break;
            case 5: if (sum > 1000) { out[i] = sum; return; } break;
            default: sum += 2; break;
        }
        if (sum < -500) break;
    }
    out[i] = sum;
}

// Every thread takes the lock: a lane that spins must not starve the one that holds it.
KERNEL spin_lock(int* lock, int* counter) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    volatile int* value = counter;
    *value = *value + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// The older shape: the critical section is inside of the loop.
KERNEL spin_lock_inside(int* lock, int* counter) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            volatile int* value = counter;
            *value = *value + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Lane 0 waits for a flag that lane 1 raises later.
KERNEL lane_handshake(int* flag, int* out) {
    volatile int* raised = flag + blockIdx.x;
    if (threadIdx.x == 0) {
        while (*raised == 0) {}
        out[blockIdx.x] = *raised * 2;
    } else if (threadIdx.x == 1) {
        *raised = 21 + blockIdx.x;
    }
}

// Half of the threads leave before a barrier; the rest still meet there.
KERNEL early_return(const int* in, int* out, int n) {
    __shared__ int values[256];
    if (threadIdx.x >= n) return;
    values[threadIdx.x] = in[blockIdx.x * n + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * n + threadIdx.x] = values[n - 1 - threadIdx.x];
}

// Named barriers: warps 0-1 produce and arrive, warps 2-3 consume; blockDim.x = 128.
KERNEL producer_consumer(const int* in, int* out, int rounds) {
    __shared__ int buffer[64];
    int t = threadIdx.x;
    for (int round = 0; round < rounds; round++) {
        if (t < 64) {
            if (round > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
            buffer[t] = in[round * 64 + t] * 3;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[round * 64 + t - 64] = buffer[127 - t] + 1;
            if (round + 1 < rounds) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
}

// Each pair of warps meets at its own barrier and reduces a predicate; blockDim.x = 128.
KERNEL named_reductions(const int* in, int* out) {
    int t = threadIdx.x, name = 1 + t / 64, x = in[t], count, any, all;
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 0; bar.red.popc.u32 %0, %2, 64, p; }" : "=r"(count)
        : "r"(x), "r"(name) : "memory");
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 0; bar.red.or.pred q, %2, 64, p; selp.s32 %0, 1, 0, q; }"
        : "=r"(any) : "r"(x), "r"(name) : "memory");
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 0; bar.red.and.pred q, %2, 64, p; selp.s32 %0, 1, 0, q; }"
        : "=r"(all) : "r"(x), "r"(name) : "memory");
    out[t] = count | any << 8 | all << 9;
}

// All blocks meet `rounds` times; a launch has to be cooperative. `arrived` starts at zero.
void grid_barrier(unsigned* arrived, unsigned goal) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile unsigned*)arrived < goal) {}
        __threadfence();
    }
    __syncthreads();
}
KERNEL grid_rounds(int* values, unsigned* arrived, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    volatile int* all = values;
    for (int round = 0; round < rounds; round++) {
        int next = all[(i + 1) % n] + all[(i + blockDim.x) % n];
        grid_barrier(arrived, (2 * round + 1) * gridDim.x);
        all[i] = next;
        grid_barrier(arrived, (2 * round + 2) * gridDim.x);
    }
}

// A barrier among some lanes only, in each branch.
KERNEL warp_barriers(int* out) {
    __shared__ volatile int cells[32];
    int lane = threadIdx.x;
    cells[lane] = lane;
    __syncwarp();
    if (lane < 12) {
        int x = cells[11 - lane];
        __syncwarp(0x00000fffu);
        cells[lane] = x * 10;
        __syncwarp(0x00000fffu);
        out[lane] = cells[(lane + 1) % 12];
    } else {
        int x = cells[43 - lane];
        __syncwarp(0xfffff000u);
        cells[lane] = x * 100;
        __syncwarp(0xfffff000u);
        out[lane] = cells[lane == 31 ? 12 : lane + 1];
    }
}

// The special registers, as a thread sees them; 16 words a thread.
KERNEL special_registers(unsigned* out) {
    unsigned linear = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned* to = out + (block * blockDim.x * blockDim.y * blockDim.z + linear) * 16;
    unsigned lane, warp, warps, dynamic, total;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm("mov.u32 %0, WARP_SZ;" : "=r"(warps));
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    to[0] = threadIdx.x; to[1] = threadIdx.y; to[2] = threadIdx.z;
    to[3] = blockIdx.x; to[4] = blockIdx.y; to[5] = blockIdx.z;
    to[6] = blockDim.x; to[7] = blockDim.y; to[8] = blockDim.z;
    to[9] = gridDim.x; to[10] = gridDim.y; to[11] = gridDim.z;
    to[12] = lane; to[13] = warp; to[14] = warps | dynamic << 8; to[15] = total >= dynamic;
}
