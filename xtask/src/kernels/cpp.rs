//! Functions of `fireclay_core` as CUDA C++: written from their traces, so that kernels compute the very same bits.

use std::fmt::Write;

use fireclay_core::arith::Arith;
use fireclay_core::math;
use fireclay_core::philox;
use fireclay_core::pointwise::{Class, Pointwise};
use fireclay_core::trace::{Kind, Node, Operation, Trace, trace};

/// Functions of one number, by the names that their traces have here.
macro_rules! functions_of_one {
    ($($name:ident = $function:path;)*) => {$(
        struct $name;
        impl Pointwise<1> for $name {
            fn eval<A: Arith>(&self, [x]: [A; 1]) -> [A; 1] {
                [$function(x)]
            }
        }
    )*};
}

functions_of_one! {
    Exp = math::exp;
    Log = math::log;
    Relu = math::relu;
    Gelu = math::gelu;
    GeluTanh = math::gelu_tanh;
    Silu = math::silu;
}

struct BoxMuller;
impl Pointwise<2, 2> for BoxMuller {
    fn eval<A: Arith>(&self, [radius, turn]: [A; 2]) -> [A; 2] {
        philox::box_muller(radius, turn)
    }
}

/// The header: every function for singles and for doubles.
pub(super) fn header() -> String {
    let mut text = String::from(
        "// Functions of fireclay-core, written from their traces by `cargo xtask kernels`: not to be edited.\n\
         // They give the bits that the host gives.\n#pragma once\n",
    );
    for class in [Class::F32, Class::F64] {
        function(&mut text, "arith_exp", class, &["x"], &trace(&Exp, class));
        function(&mut text, "arith_log", class, &["x"], &trace(&Log, class));
        function(&mut text, "arith_relu", class, &["x"], &trace(&Relu, class));
        function(&mut text, "arith_gelu", class, &["x"], &trace(&Gelu, class));
        let gelu_tanh = trace(&GeluTanh, class);
        function(&mut text, "arith_gelu_tanh", class, &["x"], &gelu_tanh);
        function(&mut text, "arith_silu", class, &["x"], &trace(&Silu, class));
        let normal = trace(&BoxMuller, class);
        function(
            &mut text,
            "arith_box_muller",
            class,
            &["radius", "turn"],
            &normal,
        );
    }
    text
}

/// One function. Of two results the second goes to a pointer.
fn function(text: &mut String, name: &str, class: Class, inputs: &[&str], trace: &Trace) {
    let ty = if class == Class::F32 {
        "float"
    } else {
        "double"
    };
    let mut parameters: Vec<String> = inputs.iter().map(|input| format!("{ty} {input}")).collect();
    if trace.outputs.len() > 1 {
        parameters.push(format!("{ty}* second"));
    }
    let parameters = parameters.join(", ");
    // Writing to a string can't fail.
    let _ = writeln!(text, "\n__device__ inline {ty} {name}({parameters}) {{");
    for (number, node) in trace.nodes.iter().enumerate() {
        let value = match node.operation {
            Operation::Input(input) => inputs[input as usize].to_owned(),
            _ => expression(node, &trace.nodes),
        };
        let _ = writeln!(
            text,
            "    const {} v{number} = {value};",
            type_of(node.kind)
        );
    }
    if let [_, second] = trace.outputs[..] {
        let _ = writeln!(text, "    *second = v{second};");
    }
    let _ = writeln!(text, "    return v{};\n}}", trace.outputs[0]);
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "float",
        Kind::F64 => "double",
        Kind::I64 => "long long",
        Kind::I32 => "int",
        Kind::Mask => "bool",
    }
}

fn expression(node: &Node, nodes: &[Node]) -> String {
    use Operation as O;
    let operand = |index: usize| format!("v{}", node.operands[index]);
    let (a, b, c) = (operand(0), operand(1), operand(2));
    let single = node.kind == Kind::F32;
    let float = single || node.kind == Kind::F64;
    let (prefix, suffix) = if single { ("f", "f") } else { ("d", "") };
    let unsigned = if node.kind == Kind::I32 {
        "unsigned"
    } else {
        "unsigned long long"
    };
    let signed = type_of(node.kind);
    let wrapping =
        |operator: &str, b: &str| format!("({signed})(({unsigned}){a} {operator} ({unsigned}){b})");
    let arithmetic = |name: &str, operator: &str| match float {
        true => format!("__{prefix}{name}_rn({a}, {b})"),
        false => wrapping(operator, &b),
    };
    match node.operation {
        O::Input(_) => unreachable!("inputs have names"),
        O::Constant(bits) => match node.kind {
            Kind::F32 => format!("__uint_as_float(0x{bits:08x}u)"),
            Kind::F64 => format!("__longlong_as_double(0x{bits:016x}ll)"),
            Kind::I32 => format!("(int)0x{:08x}u", bits as u32),
            Kind::I64 => format!("(long long)0x{bits:016x}ull"),
            Kind::Mask => format!("{}", bits != 0),
        },
        O::Add => arithmetic("add", "+"),
        O::Sub => arithmetic("sub", "-"),
        O::Mul => arithmetic("mul", "*"),
        O::Div if float => format!("__{prefix}div_rn({a}, {b})"),
        O::Div => format!("{a} / {b}"),
        O::Neg if float => format!("-{a}"),
        O::Neg => format!("({signed})(0 - ({unsigned}){a})"),
        O::Abs if float => format!("fabs{suffix}({a})"),
        O::Abs => format!("({a} < 0 ? ({signed})(0 - ({unsigned}){a}) : {a})"),
        O::MulAdd => format!("__fma{suffix}_rn({a}, {b}, {c})"),
        O::Sqrt => format!("__{prefix}sqrt_rn({a})"),
        O::Copysign => format!("copysign{suffix}({a}, {b})"),
        O::Floor => format!("floor{suffix}({a})"),
        O::Ceil => format!("ceil{suffix}({a})"),
        O::Trunc => format!("trunc{suffix}({a})"),
        O::RoundEven => format!("rint{suffix}({a})"),
        O::And => format!("{a} & {b}"),
        O::Or => format!("{a} | {b}"),
        O::Xor => format!("{a} ^ {b}"),
        O::Not if node.kind == Kind::Mask => format!("!{a}"),
        O::Not => format!("~{a}"),
        O::Shl(count) => format!("({signed})(({unsigned}){a} << {count})"),
        O::Shr(count) => format!("{a} >> {count}"),
        O::ShrLogical(count) => format!("({signed})(({unsigned}){a} >> {count})"),
        O::ShlBy => format!("({signed})(({unsigned}){a} << (unsigned){b})"),
        O::ShrBy => format!("{a} >> (unsigned){b}"),
        O::ShrLogicalBy => format!("({signed})(({unsigned}){a} >> (unsigned){b})"),
        O::MulHighUnsigned if node.kind == Kind::I32 => {
            format!("(int)__umulhi((unsigned){a}, (unsigned){b})")
        }
        O::MulHighUnsigned => {
            format!("(long long)__umul64hi((unsigned long long){a}, (unsigned long long){b})")
        }
        O::Lt => format!("{a} < {b}"),
        O::Le => format!("{a} <= {b}"),
        O::Eq => format!("{a} == {b}"),
        O::Select => format!("{a} ? {b} : {c}"),
        O::Reinterpret => {
            let name = match (nodes[node.operands[0] as usize].kind, node.kind) {
                (Kind::F32, Kind::I32) => "__float_as_int",
                (Kind::I32, Kind::F32) => "__int_as_float",
                (Kind::F64, Kind::I64) => "__double_as_longlong",
                (Kind::I64, Kind::F64) => "__longlong_as_double",
                (from, to) => unreachable!("no trace reinterprets {from:?} as {to:?}"),
            };
            format!("{name}({a})")
        }
    }
}
