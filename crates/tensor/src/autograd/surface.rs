//! What a tensor offers of autograd.

use std::sync::Arc;

use fireclay_core::{Context, Error, Origin, Result};
use fireclay_cuda::Purpose;

use super::engine::{self, Backpropagation};
use super::node::HookHandle;
use crate::tensor::Tensor;

impl Tensor {
    /// Whether gradients flow to or through this tensor (`Tensor.requires_grad`).
    pub fn requires_grad(&self) -> bool {
        self.0.autograd.tracks()
    }

    /// Turns gradients for this leaf on or off and returns it (`Tensor.requires_grad_`).
    ///
    /// It must be floating, and a leaf: the result of a recorded op can't stop requiring grad.
    pub fn requires_grad_(&self, requires_grad: bool) -> Result<Tensor> {
        let operand = || vec![self.operand("self")];
        if requires_grad && !self.dtype().is_floating_point() {
            return Err(Error::dtype(
                "requires_grad_",
                format!("only floating tensors have gradients, got {}", self.dtype()),
            )
            .with_hint("cast it to f32")
            .with_operands(operand));
        }
        if self.0.autograd.has_node() {
            if requires_grad {
                return Ok(self.clone());
            }
            return Err(Error::Autograd {
                op: "requires_grad_",
                what: "only leaves can stop requiring grad, this tensor is the result of an op"
                    .into(),
                context: Context::hint("use detach()"),
            }
            .with_operands(operand));
        }
        if requires_grad && self.0.inference {
            return Err(Error::Autograd {
                op: "requires_grad_",
                what: "a tensor made in inference_mode can't require grad".into(),
                context: Context::hint("make it outside, or use a copy() of it"),
            }
            .with_operands(operand));
        }
        self.0.autograd.set_requires_grad(requires_grad);
        Ok(self.clone())
    }

    /// Whether it is not the result of a recorded op (`Tensor.is_leaf`).
    pub fn is_leaf(&self) -> bool {
        !self.0.autograd.has_node()
    }

    /// The name of the op that made it, where recorded (`Tensor.grad_fn`).
    pub fn grad_fn(&self) -> Option<&'static str> {
        self.0.autograd.node().map(|(node, _)| node.op.name())
    }

    /// The accumulated gradient (`Tensor.grad`).
    pub fn grad(&self) -> Option<Tensor> {
        self.0.autograd.leaf_if_any()?.grad().clone()
    }

    /// Sets or clears the gradient. It must have the tensor's shape, dtype and device.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(grad) = &grad
            && (grad.shape() != self.shape()
                || grad.dtype() != self.dtype()
                || grad.device() != self.device())
        {
            return Err(Error::argument(
                "set_grad",
                "a gradient has the shape, dtype and device of its tensor",
            )
            .with_operands(|| vec![self.operand("tensor"), grad.operand("grad")]));
        }
        if let Some(grad) = &grad {
            grad.count_as(Purpose::Gradients);
        }
        if grad.is_some() || self.0.autograd.leaf_if_any().is_some() {
            *self.0.autograd.leaf().grad() = grad;
        }
        Ok(())
    }

    /// Clears the gradient (`zero_grad` with PyTorch's default, set to none).
    pub fn zero_grad(&self) {
        if let Some(leaf) = self.0.autograd.leaf_if_any() {
            *leaf.grad() = None;
        }
    }

    /// The same elements without history (`Tensor.detach`). Shares the storage.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        let detached = self.detached(Origin::here());
        debug_assert!(!detached.requires_grad());
        detached
    }

    /// Computes the gradients of all leaves that this one-element tensor depends on (`Tensor.backward`).
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        engine::backward(self, None, Backpropagation::default())
    }

    /// [`backward`](Tensor::backward) from a given gradient (None for 1) and with options.
    #[track_caller]
    pub fn backward_with(&self, grad: Option<&Tensor>, options: Backpropagation) -> Result<()> {
        engine::backward(self, grad, options)
    }

    /// Keeps the gradient of a tensor that is not a leaf in its `grad` (`Tensor.retain_grad`).
    pub fn retain_grad(&self) -> Result<()> {
        if let Some((node, output)) = self.0.autograd.node() {
            let leaf = self.0.autograd.leaf();
            leaf.set_retains_grad();
            node.watch(output, leaf);
        } else if !self.requires_grad() {
            return Err(Error::Autograd {
                op: "retain_grad",
                what: "the tensor doesn't require grad".into(),
                context: Box::default(),
            }
            .with_operands(|| vec![self.operand("self")]));
        }
        Ok(())
    }

    /// Calls `hook` with this tensor's gradient in each backward; what it returns replaces the gradient
    /// (`Tensor.register_hook`).
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        if !self.requires_grad() {
            return Err(Error::Autograd {
                op: "register_hook",
                what: "the tensor doesn't require grad".into(),
                context: Box::default(),
            }
            .with_operands(|| vec![self.operand("self")]));
        }
        if let Some((node, output)) = self.0.autograd.node() {
            node.watch(output, self.0.autograd.leaf());
        }
        Ok(self.0.autograd.leaf().add_hook(Arc::new(hook)))
    }
}
