//! Every form of the table through the decoder, and forms that PTX forbids, which must be refused with kernel, line and
//! text.

use super::{OperandRule, Rule, TABLE, What};
use crate::decode::{self, DecodeError};
use crate::ptx::ast::Type;
use std::sync::Arc;

/// Decodes one instruction in a kernel for the newest target that the table knows.
fn decode(instruction: &str, target: u32) -> Result<(), DecodeError> {
    let text = format!(
        ".version 8.8\n.target sm_{target}\n.address_size 64\n.shared .align 16 .b8 sm[1024];\n\
         .global .align 16 .b8 gm[1024];\n.visible .entry k(.param .u64 a)\n{{\n{DECLARATIONS}\n{instruction}\nL: ret;\n}}\n"
    );
    let module =
        Arc::new(crate::ptx::parse(&text).unwrap_or_else(|error| panic!("{instruction}: {error}")));
    decode::kernel(&module, 0, &[0, 1 << 20]).map(|_| ())
}

/// The registers that the forms under test name, on one line.
const DECLARATIONS: &str = ".reg .pred %p<9>; .reg .b8 %b<9>; .reg .b16 %h<20>; .reg .b32 %x<20>; .reg .b64 %y<20>; \
    .reg .f32 %f<20>; .reg .f64 %d<20>; .reg .u32 %u<9>; .reg .s32 %i<9>; .reg .u16 %c<9>; .reg .b128 %q<9>;";

#[test]
fn what_ptx_forbids_is_refused() {
    let mut rows = 0;
    for row in include_str!("refused.txt").lines() {
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        let (instruction, part) = row
            .split_once(" ## ")
            .expect("a row has a part of the message");
        let error = match decode(instruction, 90) {
            Err(error) => error,
            Ok(()) => panic!("this was taken: {instruction}"),
        };
        assert!(
            error.message.contains(part),
            "{instruction}: {}",
            error.message
        );
        assert_eq!(
            (error.function.as_str(), error.line),
            ("k", 9),
            "{instruction}"
        );
        assert_eq!(error.text, instruction);
        rows += 1;
    }
    assert!(rows >= 150, "{rows} rows");
}

#[test]
fn targets_and_versions_have_their_forms() {
    let refusal = |instruction, target| decode(instruction, target).expect_err(instruction).message;
    assert!(
        refusal("add.bf16 %h0, %h1, %h2;", 80)
            .contains("needs sm_90 or higher; this module says sm_80")
    );
    assert!(refusal("redux.sync.add.u32 %x0, %x1, %x2;", 75).contains("needs sm_80"));
    assert!(
        refusal("shfl.bfly.b32 %x0, %x1, 1, 31;", 70)
            .contains("without .sync is not supported from sm_70")
    );
    decode("shfl.bfly.b32 %x0, %x1, 1, 31;", 60).unwrap();
    let old =
        ".version 7.0\n.target sm_90\n.entry k() { .reg .b16 %h<3>; add.bf16 %h0, %h1, %h2; }";
    let module = Arc::new(crate::ptx::parse(old).unwrap());
    let message = decode::kernel(&module, 0, &[])
        .err()
        .expect("an older version")
        .message;
    assert!(message.contains("needs PTX 7.8 or higher"), "{message}");
}

/// What PTX has and the virtual GPU refuses by name: parts of forms, and of the messages. All else is executed.
const NOT_EXECUTED: &[(&str, &str)] = &[
    ("b128", "B128"),
    ("cvta", "addresses of 32 bits"),
    (".oob.", "unsupported modifier .oob"),
    ("isspacep", "%x1"),
    ("isspacep.const", "isspacep.const is not supported"),
    ("st.const", "Const memory cannot be written"),
    ("st.param", "Param memory cannot be written"),
    ("tf32", "needs sm_100"),
    // Up to sm_60 there are such.
    ("shfl", "without .sync"),
    ("vote", "without .sync"),
];

#[test]
fn every_form_of_the_table_is_executed() {
    let mut taken = 0;
    let mut errors = Vec::new();
    for instruction in samples() {
        match decode(&instruction, 90) {
            Ok(()) => taken += 1,
            Err(error) => {
                let named = NOT_EXECUTED.iter().any(|(form, message)| {
                    instruction.contains(form) && error.message.contains(message)
                });
                if !named {
                    errors.push(error.to_string());
                }
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(taken >= 4000, "{taken} forms");
}

/// For `kernels/forms.py`: the table's forms, and what the decoder says of a file's.
#[test]
#[ignore = "writes files for a comparison with an assembler"]
fn answers_for_an_assembler() {
    let folder = std::env::var("FORMS").expect("FORMS names a folder");
    std::fs::write(format!("{folder}/samples.txt"), samples().join("\n")).unwrap();
    let Ok(questions) = std::fs::read_to_string(format!("{folder}/questions.txt")) else {
        return;
    };
    let answers: Vec<String> = questions
        .lines()
        .map(|instruction| {
            decode(instruction, 90).map_or_else(|error| error.message, |()| "taken".to_string())
        })
        .collect();
    std::fs::write(format!("{folder}/answers.txt"), answers.join("\n")).unwrap();
}

/// Of each form: every choice of types, and every other modifier once.
fn samples() -> Vec<String> {
    let mut samples = Vec::new();
    let mut opcodes: Vec<_> = TABLE.keys().collect();
    opcodes.sort_unstable();
    for opcode in opcodes {
        for rule in TABLE[opcode].iter().filter(|rule| !rule.open) {
            of_rule(rule, &mut samples);
        }
    }
    samples.sort_unstable();
    samples.dedup();
    samples
}

fn of_rule(rule: &Rule, samples: &mut Vec<String>) {
    // The cross product of the types, with each further modifier by itself and with all of them.
    let mut choices: Vec<Vec<Option<&str>>> = vec![Vec::new()];
    for slot in &rule.slots {
        let alternatives: Vec<Option<&str>> = match (slot.is_type, slot.optional) {
            (true, _) => slot.alternatives.iter().copied().map(Some).collect(),
            (false, true) => vec![None],
            (false, false) => vec![Some(slot.alternatives[0])],
        };
        choices = choices
            .iter()
            .flat_map(|choice| {
                alternatives
                    .iter()
                    .map(move |&next| [choice.as_slice(), &[next]].concat())
            })
            .collect();
    }
    for choice in &choices {
        push(rule, choice, samples);
        let mut all = choice.clone();
        for (index, slot) in rule
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.is_type)
        {
            for &name in &slot.alternatives {
                let mut other = choice.clone();
                other[index] = Some(name);
                push(rule, &other, samples);
            }
            all[index] = slot.alternatives.last().copied();
        }
        push(rule, &all, samples);
    }
}

fn push(rule: &Rule, choice: &[Option<&str>], samples: &mut Vec<String>) {
    let modifiers: Vec<&str> = choice.iter().flatten().copied().collect();
    let types: Vec<Type> = modifiers
        .iter()
        .filter_map(|name| Type::parse(name))
        .collect();
    let combining = modifiers
        .iter()
        .any(|name| matches!(*name, "and" | "or" | "xor"));
    let vector = modifiers.iter().find_map(|name| match *name {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    });
    if rule.take(&modifiers).is_err() {
        return;
    }
    let memory = matches!(rule.opcode, "ld" | "ldu" | "st");
    if memory && types[0].size() as usize * vector.unwrap_or(1) > 16 {
        return;
    }
    let hint = modifiers.contains(&"L2::cache_hint");
    let mut operands = Vec::new();
    for (number, operand) in rule.operands.iter().enumerate() {
        if operand.combining && !combining
            || operand.optional && !(hint && matches!(operand.what, What::Type(_)))
        {
            continue;
        }
        operands.push(operand_text(
            rule, operand, number, &types, &modifiers, vector,
        ));
    }
    let name = [&[rule.opcode], modifiers.as_slice()].concat().join(".");
    samples.push(format!("{name} {};", operands.join(", ")).replace(" ;", ";"));
}

fn operand_text(
    rule: &Rule,
    operand: &OperandRule,
    number: usize,
    types: &[Type],
    modifiers: &[&str],
    vector: Option<usize>,
) -> String {
    let register = |ty: Type, number: usize| match ty.size() {
        _ if ty == Type::Pred => format!("%p{number}"),
        1 | 2 => format!("%h{number}"),
        4 => format!("%x{number}"),
        8 => format!("%y{number}"),
        _ => format!("%q{number}"),
    };
    let braces = |ty: Type, count: usize| {
        let parts: Vec<String> = (0..count)
            .map(|part| register(ty, 4 * usize::from(number != 0) + part))
            .collect();
        format!("{{{}}}", parts.join(", "))
    };
    let ty = match operand.what {
        What::Type(ty) => ty,
        What::First => types[0],
        What::Second => types[1],
        What::Widened if types[0].size() == 2 => Type::B32,
        What::Widened => Type::B64,
        What::Address if modifiers.iter().any(|name| name.starts_with("param")) => {
            return "[a]".to_string();
        }
        What::Address => return format!("[%y{}]", 10 + number),
        What::Constant(_) => {
            let size = if rule.opcode == "cp" { 16 } else { 128 };
            return if modifiers.contains(&"wait_group") {
                "0".to_string()
            } else {
                format!("{size}")
            };
        }
        What::Parts => {
            return match types[0].size() {
                2 => "{%b1, %b2}".to_string(),
                4 => braces(Type::B16, 2),
                8 => braces(Type::B32, 2),
                _ => braces(Type::B64, 2),
            };
        }
        What::Braces => return braces(types[0], vector.unwrap_or(1)),
        What::AnyBraces => {
            let count = modifiers
                .iter()
                .find_map(|name| name.strip_prefix('x')?.parse().ok());
            return braces(Type::B32, count.unwrap_or(1));
        }
    };
    match vector.filter(|_| operand.vector) {
        Some(count) => braces(ty, count),
        None if operand.paired == Some(true)
            || operand.paired.is_some() && modifiers.len().is_multiple_of(2) =>
        {
            format!("{}|%p{}", register(ty, number), number + 4)
        }
        None => register(ty, number),
    }
}
