//! Memory that kernels need beside their operands: it counts as any other does, and where it runs out, that is an error.
//!
//! One test, as the limit and the statistics are those of the process.

use fireclay_core::Error;
use fireclay_cpu::memory;
use fireclay_tensor::{Conv2dOptions, Tensor};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, "cpu").unwrap()
}

#[test]
fn scratch_memory_is_counted_and_can_run_out() {
    let current = || memory::memory_stats().allocated_bytes.all;
    let matrix = ones(&[512, 512]);
    let before = current().current;
    memory::reset_peak_memory_stats();
    let product = matrix.matmul(&matrix).unwrap();
    assert!(
        current().peak - before > 2 << 20,
        "product and packed blocks"
    );
    drop(product);
    assert_eq!(current().current, before);

    // The slab is as high as the padded image, some 128 MB: more than the limit, less than the machine has.
    let far = 1 << 22;
    let options = Conv2dOptions {
        padding: [far, 1],
        dilation: [far, 1],
        ..Conv2dOptions::default()
    };
    let image = ones(&[1, 1, 4, 4]).requires_grad_(true).unwrap();
    let weight = ones(&[1, 1, 3, 3]).requires_grad_(true).unwrap();
    let conv = || image.conv2d(&weight, None, options);
    let output = conv().unwrap();
    let limited = |limit: Option<u64>| {
        memory::empty_cache();
        memory::set_memory_limit(limit.map(|limit| current().current + limit));
    };
    limited(Some(64 << 20));
    assert!(matches!(conv(), Err(Error::OutOfMemory { .. })));
    let loss = output.sum_all().unwrap();
    assert!(matches!(loss.backward(), Err(Error::OutOfMemory { .. })));
    limited(None);
    // Only the middle taps see the image.
    let middle = conv().unwrap().sum_all().unwrap().item().unwrap();
    assert_eq!(middle, 40.0);

    // No machine has this much.
    let options = Conv2dOptions {
        padding: [1 << 44, 0],
        dilation: [1 << 44, 1],
        ..options
    };
    let conv = image.conv2d(&weight, None, options);
    assert!(matches!(conv, Err(Error::OutOfMemory { .. })));
}
