//! `scaled_dot_product_attention`: fused forward and backward on host and device, and composed of other ops where those don't reach.

use fireclay_core::{DType, Dims, Error, Layout, Result, Shape};
use fireclay_cpu::attention::{self, Known, Mask, Rows, Sizes};
use smallvec::{SmallVec, smallvec};

use super::attention_cuda::Problem;
use super::float::{match_float, same_float};
use crate::autograd::{Backward, is_grad_enabled};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// The op's name, as in PyTorch.
const NAME: &str = "scaled_dot_product_attention";

/// What [`Tensor::scaled_dot_product_attention`] takes besides query, key and value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention<'a> {
    /// What keeps keys from queries, broadcast to `[.., heads, L, S]`: a bool mask, false where a key is hidden, or a floating one,
    /// which is added to the scores.
    pub attn_mask: Option<&'a Tensor>,
    /// Whether query `i` sees keys up to number `i` only, also where there are more keys than queries. Not together with a mask.
    pub is_causal: bool,
    /// What scores are multiplied by: `1 / sqrt(E)`, unless said.
    pub scale: Option<f64>,
    /// Whether several heads of queries in a row may share one of keys and values.
    pub enable_gqa: bool,
    /// The probability with which a weight is dropped. Other than 0 it takes memory for all weights: the fused kernels don't drop.
    pub dropout_p: f64,
}

/// Inputs: `[batch, heads, L, E]`, `[batch, kv_heads, S, E]`, `[batch, kv_heads, S, Ev]`, maybe a mask `[batch, heads, L, S]`;
/// outputs: the result, and logarithms of sums for the backward pass.
#[derive(Clone, Copy, Debug)]
struct Attend {
    causal: bool,
    scale: f64,
}

impl Op for Attend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(NAME, &inputs[..3])?;
        let (query, value) = (inputs[0].shape(), inputs[2].shape());
        let rows = &query[..3];
        let mut result: Dims = rows.into();
        result.push(value[3]);
        let sums = if dtype.is_half() { DType::F32 } else { dtype };
        Ok(smallvec![
            OutputMeta::contiguous(result.into(), dtype),
            OutputMeta::contiguous(Shape::new(rows), sums)
        ])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Strided
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        match_float!(NAME, call.dtype(0), T => {
            let mask = (call.inputs() > 3).then_some(3);
            let problem = self.problem::<T>(&call, mask);
            attention::attention(&problem, call.output(0), call.output(1)).map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let mask = (call.inputs() > 3).then_some(3);
        self.on_device(&call, mask).forward()
    }

    fn saves(&self) -> Saves {
        Saves::ALL
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; context.inputs()];
        let Some(grad) = context.grad(0) else {
            return Ok(grads);
        };
        let [query, key, value] = [context.input(0)?, context.input(1)?, context.input(2)?];
        let mask = match context.inputs() {
            3 => None,
            _ => Some(context.input(3)?),
        };
        let wants_mask = context.inputs() > 3 && context.needs(3);
        if is_grad_enabled() || wants_mask {
            let [query, key, value, mask] =
                self.composed_grads([&query, &key, &value], mask.as_ref(), grad)?;
            for (place, gradient) in [query, key, value].into_iter().enumerate() {
                grads[place] = Some(gradient);
            }
            if wants_mask {
                grads[3] = Some(mask);
            }
            return Ok(grads);
        }
        let (out, sums) = (context.output(0)?, context.output(1)?);
        let grad = with_rows(grad)?;
        let mut inputs: SmallVec<[&Tensor; 7]> =
            smallvec![&query, &key, &value, &grad, &out, &sums];
        inputs.extend(mask.as_ref());
        let gradients = dispatch::call(AttendGrad(*self), &inputs)?;
        for (place, gradient) in gradients.into_iter().enumerate() {
            grads[place] = Some(gradient);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl Attend {
    /// The problem that a kernel on the host is given; `mask` is the number of the mask's input.
    fn problem<'a, T: Number>(
        &self,
        call: &CpuCall<'a>,
        mask: Option<usize>,
    ) -> attention::Attention<'a, T> {
        let strides = |index: usize| -> [usize; 4] {
            let strides = call.layout(index).strides();
            [strides[0], strides[1], strides[2], strides[3]]
        };
        attention::Attention {
            sizes: sizes(call.layout(0), call.layout(1), call.layout(2)),
            query: rows(call, 0),
            key: rows(call, 1),
            value: rows(call, 2),
            mask: match mask {
                None => Mask::None,
                Some(mask) if call.dtype(mask) == DType::Bool => {
                    Mask::Keep(call.input_strided::<u8>(mask), strides(mask))
                }
                Some(mask) => Mask::Add(call.input_strided::<T>(mask), strides(mask)),
            },
            causal: self.causal,
            scale: T::from_f64(self.scale),
        }
    }

    /// The problem that kernels on a device are given; `mask` is the number of the mask's input.
    fn on_device<'a, 'b>(&self, call: &'a CudaCall<'b>, mask: Option<usize>) -> Problem<'a, 'b> {
        Problem {
            call,
            mask,
            causal: self.causal,
            scale: self.scale,
        }
    }

    /// The weights, `[batch, kv_heads, group, L, S]`, in tensor ops, of operands in that arrangement.
    #[track_caller]
    fn weights(&self, query: &Tensor, key: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let scores = query.matmul(&key.transpose(-2, -1)?)?.mul(self.scale)?;
        let shape = scores.shape().clone();
        let (queries, keys) = (shape[3], shape[4]);
        let hidden = f64::NEG_INFINITY;
        if self.causal {
            let numbers = |count: usize| {
                Tensor::arange(0, count as i64, 1, query.device()).and_then(|x| x.unsqueeze(1))
            };
            let sees = numbers(queries)?.ge(&numbers(keys)?.t()?)?;
            return sees.where_(&scores, hidden)?.softmax(-1);
        }
        let Some(mask) = mask.filter(|_| keys > 0) else {
            return scores.softmax(-1);
        };
        let mask = mask.reshape_to(&shape)?;
        let scores = match mask.dtype() {
            DType::Bool => mask.where_(&scores, hidden)?,
            _ => scores.add(&mask)?,
        };
        // A query that sees nothing has no weights.
        let blind = scores.amax(&[-1], true)?.eq(hidden)?;
        let weights = blind.where_(0.0, &scores)?.softmax(-1)?;
        blind.where_(0.0, &weights)
    }

    /// The gradients of query, key, value and mask in tensor ops, which can be differentiated again.
    #[track_caller]
    fn composed_grads(
        &self,
        [query, key, value]: [&Tensor; 3],
        mask: Option<&Tensor>,
        grad: &Tensor,
    ) -> Result<[Tensor; 4]> {
        let kv_heads = key.shape()[1];
        let [q, g] = [grouped(query, kv_heads)?, grouped(grad, kv_heads)?];
        let [k, v] = [grouped(key, kv_heads)?, grouped(value, kv_heads)?];
        let weights = self.weights(&q, &k, mask)?;
        let of_value = weights.transpose(-2, -1)?.matmul(&g)?;
        let slopes = g.matmul(&v.transpose(-2, -1)?)?;
        let average = slopes.mul(&weights)?.sum(&[-1], true)?;
        let slopes = (&weights * (&slopes - &average)).eval()?;
        let of_query = slopes.matmul(&k)?.mul(self.scale)?;
        let of_key = slopes.transpose(-2, -1)?.matmul(&q)?.mul(self.scale)?;
        let shared =
            |gradient: Tensor, like: &Tensor| gradient.sum(&[2], false)?.to_dtype(like.dtype());
        let mut of_scores: Dims = query.shape()[..3].into();
        of_scores.push(key.shape()[2]);
        Ok([
            of_query
                .reshape_to(query.shape())?
                .to_dtype(query.dtype())?,
            shared(of_key, key)?,
            shared(of_value, value)?,
            slopes.reshape_to(&of_scores.into())?,
        ])
    }
}

/// What kernels on the host compute in.
trait Number: fireclay_cpu::gemm::Float + fireclay_cpu::softmax::Real + fireclay_core::Element {}

impl Number for f32 {}
impl Number for f64 {}

/// `[batch, heads, rows, width]` as `[batch, kv_heads, group, rows, width]`, 16-bit floats widened.
#[track_caller]
fn grouped(tensor: &Tensor, kv_heads: usize) -> Result<Tensor> {
    let shape = tensor.shape();
    let group = shape[1].checked_div(kv_heads).unwrap_or(1);
    let shape = Shape::new(&[shape[0], kv_heads, group, shape[2], shape[3]]);
    let grouped = tensor.reshape_to(&shape)?;
    if grouped.dtype().is_half() {
        return grouped.to_dtype(DType::F32);
    }
    Ok(grouped)
}

pub(super) fn sizes(query: &Layout, key: &Layout, value: &Layout) -> Sizes {
    let (query, key) = (query.shape(), key.shape());
    Sizes {
        batch: query[0],
        heads: query[1],
        kv_heads: key[1],
        queries: query[2],
        keys: key[2],
        width: query[3],
        value_width: value.shape()[3],
    }
}

fn rows<'a, T: fireclay_core::Element>(call: &CpuCall<'a>, index: usize) -> Rows<'a, T> {
    let strides = call.layout(index).strides();
    Rows {
        data: call.input_strided(index),
        batch: strides[0],
        head: strides[1],
        row: strides[2],
    }
}

/// The fused gradient; inputs: query, key, value, gradient, result, logarithms of sums, maybe a mask. Not differentiable itself:
/// `Attend::backward` composes the gradient of tensor ops where that is wanted.
#[derive(Clone, Copy, Debug)]
struct AttendGrad(Attend);

impl Op for AttendGrad {
    fn name(&self) -> &'static str {
        "scaled_dot_product_attention_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let like = |input: &Meta<'_>| OutputMeta::contiguous(input.shape().clone(), input.dtype);
        Ok(inputs[..3].iter().map(like).collect())
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Strided
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        match_float!(self.name(), call.dtype(0), T => {
            let mask = (call.inputs() > 6).then_some(6);
            let problem = self.0.problem::<T>(&call, mask);
            let known = Known {
                grad: rows(&call, 3),
                out: rows(&call, 4),
                log_sums: call.input(5),
            };
            let grads = [call.output(0), call.output(1), call.output(2)];
            attention::attention_backward(&problem, &known, grads).map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let mask = (call.inputs() > 6).then_some(6);
        self.0.on_device(&call, mask).backward()
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let attend = Attend {
        causal: false,
        scale: 1.0,
    };
    vec![Box::new(attend), Box::new(AttendGrad(attend))]
}

/// The tensor, or a copy of it whose rows lie in one piece, as kernels take them.
#[track_caller]
fn with_rows(tensor: &Tensor) -> Result<Tensor> {
    let layout = tensor.layout();
    if layout.shape()[3] <= 1 || layout.strides()[3] == 1 {
        return Ok(tensor.clone());
    }
    tensor.contiguous()
}

impl Tensor {
    /// `softmax(scale * query @ key^T + mask) @ value` by head (`torch.nn.functional.scaled_dot_product_attention`): `self` is the
    /// query `[.., heads, L, E]`, with key `[.., kv_heads, S, E]` and value `[.., kv_heads, S, Ev]` it gives `[.., heads, L, Ev]`.
    ///
    /// The scores are never in memory as a whole, except where the mask wants a gradient, where the gradient is differentiated again, or
    /// with dropout. A query that sees no key gives 0.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: Attention<'_>,
    ) -> Result<Tensor> {
        let operands = || {
            let mut operands = vec![
                self.operand("query"),
                key.operand("key"),
                value.operand("value"),
            ];
            operands.extend(options.attn_mask.map(|mask| mask.operand("attn_mask")));
            operands
        };
        let shaped = Arranged::new(self, key, value, &options)
            .map_err(|error| error.with_operands(operands))?;
        let Arranged {
            query,
            key,
            value,
            mask,
            shape,
        } = shaped;
        let width = query.shape()[3].max(1) as f64;
        let op = Attend {
            causal: options.is_causal,
            scale: options.scale.unwrap_or(1.0 / width.sqrt()),
        };
        if options.dropout_p > 0.0 {
            let kv_heads = key.shape()[1];
            let [q, k] = [grouped(&query, kv_heads)?, grouped(&key, kv_heads)?];
            let weights = op.weights(&q, &k, mask.as_ref())?;
            let dropped = weights.dropout(options.dropout_p, true)?;
            let result = dropped.matmul(&grouped(&value, kv_heads)?)?;
            return result.reshape_to(&shape)?.to_dtype(query.dtype());
        }
        let operands = [with_rows(&query)?, with_rows(&key)?, with_rows(&value)?];
        let mut inputs: SmallVec<[&Tensor; 4]> = operands.iter().collect();
        inputs.extend(mask.as_ref());
        dispatch::call(op, &inputs)?.remove(0).reshape_to(&shape)
    }
}

/// The operands as four-dimensional ones, checked.
struct Arranged {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    /// That of the result.
    shape: Shape,
}

impl Arranged {
    #[track_caller]
    fn new(
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: &Attention<'_>,
    ) -> Result<Arranged> {
        check(query, key, value, options)?;
        let lead = |tensor: &Tensor| -> Dims { tensor.shape()[..tensor.ndim() - 2].into() };
        let leads = [lead(query), lead(key), lead(value)];
        let (batch, heads) = leading(&leads, options.enable_gqa)?;
        let sees = [query.shape()[query.ndim() - 2], key.shape()[key.ndim() - 2]];
        let arranged = |tensor: &Tensor, heads: usize| {
            let tail = &tensor.shape()[tensor.ndim() - 2..];
            let own = lead(tensor).last().copied().unwrap_or(1);
            let repeats = heads.checked_div(own).unwrap_or(1);
            let tensor = if own > 1 && repeats > 1 {
                // Heads that keys have and values haven't: each is repeated.
                repeated(tensor, repeats)?
            } else {
                tensor.clone()
            };
            flat(&tensor, &batch, &[heads, tail[0], tail[1]])
        };
        let mask = match options.attn_mask {
            None => None,
            Some(mask) => {
                let mask = match (mask.dtype(), query.dtype()) {
                    (DType::Bool, _) => mask.clone(),
                    (_, DType::F64) => mask.to_dtype(DType::F64)?,
                    _ => mask.to_dtype(DType::F32)?,
                };
                let mask = flat(&mask, &batch, &[heads[0], sees[0], sees[1]]);
                Some(mask.map_err(|_| does_not_broadcast(options, &batch, heads[0], sees))?)
            }
        };
        let depth = leads.iter().map(|lead| lead.len()).max().unwrap_or(0);
        let mut shape = batch.clone();
        if depth > 0 {
            shape.push(heads[0]);
        }
        shape.extend([sees[0], value.shape()[value.ndim() - 1]]);
        Ok(Arranged {
            query: arranged(query, heads[0])?,
            key: arranged(key, heads[1])?,
            value: arranged(value, heads[1])?,
            mask,
            shape: shape.into(),
        })
    }
}

fn does_not_broadcast(
    options: &Attention<'_>,
    batch: &Dims,
    heads: usize,
    [queries, keys]: [usize; 2],
) -> Error {
    let mut scores = batch.clone();
    scores.extend([heads, queries, keys]);
    let mask = options.attn_mask.map(Tensor::shape);
    let mask = mask.map_or_else(String::new, ToString::to_string);
    let what = format!(
        "attn_mask {mask} does not broadcast to the scores {}",
        Shape::new(&scores)
    );
    Error::shape(NAME, what).with_hint("the last two dimensions are those of queries and keys")
}

/// Checks all but the leading dimensions.
fn check(query: &Tensor, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<()> {
    let all = [query, key, value];
    if all.iter().any(|tensor| tensor.ndim() < 2) {
        let what = "query, key and value need at least two dimensions: [.., heads, L, E], [.., kv_heads, S, E] and \
                    [.., kv_heads, S, Ev]";
        return Err(Error::shape(NAME, what));
    }
    let metas = all.map(|tensor| Meta {
        layout: tensor.layout(),
        dtype: tensor.dtype(),
        device: tensor.device(),
    });
    same_float(NAME, &metas)?;
    let size = |tensor: &Tensor, from_end: usize| tensor.shape()[tensor.ndim() - from_end];
    if size(query, 1) != size(key, 1) {
        let what = format!(
            "query and key have rows of {} and {}, expected equal ones",
            size(query, 1),
            size(key, 1)
        );
        return Err(Error::shape(NAME, what));
    }
    if size(key, 2) != size(value, 2) {
        let what = format!(
            "{} keys have {} values, expected one for each",
            size(key, 2),
            size(value, 2)
        );
        return Err(Error::shape(NAME, what));
    }
    if !(0.0..=1.0).contains(&options.dropout_p) {
        let what = format!(
            "dropout_p is a probability from 0 to 1, got {}",
            options.dropout_p
        );
        return Err(Error::argument(NAME, what));
    }
    let Some(mask) = options.attn_mask else {
        return Ok(());
    };
    if options.is_causal {
        let what = "attn_mask and is_causal exclude each other";
        let hint = "put the causal mask into attn_mask";
        return Err(Error::argument(NAME, what).with_hint(hint));
    }
    let takes = [DType::Bool, DType::F32, query.dtype()];
    if !takes.contains(&mask.dtype()) {
        let what = format!(
            "expected a mask of bool, f32 or {}, got {}",
            query.dtype(),
            mask.dtype()
        );
        return Err(Error::dtype(NAME, what).with_hint("cast it first: to_dtype(DType::Bool)"));
    }
    Ok(())
}

/// The batch dimensions to which those of query, key and value broadcast, and the heads of queries and of keys.
fn leading(leads: &[Dims; 3], grouped: bool) -> Result<(Dims, [usize; 2])> {
    let split = |lead: &Dims| match lead.split_last() {
        None => (Shape::new(&[]), 1),
        Some((&heads, batch)) => (Shape::new(batch), heads),
    };
    let [(query, heads), (key, key_heads), (value, value_heads)] =
        [split(&leads[0]), split(&leads[1]), split(&leads[2])];
    let batch = query
        .broadcast(&key)
        .and_then(|batch| batch.broadcast(&value));
    let batch = batch.ok_or_else(|| {
        let what =
            format!("batch dimensions do not broadcast: query {query}, key {key}, value {value}");
        Error::shape(NAME, what)
    })?;
    let batch: Dims = batch[..].into();
    let divides = |part: usize| part > 0 && heads.is_multiple_of(part);
    if grouped && heads > 0 {
        if !divides(key_heads) || !divides(value_heads) {
            let what = format!(
                "{heads} heads of queries are no multiple of {key_heads} of keys and {value_heads} of values"
            );
            return Err(Error::shape(NAME, what));
        }
        let shared = if key_heads == value_heads {
            key_heads
        } else {
            heads
        };
        return Ok((batch, [heads, shared]));
    }
    let all = [heads, key_heads, value_heads];
    let most = all.into_iter().find(|&heads| heads != 1).unwrap_or(1);
    if all.iter().any(|&heads| heads != 1 && heads != most) {
        let what = format!(
            "heads do not broadcast: {heads} of queries, {key_heads} of keys, {value_heads} of values"
        );
        let hint = "set enable_gqa where several heads of queries share one of keys and values";
        return Err(Error::shape(NAME, what).with_hint(hint));
    }
    let shared = key_heads.max(value_heads);
    let shared = if most == 0 { 0 } else { shared };
    Ok((batch, [most, shared]))
}

/// A tensor `[.., heads, rows, width]` with each head repeated.
#[track_caller]
fn repeated(tensor: &Tensor, repeats: usize) -> Result<Tensor> {
    let shape = tensor.shape();
    let ndim = shape.ndim();
    let mut wide: Dims = shape[..].into();
    wide.insert(ndim - 2, repeats);
    let mut flat: Dims = shape[..].into();
    flat[ndim - 3] *= repeats;
    tensor
        .unsqueeze(-3)?
        .expand_to(&wide.into())?
        .reshape_to(&flat.into())
}

/// A tensor broadcast to `[batch.., tail]`, the batch dimensions flattened to one.
#[track_caller]
fn flat(tensor: &Tensor, batch: &Dims, tail: &[usize; 3]) -> Result<Tensor> {
    let mut full = batch.clone();
    full.extend(tail.iter().copied());
    let expanded = tensor.expand_to(&full.into())?;
    let [heads, rows, width] = *tail;
    expanded.reshape_to(&Shape::new(&[batch.iter().product(), heads, rows, width]))
}
