//! `ptxas`, where it is found: the registers, shared memory and spills of every kernel, as a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bundle;

/// Where it is looked for first: the path of the program.
const VARIABLE: &str = "FIRECLAY_PTXAS";
/// Where the compiler is, in a package beside which the assembler's may be.
const COMPILER: &str = "FIRECLAY_NVRTC";
/// What its version says. Other versions give other registers.
const PINNED: &str = "release 12.0,";
/// The table stands between these lines.
const BEGIN: &str = "<!-- ptxas: written by `cargo xtask kernels` -->";
const END: &str = "<!-- ptxas: end -->";
/// Threads of a block where a kernel states no bound: as `CudaCall` launches it.
const THREADS: usize = 256;

/// A device of the table: what of it limits how many warps run at once (CUDA C++ Programming Guide, compute capabilities).
struct Architecture {
    capability: u32,
    shared: usize,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture {
        capability: 80,
        shared: 164 << 10,
    },
    Architecture {
        capability: 90,
        shared: 228 << 10,
    },
];
/// The same for both.
const WARPS: usize = 64;
const BLOCKS: usize = 32;
/// Of one of the four parts of a multiprocessor.
const REGISTERS: usize = 16384;
const PARTS: usize = 4;
/// Registers are given out in such portions, to a warp.
const REGISTER_PORTION: usize = 256;
/// Shared memory that the system takes for each block.
const SHARED_OF_SYSTEM: usize = 1 << 10;

/// What a kernel takes of a device.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Usage {
    target: u32,
    registers: usize,
    shared: usize,
    spilled: usize,
}

impl Usage {
    /// The share of a device's warps that can run at once, in percent.
    fn occupancy(self, device: &Architecture, threads: usize) -> usize {
        let warps = threads.div_ceil(32);
        let registers_of_warp = (self.registers * 32).next_multiple_of(REGISTER_PORTION);
        let by_registers = (REGISTERS / registers_of_warp.max(1)) * PARTS / warps;
        let by_shared = device.shared / (self.shared + SHARED_OF_SYSTEM);
        let blocks = by_registers.min(by_shared).min(WARPS / warps).min(BLOCKS);
        blocks * warps * 100 / WARPS
    }
}

/// The program.
pub(super) struct Assembler {
    path: PathBuf,
}

impl Assembler {
    /// `$FIRECLAY_PTXAS`, or that of the package beside `$FIRECLAY_NVRTC`, or the one on the path; of the pinned version.
    pub(super) fn find() -> Option<Assembler> {
        let beside = |compiler: std::ffi::OsString| {
            let packages = Path::new(&compiler).parent()?.parent()?.parent()?;
            Some(packages.join("cuda_nvcc/bin/ptxas"))
        };
        let candidates = [
            std::env::var_os(VARIABLE).map(PathBuf::from),
            std::env::var_os(COMPILER).and_then(beside),
            Some(PathBuf::from("ptxas")),
        ];
        let mut found = candidates.into_iter().flatten().filter(|path| {
            let said = Command::new(path).arg("--version").output();
            said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(PINNED))
        });
        found.next().map(|path| Assembler { path })
    }

    /// The table of the kernels of sources: each with its PTX for its targets.
    pub(super) fn table(&self, sources: &[(String, Vec<(u32, String)>)]) -> Result<String, String> {
        let mut table = String::from(
            "| kernel | threads | sm_80: registers | shared, bytes | spilled | occupancy | sm_90: registers | shared, bytes \
             | spilled | occupancy | PTX |\n| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |\n",
        );
        for (name, targets) in sources {
            let mut threads = BTreeMap::new();
            for (_, ptx) in targets {
                for (kernel, text) in bundle::kernels(ptx)? {
                    threads.insert(kernel, threads_of(&text));
                }
            }
            let mut usages = Vec::new();
            for device in &ARCHITECTURES {
                let mut all: BTreeMap<String, Usage> = BTreeMap::new();
                for (target, ptx) in targets {
                    if *target <= device.capability {
                        all.extend(self.usages(ptx, *target, device.capability)?);
                    }
                }
                usages.push(all);
            }
            let file = name.trim_end_matches(".cu");
            for (kernel, threads) in threads {
                let mut row = format!("| {file}: {kernel} | {threads} |");
                let mut targets: Vec<String> = Vec::new();
                for (device, usages) in ARCHITECTURES.iter().zip(&usages) {
                    match usages.get(&kernel) {
                        Some(usage) => {
                            let occupancy = usage.occupancy(device, threads);
                            row.push_str(&format!(
                                " {} | {} | {} | {occupancy} % |",
                                usage.registers, usage.shared, usage.spilled
                            ));
                            targets.push(usage.target.to_string());
                        }
                        None => row.push_str(" | | | |"),
                    }
                }
                targets.dedup();
                table.push_str(&format!("{row} {} |\n", targets.join(", ")));
            }
        }
        Ok(table)
    }

    /// What the kernels of a PTX text take of a device.
    fn usages(
        &self,
        ptx: &str,
        target: u32,
        capability: u32,
    ) -> Result<BTreeMap<String, Usage>, String> {
        let file = std::env::temp_dir().join(format!("fireclay-{}.ptx", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        std::fs::write(&file, ptx).map_err(failed)?;
        let said = Command::new(&self.path)
            .arg(format!("-arch=sm_{capability}"))
            .args(["-v", "-o", "/dev/null"])
            .arg(&file)
            .output();
        let _ = std::fs::remove_file(&file);
        let said = said.map_err(failed)?;
        let text = String::from_utf8_lossy(&said.stderr).into_owned()
            + &String::from_utf8_lossy(&said.stdout);
        if !said.status.success() {
            return Err(format!("ptxas for sm_{capability}: {text}"));
        }
        Ok(usages(&text, target))
    }
}

/// The threads of a block that a kernel was compiled for.
fn threads_of(ptx: &str) -> usize {
    let bound = ptx
        .lines()
        .find_map(|line| line.trim().strip_prefix(".maxntid "));
    bound.map_or(THREADS, |sizes| {
        let sizes = sizes
            .split(',')
            .map(|size| size.trim().parse::<usize>().unwrap_or(1));
        sizes.product()
    })
}

/// Reads what `ptxas -v` says.
fn usages(text: &str, target: u32) -> BTreeMap<String, Usage> {
    let number_before = |line: &str, unit: &str| -> usize {
        let (before, _) = line.split_once(unit).unwrap_or_default();
        let last = before.rsplit([' ', ',']).find(|word| !word.is_empty());
        last.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let (mut all, mut name) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            name = rest.split('\'').next().unwrap_or_default().to_owned();
        }
        let usage: &mut Usage = all.entry(name.clone()).or_default();
        usage.target = target;
        if line.contains("spill stores") {
            usage.spilled = number_before(line, " bytes spill stores")
                + number_before(line, " bytes spill loads");
        }
        if line.contains("Used ") {
            usage.registers = number_before(line, " registers");
            usage.shared = number_before(line, " bytes smem");
        }
    }
    all.remove("");
    all
}

/// A page with this table in its place; at the end of a page that has none yet.
pub(super) fn with_table(page: &str, table: &str) -> String {
    let (before, after) = match (page.split_once(BEGIN), page.split_once(END)) {
        (Some((before, _)), Some((_, after))) => (before, after),
        _ => (page, "\n"),
    };
    format!("{before}{BEGIN}\n{table}{END}{after}")
}

#[cfg(test)]
mod tests {
    use super::{ARCHITECTURES, Usage, threads_of, usages, with_table};

    #[test]
    fn what_ptxas_says_is_read() {
        let text = "ptxas info    : 340 bytes gmem
ptxas info    : Compiling entry function 'matmul_f64' for 'sm_80'
ptxas info    : Function properties for matmul_f64
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 228 registers, 16640 bytes smem, 464 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function 'softmax_f32' for 'sm_80'
ptxas info    : Used 38 registers, 380 bytes cmem[0]";
        let all = usages(text, 70);
        let first = Usage {
            target: 70,
            registers: 228,
            shared: 16640,
            spilled: 20,
        };
        assert_eq!(all["matmul_f64"], first);
        assert_eq!(
            (all["softmax_f32"].registers, all["softmax_f32"].shared),
            (38, 0)
        );
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn occupancy_is_that_of_the_programming_guide() {
        let of = |registers, shared, threads| {
            let usage = Usage {
                registers,
                shared,
                ..Usage::default()
            };
            usage.occupancy(&ARCHITECTURES[0], threads)
        };
        assert_eq!(of(32, 0, 256), 100);
        assert_eq!(of(40, 0, 256), 75);
        assert_eq!(of(64, 0, 256), 50);
        assert_eq!(of(228, 0, 256), 12);
        assert_eq!(of(32, 100 << 10, 256), 12);
    }

    #[test]
    fn threads_are_those_of_the_bound() {
        assert_eq!(threads_of(".visible .entry a()\n.maxntid 64, 2, 1\n{"), 128);
        assert_eq!(threads_of(".visible .entry a()\n{"), 256);
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = with_table("# Kernels\n\n", "one\n");
        assert_eq!(with_table(&page, "one\n"), page);
        assert_eq!(with_table(&page, "two\n"), page.replace("one", "two"));
    }
}
