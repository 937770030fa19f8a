//! Autograd: records ops and computes gradients.
//!
//! Define-by-run: while grad mode is on, each op on a tensor that tracks gradients becomes a node, which keeps the op,
//! what its backward needs, and edges to the nodes of its inputs.

mod checkpoint;
mod engine;
mod mode;
mod node;
mod record;
mod steps;
mod surface;

pub use checkpoint::checkpoint;
pub use engine::{Backpropagation, grad, grad_with};
pub use mode::{
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode, no_grad, set_grad_enabled,
};
pub(crate) use node::AutogradMeta;
pub use node::{Backward, HookHandle};
pub(crate) use record::{
    Recording, check_in_place, check_views, record, record_in_place, save_overwritten,
};
