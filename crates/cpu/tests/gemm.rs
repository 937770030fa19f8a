//! The matrix product against a naive one in f64, for many sizes and strides.

mod oracle;

use fireclay_cpu::gemm::{Epilogue, Float, GemmShape, MatrixStrides, gemm};
use oracle::{Numbers, assert_close, on_one_thread, on_two_threads};

struct Case<T> {
    shape: GemmShape,
    alpha: f64,
    beta: f64,
    a: Vec<T>,
    a_strides: MatrixStrides,
    b: Vec<T>,
    b_strides: MatrixStrides,
    c: Vec<T>,
    c_strides: MatrixStrides,
    bias: Option<Vec<T>>,
}

/// Random strides for a batch of matrices, and the length that they need.
fn strides(
    numbers: &mut Numbers,
    batch: usize,
    rows: usize,
    cols: usize,
    broadcast: bool,
) -> (MatrixStrides, usize) {
    let gap = numbers.between(0, 2) * numbers.between(0, 1);
    let mut strides = match numbers.between(0, 2) {
        0 => MatrixStrides {
            batch: rows * (cols + gap),
            row: cols + gap,
            col: 1,
        },
        1 => MatrixStrides {
            batch: cols * (rows + gap),
            row: 1,
            col: rows + gap,
        },
        _ => MatrixStrides {
            batch: rows * (2 * cols + gap),
            row: 2 * cols + gap,
            col: 2,
        },
    };
    let len = batch * strides.batch.max(1) + 1;
    if broadcast && numbers.between(0, 2) == 0 {
        strides.batch = 0;
    }
    (strides, len)
}

impl<T: Float> Case<T> {
    fn random(numbers: &mut Numbers, shape: GemmShape) -> Self {
        let GemmShape { batch, m, n, k } = shape;
        let (a_strides, a_len) = strides(numbers, batch, m, k, true);
        let (b_strides, b_len) = strides(numbers, batch, k, n, true);
        let (c_strides, c_len) = strides(numbers, batch, m, n, false);
        Case {
            shape,
            alpha: [1.0, 1.0, -0.5][numbers.between(0, 2)],
            beta: [0.0, 0.0, 1.0, 0.25][numbers.between(0, 3)],
            a: numbers.values(a_len),
            a_strides,
            b: numbers.values(b_len),
            b_strides,
            c: numbers.values(c_len),
            c_strides,
            bias: (numbers.between(0, 2) == 0).then(|| numbers.values(n)),
        }
    }

    fn run(&self) -> Vec<T> {
        let mut c = self.c.clone();
        gemm(
            self.shape,
            T::from_f64(self.alpha),
            &self.a,
            self.a_strides,
            &self.b,
            self.b_strides,
            T::from_f64(self.beta),
            &mut c,
            self.c_strides,
            self.bias
                .as_deref()
                .map_or(Epilogue::None, Epilogue::BiasColumns),
        )
        .expect("memory for packing");
        c
    }

    /// All of C's slice, so that what lies between its elements is checked too.
    fn naive(&self) -> Vec<f64> {
        let mut c: Vec<f64> = self.c.iter().map(|c| c.to_f64()).collect();
        let GemmShape { batch, m, n, k } = self.shape;
        let at = |strides: MatrixStrides, l: usize, i: usize, j: usize| {
            l * strides.batch + i * strides.row + j * strides.col
        };
        for l in 0..batch {
            for i in 0..m {
                for j in 0..n {
                    let mut sum = 0.0;
                    for p in 0..k {
                        let a = self.a[at(self.a_strides, l, i, p)].to_f64();
                        sum += a * self.b[at(self.b_strides, l, p, j)].to_f64();
                    }
                    let c = &mut c[at(self.c_strides, l, i, j)];
                    let bias = self.bias.as_ref().map_or(0.0, |bias| bias[j].to_f64());
                    *c = self.beta * *c + self.alpha * sum + bias;
                }
            }
        }
        c
    }
}

fn check<T: Float>(numbers: &mut Numbers, shape: GemmShape) {
    let case = Case::<T>::random(numbers, shape);
    let what = format!(
        "{shape:?} {:?} {:?} {:?}",
        case.a_strides, case.b_strides, case.c_strides
    );
    assert_close(&case.run(), &case.naive(), shape.k, &what);
}

#[test]
fn products_of_small_sizes_agree_with_the_naive_one() {
    let mut numbers = Numbers::new(1);
    for _ in 0..600 {
        let mut size = || {
            let most = [2, 9, 20, 70][numbers.between(0, 3)];
            numbers.between(0, most)
        };
        let (m, n, k) = (size(), size(), size());
        let shape = GemmShape {
            batch: numbers.between(0, 3),
            m,
            n,
            k,
        };
        check::<f32>(&mut numbers, shape);
        check::<f64>(&mut numbers, shape);
    }
}

#[test]
fn products_that_cross_every_block_agree_with_the_naive_one() {
    let mut numbers = Numbers::new(2);
    for (batch, m, n, k) in [
        (1, 137, 301, 523),
        (1, 8, 2100, 300),
        (1, 300, 2, 700),
        (1, 40, 97, 1030),
        (40, 33, 65, 30),
        (3, 200, 150, 140),
        (1, 1, 3000, 100),
        (1, 1, 100, 3000),
        (1, 3000, 1, 100),
        (1, 100, 1, 3000),
        (5, 1, 300, 200),
    ] {
        for _ in 0..3 {
            let shape = GemmShape { batch, m, n, k };
            check::<f32>(&mut numbers, shape);
            check::<f64>(&mut numbers, shape);
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let mut numbers = Numbers::new(3);
    for (batch, m, n, k) in [
        (1, 200, 300, 400),
        (20, 60, 70, 80),
        (1, 1, 2000, 700),
        (1, 3000, 1, 500),
        (2, 90, 500, 600),
    ] {
        let case = Case::<f32>::random(&mut numbers, GemmShape { batch, m, n, k });
        let one = on_one_thread(|| case.run());
        let two = on_two_threads(|| case.run());
        let bits = |values: &[f32]| {
            values
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&one), bits(&two), "{:?}", case.shape);
    }
}

#[test]
fn an_old_c_of_nan_is_not_read_where_beta_is_0() {
    for (m, n, k) in [
        (5, 7, 3),
        (1, 7, 3),
        (7, 1, 3),
        (5, 7, 0),
        (1, 9, 0),
        (20, 60, 300),
    ] {
        let mut c = vec![f32::NAN; m * n];
        let strides = MatrixStrides::row_major;
        let (a, b) = (vec![1.0; m * k], vec![1.0; k * n]);
        let shape = GemmShape { batch: 1, m, n, k };
        gemm(
            shape,
            1.0,
            &a,
            strides(m, k),
            &b,
            strides(k, n),
            0.0,
            &mut c,
            strides(m, n),
            Epilogue::None,
        )
        .expect("memory for packing");
        assert!(c.iter().all(|&c| c == k as f32), "{m} {n} {k}");
    }
}

#[test]
fn nan_in_the_operands_reaches_the_result() {
    let (m, n, k) = (9, 50, 20);
    let strides = MatrixStrides::row_major;
    let mut a = vec![1.0f32; m * k];
    a[3 * k + 5] = f32::NAN;
    let b = vec![0.0f32; k * n];
    let mut c = vec![0.0f32; m * n];
    let shape = GemmShape { batch: 1, m, n, k };
    gemm(
        shape,
        1.0,
        &a,
        strides(m, k),
        &b,
        strides(k, n),
        0.0,
        &mut c,
        strides(m, n),
        Epilogue::None,
    )
    .expect("memory for packing");
    for (index, c) in c.iter().enumerate() {
        assert_eq!(c.is_nan(), index / n == 3);
    }
}

#[test]
#[should_panic(expected = "shorter than its strides say")]
fn a_slice_that_is_too_short_is_refused() {
    let strides = MatrixStrides::row_major;
    let shape = GemmShape {
        batch: 1,
        m: 4,
        n: 4,
        k: 4,
    };
    gemm(
        shape,
        1.0,
        &[0.0f32; 15],
        strides(4, 4),
        &[0.0; 16],
        strides(4, 4),
        0.0,
        &mut [0.0; 16],
        strides(4, 4),
        Epilogue::None,
    )
    .expect("memory for packing");
}

#[test]
#[should_panic(expected = "share a place")]
fn a_result_that_overlaps_itself_is_refused() {
    let strides = MatrixStrides::row_major(4, 4);
    let overlapping = MatrixStrides {
        batch: 16,
        row: 1,
        col: 1,
    };
    let shape = GemmShape {
        batch: 1,
        m: 4,
        n: 4,
        k: 4,
    };
    gemm(
        shape,
        1.0,
        &[0.0f32; 16],
        strides,
        &[0.0; 16],
        strides,
        0.0,
        &mut [0.0; 16],
        overlapping,
        Epilogue::None,
    )
    .expect("memory for packing");
}
