//! What a command of a stream or a node of a graph does, and the doing of it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::abi::{CUhostFn, CUstreamCallback};
use super::call::handle;
use super::clock::Ordered;
use super::error::code;
use super::graph_memory::GraphMemory;
use super::module::Function;
use super::plan::GraphLaunch;
use super::transfer::{self, Copy, Fill};
use crate::check::Order;
use crate::device::GRID_WORKSPACE;
use crate::device::attributes::limits;
use crate::device::view::View;
use crate::exec::launch::{self, Host, Launch, LaunchCounts, Options};
use crate::exec::memory::{Memory, Region};
use crate::machine::{IN_CALLBACK, Machine};

/// A kernel with all that its launch was given.
#[derive(Clone, Debug)]
pub(crate) struct KernelLaunch {
    /// The kernel.
    pub(crate) function: Arc<Function>,
    /// Blocks.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The parameter block.
    pub(crate) params: Vec<u8>,
    /// Whether blocks may wait for each other.
    pub(crate) cooperative: bool,
}

/// What a command does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Nothing: it only waits.
    Nothing,
    /// Runs a kernel.
    Launch(Arc<KernelLaunch>),
    /// Copies memory.
    Copy(Copy),
    /// Copies bytes that were taken from pageable memory when the command was submitted.
    Staged { bytes: Arc<[u8]>, to: Copy },
    /// Sets memory.
    Fill(Fill),
    /// Calls a function of the host.
    Host { function: CUhostFn, data: usize },
    /// Calls a function of the host with the stream.
    Callback {
        function: CUstreamCallback,
        stream: u64,
        data: usize,
    },
    /// Records an event.
    Record { event: u64, record: u64 },
    /// Waits for the latest record of an event that the launch of its graph knows.
    Await { event: u64 },
    /// Allocates a graph's memory.
    Allocate(Arc<GraphMemory>),
    /// Frees device memory.
    Free { address: u64 },
    /// Waits until memory compares with a value: 0 is at least (cyclic), 1 equal, 2 any common bit, 3 any bit not set
    /// in both.
    WaitValue {
        address: u64,
        value: u64,
        wide: bool,
        compare: u32,
    },
    /// Writes a value.
    WriteValue {
        address: u64,
        value: u64,
        wide: bool,
    },
    /// Runs the nodes of a graph.
    Graph(Arc<GraphLaunch>),
}

impl Work {
    /// Records of events that end with it: each event and record.
    pub(crate) fn records(&self) -> Vec<(u64, u64)> {
        match self {
            Work::Record { event, record } => vec![(*event, *record)],
            Work::Graph(launch) => launch.records.clone(),
            _ => Vec::new(),
        }
    }

    /// Launches of kernels in it.
    pub(crate) fn launches(&self) -> u64 {
        match self {
            Work::Launch(_) => 1,
            Work::Graph(launch) => {
                let steps = launch.plan.steps.iter();
                steps.map(|(work, _)| work.launches()).sum()
            }
            _ => 0,
        }
    }

    /// What messages call it.
    pub(crate) fn text(&self) -> String {
        match self {
            Work::Nothing => "a wait".to_string(),
            Work::Launch(launch) => format!("the launch of {}", launch.function.name),
            Work::Copy(copy) => format!(
                "a copy of {} bytes from {:#x} to {:#x}",
                copy.bytes(),
                copy.from.address,
                copy.to.address
            ),
            Work::Staged { to, .. } => {
                format!("a copy of {} bytes to {:#x}", to.bytes(), to.to.address)
            }
            Work::Fill(fill) => format!(
                "a memset of {} bytes at {:#x}",
                fill.width * fill.height,
                fill.to.address
            ),
            Work::Host { .. } | Work::Callback { .. } => "a host function".to_string(),
            Work::Record { .. } => "the record of an event".to_string(),
            Work::Await { .. } => "a wait for an event".to_string(),
            Work::Allocate(memory) => {
                format!(
                    "the allocation of {} bytes at {:#x}",
                    memory.size, memory.address
                )
            }
            Work::Free { address } => format!("the free of {address:#x}"),
            Work::WaitValue { address, .. } => format!("a wait for a value at {address:#x}"),
            Work::WriteValue { address, .. } => format!("a write of a value at {address:#x}"),
            Work::Graph(_) => "the launch of a graph".to_string(),
        }
    }
}

/// Why a command failed; its context fails with it.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// The driver's error code.
    pub(crate) code: u32,
    /// What the log says.
    pub(crate) message: String,
    /// Whether the whole device is gone.
    pub(crate) lost: bool,
}

/// Where a command runs.
pub(crate) struct Surroundings<'s> {
    /// The machine.
    pub(crate) machine: &'s Arc<Machine>,
    /// The context.
    pub(crate) context: u64,
    /// Memory of the context's device and peers, as kernels see it.
    pub(crate) own: View,
    /// Memory of all devices, as copies see it, if it is not a plain launch.
    pub(crate) all: Option<View>,
    /// The number of the launch, if the command is one.
    pub(crate) grid: AtomicU64,
    /// Stack of a thread.
    pub(crate) stack: u32,
    /// The order of commands, if races between them are looked for.
    pub(crate) ordered: Option<Ordered>,
}

impl Surroundings<'_> {
    /// Memory as copies see it.
    pub(crate) fn everything(&self) -> &View {
        self.all.as_ref().unwrap_or(&self.own)
    }

    /// Looks at memory anew, after the command itself has changed what is allocated.
    pub(crate) fn refresh(&mut self) {
        let state = self.machine.state();
        self.own = state.view(self.context, false);
        self.all = Some(state.view(self.context, true));
    }
}

/// Does the work of a command. The state's lock is not held.
pub(crate) fn execute(work: &Work, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    match work {
        Work::Nothing | Work::Record { .. } | Work::Await { .. } => Ok(()),
        Work::WaitValue { address, wide, .. } => transfer::readable(*address, *wide, place),
        Work::Launch(launch) => run_kernel(launch, place),
        Work::Copy(copy) => transfer::copy(copy, place),
        Work::Staged { bytes, to } => transfer::staged(bytes, to, place),
        Work::Fill(fill) => transfer::fill(fill, place),
        Work::Host { function, data } => {
            if let Some(function) = function {
                let _guard = InCallback::new();
                // SAFETY: the caller of `cuLaunchHostFunc` promises that the function may be called with the data.
                unsafe { function(*data as *mut c_void) };
            }
            Ok(())
        }
        Work::Callback {
            function,
            stream,
            data,
        } => {
            if let Some(function) = function {
                let _guard = InCallback::new();
                // SAFETY: as above, for `cuStreamAddCallback`.
                unsafe { function(handle(*stream), code::SUCCESS, *data as *mut c_void) };
            }
            Ok(())
        }
        Work::Free { address } => {
            let call = place.machine.tally().call_number();
            let freed = super::pool::free(&mut place.machine.state(), *address, call);
            freed.map_err(|failure| Trouble {
                code: code::ILLEGAL_ADDRESS,
                message: failure.message.map_or_else(String::new, String::from),
                lost: false,
            })
        }
        Work::Allocate(memory) => super::graph_memory::allocate(memory, place),
        Work::WriteValue {
            address,
            value,
            wide,
        } => transfer::write_value(*address, *value, *wide, place),
        Work::Graph(launch) => super::plan::run(launch, place),
    }
}

/// While it lives, the thread must not call the driver.
struct InCallback;

impl InCallback {
    fn new() -> InCallback {
        IN_CALLBACK.set(true);
        InCallback
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        IN_CALLBACK.set(false);
    }
}

/// What a kernel asks of the machine.
struct KernelHost<'m> {
    machine: &'m Machine,
    grid: u64,
}

impl Host for KernelHost<'_> {
    fn print(&self, text: &str) {
        self.machine.settings.print.write(text);
    }

    fn nanoseconds(&self) -> u64 {
        self.machine.start.elapsed().as_nanos() as u64
    }

    fn grid_id(&self) -> u64 {
        self.grid
    }
}

/// What a cooperative launch sees of memory: that of its view, and a few bytes by which its blocks synchronise.
struct Cooperative<'v> {
    view: &'v View,
    /// Its own size, and the word that blocks count in.
    workspace: [AtomicU32; 2],
}

impl<'v> Cooperative<'v> {
    fn new(view: &'v View) -> Cooperative<'v> {
        Cooperative {
            view,
            workspace: [AtomicU32::new(8), AtomicU32::new(0)],
        }
    }
}

// SAFETY: the workspace lives as long as the launch, may be written through a shared reference, and kernels order their
// accesses to it as on hardware; all else is the view's.
unsafe impl Memory for Cooperative<'_> {
    fn region(&self, address: u64) -> Option<Region> {
        let bytes = size_of_val(&self.workspace) as u64;
        if (GRID_WORKSPACE..GRID_WORKSPACE + bytes).contains(&address) {
            return Some(Region {
                start: GRID_WORKSPACE,
                end: GRID_WORKSPACE + bytes,
                host: self.workspace.as_ptr().cast_mut().cast(),
                writable: true,
                lasting: true,
                shadow: std::ptr::null(),
            });
        }
        self.view.region(address)
    }

    fn allocate(&self, bytes: u64) -> Option<u64> {
        self.view.allocate(bytes)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        self.view.free(address)
    }

    fn describe(&self, address: u64) -> String {
        self.view.describe(address)
    }
}

fn run_kernel(launch: &KernelLaunch, place: &Surroundings<'_>) -> Result<(), Trouble> {
    let machine = place.machine;
    let settings = &machine.settings;
    let number = place.grid.fetch_add(1, Ordering::Relaxed);
    if settings.inject.failing_launch == Some(number) {
        let message = format!(
            "launch {number} ({}) fails because the settings ask for it",
            launch.function.name
        );
        return Err(Trouble {
            code: code::LAUNCH_FAILED,
            message,
            lost: false,
        });
    }
    if let Some((device, at)) = settings.inject.lost_device
        && device as usize == place.own.device
        && number >= at
    {
        let message =
            format!("device {device} is lost with launch {number} because the settings ask for it");
        return Err(Trouble {
            code: code::DEVICE_UNAVAILABLE,
            message,
            lost: true,
        });
    }
    if !settings.execute {
        machine
            .tally()
            .launched(&launch.function.name, &LaunchCounts::default());
        return Ok(());
    }
    let kernel = match launch.function.kernel() {
        Ok(kernel) => kernel,
        Err(error) => {
            return Err(Trouble {
                code: code::INVALID_PTX,
                message: error.to_string(),
                lost: false,
            });
        }
    };
    let checks = settings.checks;
    let workspace = Cooperative::new(&place.own);
    let result = launch::run(&Launch {
        kernel,
        grid: launch.grid,
        threads: launch.block,
        dynamic_shared: launch.shared,
        params: &launch.params,
        memory: if launch.cooperative {
            &workspace
        } else {
            &place.own
        },
        grid_workspace: if launch.cooperative {
            GRID_WORKSPACE
        } else {
            0
        },
        host: &KernelHost {
            machine,
            grid: number,
        },
        order: place
            .ordered
            .as_ref()
            .map(|ordered| (ordered.command, ordered as &dyn Order)),
        options: Options {
            workers: settings.workers,
            seed: settings.seed,
            budget: settings.budget,
            shared_unit: limits(settings.capability).shared_unit,
            strict: checks.strict,
            check_uninitialized: checks.uninitialized,
            check_shared_races: checks.shared_races,
            count_memory: settings.count_memory,
            multiprocessors: limits(settings.capability).multiprocessors,
            short_slices: launch.cooperative,
            stack_limit: place.stack,
        },
    });
    match result {
        Ok(counts) => {
            machine.tally().launched(&launch.function.name, &counts);
            Ok(())
        }
        Err(fault) => {
            machine
                .tally()
                .launched(&launch.function.name, &LaunchCounts::default());
            Err(Trouble {
                code: fault.kind.code(),
                message: fault.to_string(),
                lost: false,
            })
        }
    }
}

/// Stack that a thread has at least, whatever `cuCtxSetLimit` says: PTX declares more than a compiler would keep.
const LEAST_STACK: u32 = 512 << 10;

/// The executor's limit of local memory for a limit of a context.
pub(crate) fn stack_of(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX).max(LEAST_STACK)
}
