//! The tiles of every instruction set that the machine has, against naive sums.

use super::machine::{all_f32, all_f64};
use super::tile::{Kept, Kernels, MAX_COLS, MAX_ROWS, Steps, Store, Tile};
use super::transpose::Block;
use super::vector::{RowDots, WeightedRows};
use super::{Epilogue, Float, GemmShape, MatrixStrides, gemm_16};
use half::{bf16, f16};

/// Whole numbers from -3 to 3, whose sums are exact.
fn whole<T: Float>(len: usize, seed: usize) -> Vec<T> {
    (0..len)
        .map(|index| T::from_f64(((index * 7919 + seed * 31 + index / 13) % 7) as f64 - 3.0))
        .collect()
}

fn tiles_agree<T: Float + std::fmt::Debug>(kernels: &Kernels<T>) {
    assert!(
        kernels.rows <= MAX_ROWS
            && kernels.cols <= MAX_COLS
            && kernels.cols.is_multiple_of(kernels.lanes)
    );
    for depth in [0, 1, 5, 33] {
        let stride = 51;
        let (a, b) = (
            whole::<T>(MAX_ROWS * 40 + 40, 1),
            whole::<T>(stride * 40, 2),
        );
        let a_rows: Vec<usize> = (0..MAX_ROWS).map(|row| row * 40).collect();
        let a_table: Vec<usize> = (0..40).map(|k| (k * 11) % 40).collect();
        let b_table: Vec<usize> = (0..40).map(|k| (k * 3) % 40 * stride).collect();
        let bias = whole::<T>(MAX_COLS, 3);
        for rows in 1..=kernels.rows {
            for cols in 1..=kernels.cols {
                for form in 0..4 {
                    let old = whole::<T>(MAX_ROWS * 100, 4);
                    let mut c = old.clone();
                    let kept: Vec<Kept> = (0..cols.div_ceil(kernels.lanes))
                        .map(|v| {
                            let lanes = kernels.lanes.min(cols - v * kernels.lanes);
                            Kept {
                                lanes: 0x5555_5555 & ((1u32 << lanes) - 1),
                                offset: v * kernels.lanes / 2,
                            }
                        })
                        .collect();
                    let places: Vec<usize> = (0..cols)
                        .map(|j| if j % 3 == 1 { Store::NOWHERE } else { 2 * j })
                        .collect();
                    let beta = [T::ZERO, T::from_f64(2.0), T::ONE, T::ZERO][form];
                    let store = match form {
                        3 => Store::Kept(kept.as_ptr()),
                        2 => Store::Scatter(places.as_ptr()),
                        _ => Store::Dense,
                    };
                    let (by_table, b_by_table) = (form % 2 == 1, form >= 2);
                    let tile = Tile {
                        rows,
                        cols,
                        depth,
                        a: a.as_ptr(),
                        a_rows: a_rows.as_ptr(),
                        a_steps: if by_table {
                            Steps::Table(a_table.as_ptr())
                        } else {
                            Steps::Stride(1)
                        },
                        b: b.as_ptr(),
                        b_steps: if b_by_table {
                            Steps::Table(b_table.as_ptr())
                        } else {
                            Steps::Stride(stride)
                        },
                        c: c.as_mut_ptr(),
                        c_stride: 100,
                        store,
                        alpha: T::from_f64(0.5),
                        beta,
                        col_bias: if form == 1 || form == 2 {
                            bias.as_ptr()
                        } else {
                            std::ptr::null()
                        },
                        row_bias: if form == 3 {
                            bias.as_ptr()
                        } else {
                            std::ptr::null()
                        },
                    };
                    // SAFETY: the operands have 40 steps of 51 columns, C rows of 100; the machine has the kernels.
                    unsafe { (kernels.tile)(&tile) };
                    let mut wanted = old.clone();
                    for row in 0..rows {
                        for col in 0..cols {
                            let mut sum = T::ZERO;
                            for k in 0..depth {
                                let a = a[a_rows[row] + if by_table { a_table[k] } else { k }];
                                sum = sum
                                    + a * b[if b_by_table { b_table[k] } else { k * stride } + col];
                            }
                            let place = match form {
                                3 if col % 2 == 1 => continue,
                                3 => col / 2,
                                2 if places[col] == Store::NOWHERE => continue,
                                2 => places[col],
                                _ => col,
                            };
                            let extra = match form {
                                0 => T::ZERO,
                                3 => bias[row],
                                _ => bias[col],
                            };
                            let to = &mut wanted[row * 100 + place];
                            *to = *to * beta + sum * T::from_f64(0.5) + extra;
                        }
                    }
                    assert_eq!(
                        c, wanted,
                        "{rows} x {cols} x {depth}, form {form}, {} lanes",
                        kernels.lanes
                    );
                }
            }
        }
    }
}

fn vectors_agree<T: Float + std::fmt::Debug>(kernels: &Kernels<T>) {
    for (rows, cols) in [(1, 1), (3, 5), (9, 16), (17, 33), (21, 100)] {
        let matrix = whole::<T>(rows * cols, 5);
        let (left, right) = (whole::<T>(rows, 6), whole::<T>(cols, 7));
        let mut dots = vec![T::ONE; 2 * rows];
        let mut sums = vec![T::ONE; cols];
        let mut turned = vec![T::ZERO; cols * (rows + 1)];
        // SAFETY: the matrix has rows x cols numbers, the vectors as many as their side; the machine has the kernels.
        unsafe {
            (kernels.row_dots)(&RowDots {
                a: matrix.as_ptr(),
                a_stride: cols,
                x: right.as_ptr(),
                depth: cols,
                rows,
                y: dots.as_mut_ptr(),
                y_stride: 2,
                alpha: T::from_f64(2.0),
                beta: T::from_f64(3.0),
            });
            (kernels.weighted_rows)(&WeightedRows {
                b: matrix.as_ptr(),
                b_stride: cols,
                x: left.as_ptr(),
                depth: rows,
                cols,
                y: sums.as_mut_ptr(),
            });
            (kernels.transpose)(&Block {
                from: matrix.as_ptr(),
                from_stride: cols,
                to: turned.as_mut_ptr(),
                to_stride: rows + 1,
                rows,
                cols,
            });
        }
        for row in 0..rows {
            let dot = (0..cols).fold(T::ZERO, |sum, col| {
                sum + matrix[row * cols + col] * right[col]
            });
            assert_eq!(
                dots[2 * row],
                dot * T::from_f64(2.0) + T::from_f64(3.0),
                "{rows} x {cols}"
            );
            assert_eq!(dots[2 * row + 1], T::ONE);
        }
        for col in 0..cols {
            let sum = (0..rows).fold(T::ONE, |sum, row| {
                sum + matrix[row * cols + col] * left[row]
            });
            assert_eq!(sums[col], sum, "{rows} x {cols}");
            for row in 0..rows {
                assert_eq!(
                    turned[col * (rows + 1) + row],
                    matrix[row * cols + col],
                    "{rows} x {cols}"
                );
            }
            assert_eq!(
                turned[col * (rows + 1) + rows],
                T::ZERO,
                "nothing is written beyond a column"
            );
        }
    }
}

#[test]
fn every_instruction_set_computes_the_same_tiles() {
    all_f32().into_iter().for_each(tiles_agree);
    all_f64().into_iter().for_each(tiles_agree);
}

#[test]
fn every_instruction_set_computes_the_same_vectors() {
    all_f32().into_iter().for_each(vectors_agree);
    all_f64().into_iter().for_each(vectors_agree);
}

#[test]
fn sixteen_bit_products_are_rounded_once() {
    let (m, n, k) = (130, 390, 300);
    // Products of 1 and 1/256 sum to numbers that bf16 cannot hold on the way, but f32 can.
    let a = vec![bf16::from_f32(1.0 / 256.0); m * k];
    let b = vec![bf16::from_f32(1.0); k * n];
    let mut c = vec![bf16::from_f32(2.0); m * n];
    let bias = vec![bf16::from_f32(0.5); n];
    let strides = MatrixStrides::row_major;
    let shape = GemmShape { batch: 1, m, n, k };
    let bias = Epilogue::BiasColumns(bias.as_slice());
    gemm_16(
        shape,
        1.0,
        &a,
        strides(m, k),
        &b,
        strides(k, n),
        0.25,
        &mut c,
        strides(m, n),
        bias,
    )
    .expect("memory for packing");
    assert!(c.iter().all(|&c| c == bf16::from_f32(300.0 / 256.0 + 1.0)));

    let a: Vec<f16> = whole::<f32>(m * k, 8)
        .into_iter()
        .map(f16::from_f32)
        .collect();
    let b: Vec<f16> = whole::<f32>(k * n, 9)
        .into_iter()
        .map(f16::from_f32)
        .collect();
    let mut c = vec![f16::from_f32(f32::NAN); m * n];
    let turned = strides(n, k).transposed();
    gemm_16(
        shape,
        1.0,
        &a,
        strides(m, k),
        &b,
        turned,
        0.0,
        &mut c,
        strides(m, n),
        Epilogue::None,
    )
    .expect("memory for packing");
    for (index, c) in c.iter().enumerate() {
        let (row, col) = (index / n, index % n);
        let sum: f32 = (0..k)
            .map(|p| a[row * k + p].to_f32() * b[col * k + p].to_f32())
            .sum();
        assert_eq!(*c, f16::from_f32(sum), "row {row}, column {col}");
    }
}
