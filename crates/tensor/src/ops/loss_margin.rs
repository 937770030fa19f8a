//! Losses of margins between scores, rows or classes, and of several labels to a row.

use fireclay_core::{DType, Error, Result, as_one_call};

use super::loss::Reduction;
use super::loss_pointwise::{check_floating, check_one_shape};
use crate::formula::Formula;
use crate::tensor::Tensor;

/// What [`Tensor::triplet_margin_loss`] takes besides the three; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TripletMargin {
    /// By how much the negative should be farther away than the positive.
    pub margin: f64,
    /// Which norm the distances are.
    pub p: f64,
    /// What is added to each difference.
    pub eps: f64,
    /// Whether the negative's distance is the smaller one of those from the anchor and from the positive.
    pub swap: bool,
    /// What becomes of the rows' losses.
    pub reduction: Reduction,
}

impl Default for TripletMargin {
    fn default() -> Self {
        TripletMargin {
            margin: 1.0,
            p: 2.0,
            eps: 1e-6,
            swap: false,
            reduction: Reduction::Mean,
        }
    }
}

/// What [`Tensor::multi_margin_loss`] takes besides scores and targets; PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct MultiMargin<'a> {
    /// The power of each excess: 1 or 2.
    pub p: u32,
    /// By how much the target's score should be larger than the others.
    pub margin: f64,
    /// A factor per class, which counts for the rows of that target.
    pub weight: Option<&'a Tensor>,
    /// What becomes of the rows' losses.
    pub reduction: Reduction,
}

impl Default for MultiMargin<'_> {
    fn default() -> Self {
        MultiMargin {
            p: 1,
            margin: 1.0,
            weight: None,
            reduction: Reduction::Mean,
        }
    }
}

/// The mean of `each` over the last dimension, of size `classes`, reduced over the others, of `rows`.
#[track_caller]
fn by_row(each: &Formula, rows: usize, classes: usize, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => each.eval()?.mean(&[-1], false),
        Reduction::Sum => (each * (1.0 / classes as f64)).sum(),
        Reduction::Mean => (each * (1.0 / (rows as f64 * classes as f64))).sum(),
    }
}

/// Labels as i64, of scores `[n, c]` or `[c]`.
#[track_caller]
fn labels(op: &'static str, scores: &Tensor, target: &Tensor) -> Result<Tensor> {
    check_floating(op, "input", scores)?;
    match target.dtype() {
        DType::I64 | DType::I32 => target.to_dtype(DType::I64),
        dtype => Err(
            Error::dtype(op, format!("expected targets of i64, got {dtype}"))
                .with_operands(|| vec![target.operand("target")])
                .with_hint("targets are class numbers: to_dtype(DType::I64)"),
        ),
    }
}

fn shapes(op: &'static str, expected: &str, tensors: &[(&str, &Tensor)]) -> Error {
    let got: Vec<String> = tensors
        .iter()
        .map(|(_, tensor)| tensor.shape().to_string())
        .collect();
    let what = format!("expected {expected}, got {}", got.join(", "));
    let operands = tensors.iter().map(|(name, tensor)| tensor.operand(*name));
    Error::shape(op, what).with_operands(|| operands.collect())
}

impl Tensor {
    /// Of rows `[n, d]` (or one, `[d]`) and their partners in `other`: `1 - cos` where the target `[n]` (or zero-dim) is 1,
    /// `max(0, cos - margin)` where it is -1, `cos` being the cosine of the angle between the two
    /// (`torch.nn.functional.cosine_embedding_loss`).
    ///
    /// # Errors
    /// For other shapes.
    #[track_caller]
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "cosine_embedding_loss";
        /// PyTorch's, added to each square of a length.
        const EPS: f64 = 1e-12;
        as_one_call(|| {
            check_floating(OP, "input1", self)?;
            if !matches!(target.ndim(), 0 | 1) || self.ndim() != target.ndim() + 1 {
                let tensors = [("input1", self), ("target", target)];
                return Err(shapes(
                    OP,
                    "[n, d] and targets [n], or [d] and []",
                    &tensors,
                ));
            }
            check_one_shape(OP, ["input1", "input2"], [self, other])?;
            if self.shape()[..target.ndim()] != target.shape()[..] {
                let tensors = [("input1", self), ("target", target)];
                return Err(shapes(OP, "a target for each row", &tensors));
            }
            // In f64, or f32 for 16 bits: rows that are almost parallel have a gradient that is a small difference.
            let wide = match self.dtype() {
                DType::F32 | DType::F64 => DType::F64,
                _ => DType::F32,
            };
            let one = Tensor::full_of(&[1], 1.0, wide, self.device())?;
            let (x, y) = (self * Formula::from(&one), other * Formula::from(&one));
            let products = Formula::eval_all(&[&x * &y, &x * &x, &y * &y])?;
            let sum = |place: usize| products[place].sum(&[-1], false);
            let [product, a, b] = [sum(0)?, sum(1)?, sum(2)?];
            let lengths = ((Formula::from(&a) + EPS) * (Formula::from(&b) + EPS)).sqrt();
            let (cosine, t) = (&product / lengths, Formula::from(target));
            let near = t.eq(1.0).where_(1.0 - &cosine, 0.0);
            let apart = t.eq(-1.0).where_((cosine - margin).clamp_min(0.0), 0.0);
            (near + apart).reduced(reduction)?.to_dtype(self.dtype())
        })
    }

    /// `max(0, margin + |anchor - positive| - |anchor - negative|)` of rows of `self`, the anchors, and two others
    /// (`torch.nn.functional.triplet_margin_loss`).
    ///
    /// # Errors
    /// If the margin is not positive, or shapes don't fit.
    #[track_caller]
    pub fn triplet_margin_loss(
        &self,
        positive: &Tensor,
        negative: &Tensor,
        options: TripletMargin,
    ) -> Result<Tensor> {
        const OP: &str = "triplet_margin_loss";
        let TripletMargin {
            margin,
            p,
            eps,
            swap,
            reduction,
        } = options;
        as_one_call(|| {
            if margin.is_nan() || margin <= 0.0 {
                let what = format!("margin must be positive, got {margin}");
                return Err(Error::argument(OP, what));
            }
            check_floating(OP, "anchor", self)?;
            if self.ndim() != positive.ndim() || self.ndim() != negative.ndim() {
                let tensors = [
                    ("anchor", self),
                    ("positive", positive),
                    ("negative", negative),
                ];
                return Err(shapes(OP, "as many dimensions of each", &tensors));
            }
            let near = self.pairwise_distance(positive, p, eps, false)?;
            let far = self.pairwise_distance(negative, p, eps, false)?;
            let mut apart = Formula::from(&far);
            if swap {
                apart = apart.minimum(&positive.pairwise_distance(negative, p, eps, false)?);
            }
            (&near - apart + margin).clamp_min(0.0).reduced(reduction)
        })
    }

    /// The mean over the classes of `max(0, margin - self[target] + self[class])^p`, the target's own left out, of scores
    /// `[n, c]` with targets `[n]` (or `[c]` with one) (`torch.nn.functional.multi_margin_loss`).
    ///
    /// # Errors
    /// For other shapes, another `p` than 1 and 2, and a target that is no class.
    #[track_caller]
    pub fn multi_margin_loss(&self, target: &Tensor, options: MultiMargin<'_>) -> Result<Tensor> {
        const OP: &str = "multi_margin_loss";
        as_one_call(|| {
            if !matches!(options.p, 1 | 2) {
                return Err(Error::argument(
                    OP,
                    format!("p must be 1 or 2, got {}", options.p),
                ));
            }
            let tensors = [("input", self), ("target", target)];
            let (scores, one) = match (&self.shape()[..], target.numel()) {
                (&[_], 1) if target.ndim() <= 1 => (self.unsqueeze(0)?, target.ndim() == 0),
                (&[rows, _], _) if target.shape()[..] == [rows] => (self.clone(), false),
                _ => return Err(shapes(OP, "scores [n, c] and targets [n]", &tensors)),
            };
            let (rows, classes) = (scores.shape()[0], scores.shape()[1]);
            let column = labels(OP, self, target)?.reshape(&[-1, 1])?;
            let own = scores.gather(1, &column)?;
            let excess = ((&scores - &own) + options.margin).relu();
            let mut each = match options.p {
                1 => excess,
                _ => excess.square(),
            };
            if let Some(weight) = options.weight {
                if weight.shape()[..] != [classes] {
                    let what = format!("expected weights [{classes}], got {}", weight.shape());
                    return Err(
                        Error::shape(OP, what).with_operands(|| vec![weight.operand("weight")])
                    );
                }
                let factor = weight.index_select(0, &column.reshape(&[-1])?)?;
                each = each * &factor.unsqueeze(1)?;
            }
            let numbers = Tensor::arange(0i64, classes as i64, 1i64, self.device())?;
            let each = Formula::from(&numbers).eq(&column).where_(0.0, each);
            let loss = by_row(&each, rows, classes, options.reduction)?;
            match one && options.reduction == Reduction::None {
                true => loss.reshape(&[]),
                false => Ok(loss),
            }
        })
    }

    /// Of scores `[n, c]` (or `[c]`) and as many targets, classes up to the first -1 of each row: the sum of
    /// `max(0, 1 - self[target] + self[class])` over the targets and the classes that are none, divided by the number of classes
    /// (`torch.nn.functional.multilabel_margin_loss`).
    ///
    /// On a device each row takes time and, in backward, memory as the square of the number of classes; on the CPU as their
    /// product with the largest number of targets.
    ///
    /// # Errors
    /// For other shapes, and for a target that is no class.
    #[track_caller]
    pub fn multilabel_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const OP: &str = "multilabel_margin_loss";
        as_one_call(|| {
            check_one_shape(OP, ["input", "target"], [self, target])?;
            let target = labels(OP, self, target)?;
            let (scores, target) = match self.ndim() {
                1 => (self.unsqueeze(0)?, target.unsqueeze(0)?),
                2 => (self.clone(), target),
                _ => return Err(shapes(OP, "scores [n, c] or [c]", &[("input", self)])),
            };
            let (rows, classes) = (scores.shape()[0], scores.shape()[1]);
            if rows * classes == 0 {
                return by_row(&(&scores * 0.0), rows, classes, reduction);
            }
            // Up to the first -1.
            let listed = target.ne(-1i64)?.to_dtype(DType::I64)?.cumprod(1)?;
            let count = match self.device().is_cpu() {
                true => listed.sum(&[1], false)?.amax(&[], false)?.item()? as usize,
                false => classes,
            };
            let listed = listed.narrow(1, 0, count)?.ne(0i64)?;
            let safe = listed.where_(&target.narrow(1, 0, count)?, 0i64)?;
            let own = scores.gather(1, &safe)?;
            let none = Tensor::full_of(&[rows, classes], 0i64, DType::I64, self.device())?;
            let marks = none.scatter_add(1, &safe, &listed.to_dtype(DType::I64)?)?;
            let others = marks.eq(0i64)?.unsqueeze(1)?;
            let counted = Formula::from(&listed.unsqueeze(2)?).logical_and(&others);
            let excess = (&scores.unsqueeze(1)? - &own.unsqueeze(2)? + 1.0).relu();
            let each = counted.where_(excess, 0.0);
            let scale = 1.0 / classes as f64;
            match reduction {
                Reduction::Sum => (each * scale).sum(),
                Reduction::Mean => (each * (scale / rows as f64)).sum(),
                Reduction::None => {
                    let losses = (each * scale).eval()?.sum(&[1, 2], false)?;
                    match self.ndim() {
                        1 => losses.reshape(&[]),
                        _ => Ok(losses),
                    }
                }
            }
        })
    }

    /// The mean over the classes, which are the last dimension, of the binary cross entropy of logits with targets of 0 and 1,
    /// each times the class's weight (`torch.nn.functional.multilabel_soft_margin_loss`).
    ///
    /// # Errors
    /// If shapes don't fit.
    #[track_caller]
    pub fn multilabel_soft_margin_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OP: &str = "multilabel_soft_margin_loss";
        as_one_call(|| {
            check_floating(OP, "input", self)?;
            check_one_shape(OP, ["input", "target"], [self, target])?;
            let Some((&classes, lead)) = self.shape().split_last() else {
                return Err(shapes(OP, "logits [.., c]", &[("input", self)]));
            };
            let (x, t) = (Formula::from(self), Formula::from(target));
            let mut each = -(&t * x.logsigmoid() + (1.0 - &t) * (-&x).logsigmoid());
            if let Some(weight) = weight {
                let fits = self.shape().broadcast(weight.shape());
                if fits.as_ref() != Some(self.shape()) {
                    let tensors = [("input", self), ("weight", weight)];
                    return Err(shapes(OP, "weights that broadcast to the input", &tensors));
                }
                each = each * weight;
            }
            by_row(&each, lead.iter().product(), classes, reduction)
        })
    }
}
