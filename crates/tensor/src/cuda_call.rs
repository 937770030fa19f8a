//! `CudaCall`: what a CUDA kernel works on, and the ways to start one.

use std::ffi::CStr;

use fireclay_core::{Context, DType, Device, Element, Error, Layout, Result, Scalar, call_site};
use fireclay_cuda::pointwise::{Placed, Pointwise};
use fireclay_cuda::reduce::{Reduction, View};
use fireclay_cuda::vendor::{self, ConvOperands, Convolution, Operands, Pass, Product};
use fireclay_cuda::{Argument, DeviceBuffer, Library, Purpose, Site, Stream};
use smallvec::SmallVec;

use crate::op::Meta;
use crate::storage::Operand;

/// Threads of a block where a kernel asks for no other number.
const THREADS: usize = 256;
/// Threads that a kernel takes for a row.
const WARP: usize = 32;

/// What a CUDA kernel works on: operands on one device, locked as for [`CpuCall`](crate::CpuCall), and the stream to put the work in.
///
/// Operands come as [`Op::cuda_inputs`](crate::Op::cuda_inputs) says: by default as they are.
pub struct CudaCall<'a> {
    inputs: SmallVec<[Operand<'a>; 4]>,
    outputs: SmallVec<[Operand<'a>; 2]>,
    stream: &'a Stream,
    name: &'static str,
}

impl<'a> CudaCall<'a> {
    /// # Safety
    /// As [`CpuCall::new`], and all storages are of the stream's device.
    pub(crate) unsafe fn new(
        name: &'static str,
        stream: &'a Stream,
        inputs: SmallVec<[Operand<'a>; 4]>,
        outputs: SmallVec<[Operand<'a>; 2]>,
    ) -> CudaCall<'a> {
        CudaCall {
            inputs,
            outputs,
            stream,
            name,
        }
    }

    /// Runs a pointwise program over the inputs into the outputs, with these numbers for its constants.
    pub(crate) fn pointwise(&self, program: &Pointwise, constants: &[Scalar]) -> Result<()> {
        let outputs: SmallVec<[_; 2]> = (self.outputs.iter())
            .map(|output| Placed {
                address: output.address(),
                strides: output.layout.strides(),
            })
            .collect();
        let shape = self.outputs[0].layout.shape();
        // SAFETY: `address` checked the outputs' layouts against their storages, which are locked; the door keeps them apart.
        unsafe { self.evaluate(program, constants, shape, &self.inputs, &outputs) }
    }

    /// Runs a pointwise program over parts of operands, all of one shape: the numbers of inputs and of outputs, each with where the
    /// part lies. Parts of outputs must not overlap.
    pub(crate) fn pointwise_parts(
        &self,
        program: &Pointwise,
        constants: &[Scalar],
        inputs: &[(usize, Layout)],
        outputs: &[(usize, Layout)],
    ) -> Result<()> {
        let input = |(index, layout)| Operand {
            layout,
            ..self.inputs[index]
        };
        let output = |(index, layout)| Operand {
            layout,
            ..self.outputs[index]
        };
        let call = CudaCall {
            inputs: inputs
                .iter()
                .map(|(index, part)| input((*index, part)))
                .collect(),
            outputs: outputs
                .iter()
                .map(|(index, part)| output((*index, part)))
                .collect(),
            ..*self
        };
        call.pointwise(program, constants)
    }

    /// Runs a pointwise program over `shape`, to which the inputs are broadcast.
    ///
    /// # Safety
    /// The outputs are memory of the stream's device, of the program's dtypes, as far as the shape reaches; nobody else uses it.
    unsafe fn evaluate(
        &self,
        program: &Pointwise,
        constants: &[Scalar],
        shape: &[usize],
        inputs: &[Operand<'_>],
        outputs: &[Placed<'_>],
    ) -> Result<()> {
        let expanded = expanded(inputs, shape);
        let inputs = placed(inputs, &expanded);
        // SAFETY: `address` checked the inputs' layouts against their storages, which are locked and of the stream's device;
        // what is freed later is used again only behind this work in the stream. The caller vouches for the outputs.
        unsafe { program.launch(self.stream, self.name, shape, &inputs, constants, outputs) }
    }

    /// Copies input `index` to the part of the first output that `part` says, bit for bit.
    pub(crate) fn copy_to_part(&self, index: usize, part: &Layout) -> Result<()> {
        let (input, output) = (self.inputs[index], self.outputs[0]);
        assert_eq!(
            (input.layout.shape(), input.dtype),
            (part.shape(), output.dtype)
        );
        let target = Operand {
            layout: part,
            ..output
        };
        let call = CudaCall {
            inputs: SmallVec::from_slice(&[input]),
            outputs: SmallVec::from_slice(&[target]),
            ..*self
        };
        call.copy()
    }

    /// Copies the only input to the output, cast to its dtype.
    pub(crate) fn copy(&self) -> Result<()> {
        let (from, to) = (self.dtype(0), self.output_dtype(0));
        // Bits are copied as whole numbers of the same width, whatever they mean.
        let (from, to) = if from == to {
            let bits = bits_of(from);
            (bits, bits)
        } else {
            (from, to)
        };
        let program = Pointwise::of(&crate::ops::copy::cast(from, to).description());
        self.pointwise(&program, &[])
    }

    /// Reduces a pointwise program over `shape`, of one output of `dtype`, to one number.
    pub(crate) fn reduce_program(
        &self,
        program: &Pointwise,
        constants: &[Scalar],
        shape: &[usize],
        mean: bool,
    ) -> Result<()> {
        let count: usize = shape.iter().product();
        let divisor = mean.then_some(count as f64);
        if count == 0 {
            return self.fill_with_sum_of_nothing(mean);
        }
        let expanded = expanded(&self.inputs, shape);
        let inputs = placed(&self.inputs, &expanded);
        let to = self.outputs[0].address();
        // SAFETY: as in `evaluate`; `address` checked the output too.
        unsafe {
            program.launch_sum(
                self.stream,
                self.name,
                shape,
                &inputs,
                constants,
                (to, divisor),
            )
        }
    }

    /// Fresh memory for `count` numbers, for the time that the work put into the stream by this call takes.
    pub(crate) fn scratch(&self, count: usize, dtype: DType) -> Result<DeviceBuffer> {
        let nbytes = count.checked_mul(dtype.size());
        let nbytes =
            nbytes.ok_or_else(|| Error::argument(self.name, "too many numbers in between"))?;
        DeviceBuffer::allocate(self.stream, nbytes, Purpose::Workspaces)
    }

    /// Has the vendor's library compute a product of the first two inputs, to whose rows input `bias` is added, if the user prefers
    /// that and the library takes the product; whether it does. Places are in elements of the inputs and the output.
    ///
    /// # Safety
    /// From these places on the operands have what the product says; the bias has a number for each column.
    pub(crate) unsafe fn product_by_vendor(
        &self,
        product: &Product,
        [a, b, result]: [usize; 3],
        bias: Option<usize>,
    ) -> Result<bool> {
        let at = |operand: &Operand<'_>, place: usize| {
            operand.address() + (place * operand.dtype.size()) as u64
        };
        let operands = Operands {
            a: at(&self.inputs[0], a),
            b: at(&self.inputs[1], b),
            bias: bias.map(|index| at(&self.inputs[index], 0)),
            result: at(&self.outputs[0], result),
        };
        // SAFETY: the caller's promise; `address` checked operands against their storages, which are locked.
        unsafe { vendor::product(self.stream, self.name, product, operands) }
    }

    /// Has the vendor's library compute the first output from the first two inputs by a convolution or a gradient of one, if the user
    /// prefers that and the library takes it, or if that `is_promised`: was found before; whether it does.
    ///
    /// # Safety
    /// These three have what the convolution says, in the order input, weight, output without the one that is computed.
    pub(crate) unsafe fn convolution_by_vendor(
        &self,
        convolution: &Convolution,
        is_promised: bool,
    ) -> Result<bool> {
        let [first, second] = [0, 1].map(|index| self.inputs[index].address());
        let written = self.outputs[0].address();
        let [input, weight, output] = match convolution.pass {
            Pass::Output => [first, second, written],
            Pass::InputGrad => [written, first, second],
            Pass::WeightGrad => [first, written, second],
        };
        let operands = ConvOperands {
            input,
            weight,
            output,
        };
        let (stream, op) = (self.stream, self.name);
        let taken = is_promised
            || operands.are_aligned() && vendor::takes_convolution(stream, op, convolution)?;
        if taken {
            // SAFETY: the caller's promise; `address` checked operands against their storages, which are locked.
            unsafe { vendor::convolution(stream, op, convolution, operands) }?;
        }
        Ok(taken)
    }

    /// Puts the result of a program of two inputs in the place of the first output: that output, and input `index` along `layout`.
    pub(crate) fn combine_output(
        &self,
        program: &Pointwise,
        index: usize,
        layout: &Layout,
    ) -> Result<()> {
        let input = Operand {
            layout,
            ..self.inputs[index]
        };
        let call = CudaCall {
            inputs: SmallVec::from_slice(&[self.outputs[0], input]),
            outputs: SmallVec::from_slice(&[self.outputs[0]]),
            ..*self
        };
        call.pointwise(program, &[])
    }

    /// Starts a kernel of `library` with blocks of `threads` threads.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, in order, and reach no further than the memory behind them.
    pub(crate) unsafe fn launch(
        &self,
        library: &Library,
        kernel: &'static CStr,
        [blocks, threads]: [usize; 2],
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_with_shared(library, kernel, [blocks, threads, 0], arguments) }
    }

    /// As [`launch`](CudaCall::launch), for a kernel whose blocks share as many bytes as the last number of the shape, beside
    /// those that it declares.
    ///
    /// # Safety
    /// As for `launch`; the kernel uses no more of the shared memory.
    pub(crate) unsafe fn launch_with_shared(
        &self,
        library: &Library,
        kernel: &'static CStr,
        shape: [usize; 3],
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        if shape[0] == 0 {
            return Ok(());
        }
        let elements: usize = self
            .outputs
            .iter()
            .map(|output| output.layout.numel())
            .sum();
        let kernel = library.kernel(self.stream.gpu(), kernel)?;
        // SAFETY: the caller's promise; `address` checked operands against their storages, which are locked.
        unsafe { kernel.launch(self.stream, shape, arguments, self.name, elements as u64) }
    }

    /// As [`launch`](CudaCall::launch), for a kernel of which each thread does one of `count` things.
    ///
    /// # Safety
    /// As for `launch`.
    pub(crate) unsafe fn launch_threads(
        &self,
        library: &Library,
        kernel: &'static CStr,
        count: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            self.launch(
                library,
                kernel,
                [count.div_ceil(THREADS), THREADS],
                arguments,
            )
        }
    }

    /// As [`launch`](CudaCall::launch), for a kernel of which each warp does one of `rows` rows.
    ///
    /// # Safety
    /// As for `launch`.
    pub(crate) unsafe fn launch_rows(
        &self,
        library: &Library,
        kernel: &'static CStr,
        rows: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            self.launch(
                library,
                kernel,
                [rows.div_ceil(THREADS / WARP), THREADS],
                arguments,
            )
        }
    }

    /// The one of two kernels, for singles and for doubles, that computes in `dtype`.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn of_float(
        &self,
        dtype: DType,
        [single, double]: [&'static CStr; 2],
    ) -> Result<&'static CStr> {
        match dtype {
            DType::F32 => Ok(single),
            DType::F64 => Ok(double),
            _ => Err(self.no_kernel()),
        }
    }

    /// The last two arguments of a kernel that checks the indices of dimension `dim`, which has `size` elements. `also` is
    /// another number that they may have, and its name.
    pub(crate) fn check(
        &self,
        dim: usize,
        size: usize,
        also: Option<(&'static str, i64)>,
    ) -> Result<[Argument<'static>; 2]> {
        let (slot, number) = self.stream.gpu().check_at(Site {
            op: self.name,
            dim,
            size,
            location: call_site(),
            also,
        })?;
        Ok([Argument::Address(slot), Argument::U32(number)])
    }

    /// Input `index` as a kernel's argument: the address of its first element.
    pub(crate) fn input(&self, index: usize) -> Argument<'static> {
        Argument::Address(self.inputs[index].address())
    }

    /// Output `index` as a kernel's argument.
    pub(crate) fn output(&self, index: usize) -> Argument<'static> {
        Argument::Address(self.outputs[index].address())
    }

    /// Has the host do the work: the inputs, contiguous and all of `T`, are copied there, which is waited for and counted, and what
    /// `work` makes of them is copied back to the outputs.
    pub(crate) fn on_host<T: Element>(
        &self,
        work: impl FnOnce(&[&[T]], Vec<&mut [T]>) -> Result<()>,
    ) -> Result<()> {
        let size_of = |operand: &Operand<'_>| {
            assert!(operand.dtype == T::DTYPE && operand.layout.is_contiguous());
            operand.layout.numel() * size_of::<T>()
        };
        let room_for = |operand: &Operand<'_>| {
            let what = || format!("{} bytes for an op that runs on the host", size_of(operand));
            let mut elements: Vec<T> = Vec::new();
            (elements.try_reserve_exact(operand.layout.numel()))
                .map_err(|_| Error::out_of_memory(Device::Cpu, what(), ""))?;
            // SAFETY: reserved; zeros are a number of every dtype.
            unsafe {
                elements.as_mut_ptr().write_bytes(0, operand.layout.numel());
                elements.set_len(operand.layout.numel());
            }
            Ok(elements)
        };
        let mut inputs: Vec<Vec<T>> = Vec::new();
        for input in &self.inputs {
            let mut elements = room_for(input)?;
            // SAFETY: a number is its bytes, and any bytes are a number; `address` checked that the input lies within its storage,
            // which is locked.
            unsafe {
                let bytes = std::slice::from_raw_parts_mut(
                    elements.as_mut_ptr().cast::<u8>(),
                    size_of(input),
                );
                let reason = fireclay_cuda::sync::Reason::HostWork;
                fireclay_cuda::download_for(reason, self.stream, input.address(), bytes)?;
            }
            inputs.push(elements);
        }
        let mut outputs: Vec<Vec<T>> =
            (self.outputs.iter()).map(room_for).collect::<Result<_>>()?;
        let inputs: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
        work(&inputs, outputs.iter_mut().map(Vec::as_mut_slice).collect())?;
        for (elements, output) in outputs.iter().zip(&self.outputs) {
            // SAFETY: as above; the output has room for its elements.
            unsafe {
                let bytes =
                    std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of(output));
                fireclay_cuda::upload(self.stream, output.address(), bytes)?;
            }
        }
        Ok(())
    }

    /// Copies elements of the host to the only output, which is contiguous and as long.
    pub(crate) fn upload(&self, elements: &[i64]) -> Result<()> {
        let output = self.outputs[0];
        assert!(output.dtype == DType::I64 && output.layout.is_contiguous());
        assert_eq!(elements.len(), output.layout.numel());
        let bytes: Vec<u8> = elements
            .iter()
            .flat_map(|element| element.to_ne_bytes())
            .collect();
        // SAFETY: `address` checked that the output has room for its elements; its storage is locked.
        unsafe { fireclay_cuda::upload(self.stream, output.address(), &bytes) }
    }

    /// Reduces the only input, which is contiguous, over the middle of `view`.
    pub(crate) fn reduce(
        &self,
        reduction: Reduction,
        view: View,
        divisor: Option<f64>,
    ) -> Result<()> {
        let (input, output) = (self.inputs[0], self.outputs[0]);
        assert!(input.layout.is_contiguous() && output.layout.is_contiguous());
        let dtype = input.dtype;
        if !matches!(dtype, DType::F32 | DType::F64 | DType::I64) || output.dtype != dtype {
            return Err(self.no_kernel());
        }
        if view.outer * view.inner == 0 {
            return Ok(());
        }
        // SAFETY: `address` checked the input's layout against its storage, which is locked.
        unsafe { self.reduce_from(input.address(), reduction, view, divisor) }
    }

    /// Reduces numbers at `from` into the first output.
    ///
    /// # Safety
    /// There are the view's elements, of the output's dtype.
    unsafe fn reduce_from(
        &self,
        from: u64,
        reduction: Reduction,
        view: View,
        divisor: Option<f64>,
    ) -> Result<()> {
        let output = self.outputs[0];
        if view.reduce == 0 {
            // There is no other reduction of nothing.
            return self.fill_with_sum_of_nothing(divisor.is_some());
        }
        let what = (fireclay_core::program::class_of(output.dtype), reduction);
        let addresses = (from, output.address());
        // SAFETY: the caller's elements; `address` checked the output against its storage, which is locked.
        unsafe {
            fireclay_cuda::reduce::reduce(self.stream, self.name, what, view, addresses, divisor)
        }
    }

    fn fill_with_sum_of_nothing(&self, mean: bool) -> Result<()> {
        self.fill(Scalar::F64(if mean { f64::NAN } else { 0.0 }))
    }

    /// Writes a number over all elements of the only output.
    pub(crate) fn fill(&self, value: Scalar) -> Result<()> {
        let output = self.outputs[0];
        let mut program = fireclay_cpu::program::Program::new();
        let class = fireclay_core::program::class_of(output.dtype);
        let register = program.constant(class, value);
        program.output(register, output.dtype);
        let kernel = Pointwise::of(&program.description());
        let call = CudaCall {
            inputs: SmallVec::new(),
            outputs: self.outputs.clone(),
            ..*self
        };
        call.pointwise(&kernel, &[value])
    }

    /// The error of an op that has no kernel for these operands.
    pub(crate) fn no_kernel(&self) -> Error {
        Error::NoKernel {
            op: self.name,
            device: self.device(),
            dtype: (self.inputs.first().or(self.outputs.first()))
                .map_or(DType::F32, |operand| operand.dtype),
            context: Context::hint(
                "move the operands to the CPU for this op: to(\"cpu\"); nothing is moved in silence",
            ),
        }
    }

    /// The op's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The layout of output `index`.
    pub(crate) fn output_layout(&self, index: usize) -> &'a Layout {
        self.outputs[index].layout
    }

    /// The layout of input `index`.
    pub fn layout(&self, index: usize) -> &'a Layout {
        self.inputs[index].layout
    }

    /// The dtype of input `index`.
    pub fn dtype(&self, index: usize) -> DType {
        self.inputs[index].dtype
    }

    /// The dtype of output `index`.
    pub fn output_dtype(&self, index: usize) -> DType {
        self.outputs[index].dtype
    }

    /// What an output rule sees of the inputs.
    pub(crate) fn metas(&self) -> SmallVec<[Meta<'_>; 4]> {
        self.inputs.iter().map(Operand::meta).collect()
    }

    /// The dtypes of the outputs.
    pub(crate) fn output_dtypes(&self) -> SmallVec<[DType; 2]> {
        self.outputs.iter().map(|output| output.dtype).collect()
    }

    /// The device's compute capability, major and minor.
    pub(crate) fn capability(&self) -> (u32, u32) {
        self.stream.gpu().properties().capability
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.stream.gpu().device()
    }
}

/// Memory as a kernel's argument: the address of its first byte.
pub(crate) fn address(buffer: &DeviceBuffer) -> Argument<'static> {
    Argument::Address(buffer.address())
}

/// The layouts of operands over the shape to which they broadcast.
fn expanded(operands: &[Operand<'_>], shape: &[usize]) -> SmallVec<[Layout; 4]> {
    let layouts = operands.iter().map(|operand| {
        let layout = operand.layout.expand(&shape.into());
        layout.expect("the output rule checked that the shapes broadcast")
    });
    layouts.collect()
}

/// Operands with the strides of these layouts, as kernels take them.
fn placed<'a>(operands: &[Operand<'_>], layouts: &'a [Layout]) -> SmallVec<[Placed<'a>; 4]> {
    let pairs = operands.iter().zip(layouts);
    let places = pairs.map(|(operand, layout)| Placed {
        address: operand.address(),
        strides: layout.strides(),
    });
    places.collect()
}

/// A dtype that copies the bits of another one unchanged.
fn bits_of(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::I16,
        4 => DType::I32,
        8 => DType::I64,
        _ => dtype,
    }
}
