// Scans (in a warp, in a block, over the grid with decoupled look-back) and sorts (bitonic, one radix pass).

#define KERNEL extern "C" __global__ void
typedef unsigned long long u64;

int warp_scan(int x) {
    int lane = threadIdx.x & 31;
    for (int offset = 1; offset < 32; offset <<= 1) {
        int other = __shfl_up_sync(0xffffffffu, x, offset);
        if (lane >= offset) x += other;
    }
    return x;
}

// Inclusive, valid in every thread; blockDim.x is a multiple of 32.
int block_scan(int x, int* total) {
    __shared__ int sums[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_scan(x);
    if (lane == 31) sums[warp] = x;
    __syncthreads();
    if (warp == 0) {
        int sum = warp_scan(lane < warps ? sums[lane] : 0);
        if (lane < warps) sums[lane] = sum;
    }
    __syncthreads();
    if (warp > 0) x += sums[warp - 1];
    *total = sums[warps - 1];
    __syncthreads();
    return x;
}

// One block a row, each row scanned in chunks of the block's size.
KERNEL scan_rows(const int* in, int* out, int columns) {
    int carry = 0;
    for (int start = 0; start < columns; start += blockDim.x) {
        int i = start + threadIdx.x, total;
        int x = i < columns ? in[blockIdx.x * columns + i] : 0;
        x = block_scan(x, &total);
        if (i < columns) out[blockIdx.x * columns + i] = carry + x;
        carry += total;
    }
}

// Blelloch's exclusive scan in shared memory, up-sweep and down-sweep; n = 2 * blockDim.x.
KERNEL scan_exclusive_blelloch(const float* in, float* out) {
    extern __shared__ float tree[];
    int n = blockDim.x * 2, t = threadIdx.x;
    tree[2 * t] = in[blockIdx.x * n + 2 * t];
    tree[2 * t + 1] = in[blockIdx.x * n + 2 * t + 1];
    int offset = 1;
    for (int d = n >> 1; d > 0; d >>= 1, offset <<= 1) {
        __syncthreads();
        if (t < d) tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
    }
    if (t == 0) tree[n - 1] = 0.0f;
    for (int d = 1; d < n; d <<= 1) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1;
            float moved = tree[low];
            tree[low] = tree[high];
            tree[high] += moved;
        }
    }
    __syncthreads();
    out[blockIdx.x * n + 2 * t] = tree[2 * t];
    out[blockIdx.x * n + 2 * t + 1] = tree[2 * t + 1];
}

// One launch over any number of blocks. `status` holds, per block, 0: nothing, 1: its own sum, 2: the sum up to it; the
// sum below. Blocks take their number from `ticket`, so every block a block waits for has started.
KERNEL scan_lookback(const int* in, int* out, u64* status, unsigned* ticket, int n) {
    __shared__ unsigned taken;
    __shared__ int before;
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1);
    __syncthreads();
    unsigned block = taken;
    int i = block * blockDim.x + threadIdx.x, total;
    int x = block_scan(i < n ? in[i] : 0, &total);
    volatile u64* states = status;
    if (threadIdx.x == 0) {
        int sum = 0;
        if (block > 0) {
            atomicExch(&status[block], 1ull << 32 | (unsigned)total);
            for (int at = (int)block - 1;; ) {
                u64 state = states[at];
                if (state >> 32 == 0) continue;
                sum += (int)(unsigned)state;
                if (state >> 32 == 2) break;
                at--;
            }
        }
        __threadfence();
        atomicExch(&status[block], 2ull << 32 | (unsigned)(sum + total));
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = before + x;
}

// Each block sorts its own 2 * blockDim.x keys with their values; a power of two.
KERNEL bitonic_sort_pairs(float* keys, int* values) {
    extern __shared__ float shared_keys[];
    int n = blockDim.x * 2;
    int* shared_values = (int*)(shared_keys + n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        shared_keys[i] = keys[blockIdx.x * n + i];
        shared_values[i] = values[blockIdx.x * n + i];
    }
    for (int size = 2; size <= n; size <<= 1) {
        for (int stride = size / 2; stride > 0; stride >>= 1) {
            __syncthreads();
            int low = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), high = low + stride;
            bool ascending = (low & size) == 0;
            float a = shared_keys[low], b = shared_keys[high];
            if ((a > b) == ascending) {
                shared_keys[low] = b;
                shared_keys[high] = a;
                int moved = shared_values[low];
                shared_values[low] = shared_values[high];
                shared_values[high] = moved;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        keys[blockIdx.x * n + i] = shared_keys[i];
        values[blockIdx.x * n + i] = shared_values[i];
    }
}

// One step of a bitonic sort in global memory.
KERNEL bitonic_step(int* keys, int size, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ stride;
    if (other <= i) return;
    int a = keys[i], b = keys[other];
    if ((a > b) == ((i & size) == 0)) {
        keys[i] = b;
        keys[other] = a;
    }
}

// A warp sorts 32 keys in registers.
KERNEL bitonic_warp(unsigned* keys) {
    int lane = threadIdx.x & 31;
    unsigned* at = keys + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = *at;
    for (int size = 2; size <= 32; size <<= 1) {
        for (int stride = size / 2; stride > 0; stride >>= 1) {
            unsigned other = __shfl_xor_sync(0xffffffffu, x, stride);
            bool keep_low = ((lane & stride) == 0) == ((lane & size) == 0);
            x = keep_low ? min(x, other) : max(x, other);
        }
    }
    *at = x;
}

// Radix sort by 4 bits: count digits by block, scan the counts (digit-major) with one block, place keys stably.
KERNEL radix_count(const unsigned* keys, int* counts, int shift, int n) {
    __shared__ int local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[keys[i] >> shift & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}
KERNEL radix_offsets(int* counts, int n) {
    int carry = 0;
    for (int start = 0; start < n; start += blockDim.x) {
        int i = start + threadIdx.x, total;
        int own = i < n ? counts[i] : 0;
        int x = block_scan(own, &total);
        if (i < n) counts[i] = carry + x - own;
        carry += total;
    }
}
// The rank among equal digits: by match within the warp, by a table of the warps within the block.
KERNEL radix_place(const unsigned* keys, const int* offsets, unsigned* out, int shift, int n) {
    __shared__ int of_warp[16][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int k = threadIdx.x; k < 16 * 32; k += blockDim.x) of_warp[k / 32][k % 32] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned key = i < n ? keys[i] : 0;
    unsigned digit = i < n ? key >> shift & 15 : 16 + 0;
    unsigned same = __match_any_sync(0xffffffffu, digit);
    int rank = __popc(same & ((1u << lane) - 1));
    if (i < n && rank == 0) of_warp[digit][warp] = __popc(same);
    __syncthreads();
    if (threadIdx.x < 16) {
        int sum = 0;
        for (int w = 0; w < warps; w++) {
            int count = of_warp[threadIdx.x][w];
            of_warp[threadIdx.x][w] = sum;
            sum += count;
        }
    }
    __syncthreads();
    if (i < n) out[offsets[digit * gridDim.x + blockIdx.x] + of_warp[digit][warp] + rank] = key;
}
