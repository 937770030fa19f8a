//! temporary
use fireclay_tensor::*;
use fireclay_tensor::by_name::Value as V;
use serde_json::Value;
use super::{Answer, Call, Refusal};

fn value(call: &Call<'_>, item: &Value, inputs: bool) -> V {
    match item {
        Value::Null => V::None,
        Value::Bool(b) => V::Bool(*b),
        Value::Number(n) => match n.as_i64() { Some(i) => V::Int(i), None => V::Float(n.as_f64().unwrap()) },
        Value::String(s) if inputs => V::Tensor(call.by_key(s).clone()),
        Value::String(s) => match s.as_str() { "inf" => V::Float(f64::INFINITY), "-inf" => V::Float(f64::NEG_INFINITY), "nan" => V::Float(f64::NAN), "..." => V::Ellipsis, _ => V::Text(s.clone()) },
        Value::Array(list) => V::List(list.iter().map(|i| value(call, i, inputs)).collect()),
        Value::Object(o) => if let Some(s) = o.get("slice") { let b = |i: usize| s[i].as_i64(); V::Slice([b(0), b(1), b(2)]) }
            else { let keys = call.case().list("inputs"); value(call, &keys[o["input"].as_u64().unwrap() as usize], true) },
    }
}
pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    let entry = ops::find(call.op())?;
    if !["creation", "shape", "inplace"].contains(&call.case().family.as_str()) { return None; }
    let case = call.case();
    let names: Vec<&str> = case.list("names").iter().filter_map(Value::as_str).collect();
    let mut args: Vec<(&str, V)> = Vec::new();
    for (name, item) in names.iter().zip(case.list("inputs")) {
        let name = name.trim_start_matches('*');
        if call.op().contains("item__") && name == "index" { continue; }
        let mut v = value(call, item, true);
        if name == "self" && call.op().ends_with('_') && !call.op().contains("getitem") && let V::Tensor(t) = &v && t.requires_grad() { v = V::Tensor(t.copy().unwrap()); }
        args.push((name, v));
    }
    for (name, item) in case.entries("args") { args.push((name, value(call, item, false))); }
    call.note_inputs();
    for (name, _) in case.entries("args") { call.argument(name); }
    Some(entry.call(&args).map_err(Refusal::Error))
}
