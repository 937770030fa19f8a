//! The state that instructions work on, and the loop that runs a warp: lanes in groups that share a program counter.
//!
//! # Divergence
//! A warp is a set of groups, each with a mask, a frame and a program counter. The group deepest in calls and lowest in
//! the text runs first; groups of the same frame that meet at a program counter merge. So lanes come together again
//! where control flow does, without knowing its shape. A group that has jumped backward often lets the others run
//! first, so that a lane that waits for another of its warp does not wait for ever.

use super::code::{CallSite, Code, Kernel};
use super::instruction::{Flow, Inst, NO_GUARD};
use super::lanes::WARP;
use super::launch::{Launch, LaunchCounts};
use super::memory::Region;
use super::warp::{Arrival, Frame, Group, GroupState, Registers, Warp};
use crate::check::shared::SharedShadow;
use crate::fault::{Fault, FaultKind};

/// Jumps of one group after which another group of the warp gets its turn.
const PATIENCE: u32 = 256;

/// Cached regions of device memory.
const REGIONS: usize = 4;

/// Something like a streaming multiprocessor: runs one block at a time on one thread of the host.
pub(crate) struct Core<'l> {
    /// Registers of the running frame.
    pub(crate) frame: *mut u8,
    /// Lanes that run the instruction: those of the group for which the guard holds.
    pub(crate) mask: u32,
    /// Lanes of the running group.
    pub(crate) active: u32,
    /// Lanes that do not exist or have exited; their registers may be overwritten.
    pub(crate) dead: u32,
    /// Where to go on [`Flow::Jump`].
    pub(crate) target: u32,
    /// The running function.
    pub(crate) code: &'l Code,
    /// The running frame, an index into the warp's.
    pub(crate) frame_index: u32,
    /// Where the running frame's local memory starts in that of each thread.
    pub(crate) local_base: u32,
    /// What becomes of the group on [`Flow::Schedule`].
    pub(crate) state: GroupState,
    /// The launch that the block belongs to.
    pub(crate) launch: &'l Launch<'l>,
    /// Why the kernel ends, set before [`Flow::Fault`].
    pub(crate) fault: Option<Box<Fault>>,
    /// Index of the block in the grid.
    pub(crate) block: [u32; 3],
    /// Shared memory of the block; aligned to 128 bytes.
    pub(crate) shared: *mut u8,
    /// Bytes of shared memory.
    pub(crate) shared_bytes: u32,
    /// What the checks remember of shared memory, if they are on.
    pub(crate) shadow: Option<SharedShadow>,
    /// The running warp.
    pub(crate) warp: Warp<'l>,
    /// What `barrier.arrive` has announced since the block's scheduler last looked.
    pub(crate) arrivals: Vec<Arrival>,
    /// What was counted.
    pub(crate) counts: LaunchCounts,
    /// Warp instructions that may still run before the launch is timed out or another block gets its turn.
    pub(crate) fuel: u64,
    /// Whether a lane has asked to let others run.
    pub(crate) yielded: bool,
    /// Whether accesses are looked at one by one.
    pub(crate) instrumented: bool,
    /// Ticks of `%clock` at the start of the straight run of instructions that goes on.
    pub(crate) clock: u64,
    /// Where that run starts.
    pub(crate) run_start: u32,
    /// How often each instruction ran.
    pub(crate) profile: Profile,
    /// The bytes that the running store writes, for the check of races.
    pub(crate) stored: Option<Box<[[u8; 32]; WARP]>>,
    regions: [Region; REGIONS],
    next_region: usize,
    /// Counts the groups' turns.
    turn: u64,
    /// Jumps since groups last took turns.
    jumps: u32,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// No group can go on.
    Blocked,
    /// The fuel is used up.
    Fuel,
    /// `core.fault` is set.
    Fault,
}

impl<'l> Core<'l> {
    /// A core for blocks of a launch.
    pub(crate) fn new(launch: &'l Launch<'l>) -> Core<'l> {
        let nowhere = Region {
            start: 0,
            end: 0,
            host: std::ptr::null_mut(),
            writable: false,
            shadow: std::ptr::null(),
            lasting: true,
        };
        Core {
            frame: std::ptr::null_mut(),
            mask: 0,
            active: 0,
            dead: 0,
            target: 0,
            code: &launch.kernel.entry,
            frame_index: 0,
            local_base: 0,
            state: GroupState::Ready,
            launch,
            fault: None,
            block: [0; 3],
            shared: std::ptr::null_mut(),
            shared_bytes: 0,
            shadow: None,
            warp: Warp::empty(),
            arrivals: Vec::new(),
            counts: LaunchCounts::default(),
            fuel: 0,
            yielded: false,
            instrumented: launch.instrumented(),
            clock: 0,
            run_start: 0,
            stored: None,
            regions: [nowhere; REGIONS],
            next_region: 0,
            profile: Profile::new(launch.kernel),
            turn: 0,
            jumps: 0,
        }
    }

    /// The slot of operand `index`, of an instruction that the decoder emitted with `emit_many`.
    #[inline(always)]
    pub(crate) fn far_slot(&self, inst: &Inst, index: usize) -> u32 {
        self.code.more_slots[inst.slots[0] as usize + index]
    }

    /// The region of device memory that holds all of `size` bytes from `address` on.
    #[inline(always)]
    pub(crate) fn region(&mut self, address: u64, size: u64) -> Option<Region> {
        for region in &self.regions {
            // The start is compared first, so that the differences cannot wrap.
            if address >= region.start && address < region.end && region.end - address >= size {
                return Some(*region);
            }
        }
        self.look_up(address, size)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, address: u64, size: u64) -> Option<Region> {
        let region = self.launch.memory.region(address)?;
        if !region.lasting {
            return (region.end - address >= size).then_some(region);
        }
        self.regions[self.next_region] = region;
        self.next_region = (self.next_region + 1) % REGIONS;
        (region.end - address >= size).then_some(region)
    }

    /// Index of an instruction of the running function.
    pub(crate) fn index_of(&self, inst: &Inst) -> u32 {
        let start = self.code.instructions.as_ptr() as usize;
        ((std::ptr::from_ref(inst) as usize - start) / size_of::<Inst>()) as u32
    }

    /// Index of a lane's thread in the block.
    pub(crate) fn thread(&self, lane: usize) -> [u32; 3] {
        let [x, y, _] = self.launch.threads;
        let linear = self.warp.index * 32 + lane as u32;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Ends the kernel: sets the fault of `inst` in `lane`.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(
        &mut self,
        inst: &Inst,
        lane: usize,
        kind: FaultKind,
        message: String,
    ) -> Flow {
        let pc = self.index_of(inst);
        self.fault = Some(Box::new(self.fault_at(self.code, pc, lane, kind, message)));
        Flow::Fault
    }

    /// A fault at an instruction of a function.
    #[cold]
    pub(crate) fn fault_at(
        &self,
        code: &Code,
        pc: u32,
        lane: usize,
        kind: FaultKind,
        message: String,
    ) -> Fault {
        let module = &self.launch.kernel.module;
        let function = &module.functions[code.function as usize];
        let origin = code.origins.get(pc as usize).copied();
        let body = function.body.as_ref();
        let instruction = origin.and_then(|origin| body?.instructions.get(origin as usize));
        Fault {
            kind,
            message,
            kernel: self.launch.kernel.entry.name.clone(),
            block: self.block,
            thread: self.thread(lane),
            line: instruction.map_or(function.line, |instruction| instruction.line),
            text: instruction
                .map_or("end of the function", |instruction| {
                    module.text(instruction.span)
                })
                .to_string(),
            source: instruction
                .and_then(|instruction| instruction.source)
                .map(|(file, line)| {
                    let name = module.files.iter().find(|(number, _)| *number == file);
                    (
                        name.map_or_else(|| format!("file {file}"), |(_, name)| name.clone()),
                        line,
                    )
                }),
        }
    }

    /// Lets the lanes of `mask` go on at `pc` as a group of their own; the running group keeps the rest.
    pub(crate) fn split(&mut self, mask: u32, pc: u32) {
        self.active &= !mask;
        self.counts.divergent_branches += 1;
        let (frame, last_run) = (self.frame_index, self.turn);
        self.warp.push(Group {
            mask,
            frame,
            pc,
            state: GroupState::Ready,
            last_run,
        });
    }

    /// Ends the lanes of the mask.
    pub(crate) fn exit(&mut self, mask: u32) {
        self.active &= !mask;
        self.warp.live &= !mask;
        self.dead |= mask;
        // What waits for these lanes need not any more.
        for group in &mut self.warp.groups {
            if group.state == GroupState::Parked {
                group.state = GroupState::Ready;
            }
        }
        let mut next = Some(self.frame_index);
        while let Some(index) = next {
            let frame = self.warp.frames[index as usize]
                .as_mut()
                .expect("a running frame");
            frame.live &= !mask;
            next = frame.parent;
            if frame.live == 0 {
                self.leave(index);
            }
        }
    }

    /// Lets the lanes of the mask return from the running function.
    pub(crate) fn return_(&mut self, mask: u32) {
        let index = self.frame_index;
        let frame = self.warp.frames[index as usize]
            .as_mut()
            .expect("a running frame");
        let Some(parent) = frame.parent else {
            return self.exit(mask);
        };
        frame.live &= !mask;
        frame.returned |= mask;
        self.active &= !mask;
        let (code, base, site) = (frame.code, frame.local_base, frame.return_to.1);
        let all = frame.live == 0;
        let caller = self.warp.frames[parent as usize]
            .as_ref()
            .expect("a caller's frame");
        let (caller_code, caller_base) = (caller.code, caller.local_base);
        let results: &CallSite = &caller_code.calls[site as usize];
        for (&(to, size), &(from, _)) in results.results.iter().zip(&code.returns) {
            self.warp
                .local
                .copy(mask, base + from, caller_base + to, size);
        }
        if all {
            self.leave(index);
        }
    }

    /// Counts a barrier.
    pub(crate) fn passed_barrier(&mut self) {
        self.counts.barriers += 1;
    }

    /// Drops a frame without live lanes; those that returned go on in the caller.
    fn leave(&mut self, index: u32) {
        let Some(frame) = self.warp.frames[index as usize].take() else {
            return;
        };
        if let (Some(parent), true) = (frame.parent, frame.returned & self.warp.live != 0) {
            let (mask, pc) = (frame.returned & self.warp.live, frame.return_to.0);
            let last_run = self.turn;
            self.warp.push(Group {
                mask,
                frame: parent,
                pc,
                state: GroupState::Ready,
                last_run,
            });
        }
    }

    /// Calls a function for the lanes of the mask, which leave the running group.
    pub(crate) fn call(&mut self, inst: &Inst, mask: u32, callee: u32, site: u32) -> Flow {
        let kernel = self.launch.kernel;
        let Some(code) = kernel
            .functions
            .get(callee as usize)
            .and_then(Option::as_ref)
        else {
            let lane = mask.trailing_zeros() as usize;
            return self.fail(
                inst,
                lane,
                FaultKind::InvalidPc,
                "call of an address that is no function's".to_string(),
            );
        };
        let call = &self.code.calls[site as usize];
        let local_base = self.local_base + self.code.local_bytes.next_multiple_of(16);
        let top = local_base.saturating_add(code.local_bytes);
        let depth = self.warp.frames[self.frame_index as usize]
            .as_ref()
            .expect("a running frame")
            .depth
            + 1;
        if top > self.launch.options.stack_limit || depth > 4096 {
            let lane = mask.trailing_zeros() as usize;
            let limit = self.launch.options.stack_limit;
            return self.fail(
                inst,
                lane,
                FaultKind::StackOverflow,
                format!("the call needs a stack of {top} bytes at depth {depth}, the limit is {limit} bytes"),
            );
        }
        self.warp.local.reserve(top as usize);
        for (&(from, size), &(to, _)) in call.arguments.iter().zip(&code.params) {
            self.warp
                .local
                .copy(mask, self.local_base + from, local_base + to, size);
        }
        let pc = self.index_of(inst) + 1;
        let parent = Some(self.frame_index);
        let frame = self.new_frame(code, parent, (pc, site), mask, depth, local_base);
        self.active &= !mask;
        let last_run = self.turn;
        self.warp.push(Group {
            mask,
            frame,
            pc: 0,
            state: GroupState::Ready,
            last_run,
        });
        Flow::Schedule
    }

    /// Makes a frame with its constants and special registers.
    pub(crate) fn new_frame(
        &mut self,
        code: &'l Code,
        parent: Option<u32>,
        return_to: (u32, u32),
        live: u32,
        depth: u32,
        local_base: u32,
    ) -> u32 {
        let registers = Registers::new(code.frame_bytes);
        // SAFETY: the decoder made the frame large enough for its constants and specials.
        unsafe {
            let constants = registers.pointer().add(code.constants_start);
            constants.copy_from_nonoverlapping(code.constants.as_ptr(), code.constants.len());
            super::special::fill(self, code, registers.pointer());
        }
        let frame = Frame {
            code,
            registers,
            parent,
            return_to,
            live,
            returned: 0,
            depth,
            local_base,
        };
        let free = self.warp.frames.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.warp.frames.push(None);
            self.warp.frames.len() - 1
        });
        self.warp.frames[index] = Some(frame);
        index as u32
    }

    /// Runs groups of the current warp until none can go on.
    pub(crate) fn run_warp(&mut self) -> Pause {
        self.dead = !self.warp.live;
        loop {
            let rotate = self.jumps > PATIENCE;
            let Some(group) = self.warp.choose(rotate) else {
                return Pause::Blocked;
            };
            if rotate {
                self.jumps = 0;
            }
            self.turn += 1;
            let frame = self.warp.frames[group.frame as usize]
                .as_ref()
                .expect("a group's frame");
            self.frame = frame.registers.pointer();
            self.code = frame.code;
            self.frame_index = group.frame;
            self.local_base = frame.local_base;
            self.active = group.mask;
            self.state = GroupState::Ready;
            // SAFETY: the frame is that of the code, and the group's program counter lies in it.
            let pause = unsafe { self.run_group(group.pc) };
            if let Some(pause) = pause {
                return pause;
            }
        }
    }

    /// Runs the current group until the scheduler has to choose.
    ///
    /// # Safety
    /// The core's frame, code, frame index and active lanes are those of the group; `pc` is an index of the code.
    unsafe fn run_group(&mut self, mut pc: u32) -> Option<Pause> {
        let instructions = self.code.instructions.as_ptr();
        let mut start = pc;
        self.run_start = start;
        // The last instruction of a straight run may end lanes or send them elsewhere, so they are counted before.
        let mut lanes = self.active.count_ones();
        // Where the group meets another one of its frame by falling into it.
        let stop = self.warp.next_meeting(self.frame_index, pc);
        let alone = self.warp.groups.is_empty();
        loop {
            if pc == stop {
                self.account(start, pc, lanes);
                self.put_back(pc);
                return None;
            }
            // SAFETY: jumps lead into the code, and its last instruction does not go on to the next.
            let inst = unsafe { &*instructions.add(pc as usize) };
            pc += 1;
            self.mask = self.active;
            if inst.guard != NO_GUARD {
                // SAFETY: the guard is a predicate's slot of this frame.
                self.mask &= unsafe { self.predicate(inst.guard) } ^ inst.guard_inverted;
                if self.mask == 0 {
                    continue;
                }
            }
            // SAFETY: the instruction is the frame's code's.
            match unsafe { (inst.run)(self, inst) } {
                Flow::Next => {}
                Flow::Jump => {
                    self.account(start, pc, lanes);
                    pc = self.target;
                    start = pc;
                    self.run_start = start;
                    lanes = self.active.count_ones();
                    if self.fuel == 0 {
                        self.put_back(pc);
                        return Some(Pause::Fuel);
                    }
                    if !alone {
                        self.jumps += 1;
                        self.put_back(pc);
                        return None;
                    }
                }
                Flow::Schedule => {
                    self.account(start, pc, lanes);
                    self.put_back(if self.state == GroupState::Parked {
                        pc - 1
                    } else {
                        pc
                    });
                    return (self.fuel == 0).then_some(Pause::Fuel);
                }
                Flow::Fault => {
                    self.account(start, pc, lanes);
                    return Some(Pause::Fault);
                }
            }
        }
    }

    /// Gives what is left of the running group back to the warp.
    fn put_back(&mut self, pc: u32) {
        if self.active != 0 {
            let (mask, frame, state) = (self.active, self.frame_index, self.state);
            self.warp.push(Group {
                mask,
                frame,
                pc,
                state,
                last_run: self.turn,
            });
        }
    }

    /// Counts the instructions from `start` to `end`, which the group has run.
    #[inline(always)]
    fn account(&mut self, start: u32, end: u32, lanes: u32) {
        let length = u64::from(end - start);
        self.fuel = self.fuel.saturating_sub(length);
        self.clock += length;
        self.profile.add(self.code.profile, start, end, lanes);
    }
}

/// How often each instruction ran, as differences: a straight run adds at its start and takes away at its end.
pub(crate) struct Profile {
    /// Of the entry, then of each function: warp and lane instructions.
    differences: Vec<Vec<[i64; 2]>>,
}

impl Profile {
    fn new(kernel: &Kernel) -> Profile {
        let length = |code: Option<&Code>| code.map_or(0, |code| code.instructions.len() + 1);
        let functions = kernel.functions.iter().map(|code| length(code.as_ref()));
        let lengths = std::iter::once(length(Some(&kernel.entry))).chain(functions);
        Profile {
            differences: lengths.map(|length| vec![[0; 2]; length]).collect(),
        }
    }

    #[inline(always)]
    fn add(&mut self, code: u32, start: u32, end: u32, lanes: u32) {
        let differences = &mut self.differences[code as usize];
        for (at, sign) in [(start, 1), (end, -1)] {
            let entry = &mut differences[at as usize];
            entry[0] += sign;
            entry[1] += sign * i64::from(lanes);
        }
    }

    /// Adds the counted instructions to `counts`, by class.
    pub(crate) fn sum(&self, kernel: &Kernel, counts: &mut LaunchCounts) {
        let codes =
            std::iter::once(Some(&kernel.entry)).chain(kernel.functions.iter().map(Option::as_ref));
        for (code, differences) in codes.zip(&self.differences) {
            let Some(code) = code else { continue };
            let mut running = [0; 2];
            for (class, difference) in code.classes.iter().zip(differences) {
                running = [running[0] + difference[0], running[1] + difference[1]];
                counts.warp_instructions[*class as usize] += running[0] as u64;
                counts.lane_instructions[*class as usize] += running[1] as u64;
            }
        }
    }
}
