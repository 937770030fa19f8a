//! What the kernels move: sectors of global memory against the least bytes that there are to move, conflicts in shared
//! memory, as the virtual GPU counts them. The table in bench/kernels.md is made here: with
//! FIRECLAY_WRITE_DOCS set it is written, else compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fireclay_tensor::{
    Activation, Attention, AvgPool2d, BatchNorm, Conv2dOptions, CrossEntropy, DType, Device,
    LinearEpilogue, Pool2d, Result, Tensor, fork_rng, manual_seed,
};
use fireclay_testing::devices::{machine, virtual_cuda};
use virtual_gpu::machine::KernelCounters;

/// The table stands between these lines.
const BEGIN: &str = "<!-- traffic: written by FIRECLAY_WRITE_DOCS=1 cargo test -p fireclay-testing --test kernel_traffic -->";
const END: &str = "<!-- traffic: end -->";
/// Bytes of a sector.
const SECTOR: u64 = 32;

/// What is measured.
struct Case {
    /// The op, its sizes and dtype.
    name: &'static str,
    /// The most that it should move, as a multiple of the least.
    target: f64,
    /// The most that it may move without failing: above the target only where that is known to be missed.
    most: f64,
    /// Whether its hot loop must have no bank conflicts.
    no_conflicts: bool,
    /// Makes the call.
    make: fn(Device) -> Result<Call>,
}

/// A call to measure, and the least bytes that it moves: what goes in and comes out, once each.
struct Call {
    least: usize,
    /// What has to be done before, which is not counted.
    before: Box<dyn Fn() -> Result<Tensor>>,
    run: Run,
}

/// What is counted, given what was made before.
type Run = Box<dyn Fn(&Tensor) -> Result<()>>;

/// Random numbers on a device.
fn numbers(device: Device, shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::randn(shape, "cpu")?.to_dtype(dtype)?.to(device)
}

/// Random whole numbers on a device.
fn indices(device: Device, below: i64, shape: &[usize]) -> Result<Tensor> {
    Tensor::randint(0, below, shape, "cpu")?.to(device)
}

/// A call of an op: its inputs are read and its result is written.
fn forward(
    inputs: Vec<Tensor>,
    op: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
) -> Result<Call> {
    let result = op(&inputs)?;
    let least = inputs.iter().chain([&result]).map(nbytes).sum();
    Ok(Call {
        least,
        before: Box::new(move || Ok(result.clone())),
        run: Box::new(move |_| op(&inputs).map(drop)),
    })
}

/// The backward pass of an op: reads the gradient and `times` the inputs, writes their gradients.
fn backward(
    inputs: Vec<Tensor>,
    op: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    least: impl Fn(&[Tensor], &Tensor) -> usize,
) -> Result<Call> {
    for input in &inputs {
        if input.dtype().is_floating_point() {
            input.requires_grad_(true)?;
        }
    }
    let result = op(&inputs)?;
    let grad = numbers(result.device(), result.shape(), result.dtype())?;
    let wanted: Vec<Tensor> = (inputs.iter())
        .filter(|input| input.requires_grad())
        .cloned()
        .collect();
    Ok(Call {
        least: least(&inputs, &result),
        before: Box::new(move || op(&inputs)),
        run: Box::new(move |result| {
            let wanted: Vec<&Tensor> = wanted.iter().collect();
            let grads = [Some(&grad)];
            fireclay_tensor::grad_with(&[result], &grads, &wanted, Default::default()).map(drop)
        }),
    })
}

fn nbytes(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.dtype().size()
}

/// What a call's kernels did, by name. Whatever is done once, as making scratch memory, was done before.
fn counted(call: &Call, device: Device) -> Result<BTreeMap<String, KernelCounters>> {
    let machine = machine();
    let mut kernels = BTreeMap::new();
    for _ in 0..2 {
        let made = (call.before)()?;
        fireclay_cuda::surface::synchronize(device)?;
        machine.reset_counters();
        (call.run)(&made)?;
        fireclay_cuda::surface::synchronize(device)?;
        kernels = machine.counters().kernels;
    }
    Ok(kernels)
}

/// The row of a case, and what is wrong with it.
fn row(case: &Case, device: Device) -> Result<(String, Vec<String>)> {
    let (call, kernels) = fork_rng(|| -> Result<_> {
        manual_seed(1);
        let call = (case.make)(device)?;
        let kernels = counted(&call, device)?;
        Ok((call, kernels))
    })?;
    let sum = |of: fn(&KernelCounters) -> u64| -> u64 { kernels.values().map(of).sum() };
    let sectors = sum(|k| k.counts.global_sectors_read + k.counts.global_sectors_written);
    let conflicts = sum(|k| k.counts.bank_conflicts);
    let moved = (sectors * SECTOR) as f64 / call.least as f64;
    let names: Vec<&str> = kernels.keys().map(String::as_str).collect();
    let row = format!(
        "| {} | {} | {} | {} | {moved:.2} | {} | {} | {conflicts} |\n",
        case.name,
        names.join(", "),
        sum(|k| k.launches),
        call.least,
        case.target,
        if moved > case.target { "missed" } else { "met" },
    );
    let mut wrong = Vec::new();
    if moved > case.most {
        let most = case.most;
        wrong.push(format!(
            "{}: moves {moved:.3} times the least, at most {most}",
            case.name
        ));
    }
    if case.no_conflicts && conflicts > 0 {
        wrong.push(format!("{}: {conflicts} bank conflicts", case.name));
    }
    Ok((row, wrong))
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/kernels.md")
}

#[test]
fn kernels_move_little_more_than_they_must() {
    let device = virtual_cuda();
    let mut table =
        "| op | kernels | launches | least bytes | moved / least | target | | bank conflicts |\n\
                     | --- | --- | --: | --: | --: | --: | --- | --: |\n"
            .to_owned();
    let mut wrong = Vec::new();
    for case in CASES {
        let (row, findings) = row(case, device).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        table.push_str(&row);
        wrong.extend(findings);
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let old = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = old
        .split_once(BEGIN)
        .expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the place has an end");
    let new = format!("{before}{BEGIN}\n{table}{END}{after}");
    if std::env::var_os("FIRECLAY_WRITE_DOCS").is_some() {
        std::fs::write(page(), new).unwrap();
        return;
    }
    assert_eq!(
        without_conflicts(&new),
        without_conflicts(&old),
        "bench/kernels.md: FIRECLAY_WRITE_DOCS=1 writes it anew"
    );
}

/// A page without the last column of its tables: some kernels choose addresses by what they read, and conflict now more and now
/// less.
fn without_conflicts(page: &str) -> String {
    let row = |line: &str| match line.trim_end_matches('|').rsplit_once('|') {
        Some((rest, _)) => rest.to_owned() + "\n",
        None => line.to_owned() + "\n",
    };
    page.lines().map(row).collect()
}

const F32: DType = DType::F32;
const BF16: DType = DType::BF16;

/// A case: its name, the target, and where it is missed, what may not be exceeded.
macro_rules! case {
    ($name:literal, most $most:literal, $call:expr) => {
        case!($name, $most, $most, false, $call)
    };
    ($name:literal, most $most:literal, no conflicts, $call:expr) => {
        case!($name, $most, $most, true, $call)
    };
    ($name:literal, target $target:literal missed, most $most:literal, $call:expr) => {
        case!($name, $target, $most, false, $call)
    };
    ($name:literal, $target:literal, $most:literal, $no_conflicts:literal, $call:expr) => {
        Case {
            name: $name,
            target: $target,
            most: $most,
            no_conflicts: $no_conflicts,
            make: $call,
        }
    };
}

/// Every kernel of CUDA C++ at a size at which it moves enough to tell.
const CASES: &[Case] = &[
    case!("softmax [256, 1000] f32", most 1.1, |device| {
        forward(vec![numbers(device, &[256, 1000], F32)?], |x| x[0].softmax(-1))
    }),
    case!("softmax [256, 1024] bf16", most 1.1, |device| {
        forward(vec![numbers(device, &[256, 1024], BF16)?], |x| x[0].softmax(-1))
    }),
    case!("log_softmax [256, 1000] f32, backward", most 1.1, |device| {
        let x = numbers(device, &[256, 1000], F32)?;
        backward(vec![x], |x| x[0].log_softmax(-1), |x, _| 3 * nbytes(&x[0]))
    }),
    case!("cross_entropy [256, 1000] f32", most 1.1, |device| {
        let inputs = vec![numbers(device, &[256, 1000], F32)?, indices(device, 1000, &[256])?];
        forward(inputs, |x| x[0].cross_entropy(&x[1], CrossEntropy::default()))
    }),
    case!("cross_entropy [256, 1000] f32, backward", most 1.1, |device| {
        let inputs = vec![numbers(device, &[256, 1000], F32)?, indices(device, 1000, &[256])?];
        let op = |x: &[Tensor]| x[0].cross_entropy(&x[1], CrossEntropy::default());
        backward(inputs, op, |x, _| 2 * nbytes(&x[0]) + nbytes(&x[1]))
    }),
    case!("embedding of [4096] in [1000, 64] f32", most 1.1, |device| {
        let rows = numbers(device, &[1000, 64], F32)?;
        let at = indices(device, 1000, &[4096])?;
        let result = rows.embedding(&at)?;
        // Each row is read for each index, wherever it lies.
        let least = 2 * nbytes(&result) + nbytes(&at);
        let call = forward(vec![rows, at], |x| x[0].embedding(&x[1]))?;
        Ok(Call { least, ..call })
    }),
    case!("gather of [256, 64] in [256, 1000] f32", most 1.1, |device| {
        let (x, at) = (numbers(device, &[256, 1000], F32)?, indices(device, 1000, &[256, 64])?);
        // What is read lies apart: a sector for each number.
        let least = nbytes(&at) + 256 * 64 * (4 + SECTOR as usize);
        let call = forward(vec![x, at], |x| x[0].gather(1, &x[1]))?;
        Ok(Call { least, ..call })
    }),
    case!("argmax [256, 1000] f32", most 1.1, |device| {
        forward(vec![numbers(device, &[256, 1000], F32)?], |x| x[0].argmax(1, false))
    }),
    case!("layer_norm [512, 768] f32", most 1.1, |device| {
        forward(of_norm(device, F32)?, |x| x[0].layer_norm(&[768], Some(&x[1]), Some(&x[2]), 1e-5))
    }),
    case!("layer_norm [512, 768] bf16", most 1.1, |device| {
        forward(of_norm(device, BF16)?, |x| x[0].layer_norm(&[768], Some(&x[1]), Some(&x[2]), 1e-5))
    }),
    case!("layer_norm [512, 768] f32, backward", most 1.1, |device| {
        let op = |x: &[Tensor]| x[0].layer_norm(&[768], Some(&x[1]), Some(&x[2]), 1e-5);
        backward(of_norm(device, F32)?, op, |x, _| 3 * nbytes(&x[0]))
    }),
    case!("batch_norm [16, 32, 28, 28] f32", most 1.1, |device| {
        // The statistics need all images before the first is written: they are read twice.
        let call = forward(of_images(device)?, batch_norm)?;
        Ok(Call { least: call.least / 2 * 3, ..call })
    }),
    case!("batch_norm [16, 32, 28, 28] f32, backward", most 1.1, |device| {
        backward(of_images(device)?, batch_norm, |x, _| 5 * nbytes(&x[0]))
    }),
    case!("lstm_cell [256, 256] f32", most 1.1, |device| {
        let (inputs, state) = of_cell(device, 4, F32)?;
        // Two states and four gates come out: the gates are kept for backward.
        let least = inputs.iter().map(nbytes).sum::<usize>() + 6 * nbytes(&state);
        let call = forward(inputs, |x| x[0].fused_lstm_cell(&x[1], &x[2]).map(|(h, _)| h))?;
        Ok(Call { least, ..call })
    }),
    case!("lstm_cell [256, 256] f32, backward", most 1.1, |device| {
        let (inputs, state) = of_cell(device, 4, F32)?;
        let op = |x: &[Tensor]| x[0].fused_lstm_cell(&x[1], &x[2]).map(|(h, _)| h);
        // Four gates, two states and a gradient go in, gradients of the gates' sums and of the state come out.
        backward(inputs, op, move |_, _| 12 * nbytes(&state))
    }),
    case!("gru_cell [256, 256] bf16", most 1.1, |device| {
        let (inputs, state) = of_cell(device, 3, BF16)?;
        let least = inputs.iter().map(nbytes).sum::<usize>() + 5 * nbytes(&state);
        let call = forward(inputs, |x| x[0].fused_gru_cell(&x[1], &x[2]))?;
        Ok(Call { least, ..call })
    }),
    case!("gru_cell [256, 256] bf16, backward", most 1.1, |device| {
        let (inputs, state) = of_cell(device, 3, BF16)?;
        backward(inputs, |x| x[0].fused_gru_cell(&x[1], &x[2]), move |_, _| 13 * nbytes(&state))
    }),
    case!("max_pool2d [4, 16, 56, 56] f32, 2 x 2", most 1.1, |device| {
        let x = numbers(device, &[4, 16, 56, 56], F32)?;
        // The places are written too, as whole numbers of 64 bits.
        let least = nbytes(&x) + nbytes(&x) / 4 * 3;
        Ok(Call { least, ..forward(vec![x], |x| x[0].max_pool2d(Pool2d::new([2, 2])))? })
    }),
    case!("max_pool2d [4, 16, 56, 56] f32, 2 x 2, backward", most 1.1, |device| {
        let x = numbers(device, &[4, 16, 56, 56], F32)?;
        let op = |x: &[Tensor]| x[0].max_pool2d(Pool2d::new([2, 2]));
        backward(vec![x], op, |x, y| nbytes(&x[0]) + 3 * nbytes(y))
    }),
    case!("max_pool2d [2, 8, 112, 112] f32, 3 x 3 by 2", most 1.1, |device| {
        let x = numbers(device, &[2, 8, 112, 112], F32)?;
        let least = nbytes(&x) + nbytes(&x) / 4 * 3;
        Ok(Call { least, ..forward(vec![x], |x| x[0].max_pool2d(OVERLAPPING))? })
    }),
    case!("max_pool2d [2, 8, 112, 112] f32, 3 x 3 by 2, backward", most 1.1, |device| {
        let x = numbers(device, &[2, 8, 112, 112], F32)?;
        let op = |x: &[Tensor]| x[0].max_pool2d(OVERLAPPING);
        backward(vec![x], op, |x, y| nbytes(&x[0]) + 3 * nbytes(y))
    }),
    case!("avg_pool2d [4, 16, 56, 56] f32, 2 x 2", most 1.1, |device| {
        let x = numbers(device, &[4, 16, 56, 56], F32)?;
        forward(vec![x], |x| x[0].avg_pool2d(AvgPool2d::new([2, 2])))
    }),
    case!("avg_pool2d [4, 16, 56, 56] f32, 2 x 2, backward", most 1.1, |device| {
        let x = numbers(device, &[4, 16, 56, 56], F32)?;
        let op = |x: &[Tensor]| x[0].avg_pool2d(AvgPool2d::new([2, 2]));
        backward(vec![x], op, |x, y| nbytes(&x[0]) + nbytes(y))
    }),
    case!("adaptive_avg_pool2d [16, 64, 7, 7] f32 to 1 x 1", most 1.1, |device| {
        let x = numbers(device, &[16, 64, 7, 7], F32)?;
        forward(vec![x], |x| x[0].adaptive_avg_pool2d([1, 1]))
    }),
    // Of a product by tiles, the least is what each tile takes of its two operands: (rows + columns) x depth; and the result.
    case!("matmul [16, 512, 64] @ [16, 64, 512] f32", most 2.0, no conflicts, |device| {
        product(device, F32, [16, 512, 512, 64], "tn", [128, 128, 1])
    }),
    case!("matmul [128, 64, 32] @ [128, 32, 64] f32", most 2.0, no conflicts, |device| {
        product(device, F32, [128, 64, 64, 32], "nt", [64, 64, 1])
    }),
    case!("matmul [16, 512, 64] @ [16, 64, 512] bf16", most 2.0, no conflicts, |device| {
        product(device, BF16, [16, 512, 512, 64], "nn", [128, 128, 1])
    }),
    case!("matmul [16, 512, 64] @ [16, 64, 512] bf16, turned", most 2.0, no conflicts, |device| {
        product(device, BF16, [16, 512, 512, 64], "tt", [128, 128, 1])
    }),
    case!("matmul [64, 128, 64] @ [64, 64, 128] bf16", most 2.0, no conflicts, |device| {
        product(device, BF16, [64, 128, 128, 64], "nt", [64, 64, 1])
    }),
    case!("matmul [128, 2048] @ [2048, 128] bf16, shared sums", most 2.0, no conflicts, |device| {
        product(device, BF16, [1, 128, 128, 2048], "tn", [32, 32, 8])
    }),
    case!("matmul [16, 512, 63] @ [16, 63, 511] bf16, odd", most 2.0, no conflicts, |device| {
        product(device, BF16, [16, 512, 511, 63], "nn", [128, 128, 1])
    }),
    case!("matmul [16, 512, 64] @ [16, 64, 512] tf32", most 2.0, no conflicts, |device| {
        Ok(by_tf32(product(device, F32, [16, 512, 512, 64], "nn", [128, 128, 1])?))
    }),
    case!("matmul [16, 512, 64] @ [16, 64, 512] tf32, turned", most 2.0, no conflicts, |device| {
        Ok(by_tf32(product(device, F32, [16, 512, 512, 64], "tt", [128, 128, 1])?))
    }),
    // And of a linear layer the residual and the bias.
    case!("linear [1024, 64] by [1024, 64] f32, gelu and residual", most 2.0, no conflicts, |device| {
        layer(device, F32, 1024, [128, 64])
    }),
    case!("linear [2048, 64] by [1024, 64] bf16, gelu and residual", most 2.0, no conflicts, |device| {
        layer(device, BF16, 2048, [128, 128])
    }),
    case!("linear [1024, 64] by [1024, 64] bf16, gelu and residual", most 2.0, no conflicts, |device| {
        layer(device, BF16, 1024, [64, 64])
    }),
    case!("linear [1024, 64] by [1024, 64] tf32, gelu and residual", most 2.0, no conflicts, |device| {
        Ok(by_tf32(layer(device, F32, 1024, [64, 64])?))
    }),
    case!("conv2d [8, 64, 16, 16] by 64, 3 x 3, f32", most 2.0, no conflicts, |device| {
        let (x, weight) = (numbers(device, &[8, 64, 16, 16], F32)?, numbers(device, &[64, 64, 3, 3], F32)?);
        let tiles = (8 * 16 * 16_usize).div_ceil(64);
        let least = tiles * (64 + 64) * 64 * 9 * 4 + nbytes(&x);
        Ok(Call { least, ..forward(vec![x, weight], |x| x[0].conv2d(&x[1], None, PADDED))? })
    }),
    case!("conv2d [8, 64, 16, 16] by 64, 3 x 3, f32, backward", most 2.0, no conflicts, |device| {
        let (x, weight) = (numbers(device, &[8, 64, 16, 16], F32)?, numbers(device, &[64, 64, 3, 3], F32)?);
        let op = |x: &[Tensor]| x[0].conv2d(&x[1], None, PADDED);
        backward(vec![x, weight], op, |x, _| {
            let (tiles, pixels) = ((8 * 16 * 16_usize).div_ceil(64), 8 * 16 * 16);
            let image = tiles * (64 + 64) * 64 * 9 * 4 + nbytes(&x[0]);
            // A part for each image, which are added then.
            let parts = 8 * nbytes(&x[1]);
            image + 36 * (32 + 16) * pixels * 4 + 2 * parts + nbytes(&x[1])
        })
    }),
    // Of attention, the least is what each tile takes of its operands, and the results.
    case!("attention [1, 2, 192, 64] f32", most 1.1, no conflicts, |device| {
        attention(device, F32, false)
    }),
    case!("attention [1, 2, 192, 64] f32, causal", most 1.1, no conflicts, |device| {
        attention(device, F32, true)
    }),
    case!("attention [1, 2, 192, 64] bf16, causal", most 1.1, no conflicts, |device| {
        attention(device, BF16, true)
    }),
    case!("attention [1, 2, 192, 64] f32, backward", most 2.0, no conflicts, |device| {
        attention_backward(device, F32, false)
    }),
    case!("attention [1, 2, 192, 64] f32, causal, backward", most 2.0, no conflicts, |device| {
        attention_backward(device, F32, true)
    }),
    case!("attention [1, 2, 192, 64] bf16, causal, backward", most 2.0, no conflicts, |device| {
        attention_backward(device, BF16, true)
    }),
    case!("conv2d [4, 32, 28, 28] depthwise, 3 x 3, f32", most 2.0, |device| {
        let (x, weight) = (numbers(device, &[4, 32, 28, 28], F32)?, numbers(device, &[32, 1, 3, 3], F32)?);
        let options = Conv2dOptions { groups: 32, ..PADDED };
        forward(vec![x, weight], move |x| x[0].conv2d(&x[1], None, options))
    }),
    case!("conv2d [4, 32, 28, 28] depthwise, 3 x 3, f32, backward", most 2.0, |device| {
        let (x, weight) = (numbers(device, &[4, 32, 28, 28], F32)?, numbers(device, &[32, 1, 3, 3], F32)?);
        let options = Conv2dOptions { groups: 32, ..PADDED };
        let op = move |x: &[Tensor]| x[0].conv2d(&x[1], None, options);
        // The gradient of the output is read for that of the input and for that of the weight.
        backward(vec![x, weight], op, |x, y| 2 * nbytes(&x[0]) + 2 * nbytes(y) + 2 * nbytes(&x[1]))
    }),
    case!("sort [256, 1000] f32", most 1.1, |device| {
        let x = numbers(device, &[256, 1000], F32)?;
        let least = nbytes(&x) * 4;
        Ok(Call { least, ..forward(vec![x], |x| Ok(x[0].sort(-1, false)?.0))? })
    }),
    // Each pass over the elements reads and writes a number and its place; runs of 1024 are merged by twos, twice. The least is that
    // of one pass.
    case!("sort [64, 4096] f32", most 4.0, |device| {
        let x = numbers(device, &[64, 4096], F32)?;
        let least = nbytes(&x) * 4;
        Ok(Call { least, ..forward(vec![x], |x| Ok(x[0].sort(-1, false)?.0))? })
    }),
];

const OVERLAPPING: Pool2d = Pool2d {
    kernel: [3, 3],
    stride: [2, 2],
    padding: [1, 1],
    dilation: [1, 1],
    ceil_mode: false,
};
const PADDED: Conv2dOptions = Conv2dOptions {
    stride: [1, 1],
    padding: [1, 1],
    dilation: [1, 1],
    groups: 1,
};

/// Rows of a tile of attention, and queries and keys of the cases, each of 64 numbers, of 2 heads.
const TILE: usize = 48;
const ROWS: usize = 192;

/// Query, key and value.
fn of_attention(device: Device, dtype: DType) -> Result<Vec<Tensor>> {
    let of = || numbers(device, &[1, 2, ROWS, 64], dtype);
    Ok(vec![of()?, of()?, of()?])
}

fn attend(x: &[Tensor], is_causal: bool) -> Result<Tensor> {
    let options = Attention {
        is_causal,
        ..Attention::default()
    };
    x[0].scaled_dot_product_attention(&x[1], &x[2], options)
}

/// Over all tiles of a side, the rows of the other side that they see; for one head.
fn rows_seen(is_causal: bool) -> usize {
    let ends = (1..=ROWS / TILE).map(|tile| if is_causal { tile * TILE } else { ROWS });
    ends.sum()
}

fn attention(device: Device, dtype: DType, is_causal: bool) -> Result<Call> {
    let call = forward(of_attention(device, dtype)?, move |x| attend(x, is_causal))?;
    // Query and result, then for each tile keys and values; logarithms of sums.
    let numbers = 2 * (2 * ROWS + 2 * rows_seen(is_causal)) * 64;
    let least = numbers * dtype.size() + 2 * ROWS * 4;
    Ok(Call { least, ..call })
}

fn attention_backward(device: Device, dtype: DType, is_causal: bool) -> Result<Call> {
    let op = move |x: &[Tensor]| attend(x, is_causal);
    backward(of_attention(device, dtype)?, op, |_, _| {
        let seen = rows_seen(is_causal);
        // Sums of gradient times result. Then for each of the three gradients its tile's operands and itself, and of the
        // other side two operands for each tile.
        let products = 2 * ROWS;
        let [of_query, of_key, of_value] = [3 * ROWS, 3 * ROWS, 2 * ROWS].map(|own| own + 2 * seen);
        let numbers = 2 * (products + of_query + of_key + of_value) * 64;
        // Of queries, logarithms of sums and these sums: written, and read where they are needed.
        let state = 2 * (ROWS + 2 * ROWS + 3 * seen) * 4;
        numbers * dtype.size() + state
    })
}

/// A batch of products that tiles of so many rows and columns compute, several blocks of them sharing a sum: what they read, and
/// what they write, parts of sums twice. Matrices lie by rows (n) or by columns (t).
fn product(
    device: Device,
    dtype: DType,
    [batch, m, n, k]: [usize; 4],
    lie: &str,
    [rows, cols, splits]: [usize; 3],
) -> Result<Call> {
    let matrices = |shape: [usize; 3], lie: u8| match lie {
        b'n' => numbers(device, &shape, dtype),
        _ => numbers(device, &[shape[0], shape[2], shape[1]], dtype)?.transpose(1, 2),
    };
    let lie = lie.as_bytes();
    let inputs = vec![
        matrices([batch, m, k], lie[0])?,
        matrices([batch, k, n], lie[1])?,
    ];
    let call = forward(inputs, |x| x[0].matmul(&x[1]))?;
    let tiles = batch * m.div_ceil(rows) * n.div_ceil(cols);
    let parts = if splits > 1 {
        2 * splits * batch * m * n * 4
    } else {
        0
    };
    let least = tiles * (rows + cols) * k * dtype.size() + parts + batch * m * n * dtype.size();
    Ok(Call { least, ..call })
}

/// A linear layer with bias, gelu and residual on so many rows, by tiles of a size.
fn layer(device: Device, dtype: DType, m: usize, [rows, cols]: [usize; 2]) -> Result<Call> {
    let (n, k) = (1024, 64);
    let inputs = vec![
        numbers(device, &[m, k], dtype)?,
        numbers(device, &[n, k], dtype)?,
        numbers(device, &[n], dtype)?,
        numbers(device, &[m, n], dtype)?,
    ];
    let tiles = m.div_ceil(rows) * n.div_ceil(cols);
    let least =
        tiles * (rows + cols) * k * dtype.size() + nbytes(&inputs[2]) + 2 * nbytes(&inputs[3]);
    let call = forward(inputs, |x| {
        let epilogue = LinearEpilogue {
            activation: Some(Activation::Gelu),
            residual: Some(&x[3]),
        };
        x[0].linear_with(&x[1], Some(&x[2]), epilogue)
    })?;
    Ok(Call { least, ..call })
}

/// The same call while products of f32 may round to tf32.
fn by_tf32(call: Call) -> Call {
    let run = call.run;
    let run: Run = Box::new(move |made| {
        fireclay_tensor::set_allow_tf32(true);
        let ran = run(made);
        fireclay_tensor::set_allow_tf32(false);
        ran
    });
    Call { run, ..call }
}

/// A batch of rows with weight and bias.
fn of_norm(device: Device, dtype: DType) -> Result<Vec<Tensor>> {
    let of = |shape: &[usize]| numbers(device, shape, dtype);
    Ok(vec![of(&[512, 768])?, of(&[768])?, of(&[768])?])
}

/// Gates and state of a recurrent cell, to be differentiated; and the state alone.
fn of_cell(device: Device, gates: usize, dtype: DType) -> Result<(Vec<Tensor>, Tensor)> {
    let of = |width: usize| numbers(device, &[256, width], dtype)?.requires_grad_(true);
    let state = of(256)?;
    Ok((
        vec![of(gates * 256)?, of(gates * 256)?, state.clone()],
        state,
    ))
}

/// Images with weight and bias for each channel.
fn of_images(device: Device) -> Result<Vec<Tensor>> {
    let of = |shape: &[usize]| numbers(device, shape, F32);
    Ok(vec![of(&[16, 32, 28, 28])?, of(&[32])?, of(&[32])?])
}

fn batch_norm(x: &[Tensor]) -> Result<Tensor> {
    x[0].batch_norm(BatchNorm {
        weight: Some(&x[1]),
        bias: Some(&x[2]),
        ..Default::default()
    })
}
