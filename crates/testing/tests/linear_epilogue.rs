//! Linear layers with an activation and a residual, and `addmm`: one kernel against the ops one after the other, on the host and
//! on the virtual GPU, for every kind of kernel, layout and rest.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use fireclay_tensor::{Activation, DType, Device, LinearEpilogue, Result, Tensor, no_grad};
use fireclay_testing::compare::{Tolerance, matches, same_bits};
use fireclay_testing::devices::{machine, virtual_cuda};
use fireclay_testing::draw::Draw;

const ACTIVATIONS: [Option<Activation>; 5] = [
    None,
    Some(Activation::Relu),
    Some(Activation::Gelu),
    Some(Activation::GeluTanh),
    Some(Activation::Silu),
];

/// Rows, in and out: of tiles with and without rests, of vectors, of sums that several blocks share, of nothing.
const SIZES: [[usize; 3]; 8] = [
    [8, 4, 16],
    [5, 7, 3],
    [70, 33, 66],
    [1, 40, 9],
    [9, 40, 1],
    [1, 3, 1],
    [33, 700, 36],
    [3, 0, 4],
];

/// The counters of the machine are one for the process: the test that reads them runs alone.
static COUNTERS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    COUNTERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers from -2 to 2. The tests run at once, so they don't share a generator.
fn numbers(draw: &mut Draw, shape: &[usize]) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count).map(|_| draw.number(-2.0, 2.0)).collect();
    Tensor::from_slice(&numbers, shape, Device::Cpu)
}

/// What goes into a layer: rows, weight, bias, residual.
fn operands([rows, inner, cols]: [usize; 3], dtype: DType, device: Device) -> Result<[Tensor; 4]> {
    let mut draw = Draw::new(7);
    let mut of = |shape: &[usize]| numbers(&mut draw, shape)?.to_dtype(dtype)?.to(device);
    Ok([
        of(&[rows, inner])?,
        of(&[cols, inner])?,
        of(&[cols])?,
        of(&[rows, cols])?,
    ])
}

/// The ops one after the other.
fn composed(
    x: &[Tensor; 4],
    has_bias: bool,
    activation: Option<Activation>,
    has_residual: bool,
) -> Result<Tensor> {
    let y = x[0].linear(&x[1], has_bias.then_some(&x[2]))?;
    let y = match activation {
        None => y,
        Some(Activation::Relu) => y.relu()?,
        Some(Activation::Gelu) => y.gelu()?,
        Some(Activation::GeluTanh) => y.gelu_tanh()?,
        Some(Activation::Silu) => y.silu()?,
    };
    match has_residual {
        true => y.add(&x[3]),
        false => Ok(y),
    }
}

fn fused(
    x: &[Tensor; 4],
    has_bias: bool,
    activation: Option<Activation>,
    has_residual: bool,
) -> Result<Tensor> {
    let epilogue = LinearEpilogue {
        activation,
        residual: has_residual.then_some(&x[3]),
    };
    x[0].linear_with(&x[1], has_bias.then_some(&x[2]), epilogue)
}

/// Every mixture of a bias, an activation and a residual.
fn mixtures() -> impl Iterator<Item = (bool, Option<Activation>, bool)> {
    let flags = [(false, false), (true, false), (false, true), (true, true)];
    ACTIVATIONS.into_iter().flat_map(move |activation| {
        flags.map(|(has_bias, has_residual)| (has_bias, activation, has_residual))
    })
}

#[test]
fn one_kernel_has_the_bits_of_the_ops_one_after_the_other() -> Result<()> {
    let _guard = beside_others();
    for sizes in SIZES {
        for dtype in [DType::F32, DType::F64] {
            let here = operands(sizes, dtype, Device::Cpu)?;
            let there = operands(sizes, dtype, virtual_cuda())?;
            for (has_bias, activation, has_residual) in mixtures() {
                let what = format!("{sizes:?} {dtype} {activation:?} {has_bias} {has_residual}");
                let want = composed(&here, has_bias, activation, has_residual)?;
                let got = fused(&here, has_bias, activation, has_residual)?;
                assert!(same_bits(&got, &want), "{what} on the host");
                let got = fused(&there, has_bias, activation, has_residual)?.cpu()?;
                assert!(same_bits(&got, &want), "{what} on a device");
            }
        }
    }
    Ok(())
}

/// Of 16-bit floats the result is the f64 one, rounded once but for what f32 sums lose.
#[test]
fn sixteen_bits_are_rounded_once() -> Result<()> {
    let _guard = beside_others();
    let sizes = [
        [40, 72, 24],
        [33, 7, 65],
        [1, 40, 9],
        [130, 40, 136],
        [20, 1000, 24],
    ];
    for sizes in sizes {
        for (dtype, unit) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
            for device in [Device::Cpu, virtual_cuda()] {
                let x = operands(sizes, dtype, device)?;
                let wide = [0, 1, 2, 3].map(|number| x[number].cpu().unwrap());
                let wide = wide.map(|x| x.to_dtype(DType::F64).unwrap());
                for (has_bias, activation, has_residual) in mixtures() {
                    let want = composed(&wide, has_bias, activation, has_residual)?;
                    let got = fused(&x, has_bias, activation, has_residual)?;
                    assert_eq!(got.dtype(), dtype);
                    let got = got.cpu()?.to_dtype(DType::F64)?;
                    let of_sums = sizes[1] as f64 * sizes[1] as f64 * 2f64.powi(-22);
                    let tolerance = Tolerance::new(unit, of_sums.max(1e-6));
                    let close = matches(&got, &want, tolerance);
                    close.unwrap_or_else(|error| {
                        panic!(
                            "{sizes:?} {dtype} {device} {activation:?} {has_bias} {has_residual}: {error}"
                        )
                    });
                }
            }
        }
    }
    Ok(())
}

/// Gradients, and those of gradients, are those of the ops one after the other.
#[test]
fn gradients_are_those_of_the_ops_one_after_the_other() -> Result<()> {
    let _guard = beside_others();
    type Call = fn(&[Tensor; 4], bool, Option<Activation>, bool) -> Result<Tensor>;
    for device in [Device::Cpu, virtual_cuda()] {
        for (has_bias, activation, has_residual) in mixtures() {
            let run = |call: Call| -> Result<Vec<Tensor>> {
                let x = operands([5, 6, 4], DType::F64, device)?;
                for x in &x {
                    x.requires_grad_(true)?;
                }
                let y = call(&x, has_bias, activation, has_residual)?;
                let options = fireclay_tensor::Backpropagation {
                    create_graph: true,
                    ..Default::default()
                };
                let first = fireclay_tensor::grad_with(
                    &[&y.square()?.sum_all()?],
                    &[None],
                    &[&x[0], &x[1]],
                    options,
                )?;
                let first: Vec<Tensor> = first.into_iter().flatten().collect();
                let sum = first[0].square()?.sum_all()?.add(&first[1].sum_all()?)?;
                sum.backward()?;
                let second = x.iter().filter_map(Tensor::grad);
                let all = [y].into_iter().chain(first).chain(second);
                all.map(|x| x.detach().cpu()).collect()
            };
            let (got, want) = (run(fused)?, run(composed)?);
            assert_eq!(got.len(), want.len());
            for (number, (got, want)) in got.iter().zip(&want).enumerate() {
                let close = matches(got, want, Tolerance::new(1e-12, 1e-12));
                close.unwrap_or_else(|error| {
                    panic!("{device} {activation:?} {has_bias} {has_residual}, {number}: {error}")
                });
            }
        }
    }
    Ok(())
}

/// Without a gradient to come it is one kernel; with one it is too.
#[test]
fn it_is_one_kernel() -> Result<()> {
    let _alone = COUNTERS.write().unwrap_or_else(PoisonError::into_inner);
    let device = virtual_cuda();
    let x = operands([8, 4, 16], DType::F32, device)?;
    let count = |run: &dyn Fn() -> Result<Tensor>| -> Result<u64> {
        run()?;
        fireclay_cuda::surface::synchronize(device)?;
        machine().reset_counters();
        run()?;
        fireclay_cuda::surface::synchronize(device)?;
        Ok(machine()
            .counters()
            .kernels
            .values()
            .map(|kernel| kernel.launches)
            .sum())
    };
    let call = || fused(&x, true, Some(Activation::Gelu), true);
    assert_eq!(count(&|| no_grad(call))?, 1);
    x[1].requires_grad_(true)?;
    assert_eq!(count(&call)?, 1);
    Ok(())
}

#[test]
fn what_is_added_to_a_product_broadcasts_and_lies_anyhow() -> Result<()> {
    let _guard = beside_others();
    let mut draw = Draw::new(9);
    for [m, k, n] in [[33, 20, 40], [1, 9, 40], [40, 9, 1], [20, 600, 24]] {
        let mut of = |shape: &[usize]| numbers(&mut draw, shape)?.to_dtype(DType::F32);
        let (left, right) = (of(&[m, k])?, of(&[k, n])?);
        let turned = |x: &Tensor| x.t()?.contiguous()?.t();
        let inputs = [
            of(&[m, n])?,
            turned(&of(&[m, n])?)?,
            of(&[n])?,
            of(&[m, 1])?,
            of(&[])?,
            of(&[m * n + 1])?
                .narrow(0, 1, m * n)?
                .reshape(&[m as isize, n as isize])?,
        ];
        for input in &inputs {
            for (beta, alpha) in [(1.0, 1.0), (-0.5, 2.0), (0.0, 1.0), (1.0, 0.0)] {
                for right in [&right, &turned(&right)?] {
                    let product = left.matmul(right)?;
                    let want = product.mul(alpha)?.add(&input.mul(beta)?)?;
                    let got = input.addmm(&left, right, beta, alpha)?;
                    assert!(same_bits(&got, &want), "host {m} {k} {n} {beta} {alpha}");
                    let device = virtual_cuda();
                    let there = input.to(device)?.addmm(
                        &left.to(device)?,
                        &right.to(device)?,
                        beta,
                        alpha,
                    )?;
                    assert!(
                        same_bits(&there.cpu()?, &want),
                        "device {m} {k} {n} {beta} {alpha}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Times 0 nothing is read: what is no number there doesn't matter.
#[test]
fn what_is_multiplied_by_zero_is_not_read() -> Result<()> {
    let _guard = beside_others();
    for device in [Device::Cpu, virtual_cuda()] {
        let ones = Tensor::ones(&[2, 2], device)?;
        let nans = Tensor::full(&[2, 2], f64::NAN, device)?;
        assert_eq!(nans.addmm(&ones, &ones, 0, 1)?.to_vec::<f32>()?, [2.0; 4]);
        assert_eq!(ones.addmm(&nans, &ones, 3, 0)?.to_vec::<f32>()?, [3.0; 4]);
    }
    Ok(())
}

#[test]
fn whole_numbers_are_added_one_op_after_the_other() -> Result<()> {
    let _guard = beside_others();
    for device in [Device::Cpu, virtual_cuda()] {
        let x = Tensor::from_slice(&[1i64, 2, 3, 4], &[2, 2], device)?;
        assert_eq!(x.addmm(&x, &x, 2, 3)?.to_vec::<i64>()?, [23, 34, 51, 74]);
        let error = x.addmm(&x, &x, 0.5, 3).unwrap_err().to_string();
        assert!(error.contains("whole numbers"), "{error}");
    }
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_named() {
    let x = |shape: &[usize]| Tensor::ones(shape, "cpu").unwrap();
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    let residual = x(&[3]);
    let epilogue = LinearEpilogue {
        residual: Some(&residual),
        ..Default::default()
    };
    let error = message(x(&[2, 3]).linear_with(&x(&[3, 3]), None, epilogue));
    assert!(
        error.contains("linear") && error.contains("[2, 3]") && error.contains("[3]"),
        "{error}"
    );
    let error = message(x(&[2, 4]).addmm(&x(&[2, 3]), &x(&[4, 4]), 1, 1));
    assert!(
        error.contains("addmm") && error.contains("[m, k] and [k, n]"),
        "{error}"
    );
    let error = message(x(&[3, 4]).addmm(&x(&[2, 3]), &x(&[3, 4]), 1, 1));
    assert!(
        error.contains("broadcast") && error.contains("[2, 4]"),
        "{error}"
    );
    let error = message(x(&[1, 2, 3]).baddbmm(&x(&[2, 3]), &x(&[3, 3]), 1, 1));
    assert!(error.contains("[batch, m, k]"), "{error}");
    let error = message(x(&[2, 2]).addmv(&x(&[2, 2]), &x(&[2]), 1, 1));
    assert!(error.contains("addmv"), "{error}");
}

/// One row for each product of a batch, with one matrix: a tall product on both sides, however what is added lies.
#[test]
fn a_batch_of_single_rows_has_the_bits_of_the_host() -> Result<()> {
    let _beside = beside_others();
    let device = virtual_cuda();
    for dtype in [DType::F32, DType::F64] {
        for shape in [&[1, 5][..], &[1, 1, 5], &[5], &[3, 1, 5], &[3, 1, 1]] {
            let mut draw = Draw::new(11);
            let mut of = |shape: &[usize]| numbers(&mut draw, shape)?.to_dtype(dtype);
            let (left, weight, input) = (of(&[3, 1, 4])?, of(&[5, 4])?, of(shape)?);
            let sum = |device: Device| {
                let right = weight.to(device)?.t()?.expand(&[3, 4, 5])?;
                input
                    .to(device)?
                    .baddbmm(&left.to(device)?, &right, 1.0, 1.0)
            };
            let (got, want) = (sum(device)?.cpu()?, sum(Device::Cpu)?);
            assert!(
                same_bits(&got, &want),
                "{shape:?} {dtype}: {got} but {want}"
            );
        }
    }
    Ok(())
}
