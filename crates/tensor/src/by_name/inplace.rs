//! Rows of what changes its first operand.

use fireclay_core::Scalar;

use super::index::{items, reduction, scaled_source};
use super::rows;
use crate::function::Arg;

rows! {
    "Tensor.neg_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.neg_() }
    "Tensor.abs_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.abs_() }
    "Tensor.exp_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.exp_() }
    "Tensor.sqrt_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.sqrt_() }
    "Tensor.relu_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.relu_() }
    "Tensor.sigmoid_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.sigmoid_() }
    "Tensor.tanh_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.tanh_() }
    "Tensor.zero_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.zero_() }
    "Tensor.rsqrt_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.rsqrt_() }
    "Tensor.reciprocal_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.reciprocal_() }
    "Tensor.log_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.log_() }
    "Tensor.sin_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.sin_() }
    "Tensor.floor_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.floor_() }
    "Tensor.round_(Tensor self, *, int decimals=0)" "self=[3,4]" |call| {
        match call.int("decimals")? {
            0 => call.tensor("self")?.round_(),
            _ => Err(call.not_built("decimals in place")),
        }
    }
    "Tensor.add_(Tensor self, Operand other, *, Number alpha=1)" "self=[3,4] other=positive[4] alpha=2" |call| {
        let (x, other) = (call.tensor("self")?, call.operand("other")?);
        match call.scalar("alpha")? {
            Scalar::I64(1) => x.add_(other),
            alpha => x.add_scaled_(other, alpha),
        }
    }
    "Tensor.sub_(Tensor self, Operand other, *, Number alpha=1)" "self=[3,4] other=positive[4] alpha=2" |call| {
        let (x, other) = (call.tensor("self")?, call.operand("other")?);
        match call.scalar("alpha")? {
            Scalar::I64(1) => x.sub_(other),
            alpha => x.sub_scaled_(other, alpha),
        }
    }
    "Tensor.mul_(Tensor self, Operand other)" "self=[3,4] other=[4]" |call| { call.tensor("self")?.mul_(call.operand("other")?) }
    "Tensor.div_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.div_(call.operand("other")?) }
    "Tensor.pow_(Tensor self, Operand exponent)" "self=positive[3,4] exponent=2.0" |call| { call.tensor("self")?.pow_(call.operand("exponent")?) }
    "Tensor.remainder_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.remainder_(call.operand("other")?) }
    "Tensor.floor_divide_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.floor_divide_(call.operand("other")?) }
    "Tensor.logical_and_(Tensor self, Operand other)" "self=[3,4] other=[4]" |call| { call.tensor("self")?.logical_and_(call.operand("other")?) }
    "Tensor.eq_(Tensor self, Operand other)" "self=[3,4] other=[4]" |call| { call.tensor("self")?.eq_(call.operand("other")?) }
    "Tensor.bitwise_and_(Tensor self, Operand other)" "self=int[3,4] other=int[4]" |call| { call.tensor("self")?.bitwise_and_(call.operand("other")?) }
    "Tensor.clamp_(Tensor self, Operand? min=None, Operand? max=None)" "self=[3,4] min=-1.0 max=1.0" |call| {
        let x = call.tensor("self")?;
        match (call.maybe_operand("min")?, call.maybe_operand("max")?) {
            (Some(min), Some(max)) => x.clamp_(min, max),
            (Some(min), None) => x.clamp_min_(min),
            (None, Some(max)) => x.clamp_max_(max),
            (None, None) => Err(call.refuse("of min and max at least one must be given")),
        }
    }
    "Tensor.lerp_(Tensor self, Tensor end, Operand weight)" "self=[3,4] end=[3,4] weight=0.3" |call| {
        call.tensor("self")?.lerp_(call.tensor("end")?, call.operand("weight")?)
    }
    "Tensor.addcmul_(Tensor self, Tensor tensor1, Tensor tensor2, *, Number value=1)" "self=[3,4] tensor1=[3,4] tensor2=[4] value=0.5" |call| {
        call.tensor("self")?.addcmul_(call.tensor("tensor1")?, call.tensor("tensor2")?, call.scalar("value")?)
    }
    "Tensor.addcdiv_(Tensor self, Tensor tensor1, Tensor tensor2, *, Number value=1)" "self=[3,4] tensor1=[3,4] tensor2=positive[4] value=0.5" |call| {
        call.tensor("self")?.addcdiv_(call.tensor("tensor1")?, call.tensor("tensor2")?, call.scalar("value")?)
    }
    "Tensor.addmm_(Tensor self, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1)" "self=[3,5] mat1=[3,4] mat2=[4,5] beta=0.5" |call| {
        let (mat1, mat2) = (call.tensor("mat1")?, call.tensor("mat2")?);
        call.tensor("self")?.addmm_(mat1, mat2, call.scalar("beta")?, call.scalar("alpha")?)
    }
    "Tensor.fill_(Tensor self, Operand value)" "self=[3,4] value=2.5" |call| {
        let x = call.tensor("self")?;
        match call.operand("value")? {
            Arg::Number(value) => x.fill_(value),
            Arg::Tensor(value) if value.ndim() == 0 => x.copy_(value),
            Arg::Tensor(value) => Err(call.refuse(format!(
                "argument value must be a number or a tensor without dimensions, got one of {}", value.shape()
            ))),
        }
    }
    "Tensor.copy_(Tensor self, Tensor other)" "self=[3,4] other=[4]" |call| {
        call.tensor("self")?.copy_(call.tensor("other")?)
    }
    "Tensor.__setitem__(Tensor self, any index, Operand value)" "self=[3,4] index=1 value=[4]" |call| {
        call.tensor("self")?.set(items(call)?, call.operand("value")?)
    }
    "Tensor.masked_fill_(Tensor self, Tensor mask, Operand value)" "self=[3,4] mask=bool[4] value=2.5" |call| {
        call.tensor("self")?.masked_fill_(call.tensor("mask")?, call.operand("value")?)
    }
    "Tensor.masked_scatter_(Tensor self, Tensor mask, Tensor source)" "self=[3,4] mask=bool[3,4] source=[12]" |call| {
        call.tensor("self")?.masked_scatter_(call.tensor("mask")?, call.tensor("source")?)
    }
    "Tensor.cumsum_(Tensor self, int dim)" "self=[3,4] dim=1" |call| {
        call.tensor("self")?.cumsum_(call.dim("dim")?)
    }
    "Tensor.tril_(Tensor self, int diagonal=0)" "self=[3,4]" |call| {
        call.tensor("self")?.tril_(call.dim("diagonal")?)
    }
    "Tensor.triu_(Tensor self, int diagonal=0)" "self=[3,4]" |call| {
        call.tensor("self")?.triu_(call.dim("diagonal")?)
    }
    "Tensor.fill_diagonal_(Tensor self, Number fill_value, bool wrap=False)" "self=[5,2] fill_value=2.5 wrap=True" |call| {
        call.tensor("self")?.fill_diagonal_(call.scalar("fill_value")?, call.flag("wrap"))
    }
    "Tensor.scatter_(Tensor self, int dim, Tensor index, Tensor? src=None, Number? value=None)" "self=[3,4] dim=0 index=index<3[1,4] src=[1,4]" |call| {
        let (x, dim, index) = (call.tensor("self")?, call.dim("dim")?, call.tensor("index")?);
        match call.maybe_scalar("value")? {
            Some(value) => x.scatter_value_(dim, index, value),
            None => x.scatter_(dim, index, call.tensor("src")?),
        }
    }
    "Tensor.scatter_add_(Tensor self, int dim, Tensor index, Tensor src)" "self=[3,4] dim=1 index=index<4[3,2] src=[3,2]" |call| {
        call.tensor("self")?.scatter_add_(call.dim("dim")?, call.tensor("index")?, call.tensor("src")?)
    }
    "Tensor.scatter_reduce_(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)" "self=[3,4] dim=0 index=index<3[5,4] src=[5,4] reduce=\"mean\"" |call| {
        let (dim, index) = (call.dim("dim")?, call.tensor("index")?);
        let (source, reduce) = (call.tensor("src")?, reduction(call)?);
        call.tensor("self")?.scatter_reduce_(dim, index, source, reduce, call.flag("include_self"))
    }
    "Tensor.index_add_(Tensor self, int dim, Tensor index, Tensor source, *, Number alpha=1)" "self=[3,4] dim=0 index=index<3[2] source=[2,4]" |call| {
        call.tensor("self")?.index_add_(call.dim("dim")?, call.tensor("index")?, &scaled_source(call)?)
    }
    "Tensor.index_copy_(Tensor self, int dim, Tensor index, Tensor source)" "self=[3,4] dim=0 index=index<3[2] source=[2,4]" |call| {
        call.tensor("self")?.index_copy_(call.dim("dim")?, call.tensor("index")?, call.tensor("source")?)
    }
    "Tensor.index_fill_(Tensor self, int dim, Tensor index, Operand value)" "self=[3,4] dim=0 index=index<3[2] value=2.5" |call| {
        call.tensor("self")?.index_fill_(call.dim("dim")?, call.tensor("index")?, call.operand("value")?)
    }
    "Tensor.index_put_(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False)" "self=[3,4] indices=(index<3[1],index<4[1]) values=[1]" |call| {
        let (indices, values) = (call.tensors("indices")?, call.tensor("values")?);
        call.tensor("self")?.index_put_(&indices, values, call.flag("accumulate"))
    }
    "Tensor.put_(Tensor self, Tensor index, Tensor source, bool accumulate=False)" "self=[3,4] index=index<12[5] source=[5] accumulate=True" |call| {
        call.tensor("self")?.put_(call.tensor("index")?, call.tensor("source")?, call.flag("accumulate"))
    }
    "Tensor.uniform_(Tensor self, float from=0.0, float to=1.0)" "self=[3,4] from=-2.0 to=3.0" |call| {
        call.tensor("self")?.uniform_(call.float("from")?, call.float("to")?)
    }
    "Tensor.normal_(Tensor self, float mean=0.0, float std=1.0)" "self=[3,4] mean=2.0 std=0.5" |call| {
        call.tensor("self")?.normal_(call.float("mean")?, call.float("std")?)
    }
    "Tensor.bernoulli_(Tensor self, Operand p=0.5)" "self=[3,4] p=0.3" |call| {
        let x = call.tensor("self")?;
        match call.operand("p")? {
            Arg::Number(p) => x.bernoulli_(p.to_f64()),
            Arg::Tensor(p) => {
                let sizes: Vec<isize> = x.shape().iter().map(|&size| size as isize).collect();
                x.copy_(&p.expand(&sizes)?.bernoulli()?)
            }
        }
    }
}
