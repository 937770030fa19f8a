//! `Value`: an argument of a call by name.

use std::fmt;

use fireclay_core::{DType, Scalar};

use crate::function::Arg;
use crate::tensor::Tensor;

/// An argument of [`call`](super::call): what Python would pass.
#[derive(Clone, Debug)]
pub enum Value {
    /// None.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating number.
    Float(f64),
    /// A text, also the name of a dtype or a device.
    Text(String),
    /// A tensor.
    Tensor(Tensor),
    /// A list or a tuple.
    List(Vec<Value>),
    /// `start:stop:step` in an index.
    Slice([Option<i64>; 3]),
    /// `...` in an index.
    Ellipsis,
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<Scalar> {
        match *self {
            Value::Bool(value) => Some(Scalar::Bool(value)),
            Value::Int(value) => Some(Scalar::I64(value)),
            Value::Float(value) => Some(Scalar::F64(value)),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Whether it is None.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }
}

/// As Python writes it; a tensor by dtype and shape.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Tensor(tensor) => write!(f, "a tensor of {}{}", tensor.dtype(), tensor.shape()),
            Value::List(items) => {
                f.write_str("[")?;
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{item}")?;
                }
                f.write_str("]")
            }
            Value::Slice([start, stop, step]) => {
                let part = |part: &Option<i64>| part.map_or(String::new(), |part| part.to_string());
                write!(f, "{}:{}:{}", part(start), part(stop), part(step))
            }
            Value::Ellipsis => f.write_str("..."),
        }
    }
}

impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Value {
        Value::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl From<Arg<'_>> for Value {
    fn from(operand: Arg<'_>) -> Value {
        match operand {
            Arg::Tensor(tensor) => tensor.into(),
            Arg::Number(Scalar::F64(value)) => Value::Float(value),
            Arg::Number(Scalar::I64(value)) => Value::Int(value),
            Arg::Number(Scalar::Bool(value)) => Value::Bool(value),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Value {
        Value::Float(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<DType> for Value {
    fn from(dtype: DType) -> Value {
        Value::Text(dtype.torch_name().to_owned())
    }
}

impl<V: Into<Value>> From<Vec<V>> for Value {
    fn from(items: Vec<V>) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Value {
    fn from(items: [V; N]) -> Value {
        Value::List(items.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}
