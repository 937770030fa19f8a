// Cooperative launches: every block waits for all others of the grid, by the cooperative groups of the CUDA headers.
#include <cooperative_groups.h>

#define KERNEL extern "C" __global__ void
namespace cg = cooperative_groups;

// In each round every block adds up what all blocks wrote before the grid met. `partial` has a value for each block.
KERNEL grid_totals(int* partial, int* out, int rounds) {
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x == 0) partial[blockIdx.x] = (blockIdx.x + 1) * (round + 3);
        grid.sync();
        if (threadIdx.x == 0) {
            int total = 0;
            for (int block = 0; block < gridDim.x; block++) total += partial[block];
            out[round * gridDim.x + blockIdx.x] = total;
        }
        grid.sync();
    }
}

// Whether the grid may synchronise: only that of a cooperative launch.
KERNEL grid_is_valid(int* out) {
    out[0] = cg::this_grid().is_valid();
}
