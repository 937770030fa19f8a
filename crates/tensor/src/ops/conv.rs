//! Convolution over images: `conv2d`.

use fireclay_core::{Error, Result, Shape};
use fireclay_cpu::conv::{self, Conv2dShape};
use smallvec::{SmallVec, smallvec};

use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::dispatch;
use crate::op::{Autocast, Grads, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// How a kernel moves over an image. Pairs are (height, width).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv2dOptions {
    /// Steps of the kernel.
    pub stride: [usize; 2],
    /// Zeros put on each side.
    pub padding: [usize; 2],
    /// Distance between taps of the kernel.
    pub dilation: [usize; 2],
    /// Groups of channels that don't see each other.
    pub groups: usize,
}

impl Default for Conv2dOptions {
    fn default() -> Conv2dOptions {
        Conv2dOptions {
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
        }
    }
}

/// The geometry of a convolution of `input` `[n, c, h, w]` with `weight` `[o, c / groups, kh, kw]`.
fn geometry(
    op: &'static str,
    options: Conv2dOptions,
    input: &Shape,
    weight: &Shape,
) -> Result<(Conv2dShape, [usize; 2])> {
    let (&[batch, in_channels, height, width], &[out_channels, per_group, kh, kw]) =
        (&input[..], &weight[..])
    else {
        return Err(Error::shape(
            op,
            format!("expected input [n, c, h, w] and weight [o, c / groups, kh, kw], got {input} and {weight}"),
        )
        .with_hint("add a batch dimension with unsqueeze(0)"));
    };
    let shape = Conv2dShape {
        batch,
        in_channels,
        out_channels,
        groups: options.groups,
        height,
        width,
        kernel: [kh, kw],
        stride: options.stride,
        padding: options.padding,
        dilation: options.dilation,
    };
    let wrong = |error: conv::WindowError| {
        Error::shape(
            op,
            format!("{error}, for input {input} and weight {weight}"),
        )
    };
    let size = shape.output_size().map_err(wrong)?;
    let groups = options.groups;
    if per_group.checked_mul(groups) != Some(in_channels) {
        return Err(Error::shape(
            op,
            format!(
                "the input has {in_channels} channels, the weight {weight} takes {per_group} in each of {groups} groups"
            ),
        ));
    }
    Ok((shape, size))
}

/// Inputs: image, weight, maybe bias.
#[derive(Clone, Copy, Debug)]
struct Conv2d(Conv2dOptions);

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float("conv2d", inputs)?;
        let (shape, [height, width]) =
            geometry("conv2d", self.0, inputs[0].shape(), inputs[1].shape())?;
        if let Some(bias) = inputs.get(2)
            && bias.shape()[..] != [shape.out_channels]
        {
            return Err(Error::shape(
                "conv2d",
                format!(
                    "expected bias [{}], got {}",
                    shape.out_channels,
                    bias.shape()
                ),
            ));
        }
        let sizes = [shape.batch, shape.out_channels, height, width];
        Ok(smallvec![OutputMeta::contiguous(sizes.into(), dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (shape, _) = geometry(
            "conv2d",
            self.0,
            call.layout(0).shape(),
            call.layout(1).shape(),
        )?;
        match_float!("conv2d", call.dtype(0), T => {
            let bias = (call.inputs() > 2).then(|| call.input::<T>(2));
            conv::conv2d::<T>(&shape, call.input(0), call.input(1), bias, call.output(0))
                .map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let mut grads: Grads = smallvec![None; context.inputs()];
        if context.needs(0) {
            let op = Conv2dInputGrad {
                options: self.0,
                shape: context.input_shape(0).clone(),
            };
            grads[0] = Some(dispatch::call_one(op, &[&context.input(1)?, grad])?);
        }
        if context.needs(1) {
            let op = Conv2dWeightGrad {
                options: self.0,
                shape: context.input_shape(1).clone(),
            };
            grads[1] = Some(dispatch::call_one(op, &[&context.input(0)?, grad])?);
        }
        if context.inputs() > 2 && context.needs(2) {
            grads[2] = Some(grad.sum(&[0, 2, 3], false)?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// The gradient of the image; inputs: weight, gradient of the output. It is linear in both, as the convolution is in
/// its inputs, so the three ops are each other's derivatives.
#[derive(Clone, Debug)]
struct Conv2dInputGrad {
    options: Conv2dOptions,
    shape: Shape,
}

impl Op for Conv2dInputGrad {
    fn name(&self) -> &'static str {
        "conv2d_input_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            same_float(self.name(), inputs)?
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (shape, _) = geometry(
            self.name(),
            self.options,
            &self.shape,
            call.layout(0).shape(),
        )?;
        match_float!(self.name(), call.dtype(0), T => {
            conv::conv2d_backward_input::<T>(&shape, call.input(0), call.input(1), call.output(0))
                .map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let mut grads: Grads = smallvec![None, None];
        if context.needs(0) {
            let op = Conv2dWeightGrad {
                options: self.options,
                shape: context.input_shape(0).clone(),
            };
            grads[0] = Some(dispatch::call_one(op, &[grad, &context.input(1)?])?);
        }
        if context.needs(1) {
            grads[1] = Some(dispatch::call_one(
                Conv2d(self.options),
                &[grad, &context.input(0)?],
            )?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// The gradient of the weight; inputs: image, gradient of the output.
#[derive(Clone, Debug)]
struct Conv2dWeightGrad {
    options: Conv2dOptions,
    shape: Shape,
}

impl Op for Conv2dWeightGrad {
    fn name(&self) -> &'static str {
        "conv2d_weight_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            same_float(self.name(), inputs)?
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (shape, _) = geometry(
            self.name(),
            self.options,
            call.layout(0).shape(),
            &self.shape,
        )?;
        match_float!(self.name(), call.dtype(0), T => {
            conv::conv2d_backward_weight::<T>(&shape, call.input(0), call.input(1), call.output(0))
                .map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let mut grads: Grads = smallvec![None, None];
        if context.needs(0) {
            let op = Conv2dInputGrad {
                options: self.options,
                shape: context.input_shape(0).clone(),
            };
            grads[0] = Some(dispatch::call_one(op, &[grad, &context.input(1)?])?);
        }
        if context.needs(1) {
            grads[1] = Some(dispatch::call_one(
                Conv2d(self.options),
                &[&context.input(0)?, grad],
            )?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let (options, shape) = (Conv2dOptions::default(), Shape::scalar());
    vec![
        Box::new(Conv2d(options)),
        Box::new(Conv2dInputGrad {
            options,
            shape: shape.clone(),
        }),
        Box::new(Conv2dWeightGrad { options, shape }),
    ]
}

impl Tensor {
    /// Correlates images `[n, c, h, w]` with `weight` `[o, c / groups, kh, kw]` and adds `bias` `[o]`: `[n, o, h', w']`
    /// (`torch.nn.functional.conv2d`). A single image `[c, h, w]` gives `[o, h', w']`.
    #[track_caller]
    pub fn conv2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: Conv2dOptions,
    ) -> Result<Tensor> {
        if self.ndim() == 3 {
            return self.unsqueeze(0)?.conv2d(weight, bias, options)?.squeeze(0);
        }
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![self, weight];
        inputs.extend(bias);
        dispatch::call_one(Conv2d(options), &inputs)
    }
}
