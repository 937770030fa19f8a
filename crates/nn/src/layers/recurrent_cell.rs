//! Recurrent cells: one step of a recurrent network.

use fireclay_tensor::{
    CellWeights, DType, Device, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use crate::init;
use crate::within::Within;

/// What the `with` of [`LSTMCell`] and [`GRUCell`] takes besides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentCellConfig {
    /// Whether there are biases.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for RecurrentCellConfig {
    fn default() -> Self {
        RecurrentCellConfig {
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

/// What [`RNNCell::with`] takes besides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct RNNCellConfig {
    /// What the cell ends with.
    pub nonlinearity: RNNNonlinearity,
    /// Whether there are biases.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for RNNCellConfig {
    fn default() -> Self {
        let RecurrentCellConfig {
            bias,
            device,
            dtype,
        } = RecurrentCellConfig::default();
        RNNCellConfig {
            nonlinearity: RNNNonlinearity::default(),
            bias,
            device,
            dtype,
        }
    }
}

/// What a plain recurrent cell ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RNNNonlinearity {
    /// Hyperbolic tangent: PyTorch's default.
    #[default]
    Tanh,
    /// Rectifier.
    ReLU,
}

crate::plain_fields!(RNNNonlinearity);

/// Declares a cell: a struct of PyTorch's parameters, sizes, and what more of its config it keeps, and how one is made.
macro_rules! cell {
    ($(#[$doc:meta])* $Cell:ident, $Config:ident { $($option:ident: $Option:ty)? }, $gates:literal, $rows:literal) => {
        $(#[$doc])*
        ///
        /// All parameters are uniform in `±1/sqrt(hidden_size)` at first.
        #[derive(crate::Module, Debug)]
        pub struct $Cell {
            #[doc = concat!("Of the input, `[", $rows, ", input_size]`.")]
            pub weight_ih: Parameter,
            #[doc = concat!("Of the hidden state, `[", $rows, ", hidden_size]`.")]
            pub weight_hh: Parameter,
            #[doc = concat!("Of the input, `[", $rows, "]`.")]
            pub bias_ih: Option<Parameter>,
            #[doc = concat!("Of the hidden state, `[", $rows, "]`.")]
            pub bias_hh: Option<Parameter>,
            input_size: usize,
            hidden_size: usize,
            $($option: $Option,)?
        }

        impl $Cell {
            /// A cell with biases, f32 on the default device.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize) -> Result<$Cell> {
                $Cell::with(input_size, hidden_size, $Config::default())
            }

            /// A cell as `config` says.
            #[track_caller]
            pub fn with(
                input_size: usize,
                hidden_size: usize,
                config: $Config,
            ) -> Result<$Cell> {
                as_one_call(|| {
                    let rows = $gates * hidden_size;
                    let uniform = |shape: &[usize]| {
                        let tensor = Tensor::empty(shape, config.dtype, config.device)?;
                        let bound = init::inverse_sqrt(hidden_size);
                        init::uniform_(&tensor, -bound, bound)?;
                        Parameter::new(tensor)
                    };
                    let bias = || config.bias.then(|| uniform(&[rows])).transpose();
                    Ok($Cell {
                        weight_ih: uniform(&[rows, input_size])?,
                        weight_hh: uniform(&[rows, hidden_size])?,
                        bias_ih: bias()?,
                        bias_hh: bias()?,
                        input_size,
                        hidden_size,
                        $($option: config.$option,)?
                    })
                })
            }

            /// Runs `step` with the cell's weights; an error says which cell it was.
            #[track_caller]
            fn step<T>(&self, step: impl FnOnce(&CellWeights<'_>) -> Result<T>) -> Result<T> {
                let tensor = |bias: &Option<Parameter>| bias.as_ref().map(Parameter::tensor);
                let (weight_ih, weight_hh) = (self.weight_ih.tensor(), self.weight_hh.tensor());
                let (bias_ih, bias_hh) = (tensor(&self.bias_ih), tensor(&self.bias_hh));
                let weights = CellWeights {
                    weight_ih: &weight_ih,
                    weight_hh: &weight_hh,
                    bias_ih: bias_ih.as_ref(),
                    bias_hh: bias_hh.as_ref(),
                };
                step(&weights).within(Some(&self.weight_ih), || {
                    let name = stringify!($Cell);
                    format!("{name}({}, {})", self.input_size, self.hidden_size)
                })
            }

            /// The state where none is given.
            #[track_caller]
            fn zeros(&self, input: &Tensor) -> Result<Tensor> {
                let mut shape = input.shape().to_vec();
                if let Some(last) = shape.last_mut() {
                    *last = self.hidden_size;
                }
                Tensor::full_of(&shape, 0.0, input.dtype(), input.device())
            }
        }
    };
}

cell!(
    /// One step of a plain recurrent network, `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)` (`torch.nn.RNNCell`).
    RNNCell,
    RNNCellConfig { nonlinearity: RNNNonlinearity },
    1,
    "hidden_size"
);

cell!(
    /// One step of a network with long short-term memory (`torch.nn.LSTMCell`): input, forget, cell and output gate lie one behind
    /// the other in the parameters.
    LSTMCell,
    RecurrentCellConfig {},
    4,
    "4 * hidden_size"
);

cell!(
    /// One step of a network with gated recurrent units (`torch.nn.GRUCell`): reset, update and new gate lie one behind the other in
    /// the parameters.
    GRUCell,
    RecurrentCellConfig {},
    3,
    "3 * hidden_size"
);

impl RNNCell {
    /// The new h `[batch, hidden_size]` for an input `[batch, input_size]` and the h before, zeros if absent; also of one row
    /// without the batch.
    ///
    /// # Errors
    /// If shapes, dtypes or devices don't fit together.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<Tensor> {
        self.step(|weights| {
            let hx = match hx {
                Some(hx) => hx.clone(),
                None => self.zeros(input)?,
            };
            match self.nonlinearity {
                RNNNonlinearity::Tanh => input.rnn_tanh_cell(&hx, weights),
                RNNNonlinearity::ReLU => input.rnn_relu_cell(&hx, weights),
            }
        })
    }
}

impl LSTMCell {
    /// The new h and c `[batch, hidden_size]` for an input `[batch, input_size]` and the h and c before, zeros if absent; also of
    /// one row without the batch.
    ///
    /// # Errors
    /// If shapes, dtypes or devices don't fit together.
    #[track_caller]
    pub fn forward(
        &self,
        input: &Tensor,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        self.step(|weights| match hx {
            Some((h, c)) => input.lstm_cell(h, c, weights),
            None => {
                let zeros = self.zeros(input)?;
                input.lstm_cell(&zeros, &zeros, weights)
            }
        })
    }
}

impl GRUCell {
    /// The new h `[batch, hidden_size]` for an input `[batch, input_size]` and the h before, zeros if absent; also of one row
    /// without the batch.
    ///
    /// # Errors
    /// If shapes, dtypes or devices don't fit together.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Result<Tensor> {
        self.step(|weights| match hx {
            Some(hx) => input.gru_cell(hx, weights),
            None => input.gru_cell(&self.zeros(input)?, weights),
        })
    }
}
