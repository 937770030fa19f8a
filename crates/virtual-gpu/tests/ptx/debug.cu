extern "C" __global__ void debug(int* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = i;
}
