// Integer arithmetic beyond the operators: carry chains, 128-bit values, bit fields, byte permutation, bit counts, dot
// products of bytes, 24-bit products, saturating and video instructions.

#define KERNEL extern "C" __global__ void
typedef long long i64;
typedef unsigned long long u64;

// 128-bit sum, difference and product of (low, high) pairs, by carry chains over 32-bit words; six words a thread.
KERNEL carry_chains(const u64* a, const u64* b, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned* x = (const unsigned*)(a + 2 * i);
    const unsigned* y = (const unsigned*)(b + 2 * i);
    unsigned r[4];
    unsigned* to = (unsigned*)(out + 6 * i);
    asm("add.cc.u32 %0, %4, %8;\n addc.cc.u32 %1, %5, %9;\n addc.cc.u32 %2, %6, %10;\n addc.u32 %3, %7, %11;\n"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]));
    for (int k = 0; k < 4; k++) to[k] = r[k];
    asm("sub.cc.u32 %0, %4, %8;\n subc.cc.u32 %1, %5, %9;\n subc.cc.u32 %2, %6, %10;\n subc.u32 %3, %7, %11;\n"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]));
    for (int k = 0; k < 4; k++) to[4 + k] = r[k];
    // The low 64-bit halves, multiplied to 128 bits.
    asm("{\n .reg .u32 t0, t1, t2, t3;\n mul.lo.u32 t0, %4, %6;\n mul.hi.u32 t1, %4, %6;\n"
        " mad.lo.cc.u32 t1, %4, %7, t1;\n madc.hi.u32 t2, %4, %7, 0;\n"
        " mad.lo.cc.u32 t1, %5, %6, t1;\n madc.hi.cc.u32 t2, %5, %6, t2;\n addc.u32 t3, 0, 0;\n"
        " mad.lo.cc.u32 t2, %5, %7, t2;\n madc.hi.u32 t3, %5, %7, t3;\n"
        " mov.u32 %0, t0;\n mov.u32 %1, t1;\n mov.u32 %2, t2;\n mov.u32 %3, t3;\n}\n"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(x[0]), "r"(x[1]), "r"(y[0]), "r"(y[1]));
    for (int k = 0; k < 4; k++) to[8 + k] = r[k];
}

// The same sums with 64-bit links, and the product by high and low halves; six words a thread.
KERNEL wide_products(const u64* a, const u64* b, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x0 = a[2 * i], x1 = a[2 * i + 1], y0 = b[2 * i], y1 = b[2 * i + 1], low, high;
    asm("add.cc.u64 %0, %2, %4;\n addc.u64 %1, %3, %5;\n" : "=l"(low), "=l"(high) : "l"(x0), "l"(x1), "l"(y0), "l"(y1));
    out[6 * i] = low;
    out[6 * i + 1] = high;
    out[6 * i + 2] = x0 * y0;
    out[6 * i + 3] = __umul64hi(x0, y0);
    out[6 * i + 4] = (u64)__mul64hi((i64)x0, (i64)y0);
    out[6 * i + 5] = (u64)(unsigned)__umulhi((unsigned)x0, (unsigned)y0) << 32 | (unsigned)__mulhi((int)x0, (int)y0);
}

// Ten words a thread.
KERNEL bit_counts(const unsigned* in, const u64* wide, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = in[i];
    u64 y = wide[i];
    int* to = out + i * 10;
    to[0] = __popc(x);
    to[1] = __popcll(y);
    to[2] = __clz(x);
    to[3] = __clzll(y);
    to[4] = __ffs(x);
    to[5] = __ffsll(y);
    to[6] = __brev(x);
    to[7] = (int)(__brevll(y) >> 32);
    int found, shift;
    asm("bfind.s32 %0, %1;" : "=r"(found) : "r"(x));
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(shift) : "r"(x));
    to[8] = found;
    to[9] = shift;
}

// Fields at `position` of `length` bits, both from 0 to 255: unsigned and signed extraction, insertion, 32 and 64 bits.
KERNEL bit_fields(const u64* in, const unsigned* position, const unsigned* length, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x = in[i], r64;
    unsigned low = (unsigned)x, high = (unsigned)(x >> 32), r32, p = position[i], l = length[i];
    u64* to = out + i * 6;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r32) : "r"(low), "r"(p), "r"(l));
    to[0] = r32;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r32) : "r"(low), "r"(p), "r"(l));
    to[1] = r32;
    asm("bfe.u64 %0, %1, %2, %3;" : "=l"(r64) : "l"(x), "r"(p), "r"(l));
    to[2] = r64;
    asm("bfe.s64 %0, %1, %2, %3;" : "=l"(r64) : "l"(x), "r"(p), "r"(l));
    to[3] = r64;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r32) : "r"(high), "r"(low), "r"(p), "r"(l));
    to[4] = r32;
    asm("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(r64) : "l"(~x), "l"(x), "r"(p), "r"(l));
    to[5] = r64;
}

// Eight words a thread: any selection, the six named modes, a funnel shift.
KERNEL byte_permute(const unsigned* a, const unsigned* b, const unsigned* selector, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], s = selector[i];
    unsigned* to = out + i * 8;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(to[0]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(to[1]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.b4e %0, %1, %2, %3;" : "=r"(to[2]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.rc8 %0, %1, %2, %3;" : "=r"(to[3]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.ecl %0, %1, %2, %3;" : "=r"(to[4]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.ecr %0, %1, %2, %3;" : "=r"(to[5]) : "r"(x), "r"(y), "r"(s));
    asm("prmt.b32.rc16 %0, %1, %2, %3;" : "=r"(to[6]) : "r"(x), "r"(y), "r"(s));
    to[7] = __byte_perm(x, y, 0x6351) + __funnelshift_l(x, y, s) + __funnelshift_rc(x, y, s & 63);
}

// Four-way products of bytes, all signs, and the two-way ones of 16 x 8 bits; six words a thread.
KERNEL dot_products(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i], *to = out + i * 6;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(to[0]) : "r"(x), "r"(y), "r"(i));
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(to[1]) : "r"(x), "r"(y), "r"(i));
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(to[2]) : "r"(x), "r"(y), "r"(i));
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(to[3]) : "r"(x), "r"(y), "r"(i));
    asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(to[4]) : "r"(x), "r"(y), "r"(i));
    asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(to[5]) : "r"(x), "r"(y), "r"(i));
}

// Sum of absolute differences, 24-bit products, saturating sum, averages, absolute value; eight words a thread.
KERNEL integer_odds(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i], *to = out + i * 8;
    to[0] = (int)__sad(x, y, 7);
    to[1] = __mul24(x, y);
    to[2] = (int)__umul24(x, y);
    asm("add.sat.s32 %0, %1, %2;" : "=r"(to[3]) : "r"(x), "r"(y));
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(to[4]) : "r"(x), "r"(y));
    to[5] = __hadd(x, y);
    to[6] = __rhadd(x, y);
    to[7] = abs(x) ^ (x >> (y & 31)) ^ (int)((unsigned)x >> (y & 31));
}

// Shifts by more than the width: PTX clamps the amount.
KERNEL shifts(const u64* in, const unsigned* amount, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x = in[i], r64;
    unsigned by = amount[i], r32;
    unsigned short r16;
    u64* to = out + i * 6;
    asm("shl.b32 %0, %1, %2;" : "=r"(r32) : "r"((unsigned)x), "r"(by));
    to[0] = r32;
    asm("shr.u32 %0, %1, %2;" : "=r"(r32) : "r"((unsigned)x), "r"(by));
    to[1] = r32;
    asm("shr.s32 %0, %1, %2;" : "=r"(r32) : "r"((unsigned)x), "r"(by));
    to[2] = r32;
    asm("shr.s64 %0, %1, %2;" : "=l"(r64) : "l"(x), "r"(by));
    to[3] = r64;
    asm("shl.b64 %0, %1, %2;" : "=l"(r64) : "l"(x), "r"(by));
    to[4] = r64;
    asm("shr.s16 %0, %1, %2;" : "=h"(r16) : "h"((unsigned short)x), "r"(by));
    to[5] = r16;
}

// Three-input logic by a table: the majority, a choice, and the parity.
KERNEL logic3(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned *to = out + i * 3;
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(to[0]) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(to[1]) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(to[2]) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
}
