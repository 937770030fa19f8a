//! Rows of what changes its first operand.

use super::index::{items, reduction, scaled_source};
use super::rows;

rows! {
    "Tensor.neg_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.neg_() }
    "Tensor.abs_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.abs_() }
    "Tensor.exp_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.exp_() }
    "Tensor.sqrt_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.sqrt_() }
    "Tensor.relu_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.relu_() }
    "Tensor.sigmoid_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.sigmoid_() }
    "Tensor.tanh_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.tanh_() }
    "Tensor.zero_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.zero_() }
    "Tensor.add_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.add_(call.operand("other")?) }
    "Tensor.sub_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.sub_(call.operand("other")?) }
    "Tensor.mul_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.mul_(call.operand("other")?) }
    "Tensor.div_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.div_(call.operand("other")?) }
    "Tensor.fill_(Tensor self, Number value)" "self=[3,4] value=2.5" |call| {
        call.tensor("self")?.fill_(call.scalar("value")?)
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
}
