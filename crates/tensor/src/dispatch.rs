//! The one door: the only way an op runs.
//!
//! `call` checks devices, asks the op for its outputs, allocates them, runs the kernel, and records the op for
//! autograd. Whatever must see every op hangs here.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use fireclay_core::{
    Context, DType, Device, Error, Made, Origin, Result, Shape, call_site, called_from,
};
use fireclay_cpu::program::{Program, Sink, Source};
use fireclay_cuda::pointwise::Set;
use smallvec::{SmallVec, smallvec};

use crate::autograd::{self, Recording};
use crate::cuda_call::CudaCall;
use crate::op::sealed::Internal;
use crate::op::{Autocast, KernelInputs, Meta, Op, OutputMeta, Outputs};
use crate::storage::{self, Access, CpuCall, Operand, Storage};
use crate::tensor::Tensor;

/// An op that [`observe`] saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The op's name.
    pub name: &'static str,
    /// What autocast does with its inputs.
    pub autocast: Autocast,
}

thread_local! {
    static SEEN: RefCell<Option<Vec<Seen>>> = const { RefCell::new(None) };
}

/// Runs `work` and tells which ops this thread ran in it, in order; gradients are computed by other threads and are not among them.
pub fn observe<T>(work: impl FnOnce() -> T) -> (T, Vec<Seen>) {
    /// Puts back what was observed before, also where `work` panics.
    struct Outer(Option<Vec<Seen>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            let outer = self.0.take();
            SEEN.with(|seen| *seen.borrow_mut() = outer);
        }
    }
    let outer = Outer(SEEN.with(|seen| seen.borrow_mut().replace(Vec::new())));
    let result = work();
    let seen = SEEN.with(|seen| seen.borrow_mut().take());
    drop(outer);
    (result, seen.unwrap_or_default())
}

fn note(op: &dyn Op) {
    SEEN.with(|seen| {
        if let Ok(mut seen) = seen.try_borrow_mut()
            && let Some(list) = seen.as_mut()
        {
            list.push(Seen {
                name: op.name(),
                autocast: op.autocast(),
            });
        }
    });
}

/// Runs `op` on `inputs` and returns its outputs.
#[track_caller]
pub fn call<O: Op>(op: O, inputs: &[&Tensor]) -> Result<Outputs> {
    let origin = Origin::here();
    note(&op);
    let recording = Recording::wanted(inputs);
    autograd::check_views(op.name(), inputs)?;
    let moved = numbers_moved(&op, inputs, origin.location)?;
    let moved: SmallVec<[&Tensor; 4]> = moved.iter().collect();
    let inputs = if moved.is_empty() { inputs } else { &moved[..] };
    let outputs = run(&op, inputs, origin)?;
    if recording
        && outputs
            .iter()
            .any(|output| output.dtype().is_floating_point())
    {
        autograd::record(Arc::new(op), inputs, &outputs, origin.location)?;
    }
    Ok(outputs)
}

/// Runs an op of one output.
#[track_caller]
pub fn call_one<O: Op>(op: O, inputs: &[&Tensor]) -> Result<Tensor> {
    let mut outputs = call(op, inputs)?;
    debug_assert_eq!(outputs.len(), 1);
    Ok(outputs.remove(0))
}

/// Runs `op` and writes its outputs into existing tensors: the in-place and `out` form.
///
/// A target may be among the inputs: the op sees the values it had before. Shapes must be equal; a target of another dtype is
/// cast to where PyTorch allows it (never from a higher kind to a lower one).
#[track_caller]
pub fn call_into<O: Op>(op: O, inputs: &[&Tensor], targets: &[&Tensor]) -> Result<()> {
    let location = call_site();
    note(&op);
    let context = |error: Error| with_operands(error, inputs, targets);
    for target in targets {
        autograd::check_in_place(op.name(), target, inputs).map_err(context)?;
    }
    autograd::check_views(op.name(), inputs)?;
    let moved = match targets.first() {
        Some(target) if !target.device().is_cpu() => numbers_moved(&op, inputs, location)?,
        _ => SmallVec::new(),
    };
    let moved: SmallVec<[&Tensor; 4]> = moved.iter().collect();
    let inputs = if moved.is_empty() { inputs } else { &moved[..] };
    check_devices(op.name(), inputs, targets, location).map_err(context)?;
    let metas = op.output(&metas(inputs)).map_err(context)?;
    for (meta, target) in metas.iter().zip(targets) {
        check_target(op.name(), meta, target).map_err(context)?;
    }
    if (1..targets.len()).any(|later| {
        let target = targets[later];
        targets[..later]
            .iter()
            .any(|earlier| earlier.shares_storage(target))
    }) {
        let error = Error::argument(op.name(), "two of the tensors written to share one storage");
        return Err(context(error.with_hint("write to a copy() of one of them")));
    }
    if metas.len() != targets.len() {
        let (results, given) = (metas.len(), targets.len());
        let what = format!("{results} results can't be written to {given} tensors");
        return Err(context(Error::argument(op.name(), what)));
    }
    let recording = Recording::wanted_in_place(inputs, targets);
    let inputs = separate(&op, inputs, targets)?;
    let inputs: SmallVec<[&Tensor; 4]> = inputs.iter().collect();
    let overwritten = if recording {
        autograd::save_overwritten(&op, &inputs, targets)?
    } else {
        SmallVec::new()
    };
    run_on_device(&op, &inputs, targets, Targets::Shared(&metas), location).map_err(context)?;
    for target in targets {
        target.0.storage.mark_modified(location);
    }
    if recording {
        autograd::record_in_place(Arc::new(op), &inputs, targets, &overwritten, location)?;
    }
    Ok(())
}

fn run(op: &dyn Op, inputs: &[&Tensor], origin: Origin) -> Result<Outputs> {
    let context = |error: Error| with_operands(error, inputs, &[]);
    check_devices(op.name(), inputs, &[], origin.location).map_err(context)?;
    if let Some(layout) = inputs.first().and_then(|input| op.view(input.layout())) {
        let made = Origin {
            made: Made::Made,
            ..origin
        };
        let layout = layout.map_err(context)?;
        checked_nbytes(layout.shape(), inputs[0].dtype(), inputs[0].device()).map_err(context)?;
        return Ok(smallvec![inputs[0].alias(layout, made)]);
    }
    let device = op
        .target(Internal)
        .or(inputs.first().map(|input| input.device()))
        .unwrap_or(Device::Cpu);
    let metas = op.output(&metas(inputs)).map_err(context)?;
    let origin = match op.target(Internal) {
        Some(_) => Origin {
            made: Made::Moved,
            ..origin
        },
        None => origin,
    };
    let mut outputs = Outputs::new();
    for meta in metas {
        outputs.push(allocate(op.name(), meta, device, origin).map_err(context)?);
    }
    let targets: SmallVec<[&Tensor; 2]> = outputs.iter().collect();
    run_on_device(op, inputs, &targets, Targets::Fresh, origin.location).map_err(context)?;
    drop(targets);
    Ok(outputs)
}

/// The bytes of a tensor's elements. Also those of a view must be countable, though many of its elements may be one place.
fn checked_nbytes(shape: &Shape, dtype: DType, device: Device) -> Result<usize> {
    shape
        .checked_numel()
        .and_then(|numel| numel.checked_mul(dtype.size()))
        .ok_or_else(|| {
            let what = format!("a tensor {dtype}{shape} is larger than memory can be");
            Error::out_of_memory(device, what, "")
        })
}

/// A fresh tensor of unspecified content for what `name` says.
fn allocate(name: &str, meta: OutputMeta, device: Device, origin: Origin) -> Result<Tensor> {
    let (dtype, shape) = (meta.dtype, meta.layout.shape());
    let nbytes = checked_nbytes(shape, dtype, device)?;
    let storage = Storage::allocate(device, nbytes, origin.location).map_err(|error| {
        let location = origin.location;
        error.with_request(|| format!("{dtype}{shape} for {name}, called at {location}"))
    })?;
    Ok(Tensor::from_parts(
        storage,
        meta.layout,
        meta.dtype,
        device,
        origin,
    ))
}

/// A fresh tensor of unspecified content.
pub(crate) fn empty(meta: OutputMeta, device: Device, origin: Origin) -> Result<Tensor> {
    allocate("a new tensor", meta, device, origin)
}

/// Whether others may hold the tensors that an op writes.
#[derive(Clone, Copy)]
enum Targets<'a> {
    /// Just allocated as the output rule says: nobody else can reach them, so they need no lock.
    Fresh,
    /// The user's, with what the output rule says: their dtypes may be others.
    Shared(&'a [OutputMeta]),
}

/// Runs the kernel of the device that the tensors are on, for a line of the user: also what the kernel itself needs is
/// counted there.
fn run_on_device(
    op: &dyn Op,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    kind: Targets<'_>,
    location: &'static Location<'static>,
) -> Result<()> {
    let ran = match targets[0].device() {
        Device::Cpu => run_where_they_are(op, inputs, targets, kind),
        Device::Cuda(_) => called_from(location, || run_where_they_are(op, inputs, targets, kind)),
    };
    ran.map_err(|error| {
        error.with_request(|| {
            format!(
                "what {} needs while it runs, called at {location}",
                op.name()
            )
        })
    })
}

fn run_where_they_are(
    op: &dyn Op,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    kind: Targets<'_>,
) -> Result<()> {
    let device = targets[0].device();
    match (inputs.first().map(|input| input.device()), device) {
        (Some(source), target) if source != target => {
            // Only the op that moves has a target of its own; its output rule keeps shape and dtype.
            let source = autograd::no_grad(|| inputs[0].packed())?;
            storage::transfer(&source.0.storage, &targets[0].0.storage, source.nbytes())
        }
        (_, Device::Cpu) => run_prepared(op, op.cpu_inputs(), inputs, targets, kind),
        (_, Device::Cuda(_)) => {
            let form = op.cuda_inputs_of(inputs, targets, Internal)?;
            run_prepared(op, form, inputs, targets, kind)
        }
    }
}

/// Runs the CUDA kernel.
fn run_cuda(
    op: &dyn Op,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    ordinal: usize,
    kind: Targets<'_>,
) -> Result<()> {
    let stream = fireclay_cuda::Gpu::get(ordinal)?.stream();
    let written = match kind {
        Targets::Fresh => &[],
        Targets::Shared(_) => targets,
    };
    let _access = Access::many(
        inputs.iter().map(|input| &input.0.storage),
        written.iter().map(|target| &target.0.storage),
    );
    let inputs = inputs.iter().map(|input| operand(input)).collect();
    let outputs = targets.iter().map(|target| operand(target)).collect();
    // SAFETY: as in `run_kernel`, and `check_devices` saw to it that all are on this device.
    op.cuda(unsafe { CudaCall::new(op.name(), stream, inputs, outputs) })
}

/// The inputs with numbers of the host (tensors without dimensions) moved to the device of the others, where the op takes
/// such a mixture; nothing if there is nothing to move. The move is recorded, so that gradients come back.
fn numbers_moved(
    op: &dyn Op,
    inputs: &[&Tensor],
    location: &'static Location<'static>,
) -> Result<SmallVec<[Tensor; 4]>> {
    let is_number = |input: &Tensor| input.device().is_cpu() && input.ndim() == 0;
    let mut devices = inputs
        .iter()
        .filter(|input| !is_number(input))
        .map(|input| input.device());
    let Some(device) = devices.next().filter(|device| !device.is_cpu()) else {
        return Ok(SmallVec::new());
    };
    if !inputs.iter().any(|input| is_number(input)) || !op.takes_host_numbers(Internal) {
        return Ok(SmallVec::new());
    }
    let moved = inputs.iter().map(|&input| match is_number(input) {
        true => called_from(location, || input.to(device)),
        false => Ok(input.clone()),
    });
    moved.collect()
}

/// Runs the kernel over inputs brought into the form that it takes.
fn run_prepared(
    op: &dyn Op,
    form: KernelInputs,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    kind: Targets<'_>,
) -> Result<()> {
    if form == KernelInputs::AsIs {
        return run_kernel(op, inputs, targets, kind);
    }
    let any_dtype = matches!(form, KernelInputs::Packed | KernelInputs::StridedPacked);
    let any_strides = matches!(form, KernelInputs::Strided | KernelInputs::StridedPacked);
    let widen = |tensor: &Tensor| !any_dtype && tensor.dtype().is_half();
    let ready = |tensor: &Tensor| !widen(tensor) && (any_strides || tensor.is_contiguous());
    // The dtype in which the kernel gives output `index`.
    let kernel_dtype = |index: usize| {
        let dtype = match kind {
            Targets::Fresh => targets[index].dtype(),
            Targets::Shared(metas) => metas[index].dtype,
        };
        match dtype {
            _ if any_dtype => dtype,
            _ if dtype.is_half() => DType::F32,
            _ => dtype,
        }
    };
    let plain = |index: usize| {
        targets[index].dtype() == kernel_dtype(index) && targets[index].is_contiguous()
    };
    if inputs.iter().all(|input| ready(input)) && (0..targets.len()).all(plain) {
        return run_kernel(op, inputs, targets, kind);
    }
    autograd::no_grad(|| {
        let prepared: SmallVec<[Tensor; 4]> = inputs
            .iter()
            .map(|&input| match (widen(input), ready(input)) {
                (true, _) => input.to_dtype(DType::F32)?.contiguous(),
                (false, false) => input.contiguous(),
                (false, true) => Ok(input.clone()),
            })
            .collect::<Result<_>>()?;
        let results: SmallVec<[Tensor; 2]> = targets
            .iter()
            .enumerate()
            .map(|(index, &target)| {
                if plain(index) {
                    return Ok(target.clone());
                }
                let meta = OutputMeta::contiguous(target.shape().clone(), kernel_dtype(index));
                allocate(op.name(), meta, target.device(), target.origin())
            })
            .collect::<Result<_>>()?;
        let prepared: SmallVec<[&Tensor; 4]> = prepared.iter().collect();
        let result_refs: SmallVec<[&Tensor; 2]> = results.iter().collect();
        run_kernel(op, &prepared, &result_refs, kind)?;
        for (result, target) in results.iter().zip(targets) {
            if !result.is_same(target) {
                crate::ops::copy::write(result, target)?;
            }
        }
        Ok(())
    })
}

fn run_kernel(
    op: &dyn Op,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    kind: Targets<'_>,
) -> Result<()> {
    if let Device::Cuda(ordinal) = targets[0].device() {
        return run_cuda(op, inputs, targets, ordinal, kind);
    }
    let written = if matches!(kind, Targets::Shared(_)) {
        targets
    } else {
        &[]
    };
    let _access = Access::many(
        inputs.iter().map(|input| &input.0.storage),
        written.iter().map(|target| &target.0.storage),
    );
    let (mut operands, mut results) = (SmallVec::new(), SmallVec::new());
    inputs
        .iter()
        .for_each(|input| operands.push(operand(input)));
    targets
        .iter()
        .for_each(|target| results.push(Some(operand(target))));
    // SAFETY: inputs are locked; targets are locked for writing, or fresh. Layouts
    // are checked against their storage where pointers are made. `separate` saw to overlaps.
    op.cpu(unsafe { CpuCall::new(operands, results) })
}

fn operand(tensor: &Tensor) -> Operand<'_> {
    Operand {
        storage: &tensor.0.storage,
        layout: &tensor.0.layout,
        dtype: tensor.0.dtype,
    }
}

/// Evaluates `program` over sets of tensors whose first `written` are also its outputs.
///
/// The second entrance of the door: as `call_into`, for one kernel over many sets.
#[track_caller]
pub(crate) fn update<const N: usize>(
    name: &'static str,
    program: &Program,
    written: usize,
    sets: &[[&Tensor; N]],
) -> Result<()> {
    let location = call_site();
    let mut storages: Vec<usize> = Vec::with_capacity(sets.len() * written);
    for set in sets {
        let context = |error: Error| with_operands(error, set, &[]);
        for (number, tensor) in set.iter().enumerate() {
            if tensor.shape() != set[0].shape() {
                return Err(context(Error::shape(
                    name,
                    "all tensors of a set must have one shape",
                )));
            }
            if tensor.dtype() != sets[0][number].dtype() || !tensor.dtype().is_floating_point() {
                return Err(context(Error::dtype(
                    name,
                    "tensors must be floating, of one dtype in all sets",
                )));
            }
            if tensor.device() != sets[0][0].device() {
                return Err(context(mixed_devices(
                    name,
                    &[sets[0][0], tensor],
                    &[],
                    location,
                )));
            }
            if number < written {
                autograd::check_in_place(name, tensor, &[]).map_err(context)?;
                storages.push(Arc::as_ptr(&tensor.0.storage) as usize);
            }
        }
    }
    storages.sort_unstable();
    let shared = |tensor: &Tensor| {
        storages
            .binary_search(&(Arc::as_ptr(&tensor.0.storage) as usize))
            .is_ok()
    };
    let read_too = sets
        .iter()
        .any(|set| set[written..].iter().any(|tensor| shared(tensor)));
    if storages.windows(2).any(|pair| pair[0] == pair[1]) || read_too {
        return Err(Error::argument(
            name,
            "a tensor that is written shares its storage with another operand",
        ));
    }
    let _access = Access::many(
        sets.iter()
            .flat_map(|set| set[written..].iter().map(|tensor| &tensor.0.storage)),
        sets.iter()
            .flat_map(|set| set[..written].iter().map(|tensor| &tensor.0.storage)),
    );
    if let Device::Cuda(ordinal) = sets.first().map_or(Device::Cpu, |set| set[0].device()) {
        let stream = fireclay_cuda::Gpu::get(ordinal)?.stream();
        let (description, numbers) = program.description().with_numbers_apart();
        let kernel = fireclay_cuda::pointwise::Pointwise::of(&description);
        let constants: Vec<fireclay_core::Scalar> = program.constants().chain(numbers).collect();
        let is_plain = |set: &&[&Tensor; N]| set.iter().all(|tensor| tensor.is_contiguous());
        let plain: Vec<[u64; N]> = (sets.iter().filter(is_plain))
            .map(|set| set.map(|tensor| operand(tensor).address()))
            .collect();
        let counts = sets.iter().filter(is_plain).map(|set| set[0].numel());
        let plain: Vec<Set<'_>> = (counts.zip(&plain))
            .map(|(count, addresses)| Set { count, addresses })
            .collect();
        // SAFETY: as below; contiguous operands have `count` elements, and the outputs are the first ones.
        unsafe { kernel.launch_sets(stream, name, &plain, &constants)? };
        for set in sets.iter().filter(|set| !is_plain(set)) {
            let inputs = set.iter().map(|tensor| operand(tensor)).collect();
            let outputs = set[..written]
                .iter()
                .map(|tensor| operand(tensor))
                .collect();
            // SAFETY: locked above; no storage that is written is shared by another operand, except that an output is the
            // very input of its place.
            let call = unsafe { CudaCall::new(name, stream, inputs, outputs) };
            call.pointwise(&kernel, &constants)?;
        }
        let tensors = sets.iter().flat_map(|set| &set[..written]);
        tensors.for_each(|tensor| tensor.0.storage.mark_modified(location));
        return Ok(());
    }
    let operand = |tensor: &Tensor| operand(tensor).ptr();
    let mut sources: Vec<Source> = Vec::with_capacity(sets.len() * N);
    let mut sinks: Vec<Sink> = Vec::with_capacity(sets.len() * written);
    for set in sets {
        sources.extend(set.iter().map(|tensor| Source {
            ptr: operand(tensor).cast_const(),
            dtype: tensor.dtype(),
            strides: tensor.strides().into(),
        }));
        sinks.extend(set[..written].iter().map(|tensor| Sink {
            ptr: operand(tensor),
            dtype: tensor.dtype(),
            strides: tensor.strides().into(),
        }));
    }
    let evaluated: Vec<(&[usize], &[Source], &[Sink])> = sets
        .iter()
        .enumerate()
        .map(|(number, set)| {
            let (sources, sinks) = (
                &sources[number * N..][..N],
                &sinks[number * written..][..written],
            );
            (&set[0].shape()[..], sources, sinks)
        })
        .collect();
    // SAFETY: layouts are checked against their storage (`ptr`), which is locked; no storage that is written is
    // shared by another operand, except that an output is the very input of its place.
    unsafe { program.evaluate_all(&evaluated) };
    for set in sets {
        for tensor in &set[..written] {
            tensor.0.storage.mark_modified(location);
        }
    }
    Ok(())
}

/// Copies those inputs that share a target's storage, unless they are the target itself and the kernel can take that.
fn separate(op: &dyn Op, inputs: &[&Tensor], targets: &[&Tensor]) -> Result<SmallVec<[Tensor; 4]>> {
    let overwrites = op.overwrites_inputs(Internal);
    let mut separated = SmallVec::new();
    for &input in inputs {
        let clash = targets.iter().any(|target| {
            input.shares_storage(target)
                && (!overwrites
                    || input.layout() != target.layout()
                    || input.dtype() != target.dtype())
        });
        separated.push(if clash { input.copy()? } else { input.clone() });
    }
    Ok(separated)
}

fn metas<'a>(inputs: &[&'a Tensor]) -> SmallVec<[Meta<'a>; 4]> {
    let mut metas = SmallVec::new();
    inputs.iter().for_each(|input| metas.push(input.meta()));
    metas
}

fn check_devices(
    op: &'static str,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    location: &'static Location<'static>,
) -> Result<()> {
    let mut all = inputs.iter().chain(targets).copied();
    let Some(first) = all.next() else {
        return Ok(());
    };
    if all.all(|tensor| tensor.device() == first.device()) {
        return Ok(());
    }
    Err(mixed_devices(op, inputs, targets, location))
}

/// The error of operands on different devices, with the moves that put it right.
#[cold]
fn mixed_devices(
    op: &'static str,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    location: &'static Location<'static>,
) -> Error {
    let all = inputs.iter().chain(targets);
    let mut devices: Vec<Device> = all.clone().map(|tensor| tensor.device()).collect();
    devices.sort_unstable();
    devices.dedup();
    // The way out leads to the device that computes: a GPU before the host. What is written stays where it is.
    let wanted = match targets.first() {
        Some(target) => target.device(),
        None => devices[devices.len() - 1],
    };
    let mut moves = Vec::new();
    let (mut modules, mut tensors) = (false, false);
    for (number, tensor) in all.enumerate() {
        if tensor.device() == wanted {
            continue;
        }
        let owner = tensor.owner();
        modules |= owner.is_some();
        tensors |= owner.is_none();
        let name = owner.unwrap_or_else(|| operand_name(number, inputs.len()));
        let nbytes = tensor.nbytes();
        moves.push(format!("{name} ({nbytes} bytes)"));
    }
    let how = match (modules, tensors) {
        (true, false) => format!("the module, model.to(\"{wanted}\")?"),
        (true, true) => format!("x.to(\"{wanted}\")?, and the module, model.to(\"{wanted}\")?"),
        (false, _) => format!("x.to(\"{wanted}\")?"),
    };
    let devices: Vec<String> = devices.iter().map(Device::to_string).collect();
    let moves = moves.join(" and ");
    Error::DeviceMismatch {
        op,
        devices: devices.join(" and "),
        context: Context::hint(format!(
            "before {location}, move {moves} to {wanted}: {how}"
        )),
    }
}

/// What an error calls an operand: those read come first, then those written.
fn operand_name(number: usize, inputs: usize) -> String {
    if number < inputs {
        format!("input {number}")
    } else {
        "written to".to_owned()
    }
}

fn check_target(op: &'static str, meta: &OutputMeta, target: &Tensor) -> Result<()> {
    if meta.layout.shape() != target.shape() {
        return Err(Error::shape(
            op,
            format!(
                "the result has shape {}, the tensor written to has {}",
                meta.layout.shape(),
                target.shape()
            ),
        ));
    }
    if !can_cast(meta.dtype, target.dtype()) {
        return Err(Error::dtype(
            op,
            format!(
                "the result is {}, which can't be stored as {}",
                meta.dtype,
                target.dtype()
            ),
        )
        .with_hint("use the form that returns a new tensor"));
    }
    Ok(())
}

/// Whether a result may be written to a tensor of another dtype (`torch.can_cast`).
pub fn can_cast(from: DType, to: DType) -> bool {
    fn kind(dtype: DType) -> u8 {
        match dtype {
            DType::Bool => 0,
            dtype if dtype.is_integer() => 1,
            dtype if dtype.is_floating_point() => 2,
            _ => 3,
        }
    }
    kind(from) <= kind(to)
}

#[cold]
fn with_operands(error: Error, inputs: &[&Tensor], targets: &[&Tensor]) -> Error {
    error.with_operands(|| {
        let all = inputs.iter().chain(targets).enumerate();
        all.map(|(number, tensor)| tensor.operand(operand_name(number, inputs.len())))
            .collect()
    })
}
