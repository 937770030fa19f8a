//! Recurrent networks and their cells by PyTorch's names.

use fireclay_nn::{
    GRU, GRUCell, GRUConfig, LSTM, LSTMCell, LSTMConfig, RNN, RNNCell, RNNCellConfig, RNNConfig,
    RNNNonlinearity, RecurrentCellConfig,
};

use super::run_made;
use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

pub(super) fn run(call: &Call<'_>) -> Option<Result<Run, Refusal>> {
    match call.op() {
        "nn.LSTM" | "nn.GRU" | "nn.RNN" => Some(run_network(call)),
        "nn.LSTMCell" | "nn.GRUCell" | "nn.RNNCell" => Some(run_cell(call)),
        _ => None,
    }
}

/// Runs a cell for one step.
fn run_cell(call: &Call<'_>) -> Result<Run, Refusal> {
    let sizes = (call.size("input_size")?, call.size("hidden_size")?);
    let bias = call.flag("bias", true);
    let config = RecurrentCellConfig {
        bias,
        ..RecurrentCellConfig::default()
    };
    match call.op() {
        "nn.RNNCell" => {
            let nonlinearity = match call.text("nonlinearity") {
                Some("relu") => RNNNonlinearity::ReLU,
                _ => RNNNonlinearity::Tanh,
            };
            let config = RNNCellConfig {
                nonlinearity,
                bias,
                ..RNNCellConfig::default()
            };
            run_made(call, RNNCell::with(sizes.0, sizes.1, config)?, |cell| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                Ok(vec![cell.forward(input, hx)?])
            })
        }
        "nn.GRUCell" => run_made(call, GRUCell::with(sizes.0, sizes.1, config)?, |cell| {
            let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
            Ok(vec![cell.forward(input, hx)?])
        }),
        "nn.LSTMCell" => run_made(call, LSTMCell::with(sizes.0, sizes.1, config)?, |cell| {
            let given = call.case().list("names").iter().any(|name| name == "hx");
            let states = match given {
                true => call.tensors("hx")?,
                false => Vec::new(),
            };
            let hx = match states[..] {
                [h, c] => Some((h, c)),
                _ => None,
            };
            let (h, c) = cell.forward(call.tensor("input")?, hx)?;
            Ok(vec![h, c])
        }),
        op => Err(unsupported(format!("no module {op}"))),
    }
}

/// Runs a network over whole sequences.
fn run_network(call: &Call<'_>) -> Result<Run, Refusal> {
    let sizes = (call.size("input_size")?, call.size("hidden_size")?);
    macro_rules! config {
        ($Config:ident { $($own:ident: $value:expr),* }) => {
            $Config {
                num_layers: call.int("num_layers", 1)? as usize,
                bias: call.flag("bias", true),
                batch_first: call.flag("batch_first", false),
                dropout: call.float("dropout", 0.0)?,
                bidirectional: call.flag("bidirectional", false),
                $($own: $value,)*
                ..$Config::default()
            }
        };
    }
    match call.op() {
        "nn.LSTM" => {
            let config = config!(LSTMConfig {
                proj_size: call.int("proj_size", 0)? as usize
            });
            run_made(call, LSTM::with(sizes.0, sizes.1, config)?, |lstm| {
                let given = call.case().list("names").iter().any(|name| name == "hx");
                let states = match given {
                    true => call.tensors("hx")?,
                    false => Vec::new(),
                };
                let hx = match states[..] {
                    [h, c] => Some((h, c)),
                    _ => None,
                };
                let (outputs, (h, c)) = lstm.forward(call.tensor("input")?, hx)?;
                Ok(vec![outputs, h, c])
            })
        }
        "nn.GRU" => {
            let config = config!(GRUConfig {});
            run_made(call, GRU::with(sizes.0, sizes.1, config)?, |gru| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                let (outputs, h) = gru.forward(input, hx)?;
                Ok(vec![outputs, h])
            })
        }
        _ => {
            let nonlinearity = match call.text("nonlinearity") {
                Some("relu") => RNNNonlinearity::ReLU,
                _ => RNNNonlinearity::Tanh,
            };
            let config = config!(RNNConfig {
                nonlinearity: nonlinearity
            });
            run_made(call, RNN::with(sizes.0, sizes.1, config)?, |rnn| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                let (outputs, h) = rnn.forward(input, hx)?;
                Ok(vec![outputs, h])
            })
        }
    }
}
