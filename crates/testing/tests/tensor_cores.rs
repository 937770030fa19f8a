//! Matrix products on the tensor cores of the virtual GPU against f64: every tile and way to lie, odd sizes and addresses, long
//! sums, batches of any strides, and the switch for tf32.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
use fireclay_tensor::ops::matmul::plan::{Abilities, Kernel, plan};
use fireclay_tensor::{
    DType, Device, Float32MatmulPrecision, Tensor, get_float32_matmul_precision, set_allow_tf32,
    set_float32_matmul_precision,
};
use fireclay_testing::compare::{same_bits, values};
use fireclay_testing::devices::{machine, virtual_cuda};
use fireclay_testing::draw::Draw;

/// The switch for tf32 is one for the process: tests that need it as it is take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers from -2 to 2 on the host and, lying the same way, on the device: they start `offset` elements into their storage;
/// turned ones lie by columns.
fn matrices(
    draw: &mut Draw,
    shape: &[usize],
    dtype: DType,
    is_turned: bool,
    offset: usize,
) -> (Tensor, Tensor) {
    let mut stored: Vec<isize> = shape.iter().map(|&size| size as isize).collect();
    let ndim = stored.len();
    if is_turned {
        stored.swap(ndim - 2, ndim - 1);
    }
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count + offset)
        .map(|_| draw.number(-2.0, 2.0))
        .collect();
    let all = Tensor::from_slice(&numbers, &[count + offset], Device::Cpu).unwrap();
    let all = all.to_dtype(dtype).unwrap();
    let view = |all: Tensor| {
        let matrices = all
            .narrow(0, offset, count)
            .unwrap()
            .reshape(&stored)
            .unwrap();
        match is_turned {
            true => matrices.transpose(-2, -1).unwrap(),
            false => matrices,
        }
    };
    let there = all.to(virtual_cuda()).unwrap();
    (view(all), view(there))
}

/// Half a unit in the last place, relative to the number.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-53),
    }
}

/// Whether `got` is the product of `a` and `b`: k f32 sums, each off by a unit of what has been added (hardware may cut where
/// f32 rounds, hence twice the unit), rounded once; and products off by `of_products`.
fn check(got: &Tensor, a: &Tensor, b: &Tensor, of_products: f64, what: &str) {
    let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
    let want = wide(a).matmul(&wide(b)).unwrap();
    let sizes = wide(a)
        .abs()
        .unwrap()
        .matmul(&wide(b).abs().unwrap())
        .unwrap();
    assert_eq!(got.dtype(), a.dtype(), "{what}");
    assert_eq!(got.shape(), want.shape(), "{what}");
    let k = a.shape()[a.ndim() - 1] as f64;
    let got = values(&got.cpu().unwrap());
    for (place, ((got, want), size)) in
        (got.iter().zip(values(&want)).zip(values(&sizes))).enumerate()
    {
        let bound = (k + 2.0) * 2f64.powi(-23) * size + of_products * size;
        let bound = bound + unit(a.dtype()) * (want.abs() + bound) + 2f64.powi(-25);
        assert!(
            (got - want).abs() <= bound,
            "{what}, place {place}: {got:e}, expected {want:e} within {bound:e}"
        );
    }
}

/// Sizes of every kind, however they lie and wherever they start, for all floats.
#[test]
fn products_of_any_size_and_place_are_right() {
    let _turn = turn();
    let mut draw = Draw::new(31);
    let sizes = [
        (1, 17),
        (17, 1),
        (17, 17),
        (17, 129),
        (129, 17),
        (129, 129),
        (33, 64),
    ];
    let mut number = 0;
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
        for (m, n) in sizes {
            for k in [0, 1, 8, 33, 70] {
                for lie in 0..4 {
                    number += 1;
                    let batch: &[usize] = [&[][..], &[3], &[], &[1], &[0], &[2, 2]][number % 6];
                    let (offset_a, offset_b) = (number / 2 % 2, number / 4 % 2);
                    let shape = |rows, cols| [batch, &[rows, cols]].concat();
                    let (a, a_there) =
                        matrices(&mut draw, &shape(m, k), dtype, lie & 1 == 1, offset_a);
                    let (b, b_there) =
                        matrices(&mut draw, &shape(k, n), dtype, lie & 2 == 2, offset_b);
                    let got = a_there.matmul(&b_there).unwrap();
                    let what = format!(
                        "{batch:?} x {m} x {n} x {k} {dtype}, lie {lie}, offsets {offset_a} {offset_b}"
                    );
                    if dtype.is_half() {
                        check(&got, &a, &b, 0.0, &what);
                    } else {
                        assert!(
                            same_bits(&got.cpu().unwrap(), &a.matmul(&b).unwrap()),
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}

/// Sums of thousands, whose parts several blocks compute.
#[test]
fn long_sums_are_right() {
    let _turn = turn();
    let mut draw = Draw::new(32);
    for (m, n, k) in [(17, 40, 4099), (40, 33, 2048), (1, 24, 5000), (65, 65, 700)] {
        for dtype in [DType::BF16, DType::F16] {
            for offset in [0, 1] {
                let (a, a_there) = matrices(&mut draw, &[m, k], dtype, false, offset);
                let (b, b_there) = matrices(&mut draw, &[k, n], dtype, true, 0);
                let got = a_there.matmul(&b_there).unwrap();
                check(
                    &got,
                    &a,
                    &b,
                    0.0,
                    &format!("{m} x {n} x {k} {dtype}, offset {offset}"),
                );
                // The order of the sums is fixed.
                let again = a_there.matmul(&b_there).unwrap();
                assert!(same_bits(&got.cpu().unwrap(), &again.cpu().unwrap()));
            }
        }
    }
}

/// Every tile of the tensor cores, however the matrices lie: also by tf32.
#[test]
fn every_tile_is_right() {
    let _turn = turn();
    let mut draw = Draw::new(33);
    set_allow_tf32(true);
    assert_eq!(get_float32_matmul_precision(), Float32MatmulPrecision::High);
    let abilities = Abilities {
        capability: (8, 0),
        allow_tf32: true,
    };
    let mut kernels = BTreeSet::new();
    for [batch, m, n, k] in [[128, 72, 68, 24], [32, 68, 72, 40], [3, 40, 24, 40]] {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            for lie in 0..4 {
                let (a, a_there) = matrices(&mut draw, &[batch, m, k], dtype, lie & 1 == 1, 0);
                let (b, b_there) = matrices(&mut draw, &[batch, k, n], dtype, lie & 2 == 2, 0);
                let strides = |x: &Tensor| MatrixStrides {
                    batch: x.strides()[0],
                    row: x.strides()[1],
                    col: x.strides()[2],
                };
                let shape = GemmShape { batch, m, n, k };
                let plan = plan(dtype, shape, strides(&a), strides(&b), abilities);
                assert!(matches!(plan.kernel, Kernel::TensorCores(_)), "{plan}");
                let name = plan.to_string();
                kernels.insert(name.split(':').next().unwrap().to_owned());
                let got = a_there.matmul(&b_there).unwrap();
                // Each factor is rounded to 11 bits.
                let of_products = if dtype == DType::F32 {
                    2f64.powi(-10) * 1.01
                } else {
                    0.0
                };
                check(&got, &a, &b, of_products, &name);
            }
        }
    }
    set_float32_matmul_precision(Float32MatmulPrecision::Highest);
    assert_eq!(kernels.len(), 3 * 3 * 4, "{kernels:?}");
    let counted = machine().counters().kernels;
    for kernel in kernels {
        assert!(counted.contains_key(&kernel), "{kernel} was not launched");
    }
}

/// With tf32 what is exact in 11 bits is exact, and the switch is off again.
#[test]
fn tf32_rounds_operands_where_it_is_allowed() {
    let _turn = turn();
    let device = virtual_cuda();
    let a = Tensor::full(&[4, 8], 1.0 + 2f64.powi(-12), "cpu").unwrap();
    let b = Tensor::ones(&[8, 4], "cpu").unwrap();
    let run = || {
        let product = (a.to(device).unwrap())
            .matmul(&b.to(device).unwrap())
            .unwrap();
        values(&product.cpu().unwrap())[0]
    };
    assert_eq!(run(), 8.0 + 2f64.powi(-9));
    set_allow_tf32(true);
    assert_eq!(run(), 8.0);
    set_allow_tf32(false);
    assert_eq!(run(), 8.0 + 2f64.powi(-9));
}

/// Batches that lie unevenly, of four dimensions too, are one launch, and of more dimensions several.
#[test]
fn uneven_batches_are_one_launch() {
    let _turn = turn();
    let device = virtual_cuda();
    let machine = machine();
    let mut draw = Draw::new(34);
    for dtype in [DType::BF16, DType::F32] {
        for (a_batch, b_batch, launches) in [
            (&[2, 1, 2, 3][..], &[1, 3, 2, 1][..], 1),
            (&[3, 1][..], &[1, 4][..], 1),
            (&[2, 1, 2, 1, 2][..], &[1, 3, 1, 2, 1][..], 2),
        ] {
            let (a_shape, b_shape) = ([a_batch, &[5, 24]].concat(), [b_batch, &[24, 7]].concat());
            let (a, a_there) = matrices(&mut draw, &a_shape, dtype, false, 0);
            let (b, b_there) = matrices(&mut draw, &b_shape, dtype, true, 0);
            fireclay_cuda::surface::synchronize(device).unwrap();
            machine.reset_counters();
            let got = a_there.matmul(&b_there).unwrap();
            fireclay_cuda::surface::synchronize(device).unwrap();
            let counted: u64 = (machine.counters().kernels.values())
                .map(|kernel| kernel.launches)
                .sum();
            assert_eq!(counted, launches, "{a_batch:?} {b_batch:?} {dtype}");
            check(
                &got,
                &a,
                &b,
                0.0,
                &format!("{a_batch:?} {b_batch:?} {dtype}"),
            );
        }
    }
}

/// Linear layers, whose bias is added before the sum is rounded, and their gradients.
#[test]
fn linear_adds_its_bias_before_it_rounds() {
    let _turn = turn();
    let device = virtual_cuda();
    let mut draw = Draw::new(35);
    for (rows, input, output) in [(40, 72, 24), (33, 7, 65), (5, 0, 3), (20, 1000, 17)] {
        let (x, _) = matrices(&mut draw, &[rows, input], DType::BF16, false, 0);
        let (weight, _) = matrices(&mut draw, &[output, input], DType::BF16, false, 0);
        let (bias, _) = matrices(&mut draw, &[1, output], DType::BF16, false, 0);
        let bias = bias.reshape(&[-1]).unwrap();
        let there =
            [&x, &weight, &bias].map(|x| x.to(device).unwrap().requires_grad_(true).unwrap());
        let got = there[0].linear(&there[1], Some(&there[2])).unwrap();
        // The bias as one more step of k.
        let (ones, column) = (
            Tensor::ones(&[rows, 1], "cpu").unwrap(),
            bias.unsqueeze(1).unwrap(),
        );
        let ones = ones.to_dtype(DType::BF16).unwrap();
        let a = Tensor::cat(&[&x, &ones], 1).unwrap();
        let b = Tensor::cat(&[&weight, &column], 1).unwrap().t().unwrap();
        check(
            &got.detach(),
            &a,
            &b,
            0.0,
            &format!("linear {rows} x {input} x {output}"),
        );
        got.sum_all().unwrap().backward().unwrap();
        let grad = Tensor::ones(&[rows, output], "cpu")
            .unwrap()
            .to_dtype(DType::BF16)
            .unwrap();
        check(
            &there[0].grad().unwrap(),
            &grad,
            &weight,
            0.0,
            "gradient of the input",
        );
        check(
            &there[1].grad().unwrap(),
            &grad.t().unwrap(),
            &x,
            0.0,
            "gradient of the weight",
        );
    }
}
