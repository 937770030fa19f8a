//! What `torch.nn.functional` has besides activations and losses.

use fireclay_tensor::{
    Attention, AvgPool2d, BatchNorm, Conv2dOptions, InterpolateMode, InterpolateTo, Pool2d,
};

use serde_json::Value;

use super::{Answer, Call, Refusal, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "nn.functional.linear" => linear(call),
        "nn.functional.embedding" => embedding(call),
        "nn.functional.conv2d" => conv2d(call),
        "nn.functional.max_pool2d" => max_pool2d(call),
        "nn.functional.avg_pool2d" => avg_pool2d(call),
        "nn.functional.adaptive_avg_pool2d" => adaptive_avg_pool2d(call),
        "nn.functional.interpolate" => interpolate(call),
        "nn.functional.batch_norm" => batch_norm(call),
        "nn.functional.layer_norm" => layer_norm(call),
        "nn.functional.rms_norm" => rms_norm(call),
        "nn.functional.group_norm" => group_norm(call),
        "nn.functional.dropout" => dropout(call),
        "nn.functional.scaled_dot_product_attention" => attention(call),
        _ => return None,
    })
}

fn linear(call: &Call<'_>) -> Answer {
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    one(call.tensor("input")?.linear(weight, bias))
}

fn embedding(call: &Call<'_>) -> Answer {
    if call.maybe_int("padding_idx")?.is_some() {
        return Err(unsupported("padding_idx"));
    }
    if call.flag("scale_grad_by_freq", false) {
        return Err(unsupported("scale_grad_by_freq"));
    }
    one(call.tensor("weight")?.embedding(call.tensor("input")?))
}

fn conv2d(call: &Call<'_>) -> Answer {
    let options = Conv2dOptions {
        stride: call.pair("stride", [1, 1])?,
        padding: call.pair("padding", [0, 0])?,
        dilation: call.pair("dilation", [1, 1])?,
        groups: match call.maybe_int("groups")? {
            Some(_) => call.size("groups")?,
            None => 1,
        },
    };
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    one(call.tensor("input")?.conv2d(weight, bias, options))
}

fn interpolate(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    if call.flag("antialias", false) {
        return Err(unsupported("antialias"));
    }
    let align_corners = call.flag("align_corners", false);
    let mode = match call.text("mode") {
        None | Some("nearest")
            if call
                .argument("align_corners")
                .is_some_and(|flag| !flag.is_null()) =>
        {
            return Err(unsupported(
                "align_corners of nearest, which can't be written",
            ));
        }
        None | Some("nearest") => InterpolateMode::Nearest,
        Some("bilinear") => InterpolateMode::Bilinear { align_corners },
        Some(_) => return Err(unsupported("this mode")),
    };
    if x.ndim() != 4 && mode == InterpolateMode::Nearest {
        return Err(unsupported("images that are not of four dimensions"));
    }
    let factors: Vec<f64> = match call.argument("scale_factor") {
        Some(Value::Array(factors)) => factors.iter().filter_map(Value::as_f64).collect(),
        Some(factor) => factor.as_f64().map_or(vec![], |factor| vec![factor; 2]),
        None => vec![],
    };
    let &[height, width] = &factors[..] else {
        return one(x.interpolate(InterpolateTo::Size(call.pair("size", [0, 0])?), mode));
    };
    let to = match call.flag("recompute_scale_factor", false) {
        true => {
            let scaled = |dim: usize, factor: f64| (x.shape()[dim] as f64 * factor) as usize;
            InterpolateTo::Size([scaled(2, height), scaled(3, width)])
        }
        false => InterpolateTo::Scale([height, width]),
    };
    one(x.interpolate(to, mode))
}

fn window(call: &Call<'_>) -> Result<Pool2d, Refusal> {
    let kernel = call.pair("kernel_size", [0, 0])?;
    Ok(Pool2d {
        kernel,
        stride: call.pair("stride", kernel)?,
        padding: call.pair("padding", [0, 0])?,
        dilation: call.pair("dilation", [1, 1])?,
        ceil_mode: call.flag("ceil_mode", false),
    })
}

fn max_pool2d(call: &Call<'_>) -> Answer {
    let (x, window) = (call.tensor("input")?, window(call)?);
    if call.flag("return_indices", false) {
        let (values, indices) = x.max_pool2d_with_indices(window)?;
        return Ok(vec![values, indices]);
    }
    one(x.max_pool2d(window))
}

fn avg_pool2d(call: &Call<'_>) -> Answer {
    let divisor_override = match call.maybe_int("divisor_override")? {
        Some(_) => Some(call.size("divisor_override")?),
        None => None,
    };
    let window = AvgPool2d {
        window: window(call)?,
        count_include_pad: call.flag("count_include_pad", true),
        divisor_override,
    };
    one(call.tensor("input")?.avg_pool2d(window))
}

fn adaptive_avg_pool2d(call: &Call<'_>) -> Answer {
    if call
        .argument("output_size")
        .is_some_and(|size| size.to_string().contains("null"))
    {
        return Err(unsupported("an output size of None"));
    }
    let size = call.pair("output_size", [0, 0])?;
    one(call.tensor("input")?.adaptive_avg_pool2d(size))
}

fn batch_norm(call: &Call<'_>) -> Answer {
    let mean = call.maybe_tensor("running_mean")?;
    let variance = call.maybe_tensor("running_var")?;
    let options = BatchNorm {
        weight: call.maybe_tensor("weight")?,
        bias: call.maybe_tensor("bias")?,
        running: mean.zip(variance),
        training: call.flag("training", false),
        momentum: call.float("momentum", 0.1)?,
        eps: call.float("eps", 1e-5)?,
    };
    if options.running.is_none() && !options.training {
        return Err(Refusal::RuledOut("evaluation without statistics".into()));
    }
    one(call.tensor("input")?.batch_norm(options))
}

fn layer_norm(call: &Call<'_>) -> Answer {
    let shape = call.sizes("normalized_shape")?;
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    let eps = call.float("eps", 1e-5)?;
    one(call.tensor("input")?.layer_norm(&shape, weight, bias, eps))
}

fn rms_norm(call: &Call<'_>) -> Answer {
    let shape = call.sizes("normalized_shape")?;
    let eps = call.scalar("eps")?.map(|eps| eps.to_f64());
    one(call
        .tensor("input")?
        .rms_norm(&shape, call.maybe_tensor("weight")?, eps))
}

fn group_norm(call: &Call<'_>) -> Answer {
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    let (groups, eps) = (call.size("num_groups")?, call.float("eps", 1e-5)?);
    one(call.tensor("input")?.group_norm(groups, weight, bias, eps))
}

fn dropout(call: &Call<'_>) -> Answer {
    let (p, training) = (call.float("p", 0.5)?, call.flag("training", true));
    one(call.tensor("input")?.dropout(p, training))
}

fn attention(call: &Call<'_>) -> Answer {
    let [query, key, value] = [
        call.tensor("query")?,
        call.tensor("key")?,
        call.tensor("value")?,
    ];
    let scale = match call.float("scale", f64::NAN)? {
        scale if scale.is_nan() => None,
        scale => Some(scale),
    };
    let options = Attention {
        attn_mask: call.maybe_tensor("attn_mask")?,
        is_causal: call.flag("is_causal", false),
        scale,
        enable_gqa: call.flag("enable_gqa", false),
        dropout_p: call.float("dropout_p", 0.0)?,
    };
    one(query.scaled_dot_product_attention(key, value, options))
}
