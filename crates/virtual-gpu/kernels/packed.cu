// Arithmetic, comparison and conversion in f16 and bf16 themselves, one or two to a register.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void

// Ten pairs a thread: sum, difference, product, fused multiply-add, saturated product, minimum, maximum, negation,
// absolute value, a ReLU of the multiply-add.
KERNEL half2_arithmetic(const __half2* a, const __half2* b, const __half2* c, __half2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 x = a[i], y = b[i], z = c[i], *to = out + i * 10;
    to[0] = __hadd2_rn(x, y);
    to[1] = __hsub2_rn(x, y);
    to[2] = __hmul2_rn(x, y);
    to[3] = __hfma2(x, y, z);
    to[4] = __hmul2_sat(x, y);
    to[5] = __hmin2(x, y);
    to[6] = __hmax2(x, y);
    to[7] = __hneg2(x);
    to[8] = __habs2(x);
    to[9] = __hfma2_relu(x, y, z);
}

KERNEL half_arithmetic(const __half* a, const __half* b, const __half* c, __half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i], y = b[i], z = c[i], *to = out + i * 8;
    to[0] = __hadd_rn(x, y);
    to[1] = __hsub_rn(x, y);
    to[2] = __hmul_rn(x, y);
    to[3] = __hfma(x, y, z);
    to[4] = __hadd_sat(x, y);
    to[5] = __hmin(x, y);
    to[6] = __hmax_nan(x, y);
    to[7] = __hneg(x);
}

// One bit a comparison.
KERNEL half_compare(const __half* a, const __half* b, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i], y = b[i];
    unsigned bits = __hlt(x, y) | __hle(x, y) << 1 | __hgt(x, y) << 2 | __hge(x, y) << 3 | __heq(x, y) << 4;
    bits |= __hne(x, y) << 5 | __hltu(x, y) << 6 | __hequ(x, y) << 7 | __hisnan(x) << 8;
    __half2 pair = __hlt2(__halves2half2(x, y), __halves2half2(y, x));
    bits |= (unsigned)(__half2float(__low2half(pair)) == 1.0f) << 9;
    bits |= (unsigned)(__half2float(__high2half(pair)) == 1.0f) << 10;
    out[i] = bits;
}

// Every rounding from f32, and to and from integers; the bits of eight results a thread.
KERNEL half_convert(const float* in, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    unsigned short* to = out + i * 8;
    __half h = __float2half_rn(x);
    to[0] = __half_as_ushort(h);
    to[1] = __half_as_ushort(__float2half_rz(x));
    to[2] = __half_as_ushort(__float2half_rd(x));
    to[3] = __half_as_ushort(__float2half_ru(x));
    to[4] = __half_as_ushort(__int2half_rn((int)x));
    to[5] = (unsigned short)__half2short_rn(h);
    to[6] = __half_as_ushort(hrint(h));
    to[7] = __half_as_ushort(hfloor(h));
}

KERNEL half_approximate(const __half* in, __half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = in[i], *to = out + i * 4;
    to[0] = hexp(x);
    to[1] = hlog(x);
    to[2] = hsqrt(x);
    to[3] = hrcp(x);
}

// Seven pairs a thread, as half2_arithmetic.
KERNEL bfloat2_arithmetic(const __nv_bfloat162* a, const __nv_bfloat162* b, const __nv_bfloat162* c,
    __nv_bfloat162* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 x = a[i], y = b[i], z = c[i], *to = out + i * 7;
    to[0] = __hadd2_rn(x, y);
    to[1] = __hmul2_rn(x, y);
    to[2] = __hfma2(x, y, z);
    to[3] = __hmin2(x, y);
    to[4] = __hmax2(x, y);
    to[5] = __hneg2(x);
    to[6] = __habs2(x);
}

KERNEL bfloat_arithmetic(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, __nv_bfloat16* out,
    int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 x = a[i], y = b[i], z = c[i], *to = out + i * 4;
    to[0] = __hsub(x, y);
    to[1] = __hfma(x, y, z);
    to[2] = __hlt(x, y) ? x : y;
    to[3] = __hmax(x, y);
}

// Two floats to a pair in one conversion, and a pair back.
KERNEL pack_pairs(const float2* in, unsigned* half_pairs, unsigned* bfloat_pairs, float2* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 x = in[i];
    __half2 h = __float22half2_rn(x);
    __nv_bfloat162 b = __float22bfloat162_rn(x);
    half_pairs[i] = *(unsigned*)&h;
    bfloat_pairs[i] = *(unsigned*)&b;
    float2 from_h = __half22float2(h), from_b = __bfloat1622float2(b);
    back[2 * i] = from_h;
    back[2 * i + 1] = from_b;
}

// The dot product of a row by pairs, f16 sums; one warp a row.
KERNEL half2_dot(const __half2* a, const __half2* b, float* out, int pairs) {
    __half2 sum = __float2half2_rn(0.0f);
    for (int i = threadIdx.x; i < pairs; i += 32)
        sum = __hfma2(a[blockIdx.x * pairs + i], b[blockIdx.x * pairs + i], sum);
    float total = __low2float(sum) + __high2float(sum);
    for (int offset = 16; offset > 0; offset >>= 1) total += __shfl_down_sync(0xffffffffu, total, offset);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}
