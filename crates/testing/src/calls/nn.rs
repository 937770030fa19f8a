//! What `torch.nn.functional` has besides activations and losses.

use fireclay_tensor::{
    Attention, AvgPool, BatchNorm, Blocks, ConvOptions, ConvTransposeOptions, EmbeddingBag,
    EmbeddingBagMode, EmbeddingOptions, GridSample, GridSampleMode, GridSamplePadding,
    InstanceNorm, InterpolateMode, InterpolateTo, Pool, Tensor,
};

use serde_json::Value;

use super::{Answer, Call, Refusal, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    known(call).transpose()
}

fn known(call: &Call<'_>) -> Result<Option<Vec<Tensor>>, Refusal> {
    let answer = match call.op() {
        "nn.functional.linear" => linear(call),
        "nn.functional.embedding" => embedding(call),
        "nn.functional.bilinear" => bilinear(call),
        "nn.functional.embedding_bag" => embedding_bag(call),
        "nn.functional.conv1d" => conv(call, Tensor::conv1d),
        "nn.functional.conv2d" => conv(call, Tensor::conv2d),
        "nn.functional.conv3d" => conv(call, Tensor::conv3d),
        "nn.functional.conv_transpose1d" => conv_transpose(call, Tensor::conv_transpose1d),
        "nn.functional.conv_transpose2d" => conv_transpose(call, Tensor::conv_transpose2d),
        "nn.functional.conv_transpose3d" => conv_transpose(call, Tensor::conv_transpose3d),
        "nn.functional.max_pool1d" => max_pool(call, Tensor::max_pool1d_with_indices),
        "nn.functional.max_pool2d" => max_pool(call, Tensor::max_pool2d_with_indices),
        "nn.functional.max_pool3d" => max_pool(call, Tensor::max_pool3d_with_indices),
        "nn.functional.avg_pool1d" => avg_pool(call, Tensor::avg_pool1d),
        "nn.functional.avg_pool2d" => avg_pool(call, Tensor::avg_pool2d),
        "nn.functional.avg_pool3d" => avg_pool(call, Tensor::avg_pool3d),
        "nn.functional.lp_pool1d" => lp_pool::<1>(call),
        "nn.functional.lp_pool2d" => lp_pool::<2>(call),
        "nn.functional.lp_pool3d" => lp_pool::<3>(call),
        "nn.functional.adaptive_avg_pool1d" => adaptive(call, Tensor::adaptive_avg_pool1d),
        "nn.functional.adaptive_avg_pool2d" => adaptive(call, Tensor::adaptive_avg_pool2d),
        "nn.functional.adaptive_avg_pool3d" => adaptive(call, Tensor::adaptive_avg_pool3d),
        "nn.functional.adaptive_max_pool1d" => adaptive_max::<1>(call),
        "nn.functional.adaptive_max_pool2d" => adaptive_max::<2>(call),
        "nn.functional.adaptive_max_pool3d" => adaptive_max::<3>(call),
        "nn.functional.max_unpool1d" => max_unpool::<1>(call),
        "nn.functional.max_unpool2d" => max_unpool::<2>(call),
        "nn.functional.max_unpool3d" => max_unpool::<3>(call),
        "nn.functional.instance_norm" => instance_norm(call),
        "nn.functional.local_response_norm" => local_response_norm(call),
        "nn.functional.normalize" => normalize(call),
        "nn.functional.cosine_similarity" => cosine_similarity(call),
        "nn.functional.pairwise_distance" => pairwise_distance(call),
        "nn.functional.alpha_dropout" => alpha_dropout(call),
        "nn.functional.dropout2d" => dropout2d(call),
        "nn.functional.grid_sample" => grid_sample(call),
        "nn.functional.affine_grid" => affine_grid(call),
        "nn.functional.unfold" => unfold(call),
        "nn.functional.fold" => fold(call),
        "nn.functional.pixel_shuffle" => one(call
            .tensor("input")?
            .pixel_shuffle(call.size("upscale_factor")?)),
        "nn.functional.pixel_unshuffle" => one(call
            .tensor("input")?
            .pixel_unshuffle(call.size("downscale_factor")?)),
        "nn.functional.channel_shuffle" => {
            one(call.tensor("input")?.channel_shuffle(call.size("groups")?))
        }
        "nn.functional.interpolate" => interpolate(call),
        "nn.functional.batch_norm" => batch_norm(call),
        "nn.functional.layer_norm" => layer_norm(call),
        "nn.functional.rms_norm" => rms_norm(call),
        "nn.functional.group_norm" => group_norm(call),
        "nn.functional.dropout" => dropout(call),
        "nn.functional.scaled_dot_product_attention" => attention(call),
        _ => return Ok(None),
    };
    answer.map(Some)
}

fn linear(call: &Call<'_>) -> Answer {
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    one(call.tensor("input")?.linear(weight, bias))
}

fn embedding_options(call: &Call<'_>) -> Result<EmbeddingOptions, Refusal> {
    let count = call.tensor("weight")?.shape()[0] as i64;
    let padding = call.maybe_int("padding_idx")?;
    Ok(EmbeddingOptions {
        padding_idx: padding.map(|row| if row < 0 { row + count } else { row } as usize),
        scale_grad_by_freq: call.flag("scale_grad_by_freq", false),
    })
}

fn embedding(call: &Call<'_>) -> Answer {
    let weight = call.tensor("weight")?;
    one(weight.embedding_with(call.tensor("input")?, embedding_options(call)?))
}

fn embedding_bag(call: &Call<'_>) -> Answer {
    let options = EmbeddingBag {
        offsets: call.maybe_tensor("offsets")?,
        include_last_offset: call.flag("include_last_offset", false),
        mode: match call.text("mode") {
            Some("sum") => EmbeddingBagMode::Sum,
            Some("max") => EmbeddingBagMode::Max,
            _ => EmbeddingBagMode::Mean,
        },
        per_sample_weights: call.maybe_tensor("per_sample_weights")?,
        rows: embedding_options(call)?,
    };
    let weight = call.tensor("weight")?;
    one(weight.embedding_bag(call.tensor("input")?, options))
}

fn bilinear(call: &Call<'_>) -> Answer {
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    one(call
        .tensor("input1")?
        .bilinear(call.tensor("input2")?, weight, bias))
}

fn groups(call: &Call<'_>) -> Result<usize, Refusal> {
    match call.maybe_int("groups")? {
        Some(_) => call.size("groups"),
        None => Ok(1),
    }
}

type Conv<O> = fn(&Tensor, &Tensor, Option<&Tensor>, O) -> fireclay_tensor::Result<Tensor>;

fn conv<const N: usize>(call: &Call<'_>, op: Conv<ConvOptions<N>>) -> Answer {
    let named = call.text("padding");
    let options = ConvOptions {
        stride: call.each("stride", [1; N])?,
        padding: match named {
            Some(_) => [0; N],
            None => call.each("padding", [0; N])?,
        },
        dilation: call.each("dilation", [1; N])?,
        groups: groups(call)?,
    };
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    match named {
        Some("same") => one(call.tensor("input")?.conv_same(weight, bias, options)),
        _ => one(op(call.tensor("input")?, weight, bias, options)),
    }
}

fn conv_transpose<const N: usize>(call: &Call<'_>, op: Conv<ConvTransposeOptions<N>>) -> Answer {
    let options = ConvTransposeOptions {
        stride: call.each("stride", [1; N])?,
        padding: call.each("padding", [0; N])?,
        output_padding: call.each("output_padding", [0; N])?,
        dilation: call.each("dilation", [1; N])?,
        groups: groups(call)?,
    };
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    one(op(call.tensor("input")?, weight, bias, options))
}

fn interpolate(call: &Call<'_>) -> Answer {
    match call.tensor("input")?.ndim() {
        3 => interpolate_dims::<1>(call),
        4 => interpolate_dims::<2>(call),
        5 => interpolate_dims::<3>(call),
        _ => Err(Refusal::RuledOut(
            "images of other dimensions than 1 to 3".into(),
        )),
    }
}

fn interpolate_dims<const N: usize>(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    let antialias = call.flag("antialias", false);
    let given = call
        .argument("align_corners")
        .is_some_and(|flag| !flag.is_null());
    let align_corners = call.flag("align_corners", false);
    let mode = match (call.text("mode").unwrap_or("nearest"), antialias) {
        ("nearest" | "nearest-exact" | "area", _) if given => {
            return Err(Refusal::RuledOut("align_corners of nearest".into()));
        }
        ("nearest", false) => InterpolateMode::Nearest,
        ("nearest-exact", false) => InterpolateMode::NearestExact,
        ("area", false) => InterpolateMode::Area,
        ("linear", false) => InterpolateMode::Linear { align_corners },
        ("bilinear", false) => InterpolateMode::Bilinear { align_corners },
        ("trilinear", false) => InterpolateMode::Trilinear { align_corners },
        ("bicubic", false) => InterpolateMode::Bicubic { align_corners },
        ("bilinear", true) => InterpolateMode::BilinearAntialiased { align_corners },
        ("bicubic", true) => InterpolateMode::BicubicAntialiased { align_corners },
        _ => return Err(unsupported("this mode")),
    };
    let factors: Vec<f64> = match call.argument("scale_factor") {
        Some(Value::Array(factors)) => factors.iter().filter_map(Value::as_f64).collect(),
        Some(factor) => factor.as_f64().map_or(vec![], |factor| vec![factor; N]),
        None => vec![],
    };
    let Ok(factors) = <[f64; N]>::try_from(factors) else {
        return one(x.interpolate(InterpolateTo::Size(call.each("size", [0; N])?), mode));
    };
    if call.argument("size").is_some_and(|size| !size.is_null()) {
        return Err(Refusal::RuledOut("a size and a factor".into()));
    }
    let to = match call.flag("recompute_scale_factor", false) {
        true => {
            let scaled = |dim: usize| (x.shape()[2 + dim] as f64 * factors[dim]) as usize;
            InterpolateTo::Size(std::array::from_fn(scaled))
        }
        false => InterpolateTo::Scale(factors),
    };
    one(x.interpolate(to, mode))
}

fn window<const N: usize>(call: &Call<'_>) -> Result<Pool<N>, Refusal> {
    let kernel = call.each("kernel_size", [0; N])?;
    Ok(Pool {
        kernel,
        stride: call.each("stride", kernel)?,
        padding: call.each("padding", [0; N])?,
        dilation: call.each("dilation", [1; N])?,
        ceil_mode: call.flag("ceil_mode", false),
    })
}

type Pooled = fireclay_tensor::Result<(Tensor, Tensor)>;

/// The values, and the places where they are asked for.
fn chosen(call: &Call<'_>, pooled: Pooled) -> Answer {
    let (values, places) = pooled?;
    match call.flag("return_indices", false) {
        true => Ok(vec![values, places]),
        false => Ok(vec![values]),
    }
}

fn max_pool<const N: usize>(call: &Call<'_>, op: fn(&Tensor, Pool<N>) -> Pooled) -> Answer {
    chosen(call, op(call.tensor("input")?, window(call)?))
}

fn avg_pool<const N: usize>(
    call: &Call<'_>,
    op: fn(&Tensor, AvgPool<N>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let divisor_override = match call.maybe_int("divisor_override")? {
        Some(_) => Some(call.size("divisor_override")?),
        None => None,
    };
    let window = AvgPool {
        window: window(call)?,
        count_include_pad: call.flag("count_include_pad", true),
        divisor_override,
    };
    one(op(call.tensor("input")?, window))
}

fn lp_pool<const N: usize>(call: &Call<'_>) -> Answer {
    let norm_type = call.float("norm_type", 2.0)?;
    one(call.tensor("input")?.lp_pool::<N>(norm_type, window(call)?))
}

/// An output size, in which None stands for the input's.
fn output_size<const N: usize>(call: &Call<'_>) -> Result<[usize; N], Refusal> {
    let shape = call.tensor("input")?.shape();
    match call.argument("output_size") {
        Some(Value::Array(sizes)) if sizes.len() == N && shape.ndim() >= N => {
            let last = &shape[shape.ndim() - N..];
            let size = |dim: usize| sizes[dim].as_u64().map_or(last[dim], |size| size as usize);
            Ok(std::array::from_fn(size))
        }
        _ => call.each("output_size", [0; N]),
    }
}

fn adaptive<const N: usize>(
    call: &Call<'_>,
    op: fn(&Tensor, [usize; N]) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    one(op(call.tensor("input")?, output_size(call)?))
}

fn adaptive_max<const N: usize>(call: &Call<'_>) -> Answer {
    let input = call.tensor("input")?;
    chosen(
        call,
        input.adaptive_max_pool_with_indices::<N>(output_size(call)?),
    )
}

fn max_unpool<const N: usize>(call: &Call<'_>) -> Answer {
    let (input, window) = (call.tensor("input")?, window::<N>(call)?);
    let lead = input.ndim() - N;
    let size = std::array::from_fn(|dim| {
        (input.shape()[lead + dim] - 1) * window.stride[dim] + window.kernel[dim]
            - 2 * window.padding[dim]
    });
    one(input.max_unpool::<N>(call.tensor("indices")?, size))
}

fn instance_norm(call: &Call<'_>) -> Answer {
    let mean = call.maybe_tensor("running_mean")?;
    let variance = call.maybe_tensor("running_var")?;
    let options = InstanceNorm {
        weight: call.maybe_tensor("weight")?,
        bias: call.maybe_tensor("bias")?,
        running: mean.zip(variance),
        use_input_stats: call.flag("use_input_stats", true),
        momentum: call.float("momentum", 0.1)?,
        eps: call.float("eps", 1e-5)?,
    };
    one(call.tensor("input")?.instance_norm(options))
}

fn local_response_norm(call: &Call<'_>) -> Answer {
    let (alpha, beta) = (call.float("alpha", 1e-4)?, call.float("beta", 0.75)?);
    let (size, k) = (call.size("size")?, call.float("k", 1.0)?);
    one(call
        .tensor("input")?
        .local_response_norm(size, alpha, beta, k))
}

fn normalize(call: &Call<'_>) -> Answer {
    let (p, eps) = (call.float("p", 2.0)?, call.float("eps", 1e-12)?);
    one(call.tensor("input")?.normalize(p, call.dim("dim", 1)?, eps))
}

fn cosine_similarity(call: &Call<'_>) -> Answer {
    let (x1, x2) = (call.tensor("x1")?, call.tensor("x2")?);
    one(x1.cosine_similarity(x2, call.dim("dim", 1)?, call.float("eps", 1e-8)?))
}

fn pairwise_distance(call: &Call<'_>) -> Answer {
    let (p, eps) = (call.float("p", 2.0)?, call.float("eps", 1e-6)?);
    let (x1, x2) = (call.tensor("x1")?, call.tensor("x2")?);
    one(x1.pairwise_distance(x2, p, eps, call.flag("keepdim", false)))
}

fn alpha_dropout(call: &Call<'_>) -> Answer {
    let (p, training) = (call.float("p", 0.5)?, call.flag("training", false));
    one(call.tensor("input")?.alpha_dropout(p, training))
}

fn dropout2d(call: &Call<'_>) -> Answer {
    let (p, training) = (call.float("p", 0.5)?, call.flag("training", true));
    one(call.tensor("input")?.feature_dropout(p, training))
}

fn grid_sample(call: &Call<'_>) -> Answer {
    let options = GridSample {
        mode: match call.text("mode") {
            Some("nearest") => GridSampleMode::Nearest,
            Some("bicubic") => GridSampleMode::Bicubic,
            _ => GridSampleMode::Bilinear,
        },
        padding_mode: match call.text("padding_mode") {
            Some("border") => GridSamplePadding::Border,
            Some("reflection") => GridSamplePadding::Reflection,
            _ => GridSamplePadding::Zeros,
        },
        align_corners: call.flag("align_corners", false),
    };
    one(call
        .tensor("input")?
        .grid_sample(call.tensor("grid")?, options))
}

fn affine_grid(call: &Call<'_>) -> Answer {
    let (size, align) = (call.sizes("size")?, call.flag("align_corners", false));
    one(call.tensor("theta")?.affine_grid(&size, align))
}

fn blocks(call: &Call<'_>) -> Result<Blocks, Refusal> {
    Ok(Blocks {
        kernel: call.pair("kernel_size", [0, 0])?,
        stride: call.pair("stride", [1, 1])?,
        padding: call.pair("padding", [0, 0])?,
        dilation: call.pair("dilation", [1, 1])?,
    })
}

fn unfold(call: &Call<'_>) -> Answer {
    one(call.tensor("input")?.im2col(blocks(call)?))
}

fn fold(call: &Call<'_>) -> Answer {
    let size = call.pair("output_size", [0, 0])?;
    one(call.tensor("input")?.col2im(size, blocks(call)?))
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
