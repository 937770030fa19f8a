//! Ops by PyTorch's names: the case's inputs and arguments as values of [`fireclay_tensor::ops::call`].

use fireclay_tensor::Tensor;
use fireclay_tensor::ops;
use serde_json::Value as Json;

use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

type Argument = (String, ops::Value);

/// Calls the op of the case.
pub(crate) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    let Some(entry) = ops::find(call.op()) else {
        return Err(unsupported(format!("no op {}", call.op())));
    };
    let arguments = arguments(call)?;
    let named = arguments
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    Ok(Run {
        outputs: entry.call(&named.collect::<Vec<_>>())?,
        ..Run::default()
    })
}

fn arguments(call: &Call<'_>) -> Result<Vec<Argument>, Refusal> {
    let case = call.case();
    let mut arguments: Vec<Argument> = Vec::new();
    for (name, item) in call.names() {
        // Tensors of an index stand in the argument that names their places.
        if name == "index" && case.field("args").get("index").is_some() {
            continue;
        }
        let mut value = input(call, item)?;
        if let ops::Value::Tensor(receiver) = &value
            && name == "self"
            && case.writes()
            && receiver.requires_grad()
        {
            // A leaf is not changed in place: its copy is.
            value = receiver.copy()?.into();
        }
        // `*tensors` is a parameter that takes any number.
        arguments.push((name.trim_start_matches('*').to_owned(), value));
    }
    for (name, item) in case.entries("args") {
        arguments.push((name.to_owned(), argument(call, item)?));
    }
    Ok(arguments)
}

/// Tensors by their keys, in lists or not.
fn input(call: &Call<'_>, item: &Json) -> Result<ops::Value, Refusal> {
    Ok(match item {
        Json::String(key) => tensor(call, key).into(),
        Json::Array(items) => {
            let items = items.iter().map(|item| input(call, item));
            ops::Value::List(items.collect::<Result<_, _>>()?)
        }
        Json::Null => ops::Value::None,
        other => return Err(unsupported(format!("an input {other}"))),
    })
}

fn tensor<'a>(call: &Call<'a>, key: &str) -> &'a Tensor {
    call.by_key(key)
}

/// A value of Python as the format writes it.
fn argument(call: &Call<'_>, item: &Json) -> Result<ops::Value, Refusal> {
    Ok(match item {
        Json::Null => ops::Value::None,
        Json::Bool(truth) => ops::Value::Bool(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => ops::Value::Int(whole),
            None => ops::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => match text.as_str() {
            "inf" => ops::Value::Float(f64::INFINITY),
            "-inf" => ops::Value::Float(f64::NEG_INFINITY),
            "nan" => ops::Value::Float(f64::NAN),
            "..." => ops::Value::Ellipsis,
            text => text.into(),
        },
        Json::Array(items) => {
            let items = items.iter().map(|item| argument(call, item));
            ops::Value::List(items.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            if let Some(Json::Array(bounds)) = fields.get("slice") {
                let bound = |place: usize| bounds.get(place).and_then(Json::as_i64);
                return Ok(ops::Value::Slice([bound(0), bound(1), bound(2)]));
            }
            let place = fields.get("input").and_then(Json::as_u64);
            let key = place.and_then(|place| call.case().list("inputs").get(place as usize));
            match key {
                Some(item) => input(call, item)?,
                None => return Err(unsupported(format!("an argument {item}"))),
            }
        }
    })
}
