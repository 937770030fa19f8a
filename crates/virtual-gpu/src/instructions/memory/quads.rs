//! Loads of four words a lane: each lane's words lie together and go to four registers, so that they are transposed.

use std::arch::x86_64::*;

use crate::exec::core::Core;
use crate::exec::instruction::Inst;
use crate::exec::lanes::WARP;

/// Loads four words from `base + offsets[lane]` into `slots[0..4]`, for lanes of the mask.
///
/// # Safety
/// As `VectorHandler::run` with the same `LANES`; every offset has 16 readable bytes there.
#[inline(always)]
pub(super) unsafe fn load<const LANES: usize>(
    core: &mut Core<'_>,
    inst: &Inst,
    base: *const u8,
    offsets: &[u64; WARP],
) {
    for first in (0..WARP).step_by(LANES) {
        // SAFETY: `LANES` divides 32; the features are the caller's.
        unsafe {
            let rows = Rows(base, offsets, first);
            let parts: [[u32; LANES]; 4] = match LANES {
                16 => std::mem::transmute_copy(&sixteen(rows)),
                8 => std::mem::transmute_copy(&eight(rows)),
                _ => std::mem::transmute_copy(&four(rows)),
            };
            for (part, values) in parts.into_iter().enumerate() {
                core.put_lanes::<u32, LANES>(inst.slots[part], first, values);
            }
        }
    }
}

/// Where the words of the lanes from `first` on are.
#[derive(Clone, Copy)]
struct Rows<'a>(*const u8, &'a [u64; WARP], usize);

impl Rows<'_> {
    #[inline(always)]
    unsafe fn row(self, lane: usize) -> __m128i {
        // SAFETY: the caller of `load` says that 16 bytes are there.
        unsafe { _mm_loadu_si128(self.0.add(self.1[self.2 + lane] as usize).cast()) }
    }
}

/// Transposes 4 by 4 words in every 128 bits: with row `4 k + j` in part k of vector j, word p of all rows in order
/// in vector p.
macro_rules! transposed {
    ($rows:expr, $lo32:ident, $hi32:ident, $lo64:ident, $hi64:ident) => {{
        let [a, b, c, d] = $rows;
        let (ab, cd) = ($lo32(a, b), $lo32(c, d));
        let (ab_high, cd_high) = ($hi32(a, b), $hi32(c, d));
        [
            $lo64(ab, cd),
            $hi64(ab, cd),
            $lo64(ab_high, cd_high),
            $hi64(ab_high, cd_high),
        ]
    }};
}

#[inline(always)]
unsafe fn four(rows: Rows<'_>) -> [__m128i; 4] {
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let rows = [rows.row(0), rows.row(1), rows.row(2), rows.row(3)];
        transposed!(
            rows,
            _mm_unpacklo_epi32,
            _mm_unpackhi_epi32,
            _mm_unpacklo_epi64,
            _mm_unpackhi_epi64
        )
    }
}

#[inline(always)]
unsafe fn eight(rows: Rows<'_>) -> [__m256i; 4] {
    macro_rules! pair {
        ($j:expr) => {
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(rows.row($j)), rows.row(4 + $j))
        };
    }
    // SAFETY: the caller has AVX2.
    unsafe {
        let rows = [pair!(0), pair!(1), pair!(2), pair!(3)];
        transposed!(
            rows,
            _mm256_unpacklo_epi32,
            _mm256_unpackhi_epi32,
            _mm256_unpacklo_epi64,
            _mm256_unpackhi_epi64
        )
    }
}

#[inline(always)]
unsafe fn sixteen(rows: Rows<'_>) -> [__m512i; 4] {
    macro_rules! four_rows {
        ($j:expr) => {{
            let rows_01 =
                _mm512_inserti32x4::<1>(_mm512_castsi128_si512(rows.row($j)), rows.row(4 + $j));
            let rows_012 = _mm512_inserti32x4::<2>(rows_01, rows.row(8 + $j));
            _mm512_inserti32x4::<3>(rows_012, rows.row(12 + $j))
        }};
    }
    // SAFETY: the caller has AVX-512.
    unsafe {
        let rows = [four_rows!(0), four_rows!(1), four_rows!(2), four_rows!(3)];
        transposed!(
            rows,
            _mm512_unpacklo_epi32,
            _mm512_unpackhi_epi32,
            _mm512_unpacklo_epi64,
            _mm512_unpackhi_epi64
        )
    }
}
