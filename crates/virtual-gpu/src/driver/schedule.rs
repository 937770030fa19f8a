//! The running of commands: which heads of queues may run, in which order they do, and waiting for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::call::Call;
use super::capture;
use super::clock::{Clock, Ordered, join};
use super::error::{Failure, Outcome, code, describe};
use super::plan::WHOLE_GRAPH;
use super::state::{Command, State, StreamKind};
use super::work::{Surroundings, Trouble, Work, execute, stack_of};
use crate::exec::block::{MIX_STEP, mix};
use crate::machine::{Machine, Streams};

/// Questions whether work has ended for which a command is run.
const QUESTIONS: u64 = 4;

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
        let waits = state.behind(stream, waits);
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

    /// Runs one command that is ready, if there is any: the one that comes first, or in deferred mode the one that is
    /// preferred.
    pub(crate) fn run_next<'m>(self: &'m Arc<Self>, mut state: Guard<'m>) -> Guard<'m> {
        let streams = state.busy.iter().copied();
        let ready: Vec<u64> = streams.filter(|&stream| state.ready(stream)).collect();
        match state.choose(&ready, self.settings.streams) {
            Some(next) => self.run_one(state, next),
            None => state,
        }
    }

    /// Tells of a question whether work has ended that had to be answered with no. Every few times a command is run, so that
    /// who asks again and again sees an end of it.
    pub(crate) fn asked_in_vain<'m>(self: &'m Arc<Self>, mut state: Guard<'m>) -> Guard<'m> {
        state.asked_in_vain += 1;
        if state.asked_in_vain.is_multiple_of(QUESTIONS) {
            state = self.run_next(state);
        }
        state
    }

    /// Runs commands until a condition holds.
    pub(crate) fn wait<'m>(
        self: &'m Arc<Self>,
        mut state: Guard<'m>,
        done: impl Fn(&State) -> bool,
    ) -> Guard<'m> {
        while !done(&state) {
            let runs = |stream: &u64| state.ready(*stream);
            if state.busy.iter().any(runs) {
                state = self.run_next(state);
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
            Work::Nothing | Work::Await { .. } | Work::Record { .. } => {
                let ordered = state.order(stream, &command);
                state.ended(stream, ordered);
                Ok(())
            }
            _ => {
                let ordered = state.order(stream, &command);
                let plain = matches!(command.work, Work::Launch(_));
                let first = state.launches + 1;
                state.launches += command.work.launches();
                let limits = state.contexts.get(&context).map(|context| context.limits);
                let mut place = Surroundings {
                    machine: self,
                    context,
                    own: state.view(context, false),
                    all: (!plain).then(|| state.view(context, true)),
                    grid: AtomicU64::new(first),
                    stack: stack_of(limits.map_or(0, |limits| limits[0])),
                    ordered,
                };
                drop(state);
                let result = catch_unwind(AssertUnwindSafe(|| execute(&command.work, &mut place)));
                let after = place.ordered.take();
                drop(place);
                state = self.state();
                state.ended(stream, after);
                result.unwrap_or_else(|_| Err(panicked(&command.work)))
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
        self.log_trouble(trouble.code, &trouble.message);
        let Some(device) = state.contexts.get(&context).map(|context| context.device) else {
            return;
        };
        if trouble.lost {
            self.lose_contexts(state, device, trouble.code);
            return;
        }
        fail_context(state, context, trouble.code);
    }

    /// Loses a device.
    pub(crate) fn lose(&self, device: usize, code: u32, message: &str) {
        self.log_trouble(code, message);
        self.lose_contexts(&mut self.state(), device, code);
        self.progress.notify_all();
    }

    /// Finds all lost devices again; what failed because of the loss works again.
    pub(crate) fn find_lost(&self) {
        let mut state = self.state();
        for device in 0..state.devices.len() {
            let Some(code) = state.devices[device].lost.take() else {
                continue;
            };
            let contexts = state.contexts.values_mut();
            contexts
                .filter(|context| context.device == device && context.failure == Some(code))
                .for_each(|context| context.failure = None);
        }
    }

    fn lose_contexts(&self, state: &mut State, device: usize, code: u32) {
        state.devices[device].lost.get_or_insert(code);
        let contexts: Vec<u64> = (state.contexts.iter())
            .filter(|(_, context)| context.device == device)
            .map(|(handle, _)| *handle)
            .collect();
        for context in contexts {
            fail_context(state, context, code);
        }
        self.injection.arm();
    }

    fn log_trouble(&self, code: u32, message: &str) {
        let name = describe(code).map_or("", |(name, _)| name.to_str().unwrap_or_default());
        self.log().line(&format!("{name} ({code}): {message}"));
    }
}

/// Makes a context fail, and drops what it has to do; the first failure stays.
fn fail_context(state: &mut State, context: u64, code: u32) {
    if let Some(context) = state.contexts.get_mut(&context) {
        context.failure.get_or_insert(code);
    }
    state.drop_commands(context);
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
        state.trim_pools();
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

    /// Waits until everything that is now in any stream has ended, whatever has failed.
    pub(crate) fn drain_everything<'m>(&'m self, mut state: Guard<'m>) -> Guard<'m> {
        let mut contexts: Vec<u64> = (state.busy.iter())
            .filter_map(|stream| state.streams.get(stream).map(|stream| stream.context))
            .collect();
        contexts.sort_unstable();
        contexts.dedup();
        for context in contexts {
            state = self.drain_context(state, context);
        }
        state
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
        state.trim_pools();
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
            } => self.value_arrived(stream.context, address, value, wide, compare),
            _ => true,
        }
    }

    /// Whether memory, as a context sees it, compares with a value; also if it cannot be read, which the command reports
    /// when it runs.
    fn value_arrived(
        &self,
        context: u64,
        address: u64,
        value: u64,
        wide: bool,
        compare: u32,
    ) -> bool {
        use crate::exec::memory::Memory;
        let size = if wide { 8 } else { 4 };
        let Some(region) = self
            .view(context, true)
            .region(address)
            .filter(|region| region.end - address >= size)
        else {
            return true;
        };
        // SAFETY: the region has that many bytes at the address, which is a multiple of their number: the submission has
        // looked. Others may write them meanwhile, so they are read at once.
        let found = unsafe {
            let source = region.host.add((address - region.start) as usize);
            if wide {
                AtomicU64::from_ptr(source.cast()).load(Ordering::Acquire)
            } else {
                u64::from(AtomicU32::from_ptr(source.cast()).load(Ordering::Acquire))
            }
        };
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

    /// A command has ended: what comes behind it in its stream is ordered behind it.
    fn ended(&mut self, handle: u64, ordered: Option<Ordered>) {
        if let (Some(mut ordered), Some(stream)) = (ordered, self.streams.get_mut(&handle)) {
            ordered.clock.insert(handle, ordered.command);
            stream.clock = ordered.clock;
        }
    }

    /// A record of an event has ended; with what it is ordered behind, if races are looked for.
    pub(crate) fn recorded(&mut self, event: u64, record: u64, clock: Option<Clock>) {
        self.pending_records.remove(&record);
        if let Some(clock) = clock {
            self.record_clocks.insert(record, clock);
        }
        if let Some(event) = self.events.get_mut(&event)
            && event.record == record
        {
            event.time = Some(Instant::now());
        }
    }

    /// The records that a new command waits for: its own, and those that its context does.
    fn behind(&mut self, stream: u64, mut waits: Vec<u64>) -> Vec<u64> {
        let context = self.streams.get(&stream).map(|stream| stream.context);
        let context = context.and_then(|context| self.contexts.get_mut(&context));
        if let Some(context) = context.filter(|context| !context.behind.is_empty()) {
            let (pending, clocks) = (&self.pending_records, &self.record_clocks);
            context
                .behind
                .retain(|record| pending.contains(record) || clocks.contains_key(record));
            waits.extend(&context.behind);
        }
        waits
    }

    /// The host has waited for a stream: what it submits from now on is ordered behind it.
    pub(crate) fn host_knows(&mut self, stream: u64) {
        if let Some(stream) = self.streams.get(&stream) {
            join(&mut self.host_clock, &stream.clock);
        }
    }

    /// A command has ended.
    fn finish(&mut self, handle: u64, command: &Command) {
        let is_record = matches!(command.work, Work::Record { .. });
        for (event, record) in command.work.records() {
            if is_record || event == WHOLE_GRAPH {
                let stream = self.streams.get(&handle);
                let clock = stream.filter(|_| command.clock.is_some());
                let clock = clock.map(|stream| stream.clock.clone());
                self.recorded(event, record, clock);
            } else {
                // What a graph did not come to because it failed holds nobody up.
                self.pending_records.remove(&record);
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

    /// Records that will not be made any more hold nobody up.
    fn drop_records(&mut self, work: &Work) {
        for (_, record) in work.records() {
            self.pending_records.remove(&record);
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
                self.drop_records(&command.work);
                if let Work::Free { address } = command.work {
                    self.freeing.remove(&address);
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

/// A command that has panicked must not leave its stream waiting for it for ever.
#[cold]
fn panicked(work: &Work) -> Trouble {
    let message = format!(
        "the virtual driver panicked in {}, which is a bug of it; please report",
        work.text()
    );
    Trouble {
        code: code::UNKNOWN,
        message,
        lost: false,
    }
}

/// The failure of something that a lost device cannot do.
pub(crate) fn lost(device: usize, code: u32) -> Failure {
    Failure::new(code, format!("device {device} is lost"))
}
