//! The plan of matrix products on a device: which tile and how many blocks a sum, by sizes, strides and what the device can do.

use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
use fireclay_tensor::DType;
use fireclay_tensor::ops::matmul::plan::{Abilities, plan};

/// The plan's text for matrices that lie by rows (n) or by columns (t).
fn said(
    dtype: DType,
    [batch, m, n, k]: [usize; 4],
    lie: &str,
    capability: (u32, u32),
    allow_tf32: bool,
) -> String {
    let of = |rows, cols, lie: u8| match lie {
        b'n' => MatrixStrides::row_major(rows, cols),
        _ => MatrixStrides::row_major(cols, rows).transposed(),
    };
    let (a, b) = (of(m, k, lie.as_bytes()[0]), of(k, n, lie.as_bytes()[1]));
    let abilities = Abilities {
        capability,
        allow_tf32,
    };
    plan(dtype, GemmShape { batch, m, n, k }, a, b, abilities).to_string()
}

#[test]
fn tensor_cores_take_the_largest_tile_that_keeps_a_device_busy() {
    for (sizes, lie, want) in [
        // Large, and enough blocks.
        (
            [1, 4096, 4096, 4096],
            "nt",
            "128x128_nt: tiles of 128x128 on tensor cores, one block a sum",
        ),
        (
            [64, 128, 128, 64],
            "nn",
            "64x64_nn: tiles of 64x64 on tensor cores, one block a sum",
        ),
        (
            [128, 128, 128, 64],
            "tn",
            "128x128_tn: tiles of 128x128 on tensor cores, one block a sum",
        ),
        // Few tiles and long sums: blocks share them.
        (
            [1, 512, 512, 8192],
            "tt",
            "128x128_tt: tiles of 128x128 on tensor cores, 16 blocks share a sum, in parts of 512",
        ),
        (
            [1, 256, 256, 4096],
            "nn",
            "64x64_nn: tiles of 64x64 on tensor cores, 16 blocks share a sum, in parts of 256",
        ),
        // Small, and a few rows.
        (
            [1, 33, 20, 40],
            "nn",
            "32x32_nn: tiles of 32x32 on tensor cores, one block a sum",
        ),
        (
            [1, 16, 4096, 4096],
            "nt",
            "32x32_nt: tiles of 32x32 on tensor cores, 2 blocks share a sum, in parts of 2048",
        ),
    ] {
        for (dtype, name) in [
            (DType::BF16, "bf16"),
            (DType::F16, "f16"),
            (DType::F32, "tf32"),
        ] {
            let got = said(dtype, sizes, lie, (9, 0), true);
            assert_eq!(
                got,
                format!("matmul_mma_{name}_{want}"),
                "{sizes:?} {dtype}"
            );
        }
    }
}

#[test]
fn the_cuda_cores_take_what_tensor_cores_may_not() {
    let square = [1, 4096, 4096, 64];
    for (dtype, capability, allow_tf32, want) in [
        (DType::F32, (9, 0), false, "matmul_f32_128x128: "),
        (DType::F32, (7, 5), true, "matmul_f32_128x128: "),
        (DType::BF16, (7, 5), true, "matmul_bf16_64x64: "),
        (DType::F16, (7, 0), true, "matmul_f16_64x64: "),
        (DType::F64, (9, 0), true, "matmul_f64_64x64: "),
        (DType::I64, (9, 0), true, "matmul_i64_64x64: "),
    ] {
        let got = said(dtype, square, "nn", capability, allow_tf32);
        assert!(got.starts_with(want), "{got}");
    }
    // Vectors are a matter of memory alone, and keep the bits of the host.
    let got = said(DType::BF16, [1, 1, 4096, 4096], "nt", (9, 0), true);
    assert!(got.starts_with("matmul_bf16_dots: "), "{got}");
    let got = said(DType::F32, [1, 4096, 1, 4096], "tn", (9, 0), true);
    assert!(got.starts_with("matmul_f32_weighted_rows: "), "{got}");
}
