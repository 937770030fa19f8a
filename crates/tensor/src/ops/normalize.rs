//! Norms made of other ops: `instance_norm`, `local_response_norm`, `normalize`, and what compares rows.

use fireclay_core::{Error, Result, Shape, as_one_call, resolve_dim};

use super::norm::BatchNorm;
use super::pool::{AvgPool, Pool};
use super::taps::shaped;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// The `p`-norm along a dimension; where it is 0 the gradient is too.
#[track_caller]
fn p_norm(x: Formula, p: f64, dim: usize, keepdim: bool) -> Result<Tensor> {
    let dims = [dim as isize];
    let sum = |terms: Formula| terms.eval()?.sum(&dims, keepdim);
    // A sum of 0 is made 1 first, so that nothing infinite comes of the root's derivative there.
    let root = |sum: Tensor, root: fn(&Formula, f64) -> Formula| {
        let sum = Formula::from(&sum);
        let zero = sum.eq(0.0);
        let safe = zero.where_(1.0, &sum);
        zero.where_(0.0, root(&safe, p)).eval()
    };
    match p {
        0.0 => {
            let x = x.eval()?;
            x.ne(0i64)?.to_dtype(x.dtype())?.sum(&dims, keepdim)
        }
        1.0 => sum(x.abs()),
        2.0 => root(sum(x.square())?, |sum, _| sum.sqrt()),
        f64::INFINITY => x.abs().eval()?.amax(&dims, keepdim),
        f64::NEG_INFINITY => x.abs().eval()?.amin(&dims, keepdim),
        _ => root(sum(x.abs().pow(p))?, |sum, p| sum.pow(1.0 / p)),
    }
}

/// What [`Tensor::instance_norm`] takes.
#[derive(Clone, Copy, Debug)]
pub struct InstanceNorm<'a> {
    /// A factor per channel.
    pub weight: Option<&'a Tensor>,
    /// A number per channel to add.
    pub bias: Option<&'a Tensor>,
    /// Running mean and variance per channel: averages over the batch of what each image has. Updated where the input's
    /// statistics are used, used where they aren't.
    pub running: Option<(&'a Tensor, &'a Tensor)>,
    /// Whether each image is normalised by its own statistics.
    pub use_input_stats: bool,
    /// The share of this batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

impl Default for InstanceNorm<'_> {
    fn default() -> Self {
        InstanceNorm {
            weight: None,
            bias: None,
            running: None,
            use_input_stats: true,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

impl Tensor {
    /// Normalises each channel of each image of `[n, c, ..]` (`torch.nn.functional.instance_norm`).
    ///
    /// # Errors
    /// No dimension beside `n` and `c`, parameters or statistics that are not `[c]`, images of one place by their own
    /// statistics, and neither own nor running statistics.
    #[track_caller]
    pub fn instance_norm(&self, options: InstanceNorm<'_>) -> Result<Tensor> {
        const OP: &str = "instance_norm";
        as_one_call(|| {
            let shape = self.shape();
            let operands = || vec![self.operand("input")];
            if shape.ndim() < 3 {
                let what = format!("expected [n, c, ..] of 3 dimensions or more, got {shape}");
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            let InstanceNorm {
                weight,
                bias,
                running,
                use_input_stats,
                momentum,
                eps,
            } = options;
            let (batch, channels) = (shape[0], shape[1]);
            let places: usize = shape[2..].iter().product();
            let all = || {
                let running = running.map(|(mean, variance)| [mean, variance]);
                weight
                    .into_iter()
                    .chain(bias)
                    .chain(running.into_iter().flatten())
            };
            if let Some(wrong) = all().find(|tensor| tensor.shape()[..] != [channels]) {
                let what = format!(
                    "the input has {channels} channels, a parameter or statistic has shape {}",
                    wrong.shape()
                );
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            if !use_input_stats {
                if running.is_none() {
                    let what = "without the input's statistics, running ones must be given";
                    return Err(Error::argument(OP, what).with_operands(operands));
                }
                let training = false;
                let norm = BatchNorm {
                    weight,
                    bias,
                    running,
                    training,
                    momentum,
                    eps,
                };
                return self.batch_norm(norm);
            }
            if places == 1 {
                let what = format!("images of one place have no variance, got {shape}");
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            // Each image's channel is a channel of one image.
            let repeated = |tensor: &Tensor| -> Result<Tensor> {
                shaped(
                    &tensor.expand_to(&Shape::new(&[batch, channels]))?,
                    &[batch * channels],
                )
            };
            let each = |tensor: Option<&Tensor>| tensor.map(repeated).transpose();
            let (weight, bias) = (each(weight)?, each(bias)?);
            let statistics = match running {
                Some((mean, variance)) => Some([
                    repeated(&mean.detach())?.copy()?,
                    repeated(&variance.detach())?.copy()?,
                ]),
                None => None,
            };
            let norm = BatchNorm {
                weight: weight.as_ref(),
                bias: bias.as_ref(),
                running: statistics.as_ref().map(|[mean, variance]| (mean, variance)),
                training: true,
                momentum,
                eps,
            };
            let output = shaped(self, &[1, batch * channels, places])?.batch_norm(norm)?;
            if let (Some((mean, variance)), Some(new)) = (running, &statistics)
                && batch > 0
            {
                for (old, new) in [mean, variance].into_iter().zip(new) {
                    let new = shaped(new, &[batch, channels])?.mean(&[0], false)?;
                    crate::autograd::no_grad(|| old.copy_(&new))?;
                }
            }
            output.reshape_to(shape)
        })
    }

    /// Divides each channel of `[n, c, ..]` by `(k + alpha * mean of squares of the size channels around it)^beta`
    /// (`torch.nn.functional.local_response_norm`).
    #[track_caller]
    pub fn local_response_norm(
        &self,
        size: usize,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> Result<Tensor> {
        const OP: &str = "local_response_norm";
        as_one_call(|| {
            let shape = self.shape();
            if shape.ndim() < 3 || size == 0 {
                let what = format!(
                    "expected [n, c, ..] of 3 dimensions or more and a size of at least 1, got {shape} and {size}"
                );
                return Err(Error::shape(OP, what).with_operands(|| vec![self.operand("input")]));
            }
            if self.numel() == 0 {
                return Ok(self.clone());
            }
            let (batch, channels) = (shape[0], shape[1]);
            let places: usize = shape[2..].iter().product();
            let squares = shaped(&self.square()?, &[batch, channels, places])?;
            let window = AvgPool::new([size, 1]);
            let window = AvgPool {
                window: Pool {
                    stride: [1, 1],
                    padding: [size / 2, 0],
                    ..window.window
                },
                ..window
            };
            let means = squares.avg_pool2d(window)?.narrow(1, 0, channels)?;
            let means = means.reshape_to(shape)?;
            (Formula::from(self) / (Formula::from(&means) * alpha + k).pow(beta)).eval()
        })
    }

    /// Divides by the `p`-norm along `dim`, or by `eps` where that is larger (`torch.nn.functional.normalize`).
    #[track_caller]
    pub fn normalize(&self, p: f64, dim: isize, eps: f64) -> Result<Tensor> {
        as_one_call(|| {
            let dim = resolve_dim("normalize", dim, self.ndim())?;
            if self.ndim() == 0 {
                return shaped(&self.reshape(&[1])?.normalize(p, 0, eps)?, &[]);
            }
            let norm = p_norm(self.into(), p, dim, true)?;
            (Formula::from(self) / Formula::from(&norm).maximum(eps)).eval()
        })
    }

    /// The cosine of the angle between this and `other` along `dim` of their common shape; norms below `eps` count as that
    /// (`torch.nn.functional.cosine_similarity`).
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, dim: isize, eps: f64) -> Result<Tensor> {
        const OP: &str = "cosine_similarity";
        as_one_call(|| {
            let [x, y] = self.with_common_shape(OP, other)?;
            let dim = resolve_dim(OP, dim, x.ndim())?;
            if x.ndim() == 0 {
                let what = "expected tensors of at least 1 dimension, got two of 0";
                return Err(Error::shape(OP, what));
            }
            let [a, b] = [&x, &y].map(|x| p_norm(x.into(), 2.0, dim, true));
            let (a, b) = (Formula::from(&a?), Formula::from(&b?));
            let cosines = (&x / a.maximum(eps)) * (&y / b.maximum(eps));
            cosines.eval()?.sum(&[dim as isize], false)
        })
    }

    /// The `p`-norm along the last dimension of `self - other + eps` (`torch.nn.functional.pairwise_distance`).
    #[track_caller]
    pub fn pairwise_distance(
        &self,
        other: &Tensor,
        p: f64,
        eps: f64,
        keepdim: bool,
    ) -> Result<Tensor> {
        const OP: &str = "pairwise_distance";
        as_one_call(|| {
            let [x, y] = self.with_common_shape(OP, other)?;
            let Some(last) = x.ndim().checked_sub(1) else {
                let what = "expected tensors of at least 1 dimension, got two of 0";
                return Err(Error::shape(OP, what));
            };
            p_norm((&x - &y) + eps, p, last, keepdim)
        })
    }

    /// `x1 weight[o] x2 + bias[o]` for each `o`: `[.., i]` and `[.., j]` with `weight` `[o, i, j]` give `[.., o]`
    /// (`torch.nn.functional.bilinear`).
    #[track_caller]
    pub fn bilinear(
        &self,
        other: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        const OP: &str = "bilinear";
        as_one_call(|| {
            let fail = |what: String| {
                Err(Error::shape(OP, what).with_operands(|| {
                    vec![
                        self.operand("input1"),
                        other.operand("input2"),
                        weight.operand("weight"),
                    ]
                }))
            };
            let &[results, first, second] = &weight.shape()[..] else {
                return fail(format!(
                    "expected a weight [o, i, j], got {}",
                    weight.shape()
                ));
            };
            let (Some((&width, lead)), Some((&other_width, other_lead))) =
                (self.shape().split_last(), other.shape().split_last())
            else {
                return fail("expected inputs of at least 1 dimension".into());
            };
            if lead != other_lead || [width, other_width] != [first, second] {
                return fail(format!(
                    "inputs [.., {first}] and [.., {second}] with equal sizes before fit the weight {}, got {} and {}",
                    weight.shape(),
                    self.shape(),
                    other.shape()
                ));
            }
            if bias.is_some_and(|bias| bias.shape()[..] != [results]) {
                return fail(format!("expected a bias [{results}]"));
            }
            let rows: usize = lead.iter().product();
            let table = shaped(&weight.permute(&[1, 0, 2])?, &[first, results * second])?;
            let parts = shaped(self, &[rows, first])?.matmul(&table)?;
            let parts = shaped(&parts, &[rows, results, second])?;
            let others = shaped(other, &[rows, 1, second])?;
            let mut output = parts.mul(&others)?.sum(&[2], false)?;
            if let Some(bias) = bias {
                output = output.add(bias)?;
            }
            shaped(&output, &[lead, &[results]].concat())
        })
    }

    /// Both tensors in the shape to which they broadcast.
    #[track_caller]
    fn with_common_shape(&self, op: &'static str, other: &Tensor) -> Result<[Tensor; 2]> {
        let Some(shape) = self.shape().broadcast(other.shape()) else {
            let what = format!(
                "shapes do not broadcast, got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape(op, what)
                .with_operands(|| vec![self.operand("x1"), other.operand("x2")]));
        };
        Ok([self.expand_to(&shape)?, other.expand_to(&shape)?])
    }
}
