//! The free blocks of one pool, in the order of best fit.

use std::collections::BTreeMap;

/// The order of best fit: the size above, the address below. One number, since that compares fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey(u128);

impl FreeKey {
    pub(super) fn new(bytes: u64, addr: u64) -> Self {
        FreeKey((bytes as u128) << 64 | addr as u128)
    }

    pub(super) fn bytes(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// Free blocks by size and address.
///
/// The one that came last stands beside the tree: it is the likeliest to go next, as the rest of a block that was cut is
/// when that block is freed, and then it never enters the tree.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    tree: BTreeMap<FreeKey, u32>,
    latest: Option<(FreeKey, u32)>,
}

impl FreeBlocks {
    pub(super) fn insert(&mut self, key: FreeKey, id: u32) {
        if let Some((key, id)) = self.latest.replace((key, id)) {
            self.tree.insert(key, id);
        }
    }

    pub(super) fn remove(&mut self, key: FreeKey) {
        match self.latest {
            Some((latest, _)) if latest == key => self.latest = None,
            _ => {
                self.tree.remove(&key);
            }
        }
    }

    /// The first one from `key` on.
    pub(super) fn first_from(&self, key: FreeKey) -> Option<(FreeKey, u32)> {
        let latest = self.latest.filter(|(latest, _)| *latest >= key);
        let in_tree = self.tree.range(key..).next().map(|(key, id)| (*key, *id));
        match (latest, in_tree) {
            (Some(latest), Some(in_tree)) => Some(latest.min(in_tree)),
            (latest, in_tree) => latest.or(in_tree),
        }
    }

    /// The size of the largest one.
    pub(super) fn largest(&self) -> Option<u64> {
        let in_tree = self.tree.last_key_value().map(|(key, _)| *key);
        let latest = self.latest.map(|(key, _)| key);
        latest.max(in_tree).map(FreeKey::bytes)
    }

    /// All of them, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        let latest = self.latest.map(|(_, id)| id);
        self.tree.values().copied().chain(latest)
    }
}
