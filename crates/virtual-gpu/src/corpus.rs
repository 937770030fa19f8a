//! Tests over the corpus of compiled kernels: everything decodes, and the hot kernels run as fast as they should.

use std::time::Instant;

use crate::decode;
use crate::rig::{Bytes, Rig};

/// Every PTX text of the corpus, by name.
pub(crate) fn texts() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx");
    let mut texts: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("the corpus is part of the crate")
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .map(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            (name, std::fs::read_to_string(&path).expect("a text"))
        })
        .collect();
    texts.sort();
    texts
}

#[test]
fn every_kernel_of_the_corpus_decodes() {
    let mut errors = Vec::new();
    let mut kernels = 0;
    for (name, text) in texts() {
        let module = std::sync::Arc::new(
            crate::ptx::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}")),
        );
        let addresses = vec![0; module.variables.len()];
        for (index, function) in module.functions.iter().enumerate() {
            if function.entry {
                kernels += 1;
                if let Err(error) = decode::kernel(&module, index as u32, &addresses) {
                    errors.push(format!("{name}: {error}"));
                }
            }
        }
    }
    assert!(
        errors.is_empty(),
        "{} of {kernels} kernels:\n{}",
        errors.len(),
        errors.join("\n")
    );
    assert!(kernels >= 60);
}

/// The median time of eleven runs, in milliseconds.
fn milliseconds(mut run: impl FnMut()) -> f64 {
    run();
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A rig with a module of the corpus.
fn rig_of(module: &str) -> Rig {
    let path = format!("{}/kernels/ptx/{module}.ptx", env!("CARGO_MANIFEST_DIR"));
    Rig::new(&std::fs::read_to_string(path).expect("a text"))
}

const SIZE: usize = 256;

/// Values of a square matrix: small integers, so that every sum is exact.
fn values() -> Vec<f32> {
    (0..SIZE * SIZE)
        .map(|index| (index % 13) as f32 - 6.0)
        .collect()
}

/// Checks some elements of the product of [`values`] with itself.
fn check_product(bytes: &[u8]) {
    let values = values();
    for (row, column) in [(0, 0), (3, 200), (255, 255), (100, 7)] {
        let expected: f32 = (0..SIZE)
            .map(|k| values[row * SIZE + k] * values[k * SIZE + column])
            .sum();
        let element = bytes[4 * (row * SIZE + column)..][..4].try_into();
        assert_eq!(f32::from_le_bytes(element.expect("four bytes")), expected);
    }
}

/// Times a kernel that multiplies [`values`], given as bytes, on one thread and on two.
fn time_product(module: &str, kernel: &str, matrix: &[u8], grid: [u32; 3], threads: [u32; 3]) {
    let mut rig = rig_of(module);
    let (a, b) = (rig.filled(matrix), rig.filled(matrix));
    let c = rig.buffer(4 * SIZE * SIZE);
    for workers in [1, 2] {
        rig.options.workers = workers;
        let time = milliseconds(|| {
            let n = (SIZE as i32).bytes();
            let params: [&[u8]; 6] = [&a.bytes(), &b.bytes(), &c.bytes(), &n, &n, &n];
            rig.launch(kernel, grid, threads, 0, &params)
                .unwrap_or_else(|fault| panic!("{fault}"));
        });
        println!("{kernel} 256^3, {workers} threads: {time:.2} ms");
    }
    check_product(&rig.read(c));
}

#[test]
#[ignore = "a measurement, run by hand on a quiet machine"]
fn speed_of_matrix_products() {
    let values = values();
    time_product(
        "gemm",
        "sgemm_tiled",
        &values[..].bytes(),
        [4, 4, 1],
        [256, 1, 1],
    );
    let halves: Vec<u8> = values
        .iter()
        .flat_map(|value| half::bf16::from_f32(*value).to_bits().to_le_bytes())
        .collect();
    time_product("gemm_mma", "gemm_mma_bf16", &halves, [4, 4, 1], [128, 1, 1]);
}
