//! Optimizers that look at a parameter as a matrix: Adafactor and Muon. They are made of tensor ops, parameter by parameter, and
//! wait for no device.

use fireclay_tensor::{DType, Error, Result, Tensor};

use crate::adaptive::at_least_0;
use crate::fused::{Batch, Fused, Rule, check_option};
use crate::options::{OptionValue, named, options};

/// Adafactor, which keeps rows' and columns' means of squares only (`torch.optim.Adafactor`; Shazeer and Stern 2018).
pub type Adafactor = Fused<AdafactorOptions>;
/// Momentum whose direction is made orthogonal by Newton's and Schulz's iteration, in bf16 (`torch.optim.Muon`; Jordan 2024). For
/// matrices only.
pub type Muon = Fused<MuonOptions>;

options! {
    /// The options of [`Adafactor`].
    AdafactorOptions {
        /// The learning rate at most.
        lr: f64 = 1e-2,
        /// The new squares' share at step `n` is `n^beta2_decay`.
        beta2_decay: f64 = -0.8,
        /// The least divisor; the dtype's epsilon if there is none.
        eps1: Option<f64> = None,
        /// The least size of a parameter that its step is measured by.
        eps2: f64 = 1e-3,
        /// How large an update's root mean square may be.
        d: f64 = 1.0,
        /// Pull towards zero; shrinks the parameter directly.
        weight_decay: f64 = 0.0,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

/// How [`Muon`]'s rate depends on a matrix's sizes `[a, b]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AdjustLr {
    /// Times `sqrt(max(1, a / b))`.
    #[default]
    Original,
    /// Times `0.2 * sqrt(max(a, b))`, which gives updates the size of AdamW's.
    MatchRmsAdamW,
}

impl OptionValue for AdjustLr {
    fn write(&self, names: [&'static str; 4], to: &mut Vec<(&'static str, f64)>) {
        (*self == AdjustLr::MatchRmsAdamW).write(names, to);
    }
    fn read(names: [&'static str; 4], value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        if bool::read(names, value) {
            AdjustLr::MatchRmsAdamW
        } else {
            AdjustLr::Original
        }
    }
}

options! {
    /// The options of [`Muon`].
    MuonOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// Pull towards zero; shrinks the parameter directly.
        weight_decay: f64 = 0.1,
        /// How much of the average of gradients is kept in a step.
        momentum: f64 = 0.95,
        /// Looks one step of momentum ahead.
        nesterov: bool = true,
        /// The coefficients of the iteration: of the matrix, its third and its fifth power.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.775, 2.0315),
        /// The least norm that is divided by.
        eps: f64 = 1e-7,
        /// How many iterations there are, below 100.
        ns_steps: u32 = 5,
        /// How the rate depends on the matrix's sizes.
        adjust_lr_fn: AdjustLr = AdjustLr::Original,
    }
}

impl Rule for AdafactorOptions {
    const NAME: &'static str = "Adafactor";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("eps1", self.eps1.unwrap_or(0.0)),
            ("eps2", self.eps2),
            ("weight_decay", self.weight_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        check_option(Self::NAME, "d", self.d, self.d >= 1.0, "at least 1")?;
        let fits = self.beta2_decay <= 0.0;
        check_option(
            Self::NAME,
            "beta2_decay",
            self.beta2_decay,
            fits,
            "at most 0",
        )
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["variance"]
    }

    fn state_names_for(&self, shape: &[usize]) -> &'static [&'static str] {
        if shape.len() > 1 {
            &["row_var", "col_var"]
        } else {
            &["variance"]
        }
    }

    fn state_shape(&self, number: usize, shape: &[usize]) -> Vec<usize> {
        let mut kept = shape.to_vec();
        if kept.len() > 1 {
            let gone = kept.len() - 1 - number;
            kept[gone] = 1;
        }
        kept
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        let share = fireclay_core::math::pow(step as f64, self.beta2_decay);
        let rate = self.lr.min(1.0 / (step as f64).sqrt());
        batch.sets().iter().try_for_each(|set| match set[..] {
            [parameter, rows, columns, grad] => {
                let squares = (grad * grad).eval()?;
                moved_towards(rows, &squares.mean(&[-1], true)?, share)?;
                moved_towards(columns, &squares.mean(&[-2], true)?, share)?;
                let total = rows.mean(&[-2], true)?;
                let total = fireclay_tensor::Formula::from(&total).maximum(self.eps1(grad));
                self.move_by(parameter, grad, (rows * columns) / total, rate)
            }
            [parameter, variance, grad] => {
                moved_towards(variance, &(grad * grad).eval()?, share)?;
                self.move_by(parameter, grad, variance.into(), rate)
            }
            _ => unreachable!("a set is a parameter, its states and its gradient"),
        })
    }
}

/// `state += share * (value - state)`, in place.
fn moved_towards(state: &Tensor, value: &Tensor, share: f64) -> Result<()> {
    let next = (state + (value - state) * share).eval()?;
    state.copy_(&next).map(drop)
}

/// The root of the mean of squares, a zero-dim tensor.
fn root_mean_square(x: &Tensor) -> Result<Tensor> {
    (x * x).mean()?.sqrt()
}

impl AdafactorOptions {
    fn eps1(&self, grad: &Tensor) -> f64 {
        self.eps1.unwrap_or(match grad.dtype() {
            DType::F64 => f64::EPSILON,
            DType::BF16 => 1.0 / 128.0,
            DType::F16 => 1.0 / 1024.0,
            _ => f64::from(f32::EPSILON),
        })
    }

    fn move_by(
        &self,
        parameter: &Tensor,
        grad: &Tensor,
        variance: fireclay_tensor::Formula,
        rate: f64,
    ) -> Result<()> {
        if parameter.numel() == 0 {
            return Ok(());
        }
        let eps1 = self.eps1(grad);
        let size = root_mean_square(parameter)?;
        let update = (variance.maximum(eps1 * eps1).rsqrt() * grad).eval()?;
        let divisor = fireclay_tensor::Formula::from(root_mean_square(&update)?) / self.d;
        let alpha =
            fireclay_tensor::Formula::from(size).maximum(self.eps2) * rate / divisor.maximum(1.0);
        let alpha = alpha.eval()?;
        let signed = if self.maximize { -1.0 } else { 1.0 };
        let kept = 1.0 - self.lr * self.weight_decay;
        let next = (parameter * kept - &update * &alpha * signed).eval()?;
        parameter.copy_(&next).map(drop)
    }
}

impl Rule for MuonOptions {
    const NAME: &'static str = "Muon";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        let steps = f64::from(self.ns_steps);
        check_option(
            Self::NAME,
            "ns_steps",
            steps,
            self.ns_steps < 100,
            "below 100",
        )
    }

    fn check_parameter(&self, parameter: &Tensor) -> Result<()> {
        if parameter.ndim() == 2 {
            return Ok(());
        }
        Err(Error::shape(
            Self::NAME,
            format!("expected matrices [a, b], got {}", parameter.shape()),
        )
        .with_hint("give biases, norms and embeddings to AdamW"))
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.momentum)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }

    fn step(&self, _: u64, batch: &Batch<'_>) -> Result<()> {
        for set in batch.sets() {
            let [parameter, buffer, grad] = set[..] else {
                unreachable!("a set is a parameter, its state and its gradient")
            };
            buffer.lerp_(grad, 1.0 - self.momentum)?;
            let direction = if self.nesterov {
                grad.lerp(buffer, self.momentum)?
            } else {
                buffer.clone()
            };
            let update = self.orthogonal(&direction)?;
            let (a, b) = (parameter.shape()[0] as f64, parameter.shape()[1] as f64);
            let ratio = match self.adjust_lr_fn {
                AdjustLr::Original => (a / b).max(1.0).sqrt(),
                AdjustLr::MatchRmsAdamW => 0.2 * a.max(b).sqrt(),
            };
            let kept = 1.0 - self.lr * self.weight_decay;
            let update = update.to_dtype(parameter.dtype())?;
            let next = (parameter * kept - &update * (self.lr * ratio)).eval()?;
            parameter.copy_(&next)?;
        }
        Ok(())
    }
}

impl MuonOptions {
    /// Nearly `U V'` of `x = U S V'`: an iteration that brings the singular values near 1.
    fn orthogonal(&self, x: &Tensor) -> Result<Tensor> {
        let (a, b, c) = self.ns_coefficients;
        let tall = x.shape()[0] > x.shape()[1];
        let mut y = x.to_dtype(DType::BF16)?;
        if tall {
            y = y.t()?;
        }
        let wide = y.to_dtype(DType::F32)?;
        let norm = (&wide * &wide).sum()?.sqrt()?.maximum(self.eps)?;
        y = y.div(&norm.to_dtype(DType::BF16)?)?;
        // Products of bf16 are exact in f32; what is added to one is rounded with it, once.
        let wide = |x: &Tensor| x.to_dtype(DType::F32);
        for _ in 0..self.ns_steps {
            let y32 = wide(&y)?;
            let gram = wide(&y32.matmul(&y32.t()?)?.to_dtype(DType::BF16)?)?;
            let next = (&gram * b + &gram.matmul(&gram)? * c).eval()?;
            let next = wide(&next.to_dtype(DType::BF16)?)?;
            y = (&y32 * a + &next.matmul(&y32)?)
                .eval()?
                .to_dtype(DType::BF16)?;
        }
        if tall { y.t() } else { Ok(y) }
    }
}
