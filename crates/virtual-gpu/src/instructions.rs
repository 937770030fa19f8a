//! Every instruction that can be executed, by family: each family's `decode` turns a form into steps, and its handlers
//! run them. What no family takes is a load error.

pub(crate) mod async_copy;
mod atomic;
pub(crate) mod barrier;
mod bits;
mod compare;
mod control;
mod convert;
#[cfg(test)]
mod exact;
mod float;
mod grammar;
mod half_float;
mod integer;
mod matrix;
mod mbarrier;
mod memory;
pub(crate) mod moves;
pub(crate) mod print;
mod rounding;
#[cfg(test)]
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod trial;
mod warp;

pub(crate) use memory::{Access, load_local};

use crate::decode::{Builder, Form, Refusal};
use crate::exec::code::Class;

/// Decodes one instruction.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    grammar::check(form, builder)?;
    builder.class = Class::Other;
    match form.opcode {
        "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min" | "max"
        | "mul24" | "mad24" | "sad" | "addc" | "subc" | "madc" | "copysign" | "rcp" | "sqrt"
        | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" | "dp4a" | "dp2a" => {
            // The type decides the family.
            let ty = form
                .modifiers
                .iter()
                .rev()
                .find_map(|name| crate::ptx::ast::Type::parse(name));
            match ty {
                Some(ty) if half_float::takes(ty) => half_float::decode(form, builder),
                Some(ty) if float::takes(ty) => float::decode(form, builder),
                _ => integer::decode(form, builder),
            }
        }
        "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "prmt" | "bfe"
        | "bfi" | "bfind" | "brev" | "popc" | "clz" | "fns" | "bmsk" | "szext" => {
            bits::decode(form, builder)
        }
        "setp" | "set" | "selp" | "slct" => compare::decode(form, builder),
        "cvt" => convert::decode(form, builder),
        "mov" | "cvta" | "isspacep" | "mapa" | "getctarank" => moves::decode(form, builder),
        "ld" | "ldu" | "st" | "prefetch" | "prefetchu" | "discard" | "applypriority" => {
            memory::decode(form, builder)
        }
        "atom" | "red" => atomic::decode(form, builder),
        "bra" | "brx" | "ret" | "exit" | "call" | "trap" | "brkpt" | "nanosleep" | "pmevent" => {
            control::decode(form, builder)
        }
        "bar" | "barrier" | "membar" | "fence" => barrier::decode(form, builder),
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => warp::decode(form, builder),
        "mma" | "wmma" | "ldmatrix" | "stmatrix" | "movmatrix" => matrix::decode(form, builder),
        "mbarrier" => mbarrier::decode(form, builder),
        "cp" => async_copy::decode(form, builder),
        other => Err(Refusal::new(format!(
            "the instruction {other} is not supported"
        ))),
    }
}
