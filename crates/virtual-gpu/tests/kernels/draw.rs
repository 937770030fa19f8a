//! Test data from a seed.

/// A sequence of numbers that depends only on the seed (splitmix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// In `low..high`.
    pub(crate) fn integer(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low) as u64) as i64
    }

    /// In `low..high`.
    pub(crate) fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * (high - low)
    }

    pub(crate) fn reals(&mut self, count: usize, low: f64, high: f64) -> Vec<f32> {
        (0..count).map(|_| self.real(low, high) as f32).collect()
    }

    pub(crate) fn doubles(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| self.real(low, high)).collect()
    }

    pub(crate) fn integers(&mut self, count: usize, low: i64, high: i64) -> Vec<i32> {
        (0..count).map(|_| self.integer(low, high) as i32).collect()
    }

    /// Words of all 64 bits, of which every fourth has a bit pattern at an edge.
    pub(crate) fn words(&mut self, count: usize) -> Vec<u64> {
        const EDGES: [u64; 8] = [
            0,
            1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            0x8000_0000,
            0x7fff_ffff,
            0xffff_ffff,
        ];
        (0..count)
            .map(|_| match self.bits() {
                edge if edge % 4 == 0 => EDGES[(edge >> 8) as usize % EDGES.len()],
                word => word,
            })
            .collect()
    }

    /// 0..count in some order.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..count as i32).collect();
        for at in (1..count).rev() {
            order.swap(at, self.integer(0, at as i64 + 1) as usize);
        }
        order
    }
}

#[test]
fn permutations_hold_each_number_once() {
    let mut order = Draw::new(3).permutation(100);
    assert_ne!(order[..5], [0, 1, 2, 3, 4]);
    order.sort_unstable();
    assert!((0..100).eq(order));
}
