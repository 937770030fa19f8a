//! What came of the cases of a set, op by op.

use std::collections::BTreeMap;
use std::path::Path;

use fireclay_tensor::Device;
use fireclay_tensor::device::default_device;

use crate::compare::Deviation;
use crate::judge::{Verdict, judge};
use crate::set::{Case, Set, SetError};

/// What came of the cases of one op.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// How many passed.
    pub passed: usize,
    /// The largest deviation of those that passed.
    pub largest: Deviation,
    /// The cases that failed, and how.
    pub failed: Vec<(String, String)>,
    /// The cases that could not be called, and why.
    pub missing: Vec<(String, String)>,
}

/// Tallies by family and op.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// In alphabetical order.
    pub ops: BTreeMap<(String, String), Tally>,
}

impl Report {
    /// Runs every case of the sets in `folders` on `device`. `progress` hears of every case that is done, with how many there are.
    ///
    /// # Errors
    /// If a set can't be read.
    pub fn of(
        folders: &[impl AsRef<Path>],
        device: Device,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Report, SetError> {
        let sets = folders.iter().map(|folder| Set::read(folder.as_ref()));
        let sets: Vec<Set> = sets.collect::<Result<_, _>>()?;
        let all = sets.iter().map(|set| set.cases.len()).sum();
        let mut report = Report::default();
        let mut done = 0;
        let mut judge_all = || -> Result<(), SetError> {
            for set in &sets {
                let stored = set.tensors_on(device)?;
                for case in &set.cases {
                    let name = (case.family.clone(), case.op.clone());
                    let verdict = judge(case, &stored);
                    report.ops.entry(name).or_default().note(case, verdict);
                    done += 1;
                    progress(done, all);
                }
            }
            Ok(())
        };
        // What a call makes without an operand is made there too.
        let _guard = default_device(device);
        judge_all()?;
        Ok(report)
    }

    /// How many cases passed, failed, are missing.
    pub fn totals(&self) -> [usize; 3] {
        let mut totals = [0; 3];
        for tally in self.ops.values() {
            let counts = [tally.passed, tally.failed.len(), tally.missing.len()];
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count;
            }
        }
        totals
    }
}

impl Tally {
    fn note(&mut self, case: &Case, verdict: Verdict) {
        match verdict {
            Verdict::Passed(deviation) => {
                self.passed += 1;
                self.largest = self.largest.or_larger(deviation);
            }
            Verdict::Missing(why) => self.missing.push((case.id.clone(), why)),
            Verdict::Failed(what) => self.failed.push((case.id.clone(), what)),
        }
    }
}
