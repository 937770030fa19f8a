//! Workloads of single ops: overhead, matrix products, memory-bound ops, norms, convolutions, attention.

use fireclay::nn::{Conv2d, Conv2dConfig, LayerNorm};
use fireclay::prelude::*;
use fireclay::{Attention, Conv2dOptions, CrossEntropy};

use super::stopwatch::Stopwatch;
use crate::failure::Failure;

/// Measures them all.
pub(crate) fn run(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    overhead(stopwatch, device)?;
    matmul(stopwatch, device)?;
    pointwise(stopwatch, device)?;
    copy(stopwatch, device)?;
    reduce(stopwatch, device)?;
    norm_and_loss(stopwatch, device)?;
    conv(stopwatch, device)?;
    attention(stopwatch, device)
}

fn overhead(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let (a, b) = (Tensor::randn(&[1], device)?, Tensor::randn(&[1], device)?);
    stopwatch.measure("overhead/add_1", 2000, || a.add(&b))?;
    let leaf = Tensor::randn(&[1], device)?.requires_grad_(true)?;
    stopwatch.measure("overhead/mul_chain10_fwd_bwd_1", 200, || {
        let mut y = leaf.clone();
        for _ in 0..10 {
            y = y.mul(&b)?;
        }
        y.backward()?;
        leaf.zero_grad();
        Ok(())
    })
}

fn matmul(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    for size in [64, 256, 512, 1024, 2048] {
        let name = format!("matmul/f32_{size}");
        if stopwatch.wants_any(&[&name]) {
            let [a, b] = square_matrices(size, DType::F32, device)?;
            stopwatch.measure(&name, if size <= 256 { 20 } else { 1 }, || a.matmul(&b))?;
        }
    }
    for size in [512, 1024, 2048] {
        let name = format!("matmul/bf16_{size}");
        if stopwatch.wants_any(&[&name]) {
            let [a, b] = square_matrices(size, DType::BF16, device)?;
            stopwatch.measure(&name, 1, || a.matmul(&b))?;
        }
    }
    let (a, b) = (
        Tensor::randn(&[128, 784], device)?,
        Tensor::randn(&[512, 784], device)?,
    );
    stopwatch.measure("matmul/linear_128x784x512", 10, || a.linear(&b, None))?;
    let (a, b) = (
        Tensor::randn(&[64, 128, 64], device)?,
        Tensor::randn(&[64, 64, 128], device)?,
    );
    stopwatch.measure("matmul/bmm_64x128x64x128", 1, || a.matmul(&b))
}

fn attention(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let random = || Tensor::randn(&[4, 8, 512, 64], device)?.requires_grad_(true);
    let (query, key, value) = (random()?, random()?, random()?);
    let options = Attention {
        is_causal: true,
        ..Attention::default()
    };
    let attend = || query.scaled_dot_product_attention(&key, &value, options);
    stopwatch.measure("attention/causal_4x8x512x64_fwd_bwd", 1, || {
        attend()?.sum_all()?.backward()?;
        for operand in [&query, &key, &value] {
            operand.zero_grad();
        }
        Ok(())
    })?;
    stopwatch.measure("attention/causal_4x8x512x64_fwd", 1, || no_grad(attend))
}

fn square_matrices(size: usize, dtype: DType, device: Device) -> Result<[Tensor; 2]> {
    let random = || Tensor::randn(&[size, size], device)?.to_dtype(dtype);
    Ok([random()?, random()?])
}

const LONG: usize = 10_000_000;

fn pointwise(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let names = [
        "pointwise/add_1e7",
        "pointwise/gelu_1e7",
        "pointwise/exp_1e7",
        "pointwise/fused_chain_1e7",
    ];
    if stopwatch.wants_any(&names) {
        let (x, y) = (
            Tensor::randn(&[LONG], device)?,
            Tensor::randn(&[LONG], device)?,
        );
        stopwatch.measure(names[0], 1, || x.add(&y))?;
        stopwatch.measure(names[1], 1, || x.gelu())?;
        stopwatch.measure(names[2], 1, || x.exp())?;
        stopwatch.measure(names[3], 1, || {
            ((&x * &y + &x).tanh() * 0.5 + 1.0).relu().eval()
        })?;
    }
    let names = [
        "pointwise/transpose_copy_3000",
        "pointwise/broadcast_add_3000",
    ];
    if stopwatch.wants_any(&names) {
        let t = Tensor::randn(&[3000, 3000], device)?;
        stopwatch.measure(names[0], 1, || t.t()?.contiguous())?;
        let column = Tensor::randn(&[3000, 1], device)?;
        stopwatch.measure(names[1], 1, || t.add(&column))?;
    }
    Ok(())
}

/// What memory gives: each is read once and written once.
fn copy(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let name = "memory/copy_1e7";
    if stopwatch.wants_any(&[name]) {
        let x = Tensor::randn(&[LONG], device)?;
        stopwatch.measure(name, 1, || x.copy())?;
    }
    Ok(())
}

fn reduce(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    if stopwatch.wants_any(&["reduce/sum_1e7"]) {
        let x = Tensor::randn(&[LONG], device)?;
        stopwatch.measure("reduce/sum_1e7", 1, || x.sum_all())?;
    }
    let t = Tensor::randn(&[3000, 3000], device)?;
    stopwatch.measure("reduce/sum_dim0_3000", 1, || t.sum(&[0], false))?;
    stopwatch.measure("reduce/sum_dim1_3000", 1, || t.sum(&[1], false))?;
    let s = Tensor::randn(&[4096, 1024], device)?;
    stopwatch.measure("reduce/softmax_4096x1024", 1, || s.softmax(-1))?;
    stopwatch.measure("reduce/argmax_4096x1024", 1, || s.argmax(-1, false))?;
    if stopwatch.wants_any(&["reduce/sort_1e6"]) {
        let x = Tensor::randn(&[1_000_000], device)?;
        stopwatch.measure("reduce/sort_1e6", 1, || x.sort(-1, false))?;
    }
    let indices = Tensor::randint(0, 4096, &[8192], device)?;
    stopwatch.measure("index/index_select_8192x1024", 1, || {
        s.index_select(0, &indices)
    })?;
    stopwatch.measure("random/randn_1e7", 1, || Tensor::randn(&[LONG], device))
}

fn norm_and_loss(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let x = Tensor::randn(&[4096, 1024], device)?.requires_grad_(true)?;
    let layer = LayerNorm::new(&[1024])?;
    layer.to(device)?;
    // As the PyTorch script: the layer's own gradients add up.
    stopwatch.measure("nn/layernorm_4096x1024_fwd_bwd", 1, || {
        x.zero_grad();
        layer.forward(&x)?.sum_all()?.backward()
    })?;
    let logits = Tensor::randn(&[4096, 1024], device)?.requires_grad_(true)?;
    let target = Tensor::randint(0, 1024, &[4096], device)?;
    stopwatch.measure("nn/cross_entropy_4096x1024_fwd_bwd", 1, || {
        logits.zero_grad();
        logits
            .cross_entropy(&target, CrossEntropy::default())?
            .backward()
    })
}

fn conv(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let layer = |inputs: usize, kernel: usize, stride: usize, padding: usize| {
        let config = Conv2dConfig {
            stride: [stride; 2],
            padding: [padding; 2],
            bias: false,
            device,
            ..Default::default()
        };
        Conv2d::with(inputs, 64, kernel, config)
    };
    let names = ["conv/3x3_64_56_b8_fwd", "conv/3x3_64_56_b8_fwd_bwd"];
    if stopwatch.wants_any(&names) {
        let (conv, x) = (
            layer(64, 3, 1, 1)?,
            Tensor::randn(&[8, 64, 56, 56], device)?,
        );
        let padded = Conv2dOptions {
            padding: [1, 1],
            ..Default::default()
        };
        stopwatch.measure(names[0], 1, || {
            x.conv2d(&conv.weight.tensor().detach(), None, padded)
        })?;
        let x = x.copy()?.requires_grad_(true)?;
        stopwatch.measure(names[1], 1, || {
            x.zero_grad();
            conv.zero_grad();
            conv.forward(&x)?.sum_all()?.backward()
        })?;
    }
    let name = "conv/7x7s2_3_224_b4_fwd";
    if stopwatch.wants_any(&[name]) {
        let (conv, x) = (
            layer(3, 7, 2, 3)?,
            Tensor::randn(&[4, 3, 224, 224], device)?,
        );
        let weight = conv.weight.tensor().detach();
        let options = Conv2dOptions {
            stride: [2, 2],
            padding: [3, 3],
            ..Default::default()
        };
        stopwatch.measure(name, 1, || x.conv2d(&weight, None, options))?;
    }
    let name = "conv/1x1_256_56_b8_fwd";
    if stopwatch.wants_any(&[name]) {
        let (conv, x) = (
            layer(256, 1, 1, 0)?,
            Tensor::randn(&[8, 256, 56, 56], device)?,
        );
        let weight = conv.weight.tensor().detach();
        stopwatch.measure(name, 1, || {
            x.conv2d(&weight, None, Conv2dOptions::default())
        })?;
    }
    Ok(())
}
