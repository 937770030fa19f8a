//! Sizes, steps and layouts beyond anything that memory holds are errors, not panics, wrapped numbers or reads out of bounds.

use fireclay_tensor::{
    AvgPool2d, BatchNorm, Conv2dOptions, CpuCall, DType, Layout, Meta, Op, OutputMeta, OutputMetas,
    Pool2d, Result, Tensor, dispatch,
};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, "cpu").unwrap()
}

const LARGE: [usize; 4] = [
    usize::MAX,
    1 << 63,
    isize::MAX as usize,
    isize::MAX as usize / 2,
];

#[test]
fn windows_beyond_memory_are_errors() {
    let (image, weight) = (ones(&[1, 1, 4, 4]), ones(&[1, 1, 3, 3]));
    let usual = Conv2dOptions::default();
    for large in LARGE {
        for pair in [[large, 1], [1, large], [large; 2]] {
            for options in [
                Conv2dOptions {
                    dilation: pair,
                    ..usual
                },
                Conv2dOptions {
                    padding: pair,
                    ..usual
                },
                Conv2dOptions {
                    stride: pair,
                    ..usual
                },
            ] {
                assert!(image.conv2d(&weight, None, options).is_err(), "{options:?}");
            }
            let usual = Pool2d::new([3, 3]);
            for window in [
                Pool2d {
                    dilation: pair,
                    ..usual
                },
                Pool2d {
                    stride: pair,
                    ceil_mode: true,
                    ..usual
                },
                Pool2d {
                    padding: [pair[0] / 2, pair[1] / 2],
                    ..Pool2d::new(pair)
                },
            ] {
                assert!(image.max_pool2d(window).is_err(), "{window:?}");
                let average = AvgPool2d {
                    window,
                    ..AvgPool2d::new([3, 3])
                };
                assert!(image.avg_pool2d(average).is_err(), "{window:?}");
            }
        }
        // Each fits its image, but the padded image is one that no memory holds.
        for far in [1 << 59, 1 << 40] {
            let options = Conv2dOptions {
                dilation: [far; 2],
                padding: [far; 2],
                ..Conv2dOptions::default()
            };
            assert!(image.conv2d(&weight, None, options).is_err(), "{far}");
        }
        let groups = Conv2dOptions {
            groups: large,
            ..Conv2dOptions::default()
        };
        let (image, weight) = (ones(&[1, 0, 4, 4]), ones(&[0, 2, 3, 3]));
        assert!(image.conv2d(&weight, None, groups).is_err(), "{large}");
    }
}

#[test]
fn a_window_of_more_places_than_can_be_counted_averages_to_nothing() {
    let side = 1 << 40;
    let window = Pool2d {
        padding: [side / 2; 2],
        ..Pool2d::new([side; 2])
    };
    let average = AvgPool2d {
        window,
        ..AvgPool2d::new([1, 1])
    };
    let image = ones(&[1, 1, 1, 1]);
    let mean = image.avg_pool2d(average).unwrap();
    assert!(
        mean.to_vec::<f32>()
            .unwrap()
            .iter()
            .all(|&mean| mean < 1e-9)
    );
}

#[test]
fn a_window_that_misses_the_image_has_no_gradient() {
    // Taps of each dimension at -1 and 2, on an image of 1 or 2 columns.
    let window = Pool2d {
        stride: [2; 2],
        padding: [1; 2],
        dilation: [3; 2],
        ceil_mode: true,
        ..Pool2d::new([2, 2])
    };
    for shape in [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 2, 1]] {
        let image = ones(&shape).requires_grad_(true).unwrap();
        let (best, places) = image.max_pool2d_with_indices(window).unwrap();
        assert_eq!(best.to_vec::<f32>().unwrap()[0], f32::NEG_INFINITY);
        assert_eq!(places.to_vec::<i64>().unwrap()[0], -1);
        best.sum_all().unwrap().backward().unwrap();
        let grad = image.grad().unwrap().to_vec::<f32>().unwrap();
        assert!(grad.iter().all(|&grad| grad == 0.0), "{shape:?}: {grad:?}");
    }
}

#[test]
fn shapes_beyond_counting_are_errors() {
    let many = 1 << 40;
    for shape in [[many, many, 0], [0, many, many], [many, 0, many]] {
        assert!(Tensor::zeros(&shape, "cpu").is_err(), "{shape:?}");
    }
    let one = ones(&[1]);
    let wide = one.expand(&[isize::MAX / 8]).unwrap();
    assert_eq!(wide.nbytes(), isize::MAX as usize / 8 * 4);
    assert!(wide.to_vec::<f32>().is_err());
    assert!(wide.to_bytes().is_err());
    let text = wide.to_string();
    assert!(
        text.starts_with("tensor([1., 1., 1., ..., 1., 1., 1.], "),
        "{text}"
    );
    assert!(one.expand(&[isize::MAX]).is_err(), "its bytes overflow");
    assert!(one.expand(&[0, isize::MAX, 8]).is_err());
    assert!(one.as_strided(&[1 << 62, 4], &[0, 0], 0).is_err());
    let bytes = one.to_dtype(DType::U8).unwrap();
    let widest = bytes.expand(&[isize::MAX]).unwrap();
    assert!(Tensor::cat(&[&widest; 3], 0).is_err());
    for shape in [[0, usize::MAX, 1], [0, usize::MAX, usize::MAX]] {
        assert!(Tensor::zeros(&shape, "cpu").is_err(), "{shape:?}");
        assert!(one.as_strided(&shape, &[1; 3], 0).is_err(), "{shape:?}");
    }
    let wide = Tensor::zeros(&[0, isize::MAX as usize], "cpu").unwrap();
    let slice = wide.slice(1, -3, isize::MAX, 1).unwrap();
    assert_eq!(slice.shape()[..], [0, 3]);
}

#[test]
fn views_of_an_empty_tensor_may_have_any_strides() {
    let strides = [usize::MAX; 2];
    let none = ones(&[1]).as_strided(&[4, 0], &strides, 1).unwrap();
    assert_eq!(none.unsqueeze(0).unwrap().numel(), 0);
    assert_eq!(none.select(0, 3).unwrap().numel(), 0);
    let rows = none.slice(0, 1, 4, 2).unwrap();
    assert_eq!(rows.shape()[..], [2, 0]);
    assert_eq!(rows.add(1.0).unwrap().to_vec::<f32>().unwrap(), []);
}

#[test]
fn a_step_beyond_the_last_element_takes_the_first() {
    let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2], "cpu").unwrap();
    for step in LARGE {
        let first = x.slice(0, 0, 2, step).unwrap().t().unwrap();
        assert_eq!(first.add(1.0).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0]);
    }
    let x = ones(&[4, 10]).requires_grad_(true).unwrap();
    let row = x.slice(0, 3, 4, usize::MAX).unwrap();
    row.sum_all().unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().sum_all().unwrap().item().unwrap(), 10.0);
}

#[test]
fn arange_counts_whole_numbers_exactly() {
    let arange = |start: i64, end: i64, step: i64| {
        let numbers = Tensor::arange(start, end, step, "cpu").unwrap();
        numbers.to_vec::<i64>().unwrap()
    };
    let exact = (1 << 53) + 1;
    assert_eq!(arange(exact, exact + 2, 1), [exact, exact + 1]);
    assert_eq!(arange(i64::MAX - 1, i64::MAX, 1), [i64::MAX - 1]);
    let quarter = 1 << 62;
    let quarters = [i64::MIN, -quarter, 0, quarter];
    assert_eq!(arange(i64::MIN, i64::MAX, quarter), quarters);
    assert_eq!(arange(i64::MAX, i64::MIN, i64::MIN), [i64::MAX, -1]);
    assert_eq!(arange(5, 0, -2), [5, 3, 1]);
    assert_eq!(arange(3, 3, -1), []);
    for (start, end, step) in [
        (5, 0, 1),
        (0, 5, -1),
        (0, 5, 0),
        (i64::MAX, i64::MAX - 1, 1),
    ] {
        assert!(Tensor::arange(start, end, step, "cpu").is_err());
    }
}

#[test]
fn more_numbers_than_memory_are_errors() {
    assert!(Tensor::arange(0, i64::MAX, 1, "cpu").is_err());
    assert!(Tensor::arange(0.0, 1e30, 1.0, "cpu").is_err());
    assert!(Tensor::linspace(0.0, 1.0, usize::MAX, "cpu").is_err());
    assert!(Tensor::eye(1 << 40, "cpu").is_err());
    assert!(Tensor::randperm(usize::MAX, "cpu").is_err());
}

#[test]
fn logsumexp_of_nothing_is_minus_infinity() {
    for (shape, dims, count) in [
        (&[2, 0][..], &[1][..], 2),
        (&[0], &[0], 1),
        (&[0, 3], &[1], 0),
    ] {
        let x = Tensor::zeros(shape, "cpu").unwrap();
        let x = x.requires_grad_(true).unwrap();
        let y = x.logsumexp(dims, false).unwrap();
        let expected = vec![f32::NEG_INFINITY; count];
        assert_eq!(y.to_vec::<f32>().unwrap(), expected, "{shape:?}");
        y.sum_all().unwrap().backward().unwrap();
        assert_eq!(x.grad().unwrap().shape()[..], *shape);
    }
}

#[test]
fn numbers_that_a_dtype_lacks_are_errors_as_in_pytorch() {
    use fireclay_tensor::Scalar;
    let full = |value: Scalar, dtype| Tensor::full_of(&[1], value, dtype, "cpu");
    for (value, dtype) in [
        (f64::NAN.into(), DType::I64),
        (f64::INFINITY.into(), DType::I32),
        (1e300.into(), DType::I32),
        (1e19.into(), DType::I64),
        (1e300.into(), DType::F32),
        (300i64.into(), DType::U8),
        ((-256i64).into(), DType::U8),
        (255.5.into(), DType::U8),
        (128i64.into(), DType::I8),
        (3_000_000_000i64.into(), DType::I32),
        (i64::MIN.into(), DType::I16),
    ] {
        assert!(full(value, dtype).is_err(), "{value} as {dtype}");
        let tensor = ones(&[1]).to_dtype(dtype).unwrap();
        assert!(tensor.fill_(value).is_err());
        assert!(tensor.full_like(value).is_err());
    }
    for (value, dtype, expected) in [
        ((-1i64).into(), DType::U8, 255.0),
        ((-255i64).into(), DType::U8, 1.0),
        (2.7.into(), DType::I64, 2.0),
        ((-2.7).into(), DType::I8, -2.0),
        (f64::NAN.into(), DType::Bool, 1.0),
        (0.5.into(), DType::Bool, 1.0),
        (1e5.into(), DType::F16, f64::INFINITY),
        (1e300.into(), DType::F64, 1e300),
        (f64::INFINITY.into(), DType::F32, f64::INFINITY),
        (i64::MAX.into(), DType::I64, i64::MAX as f64),
    ] {
        let value: Scalar = value;
        let element = full(value, dtype).unwrap().item().unwrap();
        assert_eq!(element, expected, "{value} as {dtype}");
    }
}

#[test]
fn whole_numbers_have_no_batch_norm_and_drop_out_only_in_full() {
    let (x, whole) = (ones(&[4, 3]), ones(&[3]).to_dtype(DType::I64).unwrap());
    let real = ones(&[3]);
    for (mean, variance) in [(&whole, &real), (&real, &whole)] {
        for training in [false, true] {
            let options = BatchNorm {
                running: Some((mean, variance)),
                training,
                ..BatchNorm::default()
            };
            assert!(x.batch_norm(options).is_err());
        }
    }
    assert_eq!(
        real.to_vec::<f32>().unwrap(),
        [1.0; 3],
        "nothing is changed"
    );
    assert!(whole.dropout(0.5, true).is_err());
    let none = whole.dropout(1.0, true).unwrap();
    assert_eq!(none.to_vec::<i64>().unwrap(), [0; 3], "of its dtype");
}

#[test]
fn uniform_numbers_are_finite_or_refused() {
    let (narrow, wide) = (ones(&[64]), ones(&[64]).to_dtype(DType::F64).unwrap());
    for bounds in [(-3e38, 3e38), (-1e300, 1e300), (1e300, 2e300)] {
        assert!(narrow.uniform_(bounds.0, bounds.1).is_err(), "{bounds:?}");
        wide.uniform_(bounds.0, bounds.1).unwrap();
    }
    let numbers = wide.to_vec::<f64>().unwrap();
    assert!(
        numbers
            .iter()
            .all(|number| (1e300..=2e300).contains(number))
    );
    assert!(wide.uniform_(-1e308, 1e308).is_err());
}

/// A view whose layout lacks a stride, by a user's op: all of it safe code.
#[derive(Debug)]
struct Lopsided;

impl Op for Lopsided {
    fn name(&self) -> &'static str {
        "lopsided"
    }

    fn output(&self, _: &[Meta<'_>]) -> Result<OutputMetas> {
        unreachable!("a view has no output of its own")
    }

    fn view(&self, _: &Layout) -> Option<Result<Layout>> {
        let strides = std::iter::once(1).collect();
        Some(Ok(Layout::strided([4, 1000].into(), strides, 0)))
    }
}

#[test]
#[should_panic(expected = "one stride per size")]
fn a_layout_without_all_strides_cannot_be_made() {
    let _ = dispatch::call_one(Lopsided, &[&ones(&[4])]).map(|view| view.to_bytes());
}

/// Doubles f32.
#[derive(Debug)]
struct Twice;

impl Op for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let shape = inputs[0].shape().clone();
        Ok(std::iter::once(OutputMeta::contiguous(shape, inputs[0].dtype)).collect())
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let x = call.input::<f32>(0);
        let out = call.output::<f32>(0).iter_mut();
        out.zip(x).for_each(|(out, x)| *out = x * 2.0);
        Ok(())
    }
}

#[test]
fn results_are_written_in_the_targets_dtype_and_each_has_a_target() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for input in [DType::F32, DType::F16] {
            let x = ones(&[3]).to_dtype(input).unwrap();
            let out = Tensor::full_of(&[3], 0i64, dtype, "cpu").unwrap();
            dispatch::call_into(Twice, &[&x], &[&out]).unwrap();
            let values: Vec<f64> = out.to_dtype(DType::F64).unwrap().to_vec().unwrap();
            assert_eq!(values, [2.0; 3], "{input} to {dtype}");
        }
    }
    let x = ones(&[3]);
    assert!(dispatch::call_into(Twice, &[&x], &[]).is_err());
    let (a, b) = (ones(&[3]), ones(&[3]));
    assert!(dispatch::call_into(Twice, &[&x], &[&a, &b]).is_err());
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0; 3]);
}
