//! `Layout`: how a tensor's elements lie in its storage, and what the views make of it.

use crate::error::{Error, Result};
use crate::shape::{Dims, Shape};

/// Shape, strides and offset. Strides and offset count elements; strides are never negative.
#[derive(PartialEq, Eq, Debug)]
pub struct Layout {
    shape: Shape,
    strides: Dims,
    offset: usize,
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Layout {
        Layout {
            shape: self.shape.clone(),
            strides: Dims::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

impl Layout {
    /// A contiguous layout of `shape` from the start of the storage.
    pub fn contiguous(shape: Shape) -> Layout {
        Layout {
            strides: shape.contiguous_strides(),
            shape,
            offset: 0,
        }
    }

    /// A layout with these strides.
    ///
    /// # Panics
    /// If there isn't one stride per size: what reaches into a storage relies on that, in every build.
    pub fn strided(shape: Shape, strides: Dims, offset: usize) -> Layout {
        assert_eq!(shape.ndim(), strides.len(), "one stride per size");
        Layout {
            shape,
            strides,
            offset,
        }
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The steps between neighbours in each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The first element's place in the storage, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    /// One past the last element that the layout reaches, in elements of the storage. None on overflow.
    pub fn end(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(self.offset);
        }
        let mut last = self.offset;
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((size - 1).checked_mul(stride)?)?;
        }
        last.checked_add(1)
    }

    /// Whether the elements lie in order without gaps. Strides of dimensions of size 1 don't count.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size == 0 {
                return true;
            }
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size;
            }
        }
        true
    }

    /// Whether the elements fill their range of the storage without gaps or overlap, in any order.
    pub fn is_dense(&self) -> bool {
        let mut dims: Dims = (0..self.ndim())
            .filter(|&dim| self.shape[dim] != 1)
            .collect();
        dims.sort_by_key(|&dim| self.strides[dim]);
        let mut expected = 1;
        dims.iter().all(|&dim| {
            let fits = self.strides[dim] == expected;
            expected *= self.shape[dim];
            fits
        }) || self.shape.contains(&0)
    }

    /// Whether two elements may be one place in the storage (as in an expanded tensor).
    pub fn overlaps_itself(&self) -> bool {
        if self.shape.contains(&0) {
            return false;
        }
        let mut dims: Dims = (0..self.ndim())
            .filter(|&dim| self.shape[dim] != 1)
            .collect();
        dims.sort_by_key(|&dim| self.strides[dim]);
        let mut reach = 0;
        dims.iter().any(|&dim| {
            let overlaps = self.strides[dim] <= reach;
            reach += (self.shape[dim] - 1) * self.strides[dim];
            overlaps
        })
    }

    /// The layout of a fresh tensor that keeps the order of dimensions in memory (so that channels-last
    /// survives), as PyTorch's preserve_format does for dense tensors; contiguous for others.
    pub fn preserved(&self) -> Layout {
        if self.is_contiguous() || !self.is_dense() {
            Layout::contiguous(self.shape.clone())
        } else {
            Layout::strided(self.shape.clone(), self.strides.clone(), 0)
        }
    }

    /// A layout of `shape`, of 4 or 5 dimensions, whose second dimension, the channels, is innermost in memory; None for others.
    pub fn channels_last(shape: &Shape) -> Option<Layout> {
        let ndim = shape.ndim();
        if !(4..=5).contains(&ndim) {
            return None;
        }
        let moved: Dims = std::iter::once(0).chain(2..ndim).chain([1]).collect();
        let back: Dims = [0, ndim - 1].into_iter().chain(1..ndim - 1).collect();
        let moved: Shape = moved.iter().map(|&dim| shape[dim]).collect();
        Some(Layout::contiguous(moved).permute(&back))
    }

    /// Swaps two dimensions.
    pub fn transpose(&self, dim0: usize, dim1: usize) -> Layout {
        let mut layout = self.clone();
        layout.shape.sizes_mut().swap(dim0, dim1);
        layout.strides.swap(dim0, dim1);
        layout
    }

    /// Puts dimension `dims[i]` at place `i`. `dims` must be a permutation.
    pub fn permute(&self, dims: &[usize]) -> Layout {
        Layout {
            shape: dims.iter().map(|&dim| self.shape[dim]).collect(),
            strides: dims.iter().map(|&dim| self.strides[dim]).collect(),
            offset: self.offset,
        }
    }

    /// `length` elements of `dim` from `start`, `step` apart.
    pub fn slice(&self, dim: usize, start: usize, length: usize, step: usize) -> Layout {
        let mut layout = self.clone();
        layout.shape.sizes_mut()[dim] = length;
        layout.offset = self.moved(dim, start);
        // Where there is no second element the step means nothing, and may be too large to multiply by.
        if length > 1 {
            layout.strides[dim] = self.strides[dim].saturating_mul(step);
        }
        layout
    }

    /// Only `index` of `dim`, without the dimension.
    pub fn select(&self, dim: usize, index: usize) -> Layout {
        let mut layout = self.clone();
        layout.shape.sizes_mut().remove(dim);
        layout.strides.remove(dim);
        layout.offset = self.moved(dim, index);
        layout
    }

    /// The offset after `count` steps along `dim`. An empty layout may have any strides; as no element lies at its offset, where
    /// that ends doesn't matter.
    fn moved(&self, dim: usize, count: usize) -> usize {
        self.offset
            .saturating_add(count.saturating_mul(self.strides[dim]))
    }

    /// Inserts a dimension of size 1 at `dim`.
    pub fn unsqueeze(&self, dim: usize) -> Layout {
        let mut layout = self.clone();
        let stride = if dim < self.ndim() {
            self.shape[dim].max(1).saturating_mul(self.strides[dim])
        } else {
            1
        };
        layout.shape.sizes_mut().insert(dim, 1);
        layout.strides.insert(dim, stride);
        layout
    }

    /// Removes dimension `dim`, whose size is 1.
    pub fn squeeze(&self, dim: usize) -> Layout {
        self.select(dim, 0)
    }

    /// `length` elements of the diagonal of dimensions `dims` that begins at `start`, as the last dimension in place of both.
    pub fn diagonal(&self, dims: [usize; 2], start: [usize; 2], length: usize) -> Layout {
        let mut layout = self.clone();
        let [first, second] = dims;
        layout.offset = self.moved(first, start[0]);
        layout.offset = layout.moved(second, start[1]);
        for dim in [first.max(second), first.min(second)] {
            layout.shape.sizes_mut().remove(dim);
            layout.strides.remove(dim);
        }
        let stride = self.strides[first].saturating_add(self.strides[second]);
        layout.shape.sizes_mut().push(length);
        layout.strides.push(stride);
        layout
    }

    /// Windows of `size` elements of `dim`, `step` apart: `dim` counts them, a new last dimension their elements.
    /// `size` is at most the dimension's.
    pub fn unfold(&self, dim: usize, size: usize, step: usize) -> Layout {
        let mut layout = self.clone();
        let windows = (self.shape[dim] - size) / step + 1;
        layout.shape.sizes_mut()[dim] = windows;
        layout.shape.sizes_mut().push(size);
        layout.strides.push(self.strides[dim]);
        if windows > 1 {
            layout.strides[dim] = self.strides[dim].saturating_mul(step);
        }
        layout
    }

    /// Repeats dimensions of size 1 without copying, to reach `shape`; None if it doesn't broadcast to it.
    pub fn expand(&self, shape: &Shape) -> Option<Layout> {
        let extra = shape.ndim().checked_sub(self.ndim())?;
        let mut strides: Dims = smallvec::smallvec![0; shape.ndim()];
        for dim in 0..self.ndim() {
            let target = shape[extra + dim];
            if self.shape[dim] == target {
                strides[extra + dim] = self.strides[dim];
            } else if self.shape[dim] != 1 {
                return None;
            }
        }
        Some(Layout {
            shape: shape.clone(),
            strides,
            offset: self.offset,
        })
    }

    /// The same elements under another shape without copying; None where that takes a copy.
    ///
    /// Groups of the old dimensions that lie contiguous in memory are split and merged, as in `Tensor.view`.
    pub fn view(&self, shape: &Shape) -> Option<Layout> {
        if shape.numel() != self.numel() {
            return None;
        }
        if self.is_contiguous() || self.numel() == 0 {
            return Some(Layout {
                strides: shape.contiguous_strides(),
                shape: shape.clone(),
                offset: self.offset,
            });
        }
        let mut strides: Dims = smallvec::smallvec![0; shape.ndim()];
        let mut new_dim = shape.ndim();
        let mut group_numel = 1; // elements of the group of old dimensions that merge, from the back
        let mut view_numel = 1; // elements of the new dimensions that already cover the group
        let mut base_stride = *self.strides.last().unwrap_or(&1);
        for dim in (0..self.ndim()).rev() {
            group_numel *= self.shape[dim];
            let ends_group = dim == 0
                || (self.shape[dim - 1] != 1 && self.strides[dim - 1] != group_numel * base_stride);
            if ends_group {
                while new_dim > 0 && (view_numel < group_numel || shape[new_dim - 1] == 1) {
                    new_dim -= 1;
                    strides[new_dim] = view_numel * base_stride;
                    view_numel *= shape[new_dim];
                }
                if view_numel != group_numel {
                    return None;
                }
                if dim > 0 {
                    base_stride = self.strides[dim - 1];
                    group_numel = 1;
                    view_numel = 1;
                }
            }
        }
        (new_dim == 0).then(|| Layout {
            shape: shape.clone(),
            strides,
            offset: self.offset,
        })
    }

    /// Fills in the one size given as -1 and checks that the sizes hold `numel` elements.
    pub fn infer_shape(op: &'static str, sizes: &[isize], numel: usize) -> Result<Shape> {
        let mut inferred = None;
        let mut known = 1usize;
        let mut shape = Shape::scalar();
        for (dim, &size) in sizes.iter().enumerate() {
            match size {
                -1 if inferred.is_none() => inferred = Some(dim),
                0.. => {
                    known = known.checked_mul(size as usize).ok_or_else(|| {
                        Error::shape(op, format!("{sizes:?} has more elements than memory"))
                    })?
                }
                -1 => {
                    return Err(Error::shape(
                        op,
                        format!("only one size may be -1, got {sizes:?}"),
                    ));
                }
                _ => {
                    return Err(Error::shape(
                        op,
                        format!("a size can't be negative, got {sizes:?}"),
                    ));
                }
            }
            shape.sizes_mut().push(size.max(0) as usize);
        }
        if let Some(dim) = inferred {
            if known == 0 || !numel.is_multiple_of(known) {
                return Err(Error::shape(
                    op,
                    format!("{sizes:?} can't be filled with {numel} elements: no size fits at -1"),
                ));
            }
            shape.sizes_mut()[dim] = numel / known;
        } else if known != numel {
            return Err(Error::shape(
                op,
                format!("{sizes:?} has {known} elements, the tensor has {numel}"),
            ));
        }
        Ok(shape)
    }
}

/// A loop over operands of one shape with as few dimensions as they all allow: the shape, and each operand's strides over
/// it. Dimensions are ordered by the memory of operand `written`, outermost first, so that it is written in order; a loop
/// over contiguous tensors of any shape has one dimension.
pub fn merge_dims(
    shape: &[usize],
    strides: &[&[usize]],
    written: Option<usize>,
) -> (Dims, Vec<Dims>) {
    let mut order: Dims = (0..shape.len()).filter(|&dim| shape[dim] != 1).collect();
    if let Some(written) = written {
        order.sort_by_key(|&dim| std::cmp::Reverse(strides[written][dim]));
    }
    let mut merged = Dims::new();
    let mut kept: Vec<Dims> = vec![Dims::new(); strides.len()];
    for &dim in &order {
        let size = shape[dim];
        let joins = !merged.is_empty()
            && kept
                .iter()
                .zip(strides)
                .all(|(kept, strides)| kept[kept.len() - 1] == strides[dim] * size);
        if joins {
            let last = merged.len() - 1;
            merged[last] *= size;
            for (kept, strides) in kept.iter_mut().zip(strides) {
                kept[last] = strides[dim];
            }
        } else {
            merged.push(size);
            for (kept, strides) in kept.iter_mut().zip(strides) {
                kept.push(strides[dim]);
            }
        }
    }
    if merged.is_empty() {
        merged.push(1);
        kept.iter_mut().for_each(|kept| kept.push(1));
    }
    (merged, kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every element's place in the storage, in the order of the shape.
    fn places(layout: &Layout) -> Vec<usize> {
        let mut places = vec![layout.offset()];
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
            places = places
                .iter()
                .flat_map(|&place| (0..size).map(move |index| place + index * stride))
                .collect();
        }
        places
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        let dims = prop::collection::vec((1usize..4, 0usize..3), 1..5);
        (dims, any::<prop::sample::Index>()).prop_map(|(dims, swap)| {
            let shape: Shape = dims.iter().map(|&(size, _)| size).collect();
            let mut layout = Layout::contiguous(shape);
            for (dim, &(size, cut)) in dims.iter().enumerate() {
                if cut == 1 && size > 1 {
                    layout = layout.slice(dim, 1, size - 1, 1);
                }
            }
            let other = swap.index(dims.len());
            layout.transpose(0, other)
        })
    }

    proptest! {
        #[test]
        fn a_view_keeps_the_order_of_places(layout in layouts(), split in 1usize..4) {
            let numel = layout.numel();
            let targets = [vec![numel], vec![numel, 1], vec![split, numel / split], vec![1, numel, 1]];
            for sizes in targets {
                let shape = Shape::new(&sizes);
                if let Some(view) = layout.view(&shape) {
                    prop_assert_eq!(places(&view), places(&layout));
                }
            }
            let same = layout.view(layout.shape());
            prop_assert_eq!(same.map(|view| places(&view)), Some(places(&layout)));
        }

        #[test]
        fn density_and_overlap_are_what_the_places_say(layout in layouts()) {
            let mut sorted = places(&layout);
            sorted.sort_unstable();
            let span = sorted[sorted.len() - 1] - sorted[0] + 1;
            prop_assert_eq!(layout.is_dense(), span == sorted.len());
            prop_assert!(!layout.overlaps_itself());
            prop_assert_eq!(layout.end().unwrap(), sorted[sorted.len() - 1] + 1);
        }
    }

    #[test]
    fn expanding_overlaps_and_needs_size_one() {
        let layout = Layout::contiguous(Shape::new(&[3, 1]));
        let wide = layout.expand(&Shape::new(&[2, 3, 4])).unwrap();
        assert_eq!(wide.strides(), &[0, 1, 0]);
        assert!(wide.overlaps_itself());
        assert!(layout.expand(&Shape::new(&[2, 4])).is_none());
    }

    #[test]
    fn a_transposed_layout_has_no_flat_view() {
        let layout = Layout::contiguous(Shape::new(&[2, 3])).transpose(0, 1);
        assert!(layout.view(&Shape::new(&[6])).is_none());
        assert!(layout.view(&Shape::new(&[3, 2, 1])).is_some());
    }

    #[test]
    fn minus_one_is_inferred() {
        assert_eq!(*Layout::infer_shape("view", &[2, -1], 6).unwrap(), [2, 3]);
        assert!(Layout::infer_shape("view", &[-1, -1], 6).is_err());
        assert!(Layout::infer_shape("view", &[4, -1], 6).is_err());
        assert!(Layout::infer_shape("view", &[0, -1], 0).is_err());
    }
}
