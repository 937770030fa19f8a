// Softmax, cross entropy, layer and RMS normalisation (forward and backward) and the AdamW step.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
#define infinity __int_as_float(0x7f800000)

template <class Op> float block_reduce(float x, float identity, Op op) {
    __shared__ float partial[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1) x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    x = lane < warps ? partial[lane] : identity;
    for (int offset = 16; offset > 0; offset >>= 1) x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
    __syncthreads();
    return x;
}
float block_sum(float x) { return block_reduce(x, 0.0f, [](float a, float b) { return a + b; }); }
float block_max(float x) { return block_reduce(x, -infinity, [](float a, float b) { return fmaxf(a, b); }); }

KERNEL softmax_f32(const float* in, float* out, int columns) {
    const float* row = in + (size_t)blockIdx.x * columns;
    float top = -infinity, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - top);
    float scale = 1.0f / block_sum(sum);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[(size_t)blockIdx.x * columns + i] = expf(row[i] - top) * scale;
}

KERNEL softmax_bf16(const __nv_bfloat16* in, __nv_bfloat16* out, int columns) {
    const __nv_bfloat16* row = in + (size_t)blockIdx.x * columns;
    float top = -infinity, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, __bfloat162float(row[i]));
    top = block_max(top);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(__bfloat162float(row[i]) - top);
    float scale = __fdividef(1.0f, block_sum(sum));
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[(size_t)blockIdx.x * columns + i] = __float2bfloat16_rn(__expf(__bfloat162float(row[i]) - top) * scale);
}

KERNEL softmax_backward(const float* y, const float* dy, float* dx, int columns) {
    size_t row = (size_t)blockIdx.x * columns;
    float dot = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) dot += y[row + i] * dy[row + i];
    dot = block_sum(dot);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) dx[row + i] = y[row + i] * (dy[row + i] - dot);
}

// Per row the loss, and its gradient for a mean over the rows.
KERNEL cross_entropy(const float* logits, const int* target, float* loss, float* gradient, int columns) {
    size_t row = (size_t)blockIdx.x * columns;
    float top = -infinity, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, logits[row + i]);
    top = block_max(top);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(logits[row + i] - top);
    sum = block_sum(sum);
    int wanted = target[blockIdx.x];
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + top - logits[row + wanted];
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        gradient[row + i] = (expf(logits[row + i] - top) / sum - (i == wanted ? 1.0f : 0.0f)) / gridDim.x;
}

KERNEL layernorm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean, float* inverse,
                         int columns, float epsilon) {
    size_t row = (size_t)blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[row + i];
    float middle = block_sum(sum) / columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float d = x[row + i] - middle;
        squares += d * d;
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
    if (threadIdx.x == 0) { mean[blockIdx.x] = middle; inverse[blockIdx.x] = scale; }
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        y[row + i] = (x[row + i] - middle) * scale * weight[i] + bias[i];
}

// The gradients of weight and bias are added up by atomics, so they must be zero before.
KERNEL layernorm_backward(const float* x, const float* weight, const float* mean, const float* inverse, const float* dy,
                          float* dx, float* dweight, float* dbias, int columns) {
    size_t row = (size_t)blockIdx.x * columns;
    float middle = mean[blockIdx.x], scale = inverse[blockIdx.x], sum = 0.0f, dot = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float normal = (x[row + i] - middle) * scale, g = dy[row + i] * weight[i];
        sum += g;
        dot += g * normal;
        atomicAdd(&dweight[i], dy[row + i] * normal);
        atomicAdd(&dbias[i], dy[row + i]);
    }
    sum = block_sum(sum) / columns;
    dot = block_sum(dot) / columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float normal = (x[row + i] - middle) * scale;
        dx[row + i] = (dy[row + i] * weight[i] - sum - normal * dot) * scale;
    }
}

KERNEL rmsnorm_f16(const __half* x, const __half* weight, __half* y, int columns, float epsilon) {
    size_t row = (size_t)blockIdx.x * columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float v = __half2float(x[row + i]);
        squares += v * v;
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        y[row + i] = __float2half_rn(__half2float(x[row + i]) * scale * __half2float(weight[i]));
}

// c1 = 1 - beta1^t and c2 = 1 - beta2^t come from the host.
KERNEL adamw(float* parameter, const float* gradient, float* first, float* second, int n, float rate, float beta1,
             float beta2, float epsilon, float decay, float c1, float c2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = gradient[i], p = parameter[i];
    float m = beta1 * first[i] + (1.0f - beta1) * g;
    float v = beta2 * second[i] + (1.0f - beta2) * g * g;
    first[i] = m;
    second[i] = v;
    p -= rate * decay * p;
    parameter[i] = p - rate * (m / c1) / (sqrtf(v / c2) + epsilon);
}

// Parameters in f32 and a bf16 copy for the next forward pass, over several tensors in one launch.
struct Tensors {
    float* parameter[8];
    const __nv_bfloat16* gradient[8];
    __nv_bfloat16* copy[8];
    int length[8];
};
KERNEL sgd_many(Tensors all, float rate) {
    int tensor = blockIdx.y;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < all.length[tensor]; i += gridDim.x * blockDim.x) {
        float p = fmaf(-rate, __bfloat162float(all.gradient[tensor][i]), all.parameter[tensor][i]);
        all.parameter[tensor][i] = p;
        all.copy[tensor][i] = __float2bfloat16_rn(p);
    }
}
