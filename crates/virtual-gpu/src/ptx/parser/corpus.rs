//! Texts of the compilers, whole and damaged, through the parser.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::ptx::ast::{Init, Operand, Table};

macro_rules! texts {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../../tests/ptx/", $name, ".ptx")))),*] };
}

const TEXTS: &[(&str, &str)] = texts![
    "calls_120_80_lineinfo",
    "calls_130_90",
    "debug_129_90_G",
    "elementwise_129_80",
    "half_120_90",
    "half_130_75_lineinfo",
    "inline_asm_129_80",
];

/// A text of a compiler.
fn text(wanted: &str) -> &'static str {
    TEXTS
        .iter()
        .find(|(name, _)| *name == wanted)
        .expect("a text of the corpus")
        .1
}

/// How long any text of the corpus may take, damaged or not: some thousand times what it does take.
const LONGEST: Duration = Duration::from_secs(2);

/// Damage: what is done, where, how far, with which byte.
type Damage = (u8, usize, usize, u8);

/// Deletes, repeats, moves, flips or cuts.
fn damage(text: &str, changes: &[Damage]) -> String {
    const BYTES: &[u8] = b"{}()[]<>;:,.@!|&+-*/%\"\n\0_0x9fUrp= \xc3";
    let mut bytes = text.as_bytes().to_vec();
    for &(what, at, length, byte) in changes {
        if bytes.is_empty() {
            break;
        }
        let start = at % bytes.len();
        let end = (start + length % 64 + 1).min(bytes.len());
        match what % 6 {
            0 => drop(bytes.drain(start..end)),
            1 => {
                let copy = bytes[start..end].to_vec();
                bytes.splice(start..start, copy);
            }
            2 => bytes[start] ^= 1 << (byte % 8),
            3 => bytes[start] = BYTES[usize::from(byte) % BYTES.len()],
            4 => {
                let piece = bytes.drain(start..end).collect::<Vec<_>>();
                let to = at.rotate_left(17) % (bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            // Rarely a cut, which leaves little to damage.
            _ if byte < 16 => bytes.truncate(start),
            _ => bytes.insert(start, BYTES[usize::from(byte) % BYTES.len()]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses, and checks what every module must hold.
fn check(text: &str) -> bool {
    let start = Instant::now();
    let parsed = parse(text);
    assert!(
        start.elapsed() < LONGEST,
        "{:?} for {} bytes",
        start.elapsed(),
        text.len()
    );
    match parsed {
        Ok(module) => {
            is_sound(&module);
            true
        }
        Err(error) => {
            assert!(
                error.line >= 1 && error.column >= 1 && error.message.len() < 1000,
                "{error}"
            );
            false
        }
    }
}

/// Every index points to something.
fn is_sound(module: &Module) {
    for variable in &module.variables {
        assert!(variable.align.is_power_of_two() && variable.align >= variable.ty.size());
        assert!(
            variable.size.is_none_or(|size| variable.init.len() as u64
                * u64::from(variable.ty.size())
                <= size)
        );
        for init in &variable.init {
            let Init::Address { symbol, .. } = init else {
                continue;
            };
            match *symbol {
                Symbol::Module(index) => assert!((index as usize) < module.variables.len()),
                Symbol::Function(index) => assert!((index as usize) < module.functions.len()),
                _ => panic!("a local name in an initialiser"),
            }
        }
    }
    for function in &module.functions {
        let Some(body) = &function.body else { continue };
        for &label in &body.labels {
            assert!(label as usize <= body.instructions.len());
        }
        for table in &body.tables {
            match table {
                Table::Branches(labels) => assert!(
                    labels
                        .iter()
                        .all(|&label| (label as usize) < body.labels.len())
                ),
                Table::Calls(calls) => assert!(
                    calls
                        .iter()
                        .all(|&call| (call as usize) < module.functions.len())
                ),
                Table::Prototype { .. } => {}
            }
        }
        for instruction in &body.instructions {
            assert!(module.text(instruction.span).ends_with(';'));
            assert!(!module.text(instruction.name).is_empty());
            for operand in &instruction.operands {
                match *operand {
                    Operand::Label(label) => assert!((label as usize) < body.labels.len()),
                    Operand::Table(table) => assert!((table as usize) < body.tables.len()),
                    Operand::Register(register) => {
                        assert!((register.0 as usize) < body.registers.len())
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn texts_of_the_compilers_are_read_whole() {
    for (name, text) in TEXTS {
        let module = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        is_sound(&module);
        assert!(
            module
                .functions
                .iter()
                .any(|function| function.entry && function.body.is_some()),
            "{name}"
        );
        let bodies = module
            .functions
            .iter()
            .filter_map(|function| function.body.as_ref());
        let instructions = bodies.map(|body| body.instructions.len()).sum::<usize>();
        assert_eq!(instructions, count_instructions(text), "{name}");
        assert!(instructions >= 10, "{name}");
        let crlf =
            parse(&text.replace('\n', "\r\n")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(crlf.functions.len(), module.functions.len());
    }
}

/// Counts them another way: what ends with a semicolon in a body and, behind its braces and labels, has no dot first.
fn count_instructions(text: &str) -> usize {
    let plain = |line: &str| line.split("//").next().unwrap_or("").trim().to_owned();
    let lines = text
        .lines()
        .map(plain)
        .filter(|line| ![".loc", ".file"].iter().any(|name| line.starts_with(name)));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let blank = ['{', '}', '\n', ' ', '\t'];
    let (mut count, mut depth, mut statement) = (0, 0, String::new());
    for letter in lines.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if letter != ';' {
            statement.push(letter);
        } else if depth == 0 {
            statement.clear();
        } else {
            // The head of a function stands before the brace that opens its body.
            let head = statement.rfind(".entry").or(statement.rfind(".func"));
            let start = head
                .and_then(|head| statement[head..].find('{').map(|brace| head + brace))
                .unwrap_or(0);
            let mut rest = statement[start..].trim_start_matches(blank);
            while let Some((label, after)) = rest
                .split_once(':')
                .filter(|(label, _)| !label.contains(['.', ' ']))
            {
                assert!(!label.is_empty());
                rest = after.trim_start_matches(blank);
            }
            count += usize::from(
                !rest.is_empty() && !rest.starts_with('.') && !rest.contains(".callprototype"),
            );
            statement.clear();
        }
    }
    count
}

#[test]
fn what_the_compilers_say_is_understood() {
    let module = parse(text("calls_120_80_lineinfo")).unwrap();
    let function = |name: &str| {
        module
            .functions
            .iter()
            .find(|function| function.name == name)
            .unwrap()
    };
    assert_eq!((module.version, module.target), ((8, 0), 80));
    assert!(function("_Z3fibi").body.is_some() && function("vprintf").body.is_none());
    assert_eq!(module.files, [(1, "calls.cu".to_owned())]);
    let calls = function("calls").body.as_ref().unwrap();
    let indirect = calls
        .instructions
        .iter()
        .filter(|i| module.text(i.name) == "call" && i.operands.len() == 4);
    assert_eq!(indirect.count(), 1);
    assert!(
        calls
            .instructions
            .iter()
            .all(|instruction| instruction.source.is_some())
    );
    let table = module
        .variables
        .iter()
        .find(|variable| variable.name == "table")
        .unwrap();
    assert_eq!(table.init.len(), 2);

    let module = parse(text("elementwise_129_80")).unwrap();
    let variable = |name: &str| {
        module
            .variables
            .iter()
            .find(|variable| variable.name == name)
            .unwrap()
    };
    // The compiler writes the array as bytes.
    let counters = [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3].map(Init::Bits);
    assert_eq!(variable("counters").init, counters);
    assert_eq!(variable("dynamic").size, None);
    assert!(matches!(
        variable("pointer").init[..],
        [Init::Address {
            offset: 16,
            generic: true,
            ..
        }]
    ));
    let kernel = module
        .functions
        .iter()
        .find(|function| function.name == "transcendental")
        .unwrap();
    assert_eq!(
        (kernel.max_threads, kernel.min_blocks),
        (Some([256, 1, 1]), Some(2))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_texts_neither_panic_nor_take_long(
        which in 0..TEXTS.len(),
        changes in prop::collection::vec(any::<Damage>(), 1..8),
    ) {
        check(&damage(TEXTS[which].1, &changes));
    }

    #[test]
    fn soup_of_tokens_neither_panics_nor_takes_long(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "(", ")", "[", "]", "<", ">", ";", ":", ",", "@", "!", "|", "+", "-", "_", "=", "x", "%r1",
                "%r", "L", "f", "g", "call", "bra", "mov.b32", ".reg", ".b32", ".pred", ".param", ".local", ".shared",
                ".global", ".align", "4", "0f3F800000", "1.5", "0xFFFFFFFFFFFFFFFF", ".func", ".entry", ".loc", "\n",
                ".branchtargets", ".callprototype", "WARP_SZ", "%tid.x", ".extern", "generic", "\"s\"", ".v2", "?",
            ]),
            0..60,
        ),
        inside in any::<bool>(),
    ) {
        let soup = pieces.join(" ");
        let head = ".version 8.0 .target sm_80\n.global .b32 g[2][2]; .func f(.param .b32 a) {";
        let body = ".reg .b32 %r<4>, x; .reg .pred p;";
        check(&if inside { format!("{head}{body}{soup}}}") } else { format!("{head}}}{soup}") });
    }
}

/// Some millions of damaged texts; VIRTUAL_GPU_MUTATIONS says how many.
#[test]
#[ignore = "takes minutes"]
fn many_damaged_texts_neither_panic_nor_take_long() {
    let wanted = std::env::var("VIRTUAL_GPU_MUTATIONS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(1_000_000);
    let mut state = std::env::var("VIRTUAL_GPU_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1u64);
    // xorshift64*
    let mut random = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    };
    let mut taken = 0u64;
    for _ in 0..wanted {
        let text = TEXTS[random() as usize % TEXTS.len()].1;
        let changes = (0..random() % 6 + 1).map(|_| {
            (
                random() as u8,
                random() as usize,
                random() as usize,
                random() as u8,
            )
        });
        let changes = changes.collect::<Vec<_>>();
        taken += u64::from(check(&damage(text, &changes)));
    }
    println!("{wanted} damaged texts, of which {taken} were still PTX");
}

/// Parses every text of a folder (the corpus without one), and says how fast.
#[test]
#[ignore = "measures; VIRTUAL_GPU_PTX may name a folder"]
fn speed_of_parsing() {
    let texts = match std::env::var("VIRTUAL_GPU_PTX") {
        Ok(folder) => {
            let paths = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            paths
                .map(|path| {
                    (
                        path.display().to_string(),
                        std::fs::read_to_string(path).unwrap(),
                    )
                })
                .collect::<Vec<_>>()
        }
        Err(_) => TEXTS
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
    };
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for (name, text) in texts {
        let once = |_| {
            let start = Instant::now();
            let parsed = parse(&text);
            let time = start.elapsed().as_secs_f64();
            if let Err(error) = parsed {
                panic!("{name}: {error}");
            }
            time
        };
        let mut times = (0..21).map(once).collect::<Vec<_>>();
        let first = times[0];
        times.sort_by(f64::total_cmp);
        let length = text.len() as f64 / 1e6;
        println!(
            "{name}: {:.1} kB, {:.0} MB/s, first {:.0} MB/s",
            length * 1e3,
            length / times[10],
            length / first
        );
        (bytes, seconds) = (bytes + length, seconds + times[10]);
    }
    println!(
        "{bytes:.2} MB in {:.2} ms: {:.0} MB/s",
        seconds * 1e3,
        bytes / seconds
    );
}
