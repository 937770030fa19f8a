//! Pooling and its gradients against naive ones in f64.

mod oracle;

use fireclay_cpu::conv::WindowError;
use fireclay_cpu::gemm::Float;
use fireclay_cpu::pool::{
    AveragePool2dShape, Pool2dShape, adaptive_avg_pool2d, adaptive_avg_pool2d_backward, avg_pool2d,
    avg_pool2d_backward, max_pool2d, max_pool2d_backward,
};
use oracle::{Numbers, assert_close, on_one_thread, on_two_threads};

const PAIRS: Pool2dShape = Pool2dShape {
    planes: 1,
    height: 4,
    width: 4,
    kernel: [2, 2],
    stride: [2, 2],
    padding: [0, 0],
    dilation: [1, 1],
    ceil_mode: false,
};

fn random_shape(numbers: &mut Numbers, dilated: bool) -> Pool2dShape {
    loop {
        let mut pair = |low, high| [numbers.between(low, high), numbers.between(low, high)];
        let (kernel, stride, padding) = (pair(1, 4), pair(1, 5), pair(0, 2));
        let dilation = if dilated { pair(1, 3) } else { [1, 1] };
        let shape = Pool2dShape {
            planes: numbers.between(0, 5),
            height: numbers.between(1, 12),
            width: numbers.between(1, 40),
            kernel,
            stride,
            padding,
            dilation,
            ceil_mode: numbers.between(0, 1) == 1,
        };
        if shape.output_size().is_ok() {
            return shape;
        }
    }
}

/// The input coordinates of a window along one dim, and how many there are with padding.
fn places(shape: &Pool2dShape, dim: usize, at: usize) -> (Vec<usize>, usize) {
    let input = [shape.height, shape.width][dim] as isize;
    let padding = shape.padding[dim] as isize;
    let mut inside = Vec::new();
    let mut all = 0;
    for tap in 0..shape.kernel[dim] {
        let place = (at * shape.stride[dim] + tap * shape.dilation[dim]) as isize - padding;
        if place < input + padding {
            all += 1;
        }
        if (0..input).contains(&place) {
            inside.push(place as usize);
        }
    }
    (inside, all)
}

fn check_max<T: Float>(numbers: &mut Numbers, shape: &Pool2dShape) {
    let [height, width] = shape.output_size().unwrap();
    let plane = shape.height * shape.width;
    // Few values, so that there are many equal ones.
    let input: Vec<T> = (0..shape.planes * plane)
        .map(|_| {
            T::from_f64([-1.0, 0.0, 0.5, 2.0, f64::NAN, f64::NEG_INFINITY][numbers.between(0, 5)])
        })
        .collect();
    let numel = shape.planes * height * width;
    let mut output = vec![T::ZERO; numel];
    let mut indices = vec![-1; numel];
    max_pool2d(shape, &input, &mut output, &mut indices);
    let grad: Vec<T> = numbers.values(numel);
    let mut grad_input = vec![T::ONE; input.len()];
    max_pool2d_backward(shape, &grad, &indices, &mut grad_input);
    let mut wanted_grad = vec![0.0; input.len()];
    for index in 0..numel {
        let (image, y, x) = (
            index / (height * width),
            index / width % height,
            index % width,
        );
        let (rows, cols) = (places(shape, 0, y).0, places(shape, 1, x).0);
        let all: Vec<usize> = rows
            .iter()
            .flat_map(|row| cols.iter().map(move |col| row * shape.width + col))
            .collect();
        let at = |place: usize| input[image * plane + place].to_f64();
        let nan = all.iter().rev().find(|place| at(**place).is_nan());
        let largest = all
            .iter()
            .map(|place| at(*place))
            .fold(f64::NEG_INFINITY, f64::max);
        let wanted = nan.or_else(|| all.iter().find(|place| at(**place) == largest));
        let &wanted = wanted.unwrap_or_else(|| panic!("an empty window in {shape:?}"));
        assert_eq!(indices[index], wanted as i64, "{shape:?} at {index}");
        let value = output[index].to_f64();
        assert!(
            value == at(wanted) || value.is_nan() && at(wanted).is_nan(),
            "{shape:?} at {index}"
        );
        wanted_grad[image * plane + wanted] += grad[index].to_f64();
    }
    assert_close(&grad_input, &wanted_grad, 16, &format!("{shape:?}"));
}

#[test]
fn maxima_and_their_places_agree_with_the_naive_ones() {
    let mut numbers = Numbers::new(21);
    let mut checked = 0;
    while checked < 300 {
        let shape = random_shape(&mut numbers, true);
        let [height, width] = shape.output_size().unwrap();
        // With dilation and ceil mode a window may have no place at all; PyTorch gives -inf there.
        let empty =
            |dim: usize, size: usize| (0..size).any(|at| places(&shape, dim, at).0.is_empty());
        if !empty(0, height) && !empty(1, width) {
            check_max::<f32>(&mut numbers, &shape);
            check_max::<f64>(&mut numbers, &shape);
            checked += 1;
        }
    }
}

#[test]
fn maxima_of_pairs_agree_with_the_naive_ones() {
    let mut numbers = Numbers::new(22);
    for (height, width) in [(2, 2), (28, 28), (14, 14), (7, 9), (3, 71), (2, 130)] {
        let shape = Pool2dShape {
            planes: 40,
            height,
            width,
            ..PAIRS
        };
        check_max::<f32>(&mut numbers, &shape);
        check_max::<f64>(&mut numbers, &shape);
    }
}

fn check_average<T: Float>(numbers: &mut Numbers, shape: &AveragePool2dShape) {
    let window = &shape.window;
    let [height, width] = window.output_size().unwrap();
    let plane = window.height * window.width;
    let numel = window.planes * height * width;
    let input: Vec<T> = numbers.values(window.planes * plane);
    let grad: Vec<T> = numbers.values(numel);
    let mut output = vec![T::ONE; numel];
    let mut grad_input = vec![T::ONE; input.len()];
    avg_pool2d(shape, &input, &mut output);
    avg_pool2d_backward(shape, &grad, &mut grad_input);
    let mut wanted = vec![0.0; numel];
    let mut wanted_grad = vec![0.0; input.len()];
    for index in 0..numel {
        let (image, y, x) = (
            index / (height * width),
            index / width % height,
            index % width,
        );
        let ((rows, all_rows), (cols, all_cols)) = (places(window, 0, y), places(window, 1, x));
        let counted = if shape.count_include_pad {
            all_rows * all_cols
        } else {
            rows.len() * cols.len()
        };
        let divisor = shape.divisor_override.unwrap_or(counted) as f64;
        for row in &rows {
            for col in &cols {
                let at = image * plane + row * window.width + col;
                wanted[index] += input[at].to_f64() / divisor;
                wanted_grad[at] += grad[index].to_f64() / divisor;
            }
        }
    }
    assert_close(&output, &wanted, 16, &format!("{shape:?}"));
    assert_close(&grad_input, &wanted_grad, 16, &format!("{shape:?}"));
}

#[test]
fn averages_agree_with_the_naive_ones() {
    let mut numbers = Numbers::new(23);
    for _ in 0..200 {
        let shape = AveragePool2dShape {
            window: random_shape(&mut numbers, false),
            count_include_pad: numbers.between(0, 1) == 1,
            divisor_override: (numbers.between(0, 3) == 0).then(|| numbers.between(1, 9)),
        };
        check_average::<f32>(&mut numbers, &shape);
        check_average::<f64>(&mut numbers, &shape);
    }
}

#[test]
fn adaptive_averages_agree_with_known_ones_and_are_adjoint() {
    // By hand: 5 places to 3 are 0..2, 1..4, 3..5.
    let input = [1.0, 2.0, 4.0, 8.0, 16.0f64];
    let mut output = [0.0; 3];
    adaptive_avg_pool2d(1, [1, 5], [1, 3], &input, &mut output);
    assert_close(&output, &[1.5, 14.0 / 3.0, 12.0], 1, "5 to 3");

    let mut numbers = Numbers::new(24);
    for _ in 0..60 {
        let planes = numbers.between(0, 4);
        let input_size = [numbers.between(1, 12), numbers.between(1, 12)];
        let output_size = [numbers.between(0, 14), numbers.between(1, 14)];
        let input: Vec<f64> = numbers.values(planes * input_size[0] * input_size[1]);
        let grad: Vec<f64> = numbers.values(planes * output_size[0] * output_size[1]);
        let mut output = vec![1.0; grad.len()];
        let mut grad_input = vec![1.0; input.len()];
        adaptive_avg_pool2d(planes, input_size, output_size, &input, &mut output);
        adaptive_avg_pool2d_backward(planes, input_size, output_size, &grad, &mut grad_input);
        let dot = |left: &[f64], right: &[f64]| {
            left.iter()
                .zip(right)
                .map(|(left, right)| left * right)
                .sum::<f64>()
        };
        assert!((dot(&output, &grad) - dot(&input, &grad_input)).abs() < 1e-11);
        let mut constant = vec![0.0; grad.len()];
        adaptive_avg_pool2d(
            planes,
            input_size,
            output_size,
            &vec![3.0; input.len()],
            &mut constant,
        );
        assert!(constant.iter().all(|value| (value - 3.0f64).abs() < 1e-12));
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let mut numbers = Numbers::new(25);
    let shape = Pool2dShape {
        planes: 97,
        height: 28,
        width: 28,
        kernel: [3, 3],
        padding: [1, 1],
        ..PAIRS
    };
    let input: Vec<f32> = numbers.values(97 * 784);
    let run = || {
        let numel = 97 * 196;
        let (mut output, mut indices) = (vec![0.0; numel], vec![0; numel]);
        max_pool2d(&shape, &input, &mut output, &mut indices);
        let mut average = vec![0.0; numel];
        let averaged = AveragePool2dShape {
            window: shape,
            count_include_pad: true,
            divisor_override: None,
        };
        avg_pool2d(&averaged, &input, &mut average);
        let mut grad = vec![0.0; input.len()];
        max_pool2d_backward(&shape, &output, &indices, &mut grad);
        (output, indices, average, grad)
    };
    assert_eq!(on_one_thread(run), on_two_threads(run));
}

#[test]
fn output_sizes_are_those_of_pytorch() {
    let size = |height, kernel, stride, padding, dilation, ceil_mode| {
        let pair = |value: usize, other: usize| [value, other];
        Pool2dShape {
            planes: 1,
            height,
            width: 1,
            kernel: pair(kernel, 1),
            stride: pair(stride, 1),
            padding: pair(padding, 0),
            dilation: pair(dilation, 1),
            ceil_mode,
        }
        .output_size()
        .map(|size| size[0])
    };
    assert_eq!(size(7, 2, 2, 0, 1, false), Ok(3));
    assert_eq!(size(7, 2, 2, 0, 1, true), Ok(4));
    assert_eq!(size(112, 3, 2, 1, 1, false), Ok(56));
    assert_eq!(
        size(5, 2, 3, 1, 1, true),
        Ok(2),
        "a third window would start in the padding"
    );
    assert_eq!(size(5, 2, 1, 0, 3, false), Ok(2));
    assert_eq!(
        size(3, 5, 1, 0, 1, false),
        Err(WindowError::KernelTooLarge {
            kernel: 5,
            input: 3
        })
    );
    assert_eq!(
        size(3, 2, 1, 2, 1, false),
        Err(WindowError::PaddingTooLarge {
            padding: 2,
            kernel: 2
        })
    );
    for large in [usize::MAX, 1 << 63, 1 << 62] {
        let too_large = Err(WindowError::TooLarge { input: 3 });
        assert_eq!(size(3, 2, large, 0, 1, true), too_large);
        assert_eq!(size(3, 3, 1, 0, large, false), too_large);
    }
}
