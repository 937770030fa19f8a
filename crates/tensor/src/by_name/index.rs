//! Rows of choosing and writing by places.

use fireclay_core::{DType, Result};

use super::{Call, Value, rows};
use crate::ops::scatter_reduce::ScatterReduce;
use crate::ops::search::{Unique, UniqueOptions};
use crate::ops::subscript::Index;
use crate::tensor::Tensor;

rows! {
    "Tensor.__getitem__(Tensor self, any index)" "self=[3,4] index=1" |call| {
        call.tensor("self")?.i(items(call)?)
    }
    "gather(Tensor input, int dim, Tensor index)" "input=[3,4] dim=1 index=index<4[3,2]" |call| {
        call.tensor("input")?.gather(call.dim("dim")?, call.tensor("index")?)
    }
    "take_along_dim(Tensor input, Tensor indices, int? dim=None)" "input=[3,4] indices=index<4[3,2] dim=1" |call| {
        call.tensor("input")?.take_along_dim(call.tensor("indices")?, call.maybe_dim("dim")?)
    }
    "take(Tensor input, Tensor index)" "input=[3,4] index=index<12[2,3]" |call| {
        call.tensor("input")?.take(call.tensor("index")?)
    }
    "index_select(Tensor input, int dim, Tensor index)" "input=[3,4] dim=1 index=index<4[3]" |call| {
        call.tensor("input")?.index_select(call.dim("dim")?, call.tensor("index")?)
    }
    "scatter_add(Tensor input, int dim, Tensor index, Tensor src)" "input=[3,4] dim=1 index=index<4[3,2] src=[3,2]" |call| {
        call.tensor("input")?.scatter_add(call.dim("dim")?, call.tensor("index")?, call.tensor("src")?)
    }
    "scatter(Tensor input, int dim, Tensor index, Tensor? src=None, Number? value=None)" "input=[3,4] dim=0 index=index<3[1,4] src=[1,4]" |call| {
        let (x, dim, index) = (call.tensor("input")?, call.dim("dim")?, call.tensor("index")?);
        match call.maybe_scalar("value")? {
            Some(value) => x.scatter_value(dim, index, value),
            None => x.scatter(dim, index, call.tensor("src")?),
        }
    }
    "scatter_reduce(Tensor input, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)" "input=[3,4] dim=0 index=index<3[5,4] src=[5,4] reduce=\"amax\"" |call| {
        let (dim, index) = (call.dim("dim")?, call.tensor("index")?);
        let (source, reduce) = (call.tensor("src")?, reduction(call)?);
        call.tensor("input")?.scatter_reduce(dim, index, source, reduce, call.flag("include_self"))
    }
    "index_put(Tensor input, Tensor[] indices, Tensor values, bool accumulate=False)" "input=[3,4] indices=(index<3[1],index<4[1]) values=[1]" |call| {
        let (indices, values) = (call.tensors("indices")?, call.tensor("values")?);
        call.tensor("input")?.index_put(&indices, values, call.flag("accumulate"))
    }
    "index_add(Tensor input, int dim, Tensor index, Tensor source, *, Number alpha=1)" "input=[3,4] dim=0 index=index<3[2] source=[2,4]" |call| {
        call.tensor("input")?.index_add(call.dim("dim")?, call.tensor("index")?, &scaled_source(call)?)
    }
    "index_copy(Tensor input, int dim, Tensor index, Tensor source)" "input=[3,4] dim=0 index=index<3[2] source=[2,4]" |call| {
        call.tensor("input")?.index_copy(call.dim("dim")?, call.tensor("index")?, call.tensor("source")?)
    }
    "index_fill(Tensor input, int dim, Tensor index, Operand value)" "input=[3,4] dim=0 index=index<3[2] value=2.5" |call| {
        call.tensor("input")?.index_fill(call.dim("dim")?, call.tensor("index")?, call.operand("value")?)
    }
    "put(Tensor input, Tensor index, Tensor source, bool accumulate=False)" "input=[3,4] index=index<12[5] source=[5] accumulate=True" |call| {
        call.tensor("input")?.put(call.tensor("index")?, call.tensor("source")?, call.flag("accumulate"))
    }
    "masked_fill(Tensor input, Tensor mask, Operand value)" "input=[3,4] mask=bool[4] value=2.5" |call| {
        call.tensor("input")?.masked_fill(call.tensor("mask")?, call.operand("value")?)
    }
    "masked_select(Tensor input, Tensor mask)" "input=[3,4] mask=bool[3,4]" |call| {
        call.tensor("input")?.masked_select(call.tensor("mask")?)
    }
    "masked_scatter(Tensor input, Tensor mask, Tensor source)" "input=[3,4] mask=bool[3,4] source=[12]" |call| {
        call.tensor("input")?.masked_scatter(call.tensor("mask")?, call.tensor("source")?)
    }
    "nonzero(Tensor input, *, bool as_tuple=False)" "input=[3,4]" |call| {
        let x = call.tensor("input")?;
        match call.flag("as_tuple") {
            true => x.nonzero_tuple(),
            false => Ok(vec![x.nonzero()?]),
        }
    }
    "nn.functional.one_hot(Tensor input, int num_classes=-1)" "input=index<4[3] num_classes=4" |call| {
        let classes = match call.int("num_classes")? {
            -1 => None,
            _ => Some(call.size("num_classes")?),
        };
        call.tensor("input")?.one_hot(classes)
    }
    "unique(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)" "input=index<4[9] return_counts=True" |call| {
        call.tensor("input")?.unique_with(unique_options(call)?).map(all_of)
    }
    "unique_consecutive(Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None)" "input=index<2[9] return_counts=True" |call| {
        call.tensor("input")?.unique_consecutive(unique_options(call)?).map(all_of)
    }
    "bincount(Tensor input, Tensor? weights=None, int minlength=0)" "input=index<4[9] minlength=6" |call| {
        call.tensor("input")?.bincount(call.maybe_tensor("weights")?, call.size("minlength")?)
    }
    "searchsorted(Tensor sorted_sequence, Operand input, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)" "sorted_sequence=sorted[4] input=[3,2]" |call| {
        let mut sequence = call.tensor("sorted_sequence")?.clone();
        if let Some(sorter) = call.maybe_tensor("sorter")? {
            sequence = sequence.gather(-1, sorter)?;
        }
        let right = match call.text("side") {
            None => call.flag("right"),
            Some(_) => {
                let right = call.one_of("side", &[("left", false), ("right", true)])?;
                if call.flag("right") && !right {
                    return Err(call.refuse("side=\"left\" contradicts right=True"));
                }
                right
            }
        };
        narrowed(call, &sequence.searchsorted(&values_like(call, &sequence)?, right)?)
    }
    "bucketize(Operand input, Tensor boundaries, *, bool out_int32=False, bool right=False)" "input=[3,2] boundaries=sorted[4]" |call| {
        let boundaries = call.tensor("boundaries")?;
        narrowed(call, &values_like(call, boundaries)?.bucketize(boundaries, call.flag("right"))?)
    }
}

/// The items of an index, as Python passes it: one, or a tuple.
pub(super) fn items(call: &Call<'_>) -> Result<Vec<Index>> {
    let index = match call.given("index") {
        None => return Ok(vec![Index::NewDim]),
        Some(index) => index,
    };
    let items = index.items().unwrap_or(std::slice::from_ref(index));
    let item = |item: &Value| {
        Ok(match item {
            Value::None => Index::NewDim,
            Value::Bool(truth) => Index::Truth(*truth),
            Value::Int(place) => Index::At(*place as isize),
            Value::Ellipsis => Index::Ellipsis,
            Value::Tensor(tensor) => Index::Tensor(tensor.clone()),
            &Value::Slice([start, end, step]) => {
                let [start, end] = [start, end].map(|bound| bound.map(|bound| bound as isize));
                let step = step.unwrap_or(1) as isize;
                Index::Slice { start, end, step }
            }
            Value::List(places) => {
                let places = places.iter().map(|place| match place {
                    Value::Int(place) => Ok(*place),
                    other => {
                        Err(call.refuse(format!("a list of places has whole numbers, got {other}")))
                    }
                });
                Index::List(places.collect::<Result<_>>()?)
            }
            other => return Err(call.refuse(format!("{other} is no index"))),
        })
    };
    items.iter().map(item).collect()
}

/// What is made of elements of one place.
pub(super) fn reduction(call: &Call<'_>) -> Result<ScatterReduce> {
    call.one_of(
        "reduce",
        &[
            ("sum", ScatterReduce::Sum),
            ("prod", ScatterReduce::Prod),
            ("mean", ScatterReduce::Mean),
            ("amax", ScatterReduce::Amax),
            ("amin", ScatterReduce::Amin),
        ],
    )
}

/// `source` times `alpha`.
pub(super) fn scaled_source(call: &Call<'_>) -> Result<Tensor> {
    let (source, alpha) = (call.tensor("source")?, call.scalar("alpha")?);
    match alpha.to_f64() == 1.0 {
        true => Ok(source.clone()),
        false => source.mul(alpha),
    }
}

fn unique_options(call: &Call<'_>) -> Result<UniqueOptions> {
    Ok(UniqueOptions {
        dim: call.maybe_dim("dim")?,
        return_inverse: call.flag("return_inverse"),
        return_counts: call.flag("return_counts"),
    })
}

fn all_of(unique: Unique) -> Vec<Tensor> {
    let Unique {
        values,
        inverse,
        counts,
    } = unique;
    [Some(values), inverse, counts]
        .into_iter()
        .flatten()
        .collect()
}

/// The operand `input`, a number as one of the other's dtype.
fn values_like(call: &Call<'_>, like: &Tensor) -> Result<Tensor> {
    match call.operand("input")? {
        crate::function::Arg::Tensor(tensor) => Ok(tensor.clone()),
        crate::function::Arg::Number(number) => {
            Tensor::full_of(&[], number, like.dtype(), like.device())
        }
    }
}

fn narrowed(call: &Call<'_>, places: &Tensor) -> Result<Tensor> {
    match call.flag("out_int32") {
        true => places.to_dtype(DType::I32),
        false => Ok(places.clone()),
    }
}
