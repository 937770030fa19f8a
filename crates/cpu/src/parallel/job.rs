//! A job of the thread pool: a closure on its owner's stack, a counter of tasks, and who works on it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long the owner waits awake for the last helpers: they're in the middle of a task, so most often it's short.
const SPIN: Duration = Duration::from_micros(50);

/// `count` calls of a closure, shared among its owner and up to `room` helpers.
pub(super) struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// The next task that nobody has begun.
    next: AtomicUsize,
    /// How many more helpers may join. Changed under the pool's lock.
    room: AtomicUsize,
    /// How many helpers have joined and not left.
    helpers: AtomicUsize,
    owner: Thread,
    panicked: AtomicBool,
    /// The first panic. Written by whoever set `panicked`, read by the owner once the helpers have left.
    panic: UnsafeCell<Option<Box<dyn Any + Send>>>,
}

// SAFETY: all fields can be shared but `panic`, and that is written by one thread, the one that changed `panicked` to
// true, and read after `helpers` (released by that thread, acquired by the owner) became 0.
unsafe impl Sync for Job<'_> {}

/// A pointer to a [`Job`] whose owner waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(*const Job<'static>);

// SAFETY: Job is Sync, and `Job::handle`'s contract says that it outlives its handles' uses.
unsafe impl Send for Handle {}

impl<'a> Job<'a> {
    pub(super) fn new(count: usize, room: usize, task: &'a (dyn Fn(usize) + Sync)) -> Self {
        Job {
            task,
            count,
            next: AtomicUsize::new(0),
            room: AtomicUsize::new(room),
            helpers: AtomicUsize::new(0),
            owner: std::thread::current(),
            panicked: AtomicBool::new(false),
            panic: UnsafeCell::new(None),
        }
    }

    /// A pointer to hand to workers.
    ///
    /// # Safety
    /// The owner takes the handle out of the queue and then calls [`finish`](Self::finish) before `self` moves or goes
    /// away, or what it borrows does.
    pub(super) unsafe fn handle(&self) -> Handle {
        Handle(std::ptr::from_ref(self).cast())
    }

    /// Takes tasks until all have begun. Doesn't unwind.
    pub(super) fn work(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Relaxed);
                if task >= self.count {
                    break;
                }
                (self.task)(task);
            }
        }));
        if let Err(panic) = result {
            self.next.store(self.count, Relaxed);
            if !self.panicked.swap(true, Relaxed) {
                // SAFETY: only the thread that changed `panicked` writes; the owner reads after this thread has left.
                unsafe { *self.panic.get() = Some(panic) };
            } else {
                // Dropping a payload may panic itself. There is one panic to pass on already.
                std::mem::forget(panic);
            }
        }
    }

    /// Waits until the last helper has left, and passes a task's panic on.
    pub(super) fn finish(&self) {
        let mut start = None;
        while self.helpers.load(Acquire) > 0 {
            if start.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                // Returns at once if the helper's `unpark` came first; may also return for no reason.
                std::thread::park();
            }
        }
        // SAFETY: all helpers have left, and no more can join, so the owner is alone.
        let panic = unsafe { &mut *self.panic.get() }.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Handle {
    /// Counts the calling worker among the helpers if there's room; [`help`](Self::help) must follow.
    ///
    /// # Safety
    /// The pool's lock is held and the job is in its queue.
    pub(super) unsafe fn join(self) -> Option<Handle> {
        // SAFETY: the owner hasn't withdrawn the job, for which it needs the lock, so it lives.
        let job = unsafe { &*self.0 };
        let room = job.room.load(Relaxed);
        if room == 0 || job.next.load(Relaxed) >= job.count {
            return None;
        }
        job.room.store(room - 1, Relaxed);
        job.helpers.fetch_add(1, Relaxed);
        Some(self)
    }

    /// Whether no helper can join any more.
    ///
    /// # Safety
    /// The pool's lock is held and the job is in its queue.
    pub(super) unsafe fn is_full(self) -> bool {
        // SAFETY: as for `join`.
        let job = unsafe { &*self.0 };
        job.room.load(Relaxed) == 0 || job.next.load(Relaxed) >= job.count
    }

    /// Works on the job that this worker joined, and leaves it.
    pub(super) fn help(self) {
        // SAFETY: this worker is counted in `helpers`, and the owner waits until that is 0.
        let job = unsafe { &*self.0 };
        job.work();
        let owner = job.owner.clone();
        // From here on the job may be gone.
        if job.helpers.fetch_sub(1, Release) == 1 {
            owner.unpark();
        }
    }
}
