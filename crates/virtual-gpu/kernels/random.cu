// Philox 4x32-10: raw numbers, uniform and normal floats, dropout.

#define KERNEL extern "C" __global__ void
typedef unsigned long long u64;

uint4 philox(u64 counter, u64 stream, u64 seed) {
    unsigned c[4] = {(unsigned)counter, (unsigned)(counter >> 32), (unsigned)stream, (unsigned)(stream >> 32)};
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
        unsigned high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
        unsigned next0 = high1 ^ c[1] ^ k0, next2 = high0 ^ c[3] ^ k1;
        c[0] = next0;
        c[1] = low1;
        c[2] = next2;
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c[0], c[1], c[2], c[3]);
}

// n is the number of groups of four.
KERNEL philox_u32(uint4* out, u64 seed, u64 offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = philox(offset + i, 0, seed);
}

// In [0, 1), multiples of 2^-24.
KERNEL philox_uniform(float4* out, u64 seed, u64 offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 r = philox(offset + i, 0, seed);
    const float scale = 1.0f / 16777216.0f;
    out[i] = make_float4((r.x >> 8) * scale, (r.y >> 8) * scale, (r.z >> 8) * scale, (r.w >> 8) * scale);
}

// Box and Muller; the logarithm's argument is in (0, 1].
KERNEL philox_normal(float4* out, u64 seed, u64 offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 r = philox(offset + i, 0, seed);
    const float scale = 1.0f / 16777216.0f;
    float radius0 = sqrtf(-2.0f * logf(((r.x >> 8) + 1) * scale));
    float radius1 = sqrtf(-2.0f * logf(((r.z >> 8) + 1) * scale));
    float sin0, cos0, sin1, cos1;
    sincospif(2.0f * (r.y >> 8) * scale, &sin0, &cos0);
    sincospif(2.0f * (r.w >> 8) * scale, &sin1, &cos1);
    out[i] = make_float4(radius0 * cos0, radius0 * sin0, radius1 * cos1, radius1 * sin1);
}

// Keeps an element with probability 1 - p; four elements a thread share one counter.
KERNEL dropout(const float* in, float* out, unsigned char* kept, float p, u64 seed, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    uint4 r = philox(i / 4, 1, seed);
    unsigned numbers[4] = {r.x, r.y, r.z, r.w};
    for (int k = 0; k < 4; k++) {
        if (i + k >= n) return;
        bool keep = (numbers[k] >> 8) * (1.0f / 16777216.0f) >= p;
        kept[i + k] = keep;
        out[i + k] = keep ? in[i + k] / (1.0f - p) : 0.0f;
    }
}
