//! Fireclay against PyTorch: every case of every op, module, optimizer and schedule.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fireclay_conformance::Report;
use fireclay_tensor::Device;
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::fixtures;

/// The checked-in set, or the folders that `FIRECLAY_CASES` lists (parted by colons).
fn folders() -> Vec<PathBuf> {
    match std::env::var("FIRECLAY_CASES") {
        Ok(paths) => paths.split(':').map(PathBuf::from).collect(),
        Err(_) => vec![fixtures::cases()],
    }
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
    let report = Report::of(&folders(), device, &mut |_, _| {}).unwrap();
    let mut wrong: Vec<String> = Vec::new();
    let mut families: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for ((family, op), tally) in &report.ops {
        println!(
            "{family:12} {op:44} {:4} passed {:3} failed {:3} missing, off by {:.1e} ({:.2} of what is allowed)",
            tally.passed,
            tally.failed.len(),
            tally.missing.len(),
            tally.largest.error,
            tally.largest.of_allowed,
        );
        for (id, what) in tally.failed.iter().chain(&tally.missing) {
            wrong.push(format!("{id}: {what}"));
        }
        let sums = families.entry(family).or_default();
        let counts = [tally.passed, tally.failed.len(), tally.missing.len()];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    for (family, [passed, failed, missing]) in families {
        println!("{family:12} {passed} passed, {failed} failed, {missing} missing");
    }
    assert!(
        wrong.is_empty(),
        "{} cases fail or are missing on {device}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
