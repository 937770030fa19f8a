//! Threads that help to run a launch, kept from one launch to the next.

use std::sync::{Arc, Condvar, Mutex, OnceLock, TryLockError};
use std::thread;

/// A job that several threads work on: each calls it once.
type Job = dyn Fn() + Sync;

#[derive(Default)]
struct State {
    /// The job, and how many threads may still join it.
    job: Option<(&'static Job, usize)>,
    /// Threads that are in the job.
    running: usize,
    /// Threads that exist.
    threads: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    /// Held by the launch that uses the threads.
    user: Mutex<()>,
}

/// Runs `job` on the calling thread and on up to `helpers` more at the same time. Returns when all calls have
/// returned. If the threads are busy with another launch, the caller works alone.
pub(super) fn run(helpers: usize, job: &(dyn Fn() + Sync)) {
    static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
    let shared = SHARED.get_or_init(Arc::default);
    let _user = match shared.user.try_lock() {
        Ok(user) => user,
        // The lock guards no data, so a panic under it has spoilt nothing.
        Err(TryLockError::Poisoned(user)) => user.into_inner(),
        Err(TryLockError::WouldBlock) => return job(),
    };
    if helpers == 0 {
        return job();
    }
    // SAFETY: the reference is taken back below before this function returns, also when `job` panics.
    let lasting: &'static Job =
        unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static Job>(job) };
    {
        let mut state = shared
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        while state.threads < helpers {
            let own = shared.clone();
            let spawned = thread::Builder::new()
                .name("virtual-gpu".to_string())
                .spawn(move || work(&own));
            if spawned.is_err() {
                break;
            }
            state.threads += 1;
        }
        state.job = Some((lasting, helpers));
        shared.work.notify_all();
    }
    let _finish = Finish(shared);
    job();
}

/// Takes the job back and waits for those that are in it.
struct Finish<'s>(&'s Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut state = self
            .0
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.job = None;
        while state.running > 0 {
            state = self
                .0
                .done
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

fn work(shared: &Shared) {
    let mut state = shared
        .state
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        if let Some((job, left)) = &mut state.job
            && *left > 0
        {
            *left -= 1;
            let job = *job;
            state.running += 1;
            drop(state);
            // The block that a panic has lost is missed by the caller, which counts those that have ended.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            drop(result);
            state = shared
                .state
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state.running -= 1;
            if state.running == 0 {
                shared.done.notify_all();
            }
        } else {
            state = shared
                .work
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
