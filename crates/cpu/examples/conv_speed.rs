//! Times convolution, maximum pooling and their gradients; `cargo run --release -p fireclay-cpu --example conv_speed`.

use fireclay_cpu::conv::{
    Conv2dShape, conv2d, conv2d_backward_bias, conv2d_backward_input, conv2d_backward_weight,
};
use fireclay_cpu::pool::{Pool2dShape, max_pool2d, max_pool2d_backward};
use std::time::Instant;

fn main() {
    let plain = Conv2dShape {
        batch: 64,
        in_channels: 1,
        out_channels: 32,
        groups: 1,
        height: 28,
        width: 28,
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
    };
    for shape in [
        plain,
        Conv2dShape {
            in_channels: 32,
            out_channels: 64,
            height: 14,
            width: 14,
            ..plain
        },
        Conv2dShape {
            batch: 8,
            in_channels: 64,
            out_channels: 64,
            height: 56,
            width: 56,
            ..plain
        },
        Conv2dShape {
            batch: 4,
            in_channels: 3,
            out_channels: 64,
            height: 224,
            width: 224,
            kernel: [7, 7],
            stride: [2, 2],
            padding: [3, 3],
            ..plain
        },
        Conv2dShape {
            batch: 8,
            in_channels: 256,
            out_channels: 64,
            height: 56,
            width: 56,
            kernel: [1, 1],
            padding: [0, 0],
            ..plain
        },
        Conv2dShape {
            batch: 8,
            in_channels: 64,
            out_channels: 64,
            groups: 64,
            height: 56,
            width: 56,
            ..plain
        },
    ] {
        let input = vec![0.5f32; shape.input_numel()];
        let weight = vec![0.25f32; shape.weight_numel()];
        let bias = vec![0.5f32; shape.out_channels];
        let grad = vec![0.5f32; shape.output_numel().expect("a shape with an output")];
        let mut output = grad.clone();
        let mut grad_input = input.clone();
        let mut grad_weight = weight.clone();
        let mut grad_bias = bias.clone();
        let forward =
            best(|| conv2d(&shape, &input, &weight, Some(&bias), &mut output).expect("memory"));
        let by_input = best(|| {
            conv2d_backward_input(&shape, &weight, &grad, &mut grad_input).expect("memory")
        });
        let by_weight = best(|| {
            conv2d_backward_weight(&shape, &input, &grad, &mut grad_weight).expect("memory")
        });
        let by_bias = best(|| conv2d_backward_bias(&shape, &grad, &mut grad_bias));
        eprintln!(
            "{:3} -> {:2} {}x{} groups {:2}, {:3}x{:3}, batch {:2}: forward {forward:6.3} ms, input {by_input:6.3}, \
             weight {by_weight:6.3}, bias {by_bias:6.3}",
            shape.in_channels,
            shape.out_channels,
            shape.kernel[0],
            shape.kernel[1],
            shape.groups,
            shape.height,
            shape.width,
            shape.batch,
        );
    }
    for (planes, size) in [(64 * 32, 28), (64 * 64, 14)] {
        let shape = Pool2dShape {
            planes,
            height: size,
            width: size,
            kernel: [2, 2],
            stride: [2, 2],
            padding: [0, 0],
            dilation: [1, 1],
            ceil_mode: false,
        };
        let input: Vec<f32> = (0..planes * size * size)
            .map(|index| (index * 7919 % 1000) as f32)
            .collect();
        let mut output = vec![0.0; input.len() / 4];
        let mut indices = vec![0; input.len() / 4];
        let mut grad_input = input.clone();
        let forward = best(|| max_pool2d(&shape, &input, &mut output, &mut indices));
        let backward = best(|| max_pool2d_backward(&shape, &output, &indices, &mut grad_input));
        eprintln!(
            "max_pool2d 2x2, {planes} planes of {size}x{size}: forward {forward:6.3} ms, backward {backward:6.3}"
        );
    }
}

/// The shortest of many calls, in milliseconds.
fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.5 {
        let call = Instant::now();
        work();
        best = best.min(call.elapsed().as_secs_f64());
    }
    best * 1e3
}
