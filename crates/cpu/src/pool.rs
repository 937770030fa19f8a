//! Two-dimensional pooling over planes: maximum, average and adaptive average, with their gradients.
//!
//! Knows contiguous slices of planes (`batch * channels` of them, each height by width). Pooling over one dim is
//! the case of height 1.

mod average;
mod max;

pub use average::{
    AveragePool2dShape, adaptive_avg_pool2d, adaptive_avg_pool2d_backward, avg_pool2d,
    avg_pool2d_backward,
};
pub use max::{max_pool2d, max_pool2d_backward};

use crate::conv::{WindowError, extents};
use crate::parallel;

/// The sizes of a pooling. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool2dShape {
    /// Images times channels.
    pub planes: usize,
    /// Height of an input plane.
    pub height: usize,
    /// Width of an input plane.
    pub width: usize,
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Places added on each side of the input; at most half the window.
    pub padding: [usize; 2],
    /// Distance between the window's places.
    pub dilation: [usize; 2],
    /// Whether a last window may hang over the edge (of input and padding), if it starts before the right padding.
    pub ceil_mode: bool,
}

impl Pool2dShape {
    /// Height and width of the output: `(input + 2 padding - dilation (kernel - 1) - 1) / stride + 1`, rounded down, or
    /// up in ceil mode, where a window that would start in the right padding is dropped.
    ///
    /// # Errors
    /// If kernel, stride or dilation is 0, if the padding is more than half the kernel (without dilation), if the
    /// kernel is larger than the padded input, or if one of them is larger than any memory.
    pub fn output_size(&self) -> Result<[usize; 2], WindowError> {
        let positive = [
            ("kernel", self.kernel),
            ("stride", self.stride),
            ("dilation", self.dilation),
        ];
        if let Some(&(what, _)) = positive.iter().find(|(_, pair)| pair.contains(&0)) {
            return Err(WindowError::Zero { what });
        }
        let mut size = [self.height, self.width];
        for (dim, size) in size.iter_mut().enumerate() {
            let (padding, stride) = (self.padding[dim], self.stride[dim]);
            if padding > self.kernel[dim] / 2 {
                return Err(WindowError::PaddingTooLarge {
                    padding,
                    kernel: self.kernel[dim],
                });
            }
            let [input, kernel] =
                extents(*size, self.kernel[dim], padding, stride, self.dilation[dim])?;
            let over = if self.ceil_mode { stride - 1 } else { 0 };
            if *size == 0 || kernel > input + over {
                return Err(WindowError::KernelTooLarge { kernel, input });
            }
            let mut windows = (input + over - kernel) / stride + 1;
            if self.ceil_mode && (windows - 1) * stride >= *size + padding {
                windows -= 1;
            }
            *size = windows;
        }
        Ok(size)
    }

    /// The output size, after checking the slices' lengths.
    ///
    /// # Panics
    /// If there is no output size, or if a length is another.
    fn checked(&self, op: &str, input: usize, output: usize) -> [usize; 2] {
        let size = self
            .output_size()
            .unwrap_or_else(|error| panic!("{op}: {error}"));
        assert_eq!(
            input,
            self.planes * self.height * self.width,
            "{op}: length of the input"
        );
        assert_eq!(
            output,
            self.planes * size[0] * size[1],
            "{op}: length of the output"
        );
        size
    }
}

/// A task has at least so many numbers of the larger plane.
const TASK_NUMEL: usize = 8192;

/// Calls `work(first plane, planes of small, planes of large)` for groups of planes, on several threads.
///
/// `outer` and `inner` are written; both are cut into the same groups of planes.
fn each_planes<A: Send, B: Send>(
    planes: usize,
    outer: &mut [A],
    inner: &mut [B],
    numel: usize,
    work: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    if planes == 0 {
        return;
    }
    let (outer_plane, inner_plane) = (outer.len() / planes, inner.len() / planes);
    let together = TASK_NUMEL.div_ceil(numel.max(1)).clamp(1, planes);
    let outer = Parts {
        start: outer.as_mut_ptr(),
        plane: outer_plane,
    };
    let inner = Parts {
        start: inner.as_mut_ptr(),
        plane: inner_plane,
    };
    parallel::run(planes.div_ceil(together), |task| {
        let first = task * together;
        let count = together.min(planes - first);
        // SAFETY: planes first..first + count are within both slices, and belong to this task alone.
        unsafe { work(first, outer.of(first, count), inner.of(first, count)) }
    });
}

/// A slice of planes that tasks share; each uses its own planes.
struct Parts<T> {
    start: *mut T,
    plane: usize,
}

// SAFETY: tasks use disjoint planes.
unsafe impl<T: Send> Send for Parts<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Parts<T> {}

impl<T> Parts<T> {
    /// # Safety
    /// The planes are within the slice, and nobody else uses them meanwhile.
    unsafe fn of<'a>(&self, first: usize, count: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(first * self.plane), count * self.plane)
        }
    }
}
