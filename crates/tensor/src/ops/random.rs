//! Random numbers: factories, in-place fills, `dropout`. See Note [Random numbers].

use fireclay_core::{DType, DeviceOrDefault, Error, Result, Shape, as_one_call};
use fireclay_cpu::random;
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::match_float;
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::generator::{RngState, default_generator};
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `random.cu`: a thread makes what comes of a block of four words.
static KERNELS: Library = fireclay_cuda::library!("random");

#[derive(Clone, Copy, Debug)]
enum Distribution {
    Uniform { low: f64, high: f64 },
    Normal { mean: f64, std: f64 },
    Integers { low: i64, high: i64 },
    Bernoulli { p: f64 },
    Permutation,
}

/// Fills its output with random numbers.
#[derive(Clone, Debug)]
struct Fill {
    distribution: Distribution,
    draw: RngState,
    shape: Shape,
    dtype: DType,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        match self.distribution {
            Distribution::Uniform { .. } => "uniform_",
            Distribution::Normal { .. } => "normal_",
            Distribution::Integers { .. } => "randint",
            Distribution::Bernoulli { .. } => "bernoulli_",
            Distribution::Permutation => "randperm",
        }
    }

    fn output(&self, _inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            self.dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let RngState { seed, offset } = self.draw;
        match (self.distribution, call.output_dtype(0)) {
            (Distribution::Uniform { low, high }, DType::F32) => {
                random::fill_uniform_f32(call.output(0), seed, offset, low as f32, high as f32);
            }
            (Distribution::Uniform { low, high }, DType::F64) => {
                random::fill_uniform_f64(call.output(0), seed, offset, low, high);
            }
            (Distribution::Normal { mean, std }, DType::F32) => {
                random::fill_normal_f32(call.output(0), seed, offset, mean as f32, std as f32);
            }
            (Distribution::Normal { mean, std }, DType::F64) => {
                random::fill_normal_f64(call.output(0), seed, offset, mean, std);
            }
            (Distribution::Integers { low, high }, DType::I64) => {
                random::fill_integers(call.output(0), seed, offset, low, high);
            }
            (Distribution::Bernoulli { p }, DType::F32) => {
                random::fill_bernoulli_f32(call.output(0), seed, offset, p);
            }
            (Distribution::Permutation, DType::I64) => {
                random::fill_permutation(call.output(0), seed, offset);
            }
            (_, dtype) => {
                return Err(Error::NoKernel {
                    op: self.name(),
                    device: fireclay_core::Device::Cpu,
                    dtype,
                    context: fireclay_core::Context::hint("fill an f32 or f64 tensor and cast it"),
                });
            }
        }
        Ok(())
    }

    fn backward(&self, _context: &Backward<'_>) -> Result<Grads> {
        Ok(Grads::new())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let RngState { seed, offset } = self.draw;
        let count = call.output_layout(0).numel();
        use Argument::{F32, F64, U64};
        // The kernel, how many numbers come of a block of words, and the distribution's own numbers.
        let (kernel, each, numbers) = match (self.distribution, call.output_dtype(0)) {
            (Distribution::Uniform { low, high }, DType::F32) => {
                let (low, high) = (low as f32, high as f32);
                (c"uniform_f32", 4, [F32(low), F32(high - low)])
            }
            (Distribution::Uniform { low, high }, DType::F64) => {
                (c"uniform_f64", 2, [F64(low), F64(high - low)])
            }
            (Distribution::Normal { mean, std }, DType::F32) => {
                (c"normal_f32", 4, [F32(mean as f32), F32(std as f32)])
            }
            (Distribution::Normal { mean, std }, DType::F64) => {
                (c"normal_f64", 2, [F64(mean), F64(std)])
            }
            (Distribution::Integers { low, high }, DType::I64) => {
                let bound = high.wrapping_sub(low) as u64;
                (c"integers", 2, [U64(low as u64), U64(bound)])
            }
            (Distribution::Bernoulli { p }, DType::F32) => (c"bernoulli_f32", 4, [F64(p), F64(p)]),
            (Distribution::Permutation, DType::I64) => {
                return permutation_on_device(&call, self.draw);
            }
            _ => return Err(call.no_kernel()),
        };
        let mut arguments = vec![call.output(0), U64(count as u64), U64(seed), U64(offset)];
        arguments.extend(numbers);
        if kernel == c"bernoulli_f32" {
            arguments.pop();
        }
        // SAFETY: the kernel's parameters; it writes `count` numbers.
        unsafe { call.launch_threads(&KERNELS, kernel, count.div_ceil(each), &arguments) }
    }
}

/// Each swap of a permutation depends on the one before, so the host makes it and sends it to the device.
fn permutation_on_device(call: &CudaCall<'_>, draw: RngState) -> Result<()> {
    let count = call.output_layout(0).numel();
    let mut numbers = Vec::new();
    let room = numbers.try_reserve_exact(count);
    room.map_err(|error| Error::argument("randperm", format!("{count} numbers: {error}")))?;
    numbers.resize(count, 0i64);
    random::fill_permutation(&mut numbers, draw.seed, draw.offset);
    call.upload(&numbers)
}

#[track_caller]
fn fill(target: &Tensor, distribution: Distribution) -> Result<()> {
    let op = Fill {
        distribution,
        draw: default_generator().draw(),
        shape: target.shape().clone(),
        dtype: target.dtype(),
    };
    dispatch::call_into(op, &[], &[target])
}

/// Each element is zero with probability `p`, else scaled by `1 / (1 - p)`. The choice is a function of the draw, so
/// nothing is kept for backward, which is the same op on the gradient.
#[derive(Clone, Copy, Debug)]
struct Dropout {
    p: f64,
    draw: RngState,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        if !inputs[0].dtype.is_floating_point() {
            return Err(Error::dtype(
                self.name(),
                format!("expected a floating dtype, got {}", inputs[0].dtype),
            ));
        }
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let RngState { seed, offset } = self.draw;
        match_float!(self.name(), call.dtype(0), T => {
            let (x, out) = (call.input::<T>(0), call.output::<T>(0));
            let scale = (1.0 / (1.0 - self.p)) as T;
            let mut kept = vec![0u8; x.len()];
            random::fill_bernoulli_u8(&mut kept, seed, offset, 1.0 - self.p);
            for ((out, &x), &kept) in out.iter_mut().zip(x).zip(&kept) {
                *out = if kept == 1 { x * scale } else { 0.0 };
            }
        });
        Ok(())
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Ok(smallvec![Some(dispatch::call_one(
            *self,
            &[context.grad_output()]
        )?)])
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let RngState { seed, offset } = self.draw;
        let count = call.layout(0).numel();
        let kernel = call.of_float(call.dtype(0), [c"dropout_f32", c"dropout_f64"])?;
        let scale = 1.0 / (1.0 - self.p);
        let scale = match call.dtype(0) {
            DType::F64 => Argument::F64(scale),
            _ => Argument::F32(scale as f32),
        };
        let mut arguments = vec![call.input(0), call.output(0)];
        arguments.extend([count as u64, seed, offset].map(Argument::U64));
        arguments.extend([Argument::F64(1.0 - self.p), scale]);
        // SAFETY: the kernel's parameters; input and output have `count` numbers.
        unsafe { call.launch_threads(&KERNELS, kernel, count.div_ceil(4), &arguments) }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let draw = RngState::default();
    let fill = |distribution| -> Box<dyn Op> {
        Box::new(Fill {
            distribution,
            draw,
            shape: Shape::scalar(),
            dtype: DType::F32,
        })
    };
    vec![
        fill(Distribution::Uniform {
            low: 0.0,
            high: 1.0,
        }),
        fill(Distribution::Normal {
            mean: 0.0,
            std: 1.0,
        }),
        fill(Distribution::Integers { low: 0, high: 1 }),
        fill(Distribution::Bernoulli { p: 0.5 }),
        fill(Distribution::Permutation),
        Box::new(Dropout { p: 0.5, draw }),
    ]
}

impl Tensor {
    /// Uniform numbers from [0, 1), f32 (`torch.rand`).
    #[track_caller]
    pub fn rand(shape: &[usize], device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::empty(shape, DType::F32, device)?.uniform_(0.0, 1.0)
    }

    /// Normal numbers of mean 0 and variance 1, f32 (`torch.randn`).
    #[track_caller]
    pub fn randn(shape: &[usize], device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::empty(shape, DType::F32, device)?.normal_(0.0, 1.0)
    }

    /// Whole numbers from `low` to `high - 1`, i64 (`torch.randint`).
    #[track_caller]
    pub fn randint(
        low: i64,
        high: i64,
        shape: &[usize],
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        if low >= high {
            return Err(Error::argument(
                "randint",
                format!("expected low below high, got {low} and {high}"),
            ));
        }
        let tensor = Tensor::empty(shape, DType::I64, device)?;
        fill(&tensor, Distribution::Integers { low, high })?;
        Ok(tensor)
    }

    /// The numbers 0 to `count - 1` in random order, i64 (`torch.randperm`). Drawn by the host, whatever the device.
    #[track_caller]
    pub fn randperm(count: usize, device: impl DeviceOrDefault) -> Result<Tensor> {
        let tensor = Tensor::empty(&[count], DType::I64, device)?;
        fill(&tensor, Distribution::Permutation)?;
        Ok(tensor)
    }

    /// Overwrites with uniform numbers from [`low`, `high`) (`Tensor.uniform_`). Rounding may give `high` itself if `low` isn't 0.
    #[track_caller]
    pub fn uniform_(&self, low: f64, high: f64) -> Result<Tensor> {
        // The kernel of all but f64 computes in f32.
        let span = match self.dtype() {
            DType::F64 => high - low,
            _ => f64::from(high as f32 - low as f32),
        };
        if !(low <= high && span.is_finite()) {
            return Err(Error::argument(
                "uniform_",
                format!(
                    "expected low up to high, no further apart than the dtype reaches, got {low} and {high}"
                ),
            ));
        }
        fill(self, Distribution::Uniform { low, high })?;
        Ok(self.clone())
    }

    /// Overwrites with normal numbers (`Tensor.normal_`).
    #[track_caller]
    pub fn normal_(&self, mean: f64, std: f64) -> Result<Tensor> {
        if std < 0.0 || std.is_nan() {
            return Err(Error::argument(
                "normal_",
                format!("the standard deviation can't be negative, got {std}"),
            ));
        }
        fill(self, Distribution::Normal { mean, std })?;
        Ok(self.clone())
    }

    /// Overwrites with 1 with probability `p`, else 0 (`Tensor.bernoulli_`).
    #[track_caller]
    pub fn bernoulli_(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(
                "bernoulli_",
                format!("a probability lies between 0 and 1, got {p}"),
            ));
        }
        if self.dtype() != DType::F32 {
            let drawn = Tensor::empty(self.shape(), DType::F32, self.device())?;
            fill(&drawn, Distribution::Bernoulli { p })?;
            return self.copy_(&drawn);
        }
        fill(self, Distribution::Bernoulli { p })?;
        Ok(self.clone())
    }

    /// Uniform numbers from [0, 1) in this tensor's shape, dtype and device (`torch.rand_like`).
    #[track_caller]
    pub fn rand_like(&self) -> Result<Tensor> {
        let steps = match self.dtype() {
            DType::BF16 => 256.0,
            DType::F16 => 2048.0,
            dtype => return Tensor::empty(self.shape(), dtype, self.device())?.uniform_(0.0, 1.0),
        };
        // Cut to what 16 bits hold everywhere below 1: rounding would give 1 itself.
        as_one_call(|| {
            let wide = Tensor::empty(self.shape(), DType::F32, self.device())?;
            let cut = wide.uniform_(0.0, 1.0)?.mul(steps)?.floor()?.div(steps)?;
            cut.to_dtype(self.dtype())
        })
    }

    /// Normal numbers in this tensor's shape, dtype and device (`torch.randn_like`).
    #[track_caller]
    pub fn randn_like(&self) -> Result<Tensor> {
        Tensor::empty(self.shape(), self.dtype(), self.device())?.normal_(0.0, 1.0)
    }

    /// In training, zeroes each element with probability `p` and scales the others by `1 / (1 - p)`
    /// (`torch.nn.functional.dropout`).
    #[track_caller]
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(
                "dropout",
                format!("a probability lies between 0 and 1, got {p}"),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        if !training || p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            // Not `zeros_like`, as what is infinite or NaN shows; and a zero of this dtype, as the result has it.
            return self.mul(&Tensor::full_of(&[], 0i64, self.dtype(), self.device())?);
        }
        let draw = default_generator().draw();
        dispatch::call_one(Dropout { p, draw }, &[self])
    }
}
