//! The environment variables that configure the process's machine: one table, for reading and for documentation.

use std::path::PathBuf;

use super::settings::{Checks, Settings, Sink, Streams};

/// An environment variable.
#[derive(Clone, Copy)]
pub struct EnvironmentVariable {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub values: &'static str,
    /// What it does.
    pub meaning: &'static str,
    read: fn(&mut Settings, &str) -> Option<()>,
}

impl EnvironmentVariable {
    /// Changes the settings as the variable does if it has this value, or says what it may be.
    pub fn apply(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        (self.read)(settings, value.trim())
            .ok_or_else(|| format!("{}={value}: expected {}", self.name, self.values))
    }
}

/// All variables, as `FIRECLAY_VIRTUAL_GPUS=2 FIRECLAY_VIRTUAL_GPU_MEMORY=8GiB`.
pub const VARIABLES: &[EnvironmentVariable] = &[
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPUS",
        values: "0 to 62; 2 unless set",
        meaning: "number of devices",
        read: |settings, value| small(value).map(|value| settings.devices = value),
    },
    EnvironmentVariable {
        name: "CUDA_VISIBLE_DEVICES",
        values: "a list of device numbers, which ends at the first that is none",
        meaning: "how many of the devices are seen, as the CUDA driver reads it",
        read: |settings, value| {
            let mut seen = Vec::new();
            for device in value.split(',').map_while(small) {
                if device >= settings.devices {
                    break;
                }
                if seen.contains(&device) {
                    seen.clear();
                    break;
                }
                seen.push(device);
            }
            settings.devices = seen.len() as u32;
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_MEMORY",
        values: "bytes, or with KiB, MiB, GiB, TiB; 8GiB unless set",
        meaning: "memory of each device",
        read: |settings, value| bytes(value).map(|value| settings.memory = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_CAPABILITY",
        values: "as 8.0, which it is unless set",
        meaning: "compute capability",
        read: |settings, value| {
            let (major, minor) = value.split_once('.')?;
            settings.capability = (small(major)?, small(minor)?);
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_DRIVER",
        values: "as 13.0, which it is unless set",
        meaning: "CUDA version that the driver reports; newer PTX is refused",
        read: |settings, value| {
            let (major, minor) = value.split_once('.')?;
            settings.driver_version =
                (number(major)?.min(1000) * 1000 + number(minor)?.min(99) * 10) as i32;
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_WORKERS",
        values: "1 to 1024; one for each processor unless set",
        meaning: "threads that run the blocks of a launch",
        read: |settings, value| number(value).map(|value| settings.workers = value as usize),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_SEED",
        values: "a number",
        meaning: "shuffles the order of blocks, warps and deferred streams; they run in order unless set",
        read: |settings, value| number(value).map(|value| settings.seed = Some(value)),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_STREAMS",
        values: "eager (unless set) or deferred",
        meaning: "whether work is done when submitted, or when waited for in the worst order that is allowed",
        read: |settings, value| {
            settings.streams = match value {
                "eager" => Streams::Eager,
                "deferred" => Streams::Deferred,
                _ => return None,
            };
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_CHECKS",
        values: "a list of strict, uninitialized, shared-races, stream-races, leaks; or all, none (unless set)",
        meaning: "what is looked for beyond what hardware finds",
        read: |settings, value| {
            for word in value
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty())
            {
                let checks = &mut settings.checks;
                match word {
                    "uninitialized" => checks.uninitialized = true,
                    "shared-races" => checks.shared_races = true,
                    "stream-races" => checks.stream_races = true,
                    "leaks" => checks.leaks = true,
                    "strict" => checks.strict = true,
                    "none" => *checks = Checks::NONE,
                    "all" => *checks = Checks::ALL,
                    _ => return None,
                }
            }
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_POISON",
        values: "bytes, or with KiB, MiB, GiB; 4MiB unless set",
        meaning: "how much of the start of an allocation is filled with ones, a NaN of every float type",
        read: |settings, value| bytes(value).map(|value| settings.poison = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_QUARANTINE",
        values: "bytes, or with KiB, MiB, GiB; 256MiB unless set",
        meaning: "freed addresses that are not given out again, so that uses of them are found",
        read: |settings, value| bytes(value).map(|value| settings.quarantine = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_BUDGET",
        values: "a number; 10000000000 unless set",
        meaning: "warp instructions after which a launch ends as one that hangs",
        read: |settings, value| number(value).map(|value| settings.budget = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_EXECUTE",
        values: "1 (unless set) or 0",
        meaning: "with 0 launches are accepted and do nothing, to measure the host",
        read: |settings, value| switch(value).map(|value| settings.execute = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_COUNT_MEMORY",
        values: "0 (unless set) or 1",
        meaning: "whether bytes, sectors and bank conflicts of kernels are counted, which slows them down",
        read: |settings, value| switch(value).map(|value| settings.count_memory = value),
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_COUNTERS",
        values: "a file",
        meaning: "where the counters are written at exit, as JSON",
        read: |settings, value| {
            settings.counters_file = Some(PathBuf::from(value));
            Some(())
        },
    },
    EnvironmentVariable {
        name: "FIRECLAY_VIRTUAL_GPU_LOG",
        values: "stderr (unless set), none, or a file",
        meaning: "where the lines go that explain errors",
        read: |settings, value| {
            settings.log = match value {
                "stderr" => Sink::Stderr,
                "none" => Sink::None,
                _ => Sink::File(PathBuf::from(value)),
            };
            Some(())
        },
    },
];

impl std::fmt::Debug for EnvironmentVariable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {} ({})", self.name, self.meaning, self.values)
    }
}

/// Settings from variables.
pub(super) fn read(value_of: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
    let mut settings = Settings {
        log: Sink::Stderr,
        // Programs that load the library expect what hardware does.
        checks: Checks::NONE,
        ..Settings::default()
    };
    for variable in VARIABLES {
        if let Some(value) = value_of(variable.name) {
            variable.apply(&mut settings, &value)?;
        }
    }
    Ok(settings)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn small(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (digits, shift) = (units.iter())
        .find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((text, 0));
    let value: u64 = digits.trim().parse().ok()?;
    value.checked_mul(1 << shift)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        read(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn variables_set_what_they_say() {
        let settings = from(&[
            ("FIRECLAY_VIRTUAL_GPUS", "8"),
            ("FIRECLAY_VIRTUAL_GPU_MEMORY", "80GiB"),
            ("FIRECLAY_VIRTUAL_GPU_CAPABILITY", "9.0"),
            ("FIRECLAY_VIRTUAL_GPU_CHECKS", "leaks, stream-races"),
            ("FIRECLAY_VIRTUAL_GPU_STREAMS", "deferred"),
        ])
        .unwrap();
        assert_eq!(
            (settings.devices, settings.memory, settings.capability),
            (8, 80 << 30, (9, 0))
        );
        assert!(
            settings.checks.leaks && settings.checks.stream_races && !settings.checks.uninitialized
        );
        assert_eq!(settings.streams, Streams::Deferred);
    }

    #[test]
    fn visible_devices_are_read_as_the_driver_reads_them() {
        for (value, seen) in [
            ("1", 1),
            ("1,0", 2),
            ("0,7,1", 1),
            ("0,x,1", 1),
            ("", 0),
            ("-1", 0),
            ("1,1", 0),
        ] {
            let settings = from(&[("CUDA_VISIBLE_DEVICES", value)]).unwrap();
            assert_eq!(settings.devices, seen, "{value}");
        }
    }

    #[test]
    fn the_library_is_as_lenient_as_hardware() {
        let checks = |value| {
            from(&[("FIRECLAY_VIRTUAL_GPU_CHECKS", value)])
                .unwrap()
                .checks
        };
        assert_eq!(from(&[]).unwrap().checks, Checks::NONE);
        assert!(checks("strict").strict && !checks("strict").leaks);
        assert_eq!(checks("all"), Checks::ALL);
        assert_eq!(checks("leaks,none"), Checks::NONE);
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, value) in [
            ("FIRECLAY_VIRTUAL_GPUS", "two"),
            ("FIRECLAY_VIRTUAL_GPU_MEMORY", "8GB"),
            ("FIRECLAY_VIRTUAL_GPU_CAPABILITY", "8"),
            ("FIRECLAY_VIRTUAL_GPU_CHECKS", "everything"),
            ("FIRECLAY_VIRTUAL_GPU_EXECUTE", "yes"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        assert!(
            from(&[("FIRECLAY_VIRTUAL_GPUS", "1000")])
                .unwrap()
                .validate()
                .is_err()
        );
    }
}
