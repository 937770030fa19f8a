//! Samples of pointwise functions.

use fireclay_tensor::{Result, Tensor};

use super::List;

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Name, method, lowest and highest operand, kinks.
const UNARY: &[(&str, Unary, f64, f64, &[f64])] = &[
    ("neg", Tensor::neg, -2.0, 2.0, &[]),
    ("abs", Tensor::abs, -2.0, 2.0, &[0.0]),
    ("sign", Tensor::sign, -2.0, 2.0, &[0.0]),
    ("square", Tensor::square, -2.0, 2.0, &[]),
    ("sqrt", Tensor::sqrt, 0.3, 3.0, &[]),
    ("rsqrt", Tensor::rsqrt, 0.3, 3.0, &[]),
    ("reciprocal", Tensor::reciprocal, 0.4, 3.0, &[]),
    ("exp", Tensor::exp, -2.0, 2.0, &[]),
    ("exp2", Tensor::exp2, -2.0, 2.0, &[]),
    ("expm1", Tensor::expm1, -2.0, 2.0, &[]),
    ("log", Tensor::log, 0.3, 3.0, &[]),
    ("log2", Tensor::log2, 0.3, 3.0, &[]),
    ("log10", Tensor::log10, 0.3, 3.0, &[]),
    ("log1p", Tensor::log1p, -0.6, 3.0, &[]),
    ("sin", Tensor::sin, -3.0, 3.0, &[]),
    ("cos", Tensor::cos, -3.0, 3.0, &[]),
    ("tan", Tensor::tan, -1.2, 1.2, &[]),
    ("tanh", Tensor::tanh, -2.0, 2.0, &[]),
    ("erf", Tensor::erf, -2.0, 2.0, &[]),
    ("sigmoid", Tensor::sigmoid, -3.0, 3.0, &[]),
    ("logsigmoid", Tensor::logsigmoid, -3.0, 3.0, &[]),
    ("relu", Tensor::relu, -2.0, 2.0, &[0.0]),
    ("silu", Tensor::silu, -3.0, 3.0, &[]),
    ("gelu", Tensor::gelu, -3.0, 3.0, &[]),
    ("gelu_tanh", Tensor::gelu_tanh, -3.0, 3.0, &[]),
    (
        "floor",
        Tensor::floor,
        -2.5,
        2.5,
        &[-2.0, -1.0, 0.0, 1.0, 2.0],
    ),
    (
        "ceil",
        Tensor::ceil,
        -2.5,
        2.5,
        &[-2.0, -1.0, 0.0, 1.0, 2.0],
    ),
    (
        "trunc",
        Tensor::trunc,
        -2.5,
        2.5,
        &[-2.0, -1.0, 0.0, 1.0, 2.0],
    ),
    ("round", Tensor::round, -2.0, 2.0, &[-1.5, -0.5, 0.5, 1.5]),
    ("copy", Tensor::copy, -2.0, 2.0, &[]),
];

const PREDICATES: &[(&str, Unary)] = &[
    ("isnan", Tensor::isnan),
    ("isfinite", Tensor::isfinite),
    ("isinf", Tensor::isinf),
    ("logical_not", Tensor::logical_not),
];

/// Name, method, lowest and highest of both operands.
const BINARY: &[(&str, Binary, f64, f64)] = &[
    ("add", |x, y| x.add(y), -2.0, 2.0),
    ("sub", |x, y| x.sub(y), -2.0, 2.0),
    ("mul", |x, y| x.mul(y), -2.0, 2.0),
    ("div", |x, y| x.div(y), 0.4, 3.0),
    ("pow", |x, y| x.pow(y), 0.4, 2.0),
    ("atan2", |x, y| x.atan2(y), 0.4, 2.0),
    ("maximum", |x, y| x.maximum(y), -2.0, 2.0),
    ("minimum", |x, y| x.minimum(y), -2.0, 2.0),
    ("leaky_relu", |x, slope| x.leaky_relu(slope), 0.1, 2.0),
    ("elu", |x, alpha| x.elu(alpha), 0.1, 2.0),
];

const COMPARISONS: &[(&str, Binary)] = &[
    ("eq", |x, y| x.eq(y)),
    ("ne", |x, y| x.ne(y)),
    ("lt", |x, y| x.lt(y)),
    ("le", |x, y| x.le(y)),
    ("gt", |x, y| x.gt(y)),
    ("ge", |x, y| x.ge(y)),
    ("logical_and", |x, y| x.logical_and(y)),
    ("logical_or", |x, y| x.logical_or(y)),
    ("logical_xor", |x, y| x.logical_xor(y)),
];

const SHAPES: &[&[usize]] = &[&[3, 4], &[], &[0, 3], &[2, 1, 3]];
/// Pairs that broadcast.
const PAIRS: &[[&[usize]; 2]] = &[
    [&[2, 3], &[2, 3]],
    [&[2, 3], &[3]],
    [&[3, 1], &[1, 2]],
    [&[2, 2], &[]],
    [&[], &[]],
    [&[0, 3], &[3]],
];

pub(super) fn add(list: &mut List) {
    for &(op, method, low, high, kinks) in UNARY {
        for shape in SHAPES {
            let x = list.draw.tensor(shape, low, high, kinks);
            list.add(op, vec![x], move |x| method(&x[0]));
        }
    }
    for &(op, method) in PREDICATES {
        let x = list.plain(&[3, 4]);
        list.add_stepped(op, vec![x], move |x| method(&x[0]));
    }
    for &(op, method, low, high) in BINARY {
        for [first, second] in PAIRS {
            // Operands that are never near each other: a tie of maximum is a kink.
            let both = first.iter().product::<usize>() + second.iter().product::<usize>();
            let all = list.draw.tensor(&[both], low, high, &[0.0]);
            let cut = first.iter().product::<usize>();
            let part = |start: usize, shape: &[usize]| {
                let sizes: Vec<isize> = shape.iter().map(|&size| size as isize).collect();
                let length = shape.iter().product();
                let part = all
                    .narrow(0, start, length)
                    .and_then(|part| part.copy()?.reshape(&sizes));
                part.expect("a part of the numbers drawn")
            };
            list.add(op, vec![part(0, first), part(cut, second)], move |x| {
                method(&x[0], &x[1])
            });
        }
    }
    for &(op, method) in COMPARISONS {
        let (x, y) = (list.plain(&[2, 3]), list.plain(&[3]));
        list.add_stepped(op, vec![x, y], move |x| method(&x[0], &x[1]));
    }
    with_numbers(list);
    of_three(list);
}

/// Plain numbers as operands.
fn with_numbers(list: &mut List) {
    let x = list.plain(&[2, 3]);
    list.add("add", vec![x.clone()], |x| x[0].add(1.5));
    list.add("sub", vec![x.clone()], |x| x[0].sub(1i64));
    list.add("mul", vec![x.clone()], |x| x[0].mul(-2.5));
    list.add("div", vec![x.clone()], |x| x[0].div(3i64));
    list.add("pow", vec![x.clone()], |x| x[0].pow(3i64));
    list.add("pow", vec![x.clone()], |x| x[0].pow(2.0));
    list.add("pow", vec![x.clone()], |x| x[0].pow(0.0));
    list.add("leaky_relu", vec![x.clone()], |x| x[0].leaky_relu(0.1));
    list.add("elu", vec![x.clone()], |x| x[0].elu(1.5));
    list.add("softplus", vec![x.clone()], |x| x[0].softplus(1.5, 20.0));
    list.add("softplus", vec![x], |x| x[0].softplus(2.0, 3.0));
}

fn of_three(list: &mut List) {
    let (x, y) = (list.plain(&[2, 3]), list.plain(&[3]));
    let weight = list.draw.tensor(&[2, 1], 0.1, 0.9, &[]);
    list.add("lerp", vec![x.clone(), y.clone(), weight], |x| {
        x[0].lerp(&x[1], &x[2])
    });
    list.add("lerp", vec![x.clone(), y.clone()], |x| {
        x[0].lerp(&x[1], 0.3)
    });
    let condition = x.gt(0.0).expect("a comparison with a number");
    let inputs = vec![condition, x, y];
    list.add("where", inputs, |x| x[0].where_(&x[1], &x[2]));
    let x = list.draw.tensor(&[3, 4], -2.0, 2.0, &[-0.5, 1.0]);
    list.add("clamp", vec![x.clone()], |x| x[0].clamp(-0.5, 1.0));
    let low = list.draw.tensor(&[4], -1.0, -0.6, &[]);
    let high = list.draw.tensor(&[3, 1], 0.6, 1.0, &[]);
    let x = list.draw.tensor(&[3, 4], -0.55, 0.55, &[]);
    list.add("clamp", vec![x, low, high], |x| x[0].clamp(&x[1], &x[2]));
}
