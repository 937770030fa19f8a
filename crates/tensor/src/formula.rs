//! `Formula`: pointwise ops composed into one kernel.
//!
//! Operators on tensors build a formula; [`eval`](Formula::eval) runs it as one kernel, and its backward as another:
//! `let y = (&a * &b + 1.0).tanh().eval()?`.

use std::collections::HashMap;
use std::sync::Arc;

use fireclay_core::{Context, DType, Device, Error, Result, Scalar, Shape};
use smallvec::{SmallVec, smallvec};

use crate::dispatch;
use crate::function::{Function, GraphNode, PointwiseOp, ReducedOp, Slot};
use crate::op::{Meta, Op};
use crate::tensor::Tensor;

/// A pointwise expression over tensors and numbers, not computed yet. Cheap to clone; a part used twice is
/// computed once.
#[derive(Clone)]
pub struct Formula(Arc<Expression>);

enum Expression {
    Tensor(Tensor),
    Number(Scalar),
    Apply(&'static dyn Function, SmallVec<[Formula; 3]>),
    /// Stands for a tensor that forward didn't save.
    Missing,
}

impl Drop for Formula {
    /// Takes the expression apart with a list: a chain of 100,000 operators would overflow the stack otherwise.
    fn drop(&mut self) {
        let mut stack: SmallVec<[Formula; 4]> = SmallVec::new();
        self.release(&mut stack);
        while let Some(mut formula) = stack.pop() {
            formula.release(&mut stack);
        }
    }
}

impl From<Tensor> for Formula {
    fn from(tensor: Tensor) -> Formula {
        Formula(Arc::new(Expression::Tensor(tensor)))
    }
}

impl From<&Tensor> for Formula {
    fn from(tensor: &Tensor) -> Formula {
        tensor.clone().into()
    }
}

impl<N: Into<Scalar>> From<N> for Formula {
    fn from(number: N) -> Formula {
        Formula::number(number.into())
    }
}

impl From<&Formula> for Formula {
    fn from(formula: &Formula) -> Formula {
        formula.clone()
    }
}

impl Formula {
    /// A plain number.
    pub fn number(number: Scalar) -> Formula {
        Formula(Arc::new(Expression::Number(number)))
    }

    /// A function of other formulas.
    pub fn apply(function: &'static dyn Function, operands: SmallVec<[Formula; 3]>) -> Formula {
        debug_assert_eq!(function.arity(), operands.len());
        Formula(Arc::new(Expression::Apply(function, operands)))
    }

    /// Moves the operands to `stack` if this is the last handle on the expression.
    fn release(&mut self, stack: &mut SmallVec<[Formula; 4]>) {
        if let Some(Expression::Apply(_, operands)) = Arc::get_mut(&mut self.0) {
            stack.extend(operands.drain(..));
        }
    }

    pub(crate) fn missing() -> Formula {
        Formula(Arc::new(Expression::Missing))
    }

    /// Computes the formula, as one kernel.
    #[track_caller]
    pub fn eval(&self) -> Result<Tensor> {
        let mut results = Formula::eval_all(std::slice::from_ref(self))?;
        Ok(results.remove(0))
    }

    /// Computes several formulas, those of equal shape as one kernel.
    #[track_caller]
    pub fn eval_all(formulas: &[Formula]) -> Result<SmallVec<[Tensor; 2]>> {
        let mut results: SmallVec<[Option<Tensor>; 2]> = smallvec![None; formulas.len()];
        let mut shapes: SmallVec<[Option<Shape>; 2]> = SmallVec::new();
        for (number, formula) in formulas.iter().enumerate() {
            match &*formula.0 {
                Expression::Tensor(tensor) => results[number] = Some(tensor.clone()),
                Expression::Number(scalar) => {
                    results[number] = Some(Tensor::full(&[], *scalar, Device::Cpu)?);
                }
                _ => {}
            }
            shapes.push(if results[number].is_none() {
                Some(formula.shape()?)
            } else {
                None
            });
        }
        while let Some(first) = results.iter().position(Option::is_none) {
            let group: SmallVec<[usize; 2]> = (first..formulas.len())
                .filter(|&number| results[number].is_none() && shapes[number] == shapes[first])
                .collect();
            let mut builder = Builder::default();
            for &number in &group {
                let node = builder.node(&formulas[number])?;
                builder.outputs.push(node);
            }
            let (op, tensors) = builder.finish()?;
            let inputs: SmallVec<[&Tensor; 4]> = tensors.iter().collect();
            let outputs = dispatch::call(op, &inputs)?;
            for (&number, output) in group.iter().zip(outputs) {
                results[number] = Some(output);
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// The sum of all elements, as one kernel (`(a * b).sum()`).
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        self.reduce(false)
    }

    /// The mean of all elements, as one kernel (`(a - b).square().mean()`).
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        self.reduce(true)
    }

    #[track_caller]
    fn reduce(&self, mean: bool) -> Result<Tensor> {
        if matches!(&*self.0, Expression::Apply(..)) {
            let mut builder = Builder::default();
            let node = builder.node(self)?;
            builder.outputs.push(node);
            let (graph, tensors) = builder.finish()?;
            let inputs: SmallVec<[&Tensor; 4]> = tensors.iter().collect();
            let op = ReducedOp { graph, mean };
            if op.fits(&inputs)? {
                return dispatch::call_one(op, &inputs);
            }
            let metas: SmallVec<[Meta<'_>; 4]> = inputs.iter().map(|input| input.meta()).collect();
            let dtype = op.graph.output(&metas)?[0].dtype;
            if dtype.is_half() {
                // In f32, rounded once: what is multiplied by a vector of f32 becomes that.
                let one = Tensor::full_of(&[1], 1.0, DType::F32, inputs[0].device())?;
                return (self * &one).reduce(mean)?.to_dtype(dtype);
            }
        }
        let value = self.eval()?;
        if mean {
            value.mean_all()
        } else {
            value.sum_all()
        }
    }

    /// The shape of the result.
    fn shape(&self) -> Result<Shape> {
        let mut tensors = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![self];
        while let Some(formula) = stack.pop() {
            if !seen.insert(Arc::as_ptr(&formula.0)) {
                continue;
            }
            match &*formula.0 {
                Expression::Tensor(tensor) => tensors.push(tensor),
                Expression::Apply(_, operands) => stack.extend(operands.iter().rev()),
                Expression::Number(_) | Expression::Missing => {}
            }
        }
        let mut shape = Shape::scalar();
        for tensor in &tensors {
            shape = shape.broadcast(tensor.shape()).ok_or_else(|| {
                Error::shape(
                    "formula",
                    format!(
                        "shapes do not broadcast, got {shape} and {}",
                        tensor.shape()
                    ),
                )
                .with_operands(|| {
                    tensors
                        .iter()
                        .map(|tensor| tensor.operand("tensor"))
                        .collect()
                })
            })?;
        }
        Ok(shape)
    }
}

/// Flattens formulas into one graph, with equal parts shared.
#[derive(Default)]
struct Builder {
    nodes: SmallVec<[GraphNode; 1]>,
    outputs: SmallVec<[usize; 1]>,
    tensors: SmallVec<[Tensor; 4]>,
    known: HashMap<*const Expression, usize>,
}

impl Builder {
    /// The number of the node that computes `formula`, which is an `Apply`. Iterative: formulas may be deep.
    fn node(&mut self, formula: &Formula) -> Result<usize> {
        let mut stack: Vec<(&Formula, bool)> = vec![(formula, false)];
        while let Some((formula, ready)) = stack.pop() {
            let key = Arc::as_ptr(&formula.0);
            let Expression::Apply(function, operands) = &*formula.0 else {
                continue;
            };
            if self.known.contains_key(&key) {
                continue;
            }
            if !ready {
                stack.push((formula, true));
                stack.extend(operands.iter().map(|operand| (operand, false)));
                continue;
            }
            let operands = operands
                .iter()
                .map(|operand| self.slot(operand))
                .collect::<Result<_>>()?;
            self.nodes.push(GraphNode {
                function: *function,
                operands,
            });
            self.known.insert(key, self.nodes.len() - 1);
        }
        self.known
            .get(&Arc::as_ptr(&formula.0))
            .copied()
            .ok_or_else(missing)
    }

    fn slot(&mut self, operand: &Formula) -> Result<Slot> {
        Ok(match &*operand.0 {
            Expression::Number(number) => Slot::Number(*number),
            Expression::Missing => return Err(missing()),
            Expression::Apply(..) => Slot::Node(self.known[&Arc::as_ptr(&operand.0)]),
            Expression::Tensor(tensor) => {
                let known = self.tensors.iter().position(|known| known.is_same(tensor));
                Slot::Input(known.unwrap_or_else(|| {
                    self.tensors.push(tensor.clone());
                    self.tensors.len() - 1
                }))
            }
        })
    }

    fn finish(self) -> Result<(PointwiseOp, SmallVec<[Tensor; 4]>)> {
        if self.tensors.is_empty() {
            return Err(Error::argument(
                "formula",
                "a formula needs at least one tensor",
            ));
        }
        Ok((PointwiseOp::fused(self.nodes, self.outputs), self.tensors))
    }
}

fn missing() -> Error {
    Error::Autograd {
        op: "formula",
        what: "a backward formula uses a tensor that the function's `saves` doesn't name".into(),
        context: Context::hint("add it to the function's row"),
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $function:path) => {
        operator!(@impl $trait, $method, $function, [Formula, Formula], [Formula, &Formula], [&Formula, Formula], [&Formula, &Formula],
            [Formula, &Tensor], [&Formula, &Tensor], [&Tensor, Formula], [&Tensor, &Formula], [&Tensor, &Tensor],
            [Formula, f64], [&Formula, f64], [f64, Formula], [f64, &Formula], [&Tensor, f64], [f64, &Tensor]);
    };
    (@impl $trait:ident, $method:ident, $function:path, $([$lhs:ty, $rhs:ty]),*) => {
        $(impl std::ops::$trait<$rhs> for $lhs {
            type Output = Formula;
            fn $method(self, rhs: $rhs) -> Formula {
                Formula::apply(&$function, smallvec![Formula::from(self), Formula::from(rhs)])
            }
        })*
    };
}

operator!(Add, add, crate::ops::binary::Add);
operator!(Sub, sub, crate::ops::binary::Sub);
operator!(Mul, mul, crate::ops::binary::Mul);
operator!(Div, div, crate::ops::binary::Div);

macro_rules! negation {
    ($($operand:ty),*) => {
        $(impl std::ops::Neg for $operand {
            type Output = Formula;
            fn neg(self) -> Formula {
                Formula::apply(&crate::ops::unary::Neg, smallvec![Formula::from(self)])
            }
        })*
    };
}

negation!(Formula, &Formula, &Tensor);
