//! Connectionist temporal classification.

use fireclay_core::{DType, Error, Result, as_one_call};

use super::loss::Reduction;
use super::loss_pointwise::check_floating;
use crate::autograd::is_grad_enabled;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// The logarithm of a probability of 0. A number, since infinity minus infinity has no gradient; no sum of real
/// log-probabilities comes near it.
const NEVER: f64 = -1e30;

/// What [`Tensor::ctc_loss`] takes besides log-probabilities, targets and lengths; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ctc {
    /// The class that stands for "nothing here".
    pub blank: usize,
    /// What becomes of the samples' losses. The mean is over losses that are divided by the target's length.
    pub reduction: Reduction,
    /// Whether the loss of a target that its input is too short for, and its gradient, are 0.
    pub zero_infinity: bool,
}

/// A batch whose lengths were found to fit.
struct Problem<'a> {
    /// `[time, n, classes]`, f32 or f64, no longer than the longest input.
    log_probs: Tensor,
    /// `[n, s]`, blank behind the end of each.
    targets: Tensor,
    input_lengths: &'a [usize],
    target_lengths: &'a [usize],
    blank: usize,
}

impl Problem<'_> {
    /// The targets with blanks around each: `[n, 2 s + 1]`.
    fn path(&self) -> Result<Tensor> {
        let &[rows, longest] = &self.targets.shape()[..] else {
            unreachable!("targets are a matrix")
        };
        let device = self.targets.device();
        let blank = self.blank as i64;
        let first = Tensor::full_of(&[rows, 1], blank, DType::I64, device)?;
        let blanks = Tensor::full_of(&[rows, longest], blank, DType::I64, device)?;
        let pairs = Tensor::stack(&[&self.targets, &blanks], 2)?;
        let pairs = pairs.reshape(&[rows as isize, 2 * longest as isize])?;
        Tensor::cat(&[&first, &pairs], 1)
    }

    /// A number for each sample, `[n, 1]`.
    fn column(&self, numbers: impl Iterator<Item = usize>) -> Result<Tensor> {
        let numbers: Vec<i64> = numbers.map(|number| number as i64).collect();
        Tensor::from_slice(&numbers, &[numbers.len(), 1], self.log_probs.device())
    }

    /// The negative log-likelihood of each target, `[n]`; about -[`NEVER`] where there is none.
    ///
    /// `paths[i, s]` is the logarithm of the probability that the path up to now ends with its place `s`. Before the first step
    /// all are at the blank in front.
    fn losses(&self) -> Result<Tensor> {
        let (log_probs, device) = (&self.log_probs, self.log_probs.device());
        let path = self.path()?;
        let &[rows, places] = &path.shape()[..] else {
            unreachable!("a path is a matrix")
        };
        let of_path = |fill: f64, columns: usize| {
            Tensor::full_of(&[rows, columns], fill, log_probs.dtype(), device)
        };
        // From one class to the next but one, over a blank, if they differ.
        let fronts = Tensor::full_of(&[rows, 2], self.blank as i64, DType::I64, device)?;
        let before = Tensor::cat(&[&fronts, &path], 1)?.narrow(1, 0, places)?;
        let skip = Formula::from(&path).ne(&before);
        let skip = skip.where_(of_path(0.0, places)?, NEVER).eval()?;
        let steps = log_probs.shape()[0] as isize;
        let index = path
            .unsqueeze(0)?
            .expand(&[steps, rows as isize, places as isize])?;
        let emitted = log_probs.gather(2, &index)?;
        let front = of_path(NEVER, 2)?;
        let mut paths = match places {
            1 => of_path(0.0, 1)?,
            _ => Tensor::cat(&[&of_path(0.0, 1)?, &of_path(NEVER, places - 1)?], 1)?,
        };
        let shortest = self.input_lengths.iter().copied().min().unwrap_or(0);
        let lengths = self.column(self.input_lengths.iter().copied())?;
        for step in 0..steps {
            let padded = Tensor::cat(&[&front, &paths], 1)?;
            let (one, two) = (padded.narrow(1, 1, places)?, padded.narrow(1, 0, places)?);
            let reached = Formula::from(&paths)
                .logaddexp(&one)
                .logaddexp(&two + &skip);
            let moved = reached + Formula::from(&emitted.select(0, step)?).clamp_min(NEVER);
            let moved = match (step as usize) < shortest {
                true => moved,
                false => Formula::from(&lengths)
                    .gt(step as i64)
                    .where_(moved, &paths),
            };
            paths = moved.eval()?;
        }
        // A path ends with the last class or the blank behind it.
        let ends = self.target_lengths.iter().map(|length| 2 * length);
        let last = paths.gather(1, &self.column(ends.clone())?)?;
        let other = paths.gather(1, &self.column(ends.map(|end| end.saturating_sub(1)))?)?;
        let lengths = self.column(self.target_lengths.iter().copied())?;
        let other = Formula::from(&lengths).gt(0i64).where_(&other, NEVER);
        (-Formula::from(&last).logaddexp(other)).eval()?.squeeze(1)
    }

    /// The sum of all probabilities of each sample, `[n]`.
    fn mass(&self) -> Result<Tensor> {
        let steps = self.log_probs.shape()[0] as i64;
        let times = Tensor::arange(0i64, steps, 1i64, self.log_probs.device())?;
        let lengths = self.column(self.input_lengths.iter().copied())?;
        let within = Formula::from(&times.reshape(&[-1, 1, 1])?).lt(&lengths);
        let mass = within.where_(Formula::from(&self.log_probs).exp(), 0.0);
        mass.eval()?.sum(&[0, 2], false)
    }
}

impl Tensor {
    /// The negative log-likelihood of label sequences of unknown alignment (`torch.nn.functional.ctc_loss`), of log-probabilities
    /// `[time, n, classes]` (or `[time, classes]`). `targets` are classes, `[n, s]` or all in one row without gaps; `input_lengths`
    /// and `target_lengths` say how much of each sample counts.
    ///
    /// As in PyTorch, the gradient is that of log-probabilities which are normalised and come from `log_softmax`: it goes to their
    /// probabilities minus those of the alignments. Where no alignment exists the loss is infinite, and the gradient 0.
    ///
    /// # Errors
    /// If shapes and lengths don't fit, or a label is no class.
    #[track_caller]
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
        options: Ctc,
    ) -> Result<Tensor> {
        as_one_call(|| {
            let problem =
                self.ctc_problem(targets, input_lengths, target_lengths, options.blank)?;
            let losses = problem.losses()?;
            let impossible = losses.gt(-NEVER * 0.1)?;
            let mut all = Formula::from(&losses);
            if is_grad_enabled() && self.requires_grad() {
                // Zero, whose gradient is the probabilities: as one with log_softmax, it changes nothing.
                let mass = problem.mass()?;
                all = all + (&mass - &mass.detach());
            }
            let rest = if options.zero_infinity {
                0.0
            } else {
                f64::INFINITY
            };
            let losses = Formula::from(&impossible).where_(rest, all);
            let losses = match options.reduction {
                Reduction::None => losses.eval(),
                Reduction::Sum => losses.sum(),
                Reduction::Mean => {
                    let lengths = target_lengths.iter().map(|&length| length.max(1));
                    let lengths = problem.column(lengths)?.squeeze(1)?;
                    (losses / &lengths.to_dtype(problem.log_probs.dtype())?).mean()
                }
            };
            let losses = losses?.to_dtype(self.dtype())?;
            match (self.ndim(), options.reduction) {
                (2, Reduction::None) => losses.squeeze(0),
                _ => Ok(losses),
            }
        })
    }

    fn ctc_problem<'a>(
        &self,
        targets: &Tensor,
        input_lengths: &'a [usize],
        target_lengths: &'a [usize],
        blank: usize,
    ) -> Result<Problem<'a>> {
        const OP: &str = "ctc_loss";
        check_floating(OP, "log_probs", self)?;
        let operands = || vec![self.operand("log_probs"), targets.operand("targets")];
        let refuse = |what: String| Err(Error::argument(OP, what).with_operands(operands));
        let log_probs = match self.ndim() {
            2 => self.unsqueeze(1)?,
            3 => self.clone(),
            _ => {
                let what = format!("expected [time, n, classes], got {}", self.shape());
                return Err(Error::shape(OP, what).with_operands(operands));
            }
        };
        let &[time, rows, classes] = &log_probs.shape()[..] else {
            unreachable!("three dimensions")
        };
        let targets = match targets.dtype() {
            DType::I64 | DType::I32 => targets.to_dtype(DType::I64)?,
            dtype => {
                let what = format!("expected targets of i64, got {dtype}");
                return Err(Error::dtype(OP, what).with_operands(operands));
            }
        };
        if blank >= classes {
            return refuse(format!(
                "blank must be below {classes} classes, got {blank}"
            ));
        }
        for (name, lengths) in [("input", input_lengths), ("target", target_lengths)] {
            if lengths.len() != rows {
                let what = format!("expected {rows} {name} lengths, got {}", lengths.len());
                return Err(Error::shape(OP, what).with_operands(operands));
            }
        }
        if let Some(length) = input_lengths.iter().find(|length| **length > time) {
            return refuse(format!("an input of length {length} is longer than {time}"));
        }
        let longest = target_lengths.iter().copied().max().unwrap_or(0);
        let device = self.device();
        let targets = match &targets.shape()[..] {
            &[samples, width] if samples == rows => {
                if longest > width {
                    return refuse(format!(
                        "a target of length {longest} is longer than {width}"
                    ));
                }
                targets.narrow(1, 0, longest)?
            }
            &[count] => {
                let total = (target_lengths.iter())
                    .try_fold(0usize, |sum, length| sum.checked_add(*length));
                if total != Some(count) {
                    return refuse(format!(
                        "the lengths of targets in one row must sum up to {count}, got {target_lengths:?}"
                    ));
                }
                let mut places: Vec<i64> = Vec::new();
                let mut start = 0;
                for length in target_lengths {
                    let last = count.saturating_sub(1);
                    places.extend((0..longest).map(|place| (start + place).min(last) as i64));
                    start += length;
                }
                let places = Tensor::from_slice(&places, &[places.len()], device)?;
                let rows = [rows as isize, longest as isize];
                targets.index_select(0, &places)?.reshape(&rows)?
            }
            _ => {
                let what = format!(
                    "expected targets [{rows}, s] or [s], got {}",
                    targets.shape()
                );
                return Err(Error::shape(OP, what).with_operands(operands));
            }
        };
        let within = target_lengths
            .iter()
            .flat_map(|length| (0..longest).map(move |place| place < *length));
        let within: Vec<bool> = within.collect();
        let within = Tensor::from_slice(&within, &[rows, longest], device)?;
        let steps = input_lengths.iter().copied().max().unwrap_or(0);
        let wide = match self.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        Ok(Problem {
            log_probs: log_probs.narrow(0, 0, steps)?.to_dtype(wide)?,
            targets: within.where_(&targets, blank as i64)?,
            input_lengths,
            target_lengths,
            blank,
        })
    }
}
