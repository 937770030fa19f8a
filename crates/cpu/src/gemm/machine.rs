//! Which kernels this machine runs: the loops of `tile`, `vector` and `transpose`, compiled per instruction set.

use super::lanes::Plain;
use super::tile::{Kernels, Tile, by_steps};
use super::transpose::{self, Block};
use super::vector::{self, RowDots, WeightedRows};

/// Compiles the kernels for one vector type and puts them in a table.
///
/// `$rows` are the compiled tile heights, tallest first; `$vectors` the widths.
macro_rules! kernels {
    ($module:ident, $lanes:ty, $elem:ty, $count:literal, $(#[$feature:meta])?, $transpose:path,
     rows [$tallest:literal $(, $rows:literal)*], vectors [$widest:literal $(, $vectors:literal)*]) => {
        mod $module {
            use super::*;

            pub(super) static KERNELS: Kernels<$elem> = Kernels {
                rows: $tallest,
                lanes: $count,
                cols: $widest * $count,
                tile,
                transpose: turn,
                row_dots,
                weighted_rows,
            };

            $(#[$feature])?
            unsafe fn tile(tile: &Tile<$elem>) {
                debug_assert!((1..=$tallest).contains(&tile.rows) && (1..=$widest * $count).contains(&tile.cols));
                kernels!(@widths tile, $lanes, $count, [$($vectors),* , $widest], $tallest, [$($rows),*]);
            }

            $(#[$feature])?
            unsafe fn turn(block: &Block<$elem>) {
                // SAFETY: the caller's promise is passed on.
                unsafe { $transpose(block) }
            }

            $(#[$feature])?
            unsafe fn row_dots(job: &RowDots<$elem>) {
                // SAFETY: the caller's promise is passed on.
                unsafe { vector::row_dots::<$lanes>(job) }
            }

            $(#[$feature])?
            unsafe fn weighted_rows(job: &WeightedRows<$elem>) {
                // SAFETY: the caller's promise is passed on.
                unsafe { vector::weighted_rows::<$lanes>(job) }
            }
            $(#[$feature])?
            unsafe fn shape<const M: usize, const V: usize>(tile: &Tile<$elem>) {
                // SAFETY: the caller's promise is passed on.
                unsafe { by_steps::<$lanes, M, V>(tile) }
            }
        }
    };
    (@widths $tile:ident, $lanes:ty, $count:literal, [$($vectors:literal),*], $tallest:literal, $rows:tt) => {
        $(
            if $tile.cols <= $vectors * $count {
                kernels!(@heights $tile, $vectors, $tallest, $rows);
            }
        )*
    };
    (@heights $tile:ident, $vectors:literal, $tallest:literal, [$($rows:literal),*]) => {
        $(
            if $tile.rows <= $rows {
                // SAFETY: the tile fits this variant; the caller's promise is passed on.
                return unsafe { shape::<$rows, $vectors>($tile) };
            }
        )*
        // SAFETY: the tile fits the tallest variant; the caller's promise is passed on.
        return unsafe { shape::<$tallest, $vectors>($tile) };
    };
}

kernels!(plain_f32, Plain<f32, 8>, f32, 8, , transpose::plain, rows [4, 1], vectors [2, 1]);
kernels!(plain_f64, Plain<f64, 4>, f64, 4, , transpose::plain, rows [4, 1], vectors [2, 1]);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::lanes::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};
    use super::*;

    kernels!(avx512_f32, Avx512F32, f32, 16, #[target_feature(enable = "avx512f")], transpose::avx512_f32,
        rows [8, 1, 4], vectors [3, 1, 2]);
    kernels!(avx512_f64, Avx512F64, f64, 8, #[target_feature(enable = "avx512f")], transpose::plain,
        rows [8, 1, 4], vectors [3, 1, 2]);
    kernels!(avx2_f32, Avx2F32, f32, 8, #[target_feature(enable = "avx2,fma")], transpose::plain,
        rows [6, 1, 3], vectors [2, 1]);
    kernels!(avx2_f64, Avx2F64, f64, 4, #[target_feature(enable = "avx2,fma")], transpose::plain,
        rows [6, 1, 3], vectors [2, 1]);

    pub(super) fn f32_kernels() -> Option<&'static Kernels<f32>> {
        if is_x86_feature_detected!("avx512f") {
            Some(&avx512_f32::KERNELS)
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            Some(&avx2_f32::KERNELS)
        } else {
            None
        }
    }

    pub(super) fn f64_kernels() -> Option<&'static Kernels<f64>> {
        if is_x86_feature_detected!("avx512f") {
            Some(&avx512_f64::KERNELS)
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            Some(&avx2_f64::KERNELS)
        } else {
            None
        }
    }

    /// Every set of kernels that this machine can run.
    #[cfg(test)]
    pub(super) fn all_f32() -> Vec<&'static Kernels<f32>> {
        let mut all = Vec::new();
        if is_x86_feature_detected!("avx512f") {
            all.push(&avx512_f32::KERNELS);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(&avx2_f32::KERNELS);
        }
        all
    }

    /// Every set of kernels that this machine can run.
    #[cfg(test)]
    pub(super) fn all_f64() -> Vec<&'static Kernels<f64>> {
        let mut all = Vec::new();
        if is_x86_feature_detected!("avx512f") {
            all.push(&avx512_f64::KERNELS);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(&avx2_f64::KERNELS);
        }
        all
    }
}

/// The best kernels for f32 here.
pub(super) fn f32_kernels() -> &'static Kernels<f32> {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = x86::f32_kernels() {
        return kernels;
    }
    &plain_f32::KERNELS
}

/// The best kernels for f64 here.
pub(super) fn f64_kernels() -> &'static Kernels<f64> {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = x86::f64_kernels() {
        return kernels;
    }
    &plain_f64::KERNELS
}

/// The kernels of every instruction set that this machine has.
#[cfg(test)]
pub(super) fn all_f32() -> Vec<&'static Kernels<f32>> {
    let mut all = vec![&plain_f32::KERNELS];
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::all_f32());
    all
}

/// The kernels of every instruction set that this machine has.
#[cfg(test)]
pub(super) fn all_f64() -> Vec<&'static Kernels<f64>> {
    let mut all = vec![&plain_f64::KERNELS];
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::all_f64());
    all
}
