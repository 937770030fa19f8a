//! The exponential of a matrix: scaling, the Padé approximant of degree 13, squaring (Higham 2005, "The scaling and squaring method
//! for the matrix exponential revisited"). In f64, whatever comes.

use crate::Real;
use crate::factor::solve;

const COEFFICIENTS: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];
/// Up to this norm the approximant is exact in f64.
const LARGEST: f64 = 5.371920351148152;

/// `e^a` of an `[n, n]` matrix; NaN everywhere if an element is infinite or NaN.
pub fn exponential<T: Real>(a: &[T], n: usize, out: &mut [T]) {
    let wide: Vec<f64> = a.iter().map(|&x| x.wide()).collect();
    let sums = (0..n).map(|col| (0..n).map(|row| wide[row * n + col].abs()).sum::<f64>());
    let norm = sums.fold(0.0, |most: f64, sum| {
        if sum > most || sum.is_nan() {
            sum
        } else {
            most
        }
    });
    if !norm.is_finite() {
        out.fill(T::of(f64::NAN));
        return;
    }
    let squarings = (norm / LARGEST).log2().ceil().max(0.0) as i32;
    let a: Vec<f64> = wide.iter().map(|x| x * 2f64.powi(-squarings)).collect();
    let product = |a: &[f64], b: &[f64]| {
        let mut c = vec![0.0; n * n];
        f64::product(a, b, &mut c, n);
        c
    };
    let a2 = product(&a, &a);
    let a4 = product(&a2, &a2);
    let a6 = product(&a4, &a2);
    // c[3] a6 + c[2] a4 + c[1] a2 + c[0], where the last is of the unit matrix.
    let sum = |c: [f64; 4]| -> Vec<f64> {
        let at = |place: usize| {
            let unit = if place.is_multiple_of(n + 1) {
                c[0]
            } else {
                0.0
            };
            c[3] * a6[place] + c[2] * a4[place] + c[1] * a2[place] + unit
        };
        (0..n * n).map(at).collect()
    };
    let added =
        |a: Vec<f64>, b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    let c = COEFFICIENTS;
    let odd = added(
        product(&a6, &sum([0.0, c[9], c[11], c[13]])),
        &sum([c[1], c[3], c[5], c[7]]),
    );
    let odd = product(&a, &odd);
    let even = added(
        product(&a6, &sum([0.0, c[8], c[10], c[12]])),
        &sum([c[0], c[2], c[4], c[6]]),
    );
    let top = added(even.clone(), &odd);
    let bottom: Vec<f64> = even
        .iter()
        .zip(&odd)
        .map(|(even, odd)| even - odd)
        .collect();
    let mut result = vec![0.0; n * n];
    if solve(&bottom, n, &top, &mut result).is_err() {
        result.fill(f64::NAN);
    }
    for _ in 0..squarings {
        result = product(&result, &result);
    }
    for (out, x) in out.iter_mut().zip(result) {
        *out = T::of(x);
    }
}
