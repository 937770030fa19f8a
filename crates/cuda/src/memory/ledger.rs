//! The ledger: what each block in use is for, and which line made it.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Weights and buffers of modules.
    Parameters,
    /// Gradients of weights.
    Gradients,
    /// What an optimizer keeps.
    Optimizer,
    /// Results of ops: activations, and what backward needs.
    Activations,
    /// What a kernel needs while it runs.
    Workspaces,
    /// Any other use by this process's tensors.
    Others,
    /// Free memory that the caching allocator holds.
    Cache,
    /// What the driver has given to nobody's tensors here: this process's context and code, and other processes.
    Context,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Purpose::Parameters => "parameters",
            Purpose::Gradients => "gradients",
            Purpose::Optimizer => "optimizer",
            Purpose::Activations => "activations",
            Purpose::Workspaces => "workspaces",
            Purpose::Others => "others",
            Purpose::Cache => "cache",
            Purpose::Context => "context and other processes",
        })
    }
}

/// Blocks in use that one line has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The line.
    pub location: &'static Location<'static>,
    /// How many.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

struct Entry {
    bytes: u64,
    purpose: Purpose,
    location: &'static Location<'static>,
}

#[derive(Default)]
pub(super) struct Ledger {
    /// By address.
    entries: HashMap<u64, Entry>,
}

impl Ledger {
    pub(super) fn add(
        &mut self,
        address: u64,
        bytes: u64,
        purpose: Purpose,
        location: &'static Location<'static>,
    ) {
        let entry = Entry {
            bytes,
            purpose,
            location,
        };
        self.entries.insert(address, entry);
    }

    pub(super) fn remove(&mut self, address: u64) {
        self.entries.remove(&address);
    }

    pub(super) fn set_purpose(&mut self, address: u64, purpose: Purpose) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.purpose = purpose;
        }
    }

    /// Bytes of blocks in use, of each purpose that has some, in the order of [`Purpose`].
    pub(super) fn by_purpose(&self) -> Vec<(Purpose, u64)> {
        let mut sums: std::collections::BTreeMap<Purpose, u64> = Default::default();
        for entry in self.entries.values() {
            *sums.entry(entry.purpose).or_default() += entry.bytes;
        }
        sums.into_iter().collect()
    }

    /// The largest groups, largest first; of equal ones the one that stands first in the source.
    pub(super) fn largest_groups(&self, count: usize) -> Vec<Group> {
        let mut groups: HashMap<&'static Location<'static>, Group> = HashMap::new();
        for entry in self.entries.values() {
            let group = groups.entry(entry.location).or_insert(Group {
                location: entry.location,
                blocks: 0,
                bytes: 0,
            });
            group.blocks += 1;
            group.bytes += entry.bytes;
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| {
            let place = (group.location.file(), group.location.line());
            (std::cmp::Reverse(group.bytes), place)
        });
        groups.truncate(count);
        groups
    }
}
