//! Tensor core instructions: multiplication of small matrices that are spread over the lanes of a warp, and their loads
//! and stores.
//!
//! # Numbers
//! Products of f16, bf16, tf32 and integers are exact. A sum of floats starts from the element of C and adds the
//! products in ascending order of k, each time rounded to nearest even in f32 (f64 for f64 operands); an f16 result is
//! rounded once at the end. Hardware adds several products at once, with other roundings: results agree up to these.

mod element;
mod multiply;
mod tile;
mod wmma;

use crate::decode::{Builder, Form, Refusal, Value};
use crate::exec::code::Class;
use crate::ptx::ast::{Operand, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Matrix;
    match form.opcode {
        "mma" => multiply::decode(form, builder),
        "wmma" => wmma::decode(form, builder),
        _ => tile::decode(form, builder),
    }
}

/// Takes `.sync.aligned`, which all these instructions have.
fn take_aligned(form: &mut Form<'_>) -> Result<(), Refusal> {
    if form.take("sync") && form.take("aligned") {
        return Ok(());
    }
    Err(Refusal::new(format!("{} is .sync.aligned", form.opcode)))
}

/// The registers of operand `index`: a vector, or one by itself.
fn parts<'f>(form: &Form<'f>, index: usize, count: usize) -> Result<&'f [Operand], Refusal> {
    let operand = form.operands.get(index);
    let operand =
        operand.ok_or_else(|| Refusal::new(format!("operand {} is missing", index + 1)))?;
    let parts = match operand {
        Operand::Vector(parts) => parts.as_slice(),
        single => std::slice::from_ref(single),
    };
    if parts.len() != count {
        let found = parts.len();
        return Err(Refusal::new(format!(
            "operand {} has {found} registers, {count} are expected",
            index + 1
        )));
    }
    Ok(parts)
}

/// Operand `index` as `count` sources of a type.
fn read_parts(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    index: usize,
    count: usize,
    ty: Type,
) -> Result<Vec<Value>, Refusal> {
    parts(form, index, count)?
        .iter()
        .map(|part| builder.source(part, ty))
        .collect()
}

/// Operand `index` as `count` destinations of a type.
fn write_parts(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    index: usize,
    count: usize,
    ty: Type,
) -> Result<Vec<Value>, Refusal> {
    parts(form, index, count)?
        .iter()
        .map(|part| builder.destination(part, ty))
        .collect()
}

#[cfg(test)]
mod products;
#[cfg(test)]
mod tests;
