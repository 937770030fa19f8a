//! Philox 4x32-10, the counter-based random number generator, and what is made of its words.
//!
//! Knows numbers only; filling whole arrays is done by the device crates, to the same bits.
//!
//! Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
//!
//! Note [Random numbers]. A random number is a pure function of (seed, offset, element), so it's the same on every
//! device and for any number of threads. The key is the seed, low word first. The counter of block `b` is
//! (b low, b high, offset low, offset high). `offset` numbers the calls: a generator adds 1 to it for every tensor it
//! fills, so that no two calls share a counter. A block has four words of 32 bits:
//! - A number that needs one word (f32 uniform, bernoulli) of element `i` takes word `i % 4` of block `i / 4`.
//! - A number that needs two (f64 uniform, bounded integers) takes words `2 (i % 2)` (the low half) and
//!   `2 (i % 2) + 1` (the high half) of block `i / 2`.
//! - f32 normals come in pairs: elements `2 p` and `2 p + 1` are made of words `2 (p % 2)` and `2 (p % 2) + 1` of block
//!   `p / 2`. So element `i` lives in block `i / 4`, as if it took one word.
//! - f64 normals come in pairs too: elements `2 p` and `2 p + 1` are made of the four words of block `p`.

use crate::arith::{Arith, Bits};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What the key grows by in each round: the golden ratio and sqrt(3) - 1, as fractions of 2^32.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Four random words: Philox 4x32 with ten rounds.
#[inline]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    philox_lanes(key, &[counter[0]], &[counter[1]], [counter[2], counter[3]]).map(|[word]| word)
}

/// [`philox`] for `L` counters at once that share their upper half: word `w` of lane `l` is at `[w][l]`.
///
/// Written over arrays so that the compiler makes vector code of it.
#[inline(always)]
pub fn philox_lanes<const L: usize>(
    key: [u32; 2],
    low: &[u32; L],
    high: &[u32; L],
    offset: [u32; 2],
) -> [[u32; L]; 4] {
    let [mut k0, mut k1] = key;
    let [mut c0, mut c1, mut c2, mut c3] = [*low, *high, [offset[0]; L], [offset[1]; L]];
    for _ in 0..ROUNDS {
        for l in 0..L {
            let first = MULTIPLIERS[0] as u64 * c0[l] as u64;
            let second = MULTIPLIERS[1] as u64 * c2[l] as u64;
            c0[l] = (second >> 32) as u32 ^ c1[l] ^ k0;
            c1[l] = second as u32;
            c2[l] = (first >> 32) as u32 ^ c3[l] ^ k1;
            c3[l] = first as u32;
        }
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// The random words of one call: see Note [Random numbers] at the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhiloxStream {
    /// The key: the seed as two words, low first.
    pub key: [u32; 2],
    /// The upper half of every counter: the offset as two words, low first.
    pub offset: [u32; 2],
}

impl PhiloxStream {
    /// The words of call number `offset` of the generator seeded with `seed`.
    pub fn new(seed: u64, offset: u64) -> Self {
        PhiloxStream {
            key: halves(seed),
            offset: halves(offset),
        }
    }

    /// Block `index` of four words.
    #[inline]
    pub fn block(&self, index: u64) -> [u32; 4] {
        let [low, high] = halves(index);
        philox(self.key, [low, high, self.offset[0], self.offset[1]])
    }

    /// The word of element `index`.
    pub fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// The two words of element `index`, as one number.
    pub fn double_word(&self, index: u64) -> u64 {
        let block = self.block(index / 2);
        let low = 2 * (index % 2) as usize;
        join(block[low], block[low + 1])
    }

    /// Element `index` of a uniform distribution over [0, 1), a multiple of 2^-24.
    pub fn uniform_f32(&self, index: u64) -> f32 {
        uniform_f32(self.word(index))
    }

    /// Element `index` of a uniform distribution over [0, 1), a multiple of 2^-53.
    pub fn uniform_f64(&self, index: u64) -> f64 {
        uniform_f64(self.double_word(index))
    }

    /// Element `index` of a standard normal distribution.
    pub fn normal_f32(&self, index: u64) -> f32 {
        let block = self.block(index / 4);
        let first = 2 * (index / 2 % 2) as usize;
        box_muller(radius_f32(block[first]), uniform_f32(block[first + 1]))[(index % 2) as usize]
    }

    /// Element `index` of a standard normal distribution.
    pub fn normal_f64(&self, index: u64) -> f64 {
        let [a, b, c, d] = self.block(index / 2);
        box_muller(radius_f64(join(a, b)), uniform_f64(join(c, d)))[(index % 2) as usize]
    }

    /// Element `index` of a uniform distribution over the whole numbers 0 to `bound - 1`: see [`bounded`].
    pub fn bounded(&self, index: u64, bound: u64) -> u64 {
        bounded(self.double_word(index), bound)
    }
}

/// The low and the high word of a number.
#[inline(always)]
pub fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The number with these words.
#[inline(always)]
pub fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The upper 24 bits of a word as a fraction of 1.
#[inline(always)]
pub fn uniform_f32(word: u32) -> f32 {
    // Through i32, since vector units convert that.
    (word >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32)
}

/// The upper 53 bits of a number as a fraction of 1.
#[inline(always)]
pub fn uniform_f64(bits: u64) -> f64 {
    (bits >> 11) as i64 as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A whole number from 0 to `bound - 1`: the high half of the 128-bit product of `bits` and `bound`.
///
/// Some results come up by at most one of 2^64 cases more often than others: a relative bias of at most
/// `bound / 2^64`, which no feasible sample shows for the bounds that tensors use. (D. Lemire, "Fast random integer
/// generation in an interval", 2019, without the rejection step, which would need more than one counter.)
#[inline(always)]
pub fn bounded(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

/// A word as a fraction of 1, never 0: the middle of the word's interval of 2^-32, rounded once.
#[inline(always)]
pub fn radius_f32(word: u32) -> f32 {
    let (high, low) = ((word >> 16) as i32 as f32, (word & 0xffff) as i32 as f32);
    high * (1.0 / (1_u64 << 16) as f32) + (low + 0.5) * (1.0 / (1_u64 << 32) as f32)
}

/// The upper 53 bits of a number as a fraction of 1, from 2^-53 to 1.
#[inline(always)]
pub fn radius_f64(bits: u64) -> f64 {
    1.0 - uniform_f64(bits)
}

/// Two independent standard normal numbers from two uniform ones: the Box-Muller transform.
///
/// `radius` is uniform over (0, 1]: [`radius_f32`] or [`radius_f64`]. `turn` is uniform over [0, 1): an angle as a fraction of a full turn.
/// Source: G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
#[inline(always)]
pub fn box_muller<A: Arith>(radius: A, turn: A) -> [A; 2] {
    let radius = (A::int(-2) * crate::math::log(radius)).sqrt();
    let [sin, cos] = sin_cos_turn(turn);
    [radius * cos, radius * sin]
}

/// Sine and cosine of an angle given as a fraction in [0, 1] of a full turn.
///
/// Subtracting the nearest quarter is exact, so the polynomials (Taylor's) need cover an eighth of a turn only:
/// the truncation error is below 2^-29 for f32 and below 2^-60 for f64.
#[inline(always)]
fn sin_cos_turn<A: Arith>(turn: A) -> [A; 2] {
    let quarter = (turn * A::int(4)).round_even();
    let angle = (turn - quarter * A::of(0.25)) * A::of(std::f64::consts::TAU);
    let square = angle * angle;
    // sin x = x (1 - x^2 / (2*3) (1 - x^2 / (4*5) ...)), cos x = 1 - x^2 / (1*2) (1 - x^2 / (3*4) ...).
    let terms = if A::DOUBLE { 9 } else { 5 };
    let (mut sin, mut cos) = (A::int(1), A::int(1));
    for k in (1..=terms).rev() {
        let k = k as f64;
        sin = (square * A::of(-1.0 / (2.0 * k * (2.0 * k + 1.0))) * sin) + A::int(1);
        cos = (square * A::of(-1.0 / (2.0 * k * (2.0 * k - 1.0))) * cos) + A::int(1);
    }
    sin = sin * angle;
    // A quarter more turns (sin, cos) into (cos, -sin).
    let quarter = quarter.to_whole();
    let bit = |position: i64| (quarter & A::Bits::splat(position)).eq(A::Bits::splat(position));
    let (odd, half) = (bit(1), bit(2));
    let (s, c) = (A::select(odd, cos, sin), A::select(odd, -sin, cos));
    [A::select(half, -s, s), A::select(half, -c, c)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_vectors() {
        // From the known-answer tests of Random123 (kat_vectors, philox4x32 10).
        let pi_counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(
            philox([0; 2], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([!0; 2], [!0; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0xa409_3822, 0x299f_31d0], pi_counter),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn an_element_is_a_word_of_its_block() {
        let (seed, offset) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
        let stream = PhiloxStream::new(seed, offset);
        let element = (5_u64 << 34) + 7;
        let counter = [
            (element / 4) as u32,
            ((element / 4) >> 32) as u32,
            0x7654_3210,
            0xfedc_ba98,
        ];
        assert_eq!(
            stream.word(element),
            philox([0x89ab_cdef, 0x0123_4567], counter)[3]
        );
        let block = stream.block(element / 2);
        assert_eq!(
            stream.double_word(element),
            block[2] as u64 | (block[3] as u64) << 32
        );
    }

    #[test]
    fn lanes_agree_with_single_blocks() {
        let low = std::array::from_fn::<u32, 16, _>(|l| u32::MAX - l as u32);
        let high = [3; 16];
        let lanes = philox_lanes([1, 2], &low, &high, [4, 5]);
        for l in 0..16 {
            assert_eq!(lanes.map(|word| word[l]), philox([1, 2], [low[l], 3, 4, 5]));
        }
    }

    #[test]
    fn uniform_numbers_cover_the_unit_interval_without_one() {
        assert_eq!(uniform_f32(0), 0.0);
        assert_eq!(uniform_f32(u32::MAX), 1.0 - f32::EPSILON / 2.0);
        assert_eq!(uniform_f64(u64::MAX), 1.0 - f64::EPSILON / 2.0);
    }

    #[test]
    fn sine_and_cosine_of_turns_are_close() {
        for i in 0..=4096 {
            let turn = i as f64 / 4096.0;
            let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
            let [s, c] = sin_cos_turn(turn);
            assert!((s - sin).abs() < 1e-15 && (c - cos).abs() < 1e-15, "{turn}");
            let [s, c] = sin_cos_turn(turn as f32);
            assert!(
                (s as f64 - sin).abs() < 2e-7 && (c as f64 - cos).abs() < 2e-7,
                "{turn}"
            );
        }
        assert_eq!(sin_cos_turn(0.25_f32), [1.0, 0.0]);
        assert_eq!(sin_cos_turn(0.5_f64), [0.0, -1.0]);
    }

    #[test]
    fn normal_numbers_have_the_moments_of_a_normal_distribution() {
        let stream = PhiloxStream::new(11, 3);
        let moments = |normal: &dyn Fn(u64) -> f64| {
            let count = 200_000;
            [1, 2, 3, 4]
                .map(|power| (0..count).map(|i| normal(i).powi(power)).sum::<f64>() / count as f64)
        };
        // The standard deviations are 0.0022, 0.0032, 0.0087 and 0.022.
        for [first, second, third, fourth] in [
            moments(&|i| stream.normal_f32(i) as f64),
            moments(&|i| stream.normal_f64(i)),
        ] {
            assert!(
                first.abs() < 0.009 && (second - 1.0).abs() < 0.013,
                "{first} {second}"
            );
            assert!(
                third.abs() < 0.035 && (fourth - 3.0).abs() < 0.09,
                "{third} {fourth}"
            );
        }
        assert!(radius_f32(0) > 0.0 && radius_f32(u32::MAX) == 1.0);
        assert!(radius_f64(u64::MAX) > 0.0 && radius_f64(0) == 1.0);
    }

    #[test]
    fn bounded_numbers_are_spread_evenly() {
        let stream = PhiloxStream::new(7, 0);
        let mut counts = [0; 10];
        for index in 0..100_000 {
            counts[stream.bounded(index, 10) as usize] += 1;
        }
        // The standard deviation of a count is 95.
        assert!(
            counts.iter().all(|count| (9_600..10_400).contains(count)),
            "{counts:?}"
        );
        assert_eq!(bounded(u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(bounded(u64::MAX, 1), 0);
    }
}
