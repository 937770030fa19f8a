//! Layers by PyTorch's names: from one tensor to one.

use fireclay_nn::{
    BatchNorm1d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Embedding, EmbeddingConfig,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, Module,
};
use serde_json::Value;

use super::run_made;
use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

pub(super) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    run_made(call, layer(call)?, |module| {
        Ok(vec![module.forward(call.tensor("input")?)?])
    })
}

fn layer(call: &Call<'_>) -> Result<Box<dyn Module>, Refusal> {
    if let Some(mode) = call.text("padding_mode").filter(|mode| *mode != "zeros") {
        return Err(unsupported(format!("padding_mode {mode}")));
    }
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
        "nn.Conv2d" => {
            let config = Conv2dConfig {
                stride: call.pair("stride", [1, 1])?,
                padding: call.pair("padding", [0, 0])?,
                dilation: call.pair("dilation", [1, 1])?,
                groups: call.int("groups", 1)? as usize,
                bias: call.flag("bias", true),
                ..Conv2dConfig::default()
            };
            let (inputs, outputs) = (call.size("in_channels")?, call.size("out_channels")?);
            Box::new(Conv2d::with(
                inputs,
                outputs,
                call.pair("kernel_size", [1, 1])?,
                config,
            )?)
        }
        "nn.Embedding" => {
            let config = EmbeddingConfig {
                padding_idx: call.maybe_int("padding_idx")?.map(|index| index as usize),
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
        "nn.BatchNorm1d" | "nn.BatchNorm2d" => {
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
            if call.op() == "nn.BatchNorm1d" {
                Box::new(BatchNorm1d::with(features, config)?)
            } else {
                Box::new(BatchNorm2d::with(features, config)?)
            }
        }
        op => return Err(unsupported(format!("no module {op}"))),
    })
}
