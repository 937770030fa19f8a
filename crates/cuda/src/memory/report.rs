//! What an out-of-memory error says.

use std::fmt::Write;

use fireclay_core::{Device, Error};

use super::ledger::{Group, Purpose};
use super::segment::GRANULARITY;

/// Everything known when a request could not be served.
pub(super) struct Shortage {
    pub(super) device: Device,
    pub(super) requested: u64,
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) limit: Option<u64>,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) largest_free: u64,
    /// Free bytes at the end of the segment that could grow for the request.
    pub(super) tail: Option<u64>,
    pub(super) waited: u64,
    pub(super) released: u64,
    pub(super) purposes: Vec<(Purpose, u64)>,
    pub(super) groups: Vec<Group>,
}

impl Shortage {
    /// The share of the cache's free memory that a request of its size could not get in one piece.
    fn fragmentation(&self) -> f64 {
        let free = self.reserved - self.allocated;
        if free == 0 {
            return 0.0;
        }
        1.0 - self.largest_free as f64 / free as f64
    }

    /// The most that one request could get now.
    fn would_fit(&self) -> u64 {
        let driver = match self.limit {
            Some(limit) => self.free.min(limit.saturating_sub(self.reserved)),
            None => self.free,
        };
        // The driver gives whole pieces, which lengthen what is free at the end of a growing segment.
        let new = driver / GRANULARITY as u64 * GRANULARITY as u64 + self.tail.unwrap_or(0);
        new.max(self.largest_free)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} asked for; of {} the driver has {} free; allocated {}, reserved {}, largest free block {}, \
             fragmentation {:.0} %",
            Bytes(self.requested),
            Bytes(self.total),
            Bytes(self.free),
            Bytes(self.allocated),
            Bytes(self.reserved),
            Bytes(self.largest_free),
            self.fragmentation() * 100.0
        );
        if let Some(limit) = self.limit {
            let _ = write!(text, "; this process may reserve {}", Bytes(limit));
        }
        if !self.purposes.is_empty() {
            text.push_str("\n  in use:");
            for (number, (purpose, bytes)) in self.purposes.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                let _ = write!(text, "{comma} {purpose} {}", Bytes(*bytes));
            }
        }
        let elsewhere = self.total.saturating_sub(self.free + self.reserved);
        if elsewhere > 0 {
            let _ = write!(text, "; {} {}", Purpose::Context, Bytes(elsewhere));
        }
        if !self.groups.is_empty() {
            text.push_str("\n  largest groups by the line that made them:");
            for group in &self.groups {
                let blocks = if group.blocks == 1 { "block" } else { "blocks" };
                let _ = write!(
                    text,
                    "\n    {} in {} {blocks} at {}",
                    Bytes(group.bytes),
                    group.blocks,
                    group.location
                );
            }
        }
        let _ = write!(
            text,
            "\n  tried: the cache; the driver; waiting for other streams ({}); giving unused memory back ({}); the driver again",
            Bytes(self.waited),
            Bytes(self.released)
        );
        text
    }
}

impl From<Box<Shortage>> for Error {
    fn from(shortage: Box<Shortage>) -> Error {
        let fit = shortage.would_fit();
        let hint = if fit == 0 {
            "nothing more fits: free tensors, or work on smaller batches".to_owned()
        } else if fit >= shortage.requested {
            // Not the device's memory, then: the driver itself lacks something, as memory of the host for its tables.
            format!(
                "{} would fit into the device's memory, so the driver ran short of something else: look at the memory and the \
                 limits of the host",
                Bytes(fit)
            )
        } else {
            let share = fit as f64 / shortage.requested as f64;
            format!(
                "{} would fit, {:.0} % of what was asked for: work on smaller batches, or free tensors",
                Bytes(fit),
                (share * 100.0).min(99.0)
            )
        };
        Error::out_of_memory(shortage.device, shortage.text(), hint)
    }
}

/// A number of bytes for people.
pub(crate) struct Bytes(pub(crate) u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >> shift > 0) {
            Some((shift, unit)) => {
                write!(f, "{:.2} {unit}", self.0 as f64 / f64::from(1u32 << shift))
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}
