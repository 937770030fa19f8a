//! Blocks: their warps in turns up to the barrier, and the grid's blocks over the threads of the host.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::core::{Core, Pause};
use super::launch::{Launch, LaunchCounts};
use super::pool;
use super::rendezvous::{self, Arrivals};
use super::warp::{Group, GroupState, Warp};
use crate::check::shared::SharedShadow;
use crate::fault::{Fault, FaultKind};

/// Warp instructions that a block runs before others get their turn, in case it waits for one of them.
const SLICE: u64 = 1 << 22;

/// The same when blocks wait for each other by design, or a thread has slept.
const SHORT_SLICE: u64 = 1 << 14;

/// Blocks that a thread keeps unfinished before it stops starting new ones.
const OPEN_BLOCKS: usize = 32;

/// Runs all blocks of a launch.
pub(super) fn run_grid(launch: &Launch<'_>) -> Result<LaunchCounts, Box<Fault>> {
    let total: u64 = launch.grid.iter().map(|&size| u64::from(size)).product();
    let grid = Grid {
        launch,
        total,
        next: AtomicU64::new(0),
        spent: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        result: Mutex::new((LaunchCounts::default(), None)),
        finished: AtomicU64::new(0),
    };
    let helpers = (launch.options.workers as u64).min(total).saturating_sub(1) as usize;
    if helpers == 0 {
        grid.work();
    } else {
        pool::run(helpers, &|| grid.work());
    }
    let finished = grid.finished.into_inner();
    let (counts, fault) = grid
        .result
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match fault {
        Some(fault) => Err(fault),
        None if finished == total => Ok(counts),
        None => Err(Box::new(lost(launch, total - finished))),
    }
}

/// The fault of a launch of which blocks were lost by a panic in a thread that ran them: a bug of this crate, or a panic of a
/// function that the settings name.
#[cold]
fn lost(launch: &Launch<'_>, blocks: u64) -> Fault {
    let core = Core::new(launch);
    let message = format!(
        "{blocks} blocks were lost: a thread that ran them has panicked, in the virtual GPU itself or in a function that \
         its settings name"
    );
    core.fault_at(&launch.kernel.entry, 0, 0, FaultKind::LaunchFailed, message)
}

struct Grid<'l> {
    launch: &'l Launch<'l>,
    total: u64,
    next: AtomicU64,
    /// Warp instructions of all blocks.
    spent: AtomicU64,
    /// Blocks that have come to their end.
    finished: AtomicU64,
    /// A fault has happened.
    stop: AtomicBool,
    result: Mutex<(LaunchCounts, Option<Box<Fault>>)>,
}

impl<'l> Grid<'l> {
    /// Runs blocks until there are none left.
    fn work(&self) {
        let mut core = Core::new(self.launch);
        let mut open: VecDeque<Block<'l>> = VecDeque::new();
        let mut spare: Option<SharedMemory> = None;
        let mut limit = OPEN_BLOCKS;
        let mut rounds = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let start = (open.len() < limit).then(|| self.next.fetch_add(1, Ordering::Relaxed));
            let mut block = match start.filter(|&index| index < self.total) {
                Some(index) => {
                    let bytes = self.shared_bytes();
                    let memory = spare.take().unwrap_or_else(|| SharedMemory::new(bytes));
                    Block::new(&mut core, self.ordered(index), memory)
                }
                None => match open.pop_front() {
                    Some(block) => block,
                    None => break,
                },
            };
            let slice = if self.launch.options.short_slices {
                SHORT_SLICE
            } else {
                SLICE
            };
            // A small budget is looked at as soon as it is spent.
            let slice = slice.min(self.launch.options.budget.saturating_add(1));
            core.fuel = slice;
            core.yielded = false;
            let state = block.run(&mut core);
            let spent = slice - core.fuel;
            let spent = self.spent.fetch_add(spent, Ordering::Relaxed) + spent;
            match state {
                // Blocks are left that the budget has nothing for, however short they are.
                State::Done
                    if spent > self.launch.options.budget
                        && self.next.load(Ordering::Relaxed) < self.total =>
                {
                    let fault = block.timed_out(&mut core, self.launch.options.budget);
                    self.fail(Some(Box::new(fault)));
                    break;
                }
                State::Done => {
                    self.finished.fetch_add(1, Ordering::Relaxed);
                    rounds = 0;
                    spare = Some(block.shared);
                }
                State::Fault => {
                    self.fail(core.fault.take());
                    break;
                }
                State::Unfinished if spent > self.launch.options.budget => {
                    let fault = block.timed_out(&mut core, self.launch.options.budget);
                    self.fail(Some(Box::new(fault)));
                    break;
                }
                State::Unfinished => {
                    open.push_back(block);
                    rounds += 1;
                    if rounds > 2 * limit {
                        // No block finishes: they may wait for one that has not started.
                        limit = limit.saturating_mul(2);
                        rounds = 0;
                    }
                }
            }
        }
        let mut counts = core.counts.clone();
        core.profile.sum(self.launch.kernel, &mut counts);
        let mut result = self
            .result
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        result.0.add(&counts);
    }

    fn shared_bytes(&self) -> u32 {
        let fixed = self.launch.kernel.shared_bytes;
        let options = &self.launch.options;
        let asked = match self.launch.dynamic_shared {
            0 => fixed,
            dynamic => fixed.next_multiple_of(16).saturating_add(dynamic),
        };
        if options.strict {
            return asked;
        }
        asked
            .checked_next_multiple_of(options.shared_unit)
            .unwrap_or(asked)
    }

    fn fail(&self, fault: Option<Box<Fault>>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut result = self
            .result
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if result.1.is_none() {
            result.1 = fault;
        }
    }

    /// The block that comes at a place of the order: itself, or a permutation by the seed.
    fn ordered(&self, index: u64) -> [u32; 3] {
        let index = match self.launch.options.seed {
            Some(seed) => permuted(index, self.total, seed),
            None => index,
        };
        let [x, y, _] = self.launch.grid.map(u64::from);
        [
            (index % x) as u32,
            (index / x % y) as u32,
            (index / x / y) as u32,
        ]
    }
}

/// A permutation of `0..total`: an affine map whose factor shares no divisor with the total.
fn permuted(index: u64, total: u64, seed: u64) -> u64 {
    let mut factor = mix(seed) % total.max(1);
    while greatest_common_divisor(factor.max(1), total) != 1 {
        factor += 1;
    }
    let product = u128::from(index) * u128::from(factor.max(1))
        + u128::from(mix(seed ^ total) % total.max(1));
    (product % u128::from(total.max(1))) as u64
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// From one state of SplitMix64 to the next.
pub(crate) const MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The well-mixed number that SplitMix64 gives in a state.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(MIX_STEP);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Unfinished,
    Fault,
}

struct Block<'l> {
    index: [u32; 3],
    warps: Vec<Warp<'l>>,
    shared: SharedMemory,
    shadow: Option<SharedShadow>,
    arrivals: Arrivals,
    /// Counts the rounds over the warps, for their order.
    round: u64,
    /// How far the round has come when the fuel was used up.
    turn: usize,
}

impl<'l> Block<'l> {
    fn new(core: &mut Core<'l>, index: [u32; 3], mut shared: SharedMemory) -> Block<'l> {
        let launch = core.launch;
        shared.poison();
        let threads: u32 = launch.threads.iter().product();
        let entry = &launch.kernel.entry;
        core.block = index;
        core.shared_bytes = shared.bytes();
        let options = &launch.options;
        let checked = options.check_uninitialized || options.check_shared_races;
        let shadow = checked.then(|| SharedShadow::new(shared.bytes()));
        let count = threads.div_ceil(32);
        let warps = (0..count).map(|number| {
            let lanes = (threads - number * 32).min(32);
            let live = if lanes == 32 {
                u32::MAX
            } else {
                (1 << lanes) - 1
            };
            core.warp = Warp::empty();
            core.warp.index = number;
            core.warp.live = live;
            if checked {
                core.warp.clock = vec![0; count as usize];
                core.warp.clock[number as usize] = 1;
            }
            core.warp.local.reserve(entry.local_bytes as usize);
            let frame = core.new_frame(entry, None, (0, 0), live, 0, 0);
            core.warp.groups.push(Group {
                mask: live,
                frame,
                pc: 0,
                state: GroupState::Ready,
                last_run: 0,
            });
            std::mem::replace(&mut core.warp, Warp::empty())
        });
        Block {
            index,
            warps: warps.collect(),
            shared,
            shadow,
            arrivals: Arrivals::new(),
            round: 0,
            turn: 0,
        }
    }

    /// Runs until the block is done or the core's fuel is.
    fn run(&mut self, core: &mut Core<'l>) -> State {
        std::mem::swap(&mut core.shadow, &mut self.shadow);
        let state = self.run_warps(core);
        std::mem::swap(&mut core.shadow, &mut self.shadow);
        state
    }

    fn run_warps(&mut self, core: &mut Core<'l>) -> State {
        core.block = self.index;
        core.shared = self.shared.pointer();
        core.shared_bytes = self.shared.bytes();
        loop {
            let mut progress = self.turn > 0;
            for turn in self.turn..self.warps.len() {
                let number = self.ordered(core, turn);
                if !self.warps[number].is_ready() {
                    continue;
                }
                progress = true;
                std::mem::swap(&mut core.warp, &mut self.warps[number]);
                let pause = core.run_warp();
                for arrival in core.arrivals.drain(..) {
                    self.arrivals.push((arrival, core.warp.clock.clone()));
                }
                std::mem::swap(&mut core.warp, &mut self.warps[number]);
                match pause {
                    Pause::Blocked => {}
                    Pause::Fuel => {
                        // The next warp is next: this one may wait for it.
                        self.turn = turn + 1;
                        return State::Unfinished;
                    }
                    Pause::Fault => return State::Fault,
                }
            }
            (self.round, self.turn) = (self.round + 1, 0);
            if self.warps.iter().all(|warp| warp.live == 0) {
                return State::Done;
            }
            if rendezvous::release(core, &mut self.warps, &mut self.arrivals) {
                progress = true;
            }
            for group in self.warps.iter_mut().flat_map(|warp| &mut warp.groups) {
                if group.state == GroupState::Waiting {
                    group.state = GroupState::Ready;
                    progress = true;
                }
            }
            if !progress {
                core.fault = Some(Box::new(self.stuck(core)));
                return State::Fault;
            }
            if core.yielded {
                core.yielded = false;
                return State::Unfinished;
            }
        }
    }

    fn ordered(&self, core: &Core<'l>, turn: usize) -> usize {
        let count = self.warps.len() as u64;
        match core.launch.options.seed {
            Some(seed) => permuted(turn as u64, count, mix(seed ^ self.round)) as usize,
            None => turn,
        }
    }

    /// The fault of a block none of whose warps can go on.
    fn stuck(&mut self, core: &mut Core<'l>) -> Fault {
        let parked = |warp: &Warp<'_>| {
            warp.groups
                .iter()
                .position(|group| group.state == GroupState::Parked)
        };
        let number = self.warps.iter().position(|warp| parked(warp).is_some());
        let number = number
            .or_else(|| self.warps.iter().position(|warp| warp.live != 0))
            .unwrap_or(0);
        let warp = &self.warps[number];
        let Some(group) = parked(warp).or((!warp.groups.is_empty()).then_some(0)) else {
            let message = "internal: a block without runnable warps".to_string();
            return core.fault_at(core.code, 0, 0, FaultKind::LaunchFailed, message);
        };
        let group = warp.groups[group].clone();
        let code = warp.frames[group.frame as usize]
            .as_ref()
            .map_or(core.code, |frame| frame.code);
        let waiting = rendezvous::describe(&self.warps);
        let message = match group.state {
            GroupState::Parked => format!(
                "the lanes {:#010x} of warp {number} wait here for lanes that cannot come (live lanes {:#010x}): a \
                 divergent barrier, or a member mask that names lanes which take another way; {waiting}",
                group.mask, warp.live
            ),
            _ => format!("the block waits at a barrier for threads that cannot come; {waiting}"),
        };
        // A group at a barrier of the block is already behind it.
        let pc = if group.state == GroupState::Parked {
            group.pc
        } else {
            group.pc.saturating_sub(1)
        };
        std::mem::swap(&mut core.warp, &mut self.warps[number]);
        let fault = core.fault_at(
            code,
            pc,
            group.mask.trailing_zeros() as usize,
            FaultKind::LaunchFailed,
            message,
        );
        std::mem::swap(&mut core.warp, &mut self.warps[number]);
        fault
    }

    fn timed_out(&mut self, core: &mut Core<'l>, budget: u64) -> Fault {
        let ready = self.warps.iter().position(Warp::is_ready).unwrap_or(0);
        let group = self.warps[ready].groups.first().cloned();
        let (code, pc, lane) = match &group {
            Some(group) => {
                let frame = self.warps[ready].frames[group.frame as usize].as_ref();
                (
                    frame.map_or(core.code, |frame| frame.code),
                    group.pc,
                    group.mask.trailing_zeros() as usize,
                )
            }
            None => (core.code, 0, 0),
        };
        let message = format!(
            "the launch has not ended after {budget} warp instructions, the instruction budget: an endless loop, a \
             wait for something that does not happen, or too many blocks"
        );
        std::mem::swap(&mut core.warp, &mut self.warps[ready]);
        let fault = core.fault_at(code, pc, lane, FaultKind::Timeout, message);
        std::mem::swap(&mut core.warp, &mut self.warps[ready]);
        fault
    }
}

/// Shared memory of a block, aligned to 128 bytes.
struct SharedMemory {
    memory: *mut u8,
    layout: Layout,
    bytes: u32,
}

impl SharedMemory {
    fn new(bytes: u32) -> SharedMemory {
        let layout =
            Layout::from_size_align((bytes as usize).max(1), 128).expect("far below isize::MAX");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        SharedMemory {
            memory,
            layout,
            bytes,
        }
    }

    /// Fills it with `0xff`, a NaN of every float type.
    fn poison(&mut self) {
        // SAFETY: it has that many bytes.
        unsafe { self.memory.write_bytes(0xff, self.bytes as usize) };
    }

    fn pointer(&self) -> *mut u8 {
        self.memory
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}
