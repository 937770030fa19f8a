//! A graph made ready to run: its nodes' work and what each must come behind.

use std::sync::{Arc, Mutex};

use super::work::{Surroundings, Trouble, Work, execute};
use crate::machine::Streams;

/// The nodes of a graph, each behind those it depends on.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Work, and the indices of nodes that come first.
    pub(crate) steps: Vec<(Work, Vec<usize>)>,
    /// Held while the graph runs, as a graph never runs beside itself.
    pub(crate) running: Arc<Mutex<()>>,
}

/// Runs a graph's nodes; in deferred mode in any order that its edges allow.
pub(super) fn run(plan: &Plan, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    let _running = plan
        .running
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if place.machine.settings.streams == Streams::Eager {
        return plan
            .steps
            .iter()
            .try_for_each(|(work, _)| step(work, place));
    }
    let mut done = vec![false; plan.steps.len()];
    for _ in 0..plan.steps.len() {
        let ready: Vec<usize> = (0..done.len())
            .filter(|&index| !done[index] && plan.steps[index].1.iter().all(|&before| done[before]))
            .collect();
        let choice = place.machine.state().random_below(ready.len());
        let Some(&index) = ready.get(choice) else {
            break;
        };
        step(&plan.steps[index].0, place)?;
        done[index] = true;
    }
    Ok(())
}

fn step(work: &Work, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    if let Work::Record { event, .. } = work {
        let mut state = place.machine.state();
        let record = state.next_sequence();
        if let Some(event) = state.events.get_mut(event) {
            (event.record, event.time) = (record, Some(std::time::Instant::now()));
        }
        return Ok(());
    }
    execute(work, place)
}
