//! A device that is lost: every later call answers an error, what was on it goes quietly, other devices go on.

use std::time::{Duration, Instant};

use fireclay_cuda::{DeviceBuffer, Event, Gpu, PinnedBuffer, Purpose, Stream, memory, surface};
use fireclay_tensor::{Device, Error, Result, Tensor};
use virtual_gpu::machine::{Settings, Streams};

const LOST: Device = Device::Cuda(1);
const OTHER: Device = Device::Cuda(0);

/// That the result is the error of a lost device, which names the device, the driver's code and what to do.
#[track_caller]
fn lost<T>(what: &str, result: Result<T>, code: u32) {
    let Err(error) = result else {
        panic!("{what} of a lost device went well");
    };
    let text = error.to_string();
    assert!(matches!(error, Error::Device { .. }), "{what}: {text}");
    for part in [
        "cuda:1: ",
        ": CUDA_ERROR_",
        &format!("({code})"),
        "context is lost",
        "start the process again",
    ] {
        assert!(text.contains(part), "{what}: {part} is missing in: {text}");
    }
}

fn use_tensors(device: Device) -> Result<Vec<f32>> {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device)?.requires_grad_(true)?;
    x.mul(&x)?.sum_all()?.backward()?;
    x.grad().expect("backward left it").to_vec()
}

#[test]
fn a_lost_device_answers_errors_and_nothing_hangs() {
    let start = Instant::now();
    let machine = fireclay_cuda::driver::use_virtual(Settings {
        devices: 2,
        memory: 256 << 20,
        // Work is done when somebody waits, so that there is some when the device is lost.
        streams: Streams::Deferred,
        ..Settings::default()
    })
    .unwrap();
    let expected = [2.0, 4.0, 6.0];
    assert_eq!(use_tensors(LOST).unwrap(), expected);
    assert_eq!(use_tensors(OTHER).unwrap(), expected);

    let gpu = Gpu::get(1).unwrap();
    // The codes that drivers give for devices that are gone: unavailable, uncorrectable memory, off the bus.
    for code in [46, 214, 999] {
        let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], LOST).unwrap();
        let on_other = Tensor::ones(&[3], OTHER).unwrap();
        let leaf = x.detach().requires_grad_(true).unwrap();
        let loss = leaf.mul(&x).unwrap().sum_all().unwrap();
        let side = Stream::new(gpu).unwrap();
        let (event, timer) = (
            Event::new(gpu, false).unwrap(),
            Event::new(gpu, true).unwrap(),
        );
        event.record(&side).unwrap();
        let buffer = DeviceBuffer::allocate(gpu.stream(), 1 << 20, Purpose::Others).unwrap();
        buffer.used_by(&side);
        let pinned = PinnedBuffer::allocate(gpu, 1000).unwrap();
        pinned.used_by(&side).unwrap();
        // A block that waits for a stream of the lost device must not keep the other one from its memory.
        let lent = DeviceBuffer::allocate(Gpu::get(0).unwrap().stream(), 1 << 20, Purpose::Others)
            .unwrap();
        lent.used_by(&side);
        drop(lent);

        machine.lose_device(1, code).unwrap();
        for _ in 0..2 {
            lost("an op", x.mul(&x), code);
            lost("an op in place", x.add_(1.0), code);
            lost("a reduction", x.sum_all(), code);
            lost("a read", x.to_vec::<f32>(), code);
            lost("a move to the host", x.cpu(), code);
            lost("a move to another device", x.to(OTHER), code);
            lost(
                "a move from the host",
                Tensor::ones(&[3], "cpu").unwrap().to(LOST),
                code,
            );
            lost("a move from another device", on_other.to(LOST), code);
            lost("a new tensor", Tensor::zeros(&[3], LOST), code);
            lost(
                "a large new tensor",
                Tensor::empty(&[30 << 20], fireclay_tensor::DType::F32, LOST),
                code,
            );
            lost("a copy", x.copy_(&Tensor::ones(&[3], "cpu").unwrap()), code);
            lost("synchronize", surface::synchronize(LOST), code);
            lost("mem_get_info", surface::mem_get_info(LOST), code);
            lost("memory_summary", surface::memory_summary(LOST), code);
            lost("a stream", Stream::new(gpu), code);
            lost("waiting for a stream", side.synchronize(), code);
            lost("an event", Event::new(gpu, true), code);
            lost("asking an event", event.is_done(), code);
            lost("waiting for an event", event.synchronize(), code);
            lost("time", timer.elapsed_since(&timer), code);
            // What needs no device is answered as before.
            assert!(surface::get_device_name(LOST).is_ok());
            assert!(surface::memory_allocated(LOST).is_ok());
            assert_eq!(surface::device_count(), 2);
            assert!(!format!("{x:?}").is_empty());
            assert_eq!(use_tensors(OTHER).unwrap(), expected);
            assert!(surface::is_available());
        }
        lost("backward", loss.backward(), code);
        // The first of the two ends its process's other threads' work too: they get the same error.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lost("an op of another thread", x.mul(&x), code));
            assert!(other.join().is_ok());
        });
        // Dropping is quiet, whatever is in use.
        drop((loss, leaf, x, on_other, buffer, pinned, event, timer, side));
        assert_eq!(use_tensors(OTHER).unwrap(), expected);
        memory::empty_pinned_cache(Gpu::get(0).unwrap()).unwrap();
        machine.clear_faults();
        assert_eq!(
            use_tensors(LOST).unwrap(),
            expected,
            "the device is found again"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "something waits for ever"
    );
}
