//! A set of cases: calls of PyTorch by name with what PyTorch answers. `docs/cases.md` describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fireclay_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

/// Why a set can't be read.
#[derive(thiserror::Error, Debug)]
pub enum SetError {
    /// A file can't be read.
    #[error("cannot read {path}: {source}\n  a set of cases is a directory with cases.json and tensors.safetensors", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file doesn't have the format.
    #[error("{path}: {what}\n  the format of cases is described in docs/cases.md", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// A set of cases and the tensors they name.
///
/// Once it is read, every key that a case refers to has a tensor of the right kind.
pub struct Set {
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
    bytes: Vec<u8>,
    path: PathBuf,
}

/// One call by name.
#[derive(Debug)]
pub struct Case {
    /// `<op>/<number>`.
    pub id: String,
    /// The kind of op.
    pub family: String,
    /// What is called: a path under `torch`.
    pub op: String,
    /// The other fields.
    pub fields: Map<String, Value>,
}

impl Set {
    /// Reads `cases.json` and `tensors.safetensors` of `folder`.
    ///
    /// # Errors
    /// If a file is missing, or malformed, or a case names a tensor that is not there.
    pub fn read(folder: &Path) -> Result<Set, SetError> {
        let path = folder.join("cases.json");
        let malformed = |path: &Path, what: String| SetError::Malformed {
            path: path.to_owned(),
            what,
        };
        let text = read(&path, |path| fs::read_to_string(path))?;
        let mut document: Value = serde_json::from_str(&text)
            .map_err(|error| malformed(&path, format!("is no JSON: {error}")))?;
        let Some(Value::Array(cases)) = document.get_mut("cases").map(Value::take) else {
            return Err(malformed(&path, "has no list \"cases\"".into()));
        };
        let cases = cases.into_iter().enumerate().map(|(place, value)| {
            Case::new(value).map_err(|what| malformed(&path, format!("case {place}: {what}")))
        });
        let cases: Vec<Case> = cases.collect::<Result<_, _>>()?;
        let tensors_path = folder.join("tensors.safetensors");
        let bytes = read(&tensors_path, |path| fs::read(path))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| {
            malformed(&tensors_path, format!("is no safetensors file: {error}"))
        })?;
        for case in &cases {
            case.check(&tensors)
                .map_err(|what| malformed(&path, format!("case {}: {what}", case.id)))?;
        }
        Ok(Set {
            cases,
            bytes,
            path: tensors_path,
        })
    }

    /// The set's tensors by `<case id>/<key>`, made on `device`: calls then run there.
    ///
    /// # Errors
    /// None of a set that was read.
    pub fn tensors_on(&self, device: Device) -> Result<Stored<'_>, SetError> {
        let tensors =
            SafeTensors::deserialize(&self.bytes).map_err(|error| SetError::Malformed {
                path: self.path.clone(),
                what: error.to_string(),
            })?;
        Ok(Stored { tensors, device })
    }
}

fn read<T>(path: &Path, how: impl Fn(&Path) -> std::io::Result<T>) -> Result<T, SetError> {
    how(path).map_err(|source| SetError::Read {
        path: path.to_owned(),
        source,
    })
}

impl Case {
    fn new(value: Value) -> Result<Case, String> {
        let Value::Object(fields) = value else {
            return Err(format!("is no object but {value}"));
        };
        let text = |name: &str| match fields.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(format!("{name} is a text, got {other}")),
            None => Err(format!("has no {name}")),
        };
        Ok(Case {
            id: text("id")?,
            family: text("family")?,
            op: text("op")?,
            fields,
        })
    }

    /// Whether every key that the case refers to has a tensor, and the views lie within their storage.
    fn check(&self, tensors: &SafeTensors<'_>) -> Result<(), String> {
        let inputs: BTreeSet<&str> = self.input_keys().into_iter().collect();
        let known = |key: &str| -> Result<(), String> {
            let view = tensors.tensor(&format!("{}/{key}", self.id));
            let view = view.map_err(|_| format!("there is no tensor \"{key}\""))?;
            match dtype(view.dtype()) {
                Some(_) => Ok(()),
                None => Err(format!("tensor \"{key}\" is of {:?}", view.dtype())),
            }
        };
        inputs.iter().try_for_each(|key| known(key))?;
        for field in ["expect", "grad_output"] {
            let keys = self.list(field).iter().filter_map(Value::as_str);
            keys.into_iter().try_for_each(known)?;
        }
        let is_input = |field: &str, key: &str| match inputs.contains(key) {
            true => Ok(()),
            false => Err(format!("{field} names \"{key}\", which is no input")),
        };
        for key in self.list("requires_grad") {
            is_input("requires_grad", key.as_str().unwrap_or_default())?;
        }
        for field in [
            "expect_state",
            "expect_inputs",
            "expect_grads",
            "expect_double_grads",
            "double_grad",
        ] {
            for (_, key) in self.entries(field) {
                key.as_str().map_or(Ok(()), known)?;
            }
        }
        for (key, view) in self.entries("views") {
            is_input("views", key)?;
            let list = |name: &str| -> Option<Vec<u64>> {
                let items = view[name].as_array()?.iter();
                items.map(Value::as_u64).collect()
            };
            let (Some(shape), Some(strides), Some(_)) =
                (list("shape"), list("strides"), view["offset"].as_u64())
            else {
                return Err(format!(
                    "the view of \"{key}\" needs shape, strides and offset"
                ));
            };
            if shape.len() != strides.len() {
                return Err(format!(
                    "the view of \"{key}\" has another number of strides"
                ));
            }
        }
        Ok(())
    }

    /// A field, null if it is absent.
    pub fn field(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    /// A list field, empty if it is absent.
    pub fn list(&self, name: &str) -> &[Value] {
        self.field(name).as_array().map_or(&[], Vec::as_slice)
    }

    /// An object field's entries, none if it is absent.
    pub fn entries(&self, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        let object = self.field(name).as_object();
        object
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// A number field, 0 if it is absent.
    pub fn number(&self, name: &str) -> f64 {
        self.field(name).as_f64().unwrap_or(0.0)
    }

    /// Whether the op changes its first operand.
    pub fn writes(&self) -> bool {
        self.op.starts_with("Tensor.")
            && self.op.ends_with('_')
            && (!self.op.ends_with("__") || self.op == "Tensor.__setitem__")
    }

    /// The keys of all input tensors, each once, in order.
    pub fn input_keys(&self) -> Vec<&str> {
        let mut keys = Vec::new();
        collect_keys(self.field("inputs"), &mut keys);
        keys
    }

    /// The case's input tensors as they are stored and as the call gets them.
    ///
    /// # Errors
    /// If a view leaves its storage, or the device has no memory.
    pub fn inputs(&self, stored: &Stored<'_>) -> fireclay_tensor::Result<Inputs> {
        let mut inputs = Inputs::default();
        for key in self.input_keys() {
            let store = stored.tensor(&self.id, key)?;
            let view = &self.field("views")[key];
            let tensor = match view["offset"].as_u64() {
                None => store.clone(),
                Some(offset) => {
                    let [shape, strides] = ["shape", "strides"].map(|name| sizes(&view[name]));
                    store.as_strided(&shape, &strides, offset as usize)?
                }
            };
            inputs.stores.insert(key.into(), store);
            inputs.tensors.insert(key.into(), tensor);
        }
        Ok(inputs)
    }
}

/// The input tensors of a case by their short keys.
#[derive(Default)]
pub struct Inputs {
    /// As they are stored: for a view, its flat storage.
    pub stores: BTreeMap<String, Tensor>,
    /// As the call gets them.
    pub tensors: BTreeMap<String, Tensor>,
}

/// The tensors of a set.
pub struct Stored<'a> {
    tensors: SafeTensors<'a>,
    device: Device,
}

impl Stored<'_> {
    /// The tensor that the case `id` calls `key`.
    ///
    /// # Errors
    /// If there is none, or the device has no memory.
    pub fn tensor(&self, id: &str, key: &str) -> fireclay_tensor::Result<Tensor> {
        let name = format!("{id}/{key}");
        let missing = |what: String| fireclay_tensor::Error::argument("ops check", what);
        let view = self.tensors.tensor(&name);
        let view = view.map_err(|error| missing(format!("{name}: {error}")))?;
        let Some(dtype) = dtype(view.dtype()) else {
            return Err(missing(format!("{name} is of {:?}", view.dtype())));
        };
        Tensor::from_bytes(view.data(), view.shape(), dtype, self.device)
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

fn collect_keys<'a>(item: &'a Value, keys: &mut Vec<&'a str>) {
    match item {
        Value::String(key) if !keys.contains(&key.as_str()) => keys.push(key),
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

/// A list of sizes; what is none is left out.
pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice).iter();
    items
        .filter_map(|size| Some(size.as_u64()? as usize))
        .collect()
}
