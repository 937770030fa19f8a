//! Attention and transformers by PyTorch's names.

use fireclay_nn::{
    Attend, MultiheadAttention, MultiheadAttentionConfig, SequenceMask, Transformer,
    TransformerActivation, TransformerConfig, TransformerDecoderLayer, TransformerEncoderLayer,
    TransformerMasks,
};
use serde_json::Value;

use super::run_made;
use crate::call::{Call, Refusal};
use crate::judge::Run;

pub(super) fn run(call: &Call<'_>) -> Option<Result<Run, Refusal>> {
    Some(match call.op() {
        "nn.MultiheadAttention" => attention(call),
        "nn.TransformerEncoderLayer" => encoder_layer(call),
        "nn.TransformerDecoderLayer" => decoder_layer(call),
        "nn.Transformer" => transformer(call),
        _ => return None,
    })
}

fn attention(call: &Call<'_>) -> Result<Run, Refusal> {
    let width = |name: &str| Ok::<_, Refusal>(call.maybe_int(name)?.map(|width| width as usize));
    let config = MultiheadAttentionConfig {
        dropout: call.float("dropout", 0.0)?,
        bias: call.flag("bias", true),
        add_bias_kv: call.flag("add_bias_kv", false),
        add_zero_attn: call.flag("add_zero_attn", false),
        kdim: width("kdim")?,
        vdim: width("vdim")?,
        batch_first: call.flag("batch_first", false),
        ..MultiheadAttentionConfig::default()
    };
    let (embed_dim, heads) = (call.size("embed_dim")?, call.size("num_heads")?);
    let module = MultiheadAttention::with(embed_dim, heads, config)?;
    run_made(call, module, |module| {
        let flag = |name: &str, default: bool| match &call.case().field("forward")[name] {
            Value::Bool(value) => *value,
            _ => default,
        };
        let options = Attend {
            key_padding_mask: call.maybe_tensor("key_padding_mask")?,
            attn_mask: call.maybe_tensor("attn_mask")?,
            need_weights: flag("need_weights", true),
            average_attn_weights: flag("average_attn_weights", true),
            is_causal: flag("is_causal", false),
        };
        let query = call.tensor("query")?;
        let (key, value) = (call.tensor("key")?, call.tensor("value")?);
        let (output, weights) = module.forward_with(query, key, value, options)?;
        Ok([Some(output), weights].into_iter().flatten().collect())
    })
}

fn config(call: &Call<'_>) -> Result<TransformerConfig, Refusal> {
    Ok(TransformerConfig {
        dim_feedforward: call.int("dim_feedforward", 2048)? as usize,
        dropout: call.float("dropout", 0.1)?,
        activation: match call.text("activation") {
            Some("gelu") => TransformerActivation::GELU,
            _ => TransformerActivation::ReLU,
        },
        layer_norm_eps: call.float("layer_norm_eps", 1e-5)?,
        batch_first: call.flag("batch_first", false),
        norm_first: call.flag("norm_first", false),
        bias: call.flag("bias", true),
        ..TransformerConfig::default()
    })
}

/// The masks of the sequence `name`.
fn masks<'a>(call: &Call<'a>, name: &str) -> Result<SequenceMask<'a>, Refusal> {
    Ok(SequenceMask {
        mask: call.maybe_tensor(&format!("{name}_mask"))?,
        key_padding_mask: call.maybe_tensor(&format!("{name}_key_padding_mask"))?,
        is_causal: false,
    })
}

fn encoder_layer(call: &Call<'_>) -> Result<Run, Refusal> {
    let (d_model, nhead) = (call.size("d_model")?, call.size("nhead")?);
    let module = TransformerEncoderLayer::with(d_model, nhead, config(call)?)?;
    run_made(call, module, |module| {
        Ok(vec![
            module.forward_with(call.tensor("src")?, masks(call, "src")?)?,
        ])
    })
}

fn decoder_layer(call: &Call<'_>) -> Result<Run, Refusal> {
    let (d_model, nhead) = (call.size("d_model")?, call.size("nhead")?);
    let module = TransformerDecoderLayer::with(d_model, nhead, config(call)?)?;
    run_made(call, module, |module| {
        let (tgt, memory) = (call.tensor("tgt")?, call.tensor("memory")?);
        let (of_tgt, of_memory) = (masks(call, "tgt")?, masks(call, "memory")?);
        Ok(vec![module.forward_with(tgt, memory, of_tgt, of_memory)?])
    })
}

fn transformer(call: &Call<'_>) -> Result<Run, Refusal> {
    let layers = [
        call.int("num_encoder_layers", 6)? as usize,
        call.int("num_decoder_layers", 6)? as usize,
    ];
    let (d_model, nhead) = (call.int("d_model", 512)?, call.int("nhead", 8)?);
    let module = Transformer::with(d_model as usize, nhead as usize, layers, config(call)?)?;
    run_made(call, module, |module| {
        let masks = TransformerMasks {
            src: masks(call, "src")?,
            tgt: masks(call, "tgt")?,
            memory: masks(call, "memory")?,
        };
        let (src, tgt) = (call.tensor("src")?, call.tensor("tgt")?);
        Ok(vec![module.forward_with(src, tgt, masks)?])
    })
}
