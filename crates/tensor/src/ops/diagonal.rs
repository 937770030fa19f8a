//! Diagonals and triangles: `diagonal`, `diag`, `diag_embed`, `tril`, `triu`, `fill_diagonal_`, and windows: `unfold`.

use fireclay_core::{DType, Error, Result, Shape, resolve_dim};
use smallvec::smallvec;

use super::index::match_number;
use super::shape::distinct_dims;
use super::view::View;
use crate::autograd::Backward;
use crate::dispatch;
use crate::function::Arg;
use crate::op::{Grads, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Where diagonal `offset` of a matrix begins, and its length.
fn diagonal_of([rows, columns]: [usize; 2], offset: isize) -> ([usize; 2], usize) {
    let away = offset.unsigned_abs();
    let (start, length) = if offset >= 0 {
        ([0, away], rows.min(columns.saturating_sub(away)))
    } else {
        ([away, 0], columns.min(rows.saturating_sub(away)))
    };
    match length {
        0 => ([0, 0], 0),
        _ => (start, length),
    }
}

/// Matrices, the last two dimensions, with zeros above a diagonal, or below it; on the CPU. Input: the matrices.
#[derive(Clone, Copy, Debug)]
struct Triangle {
    /// How far right of the main diagonal the last kept one lies, or the first if `upper`.
    diagonal: isize,
    upper: bool,
}

impl Op for Triangle {
    fn name(&self) -> &'static str {
        if self.upper { "triu" } else { "tril" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        let sizes = [shape[shape.ndim() - 2], shape[shape.ndim() - 1]];
        // Of an upper triangle the diagonal below is the last that is cut.
        let last = match self.upper {
            true => self.diagonal.saturating_sub(1),
            false => self.diagonal,
        };
        match_number!(self.name(), call.dtype(0), T => {
            fireclay_cpu::index::triangle::<T>(call.input(0), sizes, last, self.upper, call.output(0));
        });
        Ok(())
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        Ok(smallvec![Some(match self.upper {
            true => grad.triu(self.diagonal)?,
            false => grad.tril(self.diagonal)?,
        })])
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let triangle = |upper| Triangle { diagonal: 0, upper };
    vec![Box::new(triangle(false)), Box::new(triangle(true))]
}

impl Tensor {
    /// The elements of two dimensions whose indices differ by `offset`, as the last dimension, in place of these two
    /// (`torch.diagonal`). A view. A positive offset lies above the main diagonal.
    #[track_caller]
    pub fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        let dims = distinct_dims("diagonal", &[dim1, dim2], self.ndim())
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
        let dims = [dims[0], dims[1]];
        let (start, length) = diagonal_of(dims.map(|dim| self.shape()[dim]), offset);
        let view = View::Diagonal {
            dims,
            start,
            length,
        };
        dispatch::call_one(view, &[self])
    }

    /// Zeros with the last dimension of this tensor as a diagonal of two new dimensions, at `dim1` and `dim2` of the result
    /// (`torch.diag_embed`). The new dimensions are as small as `offset` allows.
    #[track_caller]
    pub fn diag_embed(&self, offset: isize, dim1: isize, dim2: isize) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if !self.dtype().is_computable() {
            let what = format!("{} is stored only, it has no zero", self.dtype());
            return Err(context(Error::dtype("diag_embed", what)));
        }
        let last = self.real_dim("diag_embed", -1)?;
        let dims = distinct_dims("diag_embed", &[dim1, dim2], self.ndim() + 1).map_err(context)?;
        let length = self.shape()[last];
        let Some(size) = length.checked_add(offset.unsigned_abs()) else {
            let what = format!("a diagonal {offset} away is further than memory reaches");
            return Err(context(Error::argument("diag_embed", what)));
        };
        let mut shape = self.shape().clone();
        shape.sizes_mut().pop();
        for dim in [dims[0].min(dims[1]), dims[0].max(dims[1])] {
            shape.sizes_mut().insert(dim, size);
        }
        let (start, length) = diagonal_of([size; 2], offset);
        let view = View::Diagonal {
            dims: [dims[0], dims[1]],
            start,
            length,
        };
        view.embed(&shape, self)
    }

    /// Of a vector the matrix that has it as a diagonal, of a matrix a copy of its diagonal (`torch.diag`).
    #[track_caller]
    pub fn diag(&self, diagonal: isize) -> Result<Tensor> {
        match self.ndim() {
            1 => self.diag_embed(diagonal, 0, 1),
            2 => self.diagonal(diagonal, 0, 1)?.copy(),
            _ => Err(Error::shape(
                "diag",
                format!("expected a vector or a matrix, got {}", self.shape()),
            )
            .with_hint("use diagonal or diag_embed, which take more dimensions")
            .with_operands(|| vec![self.operand("self")])),
        }
    }

    #[track_caller]
    fn triangle(&self, op: Triangle) -> Result<Tensor> {
        let [.., rows, columns] = self.shape()[..] else {
            let what = format!("expected at least 2 dimensions, got {}", self.shape());
            return Err(Error::shape(op.name(), what).with_operands(|| vec![self.operand("self")]));
        };
        if self.device().is_cpu() || !self.dtype().is_computable() {
            return dispatch::call_one(op, &[self]);
        }
        // Beyond the matrix all diagonals are alike.
        let behind = (op.diagonal as i64).clamp(-(rows as i64), columns as i64 + 1);
        let rows = Tensor::arange(behind, behind + rows as i64, 1i64, self.device())?;
        let columns = Tensor::arange(0i64, columns as i64, 1i64, self.device())?;
        let rows = rows.unsqueeze(1)?;
        match op.upper {
            true => columns.ge(&rows)?.where_(self, false),
            false => columns.le(&rows)?.where_(self, false),
        }
    }

    /// The elements of the last two dimensions below diagonal `diagonal` and on it, 0 above (`torch.tril`).
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Result<Tensor> {
        let upper = false;
        self.triangle(Triangle { diagonal, upper })
    }

    /// The elements of the last two dimensions above diagonal `diagonal` and on it, 0 below (`torch.triu`).
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Result<Tensor> {
        let upper = true;
        self.triangle(Triangle { diagonal, upper })
    }

    /// Keeps what [`tril`](Tensor::tril) keeps, in place (`Tensor.tril_`).
    #[track_caller]
    pub fn tril_(&self, diagonal: isize) -> Result<Tensor> {
        self.rewritten("tril_", |x| x.tril(diagonal))
    }

    /// Keeps what [`triu`](Tensor::triu) keeps, in place (`Tensor.triu_`).
    #[track_caller]
    pub fn triu_(&self, diagonal: isize) -> Result<Tensor> {
        self.rewritten("triu_", |x| x.triu(diagonal))
    }

    /// Writes `value` on the main diagonal (`Tensor.fill_diagonal_`): where all indices are equal. Of more than two dimensions all
    /// sizes must be equal. With `wrap` the diagonal of a high matrix begins anew below a row that is left out.
    #[track_caller]
    pub fn fill_diagonal_<'a>(&self, value: impl Into<Arg<'a>>, wrap: bool) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        let shape = self.shape();
        if shape.ndim() < 2 {
            let what = format!("expected at least 2 dimensions, got {shape}");
            return Err(context(Error::shape("fill_diagonal_", what)));
        }
        if shape.ndim() > 2 && shape.iter().any(|&size| size != shape[0]) {
            let what = format!("expected equal sizes in more than 2 dimensions, got {shape}");
            return Err(context(Error::shape("fill_diagonal_", what)));
        }
        let step: usize = shape.contiguous_strides().iter().sum();
        let end = match wrap {
            true => self.numel(),
            false => shape[0].min(shape[shape.ndim() - 1]) * step,
        };
        let mask = Tensor::full_of(&[self.numel()], false, DType::Bool, self.device())?;
        let end = end.min(self.numel()) as isize;
        mask.slice(0, 0, end, step)?.fill_(true)?;
        self.masked_fill_(&mask.reshape_to(shape)?, value)
    }

    /// Windows of `size` elements of `dim`, `step` apart: `dim` counts them, a new last dimension holds their elements
    /// (`Tensor.unfold`). A view: windows that overlap share memory, and their gradients add up.
    #[track_caller]
    pub fn unfold(&self, dim: isize, size: usize, step: usize) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        let dim = resolve_dim("unfold", dim, self.ndim())?;
        if step == 0 {
            let what = "the windows must be at least one element apart, got a step of 0";
            return Err(context(Error::argument("unfold", what)));
        }
        let held = self.shape().get(dim).copied().unwrap_or(1);
        if size > held {
            let what =
                format!("windows of {size} are larger than dimension {dim}, whose size is {held}");
            return Err(context(Error::shape("unfold", what)));
        }
        if self.ndim() == 0 {
            return self.reshape_to(&Shape::new(&[1]))?.narrow(0, 0, size);
        }
        dispatch::call_one(View::Unfold { dim, size, step }, &[self])
    }
}
