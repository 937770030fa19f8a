//! Compares tensors as the format of cases says: by dtype, shape, and value within tolerances.

use fireclay_tensor::{DType, Tensor};

/// How far a value may be off: `|got - want| <= atol + rtol * |want|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Relative to the expected value.
    pub rtol: f64,
    /// Whatever the expected value.
    pub atol: f64,
    /// Whether the sign of a zero counts.
    pub signed_zero: bool,
}

impl Tolerance {
    /// Within these limits; signs of zeros don't count.
    pub fn new(rtol: f64, atol: f64) -> Tolerance {
        Tolerance {
            rtol,
            atol,
            signed_zero: false,
        }
    }
}

/// How far a value is from the expected one.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Deviation {
    /// The difference.
    pub error: f64,
    /// The difference over what was allowed; 0 where nothing differs.
    pub of_allowed: f64,
}

impl Deviation {
    /// The one that is nearer to what is allowed.
    pub fn or_larger(self, other: Deviation) -> Deviation {
        match (other.of_allowed, other.error) > (self.of_allowed, self.error) {
            true => other,
            false => self,
        }
    }
}

/// Whether `got` is `want`, and the largest deviation within the tolerance; the text says what differs.
///
/// NaN matches NaN only, an infinity the same infinity only; whole numbers and bools match if they are equal.
pub fn matches(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<Deviation, String> {
    if got.dtype() != want.dtype() {
        return Err(format!("dtype {}, expected {}", got.dtype(), want.dtype()));
    }
    if got.shape() != want.shape() {
        return Err(format!("shape {}, expected {}", got.shape(), want.shape()));
    }
    if !want.dtype().is_floating_point() {
        if bytes(got) != bytes(want) {
            return Err(format!("values differ: {got:?}, expected {want:?}"));
        }
        return Ok(Deviation::default());
    }
    let mut largest = Deviation::default();
    for (place, (got, want)) in values(got).into_iter().zip(values(want)).enumerate() {
        let fits = if want.is_finite() {
            let error = (got - want).abs();
            let allowed = tolerance.atol + tolerance.rtol * want.abs();
            if error > 0.0 {
                let of_allowed = error / allowed;
                largest = largest.or_larger(Deviation { error, of_allowed });
            }
            error <= allowed
        } else {
            got == want || (got.is_nan() && want.is_nan())
        };
        if !fits {
            return Err(format!("{got:e} at place {place}, expected {want:e}"));
        }
        if tolerance.signed_zero && want == 0.0 && got.is_sign_negative() != want.is_sign_negative()
        {
            return Err(format!("{got:?} at place {place}, expected {want:?}"));
        }
    }
    Ok(largest)
}

/// The elements as f64, in order.
///
/// # Panics
/// If the dtype is stored only.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.detach().to_dtype(DType::F64);
    wide.and_then(|wide| wide.to_vec::<f64>())
        .expect("ops compute with the dtypes of golden cases")
}

/// Whether both have the same dtype, shape and bytes.
pub fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype() && a.shape() == b.shape() && bytes(a) == bytes(b)
}

/// As [`same_bits`], but every NaN is like every other one: devices differ in their sign and payload.
pub fn same_numbers(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    let (a_bytes, b_bytes) = (bytes(a), bytes(b));
    if a_bytes == b_bytes || !a.dtype().is_floating_point() {
        return a_bytes == b_bytes;
    }
    let size = a.dtype().size();
    let pairs = a_bytes.chunks(size).zip(b_bytes.chunks(size));
    let nans = values(a).into_iter().zip(values(b));
    pairs
        .zip(nans)
        .all(|((a, b), (x, y))| a == b || x.is_nan() && y.is_nan())
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes().expect("memory for a copy")
}
