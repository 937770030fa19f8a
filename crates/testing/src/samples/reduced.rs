//! Samples of reductions and softmax.

use fireclay_tensor::{Result, Tensor};

use super::List;

type Reduction = fn(&Tensor, &[isize], bool) -> Result<Tensor>;

const DIFFERENTIABLE: &[(&str, Reduction)] = &[
    ("sum", |x, dims, keepdim| x.sum(dims, keepdim)),
    ("mean", |x, dims, keepdim| x.mean(dims, keepdim)),
    ("amax", |x, dims, keepdim| x.amax(dims, keepdim)),
    ("amin", |x, dims, keepdim| x.amin(dims, keepdim)),
    ("var", |x, dims, keepdim| x.var(dims, 1.0, keepdim)),
    ("std", |x, dims, keepdim| x.std(dims, 0.0, keepdim)),
    ("logsumexp", |x, dims, keepdim| x.logsumexp(dims, keepdim)),
];

const STEPPED: &[(&str, Reduction)] = &[
    ("any", |x, dims, keepdim| x.any(dims, keepdim)),
    ("all", |x, dims, keepdim| x.all(dims, keepdim)),
    ("argmax", |x, dims, keepdim| {
        x.argmax(dims.first().copied().unwrap_or(-1), keepdim)
    }),
    ("argmin", |x, dims, keepdim| {
        x.argmin(dims.first().copied().unwrap_or(-1), keepdim)
    }),
];

const DIMS: &[&[isize]] = &[&[], &[0], &[-1], &[1], &[0, 2], &[0, 1]];

pub(super) fn add(list: &mut List) {
    for (number, dims) in DIMS.iter().enumerate() {
        for &(op, method) in DIFFERENTIABLE {
            let x = list.plain(&[2, 3, 4]);
            list.add(op, vec![x], move |x| method(&x[0], dims, number % 2 == 0));
        }
        for &(op, method) in STEPPED {
            let x = list.plain(&[2, 3, 4]);
            list.add_stepped(op, vec![x], move |x| method(&x[0], dims, number % 2 == 0));
        }
    }
    let empty = list.plain(&[2, 0]);
    list.add("sum", vec![empty], |x| x[0].sum(&[1], false));
    let zero_dim = list.plain(&[]);
    list.add("sum", vec![zero_dim.clone()], |x| x[0].sum(&[], false));
    list.add("softmax", vec![zero_dim], |x| x[0].softmax(0));
    for dim in [0, 1, -1] {
        let x = list.plain(&[2, 3, 4]);
        list.add("softmax", vec![x.clone()], move |x| x[0].softmax(dim));
        list.add("log_softmax", vec![x], move |x| x[0].log_softmax(dim));
    }
}
