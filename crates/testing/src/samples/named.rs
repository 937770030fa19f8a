//! Samples of pointwise functions by their PyTorch names: the examples of the table's rows.

use fireclay_tensor::ops::{Entry, Family, Value, entries, functions};
use fireclay_tensor::{DType, Device, Tensor, dispatch};

use super::List;
use crate::draw::Draw;

pub(super) fn add(list: &mut List) {
    let sampled: Vec<&str> = list.samples.iter().map(|sample| sample.op).collect();
    let fresh = |op: &str| {
        let mut functions = functions().iter();
        !sampled.contains(&op) && functions.any(|function| function.name() == op)
    };
    let mut found = Vec::new();
    for entry in entries()
        .iter()
        .filter(|entry| entry.family == Family::Elementwise)
    {
        let arguments = example(entry);
        let (outputs, seen) = dispatch::observe(|| entry.call(&arguments));
        outputs.expect("an example works");
        // The function itself, where the row is no more than that.
        if let [only] = seen[..]
            && fresh(only.name)
        {
            found.push((only.name, entry, arguments));
        }
    }
    for (op, entry, arguments) in found {
        add_example(list, op, entry, arguments);
    }
    // What is a form of another row.
    let before = std::mem::replace(&mut list.draw, Draw::new(2029));
    let [x, y] = [(); 2].map(|()| list.draw.tensor(&[3, 4], 0.4, 3.0, &[]));
    list.add_stepped("div_trunc", vec![x.clone(), y.clone()], |x| {
        x[0].div_trunc(&x[1])
    });
    let bound = list.draw.tensor(&[4], 3.2, 4.0, &[]);
    list.add("clamp_min", vec![x.clone(), bound.clone()], |x| {
        x[0].clamp_min(&x[1])
    });
    list.add("clamp_max", vec![x, bound], |x| x[0].clamp_max(&x[1]));
    list.draw = before;
}

fn example(entry: &Entry) -> Vec<(&'static str, Value)> {
    let arguments = entry.example_arguments(Device::Cpu, DType::F64, 7);
    arguments.expect("the crate's own examples can be read")
}

/// Adds the example with its tensors as operands.
fn add_example(
    list: &mut List,
    op: &'static str,
    entry: &'static Entry,
    arguments: Vec<(&'static str, Value)>,
) {
    let inputs = arguments.iter().filter_map(|(_, value)| value.tensor());
    let inputs: Vec<Tensor> = inputs.cloned().collect();
    let floating = inputs.iter().any(|x| x.dtype().is_floating_point());
    let call = move |operands: &[Tensor]| {
        let mut operands = operands.iter();
        let given = arguments.iter().map(|(name, value)| match value {
            Value::Tensor(_) => (*name, operands.next().into()),
            other => (*name, other.clone()),
        });
        let mut outputs = entry.call(&given.collect::<Vec<_>>())?;
        Ok(outputs.remove(0))
    };
    let is_bool = |x: &Tensor| x.dtype() == DType::Bool;
    match floating && !call(&inputs).is_ok_and(|output| is_bool(&output)) {
        true => list.add(op, inputs, call),
        false => list.add_stepped(op, inputs, call),
    }
}
