//! Whole matrix products of compiled kernels, with asynchronous copies, tiles and fragments, against triple loops.

use half::{bf16, f16};

use crate::rig::{Bytes, Rig};

const MMA: &str = include_str!("../../../kernels/ptx/gemm_mma.ptx");
const WMMA: &str = include_str!("../../../kernels/ptx/gemm_wmma.ptx");

/// How a type lies in memory.
#[derive(Clone, Copy)]
struct Kind {
    size: usize,
    encode: fn(f64) -> u64,
    decode: fn(u64) -> f64,
}

const F16: Kind = Kind {
    size: 2,
    encode: |value| f16::from_f64(value).to_bits().into(),
    decode: |bits| f16::from_bits(bits as u16).to_f64(),
};
const BF16: Kind = Kind {
    size: 2,
    encode: |value| bf16::from_f64(value).to_bits().into(),
    decode: |bits| bf16::from_bits(bits as u16).to_f64(),
};
const F32: Kind = Kind {
    size: 4,
    encode: |value| (value as f32).to_bits().into(),
    decode: |bits| f64::from(f32::from_bits(bits as u32)),
};
const S8: Kind = Kind {
    size: 1,
    encode: |value| u64::from((value * 64.0) as i8 as u8),
    decode: |bits| f64::from(bits as u8 as i8),
};
const S32: Kind = Kind {
    size: 4,
    encode: |value| u64::from(value as i32 as u32),
    decode: |bits| f64::from(bits as u32 as i32),
};

fn matrix(kind: Kind, count: usize, seed: usize) -> (Vec<u8>, Vec<f64>) {
    let bits =
        (0..count).map(|index| (kind.encode)(((index * 37 + seed * 11) % 61) as f64 / 32.0 - 0.9));
    let bits: Vec<u64> = bits.collect();
    let bytes = bits
        .iter()
        .flat_map(|bits| bits.to_le_bytes()[..kind.size].to_vec());
    (bytes.collect(), bits.into_iter().map(kind.decode).collect())
}

/// A product of m x k and k x n.
struct Product {
    text: &'static str,
    name: &'static str,
    kinds: [Kind; 2],
    /// Rows and columns of a block's tile, and its threads.
    tile: [usize; 2],
    threads: u32,
    sizes: [usize; 3],
    /// Whether B lies by columns.
    transposed: bool,
    error: f64,
}

impl Product {
    /// Runs the kernel and compares; the time it took.
    fn run(&self) -> std::time::Duration {
        let [m, n, k] = self.sizes;
        let [ab, c] = self.kinds;
        let (a_bytes, a) = matrix(ab, m * k, 1);
        let (b_bytes, b) = matrix(ab, k * n, 2);
        let mut rig = Rig::new(self.text);
        let addresses = [
            rig.filled(&a_bytes),
            rig.filled(&b_bytes),
            rig.buffer(m * n * c.size),
        ];
        let mut params: Vec<Vec<u8>> = addresses.iter().map(Bytes::bytes).collect();
        params.extend(self.sizes.iter().map(|&size| (size as u32).bytes()));
        let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
        let grid = [
            n.div_ceil(self.tile[1]) as u32,
            m.div_ceil(self.tile[0]) as u32,
            1,
        ];
        let start = std::time::Instant::now();
        rig.launch(self.name, grid, [self.threads, 1, 1], 0, &params)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let time = start.elapsed();
        let got = rig.read(addresses[2]);
        for row in 0..m {
            for column in 0..n {
                let b = |inner: usize| {
                    if self.transposed {
                        b[column * k + inner]
                    } else {
                        b[inner * n + column]
                    }
                };
                let products = (0..k).map(|inner| a[row * k + inner] * b(inner));
                let (sum, size) = products.fold((0.0, 0.0), |(sum, size), product| {
                    (sum + product, size + f64::abs(product))
                });
                let mut bits = [0; 8];
                bits[..c.size].copy_from_slice(&got[(row * n + column) * c.size..][..c.size]);
                let value = (c.decode)(u64::from_le_bytes(bits));
                assert!(
                    (value - sum).abs() <= self.error * size,
                    "{} at ({row}, {column}): {value}, expected {sum}",
                    self.name
                );
            }
        }
        time
    }
}

fn mma(name: &'static str, ab: Kind, sizes: [usize; 3]) -> Product {
    Product {
        text: MMA,
        name,
        kinds: [ab, F32],
        tile: [64, 64],
        threads: 128,
        sizes,
        transposed: false,
        error: 2e-6,
    }
}

#[test]
fn products_by_mma() {
    mma("gemm_mma_bf16", BF16, [128, 128, 96]).run();
    mma("gemm_mma_f16", F16, [70, 72, 40]).run();
    let warp = |name, kinds, error| Product {
        kinds,
        tile: [16, 8],
        threads: 32,
        error,
        ..mma(name, F16, [32, 24, 64])
    };
    warp("gemm_mma_f16_sums", [F16, F16], 4e-3).run();
    warp("gemm_mma_tf32", [F32, F32], 2e-3).run();
    // Its B lies by columns.
    Product {
        transposed: true,
        ..warp("gemm_mma_s8", [S8, S32], 0.0)
    }
    .run();
}

#[test]
fn products_by_wmma() {
    let wmma = |name, kinds, error| Product {
        text: WMMA,
        name,
        kinds,
        tile: [16, 16],
        threads: 32,
        sizes: [48, 32, 64],
        transposed: false,
        error,
    };
    wmma("gemm_wmma_f16", [F16, F32], 2e-6).run();
    wmma("gemm_wmma_f16_sums", [F16, F16], 4e-3).run();
    wmma("gemm_wmma_bf16", [BF16, F32], 2e-6).run();
    wmma("gemm_wmma_tf32", [F32, F32], 2e-3).run();
    wmma("gemm_wmma_s8", [S8, S32], 0.0).run();
    let columns = wmma("gemm_wmma_bf16_transposed", [BF16, F32], 2e-6);
    Product {
        tile: [32, 8],
        sizes: [64, 24, 32],
        transposed: true,
        ..columns
    }
    .run();
}

#[test]
#[ignore = "a measurement: at most 5 ms for bf16 on one core"]
fn speed_of_products() {
    for (name, kind) in [("gemm_mma_bf16", BF16), ("gemm_mma_f16", F16)] {
        let best = |sizes| (0..20).map(|_| mma(name, kind, sizes).run()).min();
        let (whole, little) = (best([256, 256, 256]), best([64, 64, 8]));
        eprintln!("{name}: 256^3 in {whole:?}, of that decoding and one small block {little:?}");
    }
}
