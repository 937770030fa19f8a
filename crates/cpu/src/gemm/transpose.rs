//! Rows into columns, for packing: blocks of 16 by 16 in registers where there is AVX-512, else one by one.

use super::Float;

/// A block to turn: `to[col * to_stride + row] = from[row * from_stride + col]`.
pub(crate) struct Block<T> {
    /// Start of the source; its columns lie side by side.
    pub(crate) from: *const T,
    /// From one source row to the next.
    pub(crate) from_stride: usize,
    /// Start of the result; the source's rows lie side by side in it.
    pub(crate) to: *mut T,
    /// From one source column to the next, in the result.
    pub(crate) to_stride: usize,
    /// Source rows.
    pub(crate) rows: usize,
    /// Source columns.
    pub(crate) cols: usize,
}

/// One number at a time.
///
/// # Safety
/// Every address that the block names is valid; source and result do not overlap.
#[inline(always)]
pub(super) unsafe fn plain<T: Float>(block: &Block<T>) {
    for col in 0..block.cols {
        for row in 0..block.rows {
            // SAFETY: row < rows and col < cols, which the caller vouches for.
            unsafe {
                *block.to.add(col * block.to_stride + row) =
                    *block.from.add(row * block.from_stride + col);
            }
        }
    }
}

/// 16 by 16 f32 at a time.
///
/// # Safety
/// As for [`plain`], and the machine has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512_f32(block: &Block<f32>) {
    use std::arch::x86_64::*;
    let first = |count: usize| -> __mmask16 { ((1u32 << count.min(16)) - 1) as __mmask16 };
    for col in (0..block.cols).step_by(16) {
        let cols = (block.cols - col).min(16);
        for row in (0..block.rows).step_by(16) {
            let rows = (block.rows - row).min(16);
            let mut r = [_mm512_setzero_ps(); 16];
            for (i, register) in r.iter_mut().enumerate() {
                if i < rows {
                    // SAFETY: row + i < block.rows, and the mask ends at block.cols.
                    *register = unsafe {
                        _mm512_maskz_loadu_ps(
                            first(cols),
                            block.from.add((row + i) * block.from_stride + col),
                        )
                    };
                }
            }
            // Pairs of rows, then fours: within each quarter of 128 bits a 4 by 4 transpose.
            let mut pairs = r;
            for i in (0..16).step_by(2) {
                pairs[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
                pairs[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
            }
            let mut fours = pairs;
            for i in (0..16).step_by(4) {
                for half in 0..2 {
                    let low = _mm512_castps_pd(pairs[i + half]);
                    let high = _mm512_castps_pd(pairs[i + half + 2]);
                    fours[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                    fours[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
                }
            }
            // fours[4 g + c] holds rows 4g..4g+4 of columns c, c + 4, c + 8, c + 12: a 4 by 4 transpose of quarters.
            for c in 0..4 {
                let (a, b, d, e) = (fours[c], fours[c + 4], fours[c + 8], fours[c + 12]);
                let ab_even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                let ab_odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                let de_even = _mm512_shuffle_f32x4::<0b10_00_10_00>(d, e);
                let de_odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(d, e);
                let columns = [
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_even, de_even),
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_odd, de_odd),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_even, de_even),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_odd, de_odd),
                ];
                for (quarter, column) in columns.into_iter().enumerate() {
                    let at = c + 4 * quarter;
                    if at < cols {
                        // SAFETY: col + at < block.cols, and the mask ends at block.rows.
                        unsafe {
                            _mm512_mask_storeu_ps(
                                block.to.add((col + at) * block.to_stride + row),
                                first(rows),
                                column,
                            );
                        }
                    }
                }
            }
        }
    }
}
