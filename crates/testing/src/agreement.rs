//! What every op has to give on a device: the host's results over layouts and dtypes, bit for bit where no tolerance is stated; and
//! the check of many ops, which goes on where one differs.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use fireclay_cuda::vendor::{BlasLibrary, preferred_blas_library};
use fireclay_tensor::{DType, Device, Error, Result, Tensor};
use serde_json::{Value, json};

use crate::compare::{Tolerance, matches, same_numbers, values};
use crate::draw::Form;
use crate::samples::Sample;

/// The dtypes that floating operands are given in. The first one comes first: a check that is cut short has seen every op in it.
pub const DTYPES: [DType; 4] = [DType::F32, DType::BF16, DType::F64, DType::F16];

/// How far an op's results on a device may be from the host's; none where they have the same bits.
///
/// The weight gradient of a convolution is summed in another order where a group has
/// one output channel; convolutions of volumes are made of such. The numbers of one place are multiplied in a tree by
/// `scatter_reduce`. A product with a matrix that is expanded along the sum, as the gradient of a sum is, is summed in another
/// order by the host: `matrix_power` meets one. Products of 16-bit floats are summed by tensor cores. A vendor's library has an
/// order of its own.
pub fn tolerance(op: &str, dtype: DType) -> Option<Tolerance> {
    let of_other_order = match dtype {
        DType::F64 => Tolerance::new(1e-10, 1e-10),
        DType::F32 => Tolerance::new(1e-4, 1e-5),
        _ => Tolerance::new(1e-2, 1e-2),
    };
    match op {
        "conv2d" | "conv3d" | "conv_transpose3d" | "scatter_reduce" | "linalg.matrix_power" => {
            Some(of_other_order)
        }
        "matmul" | "dot" | "linear" | "addmm" | "baddbmm" | "addmv" => {
            match preferred_blas_library(None) {
                Ok(BlasLibrary::CublasLt) => Some(of_other_order),
                _ => of_sixteen_bits(dtype),
            }
        }
        _ => None,
    }
}

/// Sums of k products in f32 on both sides, each off by k units of what was added, are rounded once: where they lie on two sides
/// of a middle, to neighbours. Samples have k up to 4 and numbers below 4.
fn of_sixteen_bits(dtype: DType) -> Option<Tolerance> {
    let (k, largest) = (4.0, 4.0);
    let unit = match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => return None,
    };
    let of_sums = 2.0 * k * (k * largest * largest) * 2f64.powi(-24);
    Some(Tolerance::new(2.0 * unit, of_sums))
}

/// What came of one call on both sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The same bits.
    Same,
    /// Other bits, within the tolerance: the largest difference.
    Close(f64),
    /// Both sides refuse the call with an error of the same kind.
    Refused,
    /// The device has no kernel of this op.
    NoKernel(&'static str),
    /// The results differ: how.
    Differs(String),
}

/// Makes a sample's call and its backward pass on the host and on a device.
pub fn compare(sample: &Sample, form: Form, dtype: DType, device: Device) -> Outcome {
    let inputs = sample.formed(dtype, |x| form.of(x));
    let want = sample.run(&inputs);
    let got = there(&inputs, device).and_then(|inputs| sample.run(&inputs));
    match (got, want) {
        (Err(Error::NoKernel { op, device: at, .. }), Ok(_)) if at == device => {
            Outcome::NoKernel(op)
        }
        (Ok(got), Ok(want)) => compare_results(&got, &want, device, tolerance(sample.op, dtype)),
        (Err(got), Err(want)) if discriminant(&got) == discriminant(&want) => Outcome::Refused,
        (Err(got), Err(want)) => {
            Outcome::Differs(format!("refused by {got}, on the host by {want}"))
        }
        (Err(got), Ok(_)) => Outcome::Differs(format!("refused: {got}")),
        (Ok(_), Err(want)) => Outcome::Differs(format!("taken, the host refuses: {want}")),
    }
}

fn there(inputs: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    let each = inputs.iter().map(|input| {
        let moved = input.detach().to(device)?;
        match input.requires_grad() {
            true => moved.requires_grad_(true),
            false => Ok(moved),
        }
    });
    each.collect()
}

fn compare_results(
    got: &[Tensor],
    want: &[Tensor],
    device: Device,
    tolerance: Option<Tolerance>,
) -> Outcome {
    if got.len() != want.len() {
        let what = format!("{} results, on the host {}", got.len(), want.len());
        return Outcome::Differs(what);
    }
    let mut outcome = Outcome::Same;
    for (number, (got, want)) in got.iter().zip(want).enumerate() {
        // The first one is the op's, the others are gradients.
        let which = match number {
            0 => "result".to_owned(),
            _ => format!("gradient {number}"),
        };
        if got.device() != device {
            return Outcome::Differs(format!("{which} is on {}", got.device()));
        }
        let got = match got.cpu() {
            Ok(got) => got,
            Err(error) => return Outcome::Differs(format!("{which}: {error}")),
        };
        if same_numbers(&got, want) {
            continue;
        }
        let exact = Tolerance {
            signed_zero: true,
            ..Tolerance::new(0.0, 0.0)
        };
        match matches(&got, want, tolerance.unwrap_or(exact)) {
            Ok(_) if tolerance.is_some() => {
                let pairs = values(&got).into_iter().zip(values(want));
                let far = pairs.map(|(got, want)| (got - want).abs());
                // Not a number where both are infinite.
                let largest = far.fold(0.0, f64::max);
                outcome = match outcome {
                    Outcome::Close(before) => Outcome::Close(largest.max(before)),
                    _ => Outcome::Close(largest),
                };
            }
            Ok(_) => return Outcome::Differs(format!("{which}: other bits")),
            Err(what) => return Outcome::Differs(format!("{which}: {what}")),
        }
    }
    outcome
}

/// What was found of one op.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The op's name.
    pub op: &'static str,
    /// How many calls there are to compare: samples, forms and dtypes.
    pub planned: usize,
    /// How many gave the same bits.
    pub same: usize,
    /// How many gave other bits within the tolerance.
    pub close: usize,
    /// The largest difference of those.
    pub largest: f64,
    /// How many both sides refuse.
    pub refused: usize,
    /// Ops that the device has no kernel of.
    pub no_kernel: BTreeSet<&'static str>,
    /// How many calls ended with an op of those.
    pub unknown: usize,
    /// The calls that differ, and how.
    pub failures: Vec<String>,
}

impl Row {
    /// How many calls were made.
    pub fn done(&self) -> usize {
        self.same + self.close + self.refused + self.unknown + self.failures.len()
    }

    fn verdict(&self) -> &'static str {
        if !self.failures.is_empty() {
            "DIFFERS"
        } else if self.unknown > 0 {
            "no kernel"
        } else if self.done() == 0 {
            "not reached"
        } else if self.done() < self.planned {
            "reached in part"
        } else {
            "agrees"
        }
    }

    fn add(&mut self, what: &str, outcome: Outcome) {
        match outcome {
            Outcome::Same => self.same += 1,
            Outcome::Close(far) => {
                self.close += 1;
                self.largest = self.largest.max(far);
            }
            Outcome::Refused => self.refused += 1,
            Outcome::NoKernel(op) => {
                self.unknown += 1;
                self.no_kernel.insert(op);
            }
            Outcome::Differs(how) => self.failures.push(format!("{what}: {how}")),
        }
    }
}

/// What was found of many ops.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// One row an op, in the order of the samples.
    pub rows: Vec<Row>,
    /// Why nothing more can be asked of the device, if that is so: after which call.
    pub gone: Option<String>,
}

impl Findings {
    /// All calls that differ.
    pub fn failures(&self) -> impl Iterator<Item = &String> {
        self.rows.iter().flat_map(|row| &row.failures)
    }

    /// Ops that the device has no kernel of.
    pub fn no_kernel(&self) -> BTreeSet<&'static str> {
        self.rows
            .iter()
            .flat_map(|row| row.no_kernel.iter().copied())
            .collect()
    }

    /// How many calls were made, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let sum = |number: fn(&Row) -> usize| self.rows.iter().map(number).sum();
        (sum(Row::done), sum(|row| row.planned))
    }

    /// A table for people, with all that differs and all that was not reached below it.
    pub fn table(&self) -> String {
        let wide = self.rows.iter().map(|row| row.op.len()).max().unwrap_or(0);
        let mut text = format!(
            "{:<wide$}  {:>5}  {:>9}  {:>6}  {:>9}  {:>7}  result\n",
            "op", "calls", "same bits", "close", "largest", "refused"
        );
        for row in &self.rows {
            let largest = match row.close {
                0 => String::new(),
                _ => format!("{:.1e}", row.largest),
            };
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "{:<wide$}  {:>5}  {:>9}  {:>6}  {largest:>9}  {:>7}  {}",
                row.op,
                row.done(),
                row.same,
                row.close,
                row.refused,
                row.verdict()
            );
        }
        for failure in self.failures() {
            let _ = writeln!(text, "DIFFERS: {failure}");
        }
        let missing = self.no_kernel();
        if !missing.is_empty() {
            let names: Vec<&str> = missing.into_iter().collect();
            let _ = writeln!(text, "no kernel: {}", names.join(", "));
        }
        for verdict in ["not reached", "reached in part"] {
            let names: Vec<&str> = (self.rows.iter())
                .filter(|row| row.verdict() == verdict)
                .map(|row| row.op)
                .collect();
            if !names.is_empty() {
                let _ = writeln!(text, "{verdict}: {}", names.join(", "));
            }
        }
        if let Some(gone) = &self.gone {
            let _ = writeln!(text, "the device can't go on: {gone}");
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "op": row.op,
                "planned": row.planned,
                "done": row.done(),
                "same_bits": row.same,
                "close": row.close,
                "largest_difference": row.largest,
                "refused": row.refused,
                "no_kernel": row.no_kernel,
                "result": row.verdict(),
                "failures": row.failures,
            })
        });
        json!({ "ops": rows.collect::<Vec<_>>(), "gone": self.gone })
    }
}

/// Compares every sample in every form and dtype, until a time if there is one. `tell` hears how many calls were made of how many, and
/// of the next one.
pub fn check(
    samples: &[Sample],
    device: Device,
    until: Option<Instant>,
    tell: &mut dyn FnMut(usize, usize, &str),
) -> Findings {
    let mut findings = Findings::default();
    for sample in samples {
        let planned = DTYPES.len() * Form::ALL.len();
        match findings.rows.iter_mut().find(|row| row.op == sample.op) {
            Some(row) => row.planned += planned,
            None => findings.rows.push(Row {
                op: sample.op,
                planned,
                ..Row::default()
            }),
        }
    }
    let all = findings.progress().1;
    let mut done = 0;
    for dtype in DTYPES {
        for form in Form::ALL {
            for sample in samples {
                if until.is_some_and(|until| Instant::now() >= until) {
                    return findings;
                }
                let what = format!("{} {form:?} {dtype}", sample.op);
                tell(done, all, &what);
                let made = || compare(sample, form, dtype, device);
                let outcome = catch_unwind(AssertUnwindSafe(made));
                let outcome =
                    outcome.unwrap_or_else(|_| Outcome::Differs("it panicked".to_owned()));
                let differs = matches!(outcome, Outcome::Differs(_));
                let mut rows = findings.rows.iter_mut();
                if let Some(row) = rows.find(|row| row.op == sample.op) {
                    row.add(&what, outcome);
                }
                done += 1;
                if differs && let Err(error) = answers(device) {
                    findings.gone = Some(format!("after {what}: {error}"));
                    return findings;
                }
            }
        }
    }
    findings
}

/// Whether the device still computes.
fn answers(device: Device) -> Result<()> {
    let one = Tensor::ones(&[1], device)?;
    one.add(&one)?.to_vec::<f32>().map(drop)
}
