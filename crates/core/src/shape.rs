//! `Shape`: the sizes of a tensor's dimensions, and broadcasting.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// Sizes or strides, kept inline up to four dimensions.
pub type Dims = SmallVec<[usize; 4]>;

/// The sizes of the dimensions. Empty for a zero-dim tensor.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(Dims);

impl Clone for Shape {
    /// A copy of the slice: `SmallVec`'s own clone goes element by element, on the path of every op.
    #[inline]
    fn clone(&self) -> Shape {
        Shape(Dims::from_slice(&self.0))
    }
}

impl Shape {
    /// The shape with these sizes.
    pub fn new(sizes: &[usize]) -> Shape {
        Shape(Dims::from_slice(sizes))
    }

    /// The shape of a zero-dim tensor.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// The number of elements: the product of the sizes, 1 for a zero-dim tensor. `usize::MAX` where it overflows, which no
    /// tensor's shape does.
    pub fn numel(&self) -> usize {
        self.checked_numel().unwrap_or(usize::MAX)
    }

    /// The number of elements, or None where it (or the product of any of the sizes beside a zero) is beyond `isize::MAX`: of
    /// a tensor that exists, sizes can be multiplied without a check, and be counted from either end.
    pub fn checked_numel(&self) -> Option<usize> {
        let product = self
            .0
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size.max(1)))
            .filter(|&product| product <= isize::MAX as usize)?;
        Some(if self.0.contains(&0) { 0 } else { product })
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.0.len()
    }

    /// The sizes, to change.
    pub fn sizes_mut(&mut self) -> &mut Dims {
        &mut self.0
    }

    /// Strides, in elements, of a contiguous tensor of this shape.
    pub fn contiguous_strides(&self) -> Dims {
        let mut strides = Dims::from_slice(&self.0);
        let mut stride = 1;
        for (slot, size) in strides.iter_mut().zip(&self.0).rev() {
            *slot = stride;
            // Overflows only for shapes that no storage can hold; allocating them is the error.
            stride = stride.wrapping_mul((*size).max(1));
        }
        strides
    }

    /// The shape that both broadcast to, by PyTorch's rules; None where sizes differ and neither is 1.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        if self == other {
            return Some(self.clone());
        }
        let ndim = self.ndim().max(other.ndim());
        let mut sizes: Dims = smallvec::smallvec![0; ndim];
        for (back, size) in sizes.iter_mut().rev().enumerate() {
            let of = |shape: &Shape| {
                shape
                    .ndim()
                    .checked_sub(back + 1)
                    .map_or(1, |dim| shape[dim])
            };
            *size = match (of(self), of(other)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Some(Shape(sizes))
    }
}

/// The place of dimension `dim`, counted from the end where negative, in a tensor of `ndim` dimensions.
///
/// A zero-dim tensor takes 0 and -1, as in PyTorch.
pub fn resolve_dim(op: &'static str, dim: isize, ndim: usize) -> Result<usize> {
    let count = ndim.max(1) as isize;
    if (-count..count).contains(&dim) {
        Ok(if dim < 0 { dim + count } else { dim } as usize)
    } else {
        Err(Error::DimOutOfRange { op, dim, ndim })
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        Shape::new(sizes)
    }
}

impl From<Dims> for Shape {
    fn from(sizes: Dims) -> Shape {
        Shape(sizes)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Shape {
        Shape::new(&sizes)
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Shape {
        Shape(sizes.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (dim, size) in self.0.iter().enumerate() {
            if dim > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{size}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_aligns_at_the_end() {
        let shape = |sizes: &[usize]| Shape::new(sizes);
        assert_eq!(shape(&[3, 1]).broadcast(&shape(&[4])), Some(shape(&[3, 4])));
        assert_eq!(shape(&[]).broadcast(&shape(&[2, 0])), Some(shape(&[2, 0])));
        assert_eq!(shape(&[1]).broadcast(&shape(&[0])), Some(shape(&[0])));
        assert_eq!(shape(&[2]).broadcast(&shape(&[3])), None);
    }

    #[test]
    fn a_zero_hides_no_overflow() {
        assert_eq!(Shape::new(&[3, 0, 5]).checked_numel(), Some(0));
        assert_eq!(Shape::new(&[1 << 40, 0, 1 << 40]).checked_numel(), None);
        assert_eq!(Shape::new(&[0, usize::MAX]).checked_numel(), None);
        assert_eq!(
            Shape::new(&[isize::MAX as usize, 0]).checked_numel(),
            Some(0)
        );
    }

    #[test]
    fn dims_count_from_the_end() {
        assert_eq!(resolve_dim("sum", -1, 3).unwrap(), 2);
        assert_eq!(resolve_dim("sum", -1, 0).unwrap(), 0);
        assert!(resolve_dim("sum", 3, 3).is_err());
        assert!(resolve_dim("sum", -4, 3).is_err());
    }
}
