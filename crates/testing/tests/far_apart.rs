//! Every op on operands whose elements lie more than 2^32 apart on the device: the numbers of the host. Memory that nothing touches
//! costs the virtual GPU nothing, so that tensors of 4 billion elements can be had anywhere.

use std::sync::Arc;

use fireclay_tensor::{DType, Device, Result, Tensor};
use fireclay_testing::compare::{Tolerance, matches};
use fireclay_testing::samples::samples;
use virtual_gpu::machine::{Checks, Machine, Settings, Sink};

const CUDA: Device = Device::Cuda(0);

/// What 32 bits don't count.
const FAR: usize = (1 << 32) + 13;

/// A device with much memory.
fn large_device() -> Arc<Machine> {
    fireclay_cuda::driver::use_virtual(Settings {
        devices: 1,
        memory: 1 << 39,
        log: Sink::Stderr,
        checks: Checks {
            uninitialized: true,
            ..Checks::default()
        },
        ..Settings::default()
    })
    .expect("no driver was chosen before")
}

/// The tensor on the device, as a view of one that has over 2^32 elements: rows along the first dimension are spread over all of it,
/// and the last element is its last.
fn spread(tensor: &Tensor) -> Result<Tensor> {
    let here = tensor.to(CUDA)?;
    let shape = &tensor.shape()[..];
    if here.numel() == 0 {
        return Ok(here);
    }
    let rows = shape.first().copied().unwrap_or(1);
    let row = here.numel() / rows;
    let pitch = row.max(FAR.div_ceil(rows));
    let mut strides = here.contiguous()?.layout().strides().to_vec();
    if let Some(first) = strides.first_mut() {
        *first = pitch;
    }
    let all = Tensor::empty(&[rows * pitch], tensor.dtype(), CUDA)?;
    all.as_strided(shape, &strides, pitch - row)?.copy_(&here)
}

#[test]
fn ops_reach_elements_that_32_bits_do_not_count() {
    let _machine = large_device();
    let (mut compared, mut failures) = (0, Vec::new());
    for sample in samples() {
        let inputs = sample.formed(DType::F32, Tensor::clone);
        let far = sample.formed(DType::F32, |input| spread(input).expect("much memory"));
        match (sample.run(&far), sample.run(&inputs)) {
            (Ok(got), Ok(want)) => {
                for (number, (got, want)) in got.iter().zip(&want).enumerate() {
                    compared += 1;
                    let got = got.cpu().expect("a move");
                    // Products with a vector and the like sum in an order that depends on how the operands lie.
                    let close = matches(&got, want, Tolerance::new(1e-5, 1e-6)).is_ok();
                    if !close {
                        failures.push(format!("{}, result {number}: {got} but {want}", sample.op));
                    }
                }
            }
            (Err(_), Err(_)) => {}
            (got, want) => failures.push(format!("{}: {got:?} but {want:?}", sample.op)),
        }
    }
    assert!(compared > samples().len(), "{compared}");
    assert!(
        failures.is_empty(),
        "{} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
