//! Maximum pooling: the largest number of each window with its place, and the gradient by those places.

use super::{Pool2dShape, each_planes};
use crate::gemm::Float;

/// The largest number of each window and its index in the input plane (`torch.nn.functional.max_pool2d` with
/// `return_indices`).
///
/// Of equal numbers the first wins, of NaN the last, as in PyTorch. Padding never wins.
///
/// # Panics
/// If [`Pool2dShape::output_size`] is an error, or if a slice does not have the length that the shape says.
pub fn max_pool2d<T: Float>(
    shape: &Pool2dShape,
    input: &[T],
    output: &mut [T],
    indices: &mut [i64],
) {
    let size = shape.checked("max_pool2d", input.len(), output.len());
    assert_eq!(
        indices.len(),
        output.len(),
        "max_pool2d: length of the indices"
    );
    let plane = shape.height * shape.width;
    let pairs = shape.kernel == [2, 2]
        && shape.stride == [2, 2]
        && shape.padding == [0, 0]
        && shape.dilation == [1, 1]
        && 2 * size[0] <= shape.height
        && 2 * size[1] <= shape.width
        && shape.width < i32::MAX as usize;
    each_planes(
        shape.planes,
        output,
        indices,
        plane,
        |first, output, indices| {
            let numel = size[0] * size[1];
            for (index, (output, indices)) in output
                .chunks_exact_mut(numel)
                .zip(indices.chunks_exact_mut(numel))
                .enumerate()
            {
                let input = &input[(first + index) * plane..][..plane];
                if pairs {
                    pairs_best(input, shape.width, size, output, indices);
                } else {
                    windows(shape, size, input, output, indices);
                }
            }
        },
    );
}

/// The index of a window without a place in the input: taps of a large dilation may all miss a small one.
const NOWHERE: i64 = -1;

/// The gradient of [`max_pool2d`]: each number of `grad_output` is added at its index, if that isn't -1.
///
/// # Panics
/// As [`max_pool2d`], and if an index lies outside its plane.
pub fn max_pool2d_backward<T: Float>(
    shape: &Pool2dShape,
    grad_output: &[T],
    indices: &[i64],
    grad_input: &mut [T],
) {
    let [height, width] = shape.checked("max_pool2d_backward", grad_input.len(), grad_output.len());
    assert_eq!(
        indices.len(),
        grad_output.len(),
        "max_pool2d_backward: length of the indices"
    );
    let (plane, numel) = (shape.height * shape.width, height * width);
    each_planes(
        shape.planes,
        grad_input,
        &mut [] as &mut [u8],
        plane,
        |first, grad_input, _| {
            for (index, grad_input) in grad_input.chunks_exact_mut(plane).enumerate() {
                let range = (first + index) * numel..(first + index + 1) * numel;
                grad_input.fill(T::ZERO);
                for (&grad, &place) in grad_output[range.clone()].iter().zip(&indices[range]) {
                    if place != NOWHERE {
                        let to = &mut grad_input[place as usize];
                        *to = *to + grad;
                    }
                }
            }
        },
    );
}

/// One plane, any window.
fn windows<T: Float>(
    shape: &Pool2dShape,
    size: [usize; 2],
    input: &[T],
    output: &mut [T],
    indices: &mut [i64],
) {
    // The places of window `at` along a dim: the first one inside, and how many from there on.
    let places = |dim: usize, at: usize, input: usize| {
        let (dilation, start) = (shape.dilation[dim], at * shape.stride[dim]);
        let skipped = shape.padding[dim].saturating_sub(start).div_ceil(dilation);
        let first = start + skipped * dilation - shape.padding[dim];
        let inside = input.saturating_sub(first).div_ceil(dilation);
        (first, inside.min(shape.kernel[dim].saturating_sub(skipped)))
    };
    let mut results = output.iter_mut().zip(indices);
    for y in 0..size[0] {
        let (first_y, count_y) = places(0, y, shape.height);
        for x in 0..size[1] {
            let (first_x, count_x) = places(1, x, shape.width);
            let mut best = T::from_f64(f64::NEG_INFINITY);
            let mut place = (first_y * shape.width + first_x) as i64;
            if count_y == 0 || count_x == 0 {
                place = NOWHERE;
            }
            for row in 0..count_y {
                let start = (first_y + row * shape.dilation[0]) * shape.width + first_x;
                for col in 0..count_x {
                    let at = start + col * shape.dilation[1];
                    if wins(input[at], best) {
                        (best, place) = (input[at], at as i64);
                    }
                }
            }
            let (output, index) = results.next().expect("a result for every window");
            (*output, *index) = (best, place);
        }
    }
}

/// Whether a later number replaces the best so far.
#[inline(always)]
#[expect(clippy::eq_op, reason = "that is how NaN is told")]
fn wins<T: Float>(value: T, best: T) -> bool {
    value > best || value != value
}

/// One plane, windows of 2 by 2 side by side, on the widest vectors there are.
fn pairs_best<T: Float>(
    input: &[T],
    width: usize,
    size: [usize; 2],
    output: &mut [T],
    indices: &mut [i64],
) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
        unsafe fn avx512<T: Float>(
            input: &[T],
            width: usize,
            size: [usize; 2],
            output: &mut [T],
            indices: &mut [i64],
        ) {
            pairs(input, width, size, output, indices);
        }
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<T: Float>(
            input: &[T],
            width: usize,
            size: [usize; 2],
            output: &mut [T],
            indices: &mut [i64],
        ) {
            pairs(input, width, size, output, indices);
        }
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the machine has the instructions.
            return unsafe { avx512(input, width, size, output, indices) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has the instructions.
            return unsafe { avx2(input, width, size, output, indices) };
        }
    }
    pairs(input, width, size, output, indices);
}

/// The same without branches, for the compiler to turn into vectors.
#[inline(always)]
fn pairs<T: Float>(
    input: &[T],
    width: usize,
    size: [usize; 2],
    output: &mut [T],
    indices: &mut [i64],
) {
    let rows = output
        .chunks_exact_mut(size[1])
        .zip(indices.chunks_exact_mut(size[1]))
        .take(size[0]);
    for (y, (output, indices)) in rows.enumerate() {
        let start = 2 * y * width;
        let upper = &input[start..][..2 * size[1]];
        let lower = &input[start + width..][..2 * size[1]];
        let (upper, upper_rest) = upper.as_chunks::<{ 2 * BLOCK }>();
        let (lower, lower_rest) = lower.as_chunks::<{ 2 * BLOCK }>();
        let (output, output_rest) = output.as_chunks_mut::<BLOCK>();
        let (indices, indices_rest) = indices.as_chunks_mut::<BLOCK>();
        let blocks = upper.iter().zip(lower).zip(output).zip(indices);
        let mut first = start;
        for (((upper, lower), output), indices) in blocks {
            row_of_pairs(upper, lower, first, width, output, indices);
            first += 2 * BLOCK;
        }
        row_of_pairs(
            upper_rest,
            lower_rest,
            first,
            width,
            output_rest,
            indices_rest,
        );
    }
}

/// Windows that are treated at a time.
const BLOCK: usize = 4;

/// Some windows side by side, the first of which starts at `first`.
#[inline(always)]
fn row_of_pairs<T: Float>(
    upper: &[T],
    lower: &[T],
    first: usize,
    width: usize,
    output: &mut [T],
    indices: &mut [i64],
) {
    let count = output.len();
    let (upper, lower, indices) = (
        &upper[..2 * count],
        &lower[..2 * count],
        &mut indices[..count],
    );
    let below = width as i32;
    for x in 0..count {
        let (mut best, mut place) = (upper[2 * x], 0);
        for (value, at) in [
            (upper[2 * x + 1], 1),
            (lower[2 * x], below),
            (lower[2 * x + 1], below + 1),
        ] {
            let wins = wins(value, best);
            best = if wins { value } else { best };
            place = if wins { at } else { place };
        }
        output[x] = best;
        indices[x] = (first + 2 * x) as i64 + i64::from(place);
    }
}
