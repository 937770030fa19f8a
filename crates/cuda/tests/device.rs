//! Devices, memory and copies on virtual GPUs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fireclay_core::Error;
use fireclay_cuda::{
    Argument, DeviceBuffer, Event, Gpu, Module, PinnedBuffer, Purpose, Stream, memory, sync,
};
use virtual_gpu::machine::{Checks, Machine, Settings};

const MIB: usize = 1 << 20;

/// The process's machine, and a lock: the tests look at counters that all share.
fn machine() -> (MutexGuard<'static, ()>, Arc<Machine>) {
    static ALONE: Mutex<()> = Mutex::new(());
    static MACHINE: OnceLock<Arc<Machine>> = OnceLock::new();
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = MACHINE.get_or_init(|| {
        fireclay_cuda::driver::use_virtual(Settings {
            devices: 2,
            memory: 128 << 20,
            log: virtual_gpu::machine::Sink::Stderr,
            checks: Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                ..Checks::default()
            },
            ..Settings::default()
        })
        .expect("no driver was chosen before")
    });
    (alone, Arc::clone(machine))
}

fn buffer(gpu: &'static Gpu, nbytes: usize) -> DeviceBuffer {
    DeviceBuffer::allocate(gpu.stream(), nbytes, Purpose::Others).expect("memory")
}

#[test]
fn the_virtual_gpu_is_named_so() {
    let (_alone, _) = machine();
    let driver = fireclay_cuda::driver().unwrap();
    assert_eq!(driver.devices(), 2);
    let properties = Gpu::properties_of(1).unwrap();
    assert!(
        properties.name.to_lowercase().contains("virtual"),
        "{properties:?}"
    );
    assert_eq!(properties.total_memory, 128 << 20);
    assert_eq!(
        properties.uuid.len(),
        "GPU-00000000-0000-0000-0000-000000000000".len()
    );
    let error = Gpu::get(2).unwrap_err().to_string();
    assert!(
        error.contains("cuda:2") && error.contains("there are 2 devices"),
        "{error}"
    );
}

#[test]
fn bytes_come_back_as_they_went() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    for nbytes in [0, 1, 513, 3 * MIB + 7, 20 * MIB + 1] {
        let bytes: Vec<u8> = (0..nbytes)
            .map(|index| (index * 7 + index / 251) as u8)
            .collect();
        let (first, second) = (buffer(gpu, nbytes), buffer(gpu, nbytes));
        let mut back = vec![0; nbytes];
        let syncs = sync::count();
        // SAFETY: both buffers have that many bytes.
        unsafe {
            fireclay_cuda::upload(gpu.stream(), first.address(), &bytes).unwrap();
            fireclay_cuda::copy(gpu.stream(), second.address(), first.address(), nbytes).unwrap();
            assert_eq!(sync::count(), syncs, "an upload does not wait");
            fireclay_cuda::download(gpu.stream(), second.address(), &mut back).unwrap();
        }
        assert_eq!(sync::count() - syncs, u64::from(nbytes > 0));
        assert!(back == bytes, "{nbytes} bytes");
    }
}

#[test]
fn a_warm_allocation_does_not_call_the_driver() {
    let (_alone, machine) = machine();
    let gpu = Gpu::get(0).unwrap();
    drop((buffer(gpu, 1000), buffer(gpu, 3 * MIB)));
    let (counts, calls) = (gpu.memory().counts(), machine.counters().calls);
    for _ in 0..100 {
        drop((buffer(gpu, 1000), buffer(gpu, 3 * MIB)));
    }
    assert_eq!(gpu.memory().counts(), counts);
    assert_eq!(machine.counters().calls, calls);
}

#[test]
fn memory_is_counted_and_given_back() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(1).unwrap();
    gpu.memory().empty(gpu).unwrap();
    let before = gpu.memory().statistics();
    let (free, total) = gpu.mem_get_info().unwrap();
    let kept = buffer(gpu, 700);
    let large: Vec<_> = (0..3).map(|_| buffer(gpu, 15 * MIB)).collect();
    let during = gpu.memory().statistics();
    assert_eq!(
        during.allocated_bytes.all.current - before.allocated_bytes.all.current,
        1024 + 45 * MIB as u64
    );
    let (free_during, _) = gpu.mem_get_info().unwrap();
    assert_eq!(
        free - free_during,
        during.reserved_bytes.all.current - before.reserved_bytes.all.current
    );
    drop(large);
    let released = gpu.memory().empty(gpu).unwrap();
    assert!(released.freed >= 45 * MIB as u64, "{released:?}");
    assert_eq!(
        released.split,
        2 * MIB as u64 - 1024,
        "the rest of the small segment"
    );
    drop(kept);
    gpu.memory().empty(gpu).unwrap();
    assert_eq!(gpu.mem_get_info().unwrap(), (free, total));
    assert_eq!(
        gpu.memory().statistics().reserved_bytes.all.current,
        before.reserved_bytes.all.current
    );
}

#[test]
fn a_growing_segment_leaves_no_slivers() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    gpu.memory().empty(gpu).unwrap();
    // 60 MiB in pieces that are freed serve one request of 100 MiB: no plain segments could.
    let pieces: Vec<_> = (0..3).map(|_| buffer(gpu, 20 * MIB)).collect();
    drop(pieces);
    let whole = buffer(gpu, 100 * MIB);
    assert_eq!(gpu.memory().statistics().num_ooms, 0);
    drop(whole);
    gpu.memory().empty(gpu).unwrap();
}

#[test]
fn running_out_says_everything_and_loses_nothing() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    gpu.memory().empty(gpu).unwrap();
    let held = DeviceBuffer::allocate(gpu.stream(), 40 * MIB, Purpose::Parameters).unwrap();
    let before = gpu.memory().statistics();
    let error = DeviceBuffer::allocate(gpu.stream(), 100 * MIB, Purpose::Activations).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{text}");
    for part in [
        "out of memory on cuda:0",
        "100.00 MiB asked for",
        "of 128.00 MiB",
        "allocated 40.00 MiB",
        "parameters 40.00 MiB",
        "40.00 MiB in 1 block at",
        "device.rs",
        "would fit",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let mut after = gpu.memory().statistics();
    assert_eq!(after.num_ooms, before.num_ooms + 1);
    after.num_ooms = before.num_ooms;
    assert_eq!(after.allocated_bytes, before.allocated_bytes);
    // What the error says would fit does fit.
    drop(buffer(gpu, 80 * MIB));
    drop(held);
    gpu.memory().empty(gpu).unwrap();
}

#[test]
fn a_limit_is_kept() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    gpu.memory().empty(gpu).unwrap();
    gpu.memory().set_limit(Some(30 << 20));
    let fits = buffer(gpu, 24 * MIB);
    let error = DeviceBuffer::allocate(gpu.stream(), 24 * MIB, Purpose::Others).unwrap_err();
    assert!(
        error.to_string().contains("may reserve 30.00 MiB"),
        "{error}"
    );
    gpu.memory().set_limit(None);
    drop((buffer(gpu, 24 * MIB), fits));
    gpu.memory().empty(gpu).unwrap();
}

#[test]
fn a_block_waits_for_the_streams_that_use_it() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    let other = Stream::new(gpu).unwrap();
    let used = buffer(gpu, 5 * MIB);
    let address = used.address();
    // SAFETY: the buffer has that many bytes.
    unsafe { fireclay_cuda::fill(&other, address, 1, 5 * MIB).unwrap() };
    used.used_by(&other);
    drop(used);
    other.synchronize().unwrap();
    let again = buffer(gpu, 5 * MIB);
    assert_eq!(
        again.address(),
        address,
        "it is free once the stream is done"
    );
}

#[test]
fn devices_exchange_bytes_and_no_other_is_touched() {
    let (_alone, _) = machine();
    let (first, second) = (Gpu::get(0).unwrap(), Gpu::get(1).unwrap());
    let sent: Vec<u8> = (0..100_000u32).map(|index| (index % 253) as u8).collect();
    let (from, to) = (buffer(first, sent.len()), buffer(second, sent.len()));
    let mut back = vec![0; sent.len()];
    // SAFETY: both buffers have that many bytes.
    unsafe {
        fireclay_cuda::upload(first.stream(), from.address(), &sent).unwrap();
        fireclay_cuda::copy_between(&to, second.stream(), &from, first.stream(), sent.len())
            .unwrap();
        fireclay_cuda::download(second.stream(), to.address(), &mut back).unwrap();
    }
    assert!(back == sent);
}

#[test]
fn pinned_memory_is_kept_by_class() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    drop(PinnedBuffer::allocate(gpu, 100_000).unwrap());
    let before = memory::pinned_statistics();
    let mut buffer = PinnedBuffer::allocate(gpu, 99_000).unwrap();
    let during = memory::pinned_statistics();
    assert_eq!(during.num_host_alloc, before.num_host_alloc);
    assert_eq!(during.requested_bytes - before.requested_bytes, 99_000);
    buffer.as_bytes_mut().unwrap().fill(3);
    drop(buffer);
    assert!(memory::empty_pinned_cache(gpu).unwrap() >= 100_000);
}

const TEXT: &str = "
.version 8.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd0, [data];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p bra DONE;
    mul.wide.u32 %rd1, %r4, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.f32 %f0, [%rd2];
    add.rn.f32 %f1, %f0, 0f3F800000;
    st.global.f32 [%rd2], %f1;
DONE:
    ret;
}
";

#[test]
fn a_kernel_runs_and_a_wrong_text_is_explained() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    let module = Module::from_ptx(gpu, TEXT).unwrap();
    let kernel = module.kernel(c"add_one").unwrap();
    let values: Vec<u8> = (0..1000)
        .flat_map(|index| (index as f32).to_le_bytes())
        .collect();
    let data = buffer(gpu, values.len());
    let start = Event::new(gpu, true).unwrap();
    let end = Event::new(gpu, true).unwrap();
    let mut back = vec![0; values.len()];
    // SAFETY: the kernel takes an address of 1000 floats and their number.
    unsafe {
        fireclay_cuda::upload(gpu.stream(), data.address(), &values).unwrap();
        start.record(gpu.stream()).unwrap();
        let arguments = [Argument::Address(data.address()), Argument::U32(1000)];
        kernel
            .launch(gpu.stream(), [4, 256, 0], &arguments, "add_one", 1000)
            .unwrap();
        end.record(gpu.stream()).unwrap();
        fireclay_cuda::download(gpu.stream(), data.address(), &mut back).unwrap();
    }
    assert!(end.elapsed_since(&start).unwrap() >= 0.0);
    for (index, value) in back.chunks_exact(4).enumerate() {
        let value = f32::from_le_bytes(value.try_into().unwrap());
        assert_eq!(value, index as f32 + 1.0);
    }
    let error = module.kernel(c"missing").unwrap_err().to_string();
    assert!(
        error.contains("missing") && error.contains("cuModuleGetFunction"),
        "{error}"
    );
    // What the virtual GPU can't parse it refuses at once; what it can't run, with the kernel.
    let error = Module::from_ptx(gpu, &TEXT.replace("ret;", "ret")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("compiler says") && error.contains("cuModuleLoadDataEx"),
        "{error}"
    );
    let module = Module::from_ptx(gpu, &TEXT.replace("add.rn.f32", "add.xx.f32"));
    assert!(module.and_then(|module| module.kernel(c"add_one")).is_err());
}
