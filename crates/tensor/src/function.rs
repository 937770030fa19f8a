//! `Function`: a pointwise op's row, and the one `Op` that runs them all, alone or fused.
//!
//! A function says how to compute an element (once, generically), which dtypes it takes and gives, and its derivative as a
//! [`Formula`]. From it come the eager method, the fused kernels and the backward kernels.

mod device_program;
mod reduced;

use std::fmt;

use fireclay_core::pointwise::Pointwise as PointwiseFunction;
use fireclay_core::{DType, Error, Layout, Promotion, Result, Scalar, Shape};
use fireclay_cpu::convert::class_of;
use fireclay_cpu::kernel::{Class, Kernel};
use fireclay_cpu::program::{Program, Register, Sink, Source};
use smallvec::{SmallVec, smallvec};

use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, Operand};
use crate::tensor::Tensor;

pub(crate) use reduced::ReducedOp;

/// The dtypes a pointwise function takes and gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Typing {
    /// Gives the operands' common dtype (`add`).
    Promote,
    /// As `Promote`, but tensors of different dtypes are refused (`lerp`).
    Equal,
    /// As `Promote`, but a negative plain number is refused where it is the exponent of whole numbers (`pow`).
    Power,
    /// As `Promote`, but bools become i64 (`square`).
    PromoteWhole,
    /// The first operand is a bool; gives the common dtype of the others (`where`).
    Choice,
    /// As `Promote`, but refuses bool (`sub`, `neg`).
    PromoteNumber,
    /// Gives the common dtype of whole numbers and bools, refuses floats (`bitwise_and`).
    Whole,
    /// As `Whole`, but refuses bool (`bitwise_left_shift`).
    WholeNumber,
    /// As `PromoteNumber`, and a whole zero is refused as the last operand (`remainder`).
    Division,
    /// Whole numbers and bools become f32 first (`exp`, `div`).
    Float,
    /// Computes in the operands' common dtype, gives bool (`eq`).
    Bool,
}

/// What a backward formula needs.
pub type GradFormulas = SmallVec<[Option<Formula>; 3]>;

/// A pointwise op: one row of the table.
pub trait Function: fmt::Debug + Send + Sync + 'static {
    /// The op's name, as in PyTorch.
    fn name(&self) -> &'static str;
    /// How many operands it takes.
    fn arity(&self) -> usize;
    /// The compiled function.
    fn kernel(&self) -> &Kernel;
    /// The dtypes it takes and gives.
    fn typing(&self) -> Typing;
    /// Which of its tensors [`grad`](Function::grad) uses.
    fn saves(&self) -> Saves;
    /// The gradients of the operands `x`, given the result `y` and its gradient `g`; None where zero.
    fn grad(&self, x: &[Formula], y: &Formula, g: &Formula) -> GradFormulas;
    /// Whether it has a derivative. A function that gives bools has none and needs none.
    fn differentiable(&self) -> bool {
        true
    }
    /// What autocast does with its operands.
    fn autocast(&self) -> Autocast {
        Autocast::Keep
    }
}

/// Where an operand of a graph's node comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Slot {
    /// The op's input of this number.
    Input(usize),
    /// A plain number.
    Number(Scalar),
    /// The result of an earlier node.
    Node(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct GraphNode {
    pub(crate) function: &'static dyn Function,
    pub(crate) operands: SmallVec<[Slot; 3]>,
}

/// Pointwise functions over the op's inputs, run as one kernel. An eager op is a graph of one node.
#[derive(Clone, Debug)]
pub(crate) struct PointwiseOp {
    nodes: SmallVec<[GraphNode; 1]>,
    outputs: SmallVec<[usize; 1]>,
}

/// The dtype in which a node computes and the one that it gives.
#[derive(Clone, Copy)]
struct NodeType {
    compute: DType,
    result: DType,
    zero_dim: bool,
    /// Has plain numbers only among its operands: is a plain number itself, computed in full precision.
    number: bool,
}

/// An operand of an eager pointwise op: a tensor or a plain number.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A plain number.
    Number(Scalar),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Arg<'a> {
        Arg::Tensor(tensor)
    }
}

impl<N: Into<Scalar>> From<N> for Arg<'_> {
    fn from(number: N) -> Self {
        Arg::Number(number.into())
    }
}

/// Runs a pointwise function of the table on its operands, of which one at least is a tensor: `apply(&ops::binary::Pow, &[2.0.into(),
/// (&x).into()])` is 2 to the power of each element.
///
/// # Errors
/// If the number of operands isn't the function's, if no operand is a tensor, and whatever the function refuses.
#[track_caller]
pub fn apply(function: &'static dyn Function, args: &[Arg<'_>]) -> Result<Tensor> {
    if args.len() != function.arity() {
        let what = format!("expected {} operands, got {}", function.arity(), args.len());
        return Err(Error::argument(function.name(), what));
    }
    eager(function, args)
}

fn division_by_zero(name: &'static str) -> Error {
    Error::argument(
        name,
        "whole numbers can't be divided by 0, got a divisor of 0",
    )
    .with_hint("cast them first: to_dtype(DType::F32), whose quotient by 0 is infinite")
}

/// Refuses a division of whole numbers by a tensor with a zero in it, before anything is written. On a device the host waits for this.
#[track_caller]
fn check_division(function: &'static dyn Function, args: &[Arg<'_>]) -> Result<()> {
    let is_whole = |arg: &Arg<'_>| match arg {
        Arg::Tensor(tensor) => !tensor.dtype().is_floating_point(),
        Arg::Number(number) => !matches!(number, Scalar::F64(_)),
    };
    if function.typing() != Typing::Division || !args.iter().all(is_whole) {
        return Ok(());
    }
    let Some(Arg::Tensor(divisor)) = args.last() else {
        return Ok(());
    };
    let has_zero = crate::no_grad(|| divisor.eq(0i64)?.any(&[], false)?.item())?;
    if has_zero != 0.0 {
        return Err(
            division_by_zero(function.name()).with_operands(|| vec![divisor.operand("divisor")])
        );
    }
    Ok(())
}

/// Runs one function on its operands.
#[track_caller]
pub(crate) fn eager(function: &'static dyn Function, args: &[Arg<'_>]) -> Result<Tensor> {
    check_division(function, args)?;
    let (op, inputs) = PointwiseOp::of(function, args);
    if inputs.is_empty() {
        return Err(Error::argument(
            function.name(),
            "at least one operand must be a tensor",
        ));
    }
    dispatch::call_one(op, &inputs)
}

/// Runs one function and writes the result into `target`.
#[track_caller]
pub(crate) fn eager_into(
    function: &'static dyn Function,
    args: &[Arg<'_>],
    target: &Tensor,
) -> Result<()> {
    check_division(function, args)?;
    let (op, inputs) = PointwiseOp::of(function, args);
    dispatch::call_into(op, &inputs, &[target])
}

impl PointwiseOp {
    fn of<'a>(
        function: &'static dyn Function,
        args: &[Arg<'a>],
    ) -> (PointwiseOp, SmallVec<[&'a Tensor; 4]>) {
        let mut inputs: SmallVec<[&Tensor; 4]> = SmallVec::new();
        let mut operands = SmallVec::new();
        for arg in args {
            operands.push(match *arg {
                Arg::Number(number) => Slot::Number(number),
                Arg::Tensor(tensor) => {
                    inputs.push(tensor);
                    Slot::Input(inputs.len() - 1)
                }
            });
        }
        let op = PointwiseOp {
            nodes: smallvec![GraphNode { function, operands }],
            outputs: smallvec![0],
        };
        (op, inputs)
    }

    pub(crate) fn fused(
        nodes: SmallVec<[GraphNode; 1]>,
        outputs: SmallVec<[usize; 1]>,
    ) -> PointwiseOp {
        PointwiseOp { nodes, outputs }
    }

    fn types(&self, inputs: &[Meta<'_>]) -> Result<SmallVec<[NodeType; 2]>> {
        let mut types: SmallVec<[NodeType; 2]> = SmallVec::new();
        if let ([node], [first, rest @ ..]) = (self.nodes.as_slice(), inputs)
            && node.function.typing() == Typing::Promote
            && matches!(first.dtype, DType::F32 | DType::F64)
            && rest.iter().all(|input| input.dtype == first.dtype)
        {
            // The common case: floats of one dtype, numbers don't change it.
            types.push(NodeType {
                compute: first.dtype,
                result: first.dtype,
                zero_dim: inputs.iter().all(|input| input.ndim() == 0),
                number: false,
            });
            return Ok(types);
        }
        for node in &self.nodes {
            let (function, name) = (node.function, node.function.name());
            let mut promotion = Promotion::new();
            let (mut zero_dim, mut is_number, mut first) = (true, true, None);
            let typing = function.typing();
            for (number, operand) in node.operands.iter().enumerate() {
                let (dtype, ndim) = match *operand {
                    Slot::Number(value) => {
                        promotion.number(value);
                        continue;
                    }
                    Slot::Node(node) if types[node].number => {
                        promotion.number(number_of(types[node].result));
                        continue;
                    }
                    Slot::Input(input) => (inputs[input].dtype, inputs[input].ndim()),
                    Slot::Node(node) => (types[node].result, usize::from(!types[node].zero_dim)),
                };
                if !dtype.is_computable() {
                    return Err(Error::dtype(
                        name,
                        format!("{dtype} is stored only, no op computes with it"),
                    )
                    .with_hint("cast it first: to_dtype(..)"));
                }
                if typing == Typing::Choice && number == 0 {
                    if dtype != DType::Bool {
                        let what = format!("the condition must be bool, got {dtype}");
                        return Err(Error::dtype(name, what).with_hint(
                            "compare first, as in x.ne(0.0), or cast it: to_dtype(DType::Bool)",
                        ));
                    }
                    is_number = false;
                    zero_dim &= ndim == 0;
                    continue;
                }
                if typing == Typing::Equal && first.is_some_and(|first| first != dtype) {
                    let what = format!(
                        "expected one dtype, got {} and {dtype}",
                        first.unwrap_or(dtype)
                    );
                    return Err(
                        Error::dtype(name, what).with_hint("cast them to one dtype with to_dtype")
                    );
                }
                first = Some(dtype);
                (is_number, zero_dim) = (false, zero_dim & (ndim == 0));
                promotion.tensor(dtype, ndim);
            }
            let promoted = promotion.result().unwrap_or(DType::F32);
            let compute = match typing {
                _ if is_number && promoted.is_floating_point() => DType::F64,
                Typing::Float if !promoted.is_floating_point() => DType::F32,
                Typing::PromoteWhole if promoted == DType::Bool => DType::I64,
                _ => promoted,
            };
            if typing == Typing::Power
                && !promoted.is_floating_point()
                && let Some(&Slot::Number(exponent)) = node.operands.last()
                && exponent.to_f64() < 0.0
            {
                return Err(Error::argument(
                    name,
                    format!("whole numbers have no power of {exponent}"),
                )
                .with_hint("cast them first: to_dtype(DType::F32)"));
            }
            if matches!(
                typing,
                Typing::PromoteNumber | Typing::WholeNumber | Typing::Division
            ) && promoted == DType::Bool
            {
                return Err(Error::dtype(name, "bool is not taken")
                    .with_hint("use logical_not, ne or logical_xor, or cast to a number type"));
            }
            if typing == Typing::Division
                && !promoted.is_floating_point()
                && let Some(&Slot::Number(divisor)) = node.operands.last()
                && divisor.to_i64() == 0
            {
                return Err(division_by_zero(name));
            }
            if matches!(typing, Typing::Whole | Typing::WholeNumber) && promoted.is_floating_point()
            {
                return Err(Error::dtype(
                    name,
                    format!("{promoted} is not taken, only whole numbers are"),
                )
                .with_hint("cast it first: to_dtype(DType::I64)"));
            }
            if class_of(compute) == Class::I64 && !function.kernel().whole() {
                return Err(Error::dtype(
                    name,
                    format!("{compute} is not taken, only floating dtypes are"),
                )
                .with_hint("cast it first: to_dtype(DType::F32)"));
            }
            types.push(NodeType {
                compute,
                result: if typing == Typing::Bool {
                    DType::Bool
                } else {
                    compute
                },
                zero_dim,
                number: is_number,
            });
        }
        Ok(types)
    }

    fn name_of(&self) -> &'static str {
        match self.nodes.as_slice() {
            [node] => node.function.name(),
            _ => "formula",
        }
    }

    /// Flattens the graph for these dtypes.
    fn program(&self, inputs: &[Meta<'_>], outputs: &[DType]) -> Result<Program> {
        let types = self.types(inputs)?;
        let mut program = Program::new();
        let loaded: SmallVec<[Register; 4]> = inputs
            .iter()
            .map(|input| program.input(input.dtype))
            .collect();
        let mut results: SmallVec<[Register; 4]> = SmallVec::new();
        let mut constants: SmallVec<[(Class, Scalar, Register); 4]> = SmallVec::new();
        let mut converted: SmallVec<[(Register, Class, Register); 4]> = SmallVec::new();
        for (node, types) in self.nodes.iter().zip(&types) {
            let class = class_of(types.compute);
            let mut operands: SmallVec<[Register; 4]> = SmallVec::new();
            for operand in &node.operands {
                let register = match *operand {
                    Slot::Input(input) => loaded[input],
                    Slot::Node(node) => results[node],
                    Slot::Number(number) => {
                        let known = constants
                            .iter()
                            .find(|(known, value, _)| *known == class && value.is_same(number));
                        operands.push(known.map(|known| known.2).unwrap_or_else(|| {
                            let register = program.constant(class, number);
                            constants.push((class, number, register));
                            register
                        }));
                        continue;
                    }
                };
                if program.class(register) == class {
                    operands.push(register);
                    continue;
                }
                let known = converted
                    .iter()
                    .find(|known| known.0 == register && known.1 == class);
                operands.push(known.map(|known| known.2).unwrap_or_else(|| {
                    let output = program.convert(register, class);
                    converted.push((register, class, output));
                    output
                }));
            }
            results.push(program.apply(node.function.kernel(), class, &operands)[0]);
        }
        for (&node, &dtype) in self.outputs.iter().zip(outputs) {
            program.output(results[node], dtype);
        }
        Ok(program)
    }

    /// The gradients of the inputs, given those of the outputs. Where the result itself was `kept`, only what the function's
    /// `saves` names is there; else all inputs are, and values are computed again.
    pub(crate) fn input_grads(
        &self,
        context: &Backward<'_>,
        grads: &[Option<Formula>],
        kept: bool,
    ) -> Result<Grads> {
        let saves = if kept { self.saves() } else { Saves::INPUTS };
        let inputs: SmallVec<[Formula; 4]> = (0..context.inputs())
            .map(|index| {
                if saves.has_input(index) {
                    context.input(index).map(Formula::from)
                } else {
                    Ok(Formula::missing())
                }
            })
            .collect::<Result<_>>()?;
        let resolve = |slot: &Slot, values: &[Formula]| match *slot {
            Slot::Input(input) => inputs[input].clone(),
            Slot::Number(number) => Formula::number(number),
            Slot::Node(node) => values[node].clone(),
        };
        // The value of each node, as a formula of the inputs: computed again inside of the backward kernel.
        let mut values: SmallVec<[Formula; 4]> = SmallVec::new();
        for node in &self.nodes {
            let value = if kept {
                if saves.has_output(0) {
                    context.output(0)?.into()
                } else {
                    Formula::missing()
                }
            } else {
                let operands = node
                    .operands
                    .iter()
                    .map(|slot| resolve(slot, &values))
                    .collect();
                Formula::apply(node.function, operands)
            };
            values.push(value);
        }
        let mut node_grads: SmallVec<[Option<Formula>; 4]> = smallvec![None; self.nodes.len()];
        for (grad, &node) in grads.iter().zip(&self.outputs) {
            if let Some(grad) = grad {
                add_grad(&mut node_grads[node], grad.clone());
            }
        }
        let mut input_grads: SmallVec<[Option<Formula>; 4]> = smallvec![None; context.inputs()];
        for (number, node) in self.nodes.iter().enumerate().rev() {
            let Some(grad) = node_grads[number].take() else {
                continue;
            };
            if node.function.typing() == Typing::Bool {
                continue;
            }
            let wanted = |slot: &Slot| match *slot {
                Slot::Input(input) => context.needs(input),
                Slot::Node(_) => true,
                Slot::Number(_) => false,
            };
            if !node.operands.iter().any(wanted) {
                continue;
            }
            if !node.function.differentiable() {
                return Err(Error::NotDifferentiable {
                    op: node.function.name(),
                    location: context.location(),
                });
            }
            let operands: SmallVec<[Formula; 4]> = node
                .operands
                .iter()
                .map(|slot| resolve(slot, &values))
                .collect();
            let grads = node.function.grad(&operands, &values[number], &grad);
            for (slot, grad) in node.operands.iter().zip(grads) {
                match (*slot, grad) {
                    (Slot::Input(input), Some(grad)) if context.needs(input) => {
                        add_grad(&mut input_grads[input], grad);
                    }
                    (Slot::Node(node), Some(grad)) => add_grad(&mut node_grads[node], grad),
                    _ => {}
                }
            }
        }
        let wanted: SmallVec<[usize; 4]> = (0..context.inputs())
            .filter(|&input| input_grads[input].is_some())
            .collect();
        let formulas: SmallVec<[Formula; 4]> = wanted
            .iter()
            .filter_map(|&input| input_grads[input].take())
            .collect();
        let full = full_shape(context);
        let mut grads: Grads = smallvec![None; context.inputs()];
        for (&input, grad) in wanted.iter().zip(Formula::eval_all(&formulas)?) {
            // Where a reduction follows, the gradient may still be one number for all elements.
            grads[input] = Some(grad.expand_to(&full)?.sum_to(context.input_shape(input))?);
        }
        Ok(grads)
    }

    /// One function over equal contiguous operands: the kernel alone, for small tensors.
    fn run_small(&self, call: &mut CpuCall<'_>) -> Option<()> {
        const SMALL: usize = 1 << 13;
        let [node] = self.nodes.as_slice() else {
            return None;
        };
        let inputs = node.operands.len();
        if call.inputs() != inputs || self.outputs.len() != 1 {
            return None;
        }
        let dtype = call.dtype(0);
        let shape = call.output_shape(0);
        let direct =
            matches!(dtype, DType::F32 | DType::F64 | DType::I64) && call.output_dtype(0) == dtype;
        let numel: usize = shape.iter().product();
        let alike = |index: usize| {
            let layout = call.layout(index);
            call.dtype(index) == dtype && layout.shape()[..] == *shape && layout.is_contiguous()
        };
        let in_order = node
            .operands
            .iter()
            .enumerate()
            .all(|(number, slot)| *slot == Slot::Input(number));
        if !direct || numel > SMALL || !in_order || !(0..inputs).all(alike) {
            return None;
        }
        let mut pointers: SmallVec<[*const u8; 4]> = SmallVec::new();
        for index in 0..inputs {
            pointers.push(call.raw_input(index).ptr().cast_const());
        }
        let output = call.raw_output(0);
        if !output.layout.is_contiguous() {
            return None;
        }
        let kernel = node.function.kernel();
        // SAFETY: all operands are contiguous, of `numel` elements of the class's own type; `ptr` checked the
        // bounds; the output is an input's very memory or overlaps none (the door's duty).
        unsafe { kernel.run(class_of(dtype), &pointers, &[output.ptr()], numel) };
        Some(())
    }
}

/// Runs one pointwise function of `N` inputs and `M` outputs over several sets of tensors, in one parallel loop, and writes the
/// results over the first `M` tensors of each set: an optimizer's step over all its parameters.
///
/// All tensors of a set have one shape; corresponding ones of all sets have one dtype. No tensor may appear twice where
/// it is written. Nothing is recorded: call it under [`no_grad`](crate::no_grad) for tensors that require grad.
#[track_caller]
pub fn update<const N: usize, const M: usize>(
    name: &'static str,
    function: impl PointwiseFunction<N, M>,
    sets: &[[&Tensor; N]],
) -> Result<()> {
    let kernel = Kernel::new(function);
    let Some(first) = sets.first() else {
        return Ok(());
    };
    let mut program = Program::new();
    let compute = first.iter().fold(DType::F32, |widest, tensor| {
        fireclay_core::promote_types(widest, tensor.dtype()).unwrap_or(widest)
    });
    let class = class_of(compute);
    let registers: SmallVec<[Register; 8]> = first
        .iter()
        .map(|tensor| {
            let register = program.input(tensor.dtype());
            program.convert(register, class)
        })
        .collect();
    let results = program.apply(&kernel, class, &registers);
    for (&result, tensor) in results.iter().zip(first) {
        program.output(result, tensor.dtype());
    }
    dispatch::update(name, &program, M, sets)
}

/// A plain number of a dtype's kind: it takes part in promotion by its kind only.
fn number_of(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(false),
        dtype if dtype.is_floating_point() => Scalar::F64(0.0),
        _ => Scalar::I64(0),
    }
}

fn strides_over(layout: &Layout, shape: &Shape) -> fireclay_core::Dims {
    let expanded = layout.expand(shape);
    expanded.map_or_else(fireclay_core::Dims::new, |layout| layout.strides().into())
}

impl Op for PointwiseOp {
    fn name(&self) -> &'static str {
        self.name_of()
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        if inputs[1..]
            .iter()
            .all(|input| input.shape() == inputs[0].shape())
        {
            let types = self.types(inputs)?;
            let mut metas = OutputMetas::new();
            for &node in &self.outputs {
                metas.push(OutputMeta {
                    layout: inputs[0].layout.preserved(),
                    dtype: types[node].result,
                });
            }
            return Ok(metas);
        }
        let mut shape = inputs[0].shape().clone();
        for input in &inputs[1..] {
            shape = shape.broadcast(input.shape()).ok_or_else(|| {
                let shapes: Vec<String> = inputs
                    .iter()
                    .map(|input| input.shape().to_string())
                    .collect();
                Error::shape(
                    self.name_of(),
                    format!("shapes do not broadcast, got {}", shapes.join(" and ")),
                )
                .with_hint("sizes, counted from the last, must be equal or 1")
            })?;
        }
        let layout = inputs
            .iter()
            .find(|input| *input.shape() == shape)
            .map_or_else(
                || Layout::contiguous(shape),
                |input| input.layout.preserved(),
            );
        let types = self.types(inputs)?;
        Ok(self
            .outputs
            .iter()
            .map(|&node| OutputMeta {
                layout: layout.clone(),
                dtype: types[node].result,
            })
            .collect())
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn overwrites_inputs(&self, _: crate::op::sealed::Internal) -> bool {
        true
    }

    fn takes_host_numbers(&self, _: crate::op::sealed::Internal) -> bool {
        true
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (inputs, outputs) = (call.metas(), call.output_dtypes());
        let (kernel, constants) = self.device_program(&inputs, &outputs)?;
        call.pointwise(&kernel, &constants)
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        if self.run_small(&mut call).is_some() {
            return Ok(());
        }
        let inputs: SmallVec<[Operand<'_>; 4]> = (0..call.inputs())
            .map(|index| call.raw_input(index))
            .collect();
        let outputs: SmallVec<[Operand<'_>; 2]> = (0..self.outputs.len())
            .map(|index| call.raw_output(index))
            .collect();
        let metas: SmallVec<[Meta<'_>; 4]> = inputs.iter().map(Operand::meta).collect();
        let dtypes: SmallVec<[DType; 2]> = outputs.iter().map(|output| output.dtype).collect();
        let program = self.program(&metas, &dtypes)?;
        let shape = outputs[0].layout.shape();
        let sources: SmallVec<[Source; 4]> =
            inputs.iter().map(|input| source(input, shape)).collect();
        let sinks: SmallVec<[Sink; 2]> = outputs
            .iter()
            .map(|output| Sink {
                ptr: output.ptr(),
                dtype: output.dtype,
                strides: output.layout.strides().into(),
            })
            .collect();
        // SAFETY: `ptr` checked each layout against its storage; inputs broadcast to the output's shape; the door keeps
        // outputs from overlapping anything but the very same operand.
        unsafe { program.evaluate(shape, &sources, &sinks) };
        Ok(())
    }

    fn saves(&self) -> Saves {
        match self.nodes.as_slice() {
            [node] => {
                // Operands are counted with numbers, inputs without.
                let saves = node.function.saves();
                let mut inputs: SmallVec<[u32; 4]> = SmallVec::new();
                for (number, operand) in node.operands.iter().enumerate() {
                    if let (Slot::Input(input), true) = (operand, saves.has_input(number)) {
                        inputs.push(*input as u32);
                    }
                }
                let outputs: &[u32] = if saves.has_output(0) { &[0] } else { &[] };
                Saves::inputs(&inputs).and_outputs(outputs)
            }
            _ => Saves::INPUTS,
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grads: SmallVec<[Option<Formula>; 2]> = (0..self.outputs.len())
            .map(|number| context.grad(number).map(Formula::from))
            .collect();
        self.input_grads(context, &grads, self.nodes.len() == 1)
    }

    fn autocast(&self) -> Autocast {
        match self.nodes.as_slice() {
            [node] => node.function.autocast(),
            _ => Autocast::Widest,
        }
    }
}

/// The shape that all inputs broadcast to.
fn full_shape(context: &Backward<'_>) -> Shape {
    let shapes = (0..context.inputs()).map(|input| context.input_shape(input));
    shapes.fold(Shape::scalar(), |full, shape| {
        full.broadcast(shape).unwrap_or(full)
    })
}

fn source(input: &Operand<'_>, shape: &Shape) -> Source {
    Source {
        ptr: input.ptr().cast_const(),
        dtype: input.dtype,
        strides: strides_over(input.layout, shape),
    }
}

fn add_grad(slot: &mut Option<Formula>, grad: Formula) {
    *slot = Some(match slot.take() {
        None => grad,
        Some(sum) => sum + grad,
    });
}
