//! Angles as quarter turns and a rest of at most pi/4, for every finite angle.

use super::double_word::{FRAC_PI_2_LOW, Pair, quick_two_sum, two_product, two_sum};
use super::polynomial::{by_width, mantissa_bits, rounded_product};
use crate::arith::{Arith, Bits, Mask};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// What two f64 leave of pi/2.
const FRAC_PI_2_LOWEST: f64 = -1.4973849048591833e-33;

/// `(n, r)` with `a = n pi/2 + r`, for `a >= 0`: the two lowest bits of `n` are right, and so is `r` within 1 ulp.
#[inline(always)]
pub(super) fn quarter_turns<A: Arith>(a: A) -> (A::Bits, A) {
    let [first, second, third]: [A; 3] = half_pi();
    let turns = rounded_product(a, A::of(FRAC_2_PI));
    let r = turns.mul_add(-first, a);
    let r = turns.mul_add(-third, turns.mul_add(-second, r));
    let n = turns.to_whole();
    let large = is_large(a);
    if !large.any() {
        return (n, r);
    }
    let (large_n, large_r) = quarter_turns_of_large(a);
    (
        A::Bits::select(large, large_n, n),
        A::select(large, large_r.hi, r),
    )
}

/// [`quarter_turns`] with `r` to almost twice the lanes' precision.
#[inline(always)]
pub(super) fn quarter_turns_pair<A: Arith>(a: A) -> (A::Bits, Pair<A>) {
    let [first, second, third]: [A; 3] = half_pi();
    let turns = rounded_product(a, A::of(FRAC_2_PI));
    let exact = turns.mul_add(-first, a);
    let next = two_product(turns, second);
    let r = two_sum(exact, -next.hi);
    let r = quick_two_sum(r.hi, r.lo - turns.mul_add(third, next.lo));
    let n = turns.to_whole();
    let large = is_large(a);
    if !large.any() {
        return (n, r);
    }
    let (large_n, large_r) = quarter_turns_of_large(a);
    let pair = Pair {
        hi: A::select(large, large_r.hi, r.hi),
        lo: A::select(large, large_r.lo, r.lo),
    };
    (A::Bits::select(large, large_n, n), pair)
}

/// pi/2 as the sum of three words. Times a number of quarter turns below 2^20, the first subtracts exactly.
#[inline(always)]
fn half_pi<A: Arith>() -> [A; 3] {
    if A::DOUBLE {
        return [
            A::of(FRAC_PI_2),
            A::of(FRAC_PI_2_LOW),
            A::of(FRAC_PI_2_LOWEST),
        ];
    }
    let first = f64::from(FRAC_PI_2 as f32);
    let second = f64::from((FRAC_PI_2 - first) as f32);
    let third = FRAC_PI_2 - first - second + FRAC_PI_2_LOW;
    [A::of(first), A::of(second), A::of(third)]
}

/// Where the three words of pi/2 are too few. Infinity is left to them: it gives NaN.
#[inline(always)]
fn is_large<A: Arith>(a: A) -> A::Mask {
    a.gt(by_width(LARGE_F32, LARGE_F64)) & a.lt(A::infinity())
}

/// The quarter turns (modulo 4) and the rest of a large angle, after Payne and Hanek.
///
/// `a = M 2^E` with a whole `M`. Of the binary digits of 2/pi, those of so high a weight that their product
/// with `2^E` is a multiple of 4 don't matter; starting behind them, three words of digits are multiplied by
/// `M` in whole numbers. The product's top two bits count quarter turns and the bits below are their fraction.
/// It is kept to two words: no float comes closer to a multiple of pi/2 than about 2^-30 (f32) or 2^-61 (f64),
/// which leaves as many bits below.
#[inline(always)]
fn quarter_turns_of_large<A: Arith>(a: A) -> (A::Bits, Pair<A>) {
    let splat = A::Bits::splat;
    let (width, width_log2, bias, skip) = if A::DOUBLE {
        (64, 6, 1023, SKIP_F64)
    } else {
        (32, 5, 127, SKIP_F32)
    };
    let mantissa_bits = mantissa_bits::<A>();
    let bits = a.to_bits();
    let implicit = splat(1).shl(mantissa_bits);
    let mantissa = (bits & (implicit - splat(1))) | implicit;
    let exponent = bits.shr_logical(mantissa_bits) - splat(bias + i64::from(mantissa_bits));

    let position = exponent + splat(skip - 2);
    let word = position.shr(width_log2);
    let digits = if A::DOUBLE {
        window(TWO_OVER_PI_64, word)
    } else {
        window(TWO_OVER_PI_32, word)
    };
    let left = position & splat(width - 1);
    let right = splat(width - 1) - left;
    let first = aligned(digits[0], digits[1], left, right);
    let second = aligned(digits[1], digits[2], left, right);
    let third = aligned(digits[2], digits[3], left, right);

    let sign_bit = splat(1).shl(width as u32 - 1);
    let low = mantissa.mul_low(second) + mantissa.mul_high_unsigned(third);
    let carries = (low ^ sign_bit).lt(mantissa.mul_low(second) ^ sign_bit);
    let high = mantissa.mul_low(first)
        + mantissa.mul_high_unsigned(second)
        + A::Bits::select(carries, splat(1), splat(0));

    // To the nearest quarter turn; what is left is a signed fraction, `high` and `low` shifted by the two bits.
    let n = (high + splat(1).shl(width as u32 - 3)).shr_logical(width as u32 - 2);
    let fraction = high.shl(2) | low.shr_logical(width as u32 - 2);
    let low = low.shl(2);

    // As floats in pieces that convert exactly.
    let piece = if A::DOUBLE { 51 } else { 21 };
    let below = width as u32 - piece;
    let (below_mask, piece_mask) = (
        splat(1).shl(below) - splat(1),
        splat(1).shl(piece) - splat(1),
    );
    let unit = -(width as i32);
    let top = scaled::<A>(fraction.shr(piece), unit + piece as i32);
    let middle = scaled::<A>(fraction & piece_mask, unit);
    let rest = scaled::<A>(low.shr_logical(below), 2 * unit + below as i32)
        + scaled::<A>(low & below_mask, 2 * unit);
    let sum = two_sum(top, middle);
    let turns = quick_two_sum(sum.hi, sum.lo + rest);
    (n, turns.mul(Pair::of(FRAC_PI_2, FRAC_PI_2_LOW)))
}

/// The word that starts `left` bits into `word` and ends in `next`; `right` is the word's width - 1 - `left`.
#[inline(always)]
fn aligned<B: Bits>(word: B, next: B, left: B, right: B) -> B {
    word.shl_by(left) | next.shr_logical(1).shr_logical_by(right)
}

/// A whole number that converts exactly, times `2^exponent`.
#[inline(always)]
fn scaled<A: Arith>(whole: A::Bits, exponent: i32) -> A {
    A::from_whole(whole) * A::of(power_of_two(exponent))
}

/// Four consecutive words of `table` from the lane's own `start` on, which is below `T - 3`.
///
/// Halving steps as in a barrel shifter, since lanes can't index.
#[inline(always)]
fn window<B: Bits, const T: usize>(table: [i64; T], start: B) -> [B; 4] {
    let mut words = [B::splat(0); T];
    for (word, digits) in words.iter_mut().zip(table) {
        *word = B::splat(digits);
    }
    let mut step = (T - 3) / 2;
    let mut count = T;
    while step > 0 {
        count -= step;
        let bit = B::splat(step as i64);
        let skips = (start & bit).eq(bit);
        for i in 0..count {
            words[i] = B::select(skips, words[i + step], words[i]);
        }
        step /= 2;
    }
    [words[0], words[1], words[2], words[3]]
}

/// 2^exponent, for a normal result.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// From where on [`quarter_turns_of_large`] is used. It works from 2^17 (f32) or 2^20 (f64) on.
const LARGE_F32: f64 = 131_072.0;
const LARGE_F64: f64 = 1_048_576.0;

/// The tables start this many zero bits before the point of 2/pi.
const SKIP_F32: i64 = 10;
const SKIP_F64: i64 = 34;

/// The binary digits of 2/pi in words of 64 bits, as signed numbers.
const TWO_OVER_PI_64: [i64; 19] = [
    0x0000_0000_28BE_60DB,
    -0x6C6E_FAB5_80F6_2A0C,
    0x7D4D_3770_36D8_A566,
    0x4F10_E410_7F94_58EA,
    -0x0851_0EA7_9236_E472,
    -0x6F6C_8B47_FE6D_B446,
    -0x7D8B_9B78_C078_8539,
    0x2C4A_69CF_BA20_8D7D,
    0x4BAE_D121_3A67_1C09,
    -0x52E8_206F_B19B_8A72,
    0x60D4_CE7D_2721_17E2,
    -0x1081_B5F1_3801_DA01,
    -0x087E_99FC_0434_3B9E,
    -0x297D_64B8_24B2_604D,
    -0x360D_3D92_2C2E_7027,
    -0x5868_0574_A2B6_114F,
    -0x0506_83A1_30BE_3183,
    -0x1D6B_5B45_6501_2814,
    0x47E3_5742_1580_CC11,
];

/// The binary digits of 2/pi in words of 32 bits, as signed numbers.
const TWO_OVER_PI_32: [i64; 7] = [
    0x0028_BE60,
    -0x246C_6EFB,
    0x4A7F_09D5,
    -0x0B82_B2C9,
    0x7036_D8A5,
    0x664F_10E4,
    0x107F_9458,
];
