//! The layers: one file per family.

mod activation;
mod batch_norm;
mod bilinear;
mod conv;
mod conv_transpose;
mod distance;
mod dropout;
mod embedding;
mod embedding_bag;
mod flatten;
mod fuse;
mod group_norm;
mod identity;
mod instance_norm;
mod layer_norm;
mod linear;
mod padding;
mod pooling;
mod prelu;
mod recurrent;
mod recurrent_cell;
mod rms_norm;
mod sequential;
mod shuffle;
mod size;
mod upsample;

pub use activation::{
    CELU, ELU, GELU, GLU, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid,
    LogSoftmax, Mish, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax, Softmax2d, Softmin, Softplus,
    Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use batch_norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormConfig};
pub use bilinear::Bilinear;
pub use conv::{
    Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvConfig, PaddingMode,
};
pub use conv_transpose::{ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeConfig};
pub use distance::{CosineSimilarity, LocalResponseNorm, PairwiseDistance};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{Embedding, EmbeddingConfig};
pub use embedding_bag::{EmbeddingBag, EmbeddingBagConfig};
pub use flatten::Flatten;
pub use fuse::fuse_conv_bn_eval;
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use identity::Identity;
pub use instance_norm::{InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, InstanceNormConfig};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use linear::{Linear, LinearConfig};
pub use padding::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
    ReplicationPad3d, Sides, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
pub use pooling::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, LPPool1d, LPPool2d, LPPool3d, MaxPool1d,
    MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
};
pub use prelu::{PReLU, PReLUConfig};
pub use recurrent::{GRU, GRUConfig, LSTM, LSTMConfig, RNN, RNNConfig};
pub use recurrent_cell::{
    GRUCell, LSTMCell, RNNCell, RNNCellConfig, RNNNonlinearity, RecurrentCellConfig,
};
pub use rms_norm::{RMSNorm, RMSNormConfig};
pub use sequential::Sequential;
pub use shuffle::{ChannelShuffle, Fold, PixelShuffle, PixelUnshuffle, Unflatten, Unfold};
pub use size::{Size, Size2};
pub use upsample::{Upsample, UpsamplingBilinear2d, UpsamplingNearest2d};
