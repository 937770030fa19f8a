// Causal attention in f32 with a running maximum: one warp a query, and tiles of keys and values in shared memory.

#define KERNEL extern "C" __global__ void
#define infinity __int_as_float(0x7f800000)

// Head size 64, two elements a lane; grid (queries / warps of a block, heads); tensors are [head, position, 64].
KERNEL attention_warp(const float* q, const float* k, const float* v, float* out, int length, float scale) {
    int lane = threadIdx.x % 32, query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (query >= length) return;
    size_t head = (size_t)blockIdx.y * length * 64;
    const float2* row = (const float2*)(q + head + query * 64);
    float2 own = row[lane], sum = make_float2(0.0f, 0.0f);
    float top = -infinity, total = 0.0f;
    for (int key = 0; key <= query; key++) {
        float2 other = ((const float2*)(k + head + key * 64))[lane];
        float score = own.x * other.x + own.y * other.y;
        for (int offset = 16; offset > 0; offset >>= 1) score += __shfl_xor_sync(0xffffffffu, score, offset);
        score *= scale;
        float next = fmaxf(top, score), shrink = expf(top - next), weight = expf(score - next);
        float2 value = ((const float2*)(v + head + key * 64))[lane];
        sum.x = sum.x * shrink + weight * value.x;
        sum.y = sum.y * shrink + weight * value.y;
        total = total * shrink + weight;
        top = next;
    }
    ((float2*)(out + head + query * 64))[lane] = make_float2(sum.x / total, sum.y / total);
}

// Head size 32; a block of 32 threads owns 32 queries, one a thread, and walks over tiles of 32 keys.
KERNEL attention_tiled(const float* q, const float* k, const float* v, float* out, int length, float scale) {
    __shared__ __align__(16) float keys[32][32], values[32][32];
    int t = threadIdx.x, query = blockIdx.x * 32 + t;
    size_t head = (size_t)blockIdx.y * length * 32;
    float own[32], sum[32];
    for (int d = 0; d < 32; d++) {
        own[d] = query < length ? q[head + query * 32 + d] * scale : 0.0f;
        sum[d] = 0.0f;
    }
    float top = -infinity, total = 0.0f;
    for (int start = 0; start <= blockIdx.x * 32; start += 32) {
        __syncthreads();
        for (int i = 0; i < 32; i++) {
            bool inside = start + i < length;
            keys[i][t] = inside ? k[head + (start + i) * 32 + t] : 0.0f;
            values[i][t] = inside ? v[head + (start + i) * 32 + t] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 32 && start + i <= query; i++) {
            float score = 0.0f;
            for (int d = 0; d < 32; d++) score += own[d] * keys[i][d];
            float next = fmaxf(top, score), shrink = expf(top - next), weight = expf(score - next);
            for (int d = 0; d < 32; d++) sum[d] = sum[d] * shrink + weight * values[i][d];
            total = total * shrink + weight;
            top = next;
        }
    }
    if (query < length)
        for (int d = 0; d < 32; d++) out[head + query * 32 + d] = sum[d] / total;
}
