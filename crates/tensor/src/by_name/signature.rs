//! Reads a row's signature: names, types and defaults of parameters.

use super::Value;

/// The type of a parameter, as a signature writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `Tensor`.
    Tensor,
    /// `Tensor[]`: a list of tensors.
    Tensors,
    /// `Operand`: a tensor or a number.
    Operand,
    /// `Number`: a truth value, a whole or a floating number.
    Number,
    /// `float`: a number, as f64.
    Float,
    /// `int`.
    Int,
    /// `int[]`: whole numbers, or one that stands for a list of it.
    Ints,
    /// `float[]`: likewise.
    Floats,
    /// `bool`.
    Bool,
    /// `str`.
    Text,
    /// `dtype`: by its PyTorch name.
    DType,
    /// `device`: as in "cuda:1".
    Device,
    /// `any`: of several types, as the op documents it.
    Any,
}

impl Kind {
    /// The type as a signature writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Tensor => "Tensor",
            Kind::Tensors => "Tensor[]",
            Kind::Operand => "Operand",
            Kind::Number => "Number",
            Kind::Float => "float",
            Kind::Int => "int",
            Kind::Ints => "int[]",
            Kind::Floats => "float[]",
            Kind::Bool => "bool",
            Kind::Text => "str",
            Kind::DType => "dtype",
            Kind::Device => "device",
            Kind::Any => "any",
        }
    }

    const ALL: [Kind; 13] = [
        Kind::Tensor,
        Kind::Tensors,
        Kind::Operand,
        Kind::Number,
        Kind::Float,
        Kind::Int,
        Kind::Ints,
        Kind::Floats,
        Kind::Bool,
        Kind::Text,
        Kind::DType,
        Kind::Device,
        Kind::Any,
    ];

    /// Whether an argument is of this type.
    pub(super) fn takes(self, value: &Value) -> bool {
        let all = |value: &Value, takes: fn(&Value) -> bool| {
            takes(value) || value.items().is_some_and(|items| items.iter().all(takes))
        };
        match self {
            Kind::Tensor => value.tensor().is_some(),
            Kind::Tensors => value
                .items()
                .is_some_and(|items| items.iter().all(|item| item.tensor().is_some())),
            Kind::Operand => value.tensor().is_some() || value.number().is_some(),
            Kind::Number => value.number().is_some(),
            Kind::Float => matches!(value, Value::Int(_) | Value::Float(_)),
            Kind::Int => matches!(value, Value::Int(_)),
            Kind::Ints => all(value, |value| matches!(value, Value::Int(_))),
            Kind::Floats => all(value, |value| {
                matches!(value, Value::Int(_) | Value::Float(_))
            }),
            Kind::Bool => matches!(value, Value::Bool(_)),
            Kind::Text | Kind::DType | Kind::Device => matches!(value, Value::Text(_)),
            Kind::Any => true,
        }
    }
}

/// A parameter of an op.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// PyTorch's name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whether None may be given.
    pub optional: bool,
    /// What holds when it is not given; without it, it must be.
    pub default: Option<Value>,
}

/// The name and the parameters that a signature states.
///
/// # Panics
/// If the signature is malformed: it is written in this crate.
pub(super) fn parse(signature: &'static str) -> (&'static str, Vec<Parameter>) {
    let Some((name, rest)) = signature.split_once('(') else {
        panic!("{signature}: a signature is a name and parameters in parentheses");
    };
    let Some(inside) = rest.strip_suffix(')') else {
        panic!("{signature}: a signature ends with a parenthesis");
    };
    let parts = commas(inside).into_iter().map(str::trim);
    let parameters = parts
        .filter(|part| !part.is_empty() && *part != "*")
        .map(|part| {
            parameter(part).unwrap_or_else(|| panic!("{signature}: \"{part}\" is no parameter"))
        })
        .collect();
    (name, parameters)
}

/// Parts at commas that stand in no brackets.
fn commas(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (place, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parameter(text: &'static str) -> Option<Parameter> {
    let (kind, rest) = text.split_once(' ')?;
    let (kind, optional) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
    let (name, default) = match rest.split_once('=') {
        Some((name, default)) => (name, Some(literal(default)?)),
        None => (rest, None),
    };
    Some(Parameter {
        name,
        kind,
        optional: optional || matches!(default, Some(Value::None)),
        default,
    })
}

/// A default as Python writes it.
pub(super) fn literal(text: &str) -> Option<Value> {
    if let Some(inside) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        let items = inside.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty()).map(literal);
        return Some(Value::List(items.collect::<Option<_>>()?));
    }
    if let Some(inside) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    {
        return Some(Value::Text(inside.to_owned()));
    }
    Some(match text {
        "None" => Value::None,
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        number => match number.parse() {
            Ok(whole) => Value::Int(whole),
            Err(_) => Value::Float(number.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read() {
        let (name, parameters) = parse(
            "linalg.norm(Tensor input, float? ord=None, int[] dim=[0, 1], *, str mode=\"a\", Number alpha=1)",
        );
        assert_eq!(name, "linalg.norm");
        let told: Vec<String> = parameters
            .iter()
            .map(|parameter| {
                let default = parameter.default.as_ref().map(Value::to_string);
                format!(
                    "{} {}{} {default:?}",
                    parameter.name,
                    parameter.kind.name(),
                    if parameter.optional { "?" } else { "" }
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "input Tensor None",
                "ord float? Some(\"None\")",
                "dim int[] Some(\"[0, 1]\")",
                "mode str Some(\"\\\"a\\\"\")",
                "alpha Number Some(\"1\")"
            ]
        );
    }

    #[test]
    fn kinds_take_what_python_would_pass() {
        assert!(Kind::Ints.takes(&3.into()) && Kind::Ints.takes(&vec![3, 4].into()));
        assert!(!Kind::Int.takes(&1.5.into()) && !Kind::Int.takes(&true.into()));
        assert!(Kind::Float.takes(&1.into()) && Kind::Number.takes(&true.into()));
        assert!(!Kind::Tensors.takes(&1.into()) && Kind::Tensors.takes(&Vec::<i64>::new().into()));
    }
}
