//! Views: the same bytes under another layout. No kernel but the one that carries a slice's gradient home.

use fireclay_core::{Dims, Error, Layout, Result, Shape, resolve_dim};
use smallvec::smallvec;

use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// A change of layout.
#[derive(Clone, Debug)]
pub(crate) enum View {
    Reshape(Shape),
    Transpose(usize, usize),
    Permute(Dims),
    Expand(Shape),
    Slice {
        dim: usize,
        start: usize,
        length: usize,
        step: usize,
    },
    Select {
        dim: usize,
        index: usize,
    },
    Unsqueeze(usize),
    Squeeze(usize),
    /// `length` elements of a diagonal of two dimensions, from `[row, col]` on, as the last dimension.
    Diagonal {
        dims: [usize; 2],
        start: [usize; 2],
        length: usize,
    },
    /// Windows of `size` elements of `dim`, `step` apart: their number in place of `dim`, their elements as the last dimension.
    Unfold {
        dim: usize,
        size: usize,
        step: usize,
    },
    /// This layout of the storage, in place of `base`.
    AsStrided {
        layout: Layout,
        base: Layout,
    },
}

impl View {
    fn name_of(&self) -> &'static str {
        match self {
            View::Reshape(_) => "view",
            View::Transpose(..) => "transpose",
            View::Permute(_) => "permute",
            View::Expand(_) => "expand",
            View::Slice { .. } => "slice",
            View::Select { .. } => "select",
            View::Unsqueeze(_) => "unsqueeze",
            View::Squeeze(_) => "squeeze",
            View::Diagonal { .. } => "diagonal",
            View::Unfold { .. } => "unfold",
            View::AsStrided { .. } => "as_strided",
        }
    }

    fn layout(&self, input: &Layout) -> Result<Layout> {
        match self {
            View::Reshape(shape) => input.view(shape).ok_or_else(|| {
                Error::shape(
                    "view",
                    format!(
                        "{} with strides {:?} has no view as {shape}",
                        input.shape(),
                        input.strides()
                    ),
                )
                .with_hint("use reshape, which copies where it must")
            }),
            View::Transpose(dim0, dim1) => Ok(input.transpose(*dim0, *dim1)),
            View::Permute(dims) => Ok(input.permute(dims)),
            View::Expand(shape) => input.expand(shape).ok_or_else(|| {
                Error::shape(
                    "expand",
                    format!("{} does not broadcast to {shape}", input.shape()),
                )
                .with_hint("only dimensions of size 1 expand")
            }),
            View::Slice {
                dim,
                start,
                length,
                step,
            } => Ok(input.slice(*dim, *start, *length, *step)),
            View::Select { dim, index } => Ok(input.select(*dim, *index)),
            View::Unsqueeze(dim) => Ok(input.unsqueeze(*dim)),
            View::Squeeze(dim) => Ok(input.squeeze(*dim)),
            View::Diagonal {
                dims,
                start,
                length,
            } => Ok(input.diagonal(*dims, *start, *length)),
            View::Unfold { dim, size, step } => Ok(input.unfold(*dim, *size, *step)),
            View::AsStrided { layout, .. } => Ok(layout.clone()),
        }
    }
}

impl View {
    /// Zeros of `shape` with `x` where this view, of which no two elements are one place, looks.
    #[track_caller]
    pub(crate) fn embed(&self, shape: &Shape, x: &Tensor) -> Result<Tensor> {
        let embed = Embed {
            view: self.clone(),
            shape: shape.clone(),
        };
        dispatch::call_one(embed, &[x])
    }
}

impl Op for View {
    fn name(&self) -> &'static str {
        self.name_of()
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let layout = self.layout(inputs[0].layout)?;
        Ok(smallvec![OutputMeta {
            layout,
            dtype: inputs[0].dtype,
        }])
    }

    fn view(&self, input: &Layout) -> Option<Result<Layout>> {
        Some(self.layout(input))
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let shape = context.input_shape(0);
        let back = match self {
            View::Reshape(_) | View::Unsqueeze(_) | View::Squeeze(_) => grad.reshape_to(shape)?,
            View::Transpose(dim0, dim1) => {
                dispatch::call_one(View::Transpose(*dim0, *dim1), &[grad])?
            }
            View::Permute(dims) => {
                let mut inverse: Dims = smallvec![0; dims.len()];
                for (place, &dim) in dims.iter().enumerate() {
                    inverse[dim] = place;
                }
                dispatch::call_one(View::Permute(inverse), &[grad])?
            }
            View::Expand(_) => grad.sum_to(shape)?,
            View::Slice { .. } | View::Select { .. } | View::Diagonal { .. } => {
                self.embed(shape, grad)?
            }
            View::Unfold { dim, size, step } => unfold_grad(grad, shape, [*dim, *size, *step])?,
            View::AsStrided { layout, base } => {
                if base.overlaps_itself() {
                    return Err(Error::Autograd {
                        op: self.name(),
                        what: "no gradient where the input's own elements share memory".into(),
                        context: fireclay_core::Context::hint("call contiguous() first"),
                    });
                }
                as_strided_grad(grad, layout, base)?
            }
        };
        Ok(smallvec![Some(back)])
    }
}

/// The transpose of [`View::AsStrided`]: adds the gradient up over the storage and reads it through the input's layout.
fn as_strided_grad(grad: &Tensor, layout: &Layout, base: &Layout) -> Result<Tensor> {
    let numel = layout.end().unwrap_or(0).max(base.end().unwrap_or(0));
    let mut places: Vec<i64> = vec![layout.offset() as i64];
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
        places = places
            .iter()
            .flat_map(|&place| (0..size).map(move |index| place + (index * stride) as i64))
            .collect();
    }
    let places = Tensor::from_slice(&places, &[places.len()], grad.device())?;
    let flat = grad.reshape_to(&Shape::new(&[grad.numel()]))?;
    let storage = Tensor::full_of(&[numel], 0i64, grad.dtype(), grad.device())?;
    let storage = storage.index_add(0, &places, &flat)?;
    storage.as_strided(base.shape(), base.strides(), base.offset())
}

/// The transpose of [`View::Unfold`]: adds up what the windows say of each element, in their order.
fn unfold_grad(grad: &Tensor, shape: &Shape, [dim, size, step]: [usize; 3]) -> Result<Tensor> {
    let windows = grad.shape()[dim];
    let places = (0..windows).flat_map(|window| (0..size).map(move |at| window * step + at));
    let places: Vec<i64> = places.map(|place| place as i64).collect();
    let places = Tensor::from_slice(&places, &[places.len()], grad.device())?;
    // The elements of the windows go beside the windows, and both become one dimension.
    let ndim = grad.ndim();
    let mut order: Dims = (0..ndim - 1).collect();
    order.insert(dim + 1, ndim - 1);
    let grad = dispatch::call_one(View::Permute(order), &[grad])?;
    let mut rows = shape.clone();
    rows.sizes_mut()[dim] = windows * size;
    let zeros = Tensor::full_of(shape, 0i64, grad.dtype(), grad.device())?;
    zeros.index_add(dim as isize, &places, &grad.reshape_to(&rows)?)
}

/// Zeros of `shape` with the input where `view` looks: the transpose of a slice, a selection or a diagonal.
#[derive(Clone, Debug)]
struct Embed {
    view: View,
    shape: Shape,
}

impl Op for Embed {
    fn name(&self) -> &'static str {
        "slice_backward"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        use fireclay_cpu::program::{Sink, Source};
        let (input, output) = (call.raw_input(0), call.raw_output(0));
        let size = output.dtype.size();
        let base = output.ptr();
        // SAFETY: the output is contiguous and ours; `ptr` checked its bounds. All-zero bytes are the number 0.
        unsafe { base.write_bytes(0, output.layout.numel() * size) };
        let inner = self.view.layout(output.layout)?;
        if inner.numel() == 0 {
            return Ok(());
        }
        assert!(
            inner.end().is_some_and(|end| end <= output.layout.numel()),
            "a view reaches beyond its base"
        );
        let source = Source {
            ptr: input.ptr().cast_const(),
            dtype: input.dtype,
            strides: input.layout.strides().into(),
        };
        let sink = Sink {
            // SAFETY: the view's end lies within the output, so its offset does.
            ptr: unsafe { base.add(inner.offset() * size) },
            dtype: output.dtype,
            strides: inner.strides().into(),
        };
        // SAFETY: both operands have the view's shape and lie within their storage; the output is fresh.
        unsafe { fireclay_cpu::copy::copy(inner.shape(), source, sink) };
        Ok(())
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Ok(smallvec![Some(dispatch::call_one(
            self.view.clone(),
            &[context.grad_output()]
        )?)])
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.fill(fireclay_core::Scalar::I64(0))?;
        let inner = self.view.layout(call.output_layout(0))?;
        call.copy_to_part(0, &inner)
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let (dim, layout) = (0, Layout::contiguous(Shape::scalar()));
    let slice = View::Slice {
        dim,
        start: 0,
        length: 1,
        step: 1,
    };
    let views = [
        View::Reshape(Shape::scalar()),
        View::Transpose(0, 1),
        View::Permute(Dims::new()),
        View::Expand(Shape::scalar()),
        View::Select { dim, index: 0 },
        View::Unsqueeze(dim),
        View::Squeeze(dim),
        View::Diagonal {
            dims: [0, 1],
            start: [0, 0],
            length: 0,
        },
        View::Unfold {
            dim,
            size: 1,
            step: 1,
        },
        View::AsStrided {
            layout: layout.clone(),
            base: layout,
        },
        slice.clone(),
    ];
    let embed = Embed {
        view: slice,
        shape: Shape::scalar(),
    };
    let views = views.into_iter().map(|view| Box::new(view) as Box<dyn Op>);
    views.chain([Box::new(embed) as Box<dyn Op>]).collect()
}

impl Tensor {
    /// The same elements under another shape, one of whose sizes may be -1 (`Tensor.view`). Never copies: an error where
    /// that is impossible.
    #[track_caller]
    pub fn view(&self, sizes: &[isize]) -> Result<Tensor> {
        let shape = self.sized("view", sizes)?;
        dispatch::call_one(View::Reshape(shape), &[self])
    }

    /// The same elements under another shape, one of whose sizes may be -1 (`torch.reshape`). A view where possible, else
    /// a copy.
    #[track_caller]
    pub fn reshape(&self, sizes: &[isize]) -> Result<Tensor> {
        let shape = self.sized("reshape", sizes)?;
        self.reshape_to(&shape)
    }

    #[track_caller]
    pub(crate) fn reshape_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let view = View::Reshape(shape.clone());
        if self.layout().view(shape).is_some() {
            dispatch::call_one(view, &[self])
        } else {
            dispatch::call_one(view, &[&self.contiguous()?])
        }
    }

    fn sized(&self, op: &'static str, sizes: &[isize]) -> Result<Shape> {
        Layout::infer_shape(op, sizes, self.numel())
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))
    }

    /// Dimensions `start` to `end` (inclusive, counted from the end where negative) made one (`torch.flatten`).
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let (start, end) = (
            resolve_dim("flatten", start, self.ndim())?,
            resolve_dim("flatten", end, self.ndim())?,
        );
        if start > end {
            return Err(
                Error::argument("flatten", format!("start {start} comes after end {end}"))
                    .with_operands(|| vec![self.operand("self")]),
            );
        }
        if self.ndim() == 0 {
            return self.reshape_to(&Shape::new(&[1]));
        }
        let mut shape: Dims = self.shape()[..start].into();
        shape.push(self.shape()[start..=end].iter().product());
        shape.extend_from_slice(&self.shape()[end + 1..]);
        self.reshape_to(&shape.into())
    }

    /// Two dimensions swapped (`torch.transpose`).
    #[track_caller]
    pub fn transpose(&self, dim0: isize, dim1: isize) -> Result<Tensor> {
        let (dim0, dim1) = (
            resolve_dim("transpose", dim0, self.ndim())?,
            resolve_dim("transpose", dim1, self.ndim())?,
        );
        if self.ndim() == 0 {
            return Ok(self.clone());
        }
        dispatch::call_one(View::Transpose(dim0, dim1), &[self])
    }

    /// A matrix transposed; fewer dimensions stay (`Tensor.t`).
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        match self.ndim() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            ndim => Err(
                Error::shape("t", format!("expected at most 2 dimensions, got {ndim}"))
                    .with_hint("use transpose(-2, -1)")
                    .with_operands(|| vec![self.operand("self")]),
            ),
        }
    }

    /// Dimension `dims[i]` put at place `i` (`torch.permute`).
    #[track_caller]
    pub fn permute(&self, dims: &[isize]) -> Result<Tensor> {
        let resolved: Dims = dims
            .iter()
            .map(|&dim| resolve_dim("permute", dim, self.ndim()))
            .collect::<Result<_>>()?;
        let mut sorted = resolved.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.ndim()) {
            return Err(Error::argument(
                "permute",
                format!(
                    "{dims:?} does not name each of {} dimensions once",
                    self.ndim()
                ),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        dispatch::call_one(View::Permute(resolved), &[self])
    }

    /// Dimensions of size 1 repeated, without copying, to reach `sizes`; -1 keeps a size (`Tensor.expand`).
    #[track_caller]
    pub fn expand(&self, sizes: &[isize]) -> Result<Tensor> {
        let extra = sizes.len().checked_sub(self.ndim());
        let shape = sizes
            .iter()
            .enumerate()
            .map(|(dim, &size)| match (size, extra) {
                (0.., _) => Ok(size as usize),
                (-1, Some(extra)) if dim >= extra => Ok(self.shape()[dim - extra]),
                _ => Err(Error::shape(
                    "expand",
                    format!("can't expand {} to {sizes:?}", self.shape()),
                )),
            });
        let shape: Shape = shape
            .collect::<Result<Dims>>()
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?
            .into();
        self.expand_to(&shape)
    }

    #[track_caller]
    pub(crate) fn expand_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        dispatch::call_one(View::Expand(shape.clone()), &[self])
    }

    /// `length` elements of `dim` from `start` on (`torch.narrow`).
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: usize, length: usize) -> Result<Tensor> {
        let dim = self.real_dim("narrow", dim)?;
        let size = self.shape()[dim];
        if start.checked_add(length).is_none_or(|end| end > size) {
            return Err(Error::argument(
                "narrow",
                format!("{length} elements from {start} on lie outside of dimension {dim} of size {size}"),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        dispatch::call_one(
            View::Slice {
                dim,
                start,
                length,
                step: 1,
            },
            &[self],
        )
    }

    /// A view of the storage with this shape, strides and offset, all in elements (`torch.as_strided`). An error where it
    /// reaches beyond the storage. Elements that share memory share their gradients; an in-place op on them is an error.
    #[track_caller]
    pub fn as_strided(&self, shape: &[usize], strides: &[usize], offset: usize) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if shape.len() != strides.len() {
            let what = format!("one stride per size, got {strides:?} for {shape:?}");
            return Err(context(Error::shape("as_strided", what)));
        }
        let layout = Layout::strided(Shape::new(shape), strides.into(), offset);
        let held = self.0.storage.nbytes() / self.dtype().size();
        if layout.end().is_none_or(|end| end > held) {
            let what = format!(
                "{shape:?} with strides {strides:?} from {offset} reaches beyond a storage of {held} elements"
            );
            return Err(context(Error::argument("as_strided", what)));
        }
        let base = self.layout().clone();
        dispatch::call_one(View::AsStrided { layout, base }, &[self])
    }

    /// Elements `start`, `start + step`, ... below `end` of `dim`, as Python's `start:end:step`: negative bounds count from the
    /// end, all are kept in range.
    #[track_caller]
    pub fn slice(&self, dim: isize, start: isize, end: isize, step: usize) -> Result<Tensor> {
        let dim = self.real_dim("slice", dim)?;
        if step == 0 {
            return Err(Error::argument("slice", "step must be positive, got 0"));
        }
        let size = self.shape()[dim] as isize;
        let place = |bound: isize| if bound < 0 { bound.saturating_add(size).max(0) } else { bound.min(size) } as usize;
        let (start, end) = (place(start), place(end));
        let length = end.saturating_sub(start).div_ceil(step);
        dispatch::call_one(
            View::Slice {
                dim,
                start,
                length,
                step,
            },
            &[self],
        )
    }

    /// Only `index` (counted from the end where negative) of `dim`, without the dimension (`torch.select`).
    #[track_caller]
    pub fn select(&self, dim: isize, index: isize) -> Result<Tensor> {
        let dim = self.real_dim("select", dim)?;
        let size = self.shape()[dim];
        let place = if index < 0 {
            index + size as isize
        } else {
            index
        };
        if !(0..size as isize).contains(&place) {
            return Err(Error::IndexOutOfRange {
                op: "select",
                index: index as i64,
                position: 0,
                dim,
                size,
                context: Box::default(),
            }
            .with_operands(|| vec![self.operand("self")]));
        }
        dispatch::call_one(
            View::Select {
                dim,
                index: place as usize,
            },
            &[self],
        )
    }

    /// A dimension of size 1 inserted at `dim` (`torch.unsqueeze`).
    #[track_caller]
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        let dim = resolve_dim("unsqueeze", dim, self.ndim() + 1)?;
        dispatch::call_one(View::Unsqueeze(dim), &[self])
    }

    /// Dimension `dim` removed if its size is 1 (`torch.squeeze(dim)`).
    #[track_caller]
    pub fn squeeze(&self, dim: isize) -> Result<Tensor> {
        let dim = resolve_dim("squeeze", dim, self.ndim())?;
        if self.ndim() == 0 || self.shape()[dim] != 1 {
            return Ok(self.clone());
        }
        dispatch::call_one(View::Squeeze(dim), &[self])
    }

    /// All dimensions of size 1 removed (`torch.squeeze()`).
    #[track_caller]
    pub fn squeeze_all(&self) -> Result<Tensor> {
        let sizes: Dims = self
            .shape()
            .iter()
            .copied()
            .filter(|&size| size != 1)
            .collect();
        self.reshape_to(&sizes.into())
    }

    /// Pieces of `size` along `dim`, the last one maybe smaller (`torch.split`).
    #[track_caller]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        let at = self.real_dim("split", dim)?;
        let total = self.shape()[at];
        if size == 0 && total > 0 {
            return Err(Error::argument(
                "split",
                "the size of a piece must be positive, got 0",
            ));
        }
        if total == 0 {
            return Ok(vec![self.narrow(dim, 0, 0)?]);
        }
        let starts = (0..total).step_by(size.max(1));
        starts
            .map(|start| self.narrow(dim, start, size.min(total - start)))
            .collect()
    }

    /// At most `count` pieces of equal size along `dim` (`torch.chunk`).
    #[track_caller]
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Vec<Tensor>> {
        let at = self.real_dim("chunk", dim)?;
        if count == 0 {
            return Err(Error::argument(
                "chunk",
                "the number of pieces must be positive, got 0",
            ));
        }
        self.split(self.shape()[at].div_ceil(count).max(1), dim)
    }

    pub(crate) fn real_dim(&self, op: &'static str, dim: isize) -> Result<usize> {
        if self.ndim() == 0 {
            return Err(
                Error::shape(op, "a zero-dim tensor has no dimension to take from")
                    .with_operands(|| vec![self.operand("self")]),
            );
        }
        resolve_dim(op, dim, self.ndim())
    }
}
