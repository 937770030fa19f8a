//! Damaged texts of the corpus through parser, decoder and executor, with all checks on: each must end in an error
//! value, a fault or a result. The long mode runs for `VIRTUAL_GPU_FUZZ_SECONDS` from `VIRTUAL_GPU_SEED` on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::decode;
use crate::instructions::table::Random;
use crate::ptx;
use crate::rig::{Bytes, Rig};

#[test]
fn some_damaged_kernels_end_in_a_value() {
    let texts = crate::corpus::texts();
    let mut random = Random::new(2026);
    let mut counts = Counts::default();
    for _ in 0..150 {
        let text = damaged(&texts[random.below(texts.len())].1, &mut random);
        counts.add(outcome(&text, &mut random));
    }
    assert!(
        counts.finished > 0 && counts.faults > 0 && counts.refused > 0,
        "{counts:?}"
    );
}

#[test]
#[ignore = "runs for VIRTUAL_GPU_FUZZ_SECONDS, 60 if it is not set"]
fn many_damaged_kernels_end_in_a_value() {
    let number = |name: &str, otherwise: u64| {
        let set = std::env::var(name).ok();
        set.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let texts = crate::corpus::texts();
    let mut random = Random::new(number("VIRTUAL_GPU_SEED", 1));
    let end = Instant::now() + Duration::from_secs(number("VIRTUAL_GPU_FUZZ_SECONDS", 60));
    // What a crash of the process leaves behind.
    let witness = std::env::temp_dir().join(format!("virtual-gpu-fuzz-{}.ptx", std::process::id()));
    let mut counts = Counts::default();
    while Instant::now() < end {
        let text = damaged(&texts[random.below(texts.len())].1, &mut random);
        std::fs::write(&witness, &text.text).expect("a folder for temporary files");
        let start = Instant::now();
        counts.add(outcome(&text, &mut random));
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it takes long: {}",
            witness.display()
        );
    }
    let _ = std::fs::remove_file(witness);
    println!("{counts:?}");
}

/// What came of texts.
#[derive(Debug, Default)]
struct Counts {
    texts: u64,
    not_ptx: u64,
    refused: u64,
    finished: u64,
    faults: u64,
}

/// What came of a text.
enum Outcome {
    NotPtx,
    Refused,
    Finished,
    Fault,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        self.texts += 1;
        *match outcome {
            Outcome::NotPtx => &mut self.not_ptx,
            Outcome::Refused => &mut self.refused,
            Outcome::Finished => &mut self.finished,
            Outcome::Fault => &mut self.faults,
        } += 1;
    }
}

/// A text, and a line that was changed.
struct Damaged {
    text: String,
    line: u32,
}

/// Bytes of variables that a text may have to be run.
const MOST_MEMORY: u64 = 1 << 20;

fn outcome(damaged: &Damaged, random: &mut Random) -> Outcome {
    let Ok(module) = ptx::parse(&damaged.text) else {
        return Outcome::NotPtx;
    };
    // The kernel that was changed.
    let entries = module
        .functions
        .iter()
        .filter(|function| function.entry && function.body.is_some());
    let mut entries = entries;
    let Some(entry) = entries.rfind(|function| function.line <= damaged.line) else {
        return Outcome::Refused;
    };
    let (name, index) = (entry.name.clone(), entry.line);
    let index = module
        .functions
        .iter()
        .position(|function| function.line == index && function.name == name);
    let sizes = module
        .variables
        .iter()
        .map(|variable| variable.size.unwrap_or(0));
    let size = sizes.fold(0, u64::saturating_add);
    let module = Arc::new(module);
    let addresses = vec![1 << 30; module.variables.len()];
    let kernel = decode::kernel(&module, index.expect("found above") as u32, &addresses);
    let (Ok(kernel), true) = (kernel, size <= MOST_MEMORY) else {
        return Outcome::Refused;
    };
    let spans = kernel.entry.params.clone();
    let threads = kernel.entry.required_threads.unwrap_or([40, 1, 1]);
    if threads
        .iter()
        .map(|&count| u64::from(count))
        .product::<u64>()
        > 1024
        || threads.contains(&0)
    {
        return Outcome::Refused;
    }
    drop(kernel);
    let mut rig = Rig::of(module);
    rig.options.budget = 20_000;
    rig.options.check_uninitialized = random.below(2) == 0;
    rig.options.check_shared_races = random.below(2) == 0;
    rig.options.count_memory = random.below(4) == 0;
    rig.options.seed = Some(random.next());
    rig.options.workers = 1 + random.below(2);
    let buffers: Vec<u64> = (0..3).map(|_| rig.buffer(4096)).collect();
    let params: Vec<Vec<u8>> = spans
        .iter()
        .map(|&(_, size)| match size {
            8 => (buffers[random.below(buffers.len())] + 4 * (random.below(8) / 7) as u64).bytes(),
            4 => (random.below(100) as u32).bytes(),
            size => (0..size).map(|_| random.next() as u8 & 15).collect(),
        })
        .collect();
    let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
    match rig.launch(&name, [2, 1, 1], threads, 256, &params) {
        Ok(_) => Outcome::Finished,
        Err(fault) => {
            assert!(!fault.message.is_empty() && fault.line > 0);
            Outcome::Fault
        }
    }
}

/// Changes some lines that are near to each other.
fn damaged(text: &str, random: &mut Random) -> Damaged {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let first = random.below(lines.len());
    for _ in 0..1 + random.below(4) {
        let last = lines.len() - 1;
        let line = (first + random.below(24)).min(last);
        let other = lines[random.below(lines.len())].clone();
        match random.below(12) {
            0 => lines[line].clear(),
            1 => lines.insert(line, other),
            2 => lines[line] = other,
            3 => lines.swap(line, (line + 1).min(last)),
            4 => lines[line] = flipped(&lines[line], random),
            5 => lines[line] = lines[line].replacen("@%p", "@!%p", 1),
            _ => lines[line] = with_other_token(&lines[line], random),
        }
    }
    Damaged {
        text: lines.join("\n"),
        line: first as u32 + 1,
    }
}

/// The line with another byte somewhere.
fn flipped(line: &str, random: &mut Random) -> String {
    let mut bytes = line.as_bytes().to_vec();
    if !bytes.is_empty() {
        let place = random.below(bytes.len());
        bytes[place] = b' ' + random.below(95) as u8;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line with one of its words replaced by one of the same kind.
fn with_other_token(line: &str, random: &mut Random) -> String {
    let is_part =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '%' | ':');
    let mut words = Vec::new();
    let mut start = None;
    for (index, letter) in line.char_indices().chain([(line.len(), ' ')]) {
        match (is_part(letter), start) {
            (true, None) => start = Some(index),
            (false, Some(from)) => {
                words.push((from, index));
                start = None;
            }
            _ => {}
        }
    }
    if words.is_empty() {
        return line.to_string();
    }
    let (from, to) = words[random.below(words.len())];
    let word = &line[from..to];
    let new = if let Some(name) = word.strip_prefix('%') {
        let prefix = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        match random.below(6) {
            0 => SPECIALS[random.below(SPECIALS.len())].to_string(),
            _ => format!("%{prefix}{}", random.below(30)),
        }
    } else if word.starts_with(|letter: char| letter.is_ascii_digit()) {
        NUMBERS[random.below(NUMBERS.len())].to_string()
    } else if line[..from].ends_with('.') {
        MODIFIERS[random.below(MODIFIERS.len())].to_string()
    } else {
        OPCODES[random.below(OPCODES.len())].to_string()
    };
    format!("{}{new}{}", &line[..from], &line[to..])
}

const SPECIALS: [&str; 8] = [
    "%tid.x", "%laneid", "%clock64", "%ctaid.y", "%envreg1", "WARP_SZ", "%gridid", "%rd1",
];
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "15",
    "16",
    "31",
    "32",
    "64",
    "255",
    "65535",
    "2147483647",
    "4294967295",
    "0xFFFFFFFFFFFFFFFF",
    "0f7FC00000",
];
const MODIFIERS: [&str; 64] = [
    "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "b8", "b16", "b32", "b64", "f16",
    "f16x2", "bf16", "bf16x2", "f32", "f64", "pred", "v2", "v4", "global", "shared", "local",
    "param", "const", "rn", "rz", "rm", "rp", "rzi", "rni", "ftz", "sat", "relu", "lo", "hi",
    "wide", "cc", "approx", "full", "eq", "ne", "lt", "gt", "ltu", "nan", "and", "or", "xor",
    "add", "min", "max", "exch", "cas", "inc", "sync", "bfly", "idx", "up", "any", "all", "ballot",
    "popc",
];
const OPCODES: [&str; 60] = [
    "add", "sub", "mul", "mad", "fma", "div", "rem", "abs", "neg", "min", "max", "sad", "addc",
    "subc", "madc", "rcp", "sqrt", "rsqrt", "sin", "lg2", "ex2", "tanh", "and", "or", "xor", "not",
    "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "bfind", "brev", "popc", "clz", "fns",
    "setp", "set", "selp", "slct", "cvt", "mov", "cvta", "ld", "st", "atom", "red", "bra", "ret",
    "exit", "bar", "shfl", "vote", "match", "redux", "mma", "ldmatrix", "cp",
];
