//! Attention on the virtual GPU against the host: the same bits, across tiles, chunks and blocks of columns, with every mask.

use fireclay_tensor::{Attention, DType, Device, Result, Tensor};
use fireclay_testing::compare::same_numbers;
use fireclay_testing::devices::{moved, virtual_cuda};
use fireclay_testing::draw::Draw;

/// Sizes and what hides keys.
#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    heads: [usize; 2],
    rows: [usize; 2],
    widths: [usize; 2],
    causal: bool,
    /// What the mask's sizes are over batch, heads, queries and keys, and whether it keeps keys or is added.
    mask: Option<([bool; 4], bool)>,
}

const fn case(heads: [usize; 2], rows: [usize; 2], widths: [usize; 2]) -> Case {
    Case {
        batch: 1,
        heads,
        rows,
        widths,
        causal: false,
        mask: None,
    }
}

const CAUSAL: Case = Case {
    causal: true,
    ..case([4, 2], [101, 131], [20, 24])
};

const fn masked(over: [bool; 4], keeps: bool, rows: [usize; 2]) -> Case {
    Case {
        batch: 2,
        mask: Some((over, keeps)),
        ..case([2, 1], rows, [4, 5])
    }
}

fn numbers(draw: &mut Draw, shape: &[usize], dtype: DType) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count).map(|_| draw.number(-2.0, 2.0)).collect();
    let numbers = Tensor::from_slice(&numbers, shape, Device::Cpu).unwrap();
    numbers.to_dtype(dtype).unwrap()
}

fn operands(draw: &mut Draw, case: Case, dtype: DType) -> Vec<Tensor> {
    let Case {
        batch,
        heads: [heads, kv_heads],
        rows: [queries, keys],
        widths: [width, value_width],
        ..
    } = case;
    let shapes = [
        [batch, heads, queries, width],
        [batch, kv_heads, keys, width],
        [batch, kv_heads, keys, value_width],
    ];
    let mut operands: Vec<Tensor> = Vec::new();
    for shape in shapes {
        let operand = numbers(draw, &shape, dtype);
        operand.requires_grad_(true).unwrap();
        operands.push(operand);
    }
    if let Some((over, keeps)) = case.mask {
        let full = [batch, heads, queries, keys];
        let sizes: Vec<usize> = (0..4)
            .map(|dim| if over[dim] { full[dim] } else { 1 })
            .collect();
        let mask = numbers(draw, &sizes, DType::F64);
        operands.push(match keeps {
            true => mask.gt(-1.0).unwrap(),
            false if dtype == DType::F64 => mask,
            false => mask.to_dtype(DType::F32).unwrap(),
        });
    }
    operands
}

/// Result and gradients.
fn run(case: Case, operands: &[Tensor], grad: &Tensor) -> Result<Vec<Tensor>> {
    let options = Attention {
        attn_mask: operands.get(3),
        is_causal: case.causal,
        enable_gqa: true,
        ..Attention::default()
    };
    let result = operands[0].scaled_dot_product_attention(&operands[1], &operands[2], options)?;
    let mut all = vec![result.detach()];
    let wanted: Vec<&Tensor> = operands[..3].iter().collect();
    let grads = fireclay_tensor::grad_with(&[&result], &[Some(grad)], &wanted, Default::default())?;
    all.extend(grads.into_iter().flatten());
    Ok(all)
}

fn compare(case: Case, operands: &[Tensor], grad: &Tensor, what: &str) {
    let device = virtual_cuda();
    let want = run(case, operands, grad).unwrap();
    let got = run(case, &moved(operands, device), &grad.to(device).unwrap()).unwrap();
    assert_eq!(got.len(), want.len(), "{what}");
    for (number, (got, want)) in got.iter().zip(&want).enumerate() {
        let got = got.cpu().unwrap();
        assert!(
            same_numbers(&got, want),
            "{what}, result {number}: {got}\nbut {want}"
        );
    }
}

fn result_shape(case: Case) -> [usize; 4] {
    [case.batch, case.heads[0], case.rows[0], case.widths[1]]
}

fn check(cases: &[Case], dtypes: &[DType]) {
    let mut draw = Draw::new(9);
    for (number, &case) in cases.iter().enumerate() {
        for &dtype in dtypes {
            let operands = operands(&mut draw, case, dtype);
            let grad = numbers(&mut draw, &result_shape(case), dtype);
            compare(case, &operands, &grad, &format!("case {number} {dtype}"));
        }
    }
}

const ALL: [DType; 4] = [DType::F32, DType::F64, DType::BF16, DType::F16];

#[test]
fn tiles_give_the_bits_of_the_host() {
    check(&[CAUSAL, case([2, 1], [49, 65], [16, 64])], &ALL);
}

/// More columns than a block has; operands that don't stay in shared memory.
#[test]
fn wide_rows_give_the_bits_of_the_host() {
    let cases = [
        case([1, 1], [3, 66], [150, 200]),
        case([1, 1], [50, 5], [68, 130]),
        case([1, 1], [2, 3], [1, 300]),
        case([1, 1], [2, 3], [300, 1]),
        case([1, 1], [2, 3], [2, 0]),
        case([1, 1], [2, 3], [0, 2]),
    ];
    check(&cases, &[DType::F32, DType::F64, DType::BF16]);
}

#[test]
fn masks_give_the_bits_of_the_host() {
    let mut cases = Vec::new();
    for keeps in [true, false] {
        for over in [
            [true, true, true, true],
            [true, false, false, true],
            [false, false, true, false],
        ] {
            cases.push(masked(over, keeps, [3, 68]));
            cases.push(masked(over, keeps, [3, 67]));
        }
        cases.push(masked([true; 4], keeps, [50, 3]));
    }
    check(&cases, &[DType::F32, DType::F64, DType::F16]);
}

#[test]
fn few_rows_give_the_bits_of_the_host() {
    let empty = |case: Case, batch| Case { batch, ..case };
    let cases = [
        case([1, 1], [1, 1], [1, 1]),
        case([2, 2], [0, 3], [2, 2]),
        case([2, 2], [3, 0], [2, 2]),
        case([0, 0], [3, 2], [2, 2]),
        empty(case([1, 1], [3, 2], [2, 2]), 0),
        Case {
            causal: true,
            ..case([1, 1], [3, 130], [2, 2])
        },
        Case {
            causal: true,
            ..case([1, 1], [130, 3], [2, 2])
        },
    ];
    check(&cases, &[DType::F32, DType::BF16]);
}

/// What is no number spreads as on the host, also from keys that are hidden, and from rows that are hidden altogether.
#[test]
fn numbers_without_bounds_spread_as_on_the_host() {
    let mut draw = Draw::new(10);
    for dtype in [DType::F32] {
        for number in [f64::NAN, f64::INFINITY] {
            for operand in 0..3 {
                for row in [0, 50, 97] {
                    let case = Case {
                        causal: true,
                        ..case([1, 1], [101, 131], [3, 2])
                    };
                    let operands = operands(&mut draw, case, dtype);
                    let place = operands[operand].detach().select(2, row).unwrap();
                    place.select(2, 1).unwrap().fill_(number).unwrap();
                    let grad = numbers(&mut draw, &result_shape(case), dtype);
                    let what = format!("{number} in row {row} of operand {operand} {dtype}");
                    compare(case, &operands, &grad, &what);
                }
            }
        }
    }
}

/// Rows with gaps, from odd addresses on, broadcast; the gradient too.
#[test]
fn strides_give_the_bits_of_the_host() {
    let mut draw = Draw::new(11);
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for start in [0, 1, 4] {
            let case = case([2, 2], [5, 7], [8, 12]);
            let within = |tensor: &Tensor| {
                // [batch, rows, heads, width], as a projection gives it, with columns left out.
                let turned = tensor.transpose(1, 2).unwrap();
                let padding = numbers(&mut Draw::new(1), &[1, turned.shape()[1], 2, 4], dtype);
                let parts = [&padding, &turned, &padding];
                let wide = Tensor::cat(&parts, -1).unwrap();
                let width = turned.shape()[3];
                let part = wide.narrow(-1, start, width).unwrap();
                part.transpose(1, 2).unwrap().detach()
            };
            let mut all: Vec<Tensor> = operands(&mut draw, case, dtype)
                .iter()
                .map(within)
                .collect();
            all[1] = all[1]
                .narrow(1, 0, 1)
                .unwrap()
                .expand(&[1, 2, 7, 8])
                .unwrap();
            for operand in &all {
                operand.requires_grad_(true).unwrap();
            }
            let grad = within(&numbers(&mut draw, &result_shape(case), dtype));
            compare(case, &all, &grad, &format!("from column {start} {dtype}"));
        }
    }
}
