//! The thread pool: every task runs once, whoever calls, and panics come back.

use fireclay_cpu::parallel::{for_ranges, run, set_threads, threads};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of threads is one for the process, so tests that set it take turns.
fn with_threads(count: usize) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_threads(count);
    turn
}

fn counts(len: usize) -> Vec<AtomicUsize> {
    (0..len).map(|_| AtomicUsize::new(0)).collect()
}

fn assert_each_once(counts: &[AtomicUsize]) {
    assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
}

#[test]
fn every_task_runs_once() {
    for threads in [1, 2, 3, 8] {
        let _turn = with_threads(threads);
        for len in [0, 1, 2, 3, 100, 10_000] {
            let counts = counts(len);
            run(len, |task| {
                counts[task].fetch_add(1, Relaxed);
            });
            assert_each_once(&counts);
        }
    }
}

#[test]
fn the_caller_and_the_workers_take_part() {
    let _turn = with_threads(4);
    let barrier = Barrier::new(4);
    let seen = Mutex::new(HashSet::new());
    run(4, |_| {
        seen.lock().unwrap().insert(std::thread::current().id());
        barrier.wait();
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen.contains(&std::thread::current().id()));
}

#[test]
fn fewer_threads_means_fewer_at_once() {
    let _turn = with_threads(8);
    run(64, |_| std::thread::sleep(Duration::from_micros(10)));
    set_threads(2);
    assert_eq!(threads(), 2);
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    run(64, |_| {
        most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
        std::thread::sleep(Duration::from_micros(100));
        now.fetch_sub(1, Relaxed);
    });
    assert!(most.into_inner() <= 2);
    set_threads(0);
    assert_eq!(threads(), 1);
    let caller = std::thread::current().id();
    run(10, |_| assert_eq!(std::thread::current().id(), caller));
}

#[test]
fn nested_calls_do_not_deadlock() {
    let _turn = with_threads(3);
    let counts = counts(20 * 30);
    run(20, |outer| {
        let thread = std::thread::current().id();
        run(30, |inner| {
            assert_eq!(std::thread::current().id(), thread);
            counts[outer * 30 + inner].fetch_add(1, Relaxed);
        });
    });
    assert_each_once(&counts);
}

#[test]
fn a_panic_comes_back_and_the_pool_lives_on() {
    let _turn = with_threads(2);
    for round in 0..50 {
        let result = std::panic::catch_unwind(|| {
            run(16, |task| {
                if task == round % 16 {
                    std::panic::panic_any("task failed");
                }
            });
        });
        assert_eq!(
            *result.unwrap_err().downcast::<&str>().unwrap(),
            "task failed"
        );
        let counts = counts(16);
        run(16, |task| {
            counts[task].fetch_add(1, Relaxed);
            run(2, |_| {});
        });
        assert_each_once(&counts);
    }
}

#[test]
fn many_threads_may_call_at_once() {
    let _turn = with_threads(3);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for len in 0..500 {
                    let counts = counts(len % 20);
                    run(len % 20, |task| {
                        counts[task].fetch_add(1, Relaxed);
                    });
                    assert_each_once(&counts);
                }
            });
        }
    });
}

#[test]
fn work_after_sleep_is_found() {
    let _turn = with_threads(2);
    for gap in [0, 10, 50, 300] {
        for _ in 0..30 {
            std::thread::sleep(Duration::from_micros(gap));
            let counts = counts(5);
            for_ranges(5, 1, |range| {
                range.for_each(|i| _ = counts[i].fetch_add(1, Relaxed))
            });
            assert_each_once(&counts);
        }
    }
}
