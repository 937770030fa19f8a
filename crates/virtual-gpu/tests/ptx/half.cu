#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void half_ops(const __half2* a, const __half* b, __half2* o, __nv_bfloat16* c) {
  int i = threadIdx.x;
  __half2 v = __hfma2(a[i], a[i], __half2half2(b[i]));
  o[i] = __hmax2(h2exp(v), v);
  c[i] = __float2bfloat16(__half2float(b[i]));
  if (__hlt(b[i], b[i+1])) o[i+1] = h2rcp(v);
}
