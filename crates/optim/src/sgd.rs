//! Stochastic gradient descent.

use fireclay_core::arith::Arith;
use fireclay_core::pointwise::Pointwise;
use fireclay_tensor::{Error, Result};

use crate::fused::{Batch, Fused, Rule, check_option};

/// Stochastic gradient descent with momentum (`torch.optim.SGD`, whose documentation gives the algorithm).
pub type SGD = Fused<SGDOptions>;

/// The options of [`SGD`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SGDOptions {
    /// The learning rate.
    pub lr: f64,
    /// The share of the last step's direction that is kept.
    pub momentum: f64,
    /// The share of the gradient that does not enter the kept direction.
    pub dampening: f64,
    /// Pull towards zero, added to the gradient.
    pub weight_decay: f64,
    /// Looks one step of momentum ahead.
    pub nesterov: bool,
    /// Goes up instead of down.
    pub maximize: bool,
}

impl Default for SGDOptions {
    fn default() -> Self {
        SGDOptions {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

impl Rule for SGDOptions {
    const NAME: &'static str = "SGD";

    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
        ] {
            check_option(Self::NAME, name, value, value >= 0.0, "at least 0")?;
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::argument(
                Self::NAME,
                "nesterov needs a momentum and no dampening",
            ));
        }
        Ok(())
    }

    fn state_names(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["momentum_buffer"]
        }
    }

    fn options(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("dampening", self.dampening),
            ("weight_decay", self.weight_decay),
            ("nesterov", f64::from(u8::from(self.nesterov))),
            ("maximize", f64::from(u8::from(self.maximize))),
        ]
    }

    fn with_options(&self, value: &mut dyn FnMut(&'static str) -> f64) -> Self {
        SGDOptions {
            lr: value("lr"),
            momentum: value("momentum"),
            dampening: value("dampening"),
            weight_decay: value("weight_decay"),
            nesterov: value("nesterov") != 0.0,
            maximize: value("maximize") != 0.0,
        }
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.momentum)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        if self.momentum == 0.0 {
            return batch.update(Plain(*self));
        }
        // The direction begins as the whole gradient: dampening counts from the second step on.
        let dampening = if step == 1 { 0.0 } else { self.dampening };
        batch.update(Momentum(SGDOptions { dampening, ..*self }))
    }
}

impl SGDOptions {
    fn decayed<A: Arith>(&self, parameter: A, grad: A) -> A {
        let grad = if self.maximize { -grad } else { grad };
        if self.weight_decay == 0.0 {
            grad
        } else {
            parameter.mul_add(A::of(self.weight_decay), grad)
        }
    }
}

/// Without momentum. Inputs: parameter, gradient.
#[derive(Clone, Copy)]
struct Plain(SGDOptions);

impl Pointwise<2, 1> for Plain {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, grad]: [A; 2]) -> [A; 1] {
        let direction = self.0.decayed(parameter, grad);
        [direction.mul_add(A::of(-self.0.lr), parameter)]
    }
}

/// With momentum. Inputs: parameter, momentum buffer, gradient.
#[derive(Clone, Copy)]
struct Momentum(SGDOptions);

impl Pointwise<3, 2> for Momentum {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, buffer, grad]: [A; 3]) -> [A; 2] {
        let options = &self.0;
        let grad = options.decayed(parameter, grad);
        let momentum = A::of(options.momentum);
        let buffer = grad.mul_add(A::of(1.0 - options.dampening), buffer * momentum);
        let direction = if options.nesterov {
            buffer.mul_add(momentum, grad)
        } else {
            buffer
        };
        [direction.mul_add(A::of(-options.lr), parameter), buffer]
    }
}
