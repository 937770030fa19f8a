//! Attention with several heads.

use fireclay_tensor::{
    Attention, DType, Device, Error, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use super::linear::{Linear, LinearConfig};
use crate::init;
use crate::mode::Mode;
use crate::within::Within;

/// Attention of `num_heads` heads, with projections before and after (`torch.nn.MultiheadAttention`; Vaswani and others 2017).
///
/// Parameters by PyTorch's names: `in_proj_weight` `[3 embed_dim, embed_dim]`, or `q_proj_weight`, `k_proj_weight` and
/// `v_proj_weight` where keys or values have another width; `in_proj_bias`, `bias_k`, `bias_v`, `out_proj`.
#[derive(crate::Module, Debug)]
pub struct MultiheadAttention {
    in_proj_weight: Option<Parameter>,
    q_proj_weight: Option<Parameter>,
    k_proj_weight: Option<Parameter>,
    v_proj_weight: Option<Parameter>,
    in_proj_bias: Option<Parameter>,
    bias_k: Option<Parameter>,
    bias_v: Option<Parameter>,
    /// From the heads' outputs, side by side.
    pub out_proj: Linear,
    mode: Mode,
    embed_dim: usize,
    num_heads: usize,
    dropout: f64,
    batch_first: bool,
    add_zero_attn: bool,
}

/// What [`MultiheadAttention::with`] takes besides width and heads.
#[derive(Clone, Copy, Debug)]
pub struct MultiheadAttentionConfig {
    /// The probability with which a weight is left out in training.
    pub dropout: f64,
    /// Whether the projections have biases.
    pub bias: bool,
    /// Whether a learned key and value is added at the end.
    pub add_bias_kv: bool,
    /// Whether a key and value of zeros is added at the end.
    pub add_zero_attn: bool,
    /// The width of keys, `embed_dim` if it is None.
    pub kdim: Option<usize>,
    /// The width of values, `embed_dim` if it is None.
    pub vdim: Option<usize>,
    /// Whether inputs are `[batch, length, width]` instead of `[length, batch, width]`.
    pub batch_first: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for MultiheadAttentionConfig {
    fn default() -> Self {
        MultiheadAttentionConfig {
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

/// What [`MultiheadAttention::forward_with`] takes besides query, key and value.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// Which keys are left out, of each sequence: bools `[batch, keys]`, true for those, or numbers that are added to the scores.
    pub key_padding_mask: Option<&'a Tensor>,
    /// Which keys each query leaves out: bools `[queries, keys]` or `[batch * num_heads, queries, keys]`, true for those, or numbers
    /// that are added to the scores.
    pub attn_mask: Option<&'a Tensor>,
    /// Whether the weights are wanted; without them the fused kernel computes.
    pub need_weights: bool,
    /// Whether the weights are averaged over heads.
    pub average_attn_weights: bool,
    /// Whether queries leave out the keys after their own place.
    pub is_causal: bool,
}

impl Default for Attend<'_> {
    fn default() -> Self {
        Attend {
            key_padding_mask: None,
            attn_mask: None,
            need_weights: true,
            average_attn_weights: true,
            is_causal: false,
        }
    }
}

const NAME: &str = "MultiheadAttention";

impl MultiheadAttention {
    /// With biases and without dropout, f32 on the default device; inputs `[length, batch, embed_dim]`.
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize) -> Result<MultiheadAttention> {
        MultiheadAttention::with(embed_dim, num_heads, MultiheadAttentionConfig::default())
    }

    /// As `config` says.
    ///
    /// # Errors
    /// `num_heads` does not divide `embed_dim`, or either is 0; `dropout` is not from 0 to 1.
    #[track_caller]
    pub fn with(
        embed_dim: usize,
        num_heads: usize,
        config: MultiheadAttentionConfig,
    ) -> Result<MultiheadAttention> {
        as_one_call(|| {
            if embed_dim == 0 || num_heads == 0 || !embed_dim.is_multiple_of(num_heads) {
                let what = format!(
                    "num_heads must divide embed_dim, and neither be 0, got {num_heads} for {embed_dim}"
                );
                return Err(Error::argument(NAME, what));
            }
            if !(0.0..=1.0).contains(&config.dropout) {
                let what = format!("dropout must be from 0 to 1, got {}", config.dropout);
                return Err(Error::argument(NAME, what));
            }
            let MultiheadAttentionConfig { device, dtype, .. } = config;
            let (kdim, vdim) = (
                config.kdim.unwrap_or(embed_dim),
                config.vdim.unwrap_or(embed_dim),
            );
            let one = kdim == embed_dim && vdim == embed_dim;
            let projection =
                |wanted: bool, rows: usize, cols: usize| -> Result<Option<Parameter>> {
                    if !wanted {
                        return Ok(None);
                    }
                    let weight = Tensor::empty(&[rows, cols], dtype, device)?;
                    init::xavier_uniform_(&weight, 1.0)?;
                    Parameter::new(weight).map(Some)
                };
            let added = |wanted: bool| -> Result<Option<Parameter>> {
                if !wanted {
                    return Ok(None);
                }
                let row = Tensor::empty(&[1, 1, embed_dim], dtype, device)?;
                init::xavier_normal_(&row, 1.0)?;
                Parameter::new(row).map(Some)
            };
            let in_proj_bias = match config.bias {
                true => Some(Parameter::new(Tensor::full_of(
                    &[3 * embed_dim],
                    0.0,
                    dtype,
                    device,
                )?)?),
                false => None,
            };
            let linear = LinearConfig {
                bias: config.bias,
                device,
                dtype,
            };
            let out_proj = Linear::with(embed_dim, embed_dim, linear)?;
            if let Some(bias) = &out_proj.bias {
                init::zeros_(&bias.tensor())?;
            }
            Ok(MultiheadAttention {
                in_proj_weight: projection(one, 3 * embed_dim, embed_dim)?,
                q_proj_weight: projection(!one, embed_dim, embed_dim)?,
                k_proj_weight: projection(!one, embed_dim, kdim)?,
                v_proj_weight: projection(!one, embed_dim, vdim)?,
                in_proj_bias,
                bias_k: added(config.add_bias_kv)?,
                bias_v: added(config.add_bias_kv)?,
                out_proj,
                mode: Mode::new(),
                embed_dim,
                num_heads,
                dropout: config.dropout,
                batch_first: config.batch_first,
                add_zero_attn: config.add_zero_attn,
            })
        })
    }

    /// The output, of the query's shape, and the weights averaged over heads, `[batch, queries, keys]`.
    #[track_caller]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>)> {
        self.forward_with(query, key, value, Attend::default())
    }

    /// The output, of the query's shape, and the weights if they are wanted: `[batch, queries, keys]`, or
    /// `[batch, num_heads, queries, keys]` where they are not averaged. Inputs without a batch, `[length, width]`, give outputs
    /// without one.
    ///
    /// # Errors
    /// Shapes that don't go together.
    #[track_caller]
    pub fn forward_with(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: Attend<'_>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        as_one_call(|| self.attend(query, key, value, options)).within(
            self.in_proj_weight.as_ref().or(self.q_proj_weight.as_ref()),
            || format!("{NAME}({}, {})", self.embed_dim, self.num_heads),
        )
    }

    fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: Attend<'_>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let refuse = |what: String| {
            let operands = || {
                vec![
                    query.operand("query"),
                    key.operand("key"),
                    value.operand("value"),
                ]
            };
            Error::shape(NAME, what).with_operands(operands)
        };
        let dims = query.ndim();
        if !matches!(dims, 2 | 3) || key.ndim() != dims || value.ndim() != dims {
            return Err(refuse(format!(
                "query, key and value must all have 3 dimensions, or 2 without a batch, got {}, {} and {}",
                query.shape(),
                key.shape(),
                value.shape()
            )));
        }
        // One projection serves all three where they are one tensor.
        let is_same = |a: &Tensor, b: &Tensor| {
            a.shares_storage(b)
                && a.layout().offset() == b.layout().offset()
                && a.shape() == b.shape()
                && a.strides() == b.strides()
        };
        let same = is_same(query, key) && is_same(query, value);
        // [batch, length, width] from here on.
        let inner = |x: &Tensor| -> Result<Tensor> {
            match (dims, self.batch_first) {
                (2, _) => x.unsqueeze(0),
                (_, true) => Ok(x.clone()),
                (_, false) => x.transpose(0, 1),
            }
        };
        let [query, key, value] = [inner(query)?, inner(key)?, inner(value)?];
        let (batch, queries) = (query.shape()[0], query.shape()[1]);
        let widths = self.widths();
        let found = [&query, &key, &value].map(|x| x.shape()[2]);
        if found != widths
            || key.shape()[0] != batch
            || value.shape()[0] != batch
            || key.shape()[1] != value.shape()[1]
        {
            return Err(refuse(format!(
                "expected widths {widths:?}, equal batches, and as many keys as values, got {}, {} and {} ([batch, length, width])",
                query.shape(),
                key.shape(),
                value.shape()
            )));
        }
        let [q, mut k, mut v] = self.project(same, &query, &key, &value)?;
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            let row = |bias: &Parameter| {
                bias.tensor()
                    .expand(&[batch as isize, 1, self.embed_dim as isize])
            };
            k = Tensor::cat(&[&k, &row(bias_k)?], 1)?;
            v = Tensor::cat(&[&v, &row(bias_v)?], 1)?;
        }
        let width = self.embed_dim / self.num_heads;
        let heads = |x: &Tensor| -> Result<Tensor> {
            let sizes = [batch as isize, -1, self.num_heads as isize, width as isize];
            // A size of -1 says nothing where there are no elements.
            let sizes = [sizes[0], x.shape()[1] as isize, sizes[2], sizes[3]];
            x.reshape(&sizes)?.transpose(1, 2)
        };
        let (q, mut k, mut v) = (heads(&q)?, heads(&k)?, heads(&v)?);
        if self.add_zero_attn {
            let shape = [batch, self.num_heads, 1, width];
            let zeros = Tensor::full_of(&shape, 0.0, k.dtype(), k.device())?;
            k = Tensor::cat(&[&k, &zeros], 2)?;
            v = Tensor::cat(&[&v, &zeros], 2)?;
        }
        let given = key.shape()[1];
        let mask = self.mask(&options, [batch, queries, given], k.shape()[2] - given, &q)?;
        let dropout_p = if self.mode.is_training() {
            self.dropout
        } else {
            0.0
        };
        let (output, weights) = if options.need_weights {
            let scale = 1.0 / (width as f64).sqrt();
            let mut scores = q.mul(scale)?.matmul(&k.transpose(-2, -1)?)?;
            if let Some(mask) = &mask {
                scores = scores.add(mask)?;
            }
            let weights = scores.softmax(-1)?.dropout(dropout_p, true)?;
            (weights.matmul(&v)?, Some(weights))
        } else {
            let attention = Attention {
                attn_mask: mask.as_ref(),
                dropout_p,
                ..Attention::default()
            };
            (q.scaled_dot_product_attention(&k, &v, attention)?, None)
        };
        let sizes = [batch as isize, queries as isize, self.embed_dim as isize];
        let output = output.transpose(1, 2)?.reshape(&sizes)?;
        let weight = self.out_proj.weight.tensor();
        let bias = self.out_proj.bias.as_ref().map(Parameter::tensor);
        let output = output.linear(&weight, bias.as_ref())?;
        let output = match (dims, self.batch_first) {
            (2, _) => output.squeeze(0)?,
            (_, true) => output,
            (_, false) => output.transpose(0, 1)?,
        };
        let weights = match weights {
            Some(weights) if options.average_attn_weights => Some(weights.mean(&[1], false)?),
            weights => weights,
        };
        let weights = match weights {
            Some(weights) if dims == 2 => Some(weights.squeeze(0)?),
            weights => weights,
        };
        Ok((output, weights))
    }

    /// The widths of query, key and value.
    fn widths(&self) -> [usize; 3] {
        let width = |parameter: &Option<Parameter>| {
            let parameter = parameter.as_ref();
            parameter.map_or(self.embed_dim, |parameter| parameter.tensor().shape()[1])
        };
        [
            self.embed_dim,
            width(&self.k_proj_weight),
            width(&self.v_proj_weight),
        ]
    }

    fn project(
        &self,
        same: bool,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let width = self.embed_dim;
        let bias = self.in_proj_bias.as_ref().map(Parameter::tensor);
        if let (Some(weight), true) = (&self.in_proj_weight, same) {
            let all = query.linear(&weight.tensor(), bias.as_ref())?;
            let part = |number: usize| all.narrow(-1, number * width, width);
            return Ok([part(0)?, part(1)?, part(2)?]);
        }
        let own = [
            &self.q_proj_weight,
            &self.k_proj_weight,
            &self.v_proj_weight,
        ];
        let project = |number: usize, x: &Tensor| -> Result<Tensor> {
            let weight = match (&self.in_proj_weight, own[number]) {
                (Some(weight), _) => weight.tensor().narrow(0, number * width, width)?,
                (None, Some(weight)) => weight.tensor(),
                (None, None) => unreachable!("the constructor makes one of them"),
            };
            let bias = bias.as_ref();
            let bias = bias.map(|bias| bias.narrow(0, number * width, width));
            x.linear(&weight, bias.transpose()?.as_ref())
        };
        Ok([project(0, query)?, project(1, key)?, project(2, value)?])
    }

    /// What is added to the scores `[batch, heads, queries, keys + added]`, if anything; keys that were added are never left out.
    fn mask(
        &self,
        options: &Attend<'_>,
        [batch, queries, keys]: [usize; 3],
        added: usize,
        like: &Tensor,
    ) -> Result<Option<Tensor>> {
        let refuse = |mask: &Tensor, name: &'static str, expected: String| {
            let what = format!("{name} must be {expected}, got {}", mask.shape());
            Error::shape(NAME, what).with_operands(|| vec![mask.operand(name)])
        };
        let mut total: Option<Tensor> = None;
        let mut add = |mask: Tensor| -> Result<()> {
            total = Some(match total.take() {
                None => mask,
                Some(total) => total.add(&mask)?,
            });
            Ok(())
        };
        if let Some(mask) = options.attn_mask {
            let numbers = added_numbers(mask, like)?;
            let heads = self.num_heads;
            let sizes = &mask.shape()[..];
            let shaped = if sizes == [queries, keys] {
                numbers.reshape(&[1, 1, queries as isize, keys as isize])?
            } else if sizes == [batch * heads, queries, keys] {
                let sizes = [batch, heads, queries, keys].map(|size| size as isize);
                numbers.reshape(&sizes)?
            } else {
                let expected = format!(
                    "[{queries}, {keys}] or [{}, {queries}, {keys}]",
                    batch * heads
                );
                return Err(refuse(mask, "attn_mask", expected));
            };
            add(shaped)?;
        }
        if options.is_causal && options.attn_mask.is_none() {
            let later = Tensor::full_of(&[queries, keys], true, DType::Bool, like.device())?;
            let later = later.triu(1)?;
            add(added_numbers(&later, like)?.reshape(&[1, 1, queries as isize, keys as isize])?)?;
        }
        if let Some(mask) = options.key_padding_mask {
            let fits =
                mask.shape()[..] == [batch, keys] || (mask.shape()[..] == [keys] && batch == 1);
            if !fits {
                return Err(refuse(
                    mask,
                    "key_padding_mask",
                    format!("[{batch}, {keys}]"),
                ));
            }
            let numbers = added_numbers(mask, like)?;
            add(numbers.reshape(&[batch as isize, 1, 1, keys as isize])?)?;
        }
        match total {
            Some(mask) if added > 0 => mask.pad(&[0, added as isize], Default::default()).map(Some),
            mask => Ok(mask),
        }
    }
}

/// A mask as numbers of the dtype of `like`: minus infinity for true.
fn added_numbers(mask: &Tensor, like: &Tensor) -> Result<Tensor> {
    if mask.dtype() != DType::Bool {
        return mask.to_dtype(like.dtype());
    }
    let number = |value: f64| Tensor::full_of(&[], value, like.dtype(), like.device());
    mask.where_(&number(f64::NEG_INFINITY)?, &number(0.0)?)
}
