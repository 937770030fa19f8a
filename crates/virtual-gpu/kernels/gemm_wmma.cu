// Matrix products through the fragments of <mma.h>, one warp a tile, row-major; sizes are multiples of the tiles.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void
using namespace nvcuda;

template <bool by_rows> struct Order { typedef wmma::row_major Type; };
template <> struct Order<false> { typedef wmma::col_major Type; };

template <class T, class Sum, int M, int N, int K, bool by_rows>
__device__ __forceinline__ void product(const T* a, const T* b, Sum* c, int n, int k, int pitch_b) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, T, typename Order<by_rows>::Type> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::fill_fragment(sum, (Sum)0);
    int row = blockIdx.y * M, column = blockIdx.x * N;
    for (int i = 0; i < k; i += K) {
        wmma::load_matrix_sync(left, a + row * k + i, k);
        wmma::load_matrix_sync(right, by_rows ? b + i * pitch_b + column : b + column * pitch_b + i, pitch_b);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

KERNEL gemm_wmma_f16(const __half* a, const __half* b, float* c, int m, int n, int k) {
    product<__half, float, 16, 16, 16, true>(a, b, c, n, k, n);
}
KERNEL gemm_wmma_f16_sums(const __half* a, const __half* b, __half* c, int m, int n, int k) {
    product<__half, __half, 16, 16, 16, true>(a, b, c, n, k, n);
}
KERNEL gemm_wmma_s8(const signed char* a, const signed char* b, int* c, int m, int n, int k) {
    product<signed char, int, 16, 16, 16, true>(a, b, c, n, k, n);
}
#if __CUDA_ARCH__ >= 800
KERNEL gemm_wmma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    product<__nv_bfloat16, float, 16, 16, 16, true>(a, b, c, n, k, n);
}
// B by columns.
KERNEL gemm_wmma_bf16_transposed(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    product<__nv_bfloat16, float, 32, 8, 16, false>(a, b, c, n, k, k);
}
KERNEL gemm_wmma_tf32(const float* a, const float* b, float* c, int m, int n, int k) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < k; i += 8) {
        wmma::load_matrix_sync(left, a + blockIdx.y * 16 * k + i, k);
        wmma::load_matrix_sync(right, b + i * n + blockIdx.x * 16, n);
        for (int e = 0; e < left.num_elements; e++) left.x[e] = wmma::__float_to_tf32(left.x[e]);
        for (int e = 0; e < right.num_elements; e++) right.x[e] = wmma::__float_to_tf32(right.x[e]);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}
#endif
// C comes in through a fragment, from shared memory, and its elements pass through a bias and ReLU.
KERNEL gemm_wmma_epilogue(const __half* a, const __half* b, const float* c, float* d, float bias) {
    __shared__ __align__(32) float tile[256];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = c[i];
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::load_matrix_sync(sum, tile, 16, wmma::mem_row_major);
    wmma::mma_sync(sum, left, right, sum);
    for (int e = 0; e < sum.num_elements; e++) sum.x[e] = fmaxf(sum.x[e] + bias, 0.0f);
    __syncthreads();
    wmma::store_matrix_sync(tile, sum, 16, wmma::mem_col_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) d[i] = tile[i];
}
