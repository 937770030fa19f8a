//! Rows of choosing and writing by places.

use fireclay_core::{DType, Error, Result};

use super::{Call, Value, rows};
use crate::tensor::Tensor;

rows! {
    "Tensor.__getitem__(Tensor self, any index)" "self=[3,4] index=1" |call| { item(call) }
    "gather(Tensor input, int dim, Tensor index)" "input=[3,4] dim=1 index=index<4[3,2]" |call| {
        call.tensor("input")?.gather(call.dim("dim")?, call.tensor("index")?)
    }
    "index_select(Tensor input, int dim, Tensor index)" "input=[3,4] dim=1 index=index<4[3]" |call| {
        call.tensor("input")?.index_select(call.dim("dim")?, call.tensor("index")?)
    }
    "scatter_add(Tensor input, int dim, Tensor index, Tensor src)" "input=[3,4] dim=1 index=index<4[3,2] src=[3,2]" |call| {
        call.tensor("input")?.scatter_add(call.dim("dim")?, call.tensor("index")?, call.tensor("src")?)
    }
    "scatter(Tensor input, int dim, Tensor index, Tensor? src=None, Number? value=None)" "input=[3,4] dim=0 index=index<3[1,4] src=[1,4]" |call| {
        let (x, index) = (call.tensor("input")?, call.tensor("index")?);
        let source = match call.maybe_scalar("value")? {
            Some(value) => Tensor::full_of(index.shape(), value, x.dtype(), x.device())?,
            None => call.tensor("src")?.clone(),
        };
        x.scatter(call.dim("dim")?, index, &source)
    }
    "index_put(Tensor input, Tensor[] indices, Tensor values, bool accumulate=False)" "input=[3,4] indices=(index<3[1],index<4[1]) values=[1]" |call| {
        let indices = call.tensors("indices")?;
        if indices.iter().any(|index| index.dtype() == DType::Bool) {
            return Err(call.not_built("a mask of bools"));
        }
        call.tensor("input")?.index_put(&indices, call.tensor("values")?, call.flag("accumulate"))
    }
    "index_add(Tensor input, int dim, Tensor index, Tensor source)" "input=[3,4] dim=0 index=index<3[2] source=[2,4]" |call| {
        call.tensor("input")?.index_add(call.dim("dim")?, call.tensor("index")?, call.tensor("source")?)
    }
}

/// `x[..]` by numbers, slices, None and the ellipsis.
fn item(call: &Call<'_>) -> Result<Tensor> {
    let (x, index) = (call.tensor("self")?, call.value("index")?);
    let items = index.items().unwrap_or(std::slice::from_ref(index));
    let consumes = |item: &&Value| matches!(item, Value::Int(_) | Value::Slice(_));
    let consumed = items.iter().filter(consumes).count();
    if consumed > x.ndim() {
        return Err(Error::DimOutOfRange {
            op: "select",
            dim: x.ndim() as isize,
            ndim: x.ndim(),
        });
    }
    let (mut result, mut dim) = (x.clone(), 0);
    for item in items {
        match item {
            Value::None => {
                result = result.unsqueeze(dim)?;
                dim += 1;
            }
            Value::Ellipsis => dim += (x.ndim() - consumed) as isize,
            Value::Int(index) => result = result.select(dim, *index as isize)?,
            Value::Slice([start, stop, step]) => {
                let Ok(step) = usize::try_from(step.unwrap_or(1)) else {
                    return Err(call.refuse(format!("a slice's step must be positive, got {item}")));
                };
                let (start, stop) = (start.unwrap_or(0), stop.unwrap_or(i64::MAX));
                result = result.slice(dim, start as isize, stop as isize, step)?;
                dim += 1;
            }
            item => return Err(call.not_built(format!("an index by {item}"))),
        }
    }
    Ok(result)
}
