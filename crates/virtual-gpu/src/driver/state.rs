//! All that the driver knows of a machine: its devices and everything that handles stand for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Instant;

use super::capture::Capture;
use super::clock::{Clock, History};
use super::error::{Failure, Outcome, code};
use super::graph::Graph;
use super::graph_exec::Exec;
use super::graph_memory::GraphMemories;
use super::library::{Library, Link};
use super::module::{Function, Module};
use super::pool::Pool;
use super::virtual_memory::Physical;
use super::work::Work;
use crate::device::address_space::{ALIGNMENT, AddressSpace, Origin, Policy, rounded};
use crate::device::heap::Heap;
use crate::device::host_memory::{self, HostRanges};
use crate::device::view::{Mappings, Peer, PeerAccess, View};
use crate::device::{RESERVED_INDEX, range_of};
use crate::exec::block::MIX_STEP;
use crate::machine::{Machine, Settings};

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its memory.
    pub(crate) memory: AddressSpace,
    /// Its primary context, which exists whether it is active or not.
    pub(crate) primary: u64,
    /// The pool that it has from the start.
    pub(crate) default_pool: u64,
    /// The pool that `cuMemAllocAsync` uses.
    pub(crate) pool: u64,
    /// What calls for it answer, if it is lost by an injected fault.
    pub(crate) lost: Option<u32>,
}

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its device.
    pub(crate) device: usize,
    /// Whether it is the device's primary context.
    pub(crate) primary: bool,
    /// How often the primary context is retained.
    pub(crate) retained: u32,
    /// Whether it can be used; a primary context only between a retain and the next reset or last release.
    pub(crate) active: bool,
    /// Flags that it was made with.
    pub(crate) flags: u32,
    /// Why every call fails from now on.
    pub(crate) failure: Option<u32>,
    /// The default stream.
    pub(crate) legacy: u64,
    /// Default streams of threads.
    pub(crate) per_thread: HashMap<ThreadId, u64>,
    /// Contexts whose memory it may access.
    pub(crate) peers: BTreeSet<u64>,
    /// Records that everything submitted from now on waits for: `cuCtxWaitEvent`.
    pub(crate) behind: Vec<u64>,
    /// The heap of its kernels.
    pub(crate) heap: Arc<Heap>,
    /// `cuCtxSetLimit`
    pub(crate) limits: [usize; 7],
    /// `cuCtxSetCacheConfig`
    pub(crate) cache: u32,
    /// `cuCtxSetSharedMemConfig`
    pub(crate) shared: u32,
}

/// How a stream relates to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The context's default stream.
    Legacy,
    /// Ordered with the default stream.
    Blocking,
    /// Not ordered with the default stream.
    NonBlocking,
}

/// A queue of commands.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its context.
    pub(crate) context: u64,
    /// How it relates to others.
    pub(crate) kind: StreamKind,
    /// Flags that it was made with.
    pub(crate) flags: u32,
    /// Its priority.
    pub(crate) priority: i32,
    /// Commands that have not begun.
    pub(crate) queue: VecDeque<Command>,
    /// The command that runs.
    pub(crate) running: Option<u64>,
    /// Whether it goes away when its queue is empty.
    pub(crate) destroyed: bool,
    /// The capture that it takes part in.
    pub(crate) capture: Option<u64>,
    /// What it is ordered behind.
    pub(crate) clock: Clock,
}

/// A command of a stream.
#[derive(Debug)]
pub(crate) struct Command {
    /// What is done.
    pub(crate) work: Work,
    /// Commands count up over the whole machine.
    pub(crate) sequence: u64,
    /// Records of events that must have ended.
    pub(crate) waits: Vec<u64>,
    /// What the host knew to have ended when it submitted the command.
    pub(crate) clock: Option<Clock>,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its context.
    pub(crate) context: u64,
    /// Whether it takes no time.
    pub(crate) untimed: bool,
    /// The latest record of it; 0 if there is none.
    pub(crate) record: u64,
    /// When the latest record ended.
    pub(crate) time: Option<Instant>,
    /// The capture in which it was last recorded, and the nodes that it stands for.
    pub(crate) captured: Option<(u64, Vec<u64>)>,
}

/// All that the driver knows of a machine.
#[derive(Debug)]
pub(crate) struct State {
    /// The machine itself.
    pub(crate) machine: Weak<Machine>,
    /// How memory is given out.
    pub(crate) policy: Policy,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: HashMap<u64, Context>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Arc<Function>>,
    pub(crate) libraries: HashMap<u64, Library>,
    /// Kernels of libraries: the library and the name.
    pub(crate) kernels: HashMap<u64, (u64, Arc<str>)>,
    pub(crate) links: HashMap<u64, Link>,
    pub(crate) pools: HashMap<u64, Pool>,
    pub(crate) graphs: HashMap<u64, Graph>,
    /// The graph of each node.
    pub(crate) nodes: HashMap<u64, u64>,
    pub(crate) execs: HashMap<u64, Exec>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) physical: HashMap<u64, Physical>,
    /// Memory that graphs allocate.
    pub(crate) graph_memory: GraphMemories,
    /// Allocations whose free waits for its turn in a stream.
    pub(crate) freeing: HashSet<u64>,
    /// Address ranges of `cuMemAddressReserve`: start and bytes.
    pub(crate) reserved: BTreeMap<u64, u64>,
    /// Where the next reservation starts.
    pub(crate) reserve_top: u64,
    pub(crate) mapped: Arc<Mappings>,
    pub(crate) host: Arc<HostRanges>,
    /// Streams that have commands.
    pub(crate) busy: Vec<u64>,
    /// Records of events that have not ended.
    pub(crate) pending_records: HashSet<u64>,
    /// What the streams were ordered behind when events were recorded; kept when races are looked for.
    pub(crate) record_clocks: HashMap<u64, Clock>,
    /// What the host knows to have ended.
    pub(crate) host_clock: Clock,
    pub(crate) history: Arc<History>,
    /// The number of the latest command, record and capture.
    pub(crate) sequence: u64,
    /// Launches so far, for injected faults and grid numbers.
    pub(crate) launches: u64,
    /// How often a question whether work has ended was answered with no.
    pub(crate) asked_in_vain: u64,
    /// State of the random numbers that choose among ready streams.
    pub(crate) random: u64,
    /// The order in which ready streams are preferred.
    pub(crate) preferences: HashMap<u64, u64>,
    next_handle: u64,
}

/// Handles have these bits, so that none is an address.
const HANDLE_TAG: u64 = 0x06 << 56;

/// The limit of the heap, `CU_LIMIT_MALLOC_HEAP_SIZE`.
pub(crate) const HEAP_LIMIT: usize = 2;

/// Limits of a new context: stack, printf, heap, synchronisation depth, launches, L2 granularity, L2 bytes.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0];

impl State {
    /// The state of a new machine.
    pub(crate) fn new(settings: &Settings, machine: Weak<Machine>) -> State {
        let policy = Policy {
            alignment: ALIGNMENT,
            poison: settings.poison,
            quarantine: settings.quarantine,
            uninitialized: settings.checks.uninitialized,
            races: settings.checks.stream_races,
            strict: settings.checks.strict,
        };
        let mut state = State {
            machine,
            policy,
            devices: Vec::new(),
            contexts: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            libraries: HashMap::new(),
            kernels: HashMap::new(),
            links: HashMap::new(),
            pools: HashMap::new(),
            graphs: HashMap::new(),
            nodes: HashMap::new(),
            execs: HashMap::new(),
            captures: HashMap::new(),
            physical: HashMap::new(),
            graph_memory: GraphMemories::default(),
            freeing: HashSet::new(),
            reserved: BTreeMap::new(),
            reserve_top: crate::device::range_base(RESERVED_INDEX),
            mapped: Arc::default(),
            host: Arc::default(),
            busy: Vec::new(),
            pending_records: HashSet::new(),
            record_clocks: HashMap::new(),
            host_clock: Clock::new(),
            history: Arc::default(),
            sequence: 0,
            launches: 0,
            asked_in_vain: 0,
            random: settings.seed.unwrap_or(0) ^ MIX_STEP,
            preferences: HashMap::new(),
            next_handle: 0,
        };
        for index in 0..settings.devices as usize {
            let memory = AddressSpace::new(index, settings.memory, policy);
            let default_pool = state.new_handle();
            state.pools.insert(default_pool, Pool::new(index));
            let primary = state.new_context(index, true, 0);
            state.devices.push(Device {
                memory,
                primary,
                default_pool,
                pool: default_pool,
                lost: None,
            });
        }
        state
    }

    /// A new handle.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        HANDLE_TAG | self.next_handle << 4
    }

    /// The next number of a command, record or capture.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Makes a context.
    pub(crate) fn new_context(&mut self, device: usize, primary: bool, flags: u32) -> u64 {
        let handle = self.new_handle();
        let legacy = self.new_stream(handle, StreamKind::Legacy, 0, 0);
        let context = Context {
            device,
            primary,
            retained: 0,
            active: !primary,
            flags,
            failure: None,
            legacy,
            per_thread: HashMap::new(),
            peers: BTreeSet::new(),
            behind: Vec::new(),
            heap: Arc::new(Heap::new(LIMITS[HEAP_LIMIT] as u64, self.policy)),
            limits: LIMITS,
            cache: 0,
            shared: 0,
        };
        self.contexts.insert(handle, context);
        handle
    }

    /// Makes a stream.
    pub(crate) fn new_stream(
        &mut self,
        context: u64,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> u64 {
        let handle = self.new_handle();
        let stream = Stream {
            context,
            kind,
            flags,
            priority,
            queue: VecDeque::new(),
            running: None,
            destroyed: false,
            capture: None,
            clock: Clock::new(),
        };
        self.streams.insert(handle, stream);
        handle
    }

    /// A device by its number.
    pub(crate) fn device(&self, number: i32) -> Outcome<usize> {
        let found = usize::try_from(number)
            .ok()
            .filter(|&index| index < self.devices.len());
        found.ok_or_else(|| {
            Failure::new(
                code::INVALID_DEVICE,
                format!("device {number} of {} devices", self.devices.len()),
            )
        })
    }

    /// A context that lives.
    pub(crate) fn context(&self, handle: u64) -> Outcome<&Context> {
        match self.contexts.get(&handle) {
            Some(context) if context.active => Ok(context),
            Some(_) => Err(Failure::new(
                code::CONTEXT_IS_DESTROYED,
                "the primary context is not active: it was released or reset",
            )),
            None if handle & HANDLE_TAG != 0
                && handle >> 4 & 0xff_ffff_ffff <= self.next_handle =>
            {
                Err(Failure::new(
                    code::CONTEXT_IS_DESTROYED,
                    format!("context {handle:#x} is destroyed"),
                ))
            }
            None => Err(Failure::new(
                code::INVALID_CONTEXT,
                format!("{handle:#x} is no context"),
            )),
        }
    }

    /// A context that lives, to change it.
    pub(crate) fn context_mut(&mut self, handle: u64) -> Outcome<&mut Context> {
        self.context(handle)?;
        Ok(self.contexts.get_mut(&handle).expect("checked above"))
    }

    /// Whether the handle is one of a default stream, which stands for a stream of the current context.
    pub(crate) fn is_default_stream(handle: u64) -> bool {
        handle <= 2
    }

    /// The stream that a handle stands for in a context: 0 and 1 are the default stream, 2 the thread's.
    pub(crate) fn stream(&mut self, context: u64, handle: u64) -> Outcome<u64> {
        match handle {
            0 | 1 => Ok(self.context(context)?.legacy),
            2 => {
                let thread = std::thread::current().id();
                if let Some(&stream) = self.context(context)?.per_thread.get(&thread) {
                    return Ok(stream);
                }
                let stream = self.new_stream(context, StreamKind::Blocking, 0, 0);
                self.context_mut(context)?.per_thread.insert(thread, stream);
                Ok(stream)
            }
            _ => match self.streams.get(&handle) {
                Some(stream) if !stream.destroyed => {
                    self.context(stream.context)?.healthy()?;
                    Ok(handle)
                }
                Some(_) => Err(Failure::new(
                    code::INVALID_HANDLE,
                    format!("stream {handle:#x} is destroyed"),
                )),
                None => Err(self.unknown("stream", handle)),
            },
        }
    }

    /// A stream that exists.
    pub(crate) fn stream_mut(&mut self, stream: u64) -> &mut Stream {
        self.streams
            .get_mut(&stream)
            .expect("streams are looked up before")
    }

    /// The failure for a handle that stands for nothing.
    #[cold]
    pub(crate) fn unknown(&self, what: &str, handle: u64) -> Failure {
        let given = handle & HANDLE_TAG != 0 && handle >> 4 & 0xff_ffff_ffff <= self.next_handle;
        let why = if given {
            "it was destroyed, or is the handle of something else"
        } else {
            "the driver never gave it out"
        };
        Failure::new(
            code::INVALID_HANDLE,
            format!("{handle:#x} is no {what}: {why}"),
        )
    }

    /// An event.
    pub(crate) fn event(&mut self, handle: u64) -> Outcome<&mut Event> {
        if !self.events.contains_key(&handle) {
            return Err(self.unknown("event", handle));
        }
        Ok(self.events.get_mut(&handle).expect("checked above"))
    }

    /// Memory of a device.
    pub(crate) fn allocate(
        &mut self,
        machine: &Machine,
        device: usize,
        size: u64,
        origin: Origin,
        context: u64,
    ) -> Outcome<u64> {
        let number = machine.tally().allocated();
        if machine.settings.inject.failing_allocation == Some(number) {
            let message = format!("allocation {number} fails because the settings ask for it");
            return Err(Failure::new(code::OUT_OF_MEMORY, message));
        }
        let (id, call) = (self.next_sequence(), machine.tally().call_number());
        self.take_back_graph_memory(call);
        if let Some(start) = self.allocate_from(device, size, origin, context, id, call) {
            return Ok(start);
        }
        // What pools keep is given up before anything fails.
        self.trim_pools_of(device);
        self.allocate_from(device, size, origin, context, id, call)
            .ok_or_else(|| self.out_of_memory(device, size))
    }

    /// Memory of a device, from what the pool keeps if it is a pool's; `None` if there is too little.
    fn allocate_from(
        &mut self,
        device: usize,
        size: u64,
        origin: Origin,
        context: u64,
        id: u64,
        call: u64,
    ) -> Option<u64> {
        let bytes = rounded(size)?;
        let memory = &mut self.devices[device].memory;
        let Origin::Pool(pool) = origin else {
            return memory.allocate(size, origin, context, id, call);
        };
        let pool = self.pools.get_mut(&pool)?;
        let taken = bytes.min(pool.kept());
        memory.keep(0, taken);
        let start = memory.allocate(size, origin, context, id, call);
        match start {
            Some(_) => pool.allocated(bytes, bytes - taken),
            None => memory.keep(taken, 0),
        }
        start
    }

    /// The failure of an allocation.
    #[cold]
    pub(crate) fn out_of_memory(&self, device: usize, size: u64) -> Failure {
        let memory = &self.devices[device].memory;
        let message = format!(
            "{size} bytes are asked for; device {device} has {} of {} bytes free",
            memory.available(),
            memory.capacity()
        );
        Failure::new(code::OUT_OF_MEMORY, message)
    }

    /// What a command of a device sees of memory; `everything` for copies, which need no peer access.
    pub(crate) fn view(&self, context: u64, everything: bool) -> View {
        let owner = self.contexts.get(&context);
        let device = owner.map_or(0, |context| context.device);
        let enabled = |other: usize| {
            let mut peers = owner.into_iter().flat_map(|owner| &owner.peers);
            peers.any(|peer| {
                self.contexts
                    .get(peer)
                    .is_some_and(|peer| peer.device == other)
            })
        };
        let mut pools = Vec::new();
        let mut peers = Vec::new();
        for other in (0..self.devices.len()).filter(|&other| other != device) {
            let known = pools.len();
            if !everything {
                pools.extend(self.pools_open_to(device, other));
            }
            let access = match () {
                () if everything => PeerAccess::Everything,
                () if enabled(other) => PeerAccess::Enabled,
                () if pools.len() > known => PeerAccess::PoolsOnly,
                () => continue,
            };
            peers.push(Peer {
                device: other,
                live: self.devices[other].memory.live().clone(),
                access,
            });
        }
        let all_arenas = !self.mapped.is_empty();
        let seen = |index: usize| {
            all_arenas || index == device || peers.iter().any(|peer| peer.device == index)
        };
        let arenas = (self.devices.iter().enumerate()).filter(|(index, _)| seen(*index));
        View {
            device,
            own: self.devices[device].memory.live().clone(),
            _arenas: arenas
                .filter_map(|(_, device)| device.memory.arena())
                .collect(),
            peers,
            pools,
            mapped: self.mapped.clone(),
            heap: owner
                .filter(|_| !everything)
                .map(|context| context.heap.clone()),
            host: self.host.clone(),
            machine: self.machine.clone(),
        }
    }

    /// What a message says of an address.
    pub(crate) fn describe(&self, address: u64) -> String {
        match range_of(address) {
            Some(RESERVED_INDEX) => match self.mapped.range(..=address).next_back() {
                Some((start, mapping)) if address - start < mapping.size => {
                    format!(
                        "it is {} bytes into the mapping of {} bytes at {start:#x}",
                        address - start,
                        mapping.size
                    )
                }
                _ => "it is in a reserved range where nothing is mapped".to_string(),
            },
            Some(index) if index < self.devices.len() => {
                format!(
                    "on device {index} {}",
                    self.devices[index].memory.describe(address)
                )
            }
            Some(_) => "no device has such addresses".to_string(),
            None => match host_memory::find(&self.host, address) {
                Some((start, range)) => {
                    format!(
                        "it is {} bytes into {} bytes of {:?} host memory",
                        address - start,
                        range.size,
                        range.kind
                    )
                }
                None => "it is a host address that the driver knows nothing of".to_string(),
            },
        }
    }

    /// Allocations that were not freed.
    pub(crate) fn leaks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, device) in self.devices.iter().enumerate() {
            let live = device.memory.live().iter();
            for (start, allocation) in
                live.filter(|(_, allocation)| allocation.origin != Origin::Module)
            {
                lines.push(format!(
                    "{} bytes at {start:#x} on device {index}, allocated by {} (driver call {}), were never freed",
                    allocation.size,
                    allocation.origin.function(),
                    allocation.call
                ));
            }
        }
        for (start, range) in self.host.iter() {
            lines.push(format!(
                "{} bytes of {:?} host memory at {start:#x} were never freed",
                range.size, range.kind
            ));
        }
        lines
    }
}
