//! Losses of each element: distances, likelihoods and divergences, as formulas that are computed and reduced in one pass.

use std::sync::OnceLock;

use fireclay_core::arith::Arith;
use fireclay_core::pointwise::Pointwise;
use fireclay_core::{Error, Result, as_one_call, math};
use fireclay_cpu::kernel::Kernel;
use smallvec::smallvec;

use super::index::IndexSelect;
use super::loss::Reduction;
use crate::autograd::no_grad;
use crate::dispatch;
use crate::formula::Formula;
use crate::function::{Function, GradFormulas, Typing};
use crate::op::{Autocast, Saves};
use crate::tensor::Tensor;

/// What [`Tensor::kl_div`] makes of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KlDivReduction {
    /// All of them.
    None,
    /// Their mean: PyTorch's default.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum divided by the size of the first dimension: the divergence itself, as a mean over the batch.
    BatchMean,
}

impl From<Reduction> for KlDivReduction {
    fn from(reduction: Reduction) -> KlDivReduction {
        match reduction {
            Reduction::None => KlDivReduction::None,
            Reduction::Mean => KlDivReduction::Mean,
            Reduction::Sum => KlDivReduction::Sum,
        }
    }
}

/// What [`Tensor::poisson_nll_loss`] takes besides rates and counts; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoissonNll {
    /// Whether the input is the logarithm of the rate.
    pub log_input: bool,
    /// Whether Stirling's approximation of `log(target!)` is added, where the target exceeds 1.
    pub full: bool,
    /// What is added to a rate before its logarithm is taken, without `log_input`.
    pub eps: f64,
    /// What becomes of the elements' losses.
    pub reduction: Reduction,
}

impl Default for PoissonNll {
    fn default() -> Self {
        PoissonNll {
            log_input: true,
            full: false,
            eps: 1e-8,
            reduction: Reduction::Mean,
        }
    }
}

/// What [`Tensor::gaussian_nll_loss`] takes besides means, targets and variances; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GaussianNll {
    /// Whether the constant `log(2 pi) / 2` is added.
    pub full: bool,
    /// The smallest variance: lower ones count as this. Its gradient is that of the variance all the same.
    pub eps: f64,
    /// What becomes of the elements' losses.
    pub reduction: Reduction,
}

impl Default for GaussianNll {
    fn default() -> Self {
        GaussianNll {
            full: false,
            eps: 1e-6,
            reduction: Reduction::Mean,
        }
    }
}

/// `-(t log x + (1 - t) log(1 - x))`, with logarithms of at least -100. A row of its own, since the gradient is another than
/// that of its parts: finite at 0 and 1.
#[derive(Clone, Copy, Debug)]
struct BinaryCrossEntropy;

impl Pointwise<2> for BinaryCrossEntropy {
    #[inline(always)]
    fn eval<A: Arith>(&self, [x, t]: [A; 2]) -> [A; 1] {
        let least = A::int(-100);
        let other = math::log1p(-x).maximum(least);
        let log = math::log(x).maximum(least);
        [(t - A::int(1)) * other - t * log]
    }
}

impl Function for BinaryCrossEntropy {
    fn name(&self) -> &'static str {
        "binary_cross_entropy"
    }
    fn arity(&self) -> usize {
        2
    }
    fn kernel(&self) -> &Kernel {
        static KERNEL: OnceLock<Kernel> = OnceLock::new();
        KERNEL.get_or_init(|| Kernel::new(BinaryCrossEntropy))
    }
    fn typing(&self) -> Typing {
        Typing::Float
    }
    fn saves(&self) -> Saves {
        Saves::INPUTS
    }
    fn grad(&self, operands: &[Formula], _: &Formula, g: &Formula) -> GradFormulas {
        let [x, t] = operands else {
            unreachable!("the arity of a function is fixed")
        };
        let by_input = g * (x - t) / ((1.0 - x) * x).clamp_min(1e-12);
        let by_target = g * ((-x).log1p().clamp_min(-100.0) - x.log().clamp_min(-100.0));
        smallvec![Some(by_input), Some(by_target)]
    }
    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// Refuses elements that `inside` is false for. On the CPU the error comes at once and says `what`; on a device, where the host
/// doesn't wait, it is one of an index and comes with the next result that is read.
#[track_caller]
fn check_all(op: &'static str, what: &str, inside: &Formula, operand: &Tensor) -> Result<()> {
    if operand.numel() == 0 {
        return Ok(());
    }
    no_grad(|| {
        let outside = inside.where_(0.0, 1.0).sum()?;
        if operand.device().is_cpu() {
            let count = outside.item()?;
            return match count > 0.0 {
                false => Ok(()),
                true => Err(
                    Error::argument(op, format!("{what}, got {count} other elements"))
                        .with_operands(|| vec![operand.operand("input")]),
                ),
            };
        }
        let table = Tensor::full_of(&[1], 0.0, outside.dtype(), operand.device())?;
        let place = outside.gt(0.0)?.to_dtype(fireclay_core::DType::I64)?;
        let look_up = IndexSelect {
            name: op,
            dim: 0,
            grad: super::index::EmbeddingOptions::default(),
        };
        dispatch::call_one(look_up, &[&table, &place.reshape(&[1])?]).map(drop)
    })
}

/// A number that must be above 0, or at least 0.
fn check_scale(op: &'static str, name: &str, value: f64, zero: bool) -> Result<()> {
    if value > 0.0 || zero && value == 0.0 {
        return Ok(());
    }
    let bound = if zero {
        "not be negative"
    } else {
        "be positive"
    };
    Err(Error::argument(
        op,
        format!("{name} must {bound}, got {value}"),
    ))
}

/// Refuses whole numbers, which PyTorch has no such loss of.
pub(super) fn check_floating(op: &'static str, name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.dtype().is_floating_point() {
        return Ok(());
    }
    let what = format!("expected a floating {name}, got {}", tensor.dtype());
    Err(Error::dtype(op, what)
        .with_operands(|| vec![tensor.operand(name)])
        .with_hint("cast it first: to_dtype(DType::F32)"))
}

/// Refuses operands of two shapes.
pub(super) fn check_one_shape(
    op: &'static str,
    names: [&str; 2],
    [a, b]: [&Tensor; 2],
) -> Result<()> {
    if a.shape() == b.shape() {
        return Ok(());
    }
    let what = format!(
        "{} and {} must have one shape, got {} and {}",
        names[0],
        names[1],
        a.shape(),
        b.shape()
    );
    Err(Error::shape(op, what)
        .with_operands(|| vec![a.operand(names[0]), b.operand(names[1])])
        .with_hint("reshape or unsqueeze one of them"))
}

/// `min(|d|, bound) * (|d| - min(|d|, bound) / 2)`: a parabola up to `bound`, then straight.
fn rounded_distance(input: &Tensor, target: &Tensor, bound: f64) -> Formula {
    let distance = input - target;
    let near = distance.clamp(-bound, bound);
    &near * (distance - &near * 0.5)
}

impl Tensor {
    /// [`mse_loss`](Tensor::mse_loss) with a factor per element (`mse_loss(weight=..)`). The mean is weighted.
    ///
    /// # Errors
    /// If weights and inputs have two shapes.
    #[track_caller]
    pub fn weighted_mse_loss(
        &self,
        target: &Tensor,
        weight: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let each = (self - target).square();
        self.weighted_loss("mse_loss", &each, weight, reduction)
    }

    /// [`l1_loss`](Tensor::l1_loss) with a factor per element (`l1_loss(weight=..)`). The mean is weighted.
    ///
    /// # Errors
    /// If weights and inputs have two shapes.
    #[track_caller]
    pub fn weighted_l1_loss(
        &self,
        target: &Tensor,
        weight: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let each = (self - target).abs();
        self.weighted_loss("l1_loss", &each, weight, reduction)
    }

    #[track_caller]
    fn weighted_loss(
        &self,
        op: &'static str,
        each: &Formula,
        weight: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        as_one_call(|| {
            check_one_shape(op, ["input", "weight"], [self, weight])?;
            let weighted = each * weight;
            match reduction {
                Reduction::None => weighted.eval(),
                Reduction::Sum => weighted.sum(),
                Reduction::Mean => weighted.sum()?.div(&weight.sum_all()?),
            }
        })
    }

    /// Half the squared distance divided by `beta` where the distance is below `beta`, the distance less `beta / 2` elsewhere
    /// (`torch.nn.functional.smooth_l1_loss`). With a `beta` of 0 it is [`l1_loss`](Tensor::l1_loss).
    ///
    /// # Errors
    /// For a negative `beta`.
    #[track_caller]
    pub fn smooth_l1_loss(
        &self,
        target: &Tensor,
        beta: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_scale("smooth_l1_loss", "beta", beta, true)?;
        if beta == 0.0 {
            return self.l1_loss(target, reduction);
        }
        (rounded_distance(self, target, beta) * (1.0 / beta)).reduced(reduction)
    }

    /// Half the squared distance where that is below `delta`, `delta * (distance - delta / 2)` elsewhere, perhaps with a factor
    /// per element (`torch.nn.functional.huber_loss`). Unlike that of [`weighted_mse_loss`](Tensor::weighted_mse_loss), the mean
    /// is over the number of elements, as in PyTorch.
    ///
    /// # Errors
    /// If `delta` is not positive, or weights and inputs have two shapes.
    #[track_caller]
    pub fn huber_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        delta: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_scale("huber_loss", "delta", delta, false)?;
        let each = rounded_distance(self, target, delta);
        match weight {
            None => each.reduced(reduction),
            Some(weight) => {
                check_one_shape("huber_loss", ["input", "weight"], [self, weight])?;
                (each * weight).reduced(reduction)
            }
        }
    }

    /// Binary cross entropy of probabilities: `-(t log x + (1 - t) log(1 - x))`, with logarithms of at least -100
    /// (`torch.nn.functional.binary_cross_entropy`). `weight` scales each element, broadcast. Of logits,
    /// [`binary_cross_entropy_with_logits`](Tensor::binary_cross_entropy_with_logits) is more exact.
    ///
    /// # Errors
    /// If inputs and targets have two shapes, or an input lies outside of 0 to 1: on the CPU at once, on a device when
    /// a result is read.
    #[track_caller]
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "binary_cross_entropy";
        as_one_call(|| {
            check_floating(OP, "input", self)?;
            check_one_shape(OP, ["input", "target"], [self, target])?;
            let x = Formula::from(self);
            let inside = x.ge(0.0).logical_and(x.le(1.0));
            check_all(OP, "inputs are probabilities from 0 to 1", &inside, self)?;
            let mut loss = Formula::apply(&BinaryCrossEntropy, smallvec![x, target.into()]);
            if let Some(weight) = weight {
                loss = loss * weight;
            }
            loss.reduced(reduction)
        })
    }

    /// The parts of the Kullback-Leibler divergence of the log-probabilities `self` from the probabilities `target`:
    /// `target * (log(target) - self)`, 0 where the target is (`torch.nn.functional.kl_div`). With `log_target` the target
    /// is log-probabilities too. `reduction` is a [`Reduction`] or a [`KlDivReduction`].
    #[track_caller]
    pub fn kl_div(
        &self,
        target: &Tensor,
        log_target: bool,
        reduction: impl Into<KlDivReduction>,
    ) -> Result<Tensor> {
        check_floating("kl_div", "input", self)?;
        let (x, t) = (Formula::from(self), Formula::from(target));
        let each = match log_target {
            true => t.exp() * (&t - x),
            false => t.xlogy(&t) - &t * x,
        };
        match reduction.into() {
            KlDivReduction::None => each.eval(),
            KlDivReduction::Mean => each.mean(),
            KlDivReduction::Sum => each.sum(),
            KlDivReduction::BatchMean => as_one_call(|| {
                each.sum()?
                    .div(self.shape().first().copied().unwrap_or(1) as f64)
            }),
        }
    }

    /// The negative log-likelihood of counts `target` with Poisson's distribution of the rate `self`, without the constant
    /// part: `exp(x) - target * x`, or `x - target * log(x + eps)` (`torch.nn.functional.poisson_nll_loss`).
    #[track_caller]
    pub fn poisson_nll_loss(&self, target: &Tensor, options: PoissonNll) -> Result<Tensor> {
        check_floating("poisson_nll_loss", "input", self)?;
        let (x, t) = (Formula::from(self), Formula::from(target));
        let mut each = match options.log_input {
            true => x.exp() - &t * &x,
            false => &x - &t * (&x + options.eps).log(),
        };
        if options.full {
            let count = t.clamp_min(1.0);
            let stirling =
                &count * count.log() - &count + (&count * (2.0 * std::f64::consts::PI)).log() * 0.5;
            each = each + t.gt(1.0).where_(stirling, 0.0);
        }
        each.reduced(options.reduction)
    }

    /// The negative log-likelihood of `target` with a normal distribution of mean `self` and variance `var`:
    /// `(log(var) + (self - target)^2 / var) / 2` (`torch.nn.functional.gaussian_nll_loss`). `var` has the input's shape, with 1
    /// in place of at most one size, or lacks the last dimension.
    ///
    /// # Errors
    /// If `var` has another shape, or a negative element: on the CPU at once, on a device when a result is read.
    #[track_caller]
    pub fn gaussian_nll_loss(
        &self,
        target: &Tensor,
        var: &Tensor,
        options: GaussianNll,
    ) -> Result<Tensor> {
        const OP: &str = "gaussian_nll_loss";
        as_one_call(|| {
            check_floating(OP, "input", self)?;
            let (shape, sizes) = (self.shape(), var.shape());
            let var = if shape == sizes {
                var.clone()
            } else if shape.ndim() == sizes.ndim() + 1 && shape[..sizes.ndim()] == sizes[..] {
                var.unsqueeze(-1)?
            } else if shape.ndim() == sizes.ndim()
                && shape
                    .iter()
                    .zip(sizes.iter())
                    .filter(|(size, own)| size != own)
                    .map(|(_, own)| *own)
                    .eq([1])
            {
                var.clone()
            } else {
                let what = format!(
                    "var must have the input's shape, or 1 for one size, got {sizes} for {shape}"
                );
                return Err(Error::shape(OP, what)
                    .with_operands(|| vec![self.operand("input"), var.operand("var")]));
            };
            let own = Formula::from(&var.detach());
            check_all(OP, "variances are not negative", &own.ge(0.0), &var)?;
            // What lifts it to eps is no part of the function that is differentiated.
            let lift = own.lt(options.eps).where_(options.eps - &own, 0.0);
            let lift = no_grad(|| lift.eval())?;
            let var = &var + &lift;
            let mut each = (var.log() + (self - target).square() / &var) * 0.5;
            if options.full {
                each = each + 0.5 * (2.0 * std::f64::consts::PI).ln();
            }
            each.reduced(options.reduction)
        })
    }

    /// `log(1 + exp(-target * self))`, for targets of 1 and -1, without overflow (`torch.nn.functional.soft_margin_loss`).
    #[track_caller]
    pub fn soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        check_floating("soft_margin_loss", "input", self)?;
        (-(self * target).logsigmoid()).reduced(reduction)
    }

    /// `self` where the target is 1, `max(0, margin - self)` where it is -1; both are added for another target
    /// (`torch.nn.functional.hinge_embedding_loss`).
    #[track_caller]
    pub fn hinge_embedding_loss(
        &self,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        check_floating("hinge_embedding_loss", "input", self)?;
        let (x, t) = (Formula::from(self), Formula::from(target));
        let apart = t.eq(1.0).where_(0.0, (margin - &x).clamp_min(0.0));
        let near = t.eq(-1.0).where_(0.0, &x);
        (apart + near).reduced(reduction)
    }

    /// `max(0, margin - target * (self - other))`, for targets of 1 where `self` should rank higher and -1 elsewhere
    /// (`torch.nn.functional.margin_ranking_loss`).
    ///
    /// # Errors
    /// If the three have other numbers of dimensions.
    #[track_caller]
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "margin_ranking_loss";
        check_floating(OP, "input1", self)?;
        if self.ndim() != other.ndim() || self.ndim() != target.ndim() {
            let what = format!(
                "expected as many dimensions of each, got {}, {} and {}",
                self.shape(),
                other.shape(),
                target.shape()
            );
            return Err(Error::shape(OP, what).with_operands(|| {
                vec![
                    self.operand("input1"),
                    other.operand("input2"),
                    target.operand("target"),
                ]
            }));
        }
        let above = (self - other) * target;
        (margin - above).clamp_min(0.0).reduced(reduction)
    }
}
