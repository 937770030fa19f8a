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

/// The median time of ten runs, in milliseconds.
fn milliseconds(mut run: impl FnMut()) -> f64 {
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

#[test]
#[ignore = "a measurement, run by hand on a quiet machine"]
fn speed_of_matrix_products() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx/gemm.ptx"))
            .expect("a text");
    let mut rig = Rig::new(&text);
    let size = 256usize;
    let values: Vec<f32> = (0..size * size)
        .map(|index| (index % 13) as f32 - 6.0)
        .collect();
    let (a, b) = (
        rig.filled(&values[..].bytes()),
        rig.filled(&values[..].bytes()),
    );
    let c = rig.buffer(4 * size * size);
    for workers in [1, 2] {
        rig.options.workers = workers;
        let time = milliseconds(|| {
            let n = (size as i32).bytes();
            let params: [&[u8]; 6] = [&a.bytes(), &b.bytes(), &c.bytes(), &n, &n, &n];
            rig.launch("sgemm_tiled", [4, 4, 1], [256, 1, 1], 0, &params)
                .unwrap_or_else(|fault| panic!("{fault}"));
        });
        println!("sgemm 256^3, {workers} threads: {time:.2} ms");
    }
    let bytes = rig.read(c);
    let element = |row: usize, column: usize| {
        let start = 4 * (row * size + column);
        f32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"))
    };
    let expected = |row: usize, column: usize| -> f32 {
        (0..size)
            .map(|k| values[row * size + k] * values[k * size + column])
            .sum()
    };
    for (row, column) in [(0, 0), (3, 200), (255, 255), (100, 7)] {
        assert_eq!(element(row, column), expected(row, column));
    }
}
