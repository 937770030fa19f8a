//! `Call`: the arguments of a call by name, of the types that the signature says.

use std::borrow::Cow;

use fireclay_core::{DType, Device, Error, IntoDevice, Result, Scalar, get_default_device};

use super::{Entry, Value};
use crate::function::Arg;
use crate::ops::loss::Reduction;
use crate::tensor::Tensor;

/// A call of an op with arguments that have its signature's types. Asking for a parameter that the signature lacks, or as another
/// type than it says, is a mistake of the row.
pub struct Call<'a> {
    entry: &'a Entry,
    /// By the place of the parameter.
    values: Vec<Cow<'a, Value>>,
}

impl<'a> Call<'a> {
    /// Checks names and types, and fills in defaults.
    pub(super) fn new(entry: &'a Entry, arguments: &'a [(&str, Value)]) -> Result<Call<'a>> {
        let mut given: Vec<Option<&Value>> = vec![None; entry.parameters.len()];
        for (name, value) in arguments {
            let Some(place) = entry.place_of(name) else {
                let known = entry.parameters.iter();
                let known: Vec<&str> = known.map(|parameter| parameter.name).collect();
                let what = format!(
                    "no argument is called {name}, there are {}",
                    known.join(", ")
                );
                return Err(refuse(entry, what));
            };
            let parameter = &entry.parameters[place];
            if given[place].is_some() {
                return Err(refuse(entry, format!("argument {name} is given twice")));
            }
            let fits = parameter.kind.takes(value) || value.is_none() && parameter.optional;
            if !fits {
                let or_none = if parameter.optional { " or None" } else { "" };
                let what = format!(
                    "argument {} must be of type {}{or_none}, got {value}",
                    parameter.name,
                    parameter.kind.name(),
                );
                return Err(refuse(entry, what));
            }
            given[place] = Some(value);
        }
        let parameters = entry.parameters.iter().zip(given);
        let values = parameters.map(|(parameter, given)| match (given, &parameter.default) {
            (Some(value), _) => Ok(Cow::Borrowed(value)),
            (None, Some(default)) => Ok(Cow::Owned(default.clone())),
            (None, None) => {
                let what = format!("argument {} is missing", parameter.name);
                Err(refuse(entry, what))
            }
        });
        Ok(Call {
            entry,
            values: values.collect::<Result<_>>()?,
        })
    }

    /// PyTorch's name of the op.
    pub fn op(&self) -> &'static str {
        self.entry.name
    }

    /// An argument that can't be taken: `what` is wrong.
    pub fn refuse(&self, what: impl Into<String>) -> Error {
        refuse(self.entry, what.into())
    }

    /// A combination of arguments that is not built.
    pub fn not_built(&self, what: impl std::fmt::Display) -> Error {
        self.refuse(format!("{what} is not built yet"))
    }

    /// The argument `name`, None where it is None.
    pub fn given(&self, name: &str) -> Option<&Value> {
        let mut places = self.entry.parameters.iter();
        let place = places.position(|parameter| parameter.name == name);
        let place = place.unwrap_or_else(|| panic!("{} has no {name}", self.entry.signature));
        Some(&*self.values[place]).filter(|value| !value.is_none())
    }

    fn must<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.refuse(format!("argument {name} must not be None here")))
    }

    fn other_type(&self, name: &str) -> ! {
        unreachable!("{} asks for {name} as another type", self.entry.signature)
    }

    /// The argument, whatever it is.
    pub fn value(&self, name: &str) -> Result<&Value> {
        self.must(name, self.given(name))
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.must(name, self.maybe_tensor(name)?)
    }

    /// A tensor or None.
    pub fn maybe_tensor(&self, name: &str) -> Result<Option<&Tensor>> {
        match self.given(name) {
            None => Ok(None),
            Some(Value::Tensor(tensor)) => Ok(Some(tensor)),
            Some(value) => Err(self.refuse(format!(
                "argument {name} must be a tensor here, got {value}"
            ))),
        }
    }

    /// A list of tensors.
    pub fn tensors(&self, name: &str) -> Result<Vec<&Tensor>> {
        self.must(name, self.maybe_tensors(name)?)
    }

    /// A list of tensors or None.
    pub fn maybe_tensors(&self, name: &str) -> Result<Option<Vec<&Tensor>>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        let items = value.items().unwrap_or_else(|| self.other_type(name));
        Ok(Some(items.iter().filter_map(Value::tensor).collect()))
    }

    /// A tensor or a number.
    pub fn operand(&self, name: &str) -> Result<Arg<'_>> {
        self.must(name, self.maybe_operand(name)?)
    }

    /// A tensor, a number or None.
    pub fn maybe_operand(&self, name: &str) -> Result<Option<Arg<'_>>> {
        Ok(match self.given(name) {
            None => None,
            Some(Value::Tensor(tensor)) => Some(Arg::Tensor(tensor)),
            Some(value) => Some(Arg::Number(
                value.number().unwrap_or_else(|| self.other_type(name)),
            )),
        })
    }

    /// A number.
    pub fn scalar(&self, name: &str) -> Result<Scalar> {
        self.must(name, self.maybe_scalar(name)?)
    }

    /// A number or None.
    pub fn maybe_scalar(&self, name: &str) -> Result<Option<Scalar>> {
        let value = self.given(name);
        Ok(value.map(|value| value.number().unwrap_or_else(|| self.other_type(name))))
    }

    /// A number as f64.
    pub fn float(&self, name: &str) -> Result<f64> {
        Ok(self.scalar(name)?.to_f64())
    }

    /// A number as f64, or None.
    pub fn maybe_float(&self, name: &str) -> Result<Option<f64>> {
        Ok(self.maybe_scalar(name)?.map(Scalar::to_f64))
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Result<i64> {
        self.must(name, self.maybe_int(name)?)
    }

    /// A whole number or None.
    pub fn maybe_int(&self, name: &str) -> Result<Option<i64>> {
        match self.given(name) {
            None => Ok(None),
            Some(&Value::Int(value)) => Ok(Some(value)),
            Some(value) => Err(self.refuse(format!(
                "argument {name} must be a whole number here, got {value}"
            ))),
        }
    }

    /// A dimension, or another number that may be negative.
    pub fn dim(&self, name: &str) -> Result<isize> {
        self.int(name).map(|value| value as isize)
    }

    /// A dimension or None.
    pub fn maybe_dim(&self, name: &str) -> Result<Option<isize>> {
        Ok(self.maybe_int(name)?.map(|value| value as isize))
    }

    /// A whole number that isn't negative.
    pub fn size(&self, name: &str) -> Result<usize> {
        self.to_size(name, self.int(name)?)
    }

    /// A whole number that isn't negative, or None.
    pub fn maybe_size(&self, name: &str) -> Result<Option<usize>> {
        let value = self.maybe_int(name)?;
        value.map(|value| self.to_size(name, value)).transpose()
    }

    fn to_size(&self, name: &str, value: i64) -> Result<usize> {
        usize::try_from(value)
            .map_err(|_| self.refuse(format!("argument {name} must not be negative, got {value}")))
    }

    /// `value`, the argument `name`, as an i32.
    pub fn narrow(&self, name: &str, value: i64) -> Result<i32> {
        i32::try_from(value).map_err(|_| {
            self.refuse(format!(
                "argument {name} must be from {} to {}, got {value}",
                i32::MIN,
                i32::MAX
            ))
        })
    }

    /// Whole numbers, or one as a list of it.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.must(name, self.maybe_ints(name)?)
    }

    /// Whole numbers, one as a list of it, or None.
    pub fn maybe_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        let items = value.items().unwrap_or(std::slice::from_ref(value));
        let whole = |item: &Value| match *item {
            Value::Int(value) => Ok(value),
            _ => Err(self.refuse(format!(
                "argument {name} must be whole numbers here, got {value}"
            ))),
        };
        Ok(Some(items.iter().map(whole).collect::<Result<_>>()?))
    }

    /// Dimensions, or sizes of which one may be -1; None is an empty list.
    pub fn dims(&self, name: &str) -> Result<Vec<isize>> {
        let ints = self.maybe_ints(name)?.unwrap_or_default();
        Ok(ints.into_iter().map(|value| value as isize).collect())
    }

    /// Dimensions or None.
    pub fn maybe_dims(&self, name: &str) -> Result<Option<Vec<isize>>> {
        let ints = self.maybe_ints(name)?;
        Ok(ints.map(|ints| ints.into_iter().map(|value| value as isize).collect()))
    }

    /// Sizes that aren't negative.
    pub fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        let ints = self.ints(name)?.into_iter();
        ints.map(|value| self.to_size(name, value)).collect()
    }

    /// One size for all of `N` dimensions, or one for each; None is None.
    pub fn maybe_sizes_of<const N: usize>(&self, name: &str) -> Result<Option<[usize; N]>> {
        let Some(ints) = self.maybe_ints(name)?.filter(|ints| !ints.is_empty()) else {
            return Ok(None);
        };
        let sizes = ints.iter().map(|&value| self.to_size(name, value));
        let sizes = sizes.collect::<Result<Vec<usize>>>()?;
        match (<[usize; N]>::try_from(&sizes[..]), &sizes[..]) {
            (Ok(sizes), _) => Ok(Some(sizes)),
            (Err(_), &[all]) => Ok(Some([all; N])),
            _ => Err(self.refuse(format!(
                "argument {name} must have 1 or {N} sizes, got {}: {}",
                sizes.len(),
                self.value(name)?
            ))),
        }
    }

    /// One size for all of `N` dimensions, or one for each.
    pub fn sizes_of<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        self.must(name, self.maybe_sizes_of(name)?)
    }

    /// Floating numbers, one as a list of it, or None.
    pub fn maybe_floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        let items = value.items().unwrap_or(std::slice::from_ref(value));
        let numbers = items.iter().filter_map(Value::number).map(Scalar::to_f64);
        Ok(Some(numbers.collect()))
    }

    /// A truth value; None is false.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.given(name), Some(Value::Bool(true)))
    }

    /// A truth value or None.
    pub fn maybe_flag(&self, name: &str) -> Option<bool> {
        match self.given(name) {
            Some(&Value::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// A text or None.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.given(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A text that is one of `known`; gives what stands beside it.
    pub fn one_of<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> Result<T> {
        let text = self.text(name).unwrap_or("None");
        let found = known.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            self.refuse(format!(
                "argument {name} must be one of {}, got {text}",
                words.join(", ")
            ))
        })
    }

    /// A dtype or None.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let text = text.strip_prefix("torch.").unwrap_or(text);
        let known = DType::ALL
            .into_iter()
            .find(|dtype| dtype.torch_name() == text);
        known.map(Some).ok_or_else(|| {
            Error::dtype(
                self.entry.name,
                format!("argument {name} must name a dtype as in \"float32\", got \"{text}\""),
            )
        })
    }

    /// The device that `name` says, or the default one.
    pub fn device(&self, name: &str) -> Result<Device> {
        match self.text(name) {
            None => Ok(get_default_device()),
            Some(text) => text.into_device(),
        }
    }

    /// The tensor `input`, cast first where a `dtype` is given: what PyTorch says that `dtype` does.
    pub fn cast_input(&self) -> Result<Tensor> {
        let input = self.tensor("input")?;
        match self.dtype("dtype")? {
            Some(dtype) => input.to_dtype(dtype),
            None => Ok(input.clone()),
        }
    }

    /// A loss's `reduction`.
    pub fn reduction(&self) -> Result<Reduction> {
        self.one_of(
            "reduction",
            &[
                ("mean", Reduction::Mean),
                ("sum", Reduction::Sum),
                ("none", Reduction::None),
            ],
        )
    }
}

fn refuse(entry: &Entry, what: String) -> Error {
    Error::argument(entry.name, what).with_hint(format!("its signature is {}", entry.signature))
}

/// That an argument of every kind can be asked for is checked by the rows' examples.
#[cfg(test)]
mod tests {
    use super::super::{Kind, call, find};
    use super::*;

    #[test]
    fn wrong_calls_say_what_is_wrong() {
        let x = Tensor::scalar(1.0f32, "cpu").unwrap();
        let told = |arguments: &[(&str, Value)]| call("cumsum", arguments).unwrap_err().to_string();
        let input = || ("input", Value::from(&x));
        assert!(told(&[input()]).contains("argument dim is missing"));
        assert!(told(&[input(), ("dim", "x".into())]).contains("must be of type int, got \"x\""));
        assert!(told(&[input(), ("axis", 0.into())]).contains("no argument is called axis"));
        assert!(told(&[input(), ("self", (&x).into())]).contains("twice"));
        let unknown = call("cumsumm", &[]).unwrap_err().to_string();
        assert!(unknown.contains("cumsumm"), "{unknown}");
        assert!(find("torch.cumsum").is_some_and(|entry| entry.parameter("self").is_some()));
        assert_eq!(Kind::Tensor.name(), "Tensor");
    }
}
