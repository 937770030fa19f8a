//! One launch: a kernel over a grid, run by the threads of a pool.

use super::code::Kernel;
use super::memory::Memory;
use crate::check::Order;
use crate::fault::Fault;

/// What a kernel is run with.
pub(crate) struct Launch<'l> {
    /// What runs.
    pub(crate) kernel: &'l Kernel,
    /// Blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub(crate) threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic_shared: u32,
    /// The parameter block, `entry.param_bytes` long.
    pub(crate) params: &'l [u8],
    /// Device memory.
    pub(crate) memory: &'l dyn Memory,
    /// Device address of what the blocks of a cooperative launch synchronise by; 0 for others.
    pub(crate) grid_workspace: u64,
    /// What the kernel may ask of its surroundings.
    pub(crate) host: &'l dyn Host,
    /// The launch's number among the device's commands and their order, if races between commands are looked for.
    pub(crate) order: Option<(u32, &'l dyn Order)>,
    /// How to run.
    pub(crate) options: Options,
}

/// How a launch is run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Threads of the host that blocks are spread over.
    pub(crate) workers: usize,
    /// The order of blocks and warps; `None` is in order.
    pub(crate) seed: Option<u64>,
    /// Warp instructions after which a launch ends with a timeout.
    pub(crate) budget: u64,
    /// Whether reads of bytes that were never written are faults.
    pub(crate) check_uninitialized: bool,
    /// Bytes of a unit that shared memory is given out in.
    pub(crate) shared_unit: u32,
    /// Whether what is wrong and goes well on hardware is a fault, see [`crate::machine::Checks::strict`].
    pub(crate) strict: bool,
    /// Whether unordered accesses to shared memory are faults.
    pub(crate) check_shared_races: bool,
    /// Whether sectors, bank conflicts and bytes are counted.
    pub(crate) count_memory: bool,
    /// Streaming multiprocessors that the device reports.
    pub(crate) multiprocessors: u32,
    /// Whether blocks take short turns, because they wait for each other.
    pub(crate) short_slices: bool,
    /// Bytes of local memory that a thread may have.
    pub(crate) stack_limit: u32,
}

/// What a kernel may ask of its surroundings.
pub(crate) trait Host: Sync {
    /// Text that `printf` made.
    fn print(&self, text: &str);
    /// Nanoseconds of the device's timer.
    fn nanoseconds(&self) -> u64;
    /// A number for this grid.
    fn grid_id(&self) -> u64;
}

/// What a launch has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Warp instructions by class (`Class as usize`).
    pub warp_instructions: [u64; 12],
    /// Lane instructions by class.
    pub lane_instructions: [u64; 12],
    /// Branches after which the lanes of a group went apart.
    pub divergent_branches: u64,
    /// Bytes read from global memory.
    pub global_bytes_read: u64,
    /// Bytes written to global memory.
    pub global_bytes_written: u64,
    /// 32-byte sectors that global loads touched.
    pub global_sectors_read: u64,
    /// 32-byte sectors that global stores touched.
    pub global_sectors_written: u64,
    /// Shared memory cycles beyond the first of each access.
    pub bank_conflicts: u64,
    /// Barriers that a block passed.
    pub barriers: u64,
}

impl LaunchCounts {
    /// Adds another thread's counts.
    pub(crate) fn add(&mut self, other: &LaunchCounts) {
        for (sum, value) in self
            .warp_instructions
            .iter_mut()
            .zip(other.warp_instructions)
        {
            *sum += value;
        }
        for (sum, value) in self
            .lane_instructions
            .iter_mut()
            .zip(other.lane_instructions)
        {
            *sum += value;
        }
        self.divergent_branches += other.divergent_branches;
        self.global_bytes_read += other.global_bytes_read;
        self.global_bytes_written += other.global_bytes_written;
        self.global_sectors_read += other.global_sectors_read;
        self.global_sectors_written += other.global_sectors_written;
        self.bank_conflicts += other.bank_conflicts;
        self.barriers += other.barriers;
    }
}

impl Launch<'_> {
    /// Whether accesses are looked at one by one, because something is checked or counted.
    pub(crate) fn instrumented(&self) -> bool {
        let options = &self.options;
        options.check_uninitialized
            || options.check_shared_races
            || options.count_memory
            || self.order.is_some()
    }
}

/// Runs all blocks of a launch.
pub(crate) fn run(launch: &Launch<'_>) -> Result<LaunchCounts, Box<Fault>> {
    super::block::run_grid(launch)
}
