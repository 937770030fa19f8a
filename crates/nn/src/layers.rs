//! The layers: one file per family.

mod activation;
mod batch_norm;
mod conv2d;
mod dropout;
mod embedding;
mod flatten;
mod group_norm;
mod identity;
mod layer_norm;
mod linear;
mod pooling;
mod recurrent;
mod recurrent_cell;
mod rms_norm;
mod sequential;
mod size;
mod upsample;

pub use activation::{
    ELU, GELU, LeakyReLU, LogSoftmax, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh,
};
pub use batch_norm::{BatchNorm1d, BatchNorm2d, BatchNormConfig};
pub use conv2d::{Conv2d, Conv2dConfig};
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingConfig};
pub use flatten::Flatten;
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use identity::Identity;
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use linear::{Linear, LinearConfig};
pub use pooling::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use recurrent::{GRU, GRUConfig, LSTM, LSTMConfig, RNN, RNNConfig};
pub use recurrent_cell::{
    GRUCell, LSTMCell, RNNCell, RNNCellConfig, RNNNonlinearity, RecurrentCellConfig,
};
pub use rms_norm::{RMSNorm, RMSNormConfig};
pub use sequential::Sequential;
pub use size::Size2;
pub use upsample::Upsample;
