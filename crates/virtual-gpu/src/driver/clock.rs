//! Which commands are ordered: vector clocks of streams, events and the host, kept only when races between commands are
//! looked for.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::check::Order;

/// Of each stream, the latest command that is known to have ended.
pub(crate) type Clock = HashMap<u64, u32>;

/// Takes over what another clock knows.
pub(crate) fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &command) in other {
        let entry = clock.entry(stream).or_insert(0);
        *entry = (*entry).max(command);
    }
}

/// Every command so far: its stream and what messages call it.
#[derive(Debug, Default)]
pub(crate) struct History(RwLock<Vec<(u64, Box<str>)>>);

impl History {
    /// Gives a command its number, from 1.
    pub(crate) fn add(&self, stream: u64, text: String) -> u32 {
        let mut commands = self.0.write().unwrap_or_else(PoisonError::into_inner);
        commands.push((stream, text.into_boxed_str()));
        commands.len() as u32
    }
}

/// What a running command knows of those before it.
pub(crate) struct Ordered {
    /// All commands.
    pub(crate) history: Arc<History>,
    /// Which had ended when the running one began.
    pub(crate) clock: Clock,
    /// The running command.
    pub(crate) command: u32,
}

impl Order for Ordered {
    fn before(&self, earlier: u32, later: u32) -> bool {
        if later != self.command {
            return true;
        }
        let commands = self
            .history
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let stream = commands
            .get(earlier as usize - 1)
            .map(|(stream, _)| *stream);
        stream
            .and_then(|stream| self.clock.get(&stream))
            .is_some_and(|&known| known >= earlier)
    }

    fn describe(&self, command: u32) -> String {
        let commands = self
            .history
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        commands.get(command as usize - 1).map_or_else(
            || format!("command {command}"),
            |(_, text)| text.to_string(),
        )
    }
}
