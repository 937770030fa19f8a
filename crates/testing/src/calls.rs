//! The map from PyTorch's ops to Fireclay's calls, with PyTorch's argument names and defaults.
//!
//! One file per family. What Fireclay lacks (an op, an argument, a form of one) is refused with a reason, which the
//! tests count and print.

mod arguments;
mod creation;
mod elementwise;
mod linalg;
mod loss;
mod nn;
mod reduce;
mod shape;

use fireclay_tensor::{Error, Tensor};

pub use arguments::Call;

/// Why a call gave no answer.
#[derive(Debug)]
pub enum Refusal {
    /// Fireclay has no such op or argument.
    Unsupported(String),
    /// Rust's types have no place for the argument (a negative size).
    RuledOut(String),
    /// The call was made and is an error.
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

/// The outputs of a call.
pub type Answer = Result<Vec<Tensor>, Refusal>;

/// Makes the call. An argument that nothing has read makes it unsupported: none is dropped silently.
pub fn run(call: &Call<'_>) -> Answer {
    let families = [
        creation::run,
        elementwise::run,
        shape::run,
        reduce::run,
        linalg::run,
        nn::run,
        loss::run,
    ];
    let answer = families.iter().find_map(|family| family(call));
    let Some(answer) = answer else {
        return Err(unsupported(format!("no op {}", call.op())));
    };
    match (answer, call.unread()) {
        (Ok(_), Some(name)) => Err(unsupported(format!("argument {name}"))),
        (answer, _) => answer,
    }
}

fn unsupported(reason: impl Into<String>) -> Refusal {
    Refusal::Unsupported(reason.into())
}

/// A call of one output.
fn one(tensor: fireclay_tensor::Result<Tensor>) -> Answer {
    Ok(vec![tensor?])
}
