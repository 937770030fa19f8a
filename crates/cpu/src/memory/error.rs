//! The error of an allocation that failed.

use std::fmt;

/// Host memory could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemoryError {
    /// How many bytes were asked for.
    pub requested: usize,
    /// How many bytes buffers held at that time.
    pub allocated: u64,
    /// How many bytes had been taken from the operating system, the cache included.
    pub reserved: u64,
    /// The limit set by [`set_memory_limit`](super::set_memory_limit), if there was one.
    pub limit: Option<u64>,
}

impl fmt::Display for HostMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of host memory: {} requested, {} allocated, {} reserved",
            Bytes(self.requested as u64),
            Bytes(self.allocated),
            Bytes(self.reserved)
        )?;
        match self.limit {
            Some(limit) => write!(f, ", limit {}", Bytes(limit)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HostMemoryError {}

/// A number of bytes in the unit that suits it.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0 as f64, 0);
        while value >= 1024.0 && unit < 6 {
            value /= 1024.0;
            unit += 1;
        }
        match unit {
            0 => write!(f, "{} bytes", self.0),
            _ => write!(
                f,
                "{value:.2} {}",
                ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit - 1]
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_all_numbers() {
        let error = HostMemoryError {
            requested: 3 << 30,
            allocated: 100,
            reserved: 2 << 20,
            limit: Some(1 << 30),
        };
        assert_eq!(
            error.to_string(),
            "out of host memory: 3.00 GiB requested, 100 bytes allocated, 2.00 MiB reserved, limit 1.00 GiB"
        );
    }
}
