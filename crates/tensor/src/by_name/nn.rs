//! Rows of `torch.nn.functional` besides activations and losses.

use fireclay_core::Result;

use super::{Call, rows};
use crate::ops::attention::Attention;
use crate::ops::conv::Conv2dOptions;
use crate::ops::interpolate::{InterpolateMode, InterpolateTo};
use crate::ops::norm::BatchNorm;
use crate::ops::pool::{AvgPool2d, Pool2d};
use crate::tensor::Tensor;

rows! {
    "nn.functional.linear(Tensor input, Tensor weight, Tensor? bias=None)" "input=[2,3] weight=[4,3] bias=[4]" |call| {
        call.tensor("input")?.linear(call.tensor("weight")?, call.maybe_tensor("bias")?)
    }
    "nn.functional.embedding(Tensor input, Tensor weight)" "input=index<4[2,3] weight=[4,3]" |call| {
        call.tensor("weight")?.embedding(call.tensor("input")?)
    }
    "nn.functional.conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, int groups=1)"
    "input=[2,4,5,5] weight=[6,2,3,3] bias=[6] stride=2 padding=1 groups=2" |call| {
        let options = Conv2dOptions {
            stride: call.sizes_of("stride")?,
            padding: call.sizes_of("padding")?,
            dilation: call.sizes_of("dilation")?,
            groups: call.size("groups")?,
        };
        call.tensor("input")?.conv2d(call.tensor("weight")?, call.maybe_tensor("bias")?, options)
    }
    "nn.functional.max_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, bool return_indices=False)"
    "input=[2,2,4,4] kernel_size=2" |call| {
        let (x, window) = (call.tensor("input")?, Pool2d { dilation: call.sizes_of("dilation")?, ..window(call)? });
        if call.flag("return_indices") {
            let (values, indices) = x.max_pool2d_with_indices(window)?;
            return Ok(vec![values, indices]);
        }
        Ok(vec![x.max_pool2d(window)?])
    }
    "nn.functional.avg_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)"
    "input=[2,2,4,4] kernel_size=2" |call| {
        call.tensor("input")?.avg_pool2d(AvgPool2d {
            window: window(call)?,
            count_include_pad: call.flag("count_include_pad"),
            divisor_override: call.maybe_size("divisor_override")?,
        })
    }
    "nn.functional.adaptive_avg_pool2d(Tensor input, int[] output_size)" "input=[2,2,4,4] output_size=[3,2]" |call| {
        call.tensor("input")?.adaptive_avg_pool2d(call.sizes_of("output_size")?)
    }
    "nn.functional.interpolate(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode=\"nearest\", bool? align_corners=None, bool? recompute_scale_factor=None)"
    "input=[1,2,3,3] size=[5,4] mode=bilinear" |call| { interpolate(call) }
    "nn.functional.batch_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5)"
    "input=[4,3,2] weight=[3] bias=[3] training=True" |call| {
        let (mean, variance) = (call.maybe_tensor("running_mean")?, call.maybe_tensor("running_var")?);
        let options = BatchNorm {
            weight: call.maybe_tensor("weight")?,
            bias: call.maybe_tensor("bias")?,
            running: mean.zip(variance),
            training: call.flag("training"),
            momentum: call.float("momentum")?,
            eps: call.float("eps")?,
        };
        if options.running.is_none() && !options.training {
            return Err(call.refuse("without training, running_mean and running_var must be given"));
        }
        call.tensor("input")?.batch_norm(options)
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
    "nn.functional.dropout(Tensor input, float p=0.5, bool training=True)" "input=[3,4] training=False" |call| {
        call.tensor("input")?.dropout(call.float("p")?, call.flag("training"))
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

fn window(call: &Call<'_>) -> Result<Pool2d> {
    let kernel = call.sizes_of("kernel_size")?;
    Ok(Pool2d {
        kernel,
        stride: call.maybe_sizes_of("stride")?.unwrap_or(kernel),
        padding: call.sizes_of("padding")?,
        dilation: [1, 1],
        ceil_mode: call.flag("ceil_mode"),
    })
}

fn interpolate(call: &Call<'_>) -> Result<Tensor> {
    let x = call.tensor("input")?;
    let mode = match (call.text("mode"), call.maybe_flag("align_corners")) {
        (Some("nearest"), None) => InterpolateMode::Nearest,
        (Some("nearest"), Some(_)) => {
            return Err(call.refuse("align_corners has no meaning in mode nearest"));
        }
        (Some("bilinear"), align) => InterpolateMode::Bilinear {
            align_corners: align.unwrap_or(false),
        },
        (mode, _) => return Err(call.not_built(format!("mode {}", mode.unwrap_or("None")))),
    };
    let factors = match call.maybe_floats("scale_factor")?.as_deref() {
        Some(&[both]) => [both; 2],
        Some(&[height, width]) => [height, width],
        Some(_) => return Err(call.refuse("scale_factor must have 1 or 2 numbers")),
        None => return x.interpolate(InterpolateTo::Size(call.sizes_of::<2>("size")?), mode),
    };
    let to = match (call.flag("recompute_scale_factor"), &x.shape()[..]) {
        (true, &[_, _, height, width]) => {
            let scaled = |size: usize, factor: f64| (size as f64 * factor) as usize;
            InterpolateTo::Size([scaled(height, factors[0]), scaled(width, factors[1])])
        }
        _ => InterpolateTo::Scale(factors),
    };
    x.interpolate(to, mode)
}
