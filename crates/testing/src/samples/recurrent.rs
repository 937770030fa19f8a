//! Samples of recurrent cells: sizes of 1, primes, over a block and empty; of each state that comes out alone, and of both.

use fireclay_tensor::{Result, Tensor};

use super::List;

pub(super) fn add(list: &mut List) {
    for [batch, hidden] in [[1, 1], [2, 3], [5, 1], [3, 7], [0, 3], [2, 0]] {
        let inputs = operands(list, 4, batch, hidden);
        list.add("lstm_cell", inputs.clone(), both);
        list.add("lstm_cell", inputs.clone(), |x| {
            Ok(x[0].fused_lstm_cell(&x[1], &x[2])?.0)
        });
        list.add("lstm_cell", inputs, |x| {
            Ok(x[0].fused_lstm_cell(&x[1], &x[2])?.1)
        });
        let inputs = operands(list, 3, batch, hidden);
        list.add("gru_cell", inputs, |x| x[0].fused_gru_cell(&x[1], &x[2]));
    }
    let large = [[3, 131], [1, 1025], [67, 16]];
    for [batch, hidden] in large {
        let inputs = operands(list, 4, batch, hidden);
        list.add_large("lstm_cell", inputs, both);
        let inputs = operands(list, 3, batch, hidden);
        list.add_large("gru_cell", inputs, |x| x[0].fused_gru_cell(&x[1], &x[2]));
    }
}

/// Gates of input and hidden state, and the state.
fn operands(list: &mut List, gates: usize, batch: usize, hidden: usize) -> Vec<Tensor> {
    vec![
        list.many(&[batch, gates * hidden]),
        list.many(&[batch, gates * hidden]),
        list.many(&[batch, hidden]),
    ]
}

/// Both states, which count differently.
fn both(x: &[Tensor]) -> Result<Tensor> {
    let (h, c) = x[0].fused_lstm_cell(&x[1], &x[2])?;
    Tensor::cat(&[&h, &c.mul(0.7)?], 1)
}
