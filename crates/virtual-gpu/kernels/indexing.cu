// Kernels whose addresses come from data or from shapes: gather, scatter, histogram, embedding, transpose, im2col,
// convolution, pooling, one-hot, concatenation, stream compaction.

#define KERNEL extern "C" __global__ void
#define infinity __int_as_float(0x7f800000)
typedef long long i64;

// out[i, j] = in[index[i], j]; a negative index counts from the end.
KERNEL gather_rows(const float* in, const i64* index, float* out, int rows, int columns, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * columns) return;
    i64 row = index[i / columns];
    if (row < 0) row += rows;
    out[i] = in[row * columns + i % columns];
}

// out[index[i], j] += in[i, j]
KERNEL scatter_add_rows(const float* in, const i64* index, float* out, int columns, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * columns) atomicAdd(&out[index[i / columns] * columns + i % columns], in[i]);
}

// out[permutation[i]] = in[i]
KERNEL scatter_unique(const int* in, const int* permutation, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[permutation[i]] = in[i];
}

KERNEL embedding_forward(const float4* table, const int* tokens, float4* out, int width4, int count) {
    int token = blockIdx.x;
    if (token >= count) return;
    for (int i = threadIdx.x; i < width4; i += blockDim.x)
        out[token * width4 + i] = table[(size_t)tokens[token] * width4 + i];
}

KERNEL histogram(const unsigned char* in, unsigned* counts, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i]) atomicAdd(&counts[i], local[i]);
}

// Block (32, 8), a 32x32 tile with a padded row.
KERNEL transpose(const float* in, float* out, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (row + i < rows && column < columns) tile[threadIdx.y + i][threadIdx.x] = in[(row + i) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (row + i < columns && column < rows) out[(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}

// The same without the padding: every column of the tile is one bank.
KERNEL transpose_conflicts(const float* in, float* out, int rows, int columns) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (row + i < rows && column < columns) tile[threadIdx.y + i][threadIdx.x] = in[(row + i) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (row + i < columns && column < rows) out[(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}

struct Window {
    int batch, channels, height, width;
    int kernel, stride, padding;
    int out_channels, out_height, out_width;
};

// out[(c, ky, kx), (b, y, x)]
KERNEL im2col(const float* in, float* out, Window w) {
    int pixels = w.batch * w.out_height * w.out_width, total = pixels * w.channels * w.kernel * w.kernel;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int x = i % w.out_width, y = i / w.out_width % w.out_height, b = i / (w.out_width * w.out_height) % w.batch;
        int tap = i / pixels, kx = tap % w.kernel, ky = tap / w.kernel % w.kernel, c = tap / (w.kernel * w.kernel);
        int from_y = y * w.stride + ky - w.padding, from_x = x * w.stride + kx - w.padding;
        bool inside = from_y >= 0 && from_y < w.height && from_x >= 0 && from_x < w.width;
        out[i] = inside ? in[((b * w.channels + c) * w.height + from_y) * w.width + from_x] : 0.0f;
    }
}

// One output a thread, fused multiply-adds in the order channel, row, column.
KERNEL convolution(const float* in, const float* weight, const float* bias, float* out, Window w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w.batch * w.out_channels * w.out_height * w.out_width) return;
    int x = i % w.out_width, y = i / w.out_width % w.out_height;
    int o = i / (w.out_width * w.out_height) % w.out_channels, b = i / (w.out_width * w.out_height * w.out_channels);
    float sum = bias[o];
    for (int c = 0; c < w.channels; c++)
        for (int ky = 0; ky < w.kernel; ky++) {
            int from_y = y * w.stride + ky - w.padding;
            if (from_y < 0 || from_y >= w.height) continue;
            for (int kx = 0; kx < w.kernel; kx++) {
                int from_x = x * w.stride + kx - w.padding;
                if (from_x < 0 || from_x >= w.width) continue;
                sum = fmaf(in[((b * w.channels + c) * w.height + from_y) * w.width + from_x],
                           weight[((o * w.channels + c) * w.kernel + ky) * w.kernel + kx], sum);
            }
        }
    out[i] = sum;
}

// The maximum and where in its plane it was; then the mean of what is inside.
KERNEL pool_max(const float* in, float* out, int* where, Window w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w.batch * w.channels * w.out_height * w.out_width) return;
    int x = i % w.out_width, y = i / w.out_width % w.out_height, plane = i / (w.out_width * w.out_height);
    float best = -infinity;
    int at = -1;
    for (int ky = 0; ky < w.kernel; ky++)
        for (int kx = 0; kx < w.kernel; kx++) {
            int from_y = y * w.stride + ky - w.padding, from_x = x * w.stride + kx - w.padding;
            if (from_y < 0 || from_y >= w.height || from_x < 0 || from_x >= w.width) continue;
            float value = in[(plane * w.height + from_y) * w.width + from_x];
            if (value > best) { best = value; at = from_y * w.width + from_x; }
        }
    out[i] = best;
    where[i] = at;
}
KERNEL pool_mean(const float* in, float* out, Window w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w.batch * w.channels * w.out_height * w.out_width) return;
    int x = i % w.out_width, y = i / w.out_width % w.out_height, plane = i / (w.out_width * w.out_height);
    int top = max(y * w.stride - w.padding, 0), bottom = min(y * w.stride - w.padding + w.kernel, w.height);
    int left = max(x * w.stride - w.padding, 0), right = min(x * w.stride - w.padding + w.kernel, w.width);
    float sum = 0.0f;
    for (int from_y = top; from_y < bottom; from_y++)
        for (int from_x = left; from_x < right; from_x++) sum += in[(plane * w.height + from_y) * w.width + from_x];
    out[i] = sum / ((bottom - top) * (right - left));
}

KERNEL one_hot(const int* index, signed char* out, int classes, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * classes) out[i] = index[i / classes] == i % classes;
}

// Up to eight inputs of one type, one after the other.
struct Parts {
    const short* from[8];
    int end[8];
    int count;
};
KERNEL concatenate(Parts parts, short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int part = 0;
    while (part < parts.count - 1 && i >= parts.end[part]) part++;
    out[i] = parts.from[part][i - (part ? parts.end[part - 1] : 0)];
}

// Keeps the positive values, in no given order: one atomic a warp reserves room for its lanes.
KERNEL compact_positive(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool keep = i < n && in[i] > 0;
    unsigned lanes = __ballot_sync(0xffffffffu, keep);
    int at = 0;
    if (lanes != 0) {
        int leader = __ffs(lanes) - 1;
        if (lane == leader) at = atomicAdd(count, __popc(lanes));
        at = __shfl_sync(0xffffffffu, at, leader);
        if (keep) out[at + __popc(lanes & ((1u << lane) - 1))] = in[i];
    }
}

// The binary search of each value in a sorted table: the number of elements below it.
KERNEL lower_bound(const i64* sorted, int length, const i64* values, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int low = 0, high = length;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < values[i]) low = middle + 1;
        else high = middle;
    }
    out[i] = low;
}
