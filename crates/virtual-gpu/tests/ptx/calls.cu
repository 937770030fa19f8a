#include <stdio.h>
#include <assert.h>
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
struct Big { float x[6]; char c; };
__device__ __noinline__ Big twice(Big b) { for (int i = 0; i < 6; i++) b.x[i] *= 2; return b; }
__device__ int inc(int x) { return x + 1; }
__device__ int dec(int x) { return x - 1; }
typedef int (*Fn)(int);
__device__ Fn table[2] = {inc, dec};
extern "C" __global__ void calls(int* out, Big b, int which) {
  out[threadIdx.x] = fib(threadIdx.x) + table[which](3);
  Big t = twice(b);
  out[threadIdx.x + 32] = t.x[threadIdx.x % 6];
  switch (which) { case 0: out[0] = 7; break; case 1: out[1] = out[9] * 8; break; case 2: out[2] = 1; out[3] *= 3; break; case 3: out[5] ^= 4; break; case 4: out[6] /= out[7]; break; case 5: out[7]--; break; case 6: out[8] = out[9] % out[10]; }
  printf("%d %f\n", out[0], t.x[1]);
  assert(out[1] != 5);
}
