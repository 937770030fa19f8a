//! The table of ops: each row has what it needs, and is tested.

use std::collections::BTreeSet;
use std::path::Path;

use fireclay_conformance::Set;
use fireclay_tensor::ops;
use fireclay_tensor::{Autocast, Saves};
use fireclay_testing::fixtures;
use fireclay_testing::samples::samples;

/// PyTorch's name of an op, by Fireclay's, where they differ.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("gelu_tanh", "nn.functional.gelu"),
    ("copy", "clone"),
    ("view", "Tensor.view"),
    ("expand", "Tensor.expand"),
    ("slice", "narrow"),
    ("fill_", "Tensor.fill_"),
    ("copy_", "Tensor.copy_"),
    // Forms and steps of ops.
    ("add_alpha", "add"),
    ("div_trunc", "div"),
    ("clamp_min", "clamp"),
    ("clamp_max", "clamp"),
    ("lstm_cell", "nn.LSTMCell"),
    ("gru_cell", "nn.GRUCell"),
];

/// Ops without a golden case or a sample: why.
fn is_exempt(op: &str) -> Option<&'static str> {
    match op {
        "uniform_" | "normal_" | "randint" | "bernoulli_" | "randperm" => {
            Some("random: PyTorch's numbers are others")
        }
        "to" => Some("a move: tested by tensor/tests/cuda.rs"),
        "index" => Some("indices to places: tested as index_put"),
        "fill_" | "copy_" => Some("in place: golden cases only"),
        "logaddexp2" => Some("no recipe makes cases of it: tested as a sample"),
        "linear_recurrence" => {
            Some("cumprod's gradient: tested as its first and second derivative")
        }
        _ if op.ends_with("_grad") || op.ends_with("_backward") => {
            Some("a gradient: tested as the op's own first and second derivative")
        }
        _ => None,
    }
}

fn golden_ops() -> BTreeSet<String> {
    let set = Set::read(&fixtures::cases()).unwrap();
    set.cases.into_iter().map(|case| case.op).collect()
}

fn torch_name(op: &str, golden: &BTreeSet<String>) -> Option<String> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == op);
    let known = other.map(|(_, torch)| (*torch).to_owned());
    let candidates = known.into_iter().chain([
        op.to_owned(),
        format!("nn.functional.{op}"),
        format!("Tensor.{op}"),
    ]);
    candidates.into_iter().find(|name| golden.contains(name))
}

#[test]
fn every_op_has_a_golden_case_and_a_sample() {
    let golden = golden_ops();
    let sampled: BTreeSet<&str> = samples().iter().map(|sample| sample.op).collect();
    let mut missing = Vec::new();
    let functions = ops::functions().iter().map(|function| function.name());
    let gelu_tanh = functions.clone().any(|name| name == "gelu_tanh");
    assert!(gelu_tanh, "rows keep their names");
    let others = ops::others();
    for op in functions.chain(others.iter().map(|op| op.name())) {
        if torch_name(op, &golden).is_none()
            && !matches!(is_exempt(op), Some(why) if !why.starts_with("in place"))
        {
            missing.push(format!("{op}: no golden case"));
        }
        if !sampled.contains(op) && is_exempt(op).is_none() {
            missing.push(format!("{op}: no sample"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn names_of_ops_are_unique() {
    let mut seen = BTreeSet::new();
    for function in ops::functions() {
        assert!(
            seen.insert(function.name()),
            "{} is there twice",
            function.name()
        );
    }
    for op in ops::others() {
        let name = op.name();
        assert!(seen.insert(name), "{name} is there twice");
    }
}

/// Every `impl Op for` of the ops' files is in the table: the structs' names are the heads of their debug texts.
#[test]
fn the_table_is_complete() {
    let debug: Vec<String> = ops::others().iter().map(|op| format!("{op:?}")).collect();
    let heads: BTreeSet<&str> = debug
        .iter()
        .filter_map(|text| text.split([' ', '(', '{']).next())
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tensor/src/ops");
    let mut entries = vec![folder.clone()];
    while let Some(path) = entries.pop() {
        if path.is_dir() {
            let inner = std::fs::read_dir(&path).expect("an ops' folder");
            entries.extend(inner.map(|entry| entry.expect("an entry of an ops' folder").path()));
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("an op's file");
        for line in source.lines() {
            let Some(name) = line.strip_prefix("impl Op for ") else {
                continue;
            };
            let name = name.trim_end_matches([' ', '{']);
            // An enum's debug text begins with the variant.
            let known = heads.contains(name) || name == "View";
            assert!(
                known,
                "{name} of {} is not in ops::others()",
                path.display()
            );
        }
        if source.contains("\npointwise! {") {
            let text = std::fs::read_to_string(folder.join("../ops.rs")).expect("the table");
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            assert!(
                text.contains(&format!("{stem}::FUNCTIONS")),
                "{stem} is not in the table"
            );
        }
    }
}

/// PyTorch's lists for CUDA autocast, of the ops that are here.
#[test]
fn autocast_classes_are_pytorchs() {
    const LOW: &[&str] = &[
        "matmul",
        "linear",
        "addmm",
        "conv2d",
        "scaled_dot_product_attention",
        "lstm_cell",
        "gru_cell",
    ];
    const F32: &[&str] = &[
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "pow",
        "reciprocal",
        "rsqrt",
        "sinh",
        "tan",
        "softplus",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "cumsum",
        "cumprod",
        "softmax",
        "log_softmax",
        "sum",
        "cross_entropy",
    ];
    const WIDEST: &[&str] = &[
        "addcdiv",
        "addcmul",
        "atan2",
        "cat",
        "index_put",
        "scatter_add",
    ];
    let mut wrong = Vec::new();
    let mut check = |op: &str, class: Autocast| {
        let expected = match op {
            _ if is_exempt(op).is_some() => return,
            _ if LOW.contains(&op) => Autocast::Low,
            _ if F32.contains(&op) => Autocast::F32,
            _ if WIDEST.contains(&op) => Autocast::Widest,
            _ => Autocast::Keep,
        };
        if class != expected {
            wrong.push(format!("{op} is {class:?}, expected {expected:?}"));
        }
    };
    for function in ops::functions() {
        check(function.name(), function.autocast());
    }
    for op in ops::others() {
        check(op.name(), op.autocast());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A function of bools has no gradient, so it keeps nothing. That the others keep enough, their gradient checks show:
/// backward gets only what `saves` names.
#[test]
fn nothing_is_saved_in_vain() {
    for function in ops::functions() {
        if function.typing() == fireclay_tensor::Typing::Bool {
            assert_eq!(function.saves(), Saves::NONE, "{}", function.name());
        }
    }
}
