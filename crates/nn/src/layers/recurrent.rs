//! Recurrent networks over whole sequences: `RNN`, `LSTM`, `GRU`.

use std::fmt;

use fireclay_tensor::{
    DType, Device, Error, Formula, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use super::recurrent_cell::RNNNonlinearity;
use crate::field::FieldVisitor;
use crate::init;
use crate::mode::Mode;
use crate::module::ModuleFields;
use crate::rnn::PackedSequence;
use crate::within::Within;

/// Declares the config of a network: what all have, and what is its own.
macro_rules! config {
    ($(#[$doc:meta])* $Config:ident { $($(#[$own_doc:meta])* $own:ident: $Own:ty = $default:expr),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Config {
            /// How many layers lie one on the other, each on the outputs of the one before.
            pub num_layers: usize,
            /// Whether there are biases.
            pub bias: bool,
            /// Whether inputs and outputs are `[batch, time, ..]`, not `[time, batch, ..]`. States are not concerned.
            pub batch_first: bool,
            /// The probability with which, in training, outputs of each layer but the last are set to zero.
            pub dropout: f64,
            /// Whether each layer also runs from the end to the start; outputs of both directions stand side by side.
            pub bidirectional: bool,
            $($(#[$own_doc])* pub $own: $Own,)*
            /// Where the parameters are: the default device, unless said.
            pub device: Device,
            /// Their dtype.
            pub dtype: DType,
        }

        impl Default for $Config {
            fn default() -> Self {
                $Config {
                    num_layers: 1,
                    bias: true,
                    batch_first: false,
                    dropout: 0.0,
                    bidirectional: false,
                    $($own: $default,)*
                    device: get_default_device(),
                    dtype: DType::F32,
                }
            }
        }
    };
}

config!(
    /// What [`RNN::with`] takes besides the sizes.
    RNNConfig {
        /// What each step ends with.
        nonlinearity: RNNNonlinearity = RNNNonlinearity::Tanh
    }
);

config!(
    /// What [`GRU::with`] takes besides the sizes.
    GRUConfig {}
);

config!(
    /// What [`LSTM::with`] takes besides the sizes.
    LSTMConfig {
        /// If not 0, h is multiplied by a matrix, which makes it this wide; less than the hidden size.
        proj_size: usize = 0
    }
);

/// What a step computes after its matrix products.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Rnn(RNNNonlinearity),
    Lstm,
    Gru,
}

impl Step {
    fn gates(self) -> usize {
        match self {
            Step::Rnn(_) => 1,
            Step::Lstm => 4,
            Step::Gru => 3,
        }
    }
}

/// The parameters of one layer in one direction.
#[derive(Debug)]
struct Direction {
    /// What follows `weight_ih` in the names.
    suffix: String,
    weight_ih: Parameter,
    weight_hh: Parameter,
    bias_ih: Option<Parameter>,
    bias_hh: Option<Parameter>,
    weight_hr: Option<Parameter>,
}

/// What the three networks have in common.
struct Network {
    name: &'static str,
    step: Step,
    input_size: usize,
    hidden_size: usize,
    proj_size: usize,
    batch_first: bool,
    dropout: f64,
    /// Layer by layer; of a bidirectional network the forward one first.
    directions: Vec<Direction>,
    per_layer: usize,
    mode: Mode,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.title())?;
        f.debug_list().entries(&self.directions).finish()
    }
}

/// The sizes and options that a network is made of.
struct Plan {
    name: &'static str,
    step: Step,
    num_layers: usize,
    bias: bool,
    batch_first: bool,
    dropout: f64,
    bidirectional: bool,
    proj_size: usize,
    device: Device,
    dtype: DType,
}

impl Network {
    #[track_caller]
    fn new(input_size: usize, hidden_size: usize, plan: Plan) -> Result<Network> {
        let name = plan.name;
        let refuse = |what: String| Err(Error::argument(name, what));
        if !(0.0..=1.0).contains(&plan.dropout) {
            return refuse(format!(
                "dropout is a probability from 0 to 1, got {}",
                plan.dropout
            ));
        }
        if hidden_size == 0 || plan.num_layers == 0 {
            return refuse(format!(
                "hidden_size and num_layers must be positive, got {hidden_size} and {}",
                plan.num_layers
            ));
        }
        if plan.proj_size >= hidden_size {
            return refuse(format!(
                "proj_size must be smaller than hidden_size, got {} and {hidden_size}",
                plan.proj_size
            ));
        }
        let Some(rows) = hidden_size.checked_mul(plan.step.gates()) else {
            return refuse(format!("a hidden_size of {hidden_size} is too large"));
        };
        let uniform = |shape: &[usize]| {
            let tensor = Tensor::empty(shape, plan.dtype, plan.device)?;
            let bound = init::inverse_sqrt(hidden_size);
            init::uniform_(&tensor, -bound, bound)?;
            Parameter::new(tensor)
        };
        let state = match plan.proj_size {
            0 => hidden_size,
            proj_size => proj_size,
        };
        let per_layer = if plan.bidirectional { 2 } else { 1 };
        let mut directions = Vec::new();
        for layer in 0..plan.num_layers {
            let width = match layer {
                0 => input_size,
                _ => state.saturating_mul(per_layer),
            };
            for direction in ["", "_reverse"].into_iter().take(per_layer) {
                let bias = || plan.bias.then(|| uniform(&[rows])).transpose();
                let projects = plan.proj_size > 0;
                directions.push(Direction {
                    suffix: format!("_l{layer}{direction}"),
                    weight_ih: uniform(&[rows, width])?,
                    weight_hh: uniform(&[rows, state])?,
                    bias_ih: bias()?,
                    bias_hh: bias()?,
                    weight_hr: projects
                        .then(|| uniform(&[plan.proj_size, hidden_size]))
                        .transpose()?,
                });
            }
        }
        Ok(Network {
            name,
            step: plan.step,
            input_size,
            hidden_size,
            proj_size: plan.proj_size,
            batch_first: plan.batch_first,
            dropout: plan.dropout,
            directions,
            per_layer,
            mode: Mode::new(),
        })
    }

    fn title(&self) -> String {
        format!("{}({}, {})", self.name, self.input_size, self.hidden_size)
    }

    /// The widths of the states: of h, and of c where there is one.
    fn widths(&self) -> Vec<usize> {
        let h = match self.proj_size {
            0 => self.hidden_size,
            proj_size => proj_size,
        };
        match self.step {
            Step::Lstm => vec![h, self.hidden_size],
            _ => vec![h],
        }
    }

    fn visit(&self, visitor: &mut dyn FieldVisitor) {
        for direction in &self.directions {
            let name = |part: &str| format!("{part}{}", direction.suffix);
            visitor.parameter(&name("weight_ih"), &direction.weight_ih);
            visitor.parameter(&name("weight_hh"), &direction.weight_hh);
            for (part, parameter) in [
                ("bias_ih", &direction.bias_ih),
                ("bias_hh", &direction.bias_hh),
                ("weight_hr", &direction.weight_hr),
            ] {
                if let Some(parameter) = parameter {
                    visitor.parameter(&name(part), parameter);
                }
            }
        }
        visitor.mode(&self.mode);
    }

    /// Outputs and last states for an input `[time, batch, ..]` (or as `batch_first` says), or `[time, ..]` of a single sequence.
    #[track_caller]
    fn padded(&self, input: &Tensor, states: Option<&[&Tensor]>) -> Result<(Tensor, Vec<Tensor>)> {
        let first = &self.directions[0].weight_ih;
        as_one_call(|| {
            self.check_input(input, &[2, 3])?;
            let single = input.ndim() == 2;
            let sequence = match (single, self.batch_first) {
                (true, _) => input.unsqueeze(1)?,
                (false, true) => input.transpose(0, 1)?,
                (false, false) => input.clone(),
            };
            let (time, batch) = (sequence.shape()[0], sequence.shape()[1]);
            if time == 0 {
                let what = format!(
                    "expected at least one time step, got an input of shape {}",
                    input.shape()
                );
                return Err(
                    Error::shape(self.name, what).with_operands(|| vec![input.operand("input")])
                );
            }
            let rows = sequence.reshape(&[signed(time * batch), signed(self.input_size)])?;
            let states = self.states(input, states, batch, single)?;
            let (rows, states) = self.layers(rows, &vec![batch; time], states)?;
            let width = rows.shape()[1];
            let outputs = rows.reshape(&[signed(time), signed(batch), signed(width)])?;
            let outputs = match (single, self.batch_first) {
                (true, _) => outputs.squeeze(1)?,
                (false, true) => outputs.transpose(0, 1)?,
                (false, false) => outputs,
            };
            let state = |state: Tensor| if single { state.squeeze(1) } else { Ok(state) };
            let states = states.into_iter().map(state).collect::<Result<_>>()?;
            Ok((outputs, states))
        })
        .within(Some(first), || self.title())
    }

    /// As [`padded`](Network::padded), of sequences of several lengths.
    #[track_caller]
    fn packed(
        &self,
        input: &PackedSequence,
        states: Option<&[&Tensor]>,
    ) -> Result<(PackedSequence, Vec<Tensor>)> {
        let first = &self.directions[0].weight_ih;
        as_one_call(|| {
            let rows = input.data();
            self.check_input(rows, &[2])?;
            let batch = input.batch_sizes()[0];
            let mut states = self.states(rows, states, batch, false)?;
            if let Some(order) = input.sorted_indices() {
                for state in &mut states {
                    *state = state.index_select(1, order)?;
                }
            }
            let (rows, mut states) = self.layers(rows.clone(), input.batch_sizes(), states)?;
            if let Some(order) = input.unsorted_indices() {
                for state in &mut states {
                    *state = state.index_select(1, order)?;
                }
            }
            Ok((input.with_data(rows), states))
        })
        .within(Some(first), || self.title())
    }

    fn check_input(&self, input: &Tensor, dims: &[usize]) -> Result<()> {
        let shape = input.shape();
        let operands = || vec![input.operand("input")];
        if !dims.contains(&shape.ndim()) {
            let what = match dims {
                [2] => format!(
                    "expected packed data [rows, {}], got {shape}",
                    self.input_size
                ),
                _ => format!(
                    "expected an input {} or [time, {}], got {shape}",
                    match self.batch_first {
                        true => format!("[batch, time, {}]", self.input_size),
                        false => format!("[time, batch, {}]", self.input_size),
                    },
                    self.input_size
                ),
            };
            return Err(Error::shape(self.name, what).with_operands(operands));
        }
        if shape[shape.ndim() - 1] != self.input_size {
            let what = format!(
                "the input's last dimension is {}, input_size is {}",
                shape[shape.ndim() - 1],
                self.input_size
            );
            return Err(Error::shape(self.name, what).with_operands(operands));
        }
        let dtype = self.directions[0].weight_ih.tensor().dtype();
        if input.dtype() != dtype {
            let what = format!("the input is {}, the parameters are {dtype}", input.dtype());
            return Err(Error::dtype(self.name, what)
                .with_hint("cast the input, or the module by to_dtype")
                .with_operands(operands));
        }
        Ok(())
    }

    /// The first states `[layers * directions, batch, width]`: those given, or zeros.
    fn states(
        &self,
        input: &Tensor,
        given: Option<&[&Tensor]>,
        batch: usize,
        single: bool,
    ) -> Result<Vec<Tensor>> {
        let depth = self.directions.len();
        let widths = self.widths();
        let Some(given) = given else {
            let zeros = |&width: &usize| {
                Tensor::full_of(&[depth, batch, width], 0.0, input.dtype(), input.device())
            };
            return widths.iter().map(zeros).collect();
        };
        let mut states = Vec::new();
        for ((state, width), name) in given.iter().zip(widths).zip(["h_0", "c_0"]) {
            let expected = match single {
                true => vec![depth, width],
                false => vec![depth, batch, width],
            };
            if state.shape()[..] != expected[..] {
                let what = format!(
                    "expected {name} {expected:?} for an input {}, got {}",
                    input.shape(),
                    state.shape()
                );
                return Err(Error::shape(self.name, what)
                    .with_operands(|| vec![input.operand("input"), state.operand(name)]));
            }
            if state.dtype() != input.dtype() {
                let what = format!(
                    "the input is {}, {name} is {}",
                    input.dtype(),
                    state.dtype()
                );
                return Err(Error::dtype(self.name, what)
                    .with_operands(|| vec![input.operand("input"), state.operand(name)]));
            }
            states.push(match single {
                true => state.unsqueeze(1)?,
                false => (*state).clone(),
            });
        }
        Ok(states)
    }

    /// Runs all layers over rows of time steps one after the other, of which step `t` has `batch_sizes[t]`, never more than the one
    /// before.
    fn layers(
        &self,
        mut rows: Tensor,
        batch_sizes: &[usize],
        states: Vec<Tensor>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let mut last: Vec<Vec<Tensor>> = states.iter().map(|_| Vec::new()).collect();
        let layers = self.directions.len() / self.per_layer;
        for (number, directions) in self.directions.chunks(self.per_layer).enumerate() {
            let mut outputs = Vec::new();
            for (side, direction) in directions.iter().enumerate() {
                let place = (number * self.per_layer + side) as isize;
                let first = states.iter().map(|state| state.select(0, place));
                let first = first.collect::<Result<Vec<_>>>()?;
                let (output, ended) = self.run(direction, &rows, batch_sizes, first, side == 1)?;
                outputs.push(output);
                for (last, state) in last.iter_mut().zip(ended) {
                    last.push(state);
                }
            }
            rows = joined(outputs, 1)?;
            if self.dropout > 0.0 && number + 1 < layers {
                rows = rows.dropout(self.dropout, self.mode.is_training())?;
            }
        }
        let stack = |states: Vec<Tensor>| Tensor::stack(&states.iter().collect::<Vec<_>>(), 0);
        Ok((rows, last.into_iter().map(stack).collect::<Result<_>>()?))
    }

    /// One layer in one direction: the outputs' rows, and the states after each sequence's last step.
    fn run(
        &self,
        direction: &Direction,
        rows: &Tensor,
        batch_sizes: &[usize],
        first: Vec<Tensor>,
        reverse: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let tensor = |parameter: &Option<Parameter>| parameter.as_ref().map(Parameter::tensor);
        let (weight_hh, bias_hh) = (direction.weight_hh.tensor(), tensor(&direction.bias_hh));
        let weight_hr = tensor(&direction.weight_hr);
        // What the inputs give to the gates, for all steps in one product.
        let bias_ih = tensor(&direction.bias_ih);
        let gates = rows.linear(&direction.weight_ih.tensor(), bias_ih.as_ref())?;
        let gates = gates.split_steps(batch_sizes)?;
        let most = batch_sizes[0];
        let mut current = match reverse {
            false => most,
            true => batch_sizes[batch_sizes.len() - 1],
        };
        let mut states = match current == most {
            true => first.clone(),
            false => narrowed(&first, 0, current)?,
        };
        // States of sequences that ended before the others, the shortest first.
        let mut ended: Vec<Vec<Tensor>> = Vec::new();
        let mut outputs = Vec::with_capacity(gates.len());
        let order: Box<dyn Iterator<Item = usize>> = match reverse {
            false => Box::new(0..gates.len()),
            true => Box::new((0..gates.len()).rev()),
        };
        for time in order {
            let size = batch_sizes[time];
            if size < current {
                ended.push(narrowed(&states, size, current - size)?);
                states = narrowed(&states, 0, size)?;
            } else if size > current {
                let more = narrowed(&first, current, size - current)?;
                let both = states.into_iter().zip(more);
                states = both
                    .map(|(state, more)| Tensor::cat(&[&state, &more], 0))
                    .collect::<Result<_>>()?;
            }
            current = size;
            let hidden = states[0].linear(&weight_hh, bias_hh.as_ref())?;
            states = self.step(&gates[time], &hidden, &states)?;
            if let Some(weight_hr) = &weight_hr {
                states[0] = states[0].linear(weight_hr, None)?;
            }
            outputs.push(states[0].clone());
        }
        if reverse {
            outputs.reverse();
        }
        let mut last = Vec::new();
        for (number, state) in states.into_iter().enumerate() {
            let others = ended.iter().rev().map(|ended| ended[number].clone());
            last.push(joined([state].into_iter().chain(others).collect(), 0)?);
        }
        Ok((joined(outputs, 0)?, last))
    }

    fn step(&self, gates: &Tensor, hidden: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(match self.step {
            Step::Lstm => {
                let (h, c) = gates.fused_lstm_cell(hidden, &states[1])?;
                vec![h, c]
            }
            Step::Gru => vec![gates.fused_gru_cell(hidden, &states[0])?],
            Step::Rnn(nonlinearity) => {
                let sum = Formula::from(gates) + hidden;
                let h = match nonlinearity {
                    RNNNonlinearity::Tanh => sum.tanh(),
                    RNNNonlinearity::ReLU => sum.relu(),
                };
                vec![h.eval()?]
            }
        })
    }
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

fn narrowed(tensors: &[Tensor], start: usize, length: usize) -> Result<Vec<Tensor>> {
    let narrow = |tensor: &Tensor| tensor.narrow(0, start, length);
    tensors.iter().map(narrow).collect()
}

/// The only tensor, or all of them joined.
fn joined(mut tensors: Vec<Tensor>, dim: isize) -> Result<Tensor> {
    match tensors.len() {
        1 => Ok(tensors.remove(0)),
        _ => Tensor::cat(&tensors.iter().collect::<Vec<_>>(), dim),
    }
}

/// Declares one of the networks.
macro_rules! network {
    ($(#[$doc:meta])* $Name:ident, $Config:ident, |$config:ident| $step:expr, $proj_size:expr) => {
        $(#[$doc])*
        ///
        /// Parameters, for layer k: `weight_ih_lk` `[gates * hidden_size, width of its input]`, `weight_hh_lk`
        /// `[gates * hidden_size, width of h]`, `bias_ih_lk`, `bias_hh_lk` `[gates * hidden_size]`; those of the direction from the end
        /// to the start have names with `_reverse`. All are uniform in `±1/sqrt(hidden_size)` at first.
        #[derive(Debug)]
        pub struct $Name {
            network: Network,
        }

        impl $Name {
            /// One layer in one direction, with biases, f32 on the default device.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize) -> Result<$Name> {
                $Name::with(input_size, hidden_size, $Config::default())
            }

            /// A network as `config` says.
            ///
            /// # Errors
            /// If a size is 0, or the probability of dropout is not from 0 to 1.
            #[track_caller]
            pub fn with(input_size: usize, hidden_size: usize, config: $Config) -> Result<$Name> {
                let $config = &config;
                let plan = Plan {
                    name: stringify!($Name),
                    step: $step,
                    proj_size: $proj_size,
                    num_layers: config.num_layers,
                    bias: config.bias,
                    batch_first: config.batch_first,
                    dropout: config.dropout,
                    bidirectional: config.bidirectional,
                    device: config.device,
                    dtype: config.dtype,
                };
                let network = as_one_call(|| Network::new(input_size, hidden_size, plan))?;
                Ok($Name { network })
            }
        }

        impl ModuleFields for $Name {
            fn visit_fields(&self, visitor: &mut dyn FieldVisitor) {
                self.network.visit(visitor);
            }

            fn type_name(&self) -> &'static str {
                self.network.name
            }
        }
    };
}

network!(
    /// A plain recurrent network over sequences, `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)` at each step (`torch.nn.RNN`).
    RNN,
    RNNConfig,
    |config| Step::Rnn(config.nonlinearity),
    0
);

network!(
    /// A network with long short-term memory over sequences (`torch.nn.LSTM`). The gates lie one behind the other in the parameters:
    /// input, forget, cell, output. With `proj_size` there is also `weight_hr_lk` `[proj_size, hidden_size]`.
    LSTM,
    LSTMConfig,
    |config| Step::Lstm,
    config.proj_size
);

network!(
    /// A network with gated recurrent units over sequences (`torch.nn.GRU`). The gates lie one behind the other in the parameters:
    /// reset, update, new.
    GRU,
    GRUConfig,
    |_config| Step::Gru,
    0
);

/// `forward` of networks whose state is one tensor.
macro_rules! forward_of_h {
    ($($Name:ident),*) => {
        $(impl $Name {
            /// Outputs `[time, batch, directions * hidden_size]` and the last h `[layers * directions, batch, hidden_size]` for an
            /// input `[time, batch, input_size]` and the first h, zeros if absent. With `batch_first` inputs and outputs are
            /// `[batch, time, ..]`; a single sequence `[time, input_size]` has no batch anywhere.
            ///
            /// # Errors
            /// If shapes, dtypes or devices don't fit together, or there is no time step.
            #[track_caller]
            pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                let hx = hx.map(|h| [h]);
                let (outputs, mut states) =
                    self.network.padded(input, hx.as_ref().map(|hx| &hx[..]))?;
                Ok((outputs, states.remove(0)))
            }

            /// As [`forward`](Self::forward), of sequences of several lengths.
            #[track_caller]
            pub fn forward_packed(
                &self,
                input: &PackedSequence,
                hx: Option<&Tensor>,
            ) -> Result<(PackedSequence, Tensor)> {
                let hx = hx.map(|h| [h]);
                let (outputs, mut states) =
                    self.network.packed(input, hx.as_ref().map(|hx| &hx[..]))?;
                Ok((outputs, states.remove(0)))
            }
        })*
    };
}

forward_of_h!(RNN, GRU);

impl LSTM {
    /// Outputs `[time, batch, directions * width]` and the last h `[layers * directions, batch, width]` and c
    /// `[layers * directions, batch, hidden_size]`, for an input `[time, batch, input_size]` and the first h and c, zeros if absent; the
    /// width is `proj_size` if that is not 0, else `hidden_size`. With `batch_first` inputs and outputs are `[batch, time, ..]`; a
    /// single sequence `[time, input_size]` has no batch anywhere.
    ///
    /// # Errors
    /// If shapes, dtypes or devices don't fit together, or there is no time step.
    #[track_caller]
    pub fn forward(
        &self,
        input: &Tensor,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let hx = hx.map(|(h, c)| [h, c]);
        let (outputs, mut states) = self.network.padded(input, hx.as_ref().map(|hx| &hx[..]))?;
        let h = states.remove(0);
        Ok((outputs, (h, states.remove(0))))
    }

    /// As [`forward`](LSTM::forward), of sequences of several lengths.
    #[track_caller]
    pub fn forward_packed(
        &self,
        input: &PackedSequence,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> Result<(PackedSequence, (Tensor, Tensor))> {
        let hx = hx.map(|(h, c)| [h, c]);
        let (outputs, mut states) = self.network.packed(input, hx.as_ref().map(|hx| &hx[..]))?;
        let h = states.remove(0);
        Ok((outputs, (h, states.remove(0))))
    }
}
