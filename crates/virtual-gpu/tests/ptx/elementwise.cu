extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
extern "C" __global__ void __launch_bounds__(256, 2) transcendental(const float4* a, float4* out, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) {
    float4 v = a[i];
    v.x = expf(v.x); v.y = tanhf(v.y); v.z = sinf(v.z); v.w = logf(v.w);
    out[i] = v;
  }
}
__constant__ float table[4] = {1.f, 2.f, 3.5f, -0.f};
__device__ int counters[2][3] = {{1, 2}, {3}};
__device__ int* pointer = &counters[1][1];
extern "C" __global__ void shared(float* out) {
  __shared__ float tile[32][33];
  extern __shared__ float dynamic[];
  tile[threadIdx.x][threadIdx.y] = table[threadIdx.x & 3];
  dynamic[threadIdx.x] = out[0];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.y][threadIdx.x] + dynamic[threadIdx.y] + *pointer;
}
