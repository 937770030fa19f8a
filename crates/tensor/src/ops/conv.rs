//! Convolution over images: `conv2d`.

use std::ffi::CStr;

use fireclay_core::{DType, Error, Result, Scalar, Shape};
use fireclay_cpu::conv::{self, Conv2dShape};
use fireclay_cuda::vendor::Pass;
use fireclay_cuda::{Argument, Library};
use smallvec::{SmallVec, smallvec};

use super::conv_vendor;
use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::op::sealed::Internal;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// How a kernel moves over `N` dimensions, the outermost first: (height, width) of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvOptions<const N: usize> {
    /// Steps of the kernel.
    pub stride: [usize; N],
    /// Zeros put on each side.
    pub padding: [usize; N],
    /// Distance between taps of the kernel.
    pub dilation: [usize; N],
    /// Groups of channels that don't see each other.
    pub groups: usize,
}

/// The options of [`Tensor::conv2d`].
pub type Conv2dOptions = ConvOptions<2>;

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions {
            stride: [1; N],
            padding: [0; N],
            dilation: [1; N],
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

/// The kernels of `conv.cu`.
static KERNELS: Library = fireclay_cuda::library!("conv");

/// A kernel of which a block computes `rows` results by `cols` columns, and a thread `each` of them.
#[derive(Debug)]
struct TileKernel {
    name: &'static CStr,
    rows: usize,
    cols: usize,
    each: [usize; 2],
}

impl TileKernel {
    const fn new(name: &'static CStr, [rows, cols]: [usize; 2], each: [usize; 2]) -> TileKernel {
        TileKernel {
            name,
            rows,
            cols,
            each,
        }
    }

    fn threads(&self) -> usize {
        self.rows / self.each[0] * (self.cols / self.each[1])
    }

    fn tiles(&self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(self.rows) * cols.div_ceil(self.cols)
    }

    /// The one that is done first with `times` products of `rows` by `cols`, by a rough count of instructions.
    fn best(
        kernels: &'static [TileKernel],
        rows: usize,
        cols: usize,
        times: usize,
    ) -> &'static TileKernel {
        let cost = |kernel: &&TileKernel| {
            // Of a step of the sums: operands loaded from memory, from shared memory, and products.
            let numel = kernel.rows * kernel.cols;
            let loads = (kernel.rows + kernel.cols) * 10;
            let block = loads + numel / kernel.each[0] + numel / kernel.each[1] + numel;
            (kernel.tiles(rows, cols) * times).max(BLOCKS) * block
        };
        (kernels.iter().min_by_key(cost)).expect("there are kernels")
    }
}

/// A device works on so many blocks at once, more or less.
const BLOCKS: usize = 128;

static CORRELATE_F32: [TileKernel; 5] = [
    TileKernel::new(c"conv2d_128x128_f32", [128, 128], [8, 8]),
    TileKernel::new(c"conv2d_64x128_f32", [64, 128], [8, 8]),
    TileKernel::new(c"conv2d_64x64_f32", [64, 64], [4, 8]),
    TileKernel::new(c"conv2d_32x128_f32", [32, 128], [8, 4]),
    TileKernel::new(c"conv2d_16x256_f32", [16, 256], [4, 8]),
];
static CORRELATE_F64: [TileKernel; 2] = [
    TileKernel::new(c"conv2d_64x64_f64", [64, 64], [4, 4]),
    TileKernel::new(c"conv2d_16x128_f64", [16, 128], [4, 4]),
];
static WEIGHT_GRAD_F32: [TileKernel; 3] = [
    TileKernel::new(c"conv2d_weight_grad_64x64_f32", [64, 64], [8, 4]),
    TileKernel::new(c"conv2d_weight_grad_16x128_f32", [16, 128], [4, 4]),
    TileKernel::new(c"conv2d_weight_grad_32x16_f32", [32, 16], [4, 4]),
];
static WEIGHT_GRAD_F64: [TileKernel; 2] = [
    TileKernel::new(c"conv2d_weight_grad_32x64_f64", [32, 64], [4, 4]),
    TileKernel::new(c"conv2d_weight_grad_16x16_f64", [16, 16], [2, 2]),
];
/// Up to so many results of a group are computed without tiles.
const FEW: usize = 3;
/// Threads of a block of the kernel for the weight's gradient with one result a group, and the taps that it sums.
const FEW_THREADS: usize = 128;
const FEW_TAPS: usize = 9;
/// Bands of the weight's gradient are stored one by one, to be added afterwards, up to so many numbers.
const STORED_NUMEL: usize = 1 << 24;

/// Threads of a block that computes one result of a group at a tile of points, the points and bytes of shared memory that it has
/// room for, and the width of the widest tile.
const TILE_THREADS: usize = 256;
const TILE_POINTS: usize = 1024;
const TILE_SHARED: usize = 40 << 10;
const WIDEST_TILE: usize = 64;
/// With fewer points an image is left to single threads.
const FEWEST_POINTS: usize = 32;

/// How points are shared out to blocks.
struct PointTile {
    /// Height and width, as the kernel takes them.
    numbers: [usize; 3],
    /// Of each image and group.
    count: usize,
    threads: usize,
    /// Bytes of shared memory.
    shared: usize,
}

/// A convolution as the kernels take it.
struct OnDevice<'a, 'b> {
    call: &'a CudaCall<'b>,
    op: &'static str,
    shape: Conv2dShape,
    size: [usize; 2],
}

impl<'a, 'b> OnDevice<'a, 'b> {
    /// # Errors
    /// If places within an image of a group can't be counted in 32 bits, or the dtype has no kernels.
    fn new(
        call: &'a CudaCall<'b>,
        op: &'static str,
        (shape, size): (Conv2dShape, [usize; 2]),
    ) -> Result<OnDevice<'a, 'b>> {
        let fits = |dim: usize| {
            let reach = shape.kernel[dim].saturating_mul(shape.dilation[dim]);
            let input = [shape.height, shape.width][dim];
            let sizes = [input, reach, shape.stride[dim], shape.padding[dim]];
            sizes.iter().all(|&size| size < 1 << 27)
        };
        let image = |padding: [usize; 2]| {
            (shape.height + 2 * padding[0] + 1).saturating_mul(shape.width + 2 * padding[1] + 1)
        };
        let channels = shape.in_channels.max(shape.out_channels) / shape.groups;
        let weight = shape.weight_numel() / shape.groups;
        let countable = fits(0)
            && fits(1)
            && image(shape.padding).saturating_mul(channels.max(1)) < 1 << 31
            && weight < 1 << 31;
        if !countable {
            return Err(Error::argument(
                op,
                "images of 2^31 numbers in a group, or kernels that reach over 2^27 pixels, are more than the kernels of devices count",
            )
            .with_hint("split the channels, or convolve on the CPU: to(\"cpu\")"));
        }
        call.of_float(call.dtype(0), [c"", c""])?;
        Ok(OnDevice {
            call,
            op,
            shape,
            size,
        })
    }

    fn single(&self) -> bool {
        self.call.dtype(0) == DType::F32
    }

    /// The numbers of the kernels' `Conv`: `weight_sums` are images, rows of a band, and whether bands are stored.
    fn numbers(&self, backward: bool, weight_sums: [usize; 3]) -> Vec<u8> {
        let shape = &self.shape;
        let input = [shape.height, shape.width];
        let per_group = [shape.in_channels, shape.out_channels].map(|all| all / shape.groups);
        let taps = shape.kernel[0] * shape.kernel[1];
        let ([source, result], [channels, results], weight_strides) = match backward {
            false => {
                let strides = [per_group[0] * taps, taps];
                ([input, self.size], per_group, strides)
            }
            true => {
                let [inputs, outputs] = per_group;
                let strides = [taps, inputs * taps];
                ([self.size, input], [outputs, inputs], strides)
            }
        };
        let tap_step = |dim: usize| shape.stride[dim] / gcd(shape.stride[dim], shape.dilation[dim]);
        let mut numbers = vec![shape.batch, shape.groups, channels, results];
        let pairs = [
            source,
            result,
            shape.kernel,
            shape.stride,
            shape.padding,
            shape.dilation,
            weight_strides,
        ];
        numbers.extend(pairs.into_iter().flatten());
        numbers.extend([backward.into(), tap_step(0), tap_step(1)]);
        numbers.extend(weight_sums);
        (numbers.iter())
            .flat_map(|&number| (number as i64).to_ne_bytes())
            .collect()
    }

    /// The sums over channels and taps of the first input with the second one: the output, or the input's gradient if `backward`.
    fn correlate(
        &self,
        backward: bool,
        [source, weight, bias]: [Argument<'static>; 3],
    ) -> Result<()> {
        let (call, shape) = (self.call, &self.shape);
        let input = [shape.height, shape.width];
        // Passes over points of a grid: one for each remainder of the result's pixels by the stride.
        let (all_results, result, steps) = match backward {
            false => (shape.out_channels, self.size, [1, 1]),
            true => (shape.in_channels, input, shape.stride),
        };
        let results = all_results / shape.groups;
        let grid = [0, 1].map(|dim: usize| result[dim].div_ceil(steps[dim]));
        let passes = steps[0].min(result[0]) * steps[1].min(result[1]);
        let points = shape.batch * grid[0] * grid[1];
        let tile = match results {
            1 => self.tile(backward, grid),
            _ => None,
        };
        let bytes = self.numbers(backward, tile.as_ref().map_or([0; 3], |tile| tile.numbers));
        let numbers = Argument::Bytes(&bytes);
        let arguments = [source, weight, bias, call.output(0), numbers];
        if let Some(tile) = tile {
            let kernel = if self.single() {
                c"conv2d_one_f32"
            } else {
                c"conv2d_one_f64"
            };
            let blocks = passes * shape.groups * shape.batch * tile.count;
            // SAFETY: as below; there is shared memory for what a tile sees.
            return unsafe {
                let launch = [blocks, tile.threads, tile.shared];
                call.launch_with_shared(&KERNELS, kernel, launch, &arguments)
            };
        }
        if results <= FEW {
            let kernel = if self.single() {
                c"conv2d_few_f32"
            } else {
                c"conv2d_few_f64"
            };
            let count = passes * shape.groups * results * points;
            // SAFETY: as below.
            return unsafe { call.launch_threads(&KERNELS, kernel, count, &arguments) };
        }
        let kernels: &[TileKernel] = if self.single() {
            &CORRELATE_F32
        } else {
            &CORRELATE_F64
        };
        let kernel = TileKernel::best(kernels, results, points, passes * shape.groups);
        let blocks = passes * shape.groups * kernel.tiles(results, points);
        // SAFETY: the kernels' parameters, the last of which has the 24 numbers of `Conv`; they read and write within the sizes
        // of the operands, which are contiguous; the output rules saw to it that the sizes belong to one convolution.
        unsafe {
            let shape = [blocks, kernel.threads()];
            call.launch(&KERNELS, kernel.name, shape, &arguments)
        }
    }

    /// How points of the grid are shared out to blocks where a group has one result; None if there are no channels, if an image has
    /// too few points for a block, or if what a tile sees of the source doesn't fit into shared memory.
    fn tile(&self, backward: bool, grid: [usize; 2]) -> Option<PointTile> {
        let shape = &self.shape;
        if shape.in_channels == 0 || grid[0] * grid[1] < FEWEST_POINTS {
            return None;
        }
        // Of a dimension: steps between points, taps, and how far the last is from the first.
        let side = |dim: usize| {
            let (kernel, stride, dilation) =
                (shape.kernel[dim], shape.stride[dim], shape.dilation[dim]);
            match backward {
                false => [stride, kernel, (kernel - 1) * dilation],
                true => {
                    let tap_step = stride / gcd(stride, dilation);
                    let taps = (kernel - 1) / tap_step + 1;
                    [1, taps, (taps - 1) * (dilation * tap_step / stride)]
                }
            }
        };
        let sides = [side(0), side(1)];
        let size = self.call.dtype(0).size();
        // Parts of equal length, of at most `most` each.
        let even = |all: usize, most: usize| all.div_ceil(all.div_ceil(most.max(1)));
        let mut tile = [0, even(grid[1], WIDEST_TILE)];
        tile[0] = even(grid[0], TILE_POINTS / tile[1]);
        loop {
            let seen = [0, 1].map(|dim: usize| (tile[dim] - 1) * sides[dim][0] + sides[dim][2] + 1);
            let numel = seen[0] * seen[1] + sides[0][1] * sides[1][1] + 1;
            if numel * size <= TILE_SHARED {
                let points = tile[0] * tile[1];
                return Some(PointTile {
                    numbers: [tile[0], tile[1], 0],
                    count: grid[0].div_ceil(tile[0]) * grid[1].div_ceil(tile[1]),
                    threads: points.next_multiple_of(32).min(TILE_THREADS),
                    shared: numel * size,
                });
            }
            let longer = usize::from(tile[1] > tile[0]);
            if tile[longer] == 1 {
                return None;
            }
            tile[longer] = tile[longer].div_ceil(2);
        }
    }

    /// The gradient of the weight; inputs: image, gradient of the output.
    fn weight_grad(&self) -> Result<()> {
        let (call, shape) = (self.call, &self.shape);
        let numel = shape.weight_numel();
        if numel == 0 {
            return Ok(());
        }
        if shape.batch == 0 {
            return call.fill(Scalar::F64(0.0));
        }
        let sums = shape
            .weight_sums()
            .map_err(|error| Error::shape(self.op, error.to_string()))?;
        let bands = self.size[0].div_ceil(sums.band_rows);
        let groups_of_images = shape.batch.div_ceil(sums.images);
        let taps = shape.kernel[0] * shape.kernel[1];
        let channels = shape.in_channels / shape.groups;
        let results = shape.out_channels / shape.groups;
        if results == 1 {
            let chunks = shape.groups * channels * taps.div_ceil(FEW_TAPS);
            let parts = BLOCKS.div_ceil(chunks).clamp(1, shape.batch);
            let images = shape.batch.div_ceil(parts);
            let parts = shape.batch.div_ceil(images);
            // As many rows as fit into shared memory of what they see; if not even one does, it is read for each tap.
            let reach = |dim: usize| (shape.kernel[dim] - 1) * shape.dilation[dim] + 1;
            let seen_width = (self.size[1] - 1) * shape.stride[1] + reach(1);
            let most = TILE_SHARED / (seen_width * call.dtype(0).size());
            let rows = match most.checked_sub(reach(0)) {
                Some(more) => (more / shape.stride[0] + 1).min(self.size[0]),
                None => 0,
            };
            let seen = |rows: usize| ((rows - 1) * shape.stride[0] + reach(0)) * seen_width;
            let shared = match rows {
                0 => 0,
                rows => seen(rows) * call.dtype(0).size(),
            };
            let kernel = match (self.single(), rows) {
                (true, 0) => c"conv2d_weight_grad_few_f32",
                (false, 0) => c"conv2d_weight_grad_few_f64",
                (true, _) => c"conv2d_weight_grad_one_f32",
                (false, _) => c"conv2d_weight_grad_one_f64",
            };
            let launch = (kernel, [parts * chunks, FEW_THREADS, shared]);
            return self.add_up(launch, [images, rows, 0], [parts, parts]);
        }
        let fits = |parts: usize| parts.saturating_mul(numel) <= STORED_NUMEL;
        let every_band = shape.batch * bands;
        let most = match fits(every_band) {
            true => every_band,
            false => groups_of_images,
        };
        let kernels: &[TileKernel] = if self.single() {
            &WEIGHT_GRAD_F32
        } else {
            &WEIGHT_GRAD_F64
        };
        let kernel = TileKernel::best(kernels, results, channels * taps, shape.groups * most);
        let tiles = shape.groups * kernel.tiles(results, channels * taps);
        let split = tiles * groups_of_images < BLOCKS && fits(every_band) && every_band > 1;
        let parts = match split {
            true => [every_band, sums.images * bands],
            false => [groups_of_images, 1],
        };
        let launch = (kernel.name, [tiles * parts[0], kernel.threads(), 0]);
        self.add_up(launch, [sums.images, sums.band_rows, split.into()], parts)
    }

    /// Starts a kernel for parts of the weight's gradient, then adds them: runs of `together` parts, then those.
    fn add_up(
        &self,
        (kernel, launch): (&'static CStr, [usize; 3]),
        weight_sums: [usize; 3],
        [parts, together]: [usize; 2],
    ) -> Result<()> {
        let (call, numel) = (self.call, self.shape.weight_numel());
        let bytes = self.numbers(false, weight_sums);
        let operands = |to: Argument<'static>| [call.input(0), call.input(1), to];
        let run = |to: Argument<'static>| {
            let mut arguments = operands(to).to_vec();
            arguments.push(Argument::Bytes(&bytes));
            // SAFETY: as in `correlate`; there is room for every part of the weight's gradient.
            unsafe { call.launch_with_shared(&KERNELS, kernel, launch, &arguments) }
        };
        if parts == 1 {
            return run(call.output(0));
        }
        let scratch = call.scratch(parts * numel, call.dtype(0))?;
        let partial = address(&scratch);
        run(partial)?;
        let kernel = match self.single() {
            true => c"conv2d_add_parts_f32",
            false => c"conv2d_add_parts_f64",
        };
        let numbers = [numel, parts, together].map(|number| Argument::U64(number as u64));
        let [count, parts, together] = numbers;
        let arguments = [partial, call.output(0), count, parts, together];
        // SAFETY: the kernel's parameters; it reads the parts and writes the output, which are as long.
        unsafe { call.launch_threads(&KERNELS, kernel, numel, &arguments) }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
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

    fn cuda_inputs_of(
        &self,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        _: Internal,
    ) -> Result<KernelInputs> {
        let shapes = || geometry(self.name(), self.0, inputs[0].shape(), inputs[1].shape());
        conv_vendor::form(self.name(), Pass::Output, shapes, [inputs, outputs])
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (input, weight) = (call.layout(0).shape(), call.layout(1).shape());
        let shapes = geometry("conv2d", self.0, input, weight)?;
        if conv_vendor::computes(&call, Pass::Output, &shapes)? {
            return Ok(());
        }
        let conv = OnDevice::new(&call, "conv2d", shapes)?;
        let bias = match call.inputs() > 2 {
            true => call.input(2),
            false => Argument::Address(0),
        };
        conv.correlate(false, [call.input(0), call.input(1), bias])
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

    fn cuda_inputs_of(
        &self,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        _: Internal,
    ) -> Result<KernelInputs> {
        let shapes = || geometry(self.name(), self.options, &self.shape, inputs[0].shape());
        conv_vendor::form(self.name(), Pass::InputGrad, shapes, [inputs, outputs])
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let op = self.name();
        let shapes = geometry(op, self.options, &self.shape, call.layout(0).shape())?;
        if conv_vendor::computes(&call, Pass::InputGrad, &shapes)? {
            return Ok(());
        }
        let operands = [call.input(1), call.input(0), Argument::Address(0)];
        OnDevice::new(&call, op, shapes)?.correlate(true, operands)
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

    fn cuda_inputs_of(
        &self,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        _: Internal,
    ) -> Result<KernelInputs> {
        let shapes = || geometry(self.name(), self.options, inputs[0].shape(), &self.shape);
        conv_vendor::form(self.name(), Pass::WeightGrad, shapes, [inputs, outputs])
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let op = self.name();
        let shapes = geometry(op, self.options, call.layout(0).shape(), &self.shape)?;
        if conv_vendor::computes(&call, Pass::WeightGrad, &shapes)? {
            return Ok(());
        }
        OnDevice::new(&call, op, shapes)?.weight_grad()
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

/// Images `[n, c, h, w]` of which a convolution with `weight` makes `images` `[n, o, h', w']`.
#[track_caller]
pub(super) fn input_of(
    images: &Tensor,
    weight: &Tensor,
    options: Conv2dOptions,
    shape: Shape,
) -> Result<Tensor> {
    dispatch::call_one(Conv2dInputGrad { options, shape }, &[weight, images])
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
