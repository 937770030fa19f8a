//! Recurrent cells: `lstm_cell`, `gru_cell`, `rnn_tanh_cell`, `rnn_relu_cell`.
//!
//! The gates are two matrix products, of the input and of the hidden state, with their biases; all that follows is one kernel over
//! parts of them, and so is its gradient: formulas that read and write a quarter or a third of each row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fireclay_core::arith::Arith;
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_core::{DType, Error, Layout, Result, Scalar, Shape};
use fireclay_cpu::convert::class_of;
use fireclay_cpu::kernel::Kernel;
use fireclay_cpu::program::{Program, Sink, Source};
use smallvec::{SmallVec, smallvec};

use super::float::same_float;
use crate::autograd::{Backward, is_grad_enabled};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, Operand};
use crate::tensor::Tensor;

/// The weights of a recurrent cell, by PyTorch's names. The gates of a cell lie one behind the other: an LSTM's are input, forget,
/// cell and output gate, a GRU's reset, update and new gate; a plain cell has one.
#[derive(Clone, Copy, Debug)]
pub struct CellWeights<'a> {
    /// Of the input, `[gates * hidden_size, input_size]`.
    pub weight_ih: &'a Tensor,
    /// Of the hidden state, `[gates * hidden_size, hidden_size]`.
    pub weight_hh: &'a Tensor,
    /// Of the input, `[gates * hidden_size]`.
    pub bias_ih: Option<&'a Tensor>,
    /// Of the hidden state, `[gates * hidden_size]`.
    pub bias_hh: Option<&'a Tensor>,
}

/// What a cell makes of its gates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rule {
    Lstm,
    Gru,
}

impl Rule {
    fn gates(self) -> usize {
        match self {
            Rule::Lstm => 4,
            Rule::Gru => 3,
        }
    }

    /// How many tensors `[batch, hidden]` come out: h, and c where there is one.
    fn states(self) -> usize {
        match self {
            Rule::Lstm => 2,
            Rule::Gru => 1,
        }
    }

    fn forward(self, dtype: DType, keeps: bool) -> CellProgram {
        match self {
            Rule::Lstm => {
                let inputs = [
                    parts(0, [0, 1, 2, 3]),
                    parts(1, [0, 1, 2, 3]),
                    parts(2, [0]),
                ];
                let outputs = [parts(0, [0]), parts(1, [0]), kept(keeps, 2, [0, 1, 2, 3])];
                CellProgram::new(LstmForward, dtype, inputs, outputs)
            }
            Rule::Gru => {
                let inputs = [parts(0, [0, 1, 2]), parts(1, [0, 1, 2]), parts(2, [0])];
                let outputs = [parts(0, [0]), kept(keeps, 1, [0, 1, 2, 3])];
                CellProgram::new(GruForward, dtype, inputs, outputs)
            }
        }
    }

    /// Of a gradient that takes what forward kept, the old state, the new c where there is one, and those `given` of the gradients
    /// of forward's outputs.
    fn backward(self, dtype: DType, given: [bool; 3]) -> CellProgram {
        let mut next = 1 + self.states();
        let mut grad = |number: usize| {
            given[number].then(|| {
                next += 1;
                next - 1
            })
        };
        let of_states: SmallVec<[Option<usize>; 2]> = (0..self.states()).map(&mut grad).collect();
        let of_kept = grad(self.states());
        let mut inputs: SmallVec<[Parts; 8]> = smallvec![parts(0, [0, 1, 2, 3])];
        inputs.extend((1..=self.states()).map(|index| parts(index, [0])));
        inputs.extend(of_states.iter().map(|index| optional(*index, [0])));
        inputs.push(optional(of_kept, [0, 1, 2, 3]));
        match self {
            Rule::Lstm => {
                let outputs = [parts(0, [0, 1, 2, 3]), parts(1, [0])];
                CellProgram::new(LstmBackward, dtype, inputs, outputs)
            }
            Rule::Gru => {
                let outputs = [parts(0, [0, 1, 2]), parts(1, [0, 1, 2]), parts(2, [0])];
                CellProgram::new(GruBackward, dtype, inputs, outputs)
            }
        }
    }
}

#[inline(always)]
fn sigmoid<A: Arith>(x: A) -> A {
    A::int(1) / (A::int(1) + math::exp(-x))
}

/// What reaches a gate's sum of a gradient of the gate, which is its sigmoid.
#[inline(always)]
fn through_sigmoid<A: Arith>(grad: A, gate: A) -> A {
    grad * (A::int(1) - gate) * gate
}

/// As [`through_sigmoid`], of `tanh`.
#[inline(always)]
fn through_tanh<A: Arith>(grad: A, gate: A) -> A {
    grad * (A::int(1) - gate * gate)
}

/// Inputs: the four gates of the input, those of the hidden state, c; outputs: h, c, the four gates.
struct LstmForward;

impl Pointwise<9, 6> for LstmForward {
    #[inline(always)]
    fn eval<A: Arith>(&self, x: [A; 9]) -> [A; 6] {
        let input = sigmoid(x[0] + x[4]);
        let forget = sigmoid(x[1] + x[5]);
        let cell = math::tanh(x[2] + x[6]);
        let output = sigmoid(x[3] + x[7]);
        let c = forget * x[8] + input * cell;
        [output * math::tanh(c), c, input, forget, cell, output]
    }
}

/// Inputs: the four gates, old and new c, gradients of h, of c and of the gates; outputs: gradients of the gates' sums and of
/// the old c.
struct LstmBackward;

impl Pointwise<12, 5> for LstmBackward {
    #[inline(always)]
    fn eval<A: Arith>(&self, x: [A; 12]) -> [A; 5] {
        let [input, forget, cell, output, old, new, of_h, of_c, ..] = x;
        let bounded = math::tanh(new);
        let of_c = through_tanh(of_h * output, bounded) + of_c;
        [
            through_sigmoid(of_c * cell + x[8], input),
            through_sigmoid(of_c * old + x[9], forget),
            through_tanh(of_c * input + x[10], cell),
            through_sigmoid(of_h * bounded + x[11], output),
            of_c * forget,
        ]
    }
}

/// Inputs: the three gates of the input, those of the hidden state, h; outputs: h, the three gates, the new gate's part of the
/// hidden state.
struct GruForward;

impl Pointwise<7, 5> for GruForward {
    #[inline(always)]
    fn eval<A: Arith>(&self, x: [A; 7]) -> [A; 5] {
        let reset = sigmoid(x[0] + x[3]);
        let update = sigmoid(x[1] + x[4]);
        let new = math::tanh(x[2] + reset * x[5]);
        [(x[6] - new) * update + new, reset, update, new, x[5]]
    }
}

/// Inputs: what forward kept, the old h, gradients of h and of what was kept; outputs: gradients of the gates of the input, of
/// those of the hidden state, and of the old h.
struct GruBackward;

impl Pointwise<10, 7> for GruBackward {
    #[inline(always)]
    fn eval<A: Arith>(&self, x: [A; 10]) -> [A; 7] {
        let [reset, update, new, hidden, old, of_h, ..] = x;
        let of_new = through_tanh(of_h * (A::int(1) - update) + x[8], new);
        let of_update = through_sigmoid(of_h * (old - new) + x[7], update);
        let of_reset = through_sigmoid(of_new * hidden + x[6], reset);
        let of_hidden = of_new * reset + x[9];
        [
            of_reset,
            of_update,
            of_new,
            of_reset,
            of_update,
            of_hidden,
            of_h * update,
        ]
    }
}

/// Which operand, and which of the parts of its rows, each as wide as the hidden state.
type Part = (usize, usize);
/// Parts of one operand; none where the operand isn't there.
type Parts = SmallVec<[Option<Part>; 4]>;

fn parts<const N: usize>(operand: usize, numbers: [usize; N]) -> Parts {
    optional(Some(operand), numbers)
}

fn kept<const N: usize>(keeps: bool, operand: usize, numbers: [usize; N]) -> Parts {
    optional(keeps.then_some(operand), numbers)
}

fn optional<const N: usize>(operand: Option<usize>, numbers: [usize; N]) -> Parts {
    let part = |number| operand.map(|operand| (operand, number));
    numbers.into_iter().map(part).collect()
}

/// A function over parts of an op's operands, of one dtype.
struct CellProgram {
    program: Program,
    inputs: Vec<Part>,
    outputs: Vec<Part>,
    /// The program as a kernel of devices, once it is wanted.
    kernel: OnceLock<Arc<fireclay_cuda::pointwise::Pointwise>>,
}

impl CellProgram {
    /// Inputs that aren't there are zeros; outputs that aren't are dropped.
    fn new<const N: usize, const M: usize>(
        function: impl Pointwise<N, M>,
        dtype: DType,
        inputs: impl IntoIterator<Item = Parts>,
        outputs: impl IntoIterator<Item = Parts>,
    ) -> CellProgram {
        let class = class_of(dtype);
        let mut program = Program::new();
        let inputs: Vec<Option<Part>> = inputs.into_iter().flatten().collect();
        let mut zero = None;
        let registers = inputs.iter().map(|part| match part {
            Some(_) => program.input(dtype),
            None => *zero.get_or_insert_with(|| program.constant(class, Scalar::F64(0.0))),
        });
        let registers: SmallVec<[_; 12]> = registers.collect();
        let results = program.apply(&Kernel::new(function), class, &registers);
        let outputs: Vec<Option<Part>> = outputs.into_iter().flatten().collect();
        assert_eq!(outputs.len(), results.len());
        for (part, result) in outputs.iter().zip(results) {
            if part.is_some() {
                program.output(result, dtype);
            }
        }
        CellProgram {
            program,
            inputs: inputs.into_iter().flatten().collect(),
            outputs: outputs.into_iter().flatten().collect(),
            kernel: OnceLock::new(),
        }
    }

    /// On operands whose rows have parts of `hidden` numbers.
    fn cpu(&self, call: &mut CpuCall<'_>, outputs: usize, shape: [usize; 2]) {
        let inputs: SmallVec<[Operand<'_>; 8]> = (0..call.inputs())
            .map(|index| call.raw_input(index))
            .collect();
        let outputs: SmallVec<[Operand<'_>; 3]> =
            (0..outputs).map(|index| call.raw_output(index)).collect();
        let sources = self.inputs.iter().map(|&(operand, part)| {
            let layout = part_of(inputs[operand].layout, part, shape[1]);
            let operand = Operand {
                layout: &layout,
                ..inputs[operand]
            };
            Source {
                ptr: operand.ptr().cast_const(),
                dtype: operand.dtype,
                strides: layout.strides().into(),
            }
        });
        let sinks = self.outputs.iter().map(|&(operand, part)| {
            let layout = part_of(outputs[operand].layout, part, shape[1]);
            let operand = Operand {
                layout: &layout,
                ..outputs[operand]
            };
            Sink {
                ptr: operand.ptr(),
                dtype: operand.dtype,
                strides: layout.strides().into(),
            }
        });
        let (sources, sinks): (Vec<Source>, Vec<Sink>) = (sources.collect(), sinks.collect());
        // SAFETY: `ptr` checked each part against its storage; all have this shape; parts of an output don't overlap, and the
        // door keeps outputs from overlapping anything else.
        unsafe { self.program.evaluate(&shape, &sources, &sinks) };
    }

    fn cuda(&self, call: &CudaCall<'_>, hidden: usize) -> Result<()> {
        let kernel = self
            .kernel
            .get_or_init(|| fireclay_cuda::pointwise::Pointwise::of(&self.program.description()));
        let place =
            |&(operand, part): &Part, layout: &Layout| (operand, part_of(layout, part, hidden));
        let inputs: Vec<(usize, Layout)> = (self.inputs.iter())
            .map(|part| place(part, call.layout(part.0)))
            .collect();
        let outputs: Vec<(usize, Layout)> = (self.outputs.iter())
            .map(|part| place(part, call.output_layout(part.0)))
            .collect();
        let constants: SmallVec<[Scalar; 1]> = self.program.constants().collect();
        call.pointwise_parts(kernel, &constants, &inputs, &outputs)
    }
}

/// A part of rows, `hidden` numbers wide.
fn part_of(layout: &Layout, part: usize, hidden: usize) -> Layout {
    layout.slice(1, part * hidden, hidden, 1)
}

/// The program for a key, kept for the process.
fn program(key: (Rule, DType, Direction)) -> Arc<CellProgram> {
    type Known = HashMap<(Rule, DType, Direction), Arc<CellProgram>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let made = || {
        let (rule, dtype, direction) = key;
        Arc::new(match direction {
            Direction::Forward { keeps } => rule.forward(dtype, keeps),
            Direction::Backward { given } => rule.backward(dtype, given),
        })
    };
    let known = known.get_or_insert_default();
    Arc::clone(known.entry(key).or_insert_with(made))
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Direction {
    /// Keeps what backward needs, or nothing.
    Forward { keeps: bool },
    /// Given some of the gradients of forward's outputs.
    Backward { given: [bool; 3] },
}

/// Inputs: gates of the input and of the hidden state, `[batch, gates * hidden]`, and the state `[batch, hidden]` (c of an LSTM, h
/// of a GRU). Outputs: h, c of an LSTM, and where `keeps` what backward needs, `[batch, 4 * hidden]`: the gates, and of a GRU the
/// hidden state's part of the new gate.
#[derive(Clone, Copy, Debug)]
struct FusedCell {
    rule: Rule,
    keeps: bool,
}

impl Op for FusedCell {
    fn name(&self) -> &'static str {
        match self.rule {
            Rule::Lstm => "lstm_cell",
            Rule::Gru => "gru_cell",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let (gates, state) = (inputs[0].shape(), inputs[2].shape());
        let count = self.rule.gates();
        let expected = match state[..] {
            [batch, hidden] => Some([batch, count.saturating_mul(hidden)]),
            _ => None,
        };
        if inputs[1].shape() != gates || expected.is_none_or(|expected| gates[..] != expected) {
            let what = format!(
                "expected gates [batch, {count} * hidden] of input and hidden state and a state [batch, hidden], got {gates}, {} \
                 and {state}",
                inputs[1].shape()
            );
            return Err(Error::shape(self.name(), what));
        }
        let like_state = || OutputMeta::contiguous(state.clone(), dtype);
        let mut outputs: OutputMetas = (0..self.rule.states()).map(|_| like_state()).collect();
        if self.keeps {
            let kept = Shape::new(&[state[0], 4 * state[1]]);
            outputs.push(OutputMeta::contiguous(kept, dtype));
        }
        Ok(outputs)
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (shape, outputs) = (
            call.layout(2).shape(),
            self.rule.states() + usize::from(self.keeps),
        );
        let shape = [shape[0], shape[1]];
        self.program(call.dtype(0)).cpu(&mut call, outputs, shape);
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let hidden = call.layout(2).shape()[1];
        self.program(call.dtype(0)).cuda(&call, hidden)
    }

    fn saves(&self) -> Saves {
        match self.rule {
            Rule::Lstm => Saves::inputs(&[2]).and_outputs(&[1, 2]),
            Rule::Gru => Saves::inputs(&[2]).and_outputs(&[1]),
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let states = self.rule.states();
        let (kept, old) = (context.output(states)?, context.input(2)?);
        let new = match self.rule {
            Rule::Lstm => Some(context.output(1)?),
            Rule::Gru => None,
        };
        let grads: SmallVec<[Option<&Tensor>; 3]> =
            (0..=states).map(|output| context.grad(output)).collect();
        if is_grad_enabled() {
            return match new {
                Some(new) => lstm_composed(&kept, &old, &new, &grads),
                None => gru_composed(&kept, &old, &grads),
            };
        }
        let mut given = [false; 3];
        for (given, grad) in given.iter_mut().zip(&grads) {
            *given = grad.is_some();
        }
        let mut inputs: SmallVec<[&Tensor; 6]> = smallvec![&kept, &old];
        inputs.extend(&new);
        inputs.extend(grads.into_iter().flatten());
        let op = FusedCellGrad {
            rule: self.rule,
            given,
        };
        let mut outputs = dispatch::call(op, &inputs)?.into_iter();
        let of_input = outputs.next();
        let of_hidden = match self.rule {
            Rule::Lstm => of_input.clone(),
            Rule::Gru => outputs.next(),
        };
        Ok(smallvec![of_input, of_hidden, outputs.next()])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl FusedCell {
    fn program(self, dtype: DType) -> Arc<CellProgram> {
        let keeps = self.keeps;
        program((self.rule, dtype, Direction::Forward { keeps }))
    }
}

/// The fused gradient; inputs: what forward kept, the old state, the new c of an LSTM, then those given of the gradients of
/// forward's outputs. Outputs: the gradient of the gates (of a GRU two: of the input's and the hidden state's) and of the old
/// state. Not differentiable itself: `FusedCell::backward` composes the gradient of tensor ops where that is wanted.
#[derive(Clone, Copy, Debug)]
struct FusedCellGrad {
    rule: Rule,
    given: [bool; 3],
}

impl Op for FusedCellGrad {
    fn name(&self) -> &'static str {
        match self.rule {
            Rule::Lstm => "lstm_cell_grad",
            Rule::Gru => "gru_cell_grad",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (dtype, state) = (same_float(self.name(), inputs)?, inputs[1].shape());
        let gates = Shape::new(&[state[0], self.rule.gates() * state[1]]);
        let mut outputs: OutputMetas = smallvec![OutputMeta::contiguous(gates.clone(), dtype)];
        if self.rule == Rule::Gru {
            outputs.push(OutputMeta::contiguous(gates, dtype));
        }
        outputs.push(OutputMeta::contiguous(state.clone(), dtype));
        Ok(outputs)
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(1).shape();
        let shape = [shape[0], shape[1]];
        let outputs = match self.rule {
            Rule::Lstm => 2,
            Rule::Gru => 3,
        };
        self.program(call.dtype(0)).cpu(&mut call, outputs, shape);
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let hidden = call.layout(1).shape()[1];
        self.program(call.dtype(0)).cuda(&call, hidden)
    }
}

impl FusedCellGrad {
    fn program(self, dtype: DType) -> Arc<CellProgram> {
        let given = self.given;
        program((self.rule, dtype, Direction::Backward { given }))
    }
}

/// The parts of rows as formulas.
#[track_caller]
fn split<const N: usize>(tensor: &Tensor, hidden: usize) -> Result<[Formula; N]> {
    let mut formulas: SmallVec<[Formula; N]> = SmallVec::new();
    for part in 0..N {
        formulas.push(tensor.narrow(1, part * hidden, hidden)?.into());
    }
    Ok(formulas
        .into_inner()
        .unwrap_or_else(|_| unreachable!("as many as there are parts")))
}

/// As [`split`], zeros where there is no tensor.
#[track_caller]
fn split_or_zeros<const N: usize>(tensor: Option<&Tensor>, hidden: usize) -> Result<[Formula; N]> {
    match tensor {
        Some(tensor) => split(tensor, hidden),
        None => Ok([(); N].map(|()| Formula::from(0.0))),
    }
}

fn sigmoid_grad(grad: Formula, gate: &Formula) -> Formula {
    grad * (1.0 - gate) * gate
}

fn tanh_grad(grad: Formula, gate: &Formula) -> Formula {
    grad * (1.0 - gate * gate)
}

/// The gradients of an LSTM's cell in tensor ops, which can be differentiated again: the gates have their history.
#[track_caller]
fn lstm_composed(
    kept: &Tensor,
    old: &Tensor,
    new: &Tensor,
    grads: &[Option<&Tensor>],
) -> Result<Grads> {
    let hidden = old.shape()[1];
    let [input, forget, cell, output] = split(kept, hidden)?;
    let [[of_h], [of_c]] = [
        split_or_zeros(grads[0], hidden)?,
        split_or_zeros(grads[1], hidden)?,
    ];
    let [also_input, also_forget, also_cell, also_output] = split_or_zeros(grads[2], hidden)?;
    let bounded = Formula::from(new).tanh();
    let of_c = tanh_grad(&of_h * &output, &bounded) + of_c;
    let results = Formula::eval_all(&[
        sigmoid_grad(&of_c * &cell + also_input, &input),
        sigmoid_grad(&of_c * old + also_forget, &forget),
        tanh_grad(&of_c * &input + also_cell, &cell),
        sigmoid_grad(of_h * bounded + also_output, &output),
        of_c * forget,
    ])?;
    let gates: Vec<&Tensor> = results[..4].iter().collect();
    let gates = Tensor::cat(&gates, 1)?;
    Ok(smallvec![
        Some(gates.clone()),
        Some(gates),
        Some(results[4].clone())
    ])
}

/// As [`lstm_composed`], of a GRU's cell.
#[track_caller]
fn gru_composed(kept: &Tensor, old: &Tensor, grads: &[Option<&Tensor>]) -> Result<Grads> {
    let width = old.shape()[1];
    let [reset, update, new, hidden] = split(kept, width)?;
    let [of_h] = split_or_zeros(grads[0], width)?;
    let [also_reset, also_update, also_new, also_hidden] = split_or_zeros(grads[1], width)?;
    let of_new = tanh_grad(&of_h * (1.0 - &update) + also_new, &new);
    let results = Formula::eval_all(&[
        sigmoid_grad(&of_new * hidden + also_reset, &reset),
        sigmoid_grad(&of_h * (old - &new) + also_update, &update),
        of_new.clone(),
        of_new * reset + also_hidden,
        of_h * update,
    ])?;
    let [of_reset, of_update, of_new, of_hidden, of_old] = &results[..] else {
        unreachable!("as many as there are formulas");
    };
    Ok(smallvec![
        Some(Tensor::cat(&[of_reset, of_update, of_new], 1)?),
        Some(Tensor::cat(&[of_reset, of_update, of_hidden], 1)?),
        Some(of_old.clone())
    ])
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let mut ops: Vec<Box<dyn Op>> = Vec::new();
    for rule in [Rule::Lstm, Rule::Gru] {
        let given = [true; 3];
        ops.push(Box::new(FusedCell { rule, keeps: true }));
        ops.push(Box::new(FusedCellGrad { rule, given }));
    }
    ops
}

/// Sees to it that input, states and weights fit together; the operands as rows of a batch, and whether they were single rows.
#[track_caller]
fn batched(
    op: &'static str,
    gates: usize,
    input: &Tensor,
    states: &[(&'static str, &Tensor)],
    weights: &CellWeights<'_>,
) -> Result<(Tensor, SmallVec<[Tensor; 2]>, bool)> {
    let check = || -> Result<()> {
        let shapes = [weights.weight_ih.shape(), weights.weight_hh.shape()];
        let ([rows_ih, width], [rows_hh, hidden]) = (&shapes[0][..], &shapes[1][..]) else {
            let what = format!(
                "weight_ih and weight_hh must have two dimensions, got {} and {}",
                shapes[0], shapes[1]
            );
            return Err(Error::shape(op, what));
        };
        let rows = gates.saturating_mul(*hidden);
        if *rows_ih != rows || *rows_hh != rows {
            let what = format!(
                "expected weight_ih [{rows}, input_size] and weight_hh [{rows}, {hidden}] for a hidden size of {hidden}, got {} \
                 and {}",
                shapes[0], shapes[1]
            );
            return Err(Error::shape(op, what));
        }
        for (name, bias) in [("bias_ih", weights.bias_ih), ("bias_hh", weights.bias_hh)] {
            if let Some(bias) = bias.filter(|bias| bias.shape()[..] != [rows]) {
                let what = format!("expected {name} [{rows}], got {}", bias.shape());
                return Err(Error::shape(op, what));
            }
        }
        let shape = input.shape();
        if !matches!(shape.ndim(), 1 | 2) {
            let what = format!("expected an input [batch, {width}] or [{width}], got {shape}");
            return Err(Error::shape(op, what));
        }
        if shape[shape.ndim() - 1] != *width {
            let got = shape[shape.ndim() - 1];
            let what = format!("the input's rows have {got} numbers, weight_ih takes {width}");
            return Err(Error::shape(op, what));
        }
        let mut expected: fireclay_core::Dims = shape[..].into();
        expected[shape.ndim() - 1] = *hidden;
        for (name, state) in states {
            if state.shape()[..] != expected[..] {
                let what = format!(
                    "expected {name} {} for an input {shape} and a hidden size of {hidden}, got {}",
                    Shape::new(&expected),
                    state.shape()
                );
                return Err(Error::shape(op, what));
            }
        }
        let all = states.iter().map(|(_, state)| *state);
        let all = all.chain([input, weights.weight_ih, weights.weight_hh]);
        let all = all.chain(weights.bias_ih).chain(weights.bias_hh);
        let metas: SmallVec<[Meta<'_>; 8]> = all.map(Tensor::meta).collect();
        same_float(op, &metas)?;
        Ok(())
    };
    check().map_err(|error| {
        error.with_operands(|| {
            let mut operands = vec![input.operand("input")];
            operands.extend(states.iter().map(|(name, state)| state.operand(*name)));
            operands.push(weights.weight_ih.operand("weight_ih"));
            operands.push(weights.weight_hh.operand("weight_hh"));
            operands.extend(weights.bias_ih.map(|bias| bias.operand("bias_ih")));
            operands.extend(weights.bias_hh.map(|bias| bias.operand("bias_hh")));
            operands
        })
    })?;
    let single = input.ndim() == 1;
    let rows = |tensor: &Tensor| match single {
        true => tensor.unsqueeze(0),
        false => Ok(tensor.clone()),
    };
    let states = states.iter().map(|(_, state)| rows(state));
    Ok((rows(input)?, states.collect::<Result<_>>()?, single))
}

/// A result as a single row, if the operands were.
#[track_caller]
fn as_given(tensor: Tensor, single: bool) -> Result<Tensor> {
    if single {
        tensor.squeeze(0)
    } else {
        Ok(tensor)
    }
}

/// What a plain cell ends with.
#[derive(Clone, Copy)]
enum Activation {
    Tanh,
    Relu,
}

impl Tensor {
    /// One step of an LSTM (`torch.lstm_cell`): from an input `[batch, input_size]`, h and c `[batch, hidden_size]`, the new h and c.
    /// Also takes one row of each, without the batch.
    #[track_caller]
    pub fn lstm_cell(
        &self,
        hx: &Tensor,
        cx: &Tensor,
        weights: &CellWeights<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let states = [("hx", hx), ("cx", cx)];
        let (input, states, single) = batched("lstm_cell", 4, self, &states, weights)?;
        let [of_input, of_hidden] = gates(&input, &states[0], weights)?;
        let (h, c) = of_input.fused_lstm_cell(&of_hidden, &states[1])?;
        Ok((as_given(h, single)?, as_given(c, single)?))
    }

    /// One step of a GRU (`torch.gru_cell`): from an input `[batch, input_size]` and h `[batch, hidden_size]` the new h. Also takes one
    /// row of each, without the batch.
    #[track_caller]
    pub fn gru_cell(&self, hx: &Tensor, weights: &CellWeights<'_>) -> Result<Tensor> {
        let (input, states, single) = batched("gru_cell", 3, self, &[("hx", hx)], weights)?;
        let [of_input, of_hidden] = gates(&input, &states[0], weights)?;
        as_given(of_input.fused_gru_cell(&of_hidden, &states[0])?, single)
    }

    /// One step of a plain recurrent cell, `tanh(W x + b + U h + c)` (`torch.rnn_tanh_cell`): from an input `[batch, input_size]` and h
    /// `[batch, hidden_size]` the new h. Also takes one row of each, without the batch.
    #[track_caller]
    pub fn rnn_tanh_cell(&self, hx: &Tensor, weights: &CellWeights<'_>) -> Result<Tensor> {
        self.rnn_cell("rnn_tanh_cell", hx, weights, Activation::Tanh)
    }

    /// As [`rnn_tanh_cell`](Tensor::rnn_tanh_cell), with `relu` (`torch.rnn_relu_cell`).
    #[track_caller]
    pub fn rnn_relu_cell(&self, hx: &Tensor, weights: &CellWeights<'_>) -> Result<Tensor> {
        self.rnn_cell("rnn_relu_cell", hx, weights, Activation::Relu)
    }

    #[track_caller]
    fn rnn_cell(
        &self,
        op: &'static str,
        hx: &Tensor,
        weights: &CellWeights<'_>,
        activation: Activation,
    ) -> Result<Tensor> {
        let (input, states, single) = batched(op, 1, self, &[("hx", hx)], weights)?;
        let [of_input, of_hidden] = gates(&input, &states[0], weights)?;
        let sum = &of_input + &of_hidden;
        let h = match activation {
            Activation::Tanh => sum.tanh(),
            Activation::Relu => sum.relu(),
        };
        as_given(h.eval()?, single)
    }

    /// The part of an LSTM's step that follows the matrix products, as one kernel (`torch._thnn_fused_lstm_cell`): from the gates of the
    /// input (`self`) and of the hidden state, `[batch, 4 * hidden_size]`, and c `[batch, hidden_size]` the new h and c.
    #[track_caller]
    pub fn fused_lstm_cell(&self, hidden_gates: &Tensor, cx: &Tensor) -> Result<(Tensor, Tensor)> {
        let mut outputs = fused(Rule::Lstm, [self, hidden_gates, cx])?;
        let h = outputs.remove(0);
        Ok((h, outputs.remove(0)))
    }

    /// The part of a GRU's step that follows the matrix products, as one kernel (`torch._thnn_fused_gru_cell`): from the gates of the
    /// input (`self`) and of the hidden state, `[batch, 3 * hidden_size]`, and h `[batch, hidden_size]` the new h.
    #[track_caller]
    pub fn fused_gru_cell(&self, hidden_gates: &Tensor, hx: &Tensor) -> Result<Tensor> {
        Ok(fused(Rule::Gru, [self, hidden_gates, hx])?.remove(0))
    }
}

#[track_caller]
fn fused(rule: Rule, inputs: [&Tensor; 3]) -> Result<crate::op::Outputs> {
    let keeps = is_grad_enabled() && inputs.iter().any(|input| input.requires_grad());
    dispatch::call(FusedCell { rule, keeps }, &inputs)
}

/// The gates of the input and of the hidden state.
#[track_caller]
fn gates(input: &Tensor, hx: &Tensor, weights: &CellWeights<'_>) -> Result<[Tensor; 2]> {
    Ok([
        input.linear(weights.weight_ih, weights.bias_ih)?,
        hx.linear(weights.weight_hh, weights.bias_hh)?,
    ])
}
