//! Layers by PyTorch's names: from one tensor to one.

use fireclay_nn::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormConfig, Bilinear, Conv1d, Conv2d, Conv3d,
    ConvConfig, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeConfig, Embedding,
    EmbeddingBag, EmbeddingBagConfig, EmbeddingConfig, GroupNorm, GroupNormConfig, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Module, PReLU, PReLUConfig, PaddingMode, RMSNorm, RMSNormConfig,
};
use fireclay_tensor::EmbeddingBagMode;
use serde_json::Value;

use super::run_made;
use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

pub(super) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    match call.op() {
        "nn.Bilinear" => return bilinear(call),
        "nn.EmbeddingBag" => return embedding_bag(call),
        _ => {}
    }
    run_made(call, layer(call)?, |module| {
        // RMSNorm calls it x.
        let input = match call.maybe_tensor("input")? {
            Some(input) => input,
            None => call.tensor("x")?,
        };
        Ok(vec![module.forward(input)?])
    })
}

fn layer(call: &Call<'_>) -> Result<Box<dyn Module>, Refusal> {
    Ok(match call.op() {
        "nn.Linear" => {
            let config = LinearConfig {
                bias: call.flag("bias", true),
                ..LinearConfig::default()
            };
            Box::new(Linear::with(
                call.size("in_features")?,
                call.size("out_features")?,
                config,
            )?)
        }
        "nn.Conv1d" => {
            let (inputs, outputs, kernel, config) = conv::<1>(call)?;
            Box::new(Conv1d::with(inputs, outputs, kernel, config)?)
        }
        "nn.Conv2d" => {
            let (inputs, outputs, kernel, config) = conv::<2>(call)?;
            Box::new(Conv2d::with(inputs, outputs, kernel, config)?)
        }
        "nn.Conv3d" => {
            let (inputs, outputs, kernel, config) = conv::<3>(call)?;
            Box::new(Conv3d::with(inputs, outputs, kernel, config)?)
        }
        "nn.ConvTranspose1d" => {
            let (inputs, outputs, kernel, config) = conv_transpose::<1>(call)?;
            Box::new(ConvTranspose1d::with(inputs, outputs, kernel, config)?)
        }
        "nn.ConvTranspose2d" => {
            let (inputs, outputs, kernel, config) = conv_transpose::<2>(call)?;
            Box::new(ConvTranspose2d::with(inputs, outputs, kernel, config)?)
        }
        "nn.ConvTranspose3d" => {
            let (inputs, outputs, kernel, config) = conv_transpose::<3>(call)?;
            Box::new(ConvTranspose3d::with(inputs, outputs, kernel, config)?)
        }
        "nn.PReLU" => Box::new(PReLU::with(PReLUConfig {
            num_parameters: call.int("num_parameters", 1)? as usize,
            init: call.float("init", 0.25)?,
            ..PReLUConfig::default()
        })?),
        "nn.GroupNorm" => {
            let config = GroupNormConfig {
                eps: call.float("eps", 1e-5)?,
                affine: call.flag("affine", true),
                ..GroupNormConfig::default()
            };
            let (groups, channels) = (call.size("num_groups")?, call.size("num_channels")?);
            Box::new(GroupNorm::with(groups, channels, config)?)
        }
        "nn.RMSNorm" => {
            let config = RMSNormConfig {
                eps: call.scalar("eps")?.map(|eps| eps.to_f64()),
                weight: call.flag("elementwise_affine", true),
                ..RMSNormConfig::default()
            };
            Box::new(RMSNorm::with(&call.sizes("normalized_shape")?, config)?)
        }
        "nn.InstanceNorm1d" | "nn.InstanceNorm2d" | "nn.InstanceNorm3d" => {
            let config = InstanceNormConfig {
                eps: call.float("eps", 1e-5)?,
                momentum: call.float("momentum", 0.1)?,
                affine: call.flag("affine", false),
                track_running_stats: call.flag("track_running_stats", false),
                ..InstanceNormConfig::default()
            };
            let features = call.size("num_features")?;
            match call.op() {
                "nn.InstanceNorm1d" => Box::new(InstanceNorm1d::with(features, config)?),
                "nn.InstanceNorm2d" => Box::new(InstanceNorm2d::with(features, config)?),
                _ => Box::new(InstanceNorm3d::with(features, config)?),
            }
        }
        "nn.Embedding" => {
            let config = EmbeddingConfig {
                padding_idx: call.maybe_int("padding_idx")?.map(|index| index as usize),
                scale_grad_by_freq: call.flag("scale_grad_by_freq", false),
                ..EmbeddingConfig::default()
            };
            let (count, width) = (call.size("num_embeddings")?, call.size("embedding_dim")?);
            Box::new(Embedding::with(count, width, config)?)
        }
        "nn.LayerNorm" => {
            let affine = call.flag("elementwise_affine", true);
            let config = LayerNormConfig {
                eps: call.float("eps", 1e-5)?,
                weight: affine,
                bias: affine && call.flag("bias", true),
                ..LayerNormConfig::default()
            };
            Box::new(LayerNorm::with(&call.sizes("normalized_shape")?, config)?)
        }
        "nn.BatchNorm1d" | "nn.BatchNorm2d" | "nn.BatchNorm3d" => {
            let momentum = match call.case().field("args").get("momentum") {
                Some(Value::Null) => {
                    let _ = call.argument("momentum");
                    None
                }
                _ => Some(call.float("momentum", 0.1)?),
            };
            let config = BatchNormConfig {
                eps: call.float("eps", 1e-5)?,
                momentum,
                affine: call.flag("affine", true),
                track_running_stats: call.flag("track_running_stats", true),
                ..BatchNormConfig::default()
            };
            let features = call.size("num_features")?;
            match call.op() {
                "nn.BatchNorm1d" => Box::new(BatchNorm1d::with(features, config)?),
                "nn.BatchNorm2d" => Box::new(BatchNorm2d::with(features, config)?),
                _ => Box::new(BatchNorm3d::with(features, config)?),
            }
        }
        op => return Err(unsupported(format!("no module {op}"))),
    })
}

type Made<const N: usize, C> = Result<(usize, usize, [usize; N], C), Refusal>;

fn conv<const N: usize>(call: &Call<'_>) -> Made<N, ConvConfig<N>> {
    let same = call.text("padding") == Some("same");
    let named = call.text("padding").is_some();
    let config = ConvConfig {
        stride: call.each("stride", [1; N])?,
        padding: match named {
            true => [0; N],
            false => call.each("padding", [0; N])?,
        },
        same,
        padding_mode: match call.text("padding_mode") {
            Some("reflect") => PaddingMode::Reflect,
            Some("replicate") => PaddingMode::Replicate,
            Some("circular") => PaddingMode::Circular,
            None | Some("zeros") => PaddingMode::Zeros,
            Some(mode) => return Err(unsupported(format!("padding_mode {mode}"))),
        },
        dilation: call.each("dilation", [1; N])?,
        groups: call.int("groups", 1)? as usize,
        bias: call.flag("bias", true),
        ..ConvConfig::default()
    };
    let (inputs, outputs) = (call.size("in_channels")?, call.size("out_channels")?);
    Ok((inputs, outputs, call.each("kernel_size", [1; N])?, config))
}

fn conv_transpose<const N: usize>(call: &Call<'_>) -> Made<N, ConvTransposeConfig<N>> {
    let config = ConvTransposeConfig {
        stride: call.each("stride", [1; N])?,
        padding: call.each("padding", [0; N])?,
        output_padding: call.each("output_padding", [0; N])?,
        dilation: call.each("dilation", [1; N])?,
        groups: call.int("groups", 1)? as usize,
        bias: call.flag("bias", true),
        ..ConvTransposeConfig::default()
    };
    let (inputs, outputs) = (call.size("in_channels")?, call.size("out_channels")?);
    Ok((inputs, outputs, call.each("kernel_size", [1; N])?, config))
}

fn bilinear(call: &Call<'_>) -> Result<Run, Refusal> {
    let config = LinearConfig {
        bias: call.flag("bias", true),
        ..LinearConfig::default()
    };
    let sizes = [call.size("in1_features")?, call.size("in2_features")?];
    let module = Bilinear::with(sizes, call.size("out_features")?, config)?;
    run_made(call, module, |module| {
        let (x1, x2) = (call.tensor("input1")?, call.tensor("input2")?);
        Ok(vec![module.forward(x1, x2)?])
    })
}

fn embedding_bag(call: &Call<'_>) -> Result<Run, Refusal> {
    let config = EmbeddingBagConfig {
        mode: match call.text("mode") {
            Some("sum") => EmbeddingBagMode::Sum,
            Some("max") => EmbeddingBagMode::Max,
            None | Some("mean") => EmbeddingBagMode::Mean,
            Some(mode) => return Err(unsupported(format!("mode {mode}"))),
        },
        padding_idx: call.maybe_int("padding_idx")?.map(|index| index as usize),
        include_last_offset: call.flag("include_last_offset", false),
        scale_grad_by_freq: call.flag("scale_grad_by_freq", false),
        ..EmbeddingBagConfig::default()
    };
    let (count, width) = (call.size("num_embeddings")?, call.size("embedding_dim")?);
    run_made(call, EmbeddingBag::with(count, width, config)?, |module| {
        let weights = call.maybe_tensor("per_sample_weights")?;
        let (input, offsets) = (call.tensor("input")?, call.maybe_tensor("offsets")?);
        Ok(vec![module.forward_with(input, offsets, weights)?])
    })
}
