//! `split_steps`: many views of one tensor with one node, so that backward joins their gradients once.

use std::panic::Location;
use std::sync::Arc;

use fireclay_core::{Error, Layout, Result, as_one_call};
use smallvec::smallvec;

use super::node::Backward;
use super::record::{Recording, check_views, record};
use super::{mode::no_grad, node::TensorFacts};
use crate::op::{Grads, Meta, Op, OutputMeta, OutputMetas};
use crate::tensor::Tensor;

/// Recorded for the pieces of `sizes` rows; it has no kernel, since they are views.
#[derive(Debug)]
struct SplitSteps {
    sizes: Vec<usize>,
    input: TensorFacts,
}

impl Op for SplitSteps {
    fn name(&self) -> &'static str {
        "split_steps"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let rows = |&size: &usize| -> Result<OutputMeta> {
            Ok(OutputMeta {
                layout: Layout::contiguous(inputs[0].shape().clone()).slice(0, 0, size, 1),
                dtype: inputs[0].dtype,
            })
        };
        self.sizes.iter().map(rows).collect()
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut zeros = Vec::new();
        let mut shape = self.input.shape.to_vec();
        for (number, &size) in self.sizes.iter().enumerate() {
            if context.grad(number).is_none() {
                shape[0] = size;
                zeros.push(Tensor::full_of(
                    &shape,
                    0.0,
                    self.input.dtype,
                    self.input.device,
                )?);
            }
        }
        let mut zeros = zeros.iter();
        let numbers = 0..self.sizes.len();
        let grads: Vec<&Tensor> = numbers
            .filter_map(|number| context.grad(number).or_else(|| zeros.next()))
            .collect();
        Ok(smallvec![Some(Tensor::cat(&grads, 0)?)])
    }
}

impl Tensor {
    /// The rows in pieces of these sizes, which must cover all of them: views, as of [`narrow`](Tensor::narrow), whose gradients are
    /// joined by one `cat`. For the time steps of a recurrent network; with hundreds of steps `narrow` would make as many gradients of
    /// the whole tensor.
    ///
    /// # Errors
    /// If the sizes don't add up to the number of rows, or there is no size.
    #[track_caller]
    pub fn split_steps(&self, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let rows = self.shape().first().copied();
        let total = sizes
            .iter()
            .try_fold(0usize, |sum, &size| sum.checked_add(size));
        if rows.is_none() || total != rows || sizes.is_empty() {
            let what = format!(
                "pieces of {sizes:?} rows don't make up a tensor of shape {}",
                self.shape()
            );
            return Err(Error::shape("split_steps", what)
                .with_hint("the sizes must add up to the number of rows")
                .with_operands(|| vec![self.operand("self")]));
        }
        check_views("split_steps", &[self])?;
        let location = Location::caller();
        as_one_call(|| {
            let pieces = no_grad(|| {
                let mut start = 0;
                let narrow = |&size: &usize| {
                    start += size;
                    self.narrow(0, start - size, size)
                };
                sizes.iter().map(narrow).collect::<Result<Vec<_>>>()
            })?;
            if Recording::wanted(&[self]) {
                let op = SplitSteps {
                    sizes: sizes.to_vec(),
                    input: TensorFacts::of(self),
                };
                record(Arc::new(op), &[self], &pieces, location)?;
            }
            Ok(pieces)
        })
    }
}
