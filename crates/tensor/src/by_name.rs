//! Every op by its PyTorch name, with named arguments: the table behind [`call`].
//!
//! A row is PyTorch's signature, an example, and the call. Defaults stand in the signature and nowhere else. From the table
//! come `fireclay ops`, `docs/ops.md` and the generated tests.

mod arguments;
mod creation;
mod elementwise;
mod example;
mod index;
mod inplace;
mod linalg;
mod loss;
mod nn;
mod random;
mod reduce;
mod shape;
mod signature;
mod value;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fireclay_core::{Error, Result, as_one_call};

use crate::op::Outputs;
use crate::tensor::Tensor;

pub use arguments::Call;
pub use signature::{Kind, Parameter};
pub use value::Value;

/// What PyTorch's documentation files an op under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// Factories.
    Creation,
    /// Random numbers.
    Random,
    /// Views, copies, casts, joining.
    Shape,
    /// Choosing and writing by places.
    Index,
    /// Functions of each element.
    Elementwise,
    /// What changes its first operand.
    InPlace,
    /// Sums, extremes, scans, sorting.
    Reduce,
    /// Products and decompositions.
    Linalg,
    /// Layers as functions.
    Nn,
    /// Losses.
    Loss,
}

impl Family {
    /// The family's name, as in the headings of `docs/ops.md`.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Creation => "creation",
            Family::Random => "random",
            Family::Shape => "shape",
            Family::Index => "index",
            Family::Elementwise => "elementwise",
            Family::InPlace => "in place",
            Family::Reduce => "reduce",
            Family::Linalg => "linalg",
            Family::Nn => "nn",
            Family::Loss => "loss",
        }
    }
}

/// A row of the table as the files of rows write it.
pub(crate) struct Row {
    signature: &'static str,
    example: &'static str,
    run: Run,
}

type Run = fn(&Call<'_>) -> Result<Vec<Tensor>>;

/// Declares the rows of a file, each a signature, an example and the call:
///
/// ```text
/// rows! {
///     "cumsum(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| {
///         call.cast_input()?.cumsum(call.dim("dim")?)
///     }
/// }
/// ```
///
/// The types are those of [`Kind`]; a `?` allows None. The call gives a tensor, a pair of tensors or a list of them.
macro_rules! rows {
    ($($signature:literal $example:literal |$call:ident| $body:block)*) => {
        pub(super) const ROWS: &[$crate::by_name::Row] = &[$(
            $crate::by_name::row($signature, $example, |$call| {
                let run = || -> fireclay_core::Result<_> { $body };
                run().map($crate::by_name::Returned::outputs)
            })
        ),*];
    };
}
pub(crate) use rows;

const fn row(signature: &'static str, example: &'static str, run: Run) -> Row {
    Row {
        signature,
        example,
        run,
    }
}

/// What a row's call may give.
pub(crate) trait Returned {
    /// The tensors, in order.
    fn outputs(self) -> Vec<Tensor>;
}

impl Returned for Tensor {
    fn outputs(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Returned for Vec<Tensor> {
    fn outputs(self) -> Vec<Tensor> {
        self
    }
}

impl Returned for Outputs {
    fn outputs(self) -> Vec<Tensor> {
        self.into_vec()
    }
}

impl<const N: usize> Returned for [Tensor; N] {
    fn outputs(self) -> Vec<Tensor> {
        self.into()
    }
}

impl Returned for (Tensor, Tensor) {
    fn outputs(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Returned for (Tensor, Tensor, Tensor) {
    fn outputs(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

/// An op of the table.
#[derive(Debug)]
pub struct Entry {
    /// PyTorch's name: a path under `torch`, as `nn.functional.conv2d` or `Tensor.add_`.
    pub name: &'static str,
    /// What it is filed under.
    pub family: Family,
    /// Name, parameters and their defaults, as in PyTorch's documentation, with types.
    pub signature: &'static str,
    /// The parameters in PyTorch's order.
    pub parameters: Vec<Parameter>,
    /// A call that works, in the language of examples (`docs/ops.md`).
    pub example: &'static str,
    run: Run,
}

impl Entry {
    /// Whether the op changes its first operand.
    pub fn is_in_place(&self) -> bool {
        self.family == Family::InPlace
    }

    /// The parameter of this name; `self` is another name of `input`, or of the first.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.place_of(name).map(|place| &self.parameters[place])
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        let place = |name: &str| self.parameters.iter().position(|known| known.name == name);
        let first = || Some(0).filter(|_| !self.parameters.is_empty());
        match (place(name), name) {
            (None, "self") => place("input").or_else(first),
            (place, _) => place,
        }
    }

    /// Calls the op; see [`call`].
    #[track_caller]
    pub fn call(&self, arguments: &[(&str, Value)]) -> Result<Vec<Tensor>> {
        let call = Call::new(self, arguments)?;
        as_one_call(|| (self.run)(&call))
    }
}

struct Table {
    entries: Vec<Entry>,
    by_name: BTreeMap<&'static str, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families: [(Family, &'static [Row]); 10] = [
        (Family::Creation, creation::ROWS),
        (Family::Random, random::ROWS),
        (Family::Shape, shape::ROWS),
        (Family::Index, index::ROWS),
        (Family::Elementwise, elementwise::ROWS),
        (Family::InPlace, inplace::ROWS),
        (Family::Reduce, reduce::ROWS),
        (Family::Linalg, linalg::ROWS),
        (Family::Nn, nn::ROWS),
        (Family::Loss, loss::ROWS),
    ];
    let rows = families
        .into_iter()
        .flat_map(|(family, rows)| rows.iter().map(move |row| (family, row)));
    let entries: Vec<Entry> = rows
        .map(|(family, row)| {
            let (name, parameters) = signature::parse(row.signature);
            Entry {
                name,
                family,
                signature: row.signature,
                parameters,
                example: row.example,
                run: row.run,
            }
        })
        .collect();
    let names = entries.iter().enumerate();
    let by_name = names.map(|(place, entry)| (entry.name, place)).collect();
    Table { entries, by_name }
});

/// Every op that can be called by name, by family.
pub fn entries() -> &'static [Entry] {
    &TABLE.entries
}

/// The op of PyTorch's name `name`: a path under `torch`, with or without `torch.` before it.
pub fn find(name: &str) -> Option<&'static Entry> {
    let name = name.strip_prefix("torch.").unwrap_or(name);
    TABLE.by_name.get(name).map(|&place| &TABLE.entries[place])
}

/// Calls an op by its PyTorch name with named arguments; gives its outputs in order.
///
/// The names are paths under `torch`: `add`, `nn.functional.conv2d`, `linalg.inv`, `Tensor.view`, `Tensor.add_`. The receiver of a
/// method is called `self`. An argument that is absent has PyTorch's default.
///
/// ```
/// use fireclay_tensor::{Tensor, ops};
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], "cpu")?;
/// let y = ops::call("cumsum", &[("input", (&x).into()), ("dim", 0.into())])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [1.0, 3.0, 6.0]);
/// # Ok::<(), fireclay_tensor::Error>(())
/// ```
///
/// # Errors
/// An unknown op or argument, an argument of another type than the signature's, one that is missing, and all that the op itself
/// refuses.
#[track_caller]
pub fn call(name: &str, arguments: &[(&str, Value)]) -> Result<Vec<Tensor>> {
    match find(name) {
        Some(entry) => entry.call(arguments),
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let last = name.rsplit('.').next().unwrap_or(name);
    let like: Vec<&str> = entries()
        .iter()
        .map(|entry| entry.name)
        .filter(|known| known.rsplit('.').next() == Some(last) || known.contains(name))
        .take(5)
        .collect();
    let hint = match like.is_empty() {
        true => "`fireclay ops list` lists all".into(),
        false => format!("is it one of: {}?", like.join(", ")),
    };
    Error::argument("ops::call", format!("there is no op \"{name}\"")).with_hint(hint)
}
