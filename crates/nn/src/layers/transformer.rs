//! Transformers (Vaswani and others 2017), after `torch.nn`.

use fireclay_tensor::{DType, Device, Error, IntoDevice, Result, Tensor, get_default_device};

use super::dropout::Dropout;
use super::layer_norm::{LayerNorm, LayerNormConfig};
use super::linear::{Linear, LinearConfig};
use super::multihead_attention::{Attend, MultiheadAttention, MultiheadAttentionConfig};
use crate::init;
use crate::module::{Module, ModuleExt};

/// What stands between the two linear layers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    ReLU,
    /// The exact GELU.
    GELU,
}

/// The sizes and options of transformer layers.
#[derive(Clone, Copy, Debug)]
pub struct TransformerConfig {
    /// The width between the two linear layers.
    pub dim_feedforward: usize,
    /// The probability of all dropouts.
    pub dropout: f64,
    /// What stands between the two linear layers.
    pub activation: TransformerActivation,
    /// Added to the variance in norms.
    pub layer_norm_eps: f64,
    /// Whether inputs are `[batch, length, d_model]` instead of `[length, batch, d_model]`.
    pub batch_first: bool,
    /// Whether norms stand before attention and linear layers instead of after.
    pub norm_first: bool,
    /// Whether there are biases.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for TransformerConfig {
    fn default() -> Self {
        TransformerConfig {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::ReLU,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl TransformerConfig {
    fn attention(&self, d_model: usize, nhead: usize) -> Result<MultiheadAttention> {
        let config = MultiheadAttentionConfig {
            dropout: self.dropout,
            bias: self.bias,
            batch_first: self.batch_first,
            device: self.device,
            dtype: self.dtype,
            ..MultiheadAttentionConfig::default()
        };
        MultiheadAttention::with(d_model, nhead, config)
    }

    fn linear(&self, inputs: usize, outputs: usize) -> Result<Linear> {
        let config = LinearConfig {
            bias: self.bias,
            device: self.device,
            dtype: self.dtype,
        };
        Linear::with(inputs, outputs, config)
    }

    fn norm(&self, d_model: usize) -> Result<LayerNorm> {
        let config = LayerNormConfig {
            eps: self.layer_norm_eps,
            weight: true,
            bias: self.bias,
            device: self.device,
            dtype: self.dtype,
        };
        LayerNorm::with(&[d_model], config)
    }

    fn dropout(&self) -> Result<Dropout> {
        Dropout::new(self.dropout)
    }
}

/// Which places a sequence leaves out of attention; masks as of [`Attend`].
#[derive(Clone, Copy, Default, Debug)]
pub struct SequenceMask<'a> {
    /// By query and key.
    pub mask: Option<&'a Tensor>,
    /// By sequence and key.
    pub key_padding_mask: Option<&'a Tensor>,
    /// The places after a query's own.
    pub is_causal: bool,
}

impl<'a> SequenceMask<'a> {
    fn attend(self) -> Attend<'a> {
        Attend {
            key_padding_mask: self.key_padding_mask,
            attn_mask: self.mask,
            need_weights: false,
            is_causal: self.is_causal,
            ..Attend::default()
        }
    }
}

/// Two linear layers with an activation between.
fn feed_forward(
    [linear1, linear2]: [&Linear; 2],
    activation: TransformerActivation,
    dropout: &Dropout,
    x: &Tensor,
) -> Result<Tensor> {
    let hidden = linear1.forward(x)?;
    let hidden = match activation {
        TransformerActivation::ReLU => hidden.relu()?,
        TransformerActivation::GELU => hidden.gelu()?,
    };
    linear2.forward(&dropout.forward(&hidden)?)
}

/// Attention of a sequence to itself, then two linear layers, each added to its input and normalised
/// (`torch.nn.TransformerEncoderLayer`).
#[derive(crate::Module, Debug)]
pub struct TransformerEncoderLayer {
    /// Of the sequence to itself.
    pub self_attn: MultiheadAttention,
    /// To the inner width.
    pub linear1: Linear,
    /// And back.
    pub linear2: Linear,
    /// Of the attention's sum.
    pub norm1: LayerNorm,
    /// Of the linear layers' sum.
    pub norm2: LayerNorm,
    dropout: Dropout,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    activation: TransformerActivation,
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// PyTorch's defaults, f32 on the default device.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> Result<TransformerEncoderLayer> {
        TransformerEncoderLayer::with(d_model, nhead, TransformerConfig::default())
    }

    /// As `config` says.
    ///
    /// # Errors
    /// `nhead` does not divide `d_model`; `dropout` is not from 0 to 1.
    #[track_caller]
    pub fn with(
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
    ) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: config.attention(d_model, nhead)?,
            linear1: config.linear(d_model, config.dim_feedforward)?,
            linear2: config.linear(config.dim_feedforward, d_model)?,
            norm1: config.norm(d_model)?,
            norm2: config.norm(d_model)?,
            dropout: config.dropout()?,
            dropout1: config.dropout()?,
            dropout2: config.dropout()?,
            activation: config.activation,
            norm_first: config.norm_first,
        })
    }

    /// Computes the output for `src`, of its shape, with masks.
    #[track_caller]
    pub fn forward_with(&self, src: &Tensor, mask: SequenceMask<'_>) -> Result<Tensor> {
        let attend = |x: &Tensor| -> Result<Tensor> {
            let (output, _) = self.self_attn.forward_with(x, x, x, mask.attend())?;
            self.dropout1.forward(&output)
        };
        let widen = |x: &Tensor| -> Result<Tensor> {
            let linears = [&self.linear1, &self.linear2];
            let output = feed_forward(linears, self.activation, &self.dropout, x)?;
            self.dropout2.forward(&output)
        };
        if self.norm_first {
            let x = src.add(&attend(&self.norm1.forward(src)?)?)?;
            return x.add(&widen(&self.norm2.forward(&x)?)?);
        }
        let x = self.norm1.forward(&src.add(&attend(src)?)?)?;
        self.norm2.forward(&x.add(&widen(&x)?)?)
    }
}

impl Module for TransformerEncoderLayer {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_with(input, SequenceMask::default())
    }
}

/// Encoder layers one after the other (`torch.nn.TransformerEncoder`).
#[derive(crate::Module, Debug)]
pub struct TransformerEncoder {
    /// In order.
    pub layers: Vec<TransformerEncoderLayer>,
    /// Of the last one's output.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// `num_layers` layers without a norm at the end. Each is filled by its own draw (PyTorch copies one).
    #[track_caller]
    pub fn new(
        d_model: usize,
        nhead: usize,
        num_layers: usize,
        config: TransformerConfig,
    ) -> Result<TransformerEncoder> {
        let layers = (0..num_layers).map(|_| TransformerEncoderLayer::with(d_model, nhead, config));
        Ok(TransformerEncoder {
            layers: layers.collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// Computes the output for `src`, of its shape, with masks for every layer.
    #[track_caller]
    pub fn forward_with(&self, src: &Tensor, mask: SequenceMask<'_>) -> Result<Tensor> {
        let mut x = src.clone();
        for layer in &self.layers {
            x = layer.forward_with(&x, mask)?;
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

impl Module for TransformerEncoder {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_with(input, SequenceMask::default())
    }
}

/// Attention of a sequence to itself and to an encoder's output, then two linear layers (`torch.nn.TransformerDecoderLayer`).
#[derive(crate::Module, Debug)]
pub struct TransformerDecoderLayer {
    /// Of the sequence to itself.
    pub self_attn: MultiheadAttention,
    /// To the encoder's output.
    pub multihead_attn: MultiheadAttention,
    /// To the inner width.
    pub linear1: Linear,
    /// And back.
    pub linear2: Linear,
    /// Of the first attention's sum.
    pub norm1: LayerNorm,
    /// Of the second attention's sum.
    pub norm2: LayerNorm,
    /// Of the linear layers' sum.
    pub norm3: LayerNorm,
    dropout: Dropout,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    activation: TransformerActivation,
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// PyTorch's defaults, f32 on the default device.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> Result<TransformerDecoderLayer> {
        TransformerDecoderLayer::with(d_model, nhead, TransformerConfig::default())
    }

    /// As `config` says.
    ///
    /// # Errors
    /// `nhead` does not divide `d_model`; `dropout` is not from 0 to 1.
    #[track_caller]
    pub fn with(
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
    ) -> Result<TransformerDecoderLayer> {
        Ok(TransformerDecoderLayer {
            self_attn: config.attention(d_model, nhead)?,
            multihead_attn: config.attention(d_model, nhead)?,
            linear1: config.linear(d_model, config.dim_feedforward)?,
            linear2: config.linear(config.dim_feedforward, d_model)?,
            norm1: config.norm(d_model)?,
            norm2: config.norm(d_model)?,
            norm3: config.norm(d_model)?,
            dropout: config.dropout()?,
            dropout1: config.dropout()?,
            dropout2: config.dropout()?,
            dropout3: config.dropout()?,
            activation: config.activation,
            norm_first: config.norm_first,
        })
    }

    /// Computes the output for `tgt`, of its shape, which attends to `memory`; with masks for both attentions.
    #[track_caller]
    pub fn forward_with(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: SequenceMask<'_>,
        memory_mask: SequenceMask<'_>,
    ) -> Result<Tensor> {
        let to_itself = |x: &Tensor| -> Result<Tensor> {
            let (output, _) = self.self_attn.forward_with(x, x, x, tgt_mask.attend())?;
            self.dropout1.forward(&output)
        };
        let to_memory = |x: &Tensor| -> Result<Tensor> {
            let attend = memory_mask.attend();
            let (output, _) = self
                .multihead_attn
                .forward_with(x, memory, memory, attend)?;
            self.dropout2.forward(&output)
        };
        let widen = |x: &Tensor| -> Result<Tensor> {
            let linears = [&self.linear1, &self.linear2];
            let output = feed_forward(linears, self.activation, &self.dropout, x)?;
            self.dropout3.forward(&output)
        };
        if self.norm_first {
            let x = tgt.add(&to_itself(&self.norm1.forward(tgt)?)?)?;
            let x = x.add(&to_memory(&self.norm2.forward(&x)?)?)?;
            return x.add(&widen(&self.norm3.forward(&x)?)?);
        }
        let x = self.norm1.forward(&tgt.add(&to_itself(tgt)?)?)?;
        let x = self.norm2.forward(&x.add(&to_memory(&x)?)?)?;
        self.norm3.forward(&x.add(&widen(&x)?)?)
    }

    /// [`forward_with`](TransformerDecoderLayer::forward_with) without masks.
    #[track_caller]
    pub fn forward(&self, tgt: &Tensor, memory: &Tensor) -> Result<Tensor> {
        let none = SequenceMask::default();
        self.forward_with(tgt, memory, none, none)
    }
}

/// Decoder layers one after the other (`torch.nn.TransformerDecoder`).
#[derive(crate::Module, Debug)]
pub struct TransformerDecoder {
    /// In order.
    pub layers: Vec<TransformerDecoderLayer>,
    /// Of the last one's output.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// `num_layers` layers without a norm at the end. Each is filled by its own draw (PyTorch copies one).
    #[track_caller]
    pub fn new(
        d_model: usize,
        nhead: usize,
        num_layers: usize,
        config: TransformerConfig,
    ) -> Result<TransformerDecoder> {
        let layers = (0..num_layers).map(|_| TransformerDecoderLayer::with(d_model, nhead, config));
        Ok(TransformerDecoder {
            layers: layers.collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// Computes the output for `tgt`, of its shape, which attends to `memory`; with masks for every layer.
    #[track_caller]
    pub fn forward_with(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_mask: SequenceMask<'_>,
        memory_mask: SequenceMask<'_>,
    ) -> Result<Tensor> {
        let mut x = tgt.clone();
        for layer in &self.layers {
            x = layer.forward_with(&x, memory, tgt_mask, memory_mask)?;
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

/// An encoder and a decoder, each with a norm at the end (`torch.nn.Transformer`).
#[derive(crate::Module, Debug)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Writes the target.
    pub decoder: TransformerDecoder,
}

/// What [`Transformer::forward_with`] takes besides source and target.
#[derive(Clone, Copy, Default, Debug)]
pub struct TransformerMasks<'a> {
    /// Of the source in the encoder.
    pub src: SequenceMask<'a>,
    /// Of the target in the decoder.
    pub tgt: SequenceMask<'a>,
    /// Of the encoder's output in the decoder.
    pub memory: SequenceMask<'a>,
}

impl Transformer {
    /// PyTorch's defaults: width 512, 8 heads, 6 layers in encoder and decoder.
    #[track_caller]
    pub fn new() -> Result<Transformer> {
        Transformer::with(512, 8, [6, 6], TransformerConfig::default())
    }

    /// Of so many layers in encoder and decoder. All weights are filled as [`init::xavier_uniform_`] does.
    ///
    /// # Errors
    /// `nhead` does not divide `d_model`; `dropout` is not from 0 to 1.
    #[track_caller]
    pub fn with(
        d_model: usize,
        nhead: usize,
        [encoder_layers, decoder_layers]: [usize; 2],
        config: TransformerConfig,
    ) -> Result<Transformer> {
        let mut encoder = TransformerEncoder::new(d_model, nhead, encoder_layers, config)?;
        encoder.norm = Some(config.norm(d_model)?);
        let mut decoder = TransformerDecoder::new(d_model, nhead, decoder_layers, config)?;
        decoder.norm = Some(config.norm(d_model)?);
        let transformer = Transformer { encoder, decoder };
        for parameter in transformer.parameters() {
            let tensor = parameter.tensor();
            if tensor.ndim() > 1 {
                init::xavier_uniform_(&tensor, 1.0)?;
            }
        }
        Ok(transformer)
    }

    /// Computes the output for source and target, of the target's shape.
    #[track_caller]
    pub fn forward(&self, src: &Tensor, tgt: &Tensor) -> Result<Tensor> {
        self.forward_with(src, tgt, TransformerMasks::default())
    }

    /// The same with masks.
    #[track_caller]
    pub fn forward_with(
        &self,
        src: &Tensor,
        tgt: &Tensor,
        masks: TransformerMasks<'_>,
    ) -> Result<Tensor> {
        if src.ndim() != tgt.ndim() {
            let what = format!(
                "source and target must both have a batch, or none, got {} and {}",
                src.shape(),
                tgt.shape()
            );
            return Err(Error::shape("Transformer", what)
                .with_operands(|| vec![src.operand("src"), tgt.operand("tgt")]));
        }
        let memory = self.encoder.forward_with(src, masks.src)?;
        self.decoder
            .forward_with(tgt, &memory, masks.tgt, masks.memory)
    }

    /// A mask `[size, size]` that leaves out the places after a query's own: minus infinity above the diagonal, 0 elsewhere
    /// (`Transformer.generate_square_subsequent_mask`).
    #[track_caller]
    pub fn generate_square_subsequent_mask(size: usize, device: impl IntoDevice) -> Result<Tensor> {
        Tensor::full(&[size, size], f64::NEG_INFINITY, device)?
            .to_dtype(DType::F32)?
            .triu(1)
    }
}
