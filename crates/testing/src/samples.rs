//! A sample of every op: a call with inputs at which it is smooth. The generated tests are made of them.
//!
//! Inputs are f64, but for indices (i64) and conditions (bool); ranges avoid kinks and poles.

mod arranged;
mod attention;
mod images;
mod large;
mod layers;
mod linear;
mod losses;
mod named;
mod places;
mod pointwise;
mod recurrent;
mod reduced;
mod weighted;

use std::rc::Rc;

use fireclay_tensor::{DType, Result, Tensor};

use crate::draw::Draw;

/// Makes a sample's call on operands.
pub type SampleCall = Rc<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A call of an op.
#[derive(Clone)]
pub struct Sample {
    /// The op's name in Fireclay's table, or PyTorch's for an op composed of others.
    pub op: &'static str,
    /// The operands.
    pub inputs: Vec<Tensor>,
    /// Makes the call on such operands, of this or another layout and dtype.
    pub call: SampleCall,
    /// Whether it has a derivative.
    pub differentiable: bool,
    /// Whether it is too large for derivatives to be taken number by number.
    pub large: bool,
}

impl Sample {
    /// The inputs, laid out as `form` does it, the floating ones in a dtype and as leaves that want gradients where the op has some.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub fn formed(&self, dtype: DType, form: impl Fn(&Tensor) -> Tensor) -> Vec<Tensor> {
        let each = self.inputs.iter().map(|x| {
            let floating = x.dtype() == DType::F64;
            let x = if floating {
                x.to_dtype(dtype).expect("a cast")
            } else {
                x.clone()
            };
            let x = form(&x).detach();
            if floating && self.differentiable {
                x.requires_grad_(true).expect("a leaf of a floating dtype");
            }
            x
        });
        each.collect()
    }

    /// The result of the call, and the gradients of the inputs that want some.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let result = (self.call)(inputs)?;
        let mut all = vec![result.detach()];
        if result.requires_grad() {
            result.sum_all()?.backward()?;
            all.extend(inputs.iter().filter_map(Tensor::grad));
        }
        Ok(all)
    }
}

/// Samples of every op, the same at each call.
pub fn samples() -> Vec<Sample> {
    let mut list = List {
        draw: Draw::new(2026),
        samples: Vec::new(),
    };
    pointwise::add(&mut list);
    reduced::add(&mut list);
    arranged::add(&mut list);
    weighted::add(&mut list);
    attention::add(&mut list);
    recurrent::add(&mut list);
    large::add(&mut list);
    images::add(&mut list);
    // Last: what is drawn before stays as it is.
    weighted::add_fused(&mut list);
    places::add(&mut list);
    linear::add(&mut list);
    layers::add(&mut list);
    losses::add(&mut list);
    named::add(&mut list);
    list.samples
}

/// The samples so far, and the numbers for more.
struct List {
    draw: Draw,
    samples: Vec<Sample>,
}

impl List {
    /// Adds a differentiable op.
    fn add(
        &mut self,
        op: &'static str,
        inputs: Vec<Tensor>,
        call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) {
        self.samples.push(Sample {
            op,
            inputs,
            call: Rc::new(call),
            differentiable: true,
            large: false,
        });
    }

    /// Adds a differentiable op with many numbers: compared between devices, not with differences.
    fn add_large(
        &mut self,
        op: &'static str,
        inputs: Vec<Tensor>,
        call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) {
        self.add(op, inputs, call);
        if let Some(sample) = self.samples.last_mut() {
            sample.large = true;
        }
    }

    /// Adds an op without a derivative.
    fn add_stepped(
        &mut self,
        op: &'static str,
        inputs: Vec<Tensor>,
        call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) {
        self.add(op, inputs, call);
        if let Some(sample) = self.samples.last_mut() {
            sample.differentiable = false;
        }
    }

    /// As many numbers from -2 to 2 as it takes, equal ones among them.
    fn many(&mut self, shape: &[usize]) -> Tensor {
        let count = shape.iter().product();
        let numbers: Vec<f64> = (0..count).map(|_| self.draw.number(-2.0, 2.0)).collect();
        Tensor::from_slice(&numbers, shape, fireclay_tensor::Device::Cpu)
            .expect("as many numbers as the shape has")
    }

    /// Numbers from -2 to 2.
    fn plain(&mut self, shape: &[usize]) -> Tensor {
        self.draw.tensor(shape, -2.0, 2.0, &[0.0])
    }
}
