//! `Size2`: a height and a width, or one number for both.

/// A size in two dimensions: from a number for both, or from `[height, width]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size2(pub [usize; 2]);

impl From<usize> for Size2 {
    fn from(size: usize) -> Size2 {
        Size2([size, size])
    }
}

impl From<[usize; 2]> for Size2 {
    fn from(size: [usize; 2]) -> Size2 {
        Size2(size)
    }
}
