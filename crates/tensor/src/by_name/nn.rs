//! Rows of `torch.nn.functional` besides activations and losses.

use fireclay_core::Result;

use super::{Call, Value, rows};
use crate::ops::attention::Attention;
use crate::ops::columns::Blocks;
use crate::ops::conv::ConvOptions;
use crate::ops::conv_nd::ConvTransposeOptions;
use crate::ops::embedding_bag::{EmbeddingBag, EmbeddingBagMode};
use crate::ops::grid::{GridSample, GridSampleMode, GridSamplePadding};
use crate::ops::index::EmbeddingOptions;
use crate::ops::interpolate::{InterpolateMode, InterpolateTo};
use crate::ops::norm::BatchNorm;
use crate::ops::normalize::InstanceNorm;
use crate::ops::pool::{AvgPool, Pool};
use crate::tensor::Tensor;

rows! {
    "nn.functional.linear(Tensor input, Tensor weight, Tensor? bias=None)" "input=[2,3] weight=[4,3] bias=[4]" |call| {
        call.tensor("input")?.linear(call.tensor("weight")?, call.maybe_tensor("bias")?)
    }
    "nn.functional.bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)" "input1=[2,3] input2=[2,4] weight=[5,3,4] bias=[5]" |call| {
        let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
        call.tensor("input1")?.bilinear(call.tensor("input2")?, weight, bias)
    }
    "nn.functional.embedding(Tensor input, Tensor weight, int? padding_idx=None, bool scale_grad_by_freq=False)" "input=index<4[2,3] weight=[4,3]" |call| {
        call.tensor("weight")?.embedding_with(call.tensor("input")?, embedding_options(call)?)
    }
    "nn.functional.embedding_bag(Tensor input, Tensor weight, Tensor? offsets=None, bool scale_grad_by_freq=False, str mode=\"mean\", Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None)"
    "input=index<4[2,3] weight=[4,3]" |call| {
        let modes = [("sum", EmbeddingBagMode::Sum), ("mean", EmbeddingBagMode::Mean), ("max", EmbeddingBagMode::Max)];
        let options = EmbeddingBag {
            offsets: call.maybe_tensor("offsets")?,
            include_last_offset: call.flag("include_last_offset"),
            mode: call.one_of("mode", &modes)?,
            per_sample_weights: call.maybe_tensor("per_sample_weights")?,
            rows: embedding_options(call)?,
        };
        call.tensor("weight")?.embedding_bag(call.tensor("input")?, options)
    }
    "nn.functional.conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, any padding=0, int[] dilation=1, int groups=1)"
    "input=[2,4,7] weight=[6,2,3] bias=[6] stride=2 padding=1 groups=2" |call| { conv(call, Tensor::conv1d) }
    "nn.functional.conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, any padding=0, int[] dilation=1, int groups=1)"
    "input=[2,4,5,5] weight=[6,2,3,3] bias=[6] stride=2 padding=1 groups=2" |call| { conv(call, Tensor::conv2d) }
    "nn.functional.conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, any padding=0, int[] dilation=1, int groups=1)"
    "input=[1,2,3,4,4] weight=[4,1,2,2,2] bias=[4] stride=2 padding=1 groups=2" |call| { conv(call, Tensor::conv3d) }
    "nn.functional.conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] output_padding=0, int groups=1, int[] dilation=1)"
    "input=[2,4,4] weight=[4,3,3] bias=[6] stride=2 padding=1 groups=2" |call| { conv_transpose(call, Tensor::conv_transpose1d) }
    "nn.functional.conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] output_padding=0, int groups=1, int[] dilation=1)"
    "input=[2,4,3,3] weight=[4,3,3,3] bias=[6] stride=2 padding=1 groups=2" |call| { conv_transpose(call, Tensor::conv_transpose2d) }
    "nn.functional.conv_transpose3d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] output_padding=0, int groups=1, int[] dilation=1)"
    "input=[1,2,2,3,3] weight=[2,2,2,2,2] bias=[4] stride=2 padding=1 groups=2" |call| { conv_transpose(call, Tensor::conv_transpose3d) }
    "nn.functional.max_pool1d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, bool return_indices=False)"
    "input=distinct[2,2,6] kernel_size=2" |call| { max_pool(call, Tensor::max_pool1d_with_indices) }
    "nn.functional.max_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, bool return_indices=False)"
    "input=distinct[2,2,4,4] kernel_size=2" |call| { max_pool(call, Tensor::max_pool2d_with_indices) }
    "nn.functional.max_pool3d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, bool return_indices=False)"
    "input=distinct[1,2,3,4,4] kernel_size=2" |call| { max_pool(call, Tensor::max_pool3d_with_indices) }
    "nn.functional.avg_pool1d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, bool count_include_pad=True)"
    "input=[2,2,6] kernel_size=2 padding=1" |call| { avg_pool(call, Tensor::avg_pool1d, None) }
    "nn.functional.avg_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)"
    "input=[2,2,4,4] kernel_size=2 padding=1" |call| { avg_pool(call, Tensor::avg_pool2d, call.maybe_size("divisor_override")?) }
    "nn.functional.avg_pool3d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)"
    "input=[1,2,3,4,4] kernel_size=2 padding=1" |call| { avg_pool(call, Tensor::avg_pool3d, call.maybe_size("divisor_override")?) }
    "nn.functional.lp_pool1d(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, bool ceil_mode=False)"
    "input=positive[2,2,6] norm_type=2.0 kernel_size=2" |call| {
        call.tensor("input")?.lp_pool::<1>(call.float("norm_type")?, window(call, [0; 1], [1; 1])?)
    }
    "nn.functional.lp_pool2d(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, bool ceil_mode=False)"
    "input=positive[2,2,4,4] norm_type=2.0 kernel_size=2" |call| {
        call.tensor("input")?.lp_pool::<2>(call.float("norm_type")?, window(call, [0; 2], [1; 2])?)
    }
    "nn.functional.lp_pool3d(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, bool ceil_mode=False)"
    "input=positive[1,2,3,4,4] norm_type=2.0 kernel_size=2" |call| {
        call.tensor("input")?.lp_pool::<3>(call.float("norm_type")?, window(call, [0; 3], [1; 3])?)
    }
    "nn.functional.adaptive_avg_pool1d(Tensor input, any output_size)" "input=[2,2,6] output_size=3" |call| {
        call.tensor("input")?.adaptive_avg_pool1d(output_size(call)?)
    }
    "nn.functional.adaptive_avg_pool2d(Tensor input, any output_size)" "input=[2,2,4,4] output_size=[3,2]" |call| {
        call.tensor("input")?.adaptive_avg_pool2d(output_size(call)?)
    }
    "nn.functional.adaptive_avg_pool3d(Tensor input, any output_size)" "input=[1,2,3,4,4] output_size=[2,3,2]" |call| {
        call.tensor("input")?.adaptive_avg_pool3d(output_size(call)?)
    }
    "nn.functional.adaptive_max_pool1d(Tensor input, any output_size, bool return_indices=False)" "input=distinct[2,2,6] output_size=3" |call| {
        chosen(call, call.tensor("input")?.adaptive_max_pool_with_indices::<1>(output_size(call)?)?)
    }
    "nn.functional.adaptive_max_pool2d(Tensor input, any output_size, bool return_indices=False)" "input=distinct[2,2,4,4] output_size=[3,2]" |call| {
        chosen(call, call.tensor("input")?.adaptive_max_pool_with_indices::<2>(output_size(call)?)?)
    }
    "nn.functional.adaptive_max_pool3d(Tensor input, any output_size, bool return_indices=False)" "input=distinct[1,2,3,4,4] output_size=[2,3,2]" |call| {
        chosen(call, call.tensor("input")?.adaptive_max_pool_with_indices::<3>(output_size(call)?)?)
    }
    "nn.functional.max_unpool1d(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, int[] padding=0, int[]? output_size=None)"
    "input=[1,2,2] indices=index<4[1,2,2] kernel_size=2" |call| { max_unpool::<1>(call) }
    "nn.functional.max_unpool2d(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, int[] padding=0, int[]? output_size=None)"
    "input=[1,1,2,2] indices=index<4[1,1,2,2] kernel_size=2" |call| { max_unpool::<2>(call) }
    "nn.functional.max_unpool3d(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, int[] padding=0, int[]? output_size=None)"
    "input=[1,1,1,2,2] indices=index<4[1,1,1,2,2] kernel_size=2" |call| { max_unpool::<3>(call) }
    "nn.functional.interpolate(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode=\"nearest\", bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)"
    "input=[1,2,3,3] size=[5,4] mode=\"bilinear\"" |call| {
        match call.tensor("input")?.ndim() {
            3 => interpolate::<1>(call),
            4 => interpolate::<2>(call),
            5 => interpolate::<3>(call),
            dims => Err(call.refuse(format!("input must have 3 to 5 dimensions (batch, channels, 1 to 3 of the image), got {dims}"))),
        }
    }
    "nn.functional.grid_sample(Tensor input, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", bool? align_corners=None)"
    "input=[1,2,4,4] grid=unit[1,3,3,2]" |call| {
        let options = GridSample {
            mode: call.one_of("mode", &[("bilinear", GridSampleMode::Bilinear), ("nearest", GridSampleMode::Nearest), ("bicubic", GridSampleMode::Bicubic)])?,
            padding_mode: call.one_of("padding_mode", &[("zeros", GridSamplePadding::Zeros), ("border", GridSamplePadding::Border), ("reflection", GridSamplePadding::Reflection)])?,
            align_corners: call.flag("align_corners"),
        };
        call.tensor("input")?.grid_sample(call.tensor("grid")?, options)
    }
    "nn.functional.affine_grid(Tensor theta, int[] size, bool? align_corners=None)" "theta=[1,2,3] size=[1,2,3,4]" |call| {
        call.tensor("theta")?.affine_grid(&call.sizes("size")?, call.flag("align_corners"))
    }
    "nn.functional.unfold(Tensor input, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] stride=1)" "input=[1,2,4,4] kernel_size=2" |call| {
        call.tensor("input")?.im2col(blocks(call)?)
    }
    "nn.functional.fold(Tensor input, int[] output_size, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] stride=1)" "input=[1,8,9] output_size=4 kernel_size=2" |call| {
        call.tensor("input")?.col2im(call.sizes_of("output_size")?, blocks(call)?)
    }
    "nn.functional.pixel_shuffle(Tensor input, int upscale_factor)" "input=[1,8,2,3] upscale_factor=2" |call| {
        call.tensor("input")?.pixel_shuffle(call.size("upscale_factor")?)
    }
    "nn.functional.pixel_unshuffle(Tensor input, int downscale_factor)" "input=[1,2,4,6] downscale_factor=2" |call| {
        call.tensor("input")?.pixel_unshuffle(call.size("downscale_factor")?)
    }
    "nn.functional.channel_shuffle(Tensor input, int groups)" "input=[1,4,2,2] groups=2" |call| {
        call.tensor("input")?.channel_shuffle(call.size("groups")?)
    }
    "nn.functional.batch_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5)"
    "input=[4,3,2] weight=[3] bias=[3] training=True" |call| {
        let options = BatchNorm {
            weight: call.maybe_tensor("weight")?,
            bias: call.maybe_tensor("bias")?,
            running: running(call)?,
            training: call.flag("training"),
            momentum: call.float("momentum")?,
            eps: call.float("eps")?,
        };
        if options.running.is_none() && !options.training {
            return Err(call.refuse("without training, running_mean and running_var must be given"));
        }
        call.tensor("input")?.batch_norm(options)
    }
    "nn.functional.instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-5)"
    "input=[2,3,5] weight=[3] bias=[3]" |call| {
        let options = InstanceNorm {
            weight: call.maybe_tensor("weight")?,
            bias: call.maybe_tensor("bias")?,
            running: running(call)?,
            use_input_stats: call.flag("use_input_stats"),
            momentum: call.float("momentum")?,
            eps: call.float("eps")?,
        };
        call.tensor("input")?.instance_norm(options)
    }
    "nn.functional.layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5)"
    "input=[3,4] normalized_shape=[4] weight=[4] bias=[4]" |call| {
        let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
        call.tensor("input")?.layer_norm(&call.sizes("normalized_shape")?, weight, bias, call.float("eps")?)
    }
    "nn.functional.rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)"
    "input=[3,4] normalized_shape=[4] weight=[4]" |call| {
        let (shape, eps) = (call.sizes("normalized_shape")?, call.maybe_float("eps")?);
        call.tensor("input")?.rms_norm(&shape, call.maybe_tensor("weight")?, eps)
    }
    "nn.functional.group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-5)"
    "input=[2,4,3] num_groups=2 weight=[4] bias=[4]" |call| {
        let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
        call.tensor("input")?.group_norm(call.size("num_groups")?, weight, bias, call.float("eps")?)
    }
    "nn.functional.local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0)" "input=[2,4,3] size=3" |call| {
        let (alpha, beta, k) = (call.float("alpha")?, call.float("beta")?, call.float("k")?);
        call.tensor("input")?.local_response_norm(call.size("size")?, alpha, beta, k)
    }
    "nn.functional.normalize(Tensor input, float p=2.0, int dim=1, float eps=1e-12)" "input=[3,4]" |call| {
        call.tensor("input")?.normalize(call.float("p")?, call.dim("dim")?, call.float("eps")?)
    }
    "nn.functional.cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-8)" "x1=[3,4] x2=[3,4]" |call| {
        call.tensor("x1")?.cosine_similarity(call.tensor("x2")?, call.dim("dim")?, call.float("eps")?)
    }
    "nn.functional.pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-6, bool keepdim=False)" "x1=[3,4] x2=[3,4]" |call| {
        let (p, eps) = (call.float("p")?, call.float("eps")?);
        call.tensor("x1")?.pairwise_distance(call.tensor("x2")?, p, eps, call.flag("keepdim"))
    }
    "nn.functional.dropout(Tensor input, float p=0.5, bool training=True)" "input=[3,4] p=0.3" |call| {
        call.tensor("input")?.dropout(call.float("p")?, call.flag("training"))
    }
    "nn.functional.dropout1d(Tensor input, float p=0.5, bool training=True)" "input=[2,3,4] p=0.3" |call| { channels_dropped(call, 2) }
    "nn.functional.dropout2d(Tensor input, float p=0.5, bool training=True)" "input=[2,3,2,2] p=0.3" |call| {
        call.tensor("input")?.feature_dropout(call.float("p")?, call.flag("training"))
    }
    "nn.functional.dropout3d(Tensor input, float p=0.5, bool training=True)" "input=[2,3,2,2,1] p=0.3" |call| { channels_dropped(call, 4) }
    "nn.functional.alpha_dropout(Tensor input, float p=0.5, bool training=False)" "input=[3,4] p=0.3 training=True" |call| {
        call.tensor("input")?.alpha_dropout(call.float("p")?, call.flag("training"))
    }
    "nn.functional.scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)"
    "query=[1,2,3,4] key=[1,2,5,4] value=[1,2,5,4]" |call| {
        let options = Attention {
            attn_mask: call.maybe_tensor("attn_mask")?,
            is_causal: call.flag("is_causal"),
            scale: call.maybe_float("scale")?,
            enable_gqa: call.flag("enable_gqa"),
            dropout_p: call.float("dropout_p")?,
        };
        let (key, value) = (call.tensor("key")?, call.tensor("value")?);
        call.tensor("query")?.scaled_dot_product_attention(key, value, options)
    }
}

/// Dropout of channels, which come first where there are `unbatched` dimensions.
fn channels_dropped(call: &Call<'_>, unbatched: usize) -> Result<Tensor> {
    let (x, p, training) = (
        call.tensor("input")?,
        call.float("p")?,
        call.flag("training"),
    );
    match x.ndim() == unbatched {
        true => x.unsqueeze(0)?.feature_dropout(p, training)?.squeeze(0),
        false => x.feature_dropout(p, training),
    }
}

fn embedding_options(call: &Call<'_>) -> Result<EmbeddingOptions> {
    let rows = call.tensor("weight")?.size(0)?;
    let padding_idx = match call.maybe_int("padding_idx")? {
        None => None,
        Some(row) => {
            // A negative one counts from the end.
            let counted = if row < 0 {
                row.checked_add(rows as i64)
            } else {
                Some(row)
            };
            match counted
                .and_then(|row| usize::try_from(row).ok())
                .filter(|&row| row < rows)
            {
                Some(row) => Some(row),
                None => {
                    return Err(call.refuse(format!(
                        "argument padding_idx must be a row of weight, of which there are {rows}, got {row}"
                    )));
                }
            }
        }
    };
    Ok(EmbeddingOptions {
        padding_idx,
        scale_grad_by_freq: call.flag("scale_grad_by_freq"),
    })
}

fn running<'a>(call: &'a Call<'_>) -> Result<Option<(&'a Tensor, &'a Tensor)>> {
    match (
        call.maybe_tensor("running_mean")?,
        call.maybe_tensor("running_var")?,
    ) {
        (Some(mean), Some(variance)) => Ok(Some((mean, variance))),
        (None, None) => Ok(None),
        _ => Err(call.refuse("of running_mean and running_var both must be given, or none")),
    }
}

type Conv<O> = fn(&Tensor, &Tensor, Option<&Tensor>, O) -> Result<Tensor>;

fn conv<const N: usize>(call: &Call<'_>, op: Conv<ConvOptions<N>>) -> Result<Tensor> {
    let (same, padding) = match call.value("padding")? {
        Value::Text(text) => match text.as_str() {
            "same" => (true, [0; N]),
            "valid" => (false, [0; N]),
            other => {
                return Err(call.refuse(format!(
                    "argument padding must be sizes, \"same\" or \"valid\", got \"{other}\""
                )));
            }
        },
        _ => (false, call.sizes_of("padding")?),
    };
    let options = ConvOptions {
        stride: call.sizes_of("stride")?,
        padding,
        dilation: call.sizes_of("dilation")?,
        groups: call.size("groups")?,
    };
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    match same {
        true => call.tensor("input")?.conv_same(weight, bias, options),
        false => op(call.tensor("input")?, weight, bias, options),
    }
}

fn conv_transpose<const N: usize>(
    call: &Call<'_>,
    op: Conv<ConvTransposeOptions<N>>,
) -> Result<Tensor> {
    let options = ConvTransposeOptions {
        stride: call.sizes_of("stride")?,
        padding: call.sizes_of("padding")?,
        output_padding: call.sizes_of("output_padding")?,
        dilation: call.sizes_of("dilation")?,
        groups: call.size("groups")?,
    };
    let (weight, bias) = (call.tensor("weight")?, call.maybe_tensor("bias")?);
    op(call.tensor("input")?, weight, bias, options)
}

fn window<const N: usize>(
    call: &Call<'_>,
    padding: [usize; N],
    dilation: [usize; N],
) -> Result<Pool<N>> {
    let kernel = call.sizes_of("kernel_size")?;
    Ok(Pool {
        kernel,
        stride: call.maybe_sizes_of("stride")?.unwrap_or(kernel),
        padding,
        dilation,
        ceil_mode: call.flag("ceil_mode"),
    })
}

/// The values, and the places where they are asked for.
fn chosen(call: &Call<'_>, (values, places): (Tensor, Tensor)) -> Result<Vec<Tensor>> {
    Ok(match call.flag("return_indices") {
        true => vec![values, places],
        false => vec![values],
    })
}

fn max_pool<const N: usize>(
    call: &Call<'_>,
    op: fn(&Tensor, Pool<N>) -> Result<(Tensor, Tensor)>,
) -> Result<Vec<Tensor>> {
    let window = window(call, call.sizes_of("padding")?, call.sizes_of("dilation")?)?;
    chosen(call, op(call.tensor("input")?, window)?)
}

fn avg_pool<const N: usize>(
    call: &Call<'_>,
    op: fn(&Tensor, AvgPool<N>) -> Result<Tensor>,
    divisor_override: Option<usize>,
) -> Result<Tensor> {
    let window = AvgPool {
        window: window(call, call.sizes_of("padding")?, [1; N])?,
        count_include_pad: call.flag("count_include_pad"),
        divisor_override,
    };
    op(call.tensor("input")?, window)
}

/// An output size, in which None stands for the input's.
fn output_size<const N: usize>(call: &Call<'_>) -> Result<[usize; N]> {
    let shape = call.tensor("input")?.shape();
    let value = call.value("output_size")?;
    let refuse = || {
        call.refuse(format!(
            "argument output_size must be 1 or {N} sizes or None for the input's, got {value}"
        ))
    };
    let items = value.items().unwrap_or(std::slice::from_ref(value));
    let mut sizes = [0; N];
    for (dim, size) in sizes.iter_mut().enumerate() {
        let item = match items {
            [all] => all,
            items if items.len() == N => &items[dim],
            _ => return Err(refuse()),
        };
        *size = match item {
            Value::None if shape.ndim() >= N => shape[shape.ndim() - N + dim],
            &Value::Int(size) => usize::try_from(size).map_err(|_| refuse())?,
            _ => return Err(refuse()),
        };
    }
    Ok(sizes)
}

fn max_unpool<const N: usize>(call: &Call<'_>) -> Result<Tensor> {
    let input = call.tensor("input")?;
    let size = match call.maybe_dims("output_size")? {
        Some(size) => {
            // The leading dimensions may be given too.
            let last = size.len().checked_sub(N).map(|lead| &size[lead..]);
            let sizes = last.into_iter().flatten();
            let sizes = sizes.map(|&size| usize::try_from(size).ok());
            let sizes: Option<Vec<usize>> = sizes.collect();
            match sizes.map(<[usize; N]>::try_from) {
                Some(Ok(sizes)) => sizes,
                _ => {
                    return Err(call.refuse(format!(
                        "argument output_size must end in {N} sizes, got {size:?}"
                    )));
                }
            }
        }
        None => {
            let kernel: [usize; N] = call.sizes_of("kernel_size")?;
            let stride = call.maybe_sizes_of("stride")?.unwrap_or(kernel);
            let padding: [usize; N] = call.sizes_of("padding")?;
            let Some(lead) = input.ndim().checked_sub(N) else {
                return Err(call.refuse(format!(
                    "input must have {N} dimensions or more, got {}",
                    input.shape()
                )));
            };
            let mut sizes = [0; N];
            for dim in 0..N {
                let steps = input.shape()[lead + dim].checked_sub(1);
                let size = steps
                    .and_then(|steps| steps.checked_mul(stride[dim]))
                    .and_then(|size| size.checked_add(kernel[dim]))
                    .and_then(|size| size.checked_sub(padding[dim].checked_mul(2)?));
                sizes[dim] = size.ok_or_else(|| {
                    call.refuse(format!("{} has no image to unpool", input.shape()))
                })?;
            }
            sizes
        }
    };
    input.max_unpool::<N>(call.tensor("indices")?, size)
}

fn blocks(call: &Call<'_>) -> Result<Blocks> {
    Ok(Blocks {
        kernel: call.sizes_of("kernel_size")?,
        stride: call.sizes_of("stride")?,
        padding: call.sizes_of("padding")?,
        dilation: call.sizes_of("dilation")?,
    })
}

fn interpolate<const N: usize>(call: &Call<'_>) -> Result<Tensor> {
    let x = call.tensor("input")?;
    let align_corners = call.flag("align_corners");
    let mode = match (
        call.text("mode").unwrap_or_default(),
        call.flag("antialias"),
    ) {
        (mode @ ("nearest" | "nearest-exact" | "area"), _)
            if call.maybe_flag("align_corners").is_some() =>
        {
            return Err(call.refuse(format!("align_corners has no meaning in mode {mode}")));
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
        (mode, antialias) => {
            return Err(call.refuse(format!(
                "there is no mode \"{mode}\" {} antialias",
                if antialias { "with" } else { "without" }
            )));
        }
    };
    let (size, factors) = (
        call.maybe_sizes_of::<N>("size")?,
        call.maybe_floats("scale_factor")?,
    );
    let factors: [f64; N] = match (size, factors.as_deref()) {
        (Some(size), None) => return x.interpolate(InterpolateTo::Size(size), mode),
        (None, Some(&[all])) => [all; N],
        (None, Some(each)) => match each.try_into() {
            Ok(each) => each,
            Err(_) => {
                return Err(call.refuse(format!(
                    "argument scale_factor must have 1 or {N} numbers, got {each:?}"
                )));
            }
        },
        (Some(_), Some(_)) | (None, None) => {
            return Err(call.refuse("of size and scale_factor exactly one must be given"));
        }
    };
    let to = match call.flag("recompute_scale_factor") {
        true => InterpolateTo::Size(std::array::from_fn(|dim| {
            (x.shape()[2 + dim] as f64 * factors[dim]) as usize
        })),
        false => InterpolateTo::Scale(factors),
    };
    x.interpolate(to, mode)
}
