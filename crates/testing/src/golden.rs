//! Reads a set of golden cases: calls of PyTorch's ops with what PyTorch answers. `golden/FORMAT.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fireclay_tensor::{DType, Device, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

/// The folders of the checked-in sets of ops.
pub fn sets_of_ops() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    ["ops", "attention", "interpolate", "linalg"]
        .map(|set| fixtures.join(set))
        .into()
}

/// A set of cases and the tensors they name.
pub struct Set {
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
    bytes: Vec<u8>,
}

/// One call of one op.
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
    /// # Panics
    /// If a file is missing or malformed: the fixtures are part of the repository.
    pub fn read(folder: &Path) -> Set {
        let path = folder.join("cases.json");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
        let mut document: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let Value::Array(cases) = document["cases"].take() else {
            panic!("{} has no list of cases", path.display());
        };
        let path = folder.join("tensors.safetensors");
        let bytes =
            fs::read(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
        Set {
            cases: cases.into_iter().map(Case::new).collect(),
            bytes,
        }
    }

    /// The set's tensors by `<case id>/<key>`.
    ///
    /// # Panics
    /// If the file is malformed.
    pub fn tensors(&self) -> Stored<'_> {
        self.tensors_on(Device::Cpu)
    }

    /// As [`tensors`](Set::tensors), on a device: calls then run there.
    ///
    /// # Panics
    /// If the file is malformed.
    pub fn tensors_on(&self, device: Device) -> Stored<'_> {
        let tensors = SafeTensors::deserialize(&self.bytes);
        Stored {
            tensors: tensors.expect("tensors.safetensors is malformed"),
            device,
        }
    }
}

impl Case {
    fn new(value: Value) -> Case {
        let Value::Object(fields) = value else {
            panic!("a case is an object, got {value}");
        };
        let text = |name: &str| match &fields[name] {
            Value::String(text) => text.clone(),
            other => panic!("{name} is a text, got {other}"),
        };
        Case {
            id: text("id"),
            family: text("family"),
            op: text("op"),
            fields,
        }
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
    pub fn inputs(&self, stored: &Stored<'_>) -> Inputs {
        let mut inputs = Inputs::default();
        for key in self.input_keys() {
            let store = stored.tensor(&self.id, key);
            let view = &self.field("views")[key];
            let tensor = if view.is_null() {
                store.clone()
            } else {
                let [shape, strides] = ["shape", "strides"].map(|name| sizes(&view[name]));
                let offset = size(&view["offset"]);
                store
                    .as_strided(&shape, &strides, offset)
                    .expect("a view of a golden case lies within its storage")
            };
            inputs.stores.insert(key.into(), store);
            inputs.tensors.insert(key.into(), tensor);
        }
        inputs
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
    /// # Panics
    /// If there is none.
    pub fn tensor(&self, id: &str, key: &str) -> Tensor {
        let name = format!("{id}/{key}");
        let view = self
            .tensors
            .tensor(&name)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let dtype = match view.dtype() {
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
            other => panic!("{name} is of {other:?}"),
        };
        Tensor::from_bytes(view.data(), view.shape(), dtype, self.device)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn collect_keys<'a>(item: &'a Value, keys: &mut Vec<&'a str>) {
    match item {
        Value::String(key) if !keys.contains(&key.as_str()) => keys.push(key),
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

/// A list of sizes.
pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().map(size).collect()
}

fn size(value: &Value) -> usize {
    value.as_u64().expect("a size is a whole number") as usize
}
