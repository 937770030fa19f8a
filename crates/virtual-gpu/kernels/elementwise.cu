// Elementwise kernels: strided broadcasting in f32, f16 and bf16, every cast, transcendental functions (the slow path
// of sin, cos and tan keeps an array in local memory), 32- and 64-bit division by a variable, vector loads of bytes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
typedef long long i64;
typedef unsigned long long u64;
typedef __half f16;
typedef __nv_bfloat16 bf16;

// Passed by value and indexed by a loop variable: the compiler copies it to local memory.
struct Layout {
    int rank;
    int shape[6];
    i64 a[6];
    i64 b[6];
};

float widen(float x) { return x; }
float widen(f16 x) { return __half2float(x); }
float widen(bf16 x) { return __bfloat162float(x); }
template <class T> T narrow(float x);
template <> float narrow<float>(float x) { return x; }
template <> f16 narrow<f16>(float x) { return __float2half_rn(x); }
template <> bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }

struct Add { static float apply(float a, float b) { return a + b; } };
struct Multiply { static float apply(float a, float b) { return a * b; } };
struct Divide { static float apply(float a, float b) { return a / b; } };
struct Maximum { static float apply(float a, float b) { return a != a ? a : (b != b ? b : fmaxf(a, b)); } };

template <class T, class Op> __device__ __forceinline__ void broadcast(const T* a, const T* b, T* out, Layout at,
    int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int rest = i;
        i64 from_a = 0, from_b = 0;
        for (int d = at.rank - 1; d >= 0; d--) {
            int coordinate = rest % at.shape[d];
            rest /= at.shape[d];
            from_a += coordinate * at.a[d];
            from_b += coordinate * at.b[d];
        }
        out[i] = narrow<T>(Op::apply(widen(a[from_a]), widen(b[from_b])));
    }
}

#define BROADCAST(name, T, Op) \
    KERNEL name(const T* a, const T* b, T* out, Layout at, int n) { broadcast<T, Op>(a, b, out, at, n); }
BROADCAST(broadcast_add_f32, float, Add)
BROADCAST(broadcast_add_f16, f16, Add)
BROADCAST(broadcast_add_bf16, bf16, Add)
BROADCAST(broadcast_mul_f32, float, Multiply)
BROADCAST(broadcast_mul_f16, f16, Multiply)
BROADCAST(broadcast_mul_bf16, bf16, Multiply)
BROADCAST(broadcast_div_f32, float, Divide)
BROADCAST(broadcast_max_f32, float, Maximum)
BROADCAST(broadcast_max_bf16, bf16, Maximum)

// n is the number of float4 groups.
KERNEL add_float4(const float4* a, const float4* b, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 x = a[i], y = b[i];
    out[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

KERNEL fill_f32(float* out, float value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

KERNEL where_f32(const unsigned char* condition, const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = condition[i] ? a[i] : b[i];
}

// One bit per comparison: <, <=, >, >=, ==, !=, and the three unordered kinds a compiler forms from their negations.
KERNEL compare_f32(const float* a, const float* b, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    unsigned bits = (x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 | (x != y) << 5;
    bits |= (unsigned)!(x < y) << 6 | (unsigned)!(x >= y) << 7 | (unsigned)isnan(x) << 8 | (unsigned)signbit(x) << 9;
    out[i] = bits;
}

#define UNARY(name, T, expression) \
    KERNEL name(const T* in, T* out, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < n) { \
            float x = widen(in[i]); \
            out[i] = narrow<T>(expression); \
        } \
    }
UNARY(exp_f32, float, expf(x))
UNARY(exp2_f32, float, exp2f(x))
UNARY(expm1_f32, float, expm1f(x))
UNARY(log_f32, float, logf(x))
UNARY(log2_f32, float, log2f(x))
UNARY(log1p_f32, float, log1pf(x))
UNARY(sin_f32, float, sinf(x))
UNARY(cos_f32, float, cosf(x))
UNARY(tan_f32, float, tanf(x))
UNARY(tanh_f32, float, tanhf(x))
UNARY(erf_f32, float, erff(x))
UNARY(sqrt_f32, float, sqrtf(x))
UNARY(rsqrt_f32, float, rsqrtf(x))
UNARY(reciprocal_f32, float, 1.0f / x)
UNARY(floor_f32, float, floorf(x))
UNARY(ceil_f32, float, ceilf(x))
UNARY(trunc_f32, float, truncf(x))
UNARY(round_even_f32, float, rintf(x))
UNARY(round_away_f32, float, roundf(x))
UNARY(abs_f32, float, fabsf(x))
UNARY(neg_f32, float, -x)
UNARY(sigmoid_f32, float, 1.0f / (1.0f + expf(-x)))
UNARY(gelu_f32, float, 0.5f * x * (1.0f + erff(x * 0.70710678f)))
UNARY(fast_exp_f32, float, __expf(x))
UNARY(fast_log_f32, float, __logf(x))
UNARY(fast_sin_f32, float, __sinf(x))
UNARY(exp_f16, f16, expf(x))
UNARY(exp_bf16, bf16, expf(x))
UNARY(gelu_f16, f16, 0.5f * x * (1.0f + erff(x * 0.70710678f)))
UNARY(gelu_bf16, bf16, 0.5f * x * (1.0f + erff(x * 0.70710678f)))
UNARY(relu_bf16, bf16, x > 0.0f ? x : 0.0f)

KERNEL pow_f32(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = powf(a[i], b[i]);
}
KERNEL remainder_f32(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmodf(a[i], b[i]);
}

// A 16-bit float is reached through f32, except from f64, which rounds once; so is an integer from a 16-bit float.
template <class To, class From> struct Cast { static To apply(From x) { return (To)x; } };
template <class From> struct Cast<f16, From> { static f16 apply(From x) { return __float2half_rn((float)x); } };
template <class From> struct Cast<bf16, From> { static bf16 apply(From x) { return __float2bfloat16_rn((float)x); } };
template <class To> struct Cast<To, f16> { static To apply(f16 x) { return (To)__half2float(x); } };
template <class To> struct Cast<To, bf16> { static To apply(bf16 x) { return (To)__bfloat162float(x); } };
template <> struct Cast<f16, f16> { static f16 apply(f16 x) { return x; } };
template <> struct Cast<bf16, bf16> { static bf16 apply(bf16 x) { return x; } };
template <> struct Cast<f16, bf16> { static f16 apply(bf16 x) { return __float2half_rn(__bfloat162float(x)); } };
template <> struct Cast<bf16, f16> { static bf16 apply(f16 x) { return __float2bfloat16_rn(__half2float(x)); } };
template <> struct Cast<f16, double> { static f16 apply(double x) { return __double2half(x); } };
template <> struct Cast<bf16, double> { static bf16 apply(double x) { return __double2bfloat16(x); } };

#define CAST(from, From, to, To) \
    KERNEL cast_##from##_##to(const From* in, To* out, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < n) out[i] = Cast<To, From>::apply(in[i]); \
    }
#define CASTS(from, From) \
    CAST(from, From, f64, double) CAST(from, From, f32, float) CAST(from, From, f16, f16) CAST(from, From, bf16, bf16) \
    CAST(from, From, i64, i64) CAST(from, From, i32, int) CAST(from, From, i16, short) \
    CAST(from, From, i8, signed char) CAST(from, From, u8, unsigned char)
CASTS(f64, double)
CASTS(f32, float)
CASTS(f16, f16)
CASTS(bf16, bf16)
CASTS(i64, i64)
CASTS(i32, int)
CASTS(i16, short)
CASTS(i8, signed char)
CASTS(u8, unsigned char)

KERNEL multiply_add_i64(const i64* a, const i64* b, const i64* c, i64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i] + c[i];
}

#define DIVIDE(name, T) \
    KERNEL name(const T* a, const T* b, T* quotient, T* remainder, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i >= n) return; \
        quotient[i] = a[i] / b[i]; \
        remainder[i] = a[i] % b[i]; \
    }
DIVIDE(divide_i32, int)
DIVIDE(divide_u32, unsigned)
DIVIDE(divide_i64, i64)
DIVIDE(divide_u64, u64)
DIVIDE(divide_i16, short)

// Sixteen bytes a thread through one 128-bit load; the sum of the bytes and 127 - byte, wrapped.
KERNEL bytes_u8x16(const uint4* in, uint4* out, unsigned* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 packed = in[i];
    const unsigned char* bytes = (const unsigned char*)&packed;
    unsigned char result[16];
    unsigned sum = 0;
    for (int k = 0; k < 16; k++) {
        sum += bytes[k];
        result[k] = (unsigned char)(127 - bytes[k]);
    }
    sums[i] = sum;
    out[i] = *(uint4*)result;
}

KERNEL dequantize_u8x4(const uchar4* in, float4* out, float scale, int zero, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 q = in[i];
    out[i] = make_float4((q.x - zero) * scale, (q.y - zero) * scale, (q.z - zero) * scale, (q.w - zero) * scale);
}

KERNEL quantize_s8x4(const float4* in, char4* out, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 x = in[i];
    auto one = [&](float v) { return (signed char)max(-128, min(127, __float2int_rn(v / scale))); };
    out[i] = make_char4(one(x.x), one(x.y), one(x.z), one(x.w));
}
