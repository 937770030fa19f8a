//! `LBFGS`: a quasi-Newton method, which asks for the loss several times in a step.

mod wolfe;

use std::collections::VecDeque;

use fireclay_tensor::{Error, Parameter, Result, StateDict, StateDictReader, Tensor, no_grad};

use crate::optimizer::Optimizer;
use wolfe::{Found, Point};

/// The options of [`LBFGS`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LBFGSOptions {
    /// The length of a step along the direction, where no line search finds it.
    pub lr: f64,
    /// How many iterations there are in a step at most.
    pub max_iter: u64,
    /// How often the loss is asked for in a step at most; 5/4 of `max_iter` if it is None.
    pub max_eval: Option<u64>,
    /// A gradient whose largest entry is no larger ends the step.
    pub tolerance_grad: f64,
    /// A change of the parameters or of the loss that is smaller ends the step.
    pub tolerance_change: f64,
    /// How many changes are remembered.
    pub history_size: usize,
    /// Whether a line search that fulfils the strong Wolfe conditions chooses the length.
    pub strong_wolfe: bool,
}

impl Default for LBFGSOptions {
    fn default() -> Self {
        LBFGSOptions {
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            strong_wolfe: false,
        }
    }
}

/// The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno (`torch.optim.LBFGS`; Nocedal and Wright, chapter 7). For
/// losses without noise and few parameters: it keeps `2 * history_size` vectors of all parameters, which must be on one device and of
/// one dtype.
///
/// ```
/// use fireclay_optim::{LBFGS, LBFGSOptions, Optimizer};
/// use fireclay_tensor::{Parameter, Tensor};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let x = Parameter::new(Tensor::from_slice(&[3.0f64, -2.0], &[2], "cpu")?)?;
/// let options = LBFGSOptions { strong_wolfe: true, ..Default::default() };
/// let mut optimizer = LBFGS::new([x.clone()], options)?;
/// for _ in 0..3 {
///     optimizer.step_with(&mut || {
///         x.zero_grad();
///         let loss = x.tensor().sub(1.0)?.square()?.sum_all()?;
///         loss.backward()?;
///         Ok(loss)
///     })?;
/// }
/// assert!(x.tensor().to_vec::<f64>()?.iter().all(|x| (x - 1.0).abs() < 1e-6));
/// # Ok(())
/// # }
/// ```
pub struct LBFGS {
    options: LBFGSOptions,
    parameters: Vec<Parameter>,
    /// None before the first iteration.
    memory: Option<Memory>,
    iterations: u64,
    evaluations: u64,
}

/// What is remembered of earlier iterations.
struct Memory {
    direction: Tensor,
    length: f64,
    /// Changes of the gradient and of the parameters, and 1 over their product, the oldest first.
    changes: VecDeque<(Tensor, Tensor, f64)>,
    scale: f64,
    grad: Tensor,
    loss: f64,
}

/// Computes the loss and its gradients anew, and returns it.
type Closure<'a> = dyn FnMut() -> Result<Tensor> + 'a;

impl LBFGS {
    /// # Errors
    /// No parameters, or they differ in dtype or device; an option out of range.
    pub fn new(
        parameters: impl IntoIterator<Item = Parameter>,
        options: LBFGSOptions,
    ) -> Result<LBFGS> {
        let parameters: Vec<Parameter> = parameters.into_iter().collect();
        let Some(first) = parameters.first().map(Parameter::tensor) else {
            return Err(Error::argument(
                "LBFGS",
                "there are no parameters to change",
            ));
        };
        for parameter in &parameters {
            let tensor = parameter.tensor();
            if tensor.dtype() != first.dtype() || tensor.device() != first.device() {
                return Err(Error::argument(
                    "LBFGS",
                    format!(
                        "parameters must be of one dtype and on one device, got {} on {} and {} on {}",
                        first.dtype(),
                        first.device(),
                        tensor.dtype(),
                        tensor.device()
                    ),
                ));
            }
        }
        for (name, value) in [
            ("lr", options.lr),
            ("tolerance_grad", options.tolerance_grad),
            ("tolerance_change", options.tolerance_change),
        ] {
            if value.is_nan() || value < 0.0 {
                let what = format!("{name} must be at least 0, got {value}");
                return Err(Error::argument("LBFGS", what));
            }
        }
        if options.history_size == 0 {
            let what = "history_size must be at least 1, got 0";
            return Err(Error::argument("LBFGS", what));
        }
        Ok(LBFGS {
            options,
            parameters,
            memory: None,
            iterations: 0,
            evaluations: 0,
        })
    }

    /// The options.
    pub fn options(&self) -> &LBFGSOptions {
        &self.options
    }

    /// Makes up to `max_iter` iterations; returns the loss before the first. `closure` clears the gradients, computes the loss and
    /// its gradients, and returns the loss. Every call of it waits for the device.
    ///
    /// # Errors
    /// As of `closure`; then the parameters are where it was called last.
    pub fn step_with(&mut self, closure: &mut Closure<'_>) -> Result<Tensor> {
        let first = closure()?;
        let mut loss = first.item()?;
        let mut evaluations = 1;
        self.evaluations += 1;
        let mut grad = self.flat_grad()?;
        if largest(&grad)? <= self.options.tolerance_grad {
            return Ok(first);
        }
        let most = self.options.max_eval;
        let most = most.unwrap_or(self.options.max_iter.saturating_mul(5) / 4);
        for iteration in 1..=self.options.max_iter {
            self.iterations += 1;
            let (direction, before) = no_grad(|| self.direction(&grad, loss))?;
            let slope = dot(&grad, &direction)?;
            let mut length = match self.iterations {
                1 => (1.0 / grad.abs()?.sum_all()?.item()?).min(1.0) * self.options.lr,
                _ => self.options.lr,
            };
            if let Some(memory) = &mut self.memory {
                memory.length = length;
            }
            if slope > -self.options.tolerance_change {
                break;
            }
            let mut spent = 0;
            let mut done = false;
            if self.options.strong_wolfe {
                let start = self.flat()?;
                let at = Point {
                    length: 0.0,
                    loss,
                    grad: grad.clone(),
                    slope,
                };
                let parameters = &self.parameters;
                let found: Found = wolfe::search(
                    length,
                    at,
                    &direction,
                    self.options.tolerance_change,
                    &mut |length| {
                        let moved = no_grad(|| start.add(&direction.mul(length)?))?;
                        assign(parameters, &moved)?;
                        let loss = closure()?.item()?;
                        Ok((loss, flat_grad(parameters)?))
                    },
                )?;
                length = found.at.length;
                (loss, grad, spent) = (found.at.loss, found.at.grad, found.evaluations);
                let moved = no_grad(|| start.add(&direction.mul(length)?))?;
                assign(&self.parameters, &moved)?;
                done = largest(&grad)? <= self.options.tolerance_grad;
            } else {
                let moved = no_grad(|| self.flat()?.add(&direction.mul(length)?))?;
                assign(&self.parameters, &moved)?;
                if iteration != self.options.max_iter {
                    loss = closure()?.item()?;
                    grad = self.flat_grad()?;
                    done = largest(&grad)? <= self.options.tolerance_grad;
                    spent = 1;
                }
            }
            if let Some(memory) = &mut self.memory {
                memory.length = length;
            }
            evaluations += spent;
            self.evaluations += spent;
            let moved = largest(&direction.mul(length)?)?;
            if done
                || evaluations >= most
                || moved <= self.options.tolerance_change
                || (loss - before).abs() < self.options.tolerance_change
            {
                break;
            }
        }
        Ok(first)
    }

    /// The direction of the next iteration from the gradient `grad`, and the loss to compare with; remembers both.
    fn direction(&mut self, grad: &Tensor, loss: f64) -> Result<(Tensor, f64)> {
        let Some(memory) = &mut self.memory else {
            let direction = grad.neg()?;
            self.memory = Some(Memory {
                direction: direction.clone(),
                length: 0.0,
                changes: VecDeque::new(),
                scale: 1.0,
                grad: grad.copy()?,
                loss,
            });
            return Ok((direction, loss));
        };
        let y = grad.sub(&memory.grad)?;
        let s = memory.direction.mul(memory.length)?;
        let product = dot(&y, &s)?;
        if product > 1e-10 {
            if memory.changes.len() == self.options.history_size {
                memory.changes.pop_front();
            }
            memory.scale = product / dot(&y, &y)?;
            memory.changes.push_back((y, s, 1.0 / product));
        }
        // The two loops of Nocedal and Wright, algorithm 7.4.
        let mut direction = grad.neg()?;
        let mut shares = Vec::with_capacity(memory.changes.len());
        for (y, s, inverse) in memory.changes.iter().rev() {
            let share = dot(s, &direction)? * inverse;
            direction = direction.sub(&y.mul(share)?)?;
            shares.push(share);
        }
        direction = direction.mul(memory.scale)?;
        for ((y, s, inverse), share) in memory.changes.iter().zip(shares.into_iter().rev()) {
            let back = dot(y, &direction)? * inverse;
            direction = direction.add(&s.mul(share - back)?)?;
        }
        memory.direction = direction.clone();
        memory.grad = grad.copy()?;
        memory.loss = loss;
        Ok((direction, loss))
    }

    fn flat(&self) -> Result<Tensor> {
        no_grad(|| joined(self.parameters.iter().map(Parameter::tensor)))
    }

    fn flat_grad(&self) -> Result<Tensor> {
        flat_grad(&self.parameters)
    }
}

/// All gradients as one vector, zeros where there is none.
fn flat_grad(parameters: &[Parameter]) -> Result<Tensor> {
    no_grad(|| {
        let grads = parameters.iter().map(|parameter| match parameter.grad() {
            Some(grad) => Ok(grad),
            None => parameter.tensor().zeros_like(),
        });
        let grads: Vec<Tensor> = grads.collect::<Result<_>>()?;
        joined(grads.into_iter())
    })
}

fn joined(tensors: impl Iterator<Item = Tensor>) -> Result<Tensor> {
    let flat = tensors.map(|tensor| tensor.reshape(&[-1]));
    let flat: Vec<Tensor> = flat.collect::<Result<_>>()?;
    let flat: Vec<&Tensor> = flat.iter().collect();
    Tensor::cat(&flat, 0)
}

/// Writes the parts of `flat` into the parameters.
fn assign(parameters: &[Parameter], flat: &Tensor) -> Result<()> {
    no_grad(|| {
        let mut start = 0;
        for parameter in parameters {
            let tensor = parameter.tensor();
            let count = tensor.numel();
            let part = flat.narrow(0, start, count)?;
            let shape: Vec<isize> = tensor.shape().iter().map(|&size| size as isize).collect();
            tensor.copy_(&part.reshape(&shape)?)?;
            start += count;
        }
        Ok(())
    })
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    no_grad(|| a.dot(b)?.item())
}

fn largest(x: &Tensor) -> Result<f64> {
    match x.numel() {
        0 => Ok(0.0),
        _ => no_grad(|| x.abs()?.amax(&[], false)?.item()),
    }
}

impl Optimizer for LBFGS {
    /// Always an error: the loss is asked for several times.
    fn step(&mut self) -> Result<()> {
        Err(Error::argument(
            "LBFGS",
            "a step needs a closure that computes the loss anew",
        )
        .with_hint("call step_with"))
    }

    fn zero_grad(&self) {
        self.parameters.iter().for_each(Parameter::zero_grad);
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn num_groups(&self) -> usize {
        1
    }

    fn lr(&self, group: usize) -> f64 {
        assert_eq!(group, 0, "LBFGS has one group");
        self.options.lr
    }

    fn set_lr(&mut self, group: usize, lr: f64) {
        assert_eq!(group, 0, "LBFGS has one group");
        self.options.lr = lr;
    }

    fn state_dict(&self) -> StateDict {
        let mut numbers = vec![
            ("param_groups.0.lr".to_owned(), self.options.lr),
            ("state.0.n_iter".to_owned(), self.iterations as f64),
            ("state.0.func_evals".to_owned(), self.evaluations as f64),
        ];
        let mut tensors = Vec::new();
        if let Some(memory) = &self.memory {
            numbers.extend([
                ("state.0.t".to_owned(), memory.length),
                ("state.0.H_diag".to_owned(), memory.scale),
                ("state.0.prev_loss".to_owned(), memory.loss),
            ]);
            tensors.extend([
                ("state.0.d".to_owned(), memory.direction.clone()),
                ("state.0.prev_flat_grad".to_owned(), memory.grad.clone()),
            ]);
            for (number, (y, s, inverse)) in memory.changes.iter().enumerate() {
                tensors.push((format!("state.0.old_dirs.{number}"), y.clone()));
                tensors.push((format!("state.0.old_stps.{number}"), s.clone()));
                numbers.push((format!("state.0.ro.{number}"), *inverse));
            }
        }
        StateDict { tensors, numbers }
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new("LBFGS", state);
        let lr = reader.number("param_groups.0.lr");
        let iterations = reader.number("state.0.n_iter") as u64;
        let evaluations = reader.number("state.0.func_evals") as u64;
        let of = |name: &str| format!("state.0.{name}");
        let like = self.flat()?;
        let moved = |tensor: &Tensor| tensor.to(like.device())?.to_dtype(like.dtype())?.copy();
        let mut memory = None;
        if reader.has(&of("d")) {
            let [length, scale, loss] =
                ["t", "H_diag", "prev_loss"].map(|name| reader.number(&of(name)));
            let [direction, grad] =
                ["d", "prev_flat_grad"].map(|name| reader.tensor(&of(name), &like));
            let mut changes = VecDeque::new();
            while reader.has(&of(&format!("old_dirs.{}", changes.len()))) {
                let name = |list: &str| of(&format!("{list}.{}", changes.len()));
                let y = reader.tensor(&name("old_dirs"), &like);
                let s = reader.tensor(&name("old_stps"), &like);
                let inverse = reader.number(&name("ro"));
                let Some((y, s)) = y.zip(s) else { break };
                changes.push_back((moved(y)?, moved(s)?, inverse));
            }
            if let Some((direction, grad)) = direction.zip(grad) {
                memory = Some(Memory {
                    direction: moved(direction)?,
                    length,
                    changes,
                    scale,
                    grad: moved(grad)?,
                    loss,
                });
            }
        }
        reader.finish()?;
        self.options.lr = lr;
        (self.iterations, self.evaluations, self.memory) = (iterations, evaluations, memory);
        Ok(())
    }
}
