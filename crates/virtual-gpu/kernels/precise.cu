// Directed rounding in f32 and f64, and the double-precision functions.

#define KERNEL extern "C" __global__ void
typedef long long i64;
typedef unsigned long long u64;

// Per thread 24 results: add, mul, fma, div, sqrt, rcp, each in the order rn, rz, rd, ru.
#define ROUNDINGS(name, T, add, mul, fma, div, sqrt, rcp) \
    KERNEL name(const T* a, const T* b, const T* c, T* out, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i >= n) return; \
        T x = a[i], y = b[i], z = c[i], *to = out + i * 24; \
        to[0] = add##_rn(x, y); to[1] = add##_rz(x, y); to[2] = add##_rd(x, y); to[3] = add##_ru(x, y); \
        to[4] = mul##_rn(x, y); to[5] = mul##_rz(x, y); to[6] = mul##_rd(x, y); to[7] = mul##_ru(x, y); \
        to[8] = fma##_rn(x, y, z); to[9] = fma##_rz(x, y, z); to[10] = fma##_rd(x, y, z); to[11] = fma##_ru(x, y, z); \
        to[12] = div##_rn(x, y); to[13] = div##_rz(x, y); to[14] = div##_rd(x, y); to[15] = div##_ru(x, y); \
        to[16] = sqrt##_rn(z); to[17] = sqrt##_rz(z); to[18] = sqrt##_rd(z); to[19] = sqrt##_ru(z); \
        to[20] = rcp##_rn(x); to[21] = rcp##_rz(x); to[22] = rcp##_rd(x); to[23] = rcp##_ru(x); \
    }
ROUNDINGS(roundings_f32, float, __fadd, __fmul, __fmaf, __fdiv, __fsqrt, __frcp)
ROUNDINGS(roundings_f64, double, __dadd, __dmul, __fma, __ddiv, __dsqrt, __drcp)

// The approximate and the flushing forms; eight results a thread.
KERNEL approximations(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], *to = out + i * 8;
    to[0] = __fdividef(x, y);
    to[1] = __frsqrt_rn(x);
    to[2] = __saturatef(x);
    asm("ex2.approx.f32 %0, %1;" : "=f"(to[3]) : "f"(y));
    asm("lg2.approx.f32 %0, %1;" : "=f"(to[4]) : "f"(x));
    asm("tanh.approx.f32 %0, %1;" : "=f"(to[5]) : "f"(y));
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(to[6]) : "f"(x), "f"(2e-38f));
    asm("sqrt.approx.f32 %0, %1;" : "=f"(to[7]) : "f"(x));
}

// f32 to integers by every rounding, and back; sixteen words a thread.
KERNEL convert_roundings(const float* in, const double* wide, i64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    double y = wide[i];
    i64* to = out + i * 16;
    to[0] = __float2int_rn(x);
    to[1] = __float2int_rz(x);
    to[2] = __float2int_rd(x);
    to[3] = __float2int_ru(x);
    to[4] = (i64)__float2uint_rn(x);
    to[5] = __float2ll_ru(x);
    to[6] = __double2int_rn(y);
    to[7] = __double2ll_rd(y);
    to[8] = (i64)__double2ull_rz(y);
    to[9] = __float_as_uint(__int2float_rd((int)to[7] | 0x7f000001));
    to[10] = __float_as_uint(__int2float_ru((int)to[7] | 0x7f000001));
    to[11] = __float_as_uint(__ll2float_rz(to[7] * 1234567891011ll));
    to[12] = __float_as_uint(__double2float_rn(y));
    to[13] = __float_as_uint(__double2float_rz(y));
    to[14] = __float_as_uint(__double2float_ru(y));
    to[15] = __double_as_longlong(__ll2double_ru(to[7] * 1234567891011ll));
}

#define DOUBLE(name, expression) \
    KERNEL name(const double* in, double* out, int n) { \
        int i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i >= n) return; \
        double x = in[i]; \
        out[i] = expression; \
    }
DOUBLE(exp_f64, exp(x))
DOUBLE(log_f64, log(x))
DOUBLE(sin_f64, sin(x))
DOUBLE(tanh_f64, tanh(x))
DOUBLE(erf_f64, erf(x))
DOUBLE(sqrt_f64, sqrt(x))
DOUBLE(rsqrt_f64, rsqrt(x))
DOUBLE(reciprocal_f64, 1.0 / x)
DOUBLE(cbrt_f64, cbrt(x))
DOUBLE(round_f64, rint(x) + floor(x) * 0.5 + trunc(x) * 0.25)

KERNEL pow_f64(const double* a, const double* b, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = pow(a[i], b[i]);
}
KERNEL divide_f64(const double* a, const double* b, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] / b[i];
}

// The parts of a number: mantissa and exponent, copied sign, minimum and maximum with NaN, remainder, next after.
KERNEL float_parts(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], *to = out + i * 7;
    int exponent;
    to[0] = frexpf(x, &exponent);
    to[1] = (float)exponent;
    to[2] = copysignf(x, y);
    to[3] = fminf(x, y);
    to[4] = fmaxf(x, y);
    to[5] = ldexpf(x, 5);
    to[6] = nextafterf(x, y);
}
