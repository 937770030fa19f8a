// State spaces: dynamic shared memory, constant arrays, initialised globals, local arrays with a computed index,
// pointers that may be to shared or global memory, volatile, cache hints, every vector width.

#define KERNEL extern "C" __global__ void
typedef unsigned long long u64;

__constant__ float coefficients[8] = {0.5f, -1.0f, 0.25f, 2.0f, -0.125f, 1.5f, -3.0f, 0.0625f};
__constant__ int settings[4]; // written by the host
__device__ int primes[10] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29};
__device__ u64 launches = 1000;
__device__ char message[16] = "virtual gpu";
__device__ int* pointer_to_prime = &primes[4];
__device__ int scratch[64]; // zero at load

// Horner's rule over the constants, times a setting of the host.
KERNEL polynomial(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 7; k >= 0; k--) sum = fmaf(sum, in[i], coefficients[k]);
    out[i] = sum * settings[i & 3];
}

// What the globals held at load; the counter moves on with each launch.
KERNEL globals(int* out) {
    int t = threadIdx.x;
    if (t < 10) out[t] = primes[t];
    if (t == 10) out[t] = (int)launches;
    if (t == 11) out[t] = *pointer_to_prime;
    if (t >= 12 && t < 28) out[t] = message[t - 12];
    if (t == 28) out[t] = scratch[5];
    __syncthreads();
    if (t == 0) {
        launches += 7;
        scratch[5] += 3;
    }
}

// Insertion sort of 16 values in a local array.
KERNEL local_sort(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int values[16];
    for (int k = 0; k < 16; k++) {
        int x = in[i * 16 + k], at = k;
        while (at > 0 && values[at - 1] > x) {
            values[at] = values[at - 1];
            at--;
        }
        values[at] = x;
    }
    for (int k = 0; k < 16; k++) out[i * 16 + k] = values[k];
}

// A pointer chosen at run time: odd threads read shared memory, even ones global, every fourth local.
KERNEL generic_pointers(const int* in, int* out) {
    __shared__ int shared_values[128];
    int local_values[4] = {(int)threadIdx.x, -1, -2, in[0]};
    shared_values[threadIdx.x] = in[threadIdx.x] * 1000;
    __syncthreads();
    const int* from = threadIdx.x & 1 ? &shared_values[127 - threadIdx.x] : &in[127 - threadIdx.x];
    if (threadIdx.x % 4 == 2) from = &local_values[in[1] & 3];
    int is_shared = __isShared(from), is_global = __isGlobal(from), is_local = __isLocal(from);
    out[threadIdx.x * 2] = *from;
    out[threadIdx.x * 2 + 1] = is_shared | is_global << 1 | is_local << 2;
    int* to = threadIdx.x & 1 ? &shared_values[threadIdx.x] : &out[256 + threadIdx.x];
    atomicAdd(to, 5);
    __syncthreads();
    if (threadIdx.x & 1) out[256 + threadIdx.x] = shared_values[threadIdx.x];
}

// One dynamic array cut into three of different types; `n` elements each, blockDim.x = n.
KERNEL dynamic_shared(const float* in, double* out, int n) {
    extern __shared__ __align__(16) char room[];
    double* doubles = (double*)room;
    float* floats = (float*)(doubles + n);
    unsigned char* bytes = (unsigned char*)(floats + n);
    int t = threadIdx.x;
    floats[t] = in[t];
    bytes[t] = (unsigned char)(t * 7);
    __syncthreads();
    doubles[t] = (double)floats[n - 1 - t] * bytes[(t + 1) % n];
    __syncthreads();
    out[t] = doubles[t ^ 1];
}

// Copies by every access width; n is the number of 16-byte groups.
KERNEL copy_u8(const unsigned char* in, unsigned char* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * 16; i += gridDim.x * blockDim.x) out[i] = in[i];
}
KERNEL copy_u16(const unsigned short* in, unsigned short* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * 8; i += gridDim.x * blockDim.x) out[i] = in[i];
}
KERNEL copy_u32x2(const uint2* in, uint2* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * 2; i += gridDim.x * blockDim.x) out[i] = in[i];
}
KERNEL copy_u64x2(const ulonglong2* in, ulonglong2* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i];
}
KERNEL copy_u16x4(const ushort4* in, ushort4* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * 2; i += gridDim.x * blockDim.x) out[i] = in[i];
}
// Through the read-only path and with streaming hints.
KERNEL copy_hints(const float4* in, float4* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 x = i & 1 ? __ldcs(&in[i]) : (i & 2 ? __ldcg(&in[i]) : __ldg(&in[i]));
        if (i & 4) __stcs(&out[i], x);
        else __stwt(&out[i], x);
    }
}
// Global to shared by cp.async of 4, 8 and 16 bytes, then out again reversed; blockDim.x = 64.
KERNEL copy_async_sizes(const int* in, int* out) {
    __shared__ __align__(16) int room[64 * 7];
    int t = threadIdx.x;
    unsigned base = (unsigned)__cvta_generic_to_shared(room);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(base + t * 4), "l"(in + t) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(base + 256 + t * 8), "l"(in + 64 + t * 2) : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + 768 + t * 16), "l"(in + 192 + t * 4)
        : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = t; i < 64 * 7; i += 64) out[i] = room[64 * 7 - 1 - i];
}

struct Record {
    char tag;
    short number;
    int values[3];
    double weight;
    float2 pair;
};
// A structure by value, read through its fields at their own alignments.
KERNEL record_fields(Record record, Record* table, double* out) {
    Record copy = table[threadIdx.x];
    out[threadIdx.x] = record.tag + record.number + record.values[threadIdx.x % 3] + record.weight + record.pair.y
        + copy.tag
        + copy.number + copy.values[2] + copy.weight + copy.pair.x;
    table[threadIdx.x].number = (short)(copy.number + record.tag);
}
