//! temporary
use fireclay_tensor::by_name::{Kind, Value, Family};
use fireclay_tensor::*;
use fireclay_testing::draw::Draw;
fn tensor(d: &mut Draw, dev: Device) -> Tensor {
    let ndim = d.below(4);
    let shape: Vec<usize> = (0..ndim).map(|_| *d.choose(&[0usize, 1, 2, 3, 3, 4])).collect();
    let dt = *d.choose(&[DType::F32, DType::F32, DType::F32, DType::I64, DType::I64, DType::Bool, DType::I32, DType::U8, DType::BF16, DType::F8E4M3, DType::F64]);
    let n: usize = shape.iter().product();
    if dt == DType::F8E4M3 { return Tensor::from_bytes(&vec![0; n], &shape, dt, dev).unwrap(); }
    let v: Vec<f64> = (0..n).map(|_| d.int(-2, 4) as f64 + if d.below(5) == 0 { 0.5 } else { 0.0 }).collect();
    let mut t = Tensor::from_slice(&v, &shape, dev).unwrap().to_dtype(dt).unwrap();
    if d.below(4) == 0 && ndim > 1 { t = t.transpose(0, 1).unwrap(); }
    if dt == DType::F32 && d.below(3) == 0 { t = t.detach().copy().unwrap().requires_grad_(true).unwrap(); }
    t
}
fn int(d: &mut Draw) -> i64 { *d.choose(&[-1i64, -1, 0, 0, 1, 1, 2, 2, 3, -2, -3, 4, 5, i64::MAX, i64::MIN, 1 << 62, -(1 << 62), i64::MAX - 1]) }
fn value(d: &mut Draw, k: Kind, dev: Device) -> Value {
    match k {
        Kind::Tensor => tensor(d, dev).into(),
        Kind::Tensors => Value::List((0..d.below(4)).map(|_| tensor(d, dev).into()).collect()),
        Kind::Operand => if d.flip() { tensor(d, dev).into() } else { value(d, Kind::Number, dev) },
        Kind::Number => match d.below(4) { 0 => Value::Bool(d.flip()), 1 => Value::Int(int(d)), _ => Value::Float(*d.choose(&[0.0, 1.5, -2.5, f64::NAN, f64::INFINITY, 1e300, -1e18])) },
        Kind::Float => Value::Float(*d.choose(&[0.0, 1.5, -2.5, f64::NAN, f64::INFINITY, 1e300, -1e18])),
        Kind::Int => Value::Int(int(d)),
        Kind::Ints => if d.below(3) == 0 { Value::Int(int(d)) } else { Value::List((0..d.below(5)).map(|_| Value::Int(int(d))).collect()) },
        Kind::Floats => Value::List((0..d.below(3)).map(|_| Value::Float(1.5)).collect()),
        Kind::Bool => Value::Bool(d.flip()),
        Kind::Text => Value::Text((*d.choose(&["reflect", "replicate", "circular", "constant", "sum", "mean", "prod", "amax", "amin", "ij", "xy", "left", "right", "channels_last", "contiguous_format", "preserve_format"])).to_owned()),
        Kind::DType => Value::Text((*d.choose(&["float32", "int64", "bool", "uint8", "bfloat16", "float8_e4m3fn"])).to_owned()),
        Kind::Device => Value::None,
        Kind::Any => match d.below(3) { 0 => tensor(d, dev).into(), 1 => Value::Int(int(d)), _ => Value::List((0..d.below(5)).map(|_| match d.below(7) { 0 => Value::None, 1 => Value::Ellipsis, 2 => Value::Bool(d.flip()), 3 => Value::Int(int(d)), 4 => Value::Slice([Some(int(d)), if d.flip() { None } else { Some(int(d)) }, if d.flip() { None } else { Some(int(d)) }]), 5 => Value::List(vec![Value::Int(int(d)), Value::Int(0)]), _ => tensor(d, dev).into() }).collect()) },
    }
}
#[test]
fn fuzz() {
    let n: usize = std::env::var("FUZZ").ok().and_then(|s| s.parse().ok()).unwrap_or(20000);
    for (dev, n) in [(Device::Cpu, n), (fireclay_testing::devices::virtual_cuda(), n / 6)] {
    let mut d = Draw::new(7);
    let entries: Vec<_> = ops::entries().iter().filter(|e| [Family::Creation, Family::Shape, Family::Index, Family::InPlace].contains(&e.family)).collect();
    let mut bad = std::collections::BTreeMap::new(); let mut ok = std::collections::BTreeMap::<&str, usize>::new();
    for i in 0..n {
        let e = *d.choose(&entries);
        let mut args = Vec::new();
        for p in &e.parameters {
            if p.default.is_some() && d.below(2) == 0 { continue; }
            args.push((p.name, value(&mut d, p.kind, dev)));
        }
        let told: Vec<String> = args.iter().map(|(n, v)| match v { Value::Tensor(t) => format!("{n}={v}{}", if t.requires_grad() { "g" } else { "" }), v => format!("{n}={v}") }).collect();
        if std::env::var_os("TRACE").is_some() { eprintln!("{i} {} {}", e.name, told.join(" ")); }
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| -> Result<()> {
            let out = e.call(&args)?;
            for o in out.iter().filter(|o| o.requires_grad() && o.numel() < 10000) { if !o.is_leaf() { o.sum_all()?.backward_with(None, Backpropagation { retain_graph: true, ..Default::default() })?; } }
            for o in &out { if o.numel() < 10000 { o.to_bytes()?; } }
            Ok(())
        }));
        match r { Ok(Ok(())) => { *ok.entry(e.name).or_default() += 1; } Ok(Err(_)) => {} Err(p) => { let m = p.downcast_ref::<String>().cloned().or(p.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default(); bad.entry(e.name).or_insert_with(Vec::new).push(format!("{} -> {m}", told.join(" "))); } }
    }
    println!("{dev}: ok counts {ok:?}");
    for (name, list) in &bad { println!("PANIC {name} x{}: {}\n   {}", list.len(), list[0], list.last().unwrap()); }
    }
}
