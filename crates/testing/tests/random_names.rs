//! 100,000 calls of ops by name with random arguments: each answers or is an error, none panics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fireclay_tensor::ops::{Entry, Kind, Value, entries};
use fireclay_tensor::{Backpropagation, DType, Device, Result, Tensor};
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::draw::Draw;

const DTYPES: [DType; 11] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::I64,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
    DType::F8E4M3,
];

/// Words that some op knows.
const WORDS: &[&str] = &[
    "mean",
    "sum",
    "none",
    "prod",
    "amax",
    "amin",
    "max",
    "reflect",
    "replicate",
    "circular",
    "constant",
    "zeros",
    "border",
    "reflection",
    "nearest",
    "bilinear",
    "bicubic",
    "linear",
    "area",
    "same",
    "valid",
    "tanh",
    "floor",
    "trunc",
    "ij",
    "xy",
    "left",
    "right",
    "L",
    "U",
    "reduced",
    "complete",
    "r",
    "fro",
    "nuc",
    "lower",
    "midpoint",
    "ij,jk->ik",
    "ii",
    "...a->a",
    "channels_last",
    "contiguous_format",
    "float32",
    "int64",
    "bool",
    "bfloat16",
    "float8_e4m3fn",
    "nonsense",
    "",
];

const FLOATS: [f64; 10] = [
    0.0,
    0.5,
    1.0,
    2.0,
    -2.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e300,
    -1e18,
];

const INTS: [i64; 19] = [
    -1,
    -1,
    0,
    0,
    1,
    1,
    1,
    2,
    2,
    3,
    4,
    -2,
    -3,
    5,
    i64::MAX,
    i64::MIN,
    1 << 62,
    -(1 << 62),
    1 << 33,
];

/// Draws arguments.
struct Arguments {
    draw: Draw,
    device: Device,
}

impl Arguments {
    fn tensor(&mut self) -> Tensor {
        let shape: Vec<usize> = (0..self.draw.below(5))
            .map(|_| *self.draw.choose(&[0, 1, 1, 2, 3, 3, 4]))
            .collect();
        let dtype = *self.draw.choose(&DTYPES);
        let count: usize = shape.iter().product();
        if dtype == DType::F8E4M3 {
            let bytes = vec![0; count];
            return Tensor::from_bytes(&bytes, &shape, dtype, self.device).expect("bytes");
        }
        let numbers: Vec<f64> = (0..count)
            .map(|_| match self.draw.below(40) {
                0 => *self.draw.choose(&FLOATS),
                _ => self.draw.int(-2, 4) as f64 + 0.25 * self.draw.below(3) as f64,
            })
            .collect();
        let made =
            Tensor::from_slice(&numbers, &shape, self.device).and_then(|x| x.to_dtype(dtype));
        let mut made = made.expect("a tensor of a few numbers");
        if self.draw.below(4) == 0 && shape.len() > 1 {
            made = made.transpose(0, 1).expect("two dimensions");
        }
        if dtype.is_floating_point() && self.draw.below(3) == 0 {
            made = made.detach().copy().expect("a copy");
            made = made.requires_grad_(true).expect("a leaf");
        }
        made
    }

    fn list(&mut self, most: usize, item: impl Fn(&mut Self) -> Value) -> Value {
        let count = self.draw.below(most + 1);
        Value::List((0..count).map(|_| item(self)).collect())
    }

    fn value(&mut self, kind: Kind) -> Value {
        match kind {
            Kind::Tensor => self.tensor().into(),
            Kind::Tensors => self.list(3, |of| of.tensor().into()),
            Kind::Operand if self.draw.flip() => self.tensor().into(),
            Kind::Operand | Kind::Number => match self.draw.below(4) {
                0 => self.draw.flip().into(),
                1 => (*self.draw.choose(&INTS)).into(),
                _ => (*self.draw.choose(&FLOATS)).into(),
            },
            Kind::Float => (*self.draw.choose(&FLOATS)).into(),
            Kind::Int => (*self.draw.choose(&INTS)).into(),
            Kind::Ints if self.draw.below(3) == 0 => (*self.draw.choose(&INTS)).into(),
            Kind::Ints => self.list(4, |of| (*of.draw.choose(&INTS)).into()),
            Kind::Floats => self.list(3, |of| (*of.draw.choose(&FLOATS)).into()),
            Kind::Bool => self.draw.flip().into(),
            Kind::Text | Kind::DType => (*self.draw.choose(WORDS)).into(),
            Kind::Device => Value::None,
            Kind::Any => match self.draw.below(4) {
                0 => self.tensor().into(),
                1 => self.value(Kind::Number),
                2 => (*self.draw.choose(WORDS)).into(),
                _ => self.list(4, Self::item),
            },
        }
    }

    /// An item of an index, or of a nested list.
    fn item(&mut self) -> Value {
        let int = |of: &mut Self| *of.draw.choose(&INTS);
        let maybe = |of: &mut Self| of.draw.flip().then(|| int(of));
        match self.draw.below(8) {
            0 => Value::None,
            1 => Value::Ellipsis,
            2 => self.draw.flip().into(),
            3 => Value::Slice([maybe(self), maybe(self), maybe(self)]),
            4 => Value::List(vec![int(self).into(), 0.into()]),
            5 => self.tensor().into(),
            _ => int(self).into(),
        }
    }

    fn of(&mut self, entry: &'static Entry) -> Vec<(&'static str, Value)> {
        let mut arguments = Vec::new();
        for parameter in &entry.parameters {
            if parameter.default.is_some() && self.draw.flip() {
                continue;
            }
            let value = match parameter.optional && self.draw.below(6) == 0 {
                true => Value::None,
                false => self.value(parameter.kind),
            };
            arguments.push((parameter.name, value));
        }
        arguments
    }
}

/// The call, its results read, and its gradients.
fn run(entry: &Entry, arguments: &[(&str, Value)]) -> Result<()> {
    for output in entry.call(arguments)? {
        if output.numel() > 100_000 {
            continue;
        }
        output.to_bytes()?;
        if output.requires_grad() && !output.is_leaf() {
            let options = Backpropagation {
                retain_graph: true,
                ..Backpropagation::default()
            };
            output.sum_all()?.backward_with(None, options)?;
        }
    }
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "how many were answered, shown when it is asked for"
)]
fn call_all(device: Device, calls: usize) {
    let mut arguments = Arguments {
        draw: Draw::new(7),
        device,
    };
    let table = entries();
    let mut answered: BTreeMap<&str, usize> = BTreeMap::new();
    let mut panicked: Vec<String> = Vec::new();
    for _ in 0..calls {
        let entry = &table[arguments.draw.below(table.len())];
        let given = arguments.of(entry);
        match catch_unwind(AssertUnwindSafe(|| run(entry, &given))) {
            Ok(Ok(())) => *answered.entry(entry.name).or_default() += 1,
            Ok(Err(_)) => {}
            Err(_) => {
                let given = given.iter().map(|(name, value)| format!("{name}={value}"));
                let given: Vec<String> = given.collect();
                panicked.push(format!("{}: {}", entry.name, given.join(" ")));
            }
        }
    }
    let sum: usize = answered.values().sum();
    println!(
        "{device}: {sum} of {calls} calls of {} ops answered",
        answered.len()
    );
    assert!(
        panicked.is_empty(),
        "{} calls panicked:\n{}",
        panicked.len(),
        panicked.join("\n")
    );
    assert!(
        answered.len() * 10 > table.len() * 7,
        "most ops are reached"
    );
}

#[test]
fn no_call_panics() {
    call_all(Device::Cpu, 100_000);
}

#[test]
fn no_call_on_a_device_panics() {
    call_all(virtual_cuda(), 10_000);
}
