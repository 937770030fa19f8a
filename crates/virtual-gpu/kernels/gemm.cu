// Matrix products on the ordinary units, row-major C = A B: f32 with 16x16 tiles, f32 with 64x64 tiles held in
// registers, f64, any shape with bounds checks, and matrix times vector.

#define KERNEL extern "C" __global__ void

// Block (16, 16), one output a thread; sizes are multiples of 16.
KERNEL sgemm_naive(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float tile_a[16][16], tile_b[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 16) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * k + start + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum = fmaf(tile_a[threadIdx.y][i], tile_b[i][threadIdx.x], sum);
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// Block of 256 threads, 64x64 outputs, 4x4 a thread, steps of 16 along k; m and n multiples of 64, k of 16. A's tile is
// stored transposed, so that both operands of a step are one float4; the next tile is fetched during the products.
KERNEL sgemm_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ __align__(16) float tile_a[2][16][64];
    __shared__ __align__(16) float tile_b[2][16][64];
    int t = threadIdx.x;
    int across = t % 16 * 4, down = t / 16 * 4;
    const float* from_a = a + (size_t)(blockIdx.y * 64 + t / 4) * k + t % 4 * 4;
    const float* from_b = b + (size_t)(t / 16) * n + blockIdx.x * 64 + t % 16 * 4;
    float sum[4][4] = {};
    float4 next_a = *(const float4*)from_a, next_b = *(const float4*)from_b;
    int buffer = 0;
    for (int start = 0; start < k; start += 16) {
        tile_a[buffer][t % 4 * 4 + 0][t / 4] = next_a.x;
        tile_a[buffer][t % 4 * 4 + 1][t / 4] = next_a.y;
        tile_a[buffer][t % 4 * 4 + 2][t / 4] = next_a.z;
        tile_a[buffer][t % 4 * 4 + 3][t / 4] = next_a.w;
        *(float4*)&tile_b[buffer][t / 16][t % 16 * 4] = next_b;
        __syncthreads();
        if (start + 16 < k) {
            from_a += 16;
            from_b += (size_t)16 * n;
            next_a = *(const float4*)from_a;
            next_b = *(const float4*)from_b;
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float4 x = *(const float4*)&tile_a[buffer][i][down];
            float4 y = *(const float4*)&tile_b[buffer][i][across];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int p = 0; p < 4; p++)
#pragma unroll
                for (int q = 0; q < 4; q++) sum[p][q] = fmaf(xs[p], ys[q], sum[p][q]);
        }
        buffer ^= 1;
    }
    for (int p = 0; p < 4; p++)
        *(float4*)&c[(size_t)(blockIdx.y * 64 + down + p) * n + blockIdx.x * 64 + across] =
            make_float4(sum[p][0], sum[p][1], sum[p][2], sum[p][3]);
}

// Block (16, 16), any shape; C = alpha A B + beta C.
KERNEL sgemm_any(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta) {
    __shared__ float tile_a[16][17], tile_b[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 16) {
        int i = start + threadIdx.x, j = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && i < k ? a[row * k + i] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = column < n && j < k ? b[j * n + column] : 0.0f;
        __syncthreads();
        for (int s = 0; s < 16; s++) sum += tile_a[threadIdx.y][s] * tile_b[s][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

// Block (16, 16), any shape, one f64 output a thread, straight from global memory, fused multiply-adds in order of k.
KERNEL dgemm(const double* a, const double* b, double* c, int m, int n, int k) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || column >= n) return;
    double sum = 0.0;
    for (int i = 0; i < k; i++) sum = fma(a[row * k + i], b[i * n + column], sum);
    c[row * n + column] = sum;
}

// One warp a row.
KERNEL sgemv(const float* a, const float* x, float* y, int m, int k) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= m) return;
    float sum = 0.0f;
    for (int i = lane; i < k; i += 32) sum += __ldg(&a[(size_t)row * k + i]) * __ldg(&x[i]);
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (lane == 0) y[row] = sum;
}
