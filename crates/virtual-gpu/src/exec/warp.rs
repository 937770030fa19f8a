//! A warp: its groups of lanes, its call frames and its local memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use super::code::Code;
use super::lanes::{WARP, lanes_of};

/// Lanes that share a program counter.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Which lanes.
    pub(crate) mask: u32,
    /// Their frame, an index into [`Warp::frames`].
    pub(crate) frame: u32,
    /// The next instruction.
    pub(crate) pc: u32,
    /// Whether they can go on.
    pub(crate) state: GroupState,
    /// When they last ran, for fairness.
    pub(crate) last_run: u64,
}

/// Whether a group can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// It can.
    Ready,
    /// At an instruction that needs lanes that have not come yet; it is tried again when others join.
    Parked,
    /// It has looked for something in vain and goes on when the other warps of the block have had their turn.
    Waiting,
    /// At a barrier of the block; the program counter is already behind it.
    Barrier {
        /// Its number.
        id: u32,
        /// How many threads it waits for, those of [`Arrival`]s included; `None` for all live ones of the block.
        count: Option<u32>,
        /// What is reduced, for `barrier.red`.
        reduction: Option<BarrierReduction>,
    },
}

/// What a group at `barrier.red` gives and gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BarrierReduction {
    /// What is computed.
    pub(crate) kind: Reduction,
    /// Where the result goes, in the group's frame: a predicate's slot, or a word's for [`Reduction::Count`]. It is
    /// written by `instructions::barrier::finish`.
    pub(crate) slot: u32,
    /// The predicates of the group's lanes; zero in other lanes.
    pub(crate) predicate: u32,
}

/// Threads that have passed `barrier.arrive`: they count, but do not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The barrier's number.
    pub(crate) id: u32,
    /// How many threads it waits for.
    pub(crate) count: u32,
    /// How many have arrived here.
    pub(crate) threads: u32,
}

/// What `barrier.red` computes of the predicates of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// How many are true.
    Count,
    /// Whether all are.
    And,
    /// Whether any is.
    Or,
}

/// Registers of a function's activation.
pub(crate) struct Frame<'l> {
    /// The function.
    pub(crate) code: &'l Code,
    /// The registers.
    pub(crate) registers: Registers,
    /// The caller's frame; none for the kernel's.
    pub(crate) parent: Option<u32>,
    /// Where the caller goes on, and the call site (an index into the caller's `calls`).
    pub(crate) return_to: (u32, u32),
    /// Lanes that have neither returned nor exited.
    pub(crate) live: u32,
    /// Lanes that have returned.
    pub(crate) returned: u32,
    /// Calls above the kernel.
    pub(crate) depth: u32,
    /// Where the function's local memory starts in that of each thread.
    pub(crate) local_base: u32,
}

/// 32 threads.
pub(crate) struct Warp<'l> {
    /// Its number in the block.
    pub(crate) index: u32,
    /// Lanes that exist and have not exited.
    pub(crate) live: u32,
    /// All groups but the running one.
    pub(crate) groups: Vec<Group>,
    /// Activations; unused ones are `None`.
    pub(crate) frames: Vec<Option<Frame<'l>>>,
    /// `.local` memory of its threads.
    pub(crate) local: LocalMemory,
    /// What it knows of the times of the block's warps, see [`crate::check::shared`]; empty if nothing is checked.
    pub(crate) clock: Vec<u32>,
    /// How often its lanes have synchronised with each other.
    pub(crate) syncs: u32,
    /// Asynchronous copies that have not been waited for, see `instructions::async_copy`.
    pub(crate) copies: crate::instructions::async_copy::Copies,
}

/// Memory for the registers of a frame, or for what threads have of their own, aligned to 64 bytes.
pub(crate) struct Registers {
    memory: *mut u8,
    layout: Layout,
}

impl Registers {
    /// Registers filled with `0xff`, a NaN of every float type.
    pub(crate) fn new(bytes: usize) -> Registers {
        let layout =
            Layout::from_size_align(bytes.max(64), 64).expect("a frame is far below isize::MAX");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: `memory` has that many bytes.
        unsafe { memory.write_bytes(0xff, layout.size()) };
        Registers { memory, layout }
    }

    /// The first byte.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.memory
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

/// `.local` memory: a stretch for each lane.
#[derive(Default)]
pub(crate) struct LocalMemory {
    /// The lanes' stretches, one behind the other.
    bytes: Option<Registers>,
    per_lane: usize,
}

impl LocalMemory {
    /// Makes sure that each lane has at least this many bytes; what is there stays.
    pub(crate) fn reserve(&mut self, per_lane: usize) {
        if per_lane <= self.per_lane {
            return;
        }
        let wanted = per_lane.next_multiple_of(64).max(self.per_lane * 2);
        let bytes = Registers::new(wanted * WARP);
        if let Some(old) = &self.bytes {
            for lane in 0..WARP {
                // SAFETY: both hold a stretch for each lane, the old one of `per_lane` bytes, which is less than `wanted`.
                unsafe {
                    let from = old.pointer().add(lane * self.per_lane);
                    let to = bytes.pointer().add(lane * wanted);
                    to.copy_from_nonoverlapping(from, self.per_lane);
                }
            }
        }
        self.bytes = Some(bytes);
        self.per_lane = wanted;
    }

    /// The bytes of a lane from `offset` on, if they end at `end` or before; so much was reserved.
    #[inline(always)]
    pub(crate) fn at(&self, lane: usize, offset: u64, size: usize, end: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(size)? > end.min(self.per_lane) {
            return None;
        }
        let bytes = self.bytes.as_ref()?;
        // SAFETY: within the lane's stretch, as compared above.
        Some(unsafe { bytes.pointer().add(lane * self.per_lane + offset) })
    }

    /// Bytes of a lane, which are reserved.
    pub(crate) fn bytes(&mut self, lane: usize, offset: u32, size: u32) -> &mut [u8] {
        let start = self.at(lane, offset.into(), size as usize, self.per_lane);
        let start = start.expect("parameters are reserved with their frame");
        // SAFETY: the bytes are there, initialised, and borrowed as this is.
        unsafe { std::slice::from_raw_parts_mut(start, size as usize) }
    }

    /// Copies `size` bytes of each lane of the mask; both stretches are reserved.
    pub(crate) fn copy(&mut self, mask: u32, from: u32, to: u32, size: u32) {
        let (size, end) = (size as usize, self.per_lane);
        for lane in lanes_of(mask) {
            let from = self.at(lane, from.into(), size, end);
            let to = self.at(lane, to.into(), size, end);
            if let (Some(from), Some(to)) = (from, to) {
                // SAFETY: both lie in the lane's stretch; they may overlap.
                unsafe { to.copy_from(from, size) };
            }
        }
    }
}

impl<'l> Warp<'l> {
    /// A warp without lanes.
    pub(crate) fn empty() -> Warp<'l> {
        Warp {
            index: 0,
            live: 0,
            groups: Vec::new(),
            frames: Vec::new(),
            local: LocalMemory::default(),
            clock: Vec::new(),
            syncs: 0,
            copies: Default::default(),
        }
    }

    /// Adds a group, merging it with one that stands at the same place.
    pub(crate) fn push(&mut self, group: Group) {
        let mergeable = |state| matches!(state, GroupState::Ready | GroupState::Parked);
        for other in &mut self.groups {
            if other.pc == group.pc
                && other.frame == group.frame
                && mergeable(other.state)
                && mergeable(group.state)
            {
                other.mask |= group.mask;
                // Lanes have joined: what was parked may go on.
                other.state = GroupState::Ready;
                return;
            }
        }
        self.groups.push(group);
    }

    /// Whether a group can go on.
    pub(crate) fn is_ready(&self) -> bool {
        self.groups
            .iter()
            .any(|group| group.state == GroupState::Ready)
    }

    /// Takes the group to run next: the deepest in calls and lowest in the text, or the one that has waited longest.
    pub(crate) fn choose(&mut self, longest_waiting: bool) -> Option<Group> {
        let frames = &self.frames;
        let ready = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.state == GroupState::Ready);
        let depth = |group: &Group| {
            frames[group.frame as usize]
                .as_ref()
                .map_or(0, |frame| frame.depth)
        };
        let (index, _) = if longest_waiting {
            ready.min_by_key(|(_, group)| group.last_run)
        } else {
            ready.min_by_key(|(_, group)| (u32::MAX - depth(group), group.pc))
        }?;
        Some(self.groups.swap_remove(index))
    }

    /// The next program counter behind `pc` at which another group of the frame waits for company.
    pub(crate) fn next_meeting(&self, frame: u32, pc: u32) -> u32 {
        let others = self.groups.iter().filter(|group| {
            group.frame == frame
                && group.pc > pc
                && matches!(group.state, GroupState::Ready | GroupState::Parked)
        });
        others.map(|group| group.pc).min().unwrap_or(u32::MAX)
    }
}
