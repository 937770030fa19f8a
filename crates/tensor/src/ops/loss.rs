//! Losses: `cross_entropy`, `nll_loss`, `mse_loss`, `l1_loss`, `binary_cross_entropy_with_logits`. The others stand in the files
//! `loss_*`.

use fireclay_core::{Context, DType, Error, Result, Shape, as_one_call};
use fireclay_cpu::softmax;
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{kernel_of, match_float};
use super::row_kernels::{BLOCK_THREADS, computed, fits_a_warp, rows_in_shared};
use crate::autograd::{Backward, is_grad_enabled};
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `loss.cu`.
static KERNELS: Library = fireclay_cuda::library!("loss");

/// What a loss makes of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// All of them.
    None,
    /// Their mean: PyTorch's default.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// What [`Tensor::cross_entropy`] takes besides logits and targets.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// A factor per class.
    pub weight: Option<&'a Tensor>,
    /// Rows of this target count for nothing; PyTorch's default is -100.
    pub ignore_index: i64,
    /// The share of the target that is spread over all classes.
    pub label_smoothing: f64,
    /// What becomes of the rows' losses. The mean is weighted by the targets' weights.
    pub reduction: Reduction,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy {
            weight: None,
            ignore_index: -100,
            label_smoothing: 0.0,
            reduction: Reduction::Mean,
        }
    }
}

impl CrossEntropy<'_> {
    /// Refuses a share that is none, and weights of another number than of classes.
    fn check(&self, classes: usize) -> Result<()> {
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let what = format!(
                "label_smoothing lies between 0 and 1, got {}",
                self.label_smoothing
            );
            return Err(Error::argument("cross_entropy", what));
        }
        match self.weight {
            Some(weight) if weight.shape()[..] != [classes] => {
                let what = format!("expected weights [{classes}], got {}", weight.shape());
                Err(Error::shape("cross_entropy", what)
                    .with_operands(|| vec![weight.operand("weight")]))
            }
            _ => Ok(()),
        }
    }
}

/// Inputs: logits `[n, c]`, targets `[n]`. Outputs: loss; `log(sum(exp(x)))` of each row; how many rows count, one number.
#[derive(Clone, Copy, Debug)]
struct CrossEntropyLoss {
    ignore_index: i64,
    reduction: Reduction,
}

impl Op for CrossEntropyLoss {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (logits, targets, dtype) = (inputs[0].shape(), inputs[1].shape(), inputs[0].dtype);
        if !dtype.is_floating_point() {
            return Err(Error::dtype(
                self.name(),
                format!("expected floating logits, got {dtype}"),
            ));
        }
        if inputs[1].dtype != DType::I64 {
            return Err(Error::dtype(
                self.name(),
                format!("expected targets of i64, got {}", inputs[1].dtype),
            )
            .with_hint("targets are class numbers: to_dtype(DType::I64)"));
        }
        if logits.ndim() != 2 || targets.ndim() != 1 || logits[0] != targets[0] {
            return Err(Error::shape(
                self.name(),
                format!("expected logits [n, c] and targets [n], got {logits} and {targets}"),
            ));
        }
        let rows = Shape::new(&[logits[0]]);
        let statistics = if dtype.is_half() { DType::F32 } else { dtype };
        let loss = if self.reduction == Reduction::None {
            rows.clone()
        } else {
            Shape::scalar()
        };
        Ok(smallvec![
            OutputMeta::contiguous(loss, dtype),
            OutputMeta::contiguous(rows, statistics),
            OutputMeta::contiguous(Shape::scalar(), statistics)
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let classes = call.layout(0).shape()[1];
        let targets = call.input::<i64>(1);
        match_float!(self.name(), call.dtype(0), T => {
            let mut own = Vec::new();
            let loss = call.output::<T>(0);
            let rows: &mut [T] = if self.reduction == Reduction::None {
                &mut *loss
            } else {
                own.resize(targets.len(), 0.0);
                &mut own
            };
            let ignored = Some(self.ignore_index);
            softmax::cross_entropy::<T>(call.input(0), classes, targets, ignored, rows, call.output(1))
                .map_err(|error| self.out_of_range(error.row, error.target, classes))?;
            let count = targets.iter().filter(|&&target| target != self.ignore_index).count() as f64;
            call.output::<T>(2)[0] = count as T;
            if self.reduction != Reduction::None {
                let sum = softmax::total(&own);
                loss[0] = (if self.reduction == Reduction::Mean { sum / count } else { sum }) as T;
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let (rows, classes) = (call.layout(0).shape()[0], call.layout(0).shape()[1]);
        let reduces = self.reduction != Reduction::None;
        // The rows' losses, unless they are the result as they are.
        let own = match reduces || dtype.is_half() {
            true => Some(call.scratch(rows.max(1), computed(dtype))?),
            false => None,
        };
        let losses = (own.as_ref()).map_or(call.output(0), address);
        let (rows64, ignored) = (
            Argument::U64(rows as u64),
            Argument::U64(self.ignore_index as u64),
        );
        let [slot, site] = call.check(1, classes, Some(("ignore_index", self.ignore_index)))?;
        let columns = Argument::U64(classes as u64);
        let (logits, targets) = (call.input(0), call.input(1));
        let head = [logits, targets, losses, call.output(1)];
        if fits_a_warp(classes, dtype) {
            let kernel = kernel_of!(call, dtype, "cross_entropy_rows");
            let mut arguments = head.to_vec();
            arguments.extend([rows64, columns, ignored, slot, site]);
            // SAFETY: the kernel's parameters; each row has a loss and a sum, as the output rule says.
            unsafe { call.launch_rows(&KERNELS, kernel, rows, &arguments)? };
        } else {
            let kernel = kernel_of!(call, dtype, "cross_entropy_blocks");
            let (slots, shared) = rows_in_shared(classes, dtype, 1);
            let mut arguments = head.to_vec();
            arguments.extend([columns, Argument::U32(slots as u32), ignored, slot, site]);
            // SAFETY: as above; there is shared memory for a row if that is said.
            unsafe {
                let shape = [rows, BLOCK_THREADS, shared];
                call.launch_with_shared(&KERNELS, kernel, shape, &arguments)?;
            }
        }
        if !reduces && dtype.is_half() {
            let kernel = kernel_of!(call, dtype, "narrow", [BF16 "bf16", F16 "f16"]);
            // SAFETY: the kernel's parameters; as many losses as rows.
            unsafe {
                let arguments = [losses, call.output(0), rows64];
                call.launch_threads(&KERNELS, kernel, rows, &arguments)?;
            }
        }
        let kernel = kernel_of!(call, dtype, "cross_entropy_total");
        let mean = Argument::U32(u32::from(self.reduction == Reduction::Mean));
        let loss = match reduces {
            true => call.output(0),
            false => Argument::Address(0),
        };
        let arguments = [losses, targets, loss, call.output(2), rows64, ignored, mean];
        // SAFETY: the kernel's parameters, for one block; the loss is written only if it is one number.
        unsafe { call.launch(&KERNELS, kernel, [1, BLOCK_THREADS], &arguments) }
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS.and_outputs(&[1, 2])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let Some(grad) = context.grad(0) else {
            return Ok(smallvec![None, None]);
        };
        let (logits, targets, count) = (context.input(0)?, context.input(1)?, context.output(2)?);
        let grad = if is_grad_enabled() {
            let counted = targets.ne(self.ignore_index)?.unsqueeze(1)?;
            let classes = Tensor::arange(0i64, logits.shape()[1] as i64, 1i64, logits.device())?;
            let hot = targets.unsqueeze(1)?.eq(&classes)?;
            // Ignored rows are chosen zeros: a product of zero and what such a row holds need not be zero. Where no row counts, the
            // mean is not a number, but its gradient is zero.
            let rows = counted.where_(&logits, 0.0)?;
            let scale = match self.reduction {
                Reduction::None => grad.unsqueeze(1)?,
                Reduction::Sum => grad.clone(),
                Reduction::Mean => grad.div(&count.maximum(1.0)?)?,
            };
            let all = (&rows.softmax(1)? - &hot) * &counted.where_(&scale, 0.0)?;
            counted.where_(&all.eval()?, 0.0)?
        } else {
            let log_sums = context.output(1)?;
            dispatch::call_one(
                CrossEntropyGrad(*self),
                &[&logits, &targets, grad, &log_sums, &count],
            )?
        };
        Ok(smallvec![Some(grad), None])
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

impl CrossEntropyLoss {
    fn out_of_range(self, row: usize, target: i64, classes: usize) -> Error {
        Error::IndexOutOfRange {
            op: self.name(),
            index: target,
            position: row,
            dim: 1,
            size: classes,
            context: Context::hint(format!(
                "targets are classes from 0 to {}, or ignore_index ({})",
                classes as i64 - 1,
                self.ignore_index
            )),
        }
    }
}

/// The fused gradient of the logits; inputs: logits, targets, gradient, log sums, count.
#[derive(Clone, Copy, Debug)]
struct CrossEntropyGrad(CrossEntropyLoss);

impl Op for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [rows, classes] = call.layout(0).shape()[..] else {
            unreachable!("logits have two dimensions")
        };
        match_float!(self.name(), call.dtype(0), T => {
            let grad = call.input::<T>(2);
            let scale: Vec<T> = match self.0.reduction {
                Reduction::None => grad.to_vec(),
                Reduction::Sum => vec![grad[0]; rows],
                Reduction::Mean => vec![grad[0] / call.input::<T>(4)[0]; rows],
            };
            let ignored = Some(self.0.ignore_index);
            softmax::cross_entropy_backward::<T>(
                call.input(0), classes, call.input(1), ignored, call.input(3), &scale, call.output(0),
            );
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let (rows, classes) = (call.layout(0).shape()[0], call.layout(0).shape()[1]);
        let kind = match self.0.reduction {
            Reduction::None => 0,
            Reduction::Sum => 1,
            Reduction::Mean => 2,
        };
        let mut arguments: Vec<Argument<'_>> = (0..5).map(|index| call.input(index)).collect();
        arguments.push(call.output(0));
        let [rows64, columns, ignored] =
            [rows as u64, classes as u64, self.0.ignore_index as u64].map(Argument::U64);
        let kind = Argument::U32(kind);
        if fits_a_warp(classes, dtype) {
            let kernel = kernel_of!(call, dtype, "cross_entropy_grad_rows");
            arguments.extend([rows64, columns, ignored, kind]);
            // SAFETY: the kernel's parameters, of the shapes that the loss gave.
            return unsafe { call.launch_rows(&KERNELS, kernel, rows, &arguments) };
        }
        let kernel = kernel_of!(call, dtype, "cross_entropy_grad_blocks");
        let (slots, shared) = rows_in_shared(classes, dtype, 1);
        arguments.extend([columns, Argument::U32(slots as u32), ignored, kind]);
        let shape = [rows, BLOCK_THREADS, shared];
        // SAFETY: as above; there is shared memory for a row if that is said.
        unsafe { call.launch_with_shared(&KERNELS, kernel, shape, &arguments) }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let loss = CrossEntropyLoss {
        ignore_index: -100,
        reduction: Reduction::Mean,
    };
    vec![Box::new(loss), Box::new(CrossEntropyGrad(loss))]
}

impl Tensor {
    /// The cross entropy between these logits `[n, c]` (or `[c]`, or `[n, c, ..]`) and target classes `[n]` (or zero-dim, or
    /// `[n, ..]`) of i64 (`torch.nn.functional.cross_entropy`). Targets of the logits' own shape and a floating dtype are
    /// probabilities of the classes: no row of them is ignored, and the mean is over the rows whatever the weights.
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor, options: CrossEntropy<'_>) -> Result<Tensor> {
        if targets.dtype().is_floating_point() && targets.shape() == self.shape() {
            return as_one_call(|| self.cross_entropy_of_shares(targets, options));
        }
        let context = |error: Error| {
            error.with_operands(|| vec![self.operand("logits"), targets.operand("targets")])
        };
        let (logits, flat) = self.class_rows("cross_entropy", targets).map_err(context)?;
        let loss = if options.weight.is_none() && options.label_smoothing == 0.0 {
            let op = CrossEntropyLoss {
                ignore_index: options.ignore_index,
                reduction: options.reduction,
            };
            dispatch::call(op, &[&logits, &flat])?.remove(0)
        } else {
            logits
                .weighted_cross_entropy(&flat, options)
                .map_err(context)?
        };
        if options.reduction == Reduction::None {
            loss.reshape_to(targets.shape())
        } else {
            Ok(loss)
        }
    }

    /// Cross entropy with probabilities `[n, c, ..]` or `[c]` as targets, in tensor ops.
    #[track_caller]
    fn cross_entropy_of_shares(
        &self,
        targets: &Tensor,
        options: CrossEntropy<'_>,
    ) -> Result<Tensor> {
        if self.ndim() == 0 {
            return Err(Error::shape(
                "cross_entropy",
                "expected logits of at least 1 dimension, got 0",
            )
            .with_operands(|| vec![self.operand("logits"), targets.operand("targets")]));
        }
        let dim = usize::from(self.ndim() > 1);
        let classes = self.shape()[dim];
        options.check(classes)?;
        let smoothing = options.label_smoothing;
        let mut shares = Formula::from(targets);
        if smoothing > 0.0 {
            shares = shares * (1.0 - smoothing) + smoothing / classes.max(1) as f64;
        }
        if let Some(weight) = options.weight {
            let mut shape = vec![1; self.ndim() - dim];
            shape[0] = -1;
            shares = shares * &weight.reshape(&shape)?;
        }
        let each = -(&self.log_softmax(dim as isize)? * shares);
        match options.reduction {
            Reduction::None => each.eval()?.sum(&[dim as isize], false),
            Reduction::Sum => each.sum(),
            Reduction::Mean => {
                let rows = self.numel() as f64 / classes as f64;
                (each * (1.0 / rows)).sum()
            }
        }
    }

    /// Cross entropy with class weights and label smoothing, in tensor ops.
    #[track_caller]
    fn weighted_cross_entropy(
        &self,
        targets: &Tensor,
        options: CrossEntropy<'_>,
    ) -> Result<Tensor> {
        let smoothing = options.label_smoothing;
        let classes = self.shape()[1];
        options.check(classes)?;
        let logs = self.log_softmax(1)?;
        if smoothing == 0.0 {
            return logs.nll_loss(targets, options);
        }
        let each = CrossEntropy {
            reduction: Reduction::None,
            ..options
        };
        let plain = logs.nll_loss(targets, each)?;
        let counted = targets.ne(options.ignore_index)?;
        let spread = match options.weight {
            Some(weight) => logs.mul(weight)?.sum(&[1], false)?,
            None => logs.sum(&[1], false)?,
        };
        let spread = counted.where_(&spread, 0.0)?;
        let losses = &plain * (1.0 - smoothing) - &spread * (smoothing / classes.max(1) as f64);
        match options.reduction {
            Reduction::None => losses.eval(),
            Reduction::Sum => losses.sum(),
            Reduction::Mean => {
                let total = match options.weight {
                    None => counted.sum_all()?,
                    Some(weight) => {
                        let safe = counted.where_(targets, 0i64)?;
                        let factor = weight.index_select(0, &safe)?;
                        counted.where_(&factor, 0.0)?.sum_all()?
                    }
                };
                losses.sum()?.div(&total)
            }
        }
    }

    /// `[n, c, ..]` with targets `[n, ..]` as `[rows, c]` with targets `[rows]`.
    #[track_caller]
    fn class_rows(&self, op: &'static str, targets: &Tensor) -> Result<(Tensor, Tensor)> {
        let fits = match self.ndim() {
            0 => false,
            1 => targets.ndim() == 0,
            _ => {
                let spatial = self.shape()[..1].iter().chain(&self.shape()[2..]);
                spatial.eq(targets.shape().iter())
            }
        };
        if !fits {
            let (scores, targets) = (self.shape(), targets.shape());
            let what = format!(
                "expected scores [n, c, ..] and targets [n, ..], got {scores} and {targets}"
            );
            return Err(Error::shape(op, what)
                .with_hint("targets are class numbers, one per row of scores"));
        }
        let rows = match self.ndim() {
            1 => self.unsqueeze(0)?,
            2 => self.clone(),
            _ => {
                let last = (2..self.ndim() as isize).chain([1]);
                let order: Vec<isize> = [0].into_iter().chain(last).collect();
                let sizes = Shape::new(&[targets.numel(), self.shape()[1]]);
                self.permute(&order)?.reshape_to(&sizes)?
            }
        };
        let flat = targets.reshape_to(&Shape::new(&[targets.numel()]))?;
        Ok((rows, flat))
    }

    /// The negative of the chosen log-probabilities (`torch.nn.functional.nll_loss`), shaped as there. Options
    /// are those of [`cross_entropy`](Tensor::cross_entropy), without smoothing.
    #[track_caller]
    pub fn nll_loss(&self, targets: &Tensor, options: CrossEntropy<'_>) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| vec![self.operand("self"), targets.operand("targets")])
        };
        let shape = targets.shape();
        let (rows, targets) = self.class_rows("nll_loss", targets).map_err(context)?;
        if targets.dtype() != DType::I64 {
            return Err(Error::dtype(
                "nll_loss",
                format!("expected targets of i64, got {}", targets.dtype()),
            ));
        }
        let counted = targets.ne(options.ignore_index)?;
        let safe = counted.where_(&targets, 0i64)?;
        let chosen = rows.gather(1, &safe.unsqueeze(1)?)?.squeeze(1)?;
        // What an ignored row holds, and its gradient, are left out by choice: zero times an infinite number is not zero.
        let chosen = counted.where_(&chosen, 0.0)?;
        let factor = match options.weight {
            Some(weight) => counted.where_(&weight.index_select(0, &safe)?, 0.0)?,
            None => counted.to_dtype(self.dtype())?,
        };
        let losses = counted.where_(&(-(&chosen * &factor)).eval()?, 0.0)?;
        match options.reduction {
            Reduction::None => losses.reshape_to(shape),
            Reduction::Sum => losses.sum_all(),
            Reduction::Mean => losses.sum_all()?.div(&factor.sum_all()?),
        }
    }

    /// The squared distances of two tensors (`torch.nn.functional.mse_loss`).
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        (self - target).square().reduced(reduction)
    }

    /// The absolute distances of two tensors (`torch.nn.functional.l1_loss`).
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        (self - target).abs().reduced(reduction)
    }

    /// Binary cross entropy of logits, without overflow (`torch.nn.functional.binary_cross_entropy_with_logits`): targets lie
    /// between 0 and 1; `weight` scales each element, `pos_weight` the positive part.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if self.shape() != target.shape() {
            return Err(Error::shape(
                "binary_cross_entropy_with_logits",
                format!(
                    "logits and targets must have one shape, got {} and {}",
                    self.shape(),
                    target.shape()
                ),
            )
            .with_operands(|| vec![self.operand("logits"), target.operand("targets")]));
        }
        let x = Formula::from(self);
        let target = Formula::from(target);
        // -(t log s(x) p + (1 - t) log s(-x)), with s the sigmoid.
        let positive = x.logsigmoid();
        let positive = match pos_weight {
            Some(pos_weight) => positive * &target * pos_weight,
            None => positive * &target,
        };
        let mut loss = -(positive + (-&x).logsigmoid() * (1.0 - &target));
        if let Some(weight) = weight {
            loss = loss * weight;
        }
        loss.reduced(reduction)
    }
}

impl Formula {
    /// Computes the formula and reduces it.
    #[track_caller]
    pub fn reduced(&self, reduction: Reduction) -> Result<Tensor> {
        match reduction {
            Reduction::None => self.eval(),
            Reduction::Mean => self.mean(),
            Reduction::Sum => self.sum(),
        }
    }
}
