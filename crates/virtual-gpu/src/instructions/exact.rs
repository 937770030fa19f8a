//! For tests: binary floats of any format, computed with exact numbers of any length. A result is found by halving the
//! range of bit patterns until it brackets the exact value: slow, and nothing like how the executor rounds.

use std::cmp::Ordering;

/// A number of at least zero: `digits * 2^exponent`, the lowest digit first.
#[derive(Clone, Debug)]
pub(crate) struct Dyadic {
    digits: Vec<u32>,
    exponent: i32,
}

impl Dyadic {
    /// `value * 2^exponent`
    pub(crate) fn new(value: u128, exponent: i32) -> Dyadic {
        Dyadic {
            digits: (0..4).map(|index| (value >> (32 * index)) as u32).collect(),
            exponent,
        }
    }

    fn is_zero(&self) -> bool {
        self.digits.iter().all(|&digit| digit == 0)
    }

    /// The digits when counted in units of `2^exponent`, which is not above its own.
    fn scaled(&self, exponent: i32) -> Vec<u32> {
        let shift = (self.exponent - exponent) as usize;
        let mut digits = vec![0; shift / 32];
        let mut carry = 0;
        for &digit in &self.digits {
            let wide = u64::from(digit) << (shift % 32) | carry;
            digits.push(wide as u32);
            carry = wide >> 32;
        }
        digits.push(carry as u32);
        digits
    }

    fn aligned(&self, other: &Dyadic) -> (Vec<u32>, Vec<u32>, i32) {
        let exponent = self.exponent.min(other.exponent);
        let (mut a, mut b) = (self.scaled(exponent), other.scaled(exponent));
        let length = a.len().max(b.len()) + 1;
        a.resize(length, 0);
        b.resize(length, 0);
        (a, b, exponent)
    }

    pub(crate) fn compare(&self, other: &Dyadic) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            _ => {}
        }
        let (a, b, _) = self.aligned(other);
        a.iter().rev().cmp(b.iter().rev())
    }

    pub(crate) fn plus(&self, other: &Dyadic) -> Dyadic {
        let (a, b, exponent) = self.aligned(other);
        let mut carry = 0;
        let digits = a.iter().zip(&b).map(|(&a, &b)| {
            let sum = u64::from(a) + u64::from(b) + carry;
            carry = sum >> 32;
            sum as u32
        });
        Dyadic {
            digits: digits.collect(),
            exponent,
        }
    }

    /// The difference, from the greater number.
    fn minus(&self, other: &Dyadic) -> Dyadic {
        let (a, b, exponent) = self.aligned(other);
        let mut borrow = 0;
        let digits = a.iter().zip(&b).map(|(&a, &b)| {
            let difference = i64::from(a) - i64::from(b) - borrow;
            borrow = i64::from(difference < 0);
            difference as u32
        });
        Dyadic {
            digits: digits.collect(),
            exponent,
        }
    }

    pub(crate) fn times(&self, other: &Dyadic) -> Dyadic {
        let mut digits = vec![0u32; self.digits.len() + other.digits.len()];
        for (place, &a) in self.digits.iter().enumerate() {
            let mut carry = 0;
            for (offset, &b) in other.digits.iter().enumerate() {
                let wide = u64::from(a) * u64::from(b) + u64::from(digits[place + offset]) + carry;
                digits[place + offset] = wide as u32;
                carry = wide >> 32;
            }
            digits[place + other.digits.len()] = carry as u32;
        }
        Dyadic {
            digits,
            exponent: self.exponent + other.exponent,
        }
    }
}

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `.rn`
    Nearest,
    /// `.rz`
    Zero,
    /// `.rm`
    Down,
    /// `.rp`
    Up,
    /// `.rna`
    Away,
}

/// The modes of arithmetic, with their modifiers.
pub(crate) const MODES: [(&str, Mode); 4] = [
    ("rn", Mode::Nearest),
    ("rz", Mode::Zero),
    ("rm", Mode::Down),
    ("rp", Mode::Up),
];

/// A binary format with infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the significand, with the leading one.
    precision: u32,
    /// Bits of the exponent.
    exponent_bits: u32,
}

pub(crate) const F64: Format = Format::new(53, 11);
pub(crate) const F32: Format = Format::new(24, 8);
pub(crate) const TF32: Format = Format::new(11, 8);
pub(crate) const F16: Format = Format::new(11, 5);
pub(crate) const BF16: Format = Format::new(8, 8);

/// A value of a format.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Not a number.
    Nan,
    /// An infinity; whether it is negative.
    Infinite(bool),
    /// Whether it is negative, and its magnitude.
    Finite(bool, Dyadic),
}

impl Format {
    const fn new(precision: u32, exponent_bits: u32) -> Format {
        Format {
            precision,
            exponent_bits,
        }
    }

    fn sign(self) -> u64 {
        1 << (self.precision - 1 + self.exponent_bits)
    }

    pub(crate) fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << (self.precision - 1)
    }

    fn signed(self, negative: bool, magnitude: u64) -> u64 {
        if negative {
            magnitude | self.sign()
        } else {
            magnitude
        }
    }

    /// The magnitude of a bit pattern without sign; infinity's is what would come after the largest number.
    fn magnitude(self, bits: u64) -> Dyadic {
        let fraction = bits & ((1 << (self.precision - 1)) - 1);
        let field = (bits >> (self.precision - 1)) as i32;
        let lowest = 3 - (1 << (self.exponent_bits - 1)) - self.precision as i32;
        match field {
            0 => Dyadic::new(u128::from(fraction), lowest),
            _ => Dyadic::new(
                u128::from(fraction | 1 << (self.precision - 1)),
                lowest + field - 1,
            ),
        }
    }

    pub(crate) fn value(self, bits: u64) -> Value {
        let magnitude = bits & (self.sign() - 1);
        let negative = bits & self.sign() != 0;
        match magnitude.cmp(&self.infinity()) {
            Ordering::Greater => Value::Nan,
            Ordering::Equal => Value::Infinite(negative),
            Ordering::Less => Value::Finite(negative, self.magnitude(magnitude)),
        }
    }

    pub(crate) fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    /// Zero for a subnormal number.
    pub(crate) fn flush(self, bits: u64) -> u64 {
        if bits & self.infinity() == 0 {
            bits & self.sign()
        } else {
            bits
        }
    }

    /// Rounds a positive number of which `compare` knows how a candidate compares with it. A candidate is given as half
    /// the sum of two numbers.
    fn round(self, negative: bool, mode: Mode, compare: impl Fn(&Dyadic) -> Ordering) -> u64 {
        // The largest pattern that is not above the number.
        let (mut low, mut high) = (0, self.infinity());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if compare(&self.magnitude(middle)) == Ordering::Greater {
                high = middle;
            } else {
                low = middle;
            }
        }
        if high == self.infinity() && compare(&self.magnitude(high)) != Ordering::Greater {
            low = high;
        }
        let beyond = self.magnitude(low.min(self.infinity() - 1) + 1);
        let exact = compare(&self.magnitude(low)) == Ordering::Equal && low != self.infinity();
        let up = !exact
            && match mode {
                Mode::Zero => false,
                Mode::Down => negative,
                Mode::Up => !negative,
                Mode::Nearest | Mode::Away => {
                    let mut middle = self.magnitude(low).plus(&beyond);
                    middle.exponent -= 1;
                    match compare(&middle) {
                        Ordering::Less => true,
                        Ordering::Equal => mode == Mode::Away || low & 1 == 1,
                        Ordering::Greater => false,
                    }
                }
            };
        let magnitude = if low == self.infinity() {
            // As large as infinity's place or larger.
            match mode {
                Mode::Nearest | Mode::Away => low,
                Mode::Zero => low - 1,
                Mode::Down => low - u64::from(!negative),
                Mode::Up => low - u64::from(negative),
            }
        } else {
            low + u64::from(up)
        };
        self.signed(negative, magnitude)
    }

    /// Rounds a number.
    pub(crate) fn round_number(self, negative: bool, number: &Dyadic, mode: Mode) -> u64 {
        self.round(negative, mode, |candidate| candidate.compare(number))
    }

    /// `a * b + c`; `None` stands for NaN.
    pub(crate) fn fma(self, a: u64, b: u64, c: u64, mode: Mode) -> Option<u64> {
        let product = match (self.value(a), self.value(b)) {
            (Value::Nan, _) | (_, Value::Nan) => return None,
            (Value::Infinite(p), Value::Infinite(q)) => Value::Infinite(p != q),
            (Value::Infinite(p), Value::Finite(q, number))
            | (Value::Finite(q, number), Value::Infinite(p)) => {
                if number.is_zero() {
                    return None;
                }
                Value::Infinite(p != q)
            }
            (Value::Finite(p, x), Value::Finite(q, y)) => Value::Finite(p != q, x.times(&y)),
        };
        self.sum(product, self.value(c), mode)
    }

    /// `a + b`
    pub(crate) fn add(self, a: u64, b: u64, mode: Mode) -> Option<u64> {
        self.sum(self.value(a), self.value(b), mode)
    }

    fn sum(self, a: Value, b: Value, mode: Mode) -> Option<u64> {
        let (p, x, q, y) = match (a, b) {
            (Value::Nan, _) | (_, Value::Nan) => return None,
            (Value::Infinite(p), Value::Infinite(q)) if p != q => return None,
            (Value::Infinite(p), _) | (_, Value::Infinite(p)) => {
                return Some(self.signed(p, self.infinity()));
            }
            (Value::Finite(p, x), Value::Finite(q, y)) => (p, x, q, y),
        };
        let (negative, number) = if p == q {
            (p, x.plus(&y))
        } else {
            match x.compare(&y) {
                Ordering::Greater => (p, x.minus(&y)),
                Ordering::Less => (q, y.minus(&x)),
                Ordering::Equal => (mode == Mode::Down, Dyadic::new(0, 0)),
            }
        };
        Some(self.round_number(negative, &number, mode))
    }

    /// `a * b`
    pub(crate) fn mul(self, a: u64, b: u64, mode: Mode) -> Option<u64> {
        // A zero of the product's sign changes nothing.
        let zero = (a ^ b) & self.sign();
        self.fma(a, b, zero, mode)
    }

    /// `a / b`
    pub(crate) fn div(self, a: u64, b: u64, mode: Mode) -> Option<u64> {
        let negative = (a ^ b) & self.sign() != 0;
        match (self.value(a), self.value(b)) {
            (Value::Nan, _) | (_, Value::Nan) | (Value::Infinite(_), Value::Infinite(_)) => None,
            (Value::Infinite(_), _) => Some(self.signed(negative, self.infinity())),
            (_, Value::Infinite(_)) => Some(self.signed(negative, 0)),
            (Value::Finite(_, x), Value::Finite(_, y)) => match (x.is_zero(), y.is_zero()) {
                (true, true) => None,
                (false, true) => Some(self.signed(negative, self.infinity())),
                _ => Some(self.round(negative, mode, |candidate| candidate.times(&y).compare(&x))),
            },
        }
    }

    /// The square root.
    pub(crate) fn sqrt(self, a: u64, mode: Mode) -> Option<u64> {
        match self.value(a) {
            Value::Nan => None,
            Value::Finite(_, x) if x.is_zero() => Some(a),
            Value::Finite(true, _) | Value::Infinite(true) => None,
            Value::Infinite(false) => Some(a),
            Value::Finite(false, x) => Some(self.round(false, mode, |candidate| {
                candidate.times(candidate).compare(&x)
            })),
        }
    }

    /// A value of this format in another.
    pub(crate) fn convert(self, bits: u64, to: Format, mode: Mode) -> Option<u64> {
        match self.value(bits) {
            Value::Nan => None,
            Value::Infinite(negative) => Some(to.signed(negative, to.infinity())),
            Value::Finite(negative, number) => Some(to.round_number(negative, &number, mode)),
        }
    }

    /// An integer in this format.
    pub(crate) fn of_integer(self, value: i128, mode: Mode) -> u64 {
        self.round_number(value < 0, &Dyadic::new(value.unsigned_abs(), 0), mode)
    }

    /// The whole number next to a finite value: its sign and magnitude, at most 2^100.
    pub(crate) fn whole(self, bits: u64, mode: Mode) -> Option<(bool, u128)> {
        let Value::Finite(negative, number) = self.value(bits) else {
            return None;
        };
        let above = |value: u128| Dyadic::new(value, 0).compare(&number) == Ordering::Greater;
        let (mut low, mut high) = (0u128, 1u128);
        while high < 1 << 100 && !above(high) {
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if above(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        let exact = Dyadic::new(low, 0).compare(&number) == Ordering::Equal;
        let up = !exact
            && match mode {
                Mode::Zero => false,
                Mode::Down => negative,
                Mode::Up => !negative,
                Mode::Nearest | Mode::Away => match Dyadic::new(2 * low + 1, -1).compare(&number) {
                    Ordering::Less => true,
                    Ordering::Equal => low & 1 == 1,
                    Ordering::Greater => false,
                },
            };
        Some((negative, low + u128::from(up)))
    }

    /// Bit patterns at the edges: zeros, subnormals, ones, thirds, the largest, infinities, NaNs, with their
    /// neighbours and signs.
    pub(crate) fn edges(self) -> Vec<u64> {
        let one = ((1 << (self.exponent_bits - 1)) - 1) << (self.precision - 1);
        let unit = 1 << (self.precision - 1);
        let centres = [
            0,
            unit / 2,
            unit,
            2 * unit,
            one,
            one + unit,
            one - unit,
            one + unit / 2,
            one + unit / 3,
            one + self.precision as u64 * unit,
            one - self.precision as u64 * unit,
            (one + self.infinity()) / 2 / unit * unit,
            one / 2 / unit * unit,
            self.infinity() - unit,
            self.infinity(),
            self.sign() - 1,
        ];
        let mut edges = Vec::new();
        for centre in centres {
            for step in [-1i64, 0, 1] {
                let bits = centre.wrapping_add_signed(step);
                if bits < self.sign() {
                    edges.extend([bits, bits | self.sign()]);
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

#[test]
fn the_reference_agrees_with_the_host() {
    let mut random = super::table::Random::new(1);
    for _ in 0..2000 {
        let [a, b, c] = [0; 3].map(|_| random.next());
        let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        let same = |bits: Option<u64>, host: f64| match bits {
            None => assert!(host.is_nan()),
            Some(bits) => assert_eq!(bits, host.to_bits(), "{x:e} {y:e} {z:e}"),
        };
        same(F64.add(a, b, Mode::Nearest), x + y);
        same(F64.mul(a, b, Mode::Nearest), x * y);
        same(F64.div(a, b, Mode::Nearest), x / y);
        same(F64.sqrt(a, Mode::Nearest), x.sqrt());
        same(F64.fma(a, b, c, Mode::Nearest), x.mul_add(y, z));
        let (p, q) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let sum = F32.add(a & 0xffff_ffff, b & 0xffff_ffff, Mode::Nearest);
        assert!(sum.map_or((p + q).is_nan(), |bits| bits as u32 == (p + q).to_bits()));
        let narrow = F64.convert(a, F32, Mode::Nearest);
        assert!(narrow.map_or(x.is_nan(), |bits| bits as u32 == (x as f32).to_bits()));
    }
}
