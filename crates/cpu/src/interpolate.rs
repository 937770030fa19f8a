//! Resizing of planes to the nearest pixel or bilinearly, and the gradients (`torch.nn.functional.interpolate`).
//!
//! Knows contiguous slices of planes, each height by width. Positions are computed in the planes' type, as PyTorch does.

use crate::gemm::Float;
use crate::parallel;

/// How a place of the output is taken from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resampling {
    /// The pixel at or before it.
    Nearest,
    /// The four pixels around it, where pixels are squares and corners of images meet.
    Bilinear,
    /// The four pixels around it, where pixels are points and corner pixels meet.
    BilinearAligned,
}

/// The sizes of a resizing. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Images times channels.
    pub planes: usize,
    /// Of an input plane; not 0.
    pub input: [usize; 2],
    /// Of an output plane; not 0.
    pub output: [usize; 2],
    /// How many times larger the output is said to be; else it is what the sizes say.
    pub factors: Option<[f64; 2]>,
    /// Which pixels are taken.
    pub resampling: Resampling,
}

/// The two pixels of a dim that a place of the output lies between, and their weights.
#[derive(Clone, Copy)]
struct Between<T> {
    pixels: [usize; 2],
    weights: [T; 2],
}

impl Resize {
    /// From one place of the output to the next, in input pixels of dim `dim`, as a number of the type that is computed in.
    pub fn step<T: Float>(&self, dim: usize) -> T {
        let number = |size: usize| T::from_f64(size as f64);
        let (input, output) = (self.input[dim], self.output[dim]);
        match (self.resampling, self.factors) {
            (Resampling::BilinearAligned, _) if output > 1 => {
                number(input - 1) / number(output - 1)
            }
            (Resampling::BilinearAligned, _) => T::ZERO,
            (_, Some(factors)) => T::from_f64(1.0 / factors[dim]),
            (_, None) => number(input) / number(output),
        }
    }

    /// For each place of the output along a dim.
    fn between<T: Float>(&self, dim: usize) -> Vec<Between<T>> {
        let (input, output, step) = (self.input[dim], self.output[dim], self.step::<T>(dim));
        let half = T::from_f64(0.5);
        let place = |at: usize| {
            let number = T::from_f64(at as f64);
            if self.resampling == Resampling::Nearest {
                let pixel = match () {
                    () if input == output => at,
                    () if output == 2 * input => at / 2,
                    () => ((number * step).to_f64().floor() as usize).min(input - 1),
                };
                return Between {
                    pixels: [pixel; 2],
                    weights: [T::ONE, T::ZERO],
                };
            }
            if input == output {
                return Between {
                    pixels: [at; 2],
                    weights: [T::ONE, T::ZERO],
                };
            }
            let real = match self.resampling {
                Resampling::BilinearAligned => step * number,
                _ => step * (number + half) - half,
            };
            let real = if real < T::ZERO { T::ZERO } else { real };
            let pixel = (real.to_f64().floor() as usize).min(input - 1);
            let weight = real - T::from_f64(pixel as f64);
            let weight = if weight > T::ONE { T::ONE } else { weight };
            Between {
                pixels: [pixel, (pixel + 1).min(input - 1)],
                weights: [T::ONE - weight, weight],
            }
        };
        (0..output).map(place).collect()
    }
}

/// Resizes the planes.
///
/// # Panics
/// If a size is 0, or a slice has another length.
pub fn interpolate<T: Float>(resize: &Resize, input: &[T], output: &mut [T]) {
    let ([height, width], [out_height, out_width]) = (resize.input, resize.output);
    assert_eq!(
        input.len(),
        resize.planes * height * width,
        "interpolate: input"
    );
    assert_eq!(
        output.len(),
        resize.planes * out_height * out_width,
        "interpolate: output"
    );
    let (rows, cols) = (resize.between::<T>(0), resize.between::<T>(1));
    let shared = crate::gemm::Shared::new(output);
    parallel::run(resize.planes, |plane| {
        let numel = out_height * out_width;
        // SAFETY: the plane lies within the output, and belongs to this task alone.
        let output =
            unsafe { std::slice::from_raw_parts_mut(shared.get().add(plane * numel), numel) };
        let input = &input[plane * height * width..][..height * width];
        for (row, output) in rows.iter().zip(output.chunks_exact_mut(out_width)) {
            let [upper, lower] = row.pixels.map(|pixel| &input[pixel * width..][..width]);
            for (col, output) in cols.iter().zip(output) {
                let [left, right] = col.pixels;
                let ([top, bottom], [before, after]) = (row.weights, col.weights);
                *output = match resize.resampling {
                    Resampling::Nearest => upper[left],
                    _ => {
                        top * (before * upper[left] + after * upper[right])
                            + bottom * (before * lower[left] + after * lower[right])
                    }
                };
            }
        }
    });
}

/// The gradient of [`interpolate`].
///
/// # Panics
/// As [`interpolate`].
pub fn interpolate_backward<T: Float>(resize: &Resize, grad_output: &[T], grad_input: &mut [T]) {
    let ([height, width], [out_height, out_width]) = (resize.input, resize.output);
    let grad_numel = resize.planes * out_height * out_width;
    assert_eq!(grad_output.len(), grad_numel, "interpolate: gradient");
    assert_eq!(
        grad_input.len(),
        resize.planes * height * width,
        "interpolate: input"
    );
    let (rows, cols) = (resize.between::<T>(0), resize.between::<T>(1));
    let shared = crate::gemm::Shared::new(grad_input);
    parallel::run(resize.planes, |plane| {
        let numel = height * width;
        // SAFETY: the plane lies within the input's gradient, and belongs to this task alone.
        let input =
            unsafe { std::slice::from_raw_parts_mut(shared.get().add(plane * numel), numel) };
        input.fill(T::ZERO);
        let grads = &grad_output[plane * out_height * out_width..][..out_height * out_width];
        for (row, grads) in rows.iter().zip(grads.chunks_exact(out_width)) {
            for (col, &grad) in cols.iter().zip(grads) {
                if resize.resampling == Resampling::Nearest {
                    let to = &mut input[row.pixels[0] * width + col.pixels[0]];
                    *to = *to + grad;
                    continue;
                }
                for (y, &row_weight) in row.pixels.iter().zip(&row.weights) {
                    for (x, &col_weight) in col.pixels.iter().zip(&col.weights) {
                        let to = &mut input[y * width + x];
                        *to = *to + row_weight * col_weight * grad;
                    }
                }
            }
        }
    });
}
