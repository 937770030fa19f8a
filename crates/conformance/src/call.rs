//! `Call`: the arguments of a case by PyTorch's names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use fireclay_tensor::{Error, Scalar, Tensor};
use serde_json::Value;

use crate::set::Case;

/// Why a call gave no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Fireclay has no such name, argument or form of one.
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

pub(crate) fn unsupported(reason: impl Into<String>) -> Refusal {
    Refusal::Unsupported(reason.into())
}

/// An op's name with its inputs and arguments, which remembers what was read.
pub(crate) struct Call<'a> {
    case: &'a Case,
    tensors: &'a BTreeMap<String, Tensor>,
    read: RefCell<BTreeSet<String>>,
}

type Found<T> = Result<T, Refusal>;

impl<'a> Call<'a> {
    /// The call that `case` describes, with its input tensors by key.
    pub(crate) fn new(case: &'a Case, tensors: &'a BTreeMap<String, Tensor>) -> Call<'a> {
        Call {
            case,
            tensors,
            read: RefCell::default(),
        }
    }

    /// The case.
    pub(crate) fn case(&self) -> &'a Case {
        self.case
    }

    /// What is called: a path under `torch`.
    pub(crate) fn op(&self) -> &'a str {
        &self.case.op
    }

    /// An argument or input that nobody asked for, if there is one.
    pub(crate) fn unread(&self) -> Option<String> {
        let read = self.read.borrow();
        let given = self.names().map(|(name, _)| name);
        let given = given.chain(self.case.entries("args").map(|(name, _)| name));
        given
            .into_iter()
            .find(|&name| !read.contains(name))
            .map(str::to_owned)
    }

    /// The tensor of this short key: the set is read only if it has all that its cases name.
    pub(crate) fn by_key(&self, key: &str) -> &'a Tensor {
        &self.tensors[key]
    }

    /// Says that all arguments and inputs are read.
    pub(crate) fn note_all(&self) {
        self.note_inputs();
        let names = self.case.entries("args").map(|(name, _)| name.to_owned());
        self.read.borrow_mut().extend(names);
    }

    /// Says that all inputs are read, by their keys.
    pub(crate) fn note_inputs(&self) {
        let names = self.names().map(|(name, _)| name.to_owned());
        self.read.borrow_mut().extend(names);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let names = self.case.list("names").iter().filter_map(Value::as_str);
        names.zip(self.case.list("inputs"))
    }

    fn input(&self, name: &str) -> Option<&'a Value> {
        let found = self.names().find(|(given, _)| *given == name);
        found.map(|(_, item)| {
            self.read.borrow_mut().insert(name.to_owned());
            item
        })
    }

    /// The decoded argument `name`; None if it is absent or null.
    pub(crate) fn argument(&self, name: &str) -> Option<&'a Value> {
        let value = self.case.field("args").get(name)?;
        self.read.borrow_mut().insert(name.to_owned());
        Some(value).filter(|value| !value.is_null())
    }

    /// The input tensor `name`.
    pub(crate) fn tensor(&self, name: &str) -> Found<&'a Tensor> {
        self.maybe_tensor(name)?
            .ok_or_else(|| unsupported(format!("{name} is no tensor")))
    }

    /// The input tensor `name`; None if it is absent or null.
    pub(crate) fn maybe_tensor(&self, name: &str) -> Found<Option<&'a Tensor>> {
        match self.input(name) {
            None => {
                // A tensor argument may be given as null.
                let given = self.argument(name);
                match given {
                    None => Ok(None),
                    Some(_) => Err(unsupported(format!("{name} as a number"))),
                }
            }
            Some(Value::Null) => Ok(None),
            Some(Value::String(key)) => Ok(Some(&self.tensors[key])),
            Some(_) => Err(unsupported(format!("{name} as a list"))),
        }
    }

    /// The input list `name`.
    pub(crate) fn tensors(&self, name: &str) -> Found<Vec<&'a Tensor>> {
        match self.input(name) {
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| match item {
                    Value::String(key) => Ok(&self.tensors[key]),
                    _ => Err(unsupported(format!("{name} with nothing in it"))),
                })
                .collect(),
            None => match self.argument(name) {
                Some(Value::Array(items)) if items.is_empty() => Ok(Vec::new()),
                _ => Err(unsupported(format!("no list {name}"))),
            },
            Some(_) => Err(unsupported(format!("{name} is no list"))),
        }
    }

    /// A number or truth value; None if it is absent.
    pub(crate) fn scalar(&self, name: &str) -> Found<Option<Scalar>> {
        self.argument(name)
            .map(|value| decode(name, value))
            .transpose()
    }

    /// A number as f64, or PyTorch's default.
    pub(crate) fn float(&self, name: &str, default: f64) -> Found<f64> {
        Ok(self.scalar(name)?.map_or(default, Scalar::to_f64))
    }

    /// A whole number; None if it is absent.
    pub(crate) fn maybe_int(&self, name: &str) -> Found<Option<i64>> {
        match self.scalar(name)? {
            None => Ok(None),
            Some(Scalar::I64(value)) => Ok(Some(value)),
            Some(other) => Err(Refusal::RuledOut(format!("{name} is {other}"))),
        }
    }

    /// A whole number, or PyTorch's default.
    pub(crate) fn int(&self, name: &str, default: i64) -> Found<i64> {
        Ok(self.maybe_int(name)?.unwrap_or(default))
    }

    /// A whole number that isn't negative.
    pub(crate) fn size(&self, name: &str) -> Found<usize> {
        let value = self
            .maybe_int(name)?
            .ok_or_else(|| unsupported(format!("without {name}")))?;
        to_size(name, value)
    }

    /// A list of whole numbers, or one; None if it is absent.
    pub(crate) fn ints(&self, name: &str) -> Found<Option<Vec<i64>>> {
        let Some(value) = self.argument(name) else {
            return Ok(None);
        };
        let whole = |value: &Value| {
            value
                .as_i64()
                .ok_or_else(|| Refusal::RuledOut(format!("{name} has {value}")))
        };
        match value {
            Value::Array(items) => Ok(Some(items.iter().map(whole).collect::<Found<_>>()?)),
            value => Ok(Some(vec![whole(value)?])),
        }
    }

    /// Sizes that aren't negative.
    pub(crate) fn sizes(&self, name: &str) -> Found<Vec<usize>> {
        let ints = self
            .ints(name)?
            .ok_or_else(|| unsupported(format!("without {name}")))?;
        ints.into_iter().map(|value| to_size(name, value)).collect()
    }

    /// One size for all of `N` dimensions, or one for each; `default` if it is absent or empty.
    pub(crate) fn each<const N: usize>(
        &self,
        name: &str,
        default: [usize; N],
    ) -> Found<[usize; N]> {
        if let Some(Value::String(text)) = self.argument(name) {
            return Err(unsupported(format!("{name}=\"{text}\"")));
        }
        let Some(ints) = self.ints(name)?.filter(|ints| !ints.is_empty()) else {
            return Ok(default);
        };
        let sizes = match *ints {
            [all] => vec![to_size(name, all)?; N],
            _ => (ints.iter())
                .map(|&size| to_size(name, size))
                .collect::<Found<_>>()?,
        };
        let count = sizes.len();
        (sizes.try_into()).map_err(|_| Refusal::RuledOut(format!("{name} has {count} sizes")))
    }

    /// A truth value, or PyTorch's default.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.argument(name)
            .and_then(Value::as_bool)
            .unwrap_or(default)
    }

    /// A text; None if it is absent.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.argument(name).and_then(Value::as_str)
    }
}

fn to_size(name: &str, value: i64) -> Found<usize> {
    usize::try_from(value).map_err(|_| Refusal::RuledOut(format!("{name} has {value}")))
}

fn decode(name: &str, value: &Value) -> Found<Scalar> {
    Ok(match value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Scalar::I64(value),
            None => Scalar::F64(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => match text.as_str() {
            "inf" => Scalar::F64(f64::INFINITY),
            "-inf" => Scalar::F64(f64::NEG_INFINITY),
            "nan" => Scalar::F64(f64::NAN),
            _ => return Err(unsupported(format!("{name}=\"{text}\""))),
        },
        _ => return Err(Refusal::RuledOut(format!("{name} is {value}"))),
    })
}
