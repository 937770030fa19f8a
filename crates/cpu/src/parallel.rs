//! The thread pool: runs numbered tasks, whose results must not depend on who runs them.
//!
//! Note [Thread pool]
//!
//! The calling thread takes part: it puts a job (a closure and a counter of tasks) where the
//! workers see it, takes tasks itself until there are none, and waits only for tasks that a worker has begun. So a
//! caller never waits for a worker to wake up, any number of threads may call at the same time, and a nested call
//! (from within a task) runs its tasks itself. A worker without work looks for some for `SPIN` and then sleeps.
//!
//! What a fork-join costs the caller on two threads of a (busy) two-core virtual machine, the median of 1000 calls with
//! empty tasks, after the caller was busy with something else for 0, 50 or 500 us:
//!
//! | | 2 tasks: 0 | 50 | 500 | 16 tasks: 0 | 50 | 500 |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | this pool | 0.3 us | 0.4 | 0.5 | 1.7 us | 1.7 | 2.1 |
//! | rayon 1.11, called from outside of its pool | 6.2 us | 6.4 | 6.9 | 7.4 us | 7.7 | 8.3 |
//!
//! Rayon hands a call from a thread that isn't its own to its workers, and the caller sleeps meanwhile. That
//! is why this pool is here.
mod job;

use job::Job;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker without work stays awake.
const SPIN: Duration = Duration::from_micros(20);

/// The most pieces [`for_ranges`] makes: enough to keep many threads evenly busy, few enough to cost nothing.
const MOST_RANGES: usize = 256;

/// How many threads work on one op, the caller included (`torch.get_num_threads`).
///
/// At first as many as there are CPUs for this process, or what the environment variable `FIRECLAY_NUM_THREADS` says.
#[inline]
pub fn threads() -> usize {
    POOL.threads.load(Relaxed)
}

/// Changes [`threads`] to `count` (at least 1) for jobs that start from now on (`torch.set_num_threads`).
pub fn set_threads(count: usize) {
    POOL.threads.store(count.max(1), Relaxed);
}

/// Runs `task(0)` to `task(count - 1)`, on several threads if there are several, and returns when all are done.
///
/// The split into tasks must depend on the shape alone, never on [`threads`], so that results don't. Called from
/// within a task it runs on the calling thread alone. A panic in a task is passed on to the caller; tasks that hadn't
/// begun by then don't run.
pub fn run(count: usize, task: impl Fn(usize) + Sync) {
    let helpers = (threads() - 1).min(count.saturating_sub(1));
    if helpers == 0 || IN_TASK.get() {
        (0..count).for_each(task);
    } else {
        run_shared(count, helpers, &task);
    }
}

/// As [`run`], for tasks that can fail: after a failure no more tasks begin, and one of the errors is returned.
pub fn try_run<E: Send + Sync>(
    count: usize,
    task: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failure = OnceLock::new();
    run(count, |number| {
        if failure.get().is_none()
            && let Err(error) = task(number)
        {
            // Another task's error may have come first: one is enough.
            let _ = failure.set(error);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// Cuts `0..len` into ranges of `grain` elements (or a multiple of it, if there would be very many; the last may be
/// shorter) and runs `task` on each as [`run`] does. The ranges depend on `len` and `grain` alone.
pub fn for_ranges(len: usize, grain: usize, task: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    let size = len.div_ceil(grain).div_ceil(MOST_RANGES) * grain;
    if size >= len {
        if len > 0 {
            task(0..len);
        }
        return;
    }
    run(len.div_ceil(size), |piece| {
        task(piece * size..len.min((piece + 1) * size))
    });
}

thread_local! {
    /// Whether this thread is within a task.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

struct Pool {
    /// The number that [`threads`] gives.
    threads: AtomicUsize,
    /// How many jobs are in the queue, for looking without the lock.
    open: AtomicUsize,
    queue: Mutex<Queue>,
    /// Wakes a worker.
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Jobs that may have tasks left and room for helpers, the oldest first.
    jobs: Vec<job::Handle>,
    workers: usize,
    asleep: usize,
}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool {
    threads: AtomicUsize::new(default_threads()),
    open: AtomicUsize::new(0),
    queue: Mutex::default(),
    work: Condvar::new(),
});

fn default_threads() -> usize {
    let asked = std::env::var("FIRECLAY_NUM_THREADS")
        .ok()
        .and_then(|value| value.trim().parse().ok());
    asked
        .filter(|&count| count > 0)
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
}

#[inline(never)]
fn run_shared(count: usize, helpers: usize, task: &(dyn Fn(usize) + Sync)) {
    let job = Job::new(count, helpers, task);
    // SAFETY: `finish` is called below, on this thread, before the job and the closure go out of scope; nothing in
    // between unwinds, since `work` catches the panics of tasks.
    let handle = unsafe { job.handle() };
    POOL.offer(handle, helpers);
    in_task(|| job.work());
    POOL.withdraw(handle);
    job.finish();
}

/// Runs `action` with nested calls of [`run`] kept on this thread. `action` doesn't unwind.
fn in_task(action: impl FnOnce()) {
    IN_TASK.set(true);
    action();
    IN_TASK.set(false);
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&'static self, job: job::Handle, helpers: usize) {
        let mut queue = self.lock();
        queue.jobs.push(job);
        self.open.store(queue.jobs.len(), Relaxed);
        while queue.workers < helpers {
            let worker =
                std::thread::Builder::new().name(format!("fireclay-{}", queue.workers + 1));
            if worker.spawn(|| self.serve()).is_err() {
                break; // The caller does the work alone.
            }
            queue.workers += 1;
        }
        let wake = helpers.min(queue.asleep);
        drop(queue);
        (0..wake).for_each(|_| self.work.notify_one());
    }

    /// Takes the job out of the queue, so that no worker joins it any more.
    fn withdraw(&self, job: job::Handle) {
        let mut queue = self.lock();
        queue.jobs.retain(|&queued| queued != job);
        self.open.store(queue.jobs.len(), Relaxed);
    }

    /// The life of a worker.
    fn serve(&self) {
        loop {
            let job = self.next_job();
            in_task(|| job.help());
        }
    }

    /// Waits for a job that wants a helper, and joins it.
    fn next_job(&self) -> job::Handle {
        let start = Instant::now();
        loop {
            if self.open.load(Relaxed) > 0
                && let Some(job) = self.lock().join_job(&self.open)
            {
                return job;
            }
            if start.elapsed() > SPIN {
                break;
            }
            (0..16).for_each(|_| std::hint::spin_loop());
            // If the system put this worker on its caller's CPU, the caller goes first.
            std::thread::yield_now();
        }
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.join_job(&self.open) {
                return job;
            }
            queue.asleep += 1;
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.asleep -= 1;
        }
    }
}

impl Queue {
    /// Joins the oldest job that has room. Jobs without tasks or room left leave the queue.
    fn join_job(&mut self, open: &AtomicUsize) -> Option<job::Handle> {
        let mut joined = None;
        while joined.is_none() && !self.jobs.is_empty() {
            // SAFETY: a job in the queue has not been withdrawn, and its owner withdraws it before it goes away.
            joined = unsafe { self.jobs[0].join() };
            // SAFETY: as above.
            if unsafe { self.jobs[0].is_full() } {
                self.jobs.remove(0);
            }
        }
        open.store(self.jobs.len(), Relaxed);
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_depend_on_length_and_grain_alone() {
        let ranges = |len, grain| {
            let ranges = Mutex::new(Vec::new());
            for_ranges(len, grain, |range| {
                ranges.lock().unwrap().push((range.start, range.end))
            });
            let mut ranges = ranges.into_inner().unwrap();
            ranges.sort_unstable();
            ranges
        };
        assert_eq!(ranges(0, 4), []);
        assert_eq!(ranges(4, 4), [(0, 4)]);
        assert_eq!(ranges(9, 4), [(0, 4), (4, 8), (8, 9)]);
        let many = ranges(1_000_000, 10);
        assert!(many.len() <= MOST_RANGES && many[0].1 % 10 == 0);
        assert!(many.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(many.last().unwrap().1, 1_000_000);
    }
}
