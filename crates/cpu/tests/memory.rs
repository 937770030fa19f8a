//! Host memory: buffers don't overlap, statistics are exact, running out is an error.

use fireclay_cpu::memory::{self, ALIGNMENT, HostBuffer, memory_stats};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MIB: usize = 1 << 20;

/// The cache is one per process, so tests that look at its numbers take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn buffer(nbytes: usize) -> HostBuffer {
    HostBuffer::allocate(nbytes).unwrap()
}

#[test]
fn buffers_of_all_sizes_are_aligned_and_apart() {
    let _turn = alone();
    let sizes = [
        0,
        1,
        63,
        64,
        65,
        500,
        4096,
        4097,
        100_000,
        MIB,
        MIB + 1,
        11 * MIB,
        45 * MIB,
    ];
    let mut buffers: Vec<HostBuffer> = sizes
        .iter()
        .chain(&sizes)
        .map(|&nbytes| buffer(nbytes))
        .collect();
    for (i, buffer) in buffers.iter_mut().enumerate() {
        assert!(buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert_eq!(buffer.len(), sizes[i % sizes.len()]);
        buffer.as_bytes_mut().fill(i as u8);
    }
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(
            buffer.as_bytes().iter().all(|&byte| byte == i as u8),
            "buffer {i} was overwritten"
        );
    }
}

#[test]
fn statistics_count_small_and_large_blocks() {
    let _turn = alone();
    let before = memory_stats();
    let buffers = [buffer(100), buffer(5000), buffer(3 * MIB)];
    let during = memory_stats();
    let grown =
        |pick: fn(&fireclay_core::caching::Statistics) -> u64| pick(&during) - pick(&before);
    assert_eq!(grown(|s| s.allocation.all.current), 3);
    assert_eq!(grown(|s| s.allocation.small_pool.current), 2);
    assert_eq!(
        grown(|s| s.requested_bytes.all.current),
        (100 + 5000 + 3 * MIB) as u64
    );
    assert_eq!(
        grown(|s| s.allocated_bytes.all.current),
        (128 + 5120 + 3 * MIB) as u64
    );
    assert!(during.allocated_bytes.all.peak >= during.allocated_bytes.all.current);
    assert!(during.reserved_bytes.all.current >= during.allocated_bytes.all.current);
    drop(buffers);
    let after = memory_stats();
    assert_eq!(
        after.allocated_bytes.all.current,
        before.allocated_bytes.all.current
    );
    assert_eq!(
        after.requested_bytes.all.current,
        before.requested_bytes.all.current
    );
}

#[test]
fn blocks_freed_on_another_thread_are_counted_and_used_again() {
    let _turn = alone();
    let before = memory_stats().allocation.all.current;
    for _ in 0..3 {
        let buffers: Vec<HostBuffer> = (0..2000).map(|i| buffer(1 + i % 5000)).collect();
        std::thread::spawn(move || drop(buffers)).join().unwrap();
    }
    assert_eq!(memory_stats().allocation.all.current, before);
    let reserved = memory_stats().reserved_bytes.all.current;
    for _ in 0..20 {
        let buffers: Vec<HostBuffer> = (0..2000).map(|i| buffer(1 + i % 5000)).collect();
        std::thread::spawn(move || drop(buffers)).join().unwrap();
    }
    assert_eq!(
        memory_stats().reserved_bytes.all.current,
        reserved,
        "nothing new was needed"
    );
}

#[test]
fn many_threads_share_the_cache() {
    let _turn = alone();
    let before = memory_stats().allocation.all.current;
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for i in 0..3000_usize {
                    let mut buffer = buffer(i * 7919 % 20_000);
                    buffer.as_bytes_mut().fill(thread);
                    held.push(buffer);
                    if held.len() > 50 {
                        let freed = held.swap_remove(i % 50);
                        assert!(freed.as_bytes().iter().all(|&byte| byte == thread));
                    }
                }
            });
        }
    });
    assert_eq!(memory_stats().allocation.all.current, before);
}

#[test]
fn out_of_memory_is_an_error_and_passes() {
    let _turn = alone();
    let held = buffer(MIB);
    let before = memory_stats();
    memory::set_memory_limit(Some(before.reserved_bytes.all.current + 30 * MIB as u64));
    let error = HostBuffer::allocate(500 * MIB).unwrap_err();
    assert_eq!(error.requested, 500 * MIB);
    assert_eq!(error.allocated, before.allocated_bytes.all.current);
    assert!(error.limit.is_some_and(|limit| limit >= error.reserved));
    assert_eq!(memory_stats().num_ooms, before.num_ooms + 1);
    drop(buffer(20 * MIB));
    memory::set_memory_limit(None);
    drop(buffer(64 * MIB));
    assert_eq!(held.len(), MIB);

    for impossible in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
        assert_eq!(
            HostBuffer::allocate(impossible).unwrap_err().requested,
            impossible
        );
    }
}

#[test]
fn cached_segments_make_room_when_memory_is_short() {
    let _turn = alone();
    memory::empty_cache();
    let start = memory_stats();
    drop(buffer(60 * MIB));
    memory::set_memory_limit(Some(start.reserved_bytes.all.current + 70 * MIB as u64));
    drop(buffer(66 * MIB));
    memory::set_memory_limit(None);
    assert_eq!(
        memory_stats().num_alloc_retries,
        start.num_alloc_retries + 1
    );
}

#[test]
fn emptying_the_cache_gives_segments_back() {
    let _turn = alone();
    memory::empty_cache();
    let before = memory_stats().reserved_bytes.all.current;
    let kept = buffer(30 * MIB);
    drop(buffer(50 * MIB));
    assert_eq!(
        memory_stats().reserved_bytes.all.current,
        before + 80 * MIB as u64
    );
    assert_eq!(memory::empty_cache(), 50 * MIB as u64);
    assert_eq!(
        memory_stats().reserved_bytes.all.current,
        before + 30 * MIB as u64
    );
    drop(kept);
}

#[test]
fn ever_new_sizes_do_not_pile_up() {
    let _turn = alone();
    memory::empty_cache();
    for i in 0..200 {
        drop(buffer((20 + i) * MIB));
    }
    assert!(memory_stats().reserved_bytes.all.current < 1000 * MIB as u64);
}

#[test]
fn poison_fills_new_buffers() {
    // In a process of its own, since the variable is read once.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "poisoned_child", "--ignored"])
        .env("FIRECLAY_POISON", "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
#[ignore = "run by poison_fills_new_buffers with FIRECLAY_POISON=1"]
fn poisoned_child() {
    for nbytes in [10, 5000, 3 * MIB] {
        for _ in 0..2 {
            let mut buffer = buffer(nbytes);
            assert!(buffer.as_bytes().iter().all(|&byte| byte == 0xFF));
            buffer.as_bytes_mut().fill(0);
        }
    }
}
