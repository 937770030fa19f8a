//! Helpers beside the modules (`torch.nn.utils`).

pub mod rnn;
