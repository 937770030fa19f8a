//! A graph made ready to run: its nodes' work and what each must come behind.

use std::sync::{Arc, Mutex, PoisonError};

use super::clock::{Clock, Ordered, join};
use super::graph_memory::MemoryBalance;
use super::work::{Surroundings, Trouble, Work, execute};
use crate::check::Order;
use crate::machine::Streams;

/// The nodes of a graph, each behind those it depends on.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Work, and the indices of nodes that come first.
    pub(crate) steps: Vec<(Work, Vec<usize>)>,
    /// Held while the graph runs, as a graph never runs beside itself.
    pub(crate) running: Arc<Mutex<()>>,
    /// The steps' names in clocks, as if each were a stream: this number and those behind it.
    pub(crate) first_clock: u64,
}

/// What the record of a graph's end has in place of an event.
pub(crate) const WHOLE_GRAPH: u64 = 0;

/// One launch of a graph.
#[derive(Debug)]
pub(crate) struct GraphLaunch {
    pub(crate) plan: Arc<Plan>,
    /// The events that it records, with the numbers of the records; [`WHOLE_GRAPH`] stands for its end.
    pub(crate) records: Vec<(u64, u64)>,
}

impl Plan {
    /// Events that steps wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().filter_map(|(work, _)| match work {
            Work::Await { event } => Some(*event),
            _ => None,
        })
    }

    /// Events that steps record.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().filter_map(|(work, _)| match work {
            Work::Record { event, .. } => Some(*event),
            _ => None,
        })
    }

    /// What a launch does to the memory of graphs.
    pub(crate) fn balance(&self) -> MemoryBalance {
        let mut balance = MemoryBalance::default();
        for (work, _) in &self.steps {
            if let Work::Allocate(memory) = work {
                balance.left.push(memory.clone());
            }
        }
        for (work, _) in &self.steps {
            if let Work::Free { address } = work {
                let own = balance
                    .left
                    .iter()
                    .position(|memory| memory.address == *address);
                match own {
                    Some(index) => drop(balance.left.swap_remove(index)),
                    None => balance.freed.push(*address),
                }
            }
        }
        balance
    }
}

/// Runs a graph's nodes; in deferred mode in any order that its edges allow.
pub(super) fn run(launch: &GraphLaunch, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    let plan = &launch.plan;
    let _running = plan.running.lock().unwrap_or_else(PoisonError::into_inner);
    let eager = place.machine.settings.streams == Streams::Eager;
    let whole = place.ordered.take();
    let mut clocks = vec![Clock::new(); plan.steps.len()];
    let mut done = vec![false; plan.steps.len()];
    for turn in 0..plan.steps.len() {
        let index = if eager {
            turn
        } else {
            let is_ready = |&index: &usize| {
                !done[index] && plan.steps[index].1.iter().all(|&before| done[before])
            };
            let ready: Vec<usize> = (0..done.len()).filter(is_ready).collect();
            ready[place.machine.state().random_below(ready.len())]
        };
        place.ordered = whole
            .as_ref()
            .map(|whole| order(plan, index, whole, &clocks));
        step(launch, index, place)?;
        done[index] = true;
        if let Some(ordered) = place.ordered.take() {
            clocks[index] = ordered.clock;
            clocks[index].insert(plan.first_clock + index as u64, ordered.command);
        }
    }
    // What comes later in the stream is behind all of them.
    place.ordered = whole.map(|mut whole| {
        clocks
            .iter()
            .for_each(|clock| join(&mut whole.clock, clock));
        whole
    });
    Ok(())
}

/// What a step is ordered behind: what the launch is, and the steps that come before.
fn order(plan: &Plan, index: usize, whole: &Ordered, clocks: &[Clock]) -> Ordered {
    let (work, before) = &plan.steps[index];
    let mut clock = whole.clock.clone();
    before
        .iter()
        .for_each(|&before| join(&mut clock, &clocks[before]));
    let text = format!("{} in {}", work.text(), whole.describe(whole.command));
    Ordered {
        history: whole.history.clone(),
        clock,
        command: whole.history.add(plan.first_clock + index as u64, text),
    }
}

fn step(launch: &GraphLaunch, index: usize, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    let work = &launch.plan.steps[index].0;
    match work {
        Work::Record { event, .. } => {
            let record = launch.records.iter().find(|(other, _)| other == event);
            let clock = place.ordered.as_ref().map(|ordered| ordered.clock.clone());
            if let Some(&(event, record)) = record {
                place.machine.state().recorded(event, record, clock);
            }
            Ok(())
        }
        Work::Free { .. } => {
            execute(work, place)?;
            place.refresh();
            Ok(())
        }
        _ => execute(work, place),
    }
}
