// Random numbers: every element is a function of seed, offset and its place; see Note [Random numbers] of fireclay-core.
// A thread makes what comes of one block of four random words.

#include "device.cuh"

struct Words {
    u32 at[4];
};

__device__ inline Words philox(u64 seed, u64 offset, u64 block) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)offset, c3 = (u32)(offset >> 32);
    for (int round = 0; round < 10; ++round) {
        const u64 first = 0xD2511F53ull * c0, second = 0xCD9E8D57ull * c2;
        c0 = (u32)(second >> 32) ^ c1 ^ k0;
        c1 = (u32)second;
        c2 = (u32)(first >> 32) ^ c3 ^ k1;
        c3 = (u32)first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

__device__ inline u64 join(u32 low, u32 high) { return (u64)low | (u64)high << 32; }

__device__ inline float uniform(u32 word) { return (float)(word >> 8) * 0x1p-24f; }
__device__ inline double uniform(u64 bits) { return (double)(i64)(bits >> 11) * 0x1p-53; }

__device__ inline float radius(u32 word) {
    const float high = (float)(word >> 16), low = (float)(word & 0xffffu);
    return high * 0x1p-16f + (low + 0.5f) * 0x1p-32f;
}
__device__ inline double radius(u64 bits) { return 1.0 - uniform(bits); }

extern "C" __global__ void uniform_f32(float* out, i64 count, u64 seed, u64 offset, float low, float span) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int i = 0; i < 4; ++i) {
        if (4 * block + i < count) {
            out[4 * block + i] = uniform(words.at[i]) * span + low;
        }
    }
}

extern "C" __global__ void uniform_f64(double* out, i64 count, u64 seed, u64 offset, double low, double span) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int i = 0; i < 2; ++i) {
        if (2 * block + i < count) {
            out[2 * block + i] = uniform(join(words.at[2 * i], words.at[2 * i + 1])) * span + low;
        }
    }
}

extern "C" __global__ void normal_f32(float* out, i64 count, u64 seed, u64 offset, float mean, float std) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int pair = 0; pair < 2; ++pair) {
        float second;
        const float first = arith_box_muller(radius(words.at[2 * pair]), uniform(words.at[2 * pair + 1]), &second);
        const i64 at = 4 * block + 2 * pair;
        if (at < count) {
            out[at] = first * std + mean;
        }
        if (at + 1 < count) {
            out[at + 1] = second * std + mean;
        }
    }
}

extern "C" __global__ void normal_f64(double* out, i64 count, u64 seed, u64 offset, double mean, double std) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    double second;
    const double first = arith_box_muller(
        radius(join(words.at[0], words.at[1])), uniform(join(words.at[2], words.at[3])), &second
    );
    if (2 * block < count) {
        out[2 * block] = first * std + mean;
    }
    if (2 * block + 1 < count) {
        out[2 * block + 1] = second * std + mean;
    }
}

extern "C" __global__ void integers(i64* out, i64 count, u64 seed, u64 offset, i64 low, u64 bound) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int i = 0; i < 2; ++i) {
        if (2 * block + i < count) {
            const u64 bits = join(words.at[2 * i], words.at[2 * i + 1]);
            out[2 * block + i] = (i64)((u64)low + __umul64hi(bits, bound));
        }
    }
}

extern "C" __global__ void bernoulli_f32(float* out, i64 count, u64 seed, u64 offset, double p) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int i = 0; i < 4; ++i) {
        if (4 * block + i < count) {
            out[4 * block + i] = (double)uniform(words.at[i]) < p ? 1.0f : 0.0f;
        }
    }
}

// Zero with probability 1 - kept, else scaled.
template <class T>
__device__ void dropout(const T* x, T* out, i64 count, u64 seed, u64 offset, double kept, T scale) {
    const i64 block = thread_of_launch();
    const Words words = philox(seed, offset, block);
    for (int i = 0; i < 4; ++i) {
        const i64 at = 4 * block + i;
        if (at < count) {
            out[at] = (double)uniform(words.at[i]) < kept ? x[at] * scale : T(0);
        }
    }
}

extern "C" __global__ void dropout_f32(const float* x, float* out, i64 count, u64 seed, u64 offset, double kept, float scale) {
    dropout(x, out, count, seed, offset, kept, scale);
}
extern "C" __global__ void dropout_f64(const double* x, double* out, i64 count, u64 seed, u64 offset, double kept, double scale) {
    dropout(x, out, count, seed, offset, kept, scale);
}
