//! Convolution and its gradients against naive ones in f64.

mod oracle;

use fireclay_cpu::conv::{
    Conv2dShape, WindowError, conv2d, conv2d_backward_bias, conv2d_backward_input,
    conv2d_backward_weight,
};
use fireclay_cpu::gemm::Float;
use oracle::{Numbers, assert_close, on_one_thread, on_two_threads};

/// Calls `visit(output, input, weight)` with the indices of every product in a convolution.
fn each_product(shape: &Conv2dShape, mut visit: impl FnMut(usize, usize, usize)) {
    let [out_height, out_width] = shape.output_size().unwrap();
    let (ins, outs) = (
        shape.in_channels / shape.groups,
        shape.out_channels / shape.groups,
    );
    let [kernel_height, kernel_width] = shape.kernel;
    for image in 0..shape.batch {
        for out in 0..shape.out_channels {
            for y in 0..out_height {
                for x in 0..out_width {
                    for channel in 0..ins {
                        for ky in 0..kernel_height {
                            for kx in 0..kernel_width {
                                let iy = (y * shape.stride[0] + ky * shape.dilation[0])
                                    .wrapping_sub(shape.padding[0]);
                                let ix = (x * shape.stride[1] + kx * shape.dilation[1])
                                    .wrapping_sub(shape.padding[1]);
                                if iy >= shape.height || ix >= shape.width {
                                    continue;
                                }
                                let from = image * shape.in_channels + out / outs * ins + channel;
                                visit(
                                    ((image * shape.out_channels + out) * out_height + y)
                                        * out_width
                                        + x,
                                    (from * shape.height + iy) * shape.width + ix,
                                    ((out * ins + channel) * kernel_height + ky) * kernel_width
                                        + kx,
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

struct Case<T> {
    shape: Conv2dShape,
    input: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
    grad: Vec<T>,
}

#[derive(Debug, PartialEq)]
struct Results<T> {
    output: Vec<T>,
    grad_input: Vec<T>,
    grad_weight: Vec<T>,
    grad_bias: Vec<T>,
}

impl<T: Float> Case<T> {
    fn random(numbers: &mut Numbers, shape: Conv2dShape) -> Self {
        Case {
            shape,
            input: numbers.values(shape.input_numel()),
            weight: numbers.values(shape.weight_numel()),
            bias: numbers.values(shape.out_channels),
            grad: numbers.values(shape.output_numel().unwrap()),
        }
    }

    fn run(&self) -> Results<T> {
        let shape = &self.shape;
        let old = T::from_f64(f64::NAN);
        let mut results = Results {
            output: vec![old; self.grad.len()],
            grad_input: vec![old; self.input.len()],
            grad_weight: vec![old; self.weight.len()],
            grad_bias: vec![old; self.bias.len()],
        };
        conv2d(
            shape,
            &self.input,
            &self.weight,
            Some(&self.bias),
            &mut results.output,
        )
        .unwrap();
        conv2d_backward_input(shape, &self.weight, &self.grad, &mut results.grad_input).unwrap();
        conv2d_backward_weight(shape, &self.input, &self.grad, &mut results.grad_weight).unwrap();
        conv2d_backward_bias(shape, &self.grad, &mut results.grad_bias);
        results
    }

    fn naive(&self) -> Results<f64> {
        let wide = |values: &[T]| {
            values
                .iter()
                .map(|value| value.to_f64())
                .collect::<Vec<f64>>()
        };
        let (input, weight, bias, grad) = (
            wide(&self.input),
            wide(&self.weight),
            wide(&self.bias),
            wide(&self.grad),
        );
        let plane: usize = self.shape.output_size().unwrap().iter().product();
        let mut results = Results {
            output: vec![0.0; grad.len()],
            grad_input: vec![0.0; input.len()],
            grad_weight: vec![0.0; weight.len()],
            grad_bias: vec![0.0; bias.len()],
        };
        for (index, output) in results.output.iter_mut().enumerate() {
            *output = bias[index / plane % bias.len()];
            results.grad_bias[index / plane % bias.len()] += grad[index];
        }
        each_product(&self.shape, |o, i, w| {
            results.output[o] += input[i] * weight[w];
            results.grad_input[i] += grad[o] * weight[w];
            results.grad_weight[w] += grad[o] * input[i];
        });
        results
    }

    fn check(&self) {
        let shape = &self.shape;
        let (got, wanted) = (self.run(), self.naive());
        let what = |name: &str| format!("{name} of {shape:?}");
        let taps = shape.kernel[0] * shape.kernel[1];
        let pixels = wanted.output.len() / shape.out_channels.max(1);
        let (ins, outs) = (
            shape.in_channels / shape.groups,
            shape.out_channels / shape.groups,
        );
        assert_close(&got.output, &wanted.output, taps * ins, &what("output"));
        assert_close(
            &got.grad_input,
            &wanted.grad_input,
            taps * outs,
            &what("grad_input"),
        );
        assert_close(
            &got.grad_weight,
            &wanted.grad_weight,
            pixels,
            &what("grad_weight"),
        );
        assert_close(
            &got.grad_bias,
            &wanted.grad_bias,
            pixels,
            &what("grad_bias"),
        );
    }
}

const PLAIN: Conv2dShape = Conv2dShape {
    batch: 1,
    in_channels: 1,
    out_channels: 1,
    groups: 1,
    height: 5,
    width: 5,
    kernel: [3, 3],
    stride: [1, 1],
    padding: [0, 0],
    dilation: [1, 1],
};

fn random_shape(numbers: &mut Numbers) -> Conv2dShape {
    loop {
        let groups = numbers.between(1, 3);
        let mut pair = |low, high| [numbers.between(low, high), numbers.between(low, high)];
        let (kernel, stride, padding, dilation) = (pair(1, 4), pair(1, 4), pair(0, 3), pair(1, 3));
        let shape = Conv2dShape {
            batch: numbers.between(0, 3),
            in_channels: groups * numbers.between(1, 5),
            out_channels: groups * numbers.between(1, 19),
            groups,
            height: numbers.between(1, 14),
            width: numbers.between(1, 30),
            kernel,
            stride,
            padding,
            dilation,
        };
        if shape.output_size().is_ok() {
            return shape;
        }
    }
}

#[test]
fn convolutions_of_random_shapes_agree_with_the_naive_one() {
    let mut numbers = Numbers::new(11);
    for _ in 0..150 {
        let shape = random_shape(&mut numbers);
        Case::<f32>::random(&mut numbers, shape).check();
        Case::<f64>::random(&mut numbers, shape).check();
    }
}

#[test]
fn convolutions_of_well_known_shapes_agree_with_the_naive_one() {
    let mut numbers = Numbers::new(12);
    let same = Conv2dShape {
        padding: [1, 1],
        ..PLAIN
    };
    for shape in [
        Conv2dShape {
            batch: 9,
            out_channels: 32,
            height: 28,
            width: 28,
            ..same
        },
        Conv2dShape {
            batch: 3,
            in_channels: 32,
            out_channels: 64,
            height: 14,
            width: 14,
            ..same
        },
        Conv2dShape {
            in_channels: 3,
            out_channels: 20,
            height: 41,
            width: 43,
            kernel: [7, 7],
            stride: [2, 2],
            padding: [3, 3],
            ..PLAIN
        },
        Conv2dShape {
            batch: 2,
            in_channels: 70,
            out_channels: 30,
            height: 13,
            width: 11,
            kernel: [1, 1],
            ..PLAIN
        },
        Conv2dShape {
            batch: 2,
            in_channels: 7,
            out_channels: 9,
            height: 13,
            width: 11,
            kernel: [1, 1],
            stride: [2, 2],
            ..PLAIN
        },
        Conv2dShape {
            batch: 2,
            in_channels: 24,
            out_channels: 24,
            groups: 24,
            height: 15,
            width: 17,
            ..same
        },
        Conv2dShape {
            in_channels: 4,
            out_channels: 8,
            groups: 4,
            height: 9,
            width: 200,
            stride: [5, 4],
            ..PLAIN
        },
        Conv2dShape {
            in_channels: 100,
            out_channels: 3,
            height: 60,
            width: 60,
            ..same
        },
    ] {
        Case::<f32>::random(&mut numbers, shape).check();
    }
}

#[test]
fn gradients_are_the_adjoints_of_the_convolution() {
    let mut numbers = Numbers::new(13);
    for _ in 0..50 {
        let shape = random_shape(&mut numbers);
        let case = Case::<f64>::random(&mut numbers, shape);
        let results = case.run();
        let mut linear = vec![0.0; case.grad.len()];
        conv2d(&shape, &case.input, &case.weight, None, &mut linear).unwrap();
        let dot = |left: &[f64], right: &[f64]| {
            left.iter()
                .zip(right)
                .map(|(left, right)| left * right)
                .sum::<f64>()
        };
        let wanted = dot(&linear, &case.grad);
        let tolerance = 1e-12 * (1.0 + linear.len() as f64 * 10.0);
        assert!(
            (dot(&case.input, &results.grad_input) - wanted).abs() < tolerance,
            "{shape:?}"
        );
        assert!(
            (dot(&case.weight, &results.grad_weight) - wanted).abs() < tolerance,
            "{shape:?}"
        );
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let mut numbers = Numbers::new(14);
    for shape in [
        Conv2dShape {
            batch: 13,
            out_channels: 32,
            height: 28,
            width: 28,
            padding: [1, 1],
            ..PLAIN
        },
        Conv2dShape {
            in_channels: 12,
            out_channels: 20,
            height: 33,
            width: 31,
            stride: [2, 2],
            padding: [1, 1],
            ..PLAIN
        },
    ] {
        let case = Case::<f32>::random(&mut numbers, shape);
        assert_eq!(
            on_one_thread(|| case.run()),
            on_two_threads(|| case.run()),
            "{shape:?}"
        );
    }
}

#[test]
fn shapes_without_an_output_are_errors() {
    let shape = Conv2dShape {
        kernel: [6, 3],
        ..PLAIN
    };
    assert_eq!(
        shape.output_size(),
        Err(WindowError::KernelTooLarge {
            kernel: 6,
            input: 5
        })
    );
    let shape = Conv2dShape {
        dilation: [1, 3],
        padding: [0, 0],
        ..PLAIN
    };
    assert_eq!(
        shape.output_size(),
        Err(WindowError::KernelTooLarge {
            kernel: 7,
            input: 5
        })
    );
    for large in [usize::MAX, 1 << 63, 1 << 62] {
        for shape in [
            Conv2dShape {
                dilation: [1, large],
                ..PLAIN
            },
            Conv2dShape {
                padding: [large, 0],
                ..PLAIN
            },
        ] {
            assert_eq!(shape.output_size(), Err(WindowError::TooLarge { input: 5 }));
        }
    }
    let shape = Conv2dShape {
        stride: [0, 1],
        ..PLAIN
    };
    assert_eq!(
        shape.output_size(),
        Err(WindowError::Zero { what: "stride" })
    );
    let shape = Conv2dShape {
        in_channels: 3,
        groups: 2,
        ..PLAIN
    };
    assert_eq!(
        shape.output_size(),
        Err(WindowError::Groups {
            in_channels: 3,
            out_channels: 1,
            groups: 2
        })
    );
}
