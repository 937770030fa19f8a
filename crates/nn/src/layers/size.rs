//! `Size`: a size in each dimension, or one number for all.

/// A size in `N` dimensions: from a number for all, or from an array of them (`[height, width]`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size<const N: usize>(pub [usize; N]);

/// A size in two dimensions: a number for both, or `[height, width]`.
pub type Size2 = Size<2>;

impl<const N: usize> From<usize> for Size<N> {
    fn from(size: usize) -> Size<N> {
        Size([size; N])
    }
}

impl<const N: usize> From<[usize; N]> for Size<N> {
    fn from(size: [usize; N]) -> Size<N> {
        Size(size)
    }
}
