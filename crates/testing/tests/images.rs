//! Convolution and pooling on the virtual GPU against the host, over many geometries: the same bits, forward and backward.

use fireclay_tensor::{AvgPool2d, Conv2dOptions, DType, Error, Pool2d, Result, Tensor};
use fireclay_testing::compare::{Tolerance, matches, same_bits};
use fireclay_testing::devices::{moved, virtual_cuda};
use fireclay_testing::draw::{Draw, Form};

fn numbers(draw: &mut Draw, shape: &[usize], dtype: DType) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count).map(|_| draw.number(-2.0, 2.0)).collect();
    Tensor::from_slice(&numbers, shape, "cpu")
        .unwrap()
        .to_dtype(dtype)
        .unwrap()
        .requires_grad_(true)
        .unwrap()
}

/// The result, and the gradients of the inputs for a gradient that differs everywhere.
fn run(inputs: &[Tensor], call: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Tensor> {
    let leaf = |input: &Tensor| input.detach().requires_grad_(true).unwrap();
    let inputs: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let result = call(&inputs).unwrap();
    let weights = Tensor::arange(0.0, result.numel() as f64, 1.0, result.device())
        .unwrap()
        .to_dtype(result.dtype())
        .unwrap()
        .mul(0.37)
        .unwrap()
        .sin()
        .unwrap()
        .reshape(
            &result
                .shape()
                .iter()
                .map(|&size| size as isize)
                .collect::<Vec<_>>(),
        )
        .unwrap();
    result
        .mul(&weights)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let mut all = vec![result.detach()];
    all.extend(inputs.iter().map(|input| input.grad().unwrap()));
    all
}

/// Whether the device gives the host's bits; those of result `close` may be as near as another order of a sum gives.
fn compare(
    what: &str,
    inputs: &[Tensor],
    close: Option<usize>,
    call: &dyn Fn(&[Tensor]) -> Result<Tensor>,
) {
    let there = moved(inputs, virtual_cuda());
    let (got, want) = (run(&there, call), run(inputs, call));
    for (number, (got, want)) in got.iter().zip(&want).enumerate() {
        let got = got.cpu().unwrap();
        if close == Some(number) {
            let close = matches(&got, want, Tolerance::new(1e-4, 1e-4));
            assert!(close.is_ok(), "{what}, result {number}: {close:?}");
            continue;
        }
        let same = same_bits(&got, want);
        if !same {
            let close = matches(&got, want, Tolerance::new(1e-5, 1e-5));
            assert!(close.is_ok(), "{what}, result {number}: {close:?}");
            panic!("{what}, result {number}: other bits");
        }
    }
}

/// Batch, channels, height, width, results, kernel, and the options.
type Geometry = (usize, usize, [usize; 2], usize, [usize; 2], Conv2dOptions);

fn options(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Conv2dOptions {
    Conv2dOptions {
        stride,
        padding,
        dilation,
        groups,
    }
}

#[test]
fn convolutions_have_the_bits_of_the_host() {
    let one = options([1, 1], [0, 0], [1, 1], 1);
    let geometries: [Geometry; 14] = [
        // Every tile, of which some hang over the edge; sums over many steps; several bands and groups of images.
        (
            2,
            5,
            [9, 11],
            70,
            [3, 3],
            options([1, 1], [1, 1], [1, 1], 1),
        ),
        (1, 33, [24, 25], 130, [1, 1], one),
        (3, 7, [6, 5], 33, [3, 2], options([2, 1], [1, 1], [1, 1], 1)),
        (
            2,
            20,
            [8, 8],
            17,
            [3, 3],
            options([2, 2], [1, 1], [1, 1], 1),
        ),
        (
            1,
            4,
            [40, 30],
            5,
            [5, 5],
            options([1, 1], [2, 2], [1, 1], 1),
        ),
        (35, 3, [5, 5], 4, [3, 3], options([1, 1], [1, 1], [1, 1], 1)),
        // Steps larger than the kernel, taps far apart, both, and what no tap reaches.
        (
            2,
            4,
            [11, 12],
            6,
            [2, 2],
            options([3, 4], [0, 1], [1, 1], 1),
        ),
        (
            1,
            6,
            [15, 14],
            8,
            [3, 2],
            options([1, 2], [2, 0], [3, 4], 1),
        ),
        (
            2,
            4,
            [16, 13],
            4,
            [3, 3],
            options([4, 6], [3, 4], [6, 4], 1),
        ),
        (1, 4, [9, 9], 4, [2, 2], options([2, 2], [0, 0], [2, 4], 1)),
        // Groups, few results, single pixels.
        (
            2,
            12,
            [7, 9],
            15,
            [3, 3],
            options([1, 1], [1, 1], [1, 1], 3),
        ),
        (2, 4, [7, 6], 8, [3, 3], options([2, 1], [1, 1], [1, 1], 4)),
        (1, 5, [1, 1], 3, [1, 1], one),
        (4, 70, [7, 7], 2, [3, 3], options([1, 1], [1, 1], [1, 1], 1)),
    ];
    let mut draw = Draw::new(11);
    for (batch, channels, [height, width], results, [kh, kw], options) in geometries {
        for (dtype, with_bias) in [(DType::F32, true), (DType::F64, false)] {
            let each = channels / options.groups;
            let mut inputs = vec![
                numbers(&mut draw, &[batch, channels, height, width], dtype),
                numbers(&mut draw, &[results, each, kh, kw], dtype),
            ];
            if with_bias {
                inputs.push(numbers(&mut draw, &[results], dtype));
            }
            let what = format!(
                "{batch} x {channels} x {height} x {width} to {results}, {dtype} {options:?}"
            );
            compare(&what, &inputs, None, &|x| {
                x[0].conv2d(&x[1], x.get(2), options)
            });
        }
    }
}

/// Where a group has one result, the sums of the weight's gradient have another order than the host's: within 1e-4.
#[test]
fn depthwise_convolutions_are_close_to_the_hosts() {
    let mut draw = Draw::new(12);
    for (channels, each, size, kernel, batch) in [
        (6, 1, [13, 9], [3, 3], 2),
        (4, 2, [20, 31], [5, 4], 3),
        (3, 3, [5, 5], [1, 1], 300),
    ] {
        let groups = channels / each;
        let inputs = [
            numbers(&mut draw, &[batch, channels, size[0], size[1]], DType::F32),
            numbers(&mut draw, &[groups, each, kernel[0], kernel[1]], DType::F32),
            numbers(&mut draw, &[groups], DType::F32),
        ];
        let options = options([1, 2], [1, 0], [2, 1], groups);
        let options = match kernel {
            [1, 1] => Conv2dOptions {
                padding: [0, 0],
                ..options
            },
            _ => options,
        };
        compare("depthwise", &inputs, Some(2), &|x| {
            x[0].conv2d(&x[1], Some(&x[2]), options)
        });
    }
}

/// Images and weights that lie in any way, and 16-bit ones.
#[test]
fn images_may_lie_in_any_way() {
    let mut draw = Draw::new(13);
    for form in Form::ALL {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let inputs: Vec<Tensor> = [[2, 5, 7, 6], [4, 5, 3, 3]]
                .map(|shape| {
                    let x = numbers(&mut draw, &shape, dtype).detach();
                    form.of(&x).detach().requires_grad_(true).unwrap()
                })
                .into();
            compare(&format!("{form:?} {dtype}"), &inputs, None, &|x| {
                x[0].conv2d(&x[1], None, Conv2dOptions::default())?
                    .max_pool2d(Pool2d::new([2, 2]))
            });
        }
    }
}

#[test]
fn pools_have_the_bits_of_the_host() {
    let mut draw = Draw::new(14);
    let window = |kernel, stride, padding, dilation, ceil_mode| Pool2d {
        kernel,
        stride,
        padding,
        dilation,
        ceil_mode,
    };
    let windows = [
        Pool2d::new([2, 2]),
        window([3, 3], [2, 2], [1, 1], [1, 1], false),
        window([3, 2], [1, 3], [1, 1], [1, 1], true),
        window([2, 3], [3, 1], [1, 1], [2, 3], true),
        window([4, 4], [7, 9], [0, 2], [1, 1], false),
    ];
    // Planes of which many, one, or some rows are a block's; a row that is too long for its memory.
    let shapes: [&[usize]; 5] = [
        &[3, 50, 7, 9],
        &[2, 12, 13],
        &[1, 2, 120, 101],
        &[2, 1, 9, 9001],
        &[0, 3, 8, 8],
    ];
    for shape in shapes {
        for dtype in [DType::F32, DType::F64] {
            let x = [numbers(&mut draw, shape, dtype)];
            for window in windows {
                let what = format!("{shape:?} {dtype} {window:?}");
                compare(&what, &x, None, &|x| x[0].max_pool2d(window));
                let there = &moved(&x, virtual_cuda())[0];
                let got = there.max_pool2d_with_indices(window).unwrap().1;
                let want = x[0].max_pool2d_with_indices(window).unwrap().1;
                assert!(same_bits(&got.cpu().unwrap(), &want), "{what}: places");
                for (count_include_pad, divisor_override) in
                    [(true, None), (false, None), (true, Some(7))]
                {
                    let average = AvgPool2d {
                        window: Pool2d {
                            dilation: [1, 1],
                            ..window
                        },
                        count_include_pad,
                        divisor_override,
                    };
                    compare(&what, &x, None, &|x| x[0].avg_pool2d(average));
                }
            }
            for size in [[1, 1], [4, 5], [9, 16], [0, 3]] {
                let what = format!("{shape:?} {dtype} to {size:?}");
                compare(&what, &x, None, &|x| x[0].adaptive_avg_pool2d(size));
            }
        }
    }
}

/// NaN, infinities and ties are chosen as on the host.
#[test]
fn pools_choose_as_the_host_does() {
    let values = [
        f32::NEG_INFINITY,
        f32::NEG_INFINITY,
        1.0,
        1.0,
        f32::NAN,
        3.0,
        f32::NEG_INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
    ];
    let x = Tensor::from_slice(&values, &[1, 1, 2, 6], "cpu").unwrap();
    let window = Pool2d::new([2, 2]);
    let (want, want_places) = x.max_pool2d_with_indices(window).unwrap();
    let there = x.to(virtual_cuda()).unwrap();
    let (got, places) = there.max_pool2d_with_indices(window).unwrap();
    assert_eq!(
        places.cpu().unwrap().to_vec::<i64>().unwrap(),
        want_places.to_vec::<i64>().unwrap()
    );
    let bits = |x: Tensor| -> Vec<u32> {
        let values = x.cpu().unwrap().to_vec::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect()
    };
    assert_eq!(bits(got), bits(want));
}

/// What the kernels can't count is an error that says so.
#[test]
fn windows_beyond_32_bits_are_named() {
    let x = Tensor::zeros(&[1, 1, 1, 3], virtual_cuda()).unwrap();
    let weight = Tensor::zeros(&[1, 1, 1, 1], virtual_cuda()).unwrap();
    let far = options([1 << 30, 1 << 30], [0, 0], [1, 1], 1);
    let window = Pool2d {
        stride: [1 << 40, 1 << 40],
        ..Pool2d::new([1, 1])
    };
    for error in [
        x.conv2d(&weight, None, far).unwrap_err(),
        x.max_pool2d(window).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{text}");
        assert!(
            text.contains("more than the kernels of devices count"),
            "{text}"
        );
        assert!(text.contains("to(\"cpu\")"), "{text}");
    }
}
