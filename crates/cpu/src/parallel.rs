//! The thread pool: runs numbered tasks, whose results must not depend on who runs them.

/// How many threads work on one op, the caller included.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Runs `task(0)` to `task(count - 1)`, on several threads if there are several, and returns when all are done.
///
/// The split into tasks must depend on the shape alone, never on [`threads`], so that results don't.
/// A panic in a task is passed on to the caller.
pub fn run(count: usize, task: impl Fn(usize) + Sync) {
    use rayon::prelude::*;
    if count <= 1 || threads() == 1 {
        (0..count).for_each(task);
    } else {
        (0..count).into_par_iter().for_each(&task);
    }
}
