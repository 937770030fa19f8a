//! The running of commands: which heads of queues may run, in which order they do, and waiting for them.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::call::Call;
use super::capture;
use super::clock::{Clock, Ordered, join};
use super::error::{Failure, Outcome, code, describe};
use super::state::{Command, State, StreamKind};
use super::work::{Surroundings, Trouble, Work, execute, stack_of};
use crate::exec::block::{MIX_STEP, mix};
use crate::machine::{Machine, Streams};

/// Commands that a deferred stream holds before the oldest are run.
const QUEUE_LIMIT: usize = 1024;

type Guard<'m> = MutexGuard<'m, State>;

impl Machine {
    /// Puts a command at the end of a stream, behind the records of events in `waits`. A capturing stream takes it down
    /// as a node.
    pub(crate) fn submit<'m>(
        self: &'m Arc<Self>,
        mut state: Guard<'m>,
        stream: u64,
        work: Work,
        waits: Vec<u64>,
    ) -> Outcome {
        if !state.captures.is_empty() {
            capture::forbid_implicit(&mut state, stream)?;
            if state.stream_mut(stream).capture.is_some() {
                return capture::record(&mut state, stream, work);
            }
        }
        drop(self.enqueue(state, stream, work, waits));
        Ok(())
    }

    /// Puts a command at the end of a stream; in eager mode it has been run, if it could.
    pub(crate) fn enqueue<'m>(
        self: &'m Arc<Self>,
        mut state: Guard<'m>,
        stream: u64,
        work: Work,
        waits: Vec<u64>,
    ) -> Guard<'m> {
        let sequence = state.next_sequence();
        let clock = self
            .settings
            .checks
            .stream_races
            .then(|| state.host_clock.clone());
        let queue = &mut state.stream_mut(stream).queue;
        queue.push_back(Command {
            work,
            sequence,
            waits,
            clock,
        });
        let length = queue.len();
        if !state.busy.contains(&stream) {
            state.busy.push(stream);
        }
        match self.settings.streams {
            Streams::Eager => self.run_ready(state, stream),
            Streams::Deferred if length > QUEUE_LIMIT => {
                let done = |state: &State| {
                    state
                        .streams
                        .get(&stream)
                        .is_none_or(|stream| stream.queue.len() <= QUEUE_LIMIT / 2)
                };
                self.wait(state, done)
            }
            Streams::Deferred => state,
        }
    }

    /// Runs whatever can run, the stream's commands first.
    fn run_ready<'m>(self: &'m Arc<Self>, mut state: Guard<'m>, stream: u64) -> Guard<'m> {
        loop {
            let next = if state.ready(stream) {
                Some(stream)
            } else {
                state.busy.iter().copied().find(|&other| state.ready(other))
            };
            match next {
                Some(next) => state = self.run_one(state, next),
                None => return state,
            }
        }
    }

    /// Runs commands until a condition holds.
    pub(crate) fn wait<'m>(
        self: &'m Arc<Self>,
        mut state: Guard<'m>,
        done: impl Fn(&State) -> bool,
    ) -> Guard<'m> {
        while !done(&state) {
            let ready: Vec<u64> = state
                .busy
                .iter()
                .copied()
                .filter(|&stream| state.ready(stream))
                .collect();
            if let Some(next) = state.choose(&ready, self.settings.streams) {
                state = self.run_one(state, next);
                continue;
            }
            // Another thread runs something, or a stream waits for memory that the host will write.
            let patience = Duration::from_millis(1);
            let (guard, _) = self
                .progress
                .wait_timeout(state, patience)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        state
    }

    /// Runs the first command of a stream that is ready.
    fn run_one<'m>(self: &'m Arc<Self>, mut state: Guard<'m>, stream: u64) -> Guard<'m> {
        let queue = &mut state.stream_mut(stream).queue;
        let Some(command) = queue.pop_front() else {
            return state;
        };
        let owner = state.stream_mut(stream);
        owner.running = Some(command.sequence);
        let context = owner.context;
        let result = match command.work {
            Work::Nothing | Work::Record { .. } | Work::WaitValue { .. } => {
                let ordered = state.order(stream, &command);
                state.ended(stream, ordered);
                Ok(())
            }
            _ => {
                let ordered = state.order(stream, &command);
                let after = ordered
                    .as_ref()
                    .map(|ordered| (ordered.clock.clone(), ordered.command));
                let (own, all) = (state.view(context, false), state.view(context, true));
                let launches = command.work.launches();
                let first = state.launches + 1;
                state.launches += launches;
                let stack = stack_of(
                    state
                        .contexts
                        .get(&context)
                        .map_or(0, |context| context.limits[0]),
                );
                drop(state);
                let mut place = Surroundings {
                    machine: self,
                    own: &own,
                    all: &all,
                    grid: AtomicU64::new(first),
                    stack,
                    ordered,
                };
                let result = execute(&command.work, &mut place);
                drop((own, all));
                state = self.state();
                state.ended_at(stream, after);
                result
            }
        };
        state.finish(stream, &command);
        if let Err(trouble) = result {
            self.fail(&mut state, context, &trouble);
        }
        self.progress.notify_all();
        state
    }

    /// Makes a context fail, and all of its device's if the device is lost.
    fn fail(&self, state: &mut State, context: u64, trouble: &Trouble) {
        let name = describe(trouble.code).map_or("", |(name, _)| name.to_str().unwrap_or_default());
        self.log()
            .line(&format!("{name} ({}): {}", trouble.code, trouble.message));
        let Some(device) = state.contexts.get(&context).map(|context| context.device) else {
            return;
        };
        state.devices[device].lost |= trouble.lost;
        let failing: Vec<u64> = (state.contexts.iter())
            .filter(|(handle, other)| **handle == context || trouble.lost && other.device == device)
            .map(|(handle, _)| *handle)
            .collect();
        for handle in failing {
            state
                .contexts
                .get_mut(&handle)
                .expect("listed above")
                .failure
                .get_or_insert(trouble.code);
            state.drop_commands(handle);
        }
    }
}

impl Call<'_> {
    /// Waits until everything that is now in a stream has ended.
    pub(crate) fn wait_for_stream<'m>(
        &'m self,
        mut state: Guard<'m>,
        stream: u64,
    ) -> Outcome<Guard<'m>> {
        if state.stream_mut(stream).capture.is_some() {
            return Err(capture::forbid(
                &mut state,
                stream,
                "waiting for a capturing stream",
            ));
        }
        self.machine.tally().synchronized();
        let context = state.stream_mut(stream).context;
        let target = state.sequence;
        state = self
            .machine
            .wait(state, |state| state.passed(stream, target));
        state.host_knows(stream);
        if let Some(context) = state.contexts.get(&context) {
            context.healthy()?;
        }
        Ok(state)
    }

    /// Waits until everything that is now in a context's streams has ended.
    pub(crate) fn wait_for_context<'m>(
        &'m self,
        mut state: Guard<'m>,
        context: u64,
    ) -> Outcome<Guard<'m>> {
        state = self.drain_context(state, context);
        state.context(context)?.healthy()?;
        Ok(state)
    }

    /// As [`Call::wait_for_context`], also of a context that has failed.
    pub(crate) fn drain_context<'m>(&'m self, mut state: Guard<'m>, context: u64) -> Guard<'m> {
        self.machine.tally().synchronized();
        let target = state.sequence;
        let of_context = |state: &State| -> Vec<u64> {
            let streams = state.busy.iter().copied();
            streams
                .filter(|stream| {
                    state
                        .streams
                        .get(stream)
                        .is_some_and(|s| s.context == context)
                })
                .collect()
        };
        state = self.machine.wait(state, |state| {
            of_context(state)
                .iter()
                .all(|&stream| state.passed(stream, target))
        });
        if self.machine.settings.checks.stream_races {
            let streams: Vec<u64> = state
                .streams
                .iter()
                .filter(|(_, s)| s.context == context)
                .map(|(handle, _)| *handle)
                .collect();
            streams
                .into_iter()
                .for_each(|stream| state.host_knows(stream));
        }
        state
    }
}

impl Work {
    /// Launches in it.
    fn launches(&self) -> u64 {
        match self {
            Work::Launch(_) => 1,
            Work::Graph(plan) => plan.steps.iter().map(|(work, _)| work.launches()).sum(),
            _ => 0,
        }
    }
}

impl State {
    /// The earliest command of a stream that has not ended.
    fn first(&self, stream: u64) -> Option<u64> {
        let stream = self.streams.get(&stream)?;
        stream
            .running
            .or_else(|| stream.queue.front().map(|command| command.sequence))
    }

    /// Whether all commands of a stream up to a number have ended.
    pub(crate) fn passed(&self, stream: u64, target: u64) -> bool {
        self.first(stream).is_none_or(|first| first > target)
    }

    /// Whether the first command of a stream may run.
    fn ready(&self, handle: u64) -> bool {
        let Some(stream) = self.streams.get(&handle) else {
            return false;
        };
        let Some(head) = stream.queue.front() else {
            return false;
        };
        if stream.running.is_some()
            || head
                .waits
                .iter()
                .any(|record| self.pending_records.contains(record))
        {
            return false;
        }
        let earlier = |other: u64| self.first(other).is_some_and(|first| first < head.sequence);
        let behind = match stream.kind {
            StreamKind::NonBlocking => false,
            StreamKind::Blocking => self
                .contexts
                .get(&stream.context)
                .is_some_and(|context| earlier(context.legacy)),
            StreamKind::Legacy => self.busy.iter().any(|&other| {
                let is_blocking = self.streams.get(&other).is_some_and(|candidate| {
                    candidate.context == stream.context && candidate.kind == StreamKind::Blocking
                });
                is_blocking && earlier(other)
            }),
        };
        if behind {
            return false;
        }
        match head.work {
            Work::WaitValue {
                address,
                value,
                wide,
                compare,
            } => self.value_arrived(address, value, wide, compare),
            _ => true,
        }
    }

    fn value_arrived(&self, address: u64, value: u64, wide: bool, compare: u32) -> bool {
        use crate::exec::memory::Memory;
        // Any context's view of all devices shows the same memory.
        let Some(&context) = self.contexts.keys().next() else {
            return true;
        };
        let size = if wide { 8 } else { 4 };
        let Some(region) = self
            .view(context, true)
            .region(address)
            .filter(|region| region.end - address >= size)
        else {
            // The command's own turn reports the address.
            return true;
        };
        let mut bytes = [0; 8];
        // SAFETY: the region has that many bytes at the address; whoever writes them does so at once.
        unsafe {
            let source = region.host.add((address - region.start) as usize);
            source.copy_to_nonoverlapping(bytes.as_mut_ptr(), size as usize);
        }
        let found = u64::from_le_bytes(bytes);
        match compare & 3 {
            0 if wide => found.wrapping_sub(value) as i64 >= 0,
            0 => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) & if wide { u64::MAX } else { u64::from(u32::MAX) } != 0,
        }
    }

    /// A random number below a bound (0 for a bound of 0).
    pub(crate) fn random_below(&mut self, bound: usize) -> usize {
        let value = mix(self.random);
        self.random = self.random.wrapping_add(MIX_STEP);
        if bound == 0 {
            0
        } else {
            (value % bound as u64) as usize
        }
    }

    /// Which ready stream runs next: the first, or in deferred mode the one that is preferred. Preferences change now
    /// and then, so that a stream may be held back for long or run far ahead.
    fn choose(&mut self, ready: &[u64], mode: Streams) -> Option<u64> {
        if mode == Streams::Eager || ready.len() <= 1 {
            return ready.first().copied();
        }
        if self.random_below(4) == 0 {
            self.preferences.clear();
        }
        for &stream in ready {
            if !self.preferences.contains_key(&stream) {
                let preference = self.random_below(usize::MAX) as u64;
                self.preferences.insert(stream, preference);
            }
        }
        ready
            .iter()
            .copied()
            .max_by_key(|stream| self.preferences.get(stream).copied())
    }

    /// What a command that begins is ordered behind, if races are looked for.
    fn order(&mut self, handle: u64, command: &Command) -> Option<Ordered> {
        let submitted = command.clock.as_ref()?;
        let stream = self.streams.get(&handle)?;
        let (context, kind) = (stream.context, stream.kind);
        let mut clock = stream.clock.clone();
        join(&mut clock, submitted);
        for record in &command.waits {
            if let Some(known) = self.record_clocks.get(record) {
                join(&mut clock, known);
            }
        }
        let related = |other: &super::state::Stream| {
            other.context == context
                && match kind {
                    StreamKind::Legacy => other.kind == StreamKind::Blocking,
                    StreamKind::Blocking => other.kind == StreamKind::Legacy,
                    StreamKind::NonBlocking => false,
                }
        };
        let orders: Vec<&Clock> = self
            .streams
            .values()
            .filter(|other| related(other))
            .map(|other| &other.clock)
            .collect();
        orders.into_iter().for_each(|other| join(&mut clock, other));
        let number = self.history.add(
            handle,
            format!("{} in stream {handle:#x}", command.work.text()),
        );
        Some(Ordered {
            history: self.history.clone(),
            clock,
            command: number,
        })
    }

    fn ended(&mut self, stream: u64, ordered: Option<Ordered>) {
        self.ended_at(
            stream,
            ordered.map(|ordered| (ordered.clock, ordered.command)),
        );
    }

    fn ended_at(&mut self, handle: u64, after: Option<(Clock, u32)>) {
        if let (Some((mut clock, number)), Some(stream)) = (after, self.streams.get_mut(&handle)) {
            clock.insert(handle, number);
            stream.clock = clock;
        }
    }

    /// The host has waited for a stream: what it submits from now on is ordered behind it.
    pub(crate) fn host_knows(&mut self, stream: u64) {
        if let Some(stream) = self.streams.get(&stream) {
            join(&mut self.host_clock, &stream.clock);
        }
    }

    /// A command has ended.
    fn finish(&mut self, handle: u64, command: &Command) {
        if let Work::Record { event, record } = command.work {
            self.pending_records.remove(&record);
            if command.clock.is_some()
                && let Some(stream) = self.streams.get(&handle)
            {
                self.record_clocks.insert(record, stream.clock.clone());
            }
            if let Some(event) = self.events.get_mut(&event)
                && event.record == record
            {
                event.time = Some(Instant::now());
            }
        }
        let Some(stream) = self.streams.get_mut(&handle) else {
            return;
        };
        stream.running = None;
        if stream.queue.is_empty() {
            let destroyed = stream.destroyed;
            self.busy.retain(|&other| other != handle);
            if destroyed {
                self.streams.remove(&handle);
            }
        }
    }

    /// Drops the commands of a context that have not begun.
    pub(crate) fn drop_commands(&mut self, context: u64) {
        let streams: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, s)| s.context == context)
            .map(|(handle, _)| *handle)
            .collect();
        for handle in streams {
            let stream = self.stream_mut(handle);
            let dropped = std::mem::take(&mut stream.queue);
            let (idle, destroyed) = (stream.running.is_none(), stream.destroyed);
            for command in dropped {
                if let Work::Record { record, .. } = command.work {
                    self.pending_records.remove(&record);
                }
            }
            if idle {
                self.busy.retain(|&other| other != handle);
                if destroyed {
                    self.streams.remove(&handle);
                }
            }
        }
    }
}

/// The failure of something that a lost device cannot do.
pub(crate) fn lost(device: usize) -> Failure {
    Failure::new(code::DEVICE_UNAVAILABLE, format!("device {device} is lost"))
}
