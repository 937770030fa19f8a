//! Fills slices with random numbers.
//!
//! Element `i` is a pure function of (seed, offset, i), which `Note [Random numbers]` in [`fireclay_core::philox`]
//! defines. Here it's computed in vectors and by all threads, to the same bits.

use crate::arch::SimdLanes;
use crate::parallel;
use crate::vectorize::{Parts, Vectorize, vectorized};
use fireclay_core::philox::{
    PhiloxStream, bounded, box_muller, halves, join, philox_lanes, radius_f32, radius_f64,
    uniform_f32, uniform_f64,
};

/// How many words are made at a time: 4 KiB, which stay in the L1 cache.
const WORDS: usize = 1024;
/// How many blocks of four words are made at once.
const LANES: usize = 16;
/// How many elements a task should have at least; a multiple of [`WORDS`].
const GRAIN: usize = 16 << 10;

/// Uniform numbers: `low + u * (high - low)` with `u` in [0, 1) of 24 bits (`torch.rand`, `uniform_`). Rounding may
/// give `high` itself if `low` isn't 0.
pub fn fill_uniform_f32(out: &mut [f32], seed: u64, offset: u64, low: f32, high: f32) {
    fill(
        out,
        seed,
        offset,
        OneWord(|word| uniform_f32(word) * (high - low) + low),
    );
}

/// Uniform numbers: `low + u * (high - low)` with `u` in [0, 1) of 53 bits (`torch.rand`, `uniform_`). Rounding may
/// give `high` itself if `low` isn't 0.
pub fn fill_uniform_f64(out: &mut [f64], seed: u64, offset: u64, low: f64, high: f64) {
    fill(
        out,
        seed,
        offset,
        TwoWords(|bits| uniform_f64(bits) * (high - low) + low),
    );
}

/// Normal numbers: `mean + std * z` (`torch.randn`, `normal_`).
pub fn fill_normal_f32(out: &mut [f32], seed: u64, offset: u64, mean: f32, std: f32) {
    fill(out, seed, offset, NormalF32 { mean, std });
}

/// Normal numbers: `mean + std * z` (`torch.randn`, `normal_`).
pub fn fill_normal_f64(out: &mut [f64], seed: u64, offset: u64, mean: f64, std: f64) {
    fill(out, seed, offset, NormalF64 { mean, std });
}

/// Whole numbers from `low` to `high - 1`, each as likely as the others (`torch.randint`).
///
/// # Panics
/// If `low >= high`.
pub fn fill_integers(out: &mut [i64], seed: u64, offset: u64, low: i64, high: i64) {
    assert!(low < high, "there are whole numbers from low to high - 1");
    let bound = high.wrapping_sub(low) as u64;
    fill(
        out,
        seed,
        offset,
        TwoWords(|bits| low.wrapping_add(bounded(bits, bound) as i64)),
    );
}

/// 1 with probability `p`, else 0 (`torch.bernoulli`).
pub fn fill_bernoulli_f32(out: &mut [f32], seed: u64, offset: u64, p: f64) {
    fill(
        out,
        seed,
        offset,
        OneWord(|word| {
            if (uniform_f32(word) as f64) < p {
                1.0
            } else {
                0.0
            }
        }),
    );
}

/// 1 with probability `p`, else 0 (`torch.bernoulli`).
pub fn fill_bernoulli_u8(out: &mut [u8], seed: u64, offset: u64, p: f64) {
    fill(
        out,
        seed,
        offset,
        OneWord(|word| ((uniform_f32(word) as f64) < p) as u8),
    );
}

/// The numbers 0 to `out.len() - 1` in random order (`torch.randperm`).
///
/// Fisher and Yates: for `i` from the last index down to 1, swaps elements `i` and `j`, `j` being the stream's
/// [bounded number](PhiloxStream::bounded) `i` below `i + 1`.
pub fn fill_permutation(out: &mut [i64], seed: u64, offset: u64) {
    let mut choices = vec![0_i64; out.len()];
    let stream = PhiloxStream::new(seed, offset);
    // The bound differs by element, so the raw numbers are made first.
    fill(&mut choices, seed, offset, TwoWords(|bits| bits as i64));
    debug_assert!(out.is_empty() || choices[0] as u64 == stream.double_word(0));
    for (value, element) in (0..).zip(&mut *out) {
        *element = value;
    }
    for i in (1..out.len()).rev() {
        out.swap(i, bounded(choices[i] as u64, i as u64 + 1) as usize);
    }
}

/// Makes elements of random words.
trait Transform: Copy + Sync {
    type Element: Send + Copy + Default;
    /// How many words an element takes.
    const WORDS_EACH: usize;

    /// Makes `words.len() / WORDS_EACH` elements. Must be `#[inline(always)]`.
    fn apply<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(
        self,
        words: &[u32; WORDS],
        out: &mut [Self::Element],
    );
}

fn fill<T: Transform>(out: &mut [T::Element], seed: u64, offset: u64, transform: T) {
    let stream = PhiloxStream::new(seed, offset);
    let len = out.len();
    let parts = Parts::new(out);
    parallel::for_ranges(len, GRAIN, |range| {
        // SAFETY: the ranges of different tasks don't overlap.
        let out = unsafe { parts.part(range.start, range.len()) };
        vectorized(Fill {
            stream,
            transform,
            first: range.start,
            out,
        });
    });
}

/// Fills elements from `first` on, which is a multiple of [`WORDS`].
struct Fill<'a, T: Transform> {
    stream: PhiloxStream,
    transform: T,
    first: usize,
    out: &'a mut [T::Element],
}

impl<T: Transform> Vectorize for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        let each = WORDS / T::WORDS_EACH;
        let mut words = [0; WORDS];
        let mut block = (self.first * T::WORDS_EACH / 4) as u64;
        let (chunks, rest) = self.out.split_at_mut(self.out.len() / each * each);
        for chunk in chunks.chunks_exact_mut(each) {
            make_words(self.stream, block, &mut words);
            self.transform.apply::<F, D>(&words, chunk);
            block += WORDS as u64 / 4;
        }
        if !rest.is_empty() {
            make_words(self.stream, block, &mut words);
            let mut chunk = [T::Element::default(); WORDS];
            self.transform.apply::<F, D>(&words, &mut chunk[..each]);
            rest.copy_from_slice(&chunk[..rest.len()]);
        }
    }
}

/// The words of the blocks from number `block` on.
#[inline(always)]
fn make_words(stream: PhiloxStream, block: u64, words: &mut [u32; WORDS]) {
    let (groups, _) = words.as_chunks_mut::<{ 4 * LANES }>();
    for (group, words) in groups.iter_mut().enumerate() {
        let first = block + (group * LANES) as u64;
        let (mut low, mut high) = ([0; LANES], [0; LANES]);
        for l in 0..LANES {
            [low[l], high[l]] = halves(first + l as u64);
        }
        let made = philox_lanes(stream.key, &low, &high, stream.offset);
        for l in 0..LANES {
            for (w, made) in made.iter().enumerate() {
                words[4 * l + w] = made[l];
            }
        }
    }
}

/// A function of one word.
#[derive(Clone, Copy)]
struct OneWord<F>(F);

impl<T: Send + Copy + Default, M: Fn(u32) -> T + Copy + Sync> Transform for OneWord<M> {
    type Element = T;
    const WORDS_EACH: usize = 1;

    #[inline(always)]
    fn apply<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(
        self,
        words: &[u32; WORDS],
        out: &mut [T],
    ) {
        for (element, &word) in out.iter_mut().zip(words) {
            *element = (self.0)(word);
        }
    }
}

/// A function of two words, as one number.
#[derive(Clone, Copy)]
struct TwoWords<F>(F);

impl<T: Send + Copy + Default, M: Fn(u64) -> T + Copy + Sync> Transform for TwoWords<M> {
    type Element = T;
    const WORDS_EACH: usize = 2;

    #[inline(always)]
    fn apply<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(
        self,
        words: &[u32; WORDS],
        out: &mut [T],
    ) {
        for (element, &[low, high]) in out.iter_mut().zip(words.as_chunks::<2>().0) {
            *element = (self.0)(join(low, high));
        }
    }
}

#[derive(Clone, Copy)]
struct NormalF32 {
    mean: f32,
    std: f32,
}

impl Transform for NormalF32 {
    type Element = f32;
    const WORDS_EACH: usize = 1;

    #[inline(always)]
    fn apply<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(
        self,
        words: &[u32; WORDS],
        out: &mut [f32],
    ) {
        const PAIRS: usize = WORDS / 2;
        let (mut radius, mut turn) = ([0.0; PAIRS], [0.0; PAIRS]);
        let (pairs, _) = words.as_chunks::<2>();
        for p in 0..PAIRS {
            radius[p] = radius_f32(pairs[p][0]);
            turn[p] = uniform_f32(pairs[p][1]);
        }
        transform_pairs::<F, PAIRS>(&mut radius, &mut turn);
        let (pairs, _) = out.as_chunks_mut::<2>();
        for (pair, (first, second)) in pairs.iter_mut().zip(radius.into_iter().zip(turn)) {
            *pair = [first * self.std + self.mean, second * self.std + self.mean];
        }
    }
}

#[derive(Clone, Copy)]
struct NormalF64 {
    mean: f64,
    std: f64,
}

impl Transform for NormalF64 {
    type Element = f64;
    const WORDS_EACH: usize = 2;

    #[inline(always)]
    fn apply<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(
        self,
        words: &[u32; WORDS],
        out: &mut [f64],
    ) {
        const PAIRS: usize = WORDS / 4;
        let (mut radius, mut turn) = ([0.0; PAIRS], [0.0; PAIRS]);
        let (blocks, _) = words.as_chunks::<4>();
        for p in 0..PAIRS {
            let [a, b, c, d] = blocks[p];
            radius[p] = radius_f64(join(a, b));
            turn[p] = uniform_f64(join(c, d));
        }
        transform_pairs::<D, PAIRS>(&mut radius, &mut turn);
        let (pairs, _) = out.as_chunks_mut::<2>();
        for (pair, (first, second)) in pairs.iter_mut().zip(radius.into_iter().zip(turn)) {
            *pair = [first * self.std + self.mean, second * self.std + self.mean];
        }
    }
}

/// Replaces each pair (`radius[p]`, `turn[p]`) by two normal numbers. `PAIRS` is a multiple of the number of lanes.
#[inline(always)]
fn transform_pairs<V: SimdLanes, const PAIRS: usize>(
    radius: &mut [V::Elem; PAIRS],
    turn: &mut [V::Elem; PAIRS],
) {
    assert!(PAIRS.is_multiple_of(V::LANES));
    for start in (0..PAIRS).step_by(V::LANES) {
        // SAFETY: start + LANES <= PAIRS, the length of both arrays, since LANES divides PAIRS.
        unsafe {
            let (radius, turn) = (radius.as_mut_ptr().add(start), turn.as_mut_ptr().add(start));
            let [first, second] = box_muller(V::load(radius), V::load(turn));
            first.store(radius);
            second.store(turn);
        }
    }
}
