extern "C" __global__ void inline_asm(unsigned* out, const float* in) {
  unsigned x, y; float f;
  asm volatile("{\n .reg.b16 r;\n .reg .pred p;\n mov.b16 r, 0X2B7CU;\n setp.eq.u32 p, %1, 0;\n @!p bra L1;\n mov.u32 %0, 5;\n L1:\n}" : "=r"(x) : "r"(threadIdx.x));
  asm("{ .reg .pred p; .reg .b32 t<3>; mov.u32 t0, %%laneid; setp.ne.u32 p, %1, t0; @p bra L1; mov.u32 t0, WARP_SZ; L1: selp.b32 %0, t0, %1, p; }" : "=r"(y) : "r"(x));
  asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1+-4];" : "=f"(f) : "l"(in + 1));
  asm volatile("ld.shared::cta.b32 %0, [%1];" : "=r"(y) : "r"(x));
  unsigned p = __shfl_xor_sync(~0u, x, 1);
  unsigned b = __match_any_sync(~0u, y);
  out[threadIdx.x] = y + p + b + (unsigned)clock64() + (unsigned)f;
}
