// Reductions: by warp shuffle, by redux, by block, over the grid (last block, two launches, atomics), along an inner or
// outer dimension, with a position (argmax), of a pair (mean and variance), and by the block-wide votes of a barrier.

#define KERNEL extern "C" __global__ void
#define infinity __int_as_float(0x7f800000)
typedef unsigned long long u64;

float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// Valid in every thread; blockDim.x is a multiple of 32.
float block_sum(float x) {
    __shared__ float partial[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_sum(x);
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? partial[lane] : 0.0f);
    __syncthreads();
    return x;
}

// One warp a row, blockDim (32, rows of a block).
KERNEL sum_rows_warp(const float* in, float* out, int rows, int columns) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32) sum += in[row * columns + i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[row] = sum;
}

// One block a row.
KERNEL sum_rows_block(const float* in, float* out, int columns) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += in[blockIdx.x * columns + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// One thread a column: the reduced dimension is the outer one.
KERNEL sum_columns(const float* in, float* out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
    for (int row = 0; row < rows; row++) sum += in[(size_t)row * columns + column];
    out[column] = sum;
}

// The classic tree over dynamic shared memory, halving with a barrier each.
KERNEL sum_tree(const float* in, float* out, int n) {
    extern __shared__ float values[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}

KERNEL sum_atomic(const float* in, float* out, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

// The block that arrives last adds all partial sums, in the order of the blocks: the same bits whichever that is.
KERNEL sum_last_block(const float* in, float* partial, unsigned* arrived, float* out, int n) {
    __shared__ bool is_last;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    float total = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) total += ((volatile float*)partial)[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *out = total;
}

// The same over two launches.
KERNEL sum_partials(const float* in, double* partial, int n) {
    __shared__ double values[256];
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    values[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = values[0];
}
KERNEL sum_finish(const double* partial, double* out, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; i++) sum += partial[i];
    if (threadIdx.x == 0) *out = sum;
}

// The first of equal maxima; one block a row.
KERNEL argmax_rows(const float* in, float* value, int* index, int columns) {
    __shared__ float best_values[32];
    __shared__ int best_indices[32];
    float best = -infinity;
    int at = 0x7fffffff;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float x = in[blockIdx.x * columns + i];
        if (x > best || (x == best && i < at)) { best = x; at = i; }
    }
    auto merge = [&]() {
        for (int offset = 16; offset > 0; offset >>= 1) {
            float other = __shfl_down_sync(0xffffffffu, best, offset);
            int other_at = __shfl_down_sync(0xffffffffu, at, offset);
            if (other > best || (other == best && other_at < at)) { best = other; at = other_at; }
        }
    };
    merge();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) { best_values[warp] = best; best_indices[warp] = at; }
    __syncthreads();
    if (warp != 0) return;
    bool exists = lane < blockDim.x / 32;
    best = exists ? best_values[lane] : -infinity;
    at = exists ? best_indices[lane] : 0x7fffffff;
    merge();
    if (lane == 0) { value[blockIdx.x] = best; index[blockIdx.x] = at; }
}

// The maximum over the grid with its position, as one 64-bit atomicMax: ordered bits above, the inverted index below.
KERNEL argmax_atomic(const float* in, u64* best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned bits = __float_as_uint(in[i]);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    atomicMax(best, (u64)bits << 32 | (unsigned)~i);
}

// Chan's merge of (count, mean, squared deviations) through shuffles; one warp a row.
KERNEL mean_variance_rows(const float* in, float* mean, float* variance, int columns) {
    float count = 0.0f, middle = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32) {
        float x = in[blockIdx.x * columns + i];
        count += 1.0f;
        float delta = x - middle;
        middle += delta / count;
        squares += delta * (x - middle);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        float other_count = __shfl_down_sync(0xffffffffu, count, offset);
        float other_middle = __shfl_down_sync(0xffffffffu, middle, offset);
        float other_squares = __shfl_down_sync(0xffffffffu, squares, offset);
        float total = count + other_count;
        if (total > 0.0f) {
            float delta = other_middle - middle;
            middle += delta * other_count / total;
            squares += other_squares + delta * delta * count * other_count / total;
        }
        count = total;
    }
    if (threadIdx.x == 0) { mean[blockIdx.x] = middle; variance[blockIdx.x] = squares / count; }
}

// Barriers that vote: how many are positive, whether all are, whether any is.
KERNEL vote_block(const int* in, int* out) {
    int x = in[blockIdx.x * blockDim.x + threadIdx.x];
    int count = __syncthreads_count(x > 0);
    int all = __syncthreads_and(x > 0);
    int any = __syncthreads_or(x > 0);
    if (threadIdx.x == 0) {
        out[blockIdx.x * 3] = count;
        out[blockIdx.x * 3 + 1] = all != 0;
        out[blockIdx.x * 3 + 2] = any != 0;
    }
}

#if __CUDA_ARCH__ >= 800
// Each half of a warp reduces among its own lanes; eight results a thread.
KERNEL redux_half_warps(const int* in, int* out) {
    unsigned mask = (threadIdx.x & 16) ? 0xffff0000u : 0x0000ffffu;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = in[i];
    int* to = out + i * 8;
    if (threadIdx.x & 16) {
        to[0] = __reduce_add_sync(mask, x);
        to[1] = __reduce_min_sync(mask, x);
        to[2] = __reduce_max_sync(mask, x);
    } else {
        to[0] = __reduce_add_sync(mask, x);
        to[1] = __reduce_min_sync(mask, x);
        to[2] = __reduce_max_sync(mask, x);
    }
    to[3] = (int)__reduce_min_sync(mask, (unsigned)x);
    to[4] = (int)__reduce_max_sync(mask, (unsigned)x);
    to[5] = (int)__reduce_and_sync(mask, (unsigned)x);
    to[6] = (int)__reduce_or_sync(mask, (unsigned)x);
    to[7] = (int)__reduce_xor_sync(mask, (unsigned)x);
}
#endif
