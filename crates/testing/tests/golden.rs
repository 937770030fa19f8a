//! Fireclay against PyTorch: every golden case of every op that Fireclay has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fireclay_tensor::{DType, Device};
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::golden::{Case, Set, Stored, sets_of_ops};
use fireclay_testing::verdict::{Verdict, judge};

/// The checked-in sets, or the folders that `FIRECLAY_GOLDEN` lists (parted by colons).
fn folders() -> Vec<PathBuf> {
    match std::env::var("FIRECLAY_GOLDEN") {
        Ok(paths) => paths.split(':').map(PathBuf::from).collect(),
        Err(_) => sets_of_ops(),
    }
}

/// Why PyTorch's answer is not the one to give.
fn differs(case: &Case, stored: &Stored<'_>) -> Option<&'static str> {
    let inputs = case.inputs(stored);
    let takes_u8 = inputs.tensors.values().any(|x| x.dtype() == DType::U8);
    (case.op == "atan2" && takes_u8 && !case.list("requires_grad").is_empty())
        .then_some("PyTorch's gradient negates a u8, which wraps around")
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeMap<String, usize>,
}

#[test]
fn every_case_answers_as_pytorch_does() {
    judge_all(Device::Cpu);
}

#[test]
fn every_case_answers_as_pytorch_does_on_a_device() {
    judge_all(virtual_cuda());
}

#[expect(clippy::print_stdout, reason = "a tally, shown when it is asked for")]
fn judge_all(device: Device) {
    let mut ops: BTreeMap<(String, String), Tally> = BTreeMap::new();
    for folder in folders() {
        let set = Set::read(&folder);
        let stored = set.tensors_on(device);
        for case in &set.cases {
            let tally = ops
                .entry((case.family.clone(), case.op.clone()))
                .or_default();
            let verdict = match differs(case, &stored) {
                Some(why) => Verdict::Skipped(why.into()),
                None => judge(case, &stored),
            };
            match verdict {
                Verdict::Passed => tally.passed += 1,
                Verdict::Skipped(reason) => *tally.skipped.entry(reason).or_default() += 1,
                Verdict::Failed(what) => tally.failed.push(format!("{}: {what}", case.id)),
            }
        }
    }
    let mut families: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for ((family, op), tally) in &ops {
        let skipped: usize = tally.skipped.values().sum();
        let reasons: Vec<String> = tally
            .skipped
            .iter()
            .map(|(reason, count)| format!("{reason} ({count})"))
            .collect();
        println!(
            "{family:12} {op:44} {:4} passed {:3} failed {skipped:3} skipped {}",
            tally.passed,
            tally.failed.len(),
            reasons.join(", ")
        );
        let sums = families.entry(family).or_default();
        for (sum, count) in sums
            .iter_mut()
            .zip([tally.passed, tally.failed.len(), skipped])
        {
            *sum += count;
        }
    }
    for (family, [passed, failed, skipped]) in families {
        println!("{family:12} {passed} passed, {failed} failed, {skipped} skipped");
    }
    if std::env::var_os("FIRECLAY_GOLDEN").is_none() {
        for ((_, op), tally) in &ops {
            assert!(
                tally.passed > 0 || !device.is_cpu() && !tally.skipped.is_empty(),
                "no case of {op} passes: take it out of the fixture's list of ops"
            );
        }
    }
    let failed: Vec<&str> = ops
        .values()
        .flat_map(|tally| tally.failed.iter().map(String::as_str))
        .collect();
    assert!(
        failed.is_empty(),
        "{} cases fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
