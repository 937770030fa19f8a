//! A machine with virtual devices: made from settings, entered by threads, or made once for the process from
//! environment variables.
//!
//! # Locks
//! A machine has one lock for all that the driver knows (`state`), which is never held while a command runs, and small
//! ones for the log and the counters, which are taken last and hold nothing else. Machines share nothing.

pub(crate) mod counters;
pub(crate) mod environment;
pub(crate) mod injection;
pub(crate) mod log;
pub(crate) mod settings;

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Instant;

pub use counters::{Counters, KernelCounters};
pub use environment::{EnvironmentVariable, VARIABLES};
pub use injection::FailingCalls;
pub use settings::{Checks, InjectedFaults, Settings, Sink, Streams};

use crate::device::address_space::Origin;
use crate::device::range_of;
use crate::driver::state::State;
use crate::exec::instruction::check_processor;
use counters::Tally;
use injection::Injection;
use log::Log;

/// A machine with virtual GPUs.
#[derive(Debug)]
pub struct Machine {
    /// Told apart from others by threads that use several.
    pub(crate) id: u64,
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// Told when a command has ended.
    pub(crate) progress: Condvar,
    /// 0 before `cuInit`, then one more than [`forks`] said.
    initialized: AtomicU64,
    tally: Tally,
    log: Log,
    pub(crate) injection: Injection,
    /// When the machine was made, for timers.
    pub(crate) start: Instant,
}

/// How often the process has been forked off others that used a machine.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Whether the process was forked off another that used a machine: locks may then be held by threads that are not here.
pub(crate) fn is_forked() -> bool {
    FORKS.load(Ordering::Relaxed) != 0
}

/// Counts forks, in the child, from the first call on.
fn watch_forks() {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    // SAFETY: the handler only touches an atomic number.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
}

thread_local! {
    static ENTERED: RefCell<Vec<Arc<Machine>>> = const { RefCell::new(Vec::new()) };
    /// Whether the thread runs a function that a stream has called.
    pub(crate) static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

impl Machine {
    /// Makes a machine. Nothing of its devices' memory is taken before it is used.
    pub fn new(settings: Settings) -> Result<Arc<Machine>, String> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        settings.validate()?;
        check_processor()?;
        let log = Log::new(settings.log.clone());
        Ok(Arc::new_cyclic(|own| Machine {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State::new(&settings, own.clone())),
            progress: Condvar::new(),
            initialized: AtomicU64::new(0),
            tally: Tally::default(),
            log,
            injection: Injection::default(),
            start: Instant::now(),
            settings,
        }))
    }

    /// `cuInit`: false if it was called before the process was forked off, which leaves a machine unusable.
    pub(crate) fn initialize(&self) -> bool {
        watch_forks();
        let now = FORKS.load(Ordering::Relaxed) + 1;
        let before = self
            .initialized
            .compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok() || before == Err(now)
    }

    /// Whether `cuInit` was called, in this process.
    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire) == FORKS.load(Ordering::Relaxed) + 1
    }

    /// Makes driver calls of this thread go to the machine until the guard is dropped. Guards nest.
    #[must_use = "calls go to the machine only while the guard lives"]
    pub fn enter(self: &Arc<Self>) -> Entered {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        Entered {
            _thread: PhantomData,
        }
    }

    /// Makes it the process's machine: driver calls of all threads that have not entered another one go to it, and it
    /// is finished when the process ends.
    ///
    /// # Errors
    /// If the process has a machine already: the first driver call makes one from the environment.
    pub fn serve_process(self: &Arc<Self>) -> Result<(), String> {
        PROCESS.set(Ok(Arc::clone(self))).map_err(|_| {
            "the process has a virtual machine already; choose one before the first driver call"
                .to_string()
        })?;
        finish_at_exit();
        Ok(())
    }

    /// The process's machine, made from the environment unless one was chosen; or why there is none.
    pub fn of_process() -> Result<Arc<Machine>, String> {
        process().clone()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let state = self.state();
        let memory = state
            .devices
            .iter()
            .map(|device| (device.memory.used(), device.memory.peak()))
            .collect();
        drop(state);
        self.tally.read(memory)
    }

    /// Forgets what was counted so far, but not the memory in use.
    pub fn reset_counters(&self) {
        self.tally.reset();
    }

    /// The lines that were logged so far (the last thousands of them).
    pub fn log_lines(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Allocations that were not freed, a line for each.
    pub fn leaks(&self) -> Vec<String> {
        self.state().leaks()
    }

    /// Logs what was never freed, if the settings ask for it, and writes the counters to the file that they name. Done
    /// when the process's machine ends; others may call it.
    pub fn finish(&self) {
        if self.settings.checks.leaks {
            for leak in self.leaks() {
                self.log.line(&format!("leak: {leak}"));
            }
        }
        if let Some(path) = &self.settings.counters_file
            && let Err(error) = std::fs::write(path, self.counters().to_json())
        {
            self.log.line(&format!(
                "cannot write the counters to {}: {error}",
                path.display()
            ));
        }
    }

    /// Where lines are logged.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Where things are counted.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// All that the driver knows.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic below an entry point is caught there; what it left is no worse than an error half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a message says of an address that a kernel of a device has used.
    pub(crate) fn describe_for(&self, device: usize, address: u64) -> String {
        let state = self.state();
        match range_of(address) {
            Some(index) if index == device => state.describe(address),
            Some(index) if index < state.devices.len() => {
                let found = state.devices[index].memory.find(address);
                let pool = found
                    .is_some_and(|(_, allocation)| matches!(allocation.origin, Origin::Pool(_)));
                let missing = if pool {
                    "without access to its pool (cuMemPoolSetAccess)"
                } else {
                    "without peer access"
                };
                format!(
                    "the address is device {index}'s, {missing}; {}",
                    state.describe(address)
                )
            }
            Some(_) => state.describe(address),
            None => "it is a host address that is neither page-locked, managed nor registered"
                .to_string(),
        }
    }
}

/// While it lives, driver calls of its thread go to a machine.
#[derive(Debug)]
pub struct Entered {
    /// It must be dropped by the thread that entered.
    _thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with_borrow_mut(|entered| entered.pop());
    }
}

/// The process's machine: one that was chosen, or the one that the environment describes; or why there is none.
static PROCESS: OnceLock<Result<Arc<Machine>, String>> = OnceLock::new();

fn process() -> &'static Result<Arc<Machine>, String> {
    PROCESS.get_or_init(|| {
        let settings = environment::read(|name| {
            // A value that is no text is refused as any other that is not understood.
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        });
        let machine = settings.and_then(Machine::new);
        match &machine {
            Ok(_) => finish_at_exit(),
            Err(message) => Log::new(Sink::Stderr).line(message),
        }
        machine
    })
}

fn finish_at_exit() {
    // SAFETY: registers a function without arguments that lives as long as the library.
    unsafe { libc::atexit(finish_process) };
}

extern "C" fn finish_process() {
    let finished = std::panic::catch_unwind(|| {
        // What a forked child has is its parent's, which writes it; and a lock may be held that nobody releases.
        if let Some(Ok(machine)) = PROCESS.get()
            && !is_forked()
        {
            machine.finish();
        }
    });
    // A panic at exit has nobody to tell.
    drop(finished);
}

/// Calls a function with the machine that the thread has entered, or the process's.
pub(crate) fn current<R>(body: impl FnOnce(Result<&Arc<Machine>, u32>) -> R) -> R {
    let entered = ENTERED
        .try_with(|entered| entered.borrow().last().cloned())
        .ok()
        .flatten();
    match &entered {
        Some(machine) => body(Ok(machine)),
        None => body(
            process()
                .as_ref()
                .map_err(|_| crate::driver::error::code::INVALID_VALUE),
        ),
    }
}
