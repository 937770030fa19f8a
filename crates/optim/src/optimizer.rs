//! `Optimizer`: what every optimizer can do.

use fireclay_tensor::{Parameter, Result, StateDict};

/// Changes parameters by their gradients (`torch.optim.Optimizer`).
pub trait Optimizer {
    /// Changes all parameters that have a gradient, once; the others stay as they are.
    ///
    /// # Errors
    /// Memory for the state could not be had; then nothing was changed.
    #[track_caller]
    fn step(&mut self) -> Result<()>;

    /// Clears the gradients of all parameters.
    fn zero_grad(&self);

    /// The parameters that it changes, group by group.
    fn parameters(&self) -> Vec<Parameter>;

    /// How many parameter groups there are.
    fn num_groups(&self) -> usize;

    /// The learning rate of a group.
    ///
    /// # Panics
    /// There is no such group.
    fn lr(&self, group: usize) -> f64;

    /// Sets the learning rate of a group, from the next step on.
    ///
    /// # Panics
    /// There is no such group.
    fn set_lr(&mut self, group: usize, lr: f64);

    /// What a schedule that cycles momentum sets in a group: its momentum or first beta. None if the optimizer has neither.
    ///
    /// # Panics
    /// There is no such group.
    fn momentum(&self, group: usize) -> Option<f64> {
        let _ = group;
        None
    }

    /// Sets what [`momentum`](Optimizer::momentum) gives, from the next step on.
    ///
    /// # Panics
    /// There is no such group.
    fn set_momentum(&mut self, group: usize, momentum: f64) {
        let _ = (group, momentum);
    }

    /// The options and counts as numbers and the state as tensors, which share their storage with the optimizer
    /// (`Optimizer.state_dict`). Parameters are known by their place, as in PyTorch: `state.0.exp_avg`.
    fn state_dict(&self) -> StateDict;

    /// Takes options and state from `state`, copied and cast to the parameters' dtypes and devices
    /// (`Optimizer.load_state_dict`).
    ///
    /// # Errors
    /// An [`Error::StateDictMismatch`](fireclay_tensor::Error::StateDictMismatch) with all that does not fit; then nothing
    /// was changed.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;
}
