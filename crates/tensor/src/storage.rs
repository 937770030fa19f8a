//! `Storage`: the untyped bytes under tensors. The one file that turns bytes into typed slices.
//!
//! Note [Storage locking]
//! Many tensors share a storage and all of them are `Sync`, while in-place ops write through a shared handle. So
//! each storage has a lock: an op holds read locks on the storages it reads and a write lock on the one it
//! writes, from before its kernel until after it. Locks are taken in order of address, all at once, so two ops can't
//! wait for each other. Outside of these guards no byte is touched.
//!
//! Note [Versions]
//! A storage counts the writes made to it. Autograd keeps the count with each tensor it saves; a difference at
//! backward means that the value is no longer the one the derivative needs.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fireclay_core::{DType, Device, Element, Error, Layout, Result, call_site};
use fireclay_cpu::memory::{HostBuffer, HostMemoryError};
use fireclay_cuda::{DeviceBuffer, Gpu, Purpose};
use smallvec::SmallVec;

use crate::op::Meta;

/// Bytes on one device, shared by all tensors that are views of them.
pub(crate) struct Storage {
    memory: Memory,
    lock: RwLock<()>,
    version: AtomicU64,
    /// The version after the last write that autograd recorded.
    recorded_version: AtomicU64,
    /// Whether a recorded write went through a view: then other tensors of these bytes than that view lack its history.
    written_by_view: AtomicBool,
    modified_at: AtomicPtr<Location<'static>>,
    /// Of the module's parameter or buffer that the bytes belong to.
    name: OnceLock<Arc<Name>>,
}

/// The dotted name of a parameter or buffer, as far as a module has told it: shared by the handle and the bytes behind it.
#[derive(Default)]
pub(crate) struct Name(RwLock<Option<Arc<str>>>);

impl Name {
    /// The name, once a module has listed what it owns.
    pub(crate) fn get(&self) -> Option<Arc<str>> {
        let name = self.0.read().unwrap_or_else(PoisonError::into_inner);
        name.clone()
    }

    /// Sets it, unless a name from further out in the tree of modules is known.
    pub(crate) fn set(&self, name: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let depth = |name: &str| name.matches('.').count();
        if known
            .as_deref()
            .is_none_or(|known| depth(known) <= depth(name) && known != name)
        {
            *known = Some(name.into());
        }
    }
}

enum Memory {
    Cpu(HostBuffer),
    Cuda(DeviceBuffer),
}

impl Storage {
    /// Fresh bytes of unspecified content (on the host: initialised), asked for by a line of the user.
    pub(crate) fn allocate(
        device: Device,
        nbytes: usize,
        location: &'static Location<'static>,
    ) -> Result<Arc<Storage>> {
        let memory = match device {
            Device::Cpu => Memory::Cpu(HostBuffer::allocate(nbytes).map_err(out_of_host_memory)?),
            Device::Cuda(ordinal) => {
                let stream = Gpu::get(ordinal)?.stream();
                let purpose = Purpose::Activations;
                Memory::Cuda(DeviceBuffer::allocate_from(
                    location, stream, nbytes, purpose,
                )?)
            }
        };
        Ok(Arc::new(Storage {
            memory,
            lock: RwLock::new(()),
            version: AtomicU64::new(0),
            recorded_version: AtomicU64::new(0),
            written_by_view: AtomicBool::new(false),
            modified_at: AtomicPtr::new(ptr::null_mut()),
            name: OnceLock::new(),
        }))
    }

    /// The bytes' number.
    pub(crate) fn nbytes(&self) -> usize {
        match &self.memory {
            Memory::Cpu(buffer) => buffer.len(),
            Memory::Cuda(buffer) => buffer.len(),
        }
    }

    /// How often the bytes were written since they were allocated. See Note [Versions].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The version after the last write that autograd recorded: views made before it don't know of that history.
    pub(crate) fn recorded_version(&self) -> u64 {
        self.recorded_version.load(Ordering::Relaxed)
    }

    /// Notes that the last write, through a view or not, is part of a recorded history.
    pub(crate) fn mark_recorded(&self, by_view: bool) {
        self.recorded_version
            .store(self.version(), Ordering::Relaxed);
        if by_view {
            self.written_by_view.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a recorded write went through a view.
    pub(crate) fn is_written_by_view(&self) -> bool {
        self.written_by_view.load(Ordering::Relaxed)
    }

    /// The line that wrote them last, if any did.
    pub(crate) fn modified_at(&self) -> Option<&'static Location<'static>> {
        let location = self.modified_at.load(Ordering::Relaxed);
        // SAFETY: only pointers made of `&'static Location` are ever stored.
        unsafe { location.as_ref() }
    }

    pub(crate) fn mark_modified(&self, location: &'static Location<'static>) {
        self.modified_at
            .store(ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The first byte, of memory of the host. Reading or writing it needs a guard of [`Access`], or that nobody else has
    /// the storage.
    ///
    /// # Panics
    /// If the bytes are a device's: the door hands those to kernels of the device only.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        match &self.memory {
            Memory::Cpu(buffer) => buffer.as_ptr(),
            Memory::Cuda(buffer) => panic!("{buffer:?} was taken for host memory"),
        }
    }

    /// Says what the bytes are for, in the ledger of their device.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Memory::Cuda(buffer) = &self.memory {
            buffer.set_purpose(purpose);
        }
    }

    /// Says whose the bytes are. The first one who says so keeps them.
    pub(crate) fn set_name(&self, name: &Arc<Name>) {
        let _ = self.name.set(Arc::clone(name));
    }

    /// The name of the parameter or buffer that the bytes belong to, if they belong to one and a module has told its name.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.name.get()?.get()
    }

    /// The device's bytes, if it is not the host.
    pub(crate) fn on_device(&self) -> Option<&DeviceBuffer> {
        match &self.memory {
            Memory::Cpu(_) => None,
            Memory::Cuda(buffer) => Some(buffer),
        }
    }
}

/// The error of an op that host memory isn't enough for.
pub(crate) fn out_of_host_memory(error: HostMemoryError) -> Error {
    let hint = "free tensors, or work on smaller batches";
    Error::out_of_memory(Device::Cpu, error.to_string(), hint)
}

/// Locks on all the storages that one op touches. See Note [Storage locking].
pub(crate) struct Access<'a> {
    _reads: SmallVec<[RwLockReadGuard<'a, ()>; 4]>,
    _writes: SmallVec<[RwLockWriteGuard<'a, ()>; 1]>,
}

impl<'a> Access<'a> {
    /// Locks `reads` for reading and `write` (which may be among them) for writing.
    pub(crate) fn new(
        reads: impl Iterator<Item = &'a Arc<Storage>>,
        write: Option<&'a Arc<Storage>>,
    ) -> Access<'a> {
        Access::many(reads, write.into_iter())
    }

    /// As [`new`](Access::new) with several storages to write.
    pub(crate) fn many(
        reads: impl Iterator<Item = &'a Arc<Storage>>,
        writes: impl Iterator<Item = &'a Arc<Storage>>,
    ) -> Access<'a> {
        let mut storages: SmallVec<[(&'a Arc<Storage>, bool); 4]> = SmallVec::new();
        writes.for_each(|storage| storages.push((storage, true)));
        reads.for_each(|storage| storages.push((storage, false)));
        if storages.len() > 1 {
            // Of one storage that is both read and written, the write comes first and stays.
            storages.sort_unstable_by_key(|&(storage, write)| (Arc::as_ptr(storage), !write));
            storages.dedup_by_key(|(storage, _)| Arc::as_ptr(storage));
        }
        let mut access = Access {
            _reads: SmallVec::new(),
            _writes: SmallVec::new(),
        };
        for (storage, write) in storages {
            // The lock guards no data of its own, so a panic under it poisons nothing.
            if write {
                let guard = storage.lock.write();
                access
                    ._writes
                    .push(guard.unwrap_or_else(PoisonError::into_inner));
            } else {
                let guard = storage.lock.read();
                access
                    ._reads
                    .push(guard.unwrap_or_else(PoisonError::into_inner));
            }
        }
        access
    }
}

/// One operand of a kernel: memory and how the elements lie in it.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) layout: &'a Layout,
    pub(crate) dtype: DType,
}

/// What a CPU kernel works on: the inputs, locked for reading, and the outputs.
///
/// The door made sure of devices, shapes and dtypes by the op's own `output` rule, and that inputs are contiguous
/// where the op asked for that. Bool tensors are handed out as `u8`.
pub struct CpuCall<'a> {
    inputs: SmallVec<[Operand<'a>; 4]>,
    outputs: SmallVec<[Option<Operand<'a>>; 2]>,
}

impl<'a> CpuCall<'a> {
    /// # Safety
    /// For `'a` the caller holds locks on all the storages, a write lock (or the only handle) for those of
    /// outputs; layouts lie within the storages; no two outputs overlap, and no output overlaps an input unless it is
    /// the same tensor and the op is pointwise.
    pub(crate) unsafe fn new(
        inputs: SmallVec<[Operand<'a>; 4]>,
        outputs: SmallVec<[Option<Operand<'a>>; 2]>,
    ) -> CpuCall<'a> {
        CpuCall { inputs, outputs }
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The layout of input `index`.
    pub fn layout(&self, index: usize) -> &'a Layout {
        self.inputs[index].layout
    }

    /// The dtype of input `index`.
    pub fn dtype(&self, index: usize) -> DType {
        self.inputs[index].dtype
    }

    /// The elements of input `index`, which is contiguous and of dtype `T` (or bool as `u8`).
    ///
    /// # Panics
    /// If the op asks for another dtype than the input has: a bug of the op.
    pub fn input<T: Element>(&self, index: usize) -> &'a [T] {
        let operand = self.inputs[index];
        assert!(
            operand.layout.is_contiguous(),
            "input {index} is not contiguous"
        );
        let (ptr, len) = typed::<T>(operand);
        // SAFETY: `typed` checked dtype and bounds; the storage is locked for 'a and not written (`new`).
        unsafe { std::slice::from_raw_parts(ptr, len) }
    }

    /// The storage of input `index` from its first element on, for kernels that follow its strides.
    pub fn input_strided<T: Element>(&self, index: usize) -> &'a [T] {
        let operand = self.inputs[index];
        let (ptr, _) = typed::<T>(operand);
        let end = operand.layout.end().unwrap_or(0);
        let len = end.saturating_sub(operand.layout.offset());
        // SAFETY: as `input`; `typed` checked that the layout's end lies within the storage.
        unsafe { std::slice::from_raw_parts(ptr, len) }
    }

    /// The shape of output `index`.
    pub fn output_shape(&self, index: usize) -> &'a [usize] {
        self.outputs[index].map_or(&[], |operand| operand.layout.shape())
    }

    /// The dtype of output `index`.
    ///
    /// # Panics
    /// If the output was taken already.
    pub fn output_dtype(&self, index: usize) -> DType {
        self.outputs[index].expect("output was taken").dtype
    }

    /// The elements of output `index`, to be written in full; can be taken once.
    ///
    /// # Panics
    /// If it is taken twice or as another dtype: a bug of the op.
    pub fn output<T: Element>(&mut self, index: usize) -> &'a mut [T] {
        let operand = self.outputs[index].take().expect("an output is taken once");
        assert!(
            operand.layout.is_contiguous(),
            "output {index} is not contiguous"
        );
        let (ptr, len) = typed::<T>(operand);
        // SAFETY: `typed` checked dtype and bounds; this is the only access to the output for 'a (`new`, taken once).
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }

    pub(crate) fn raw_input(&self, index: usize) -> Operand<'a> {
        self.inputs[index]
    }

    pub(crate) fn raw_output(&mut self, index: usize) -> Operand<'a> {
        self.outputs[index].take().expect("an output is taken once")
    }
}

impl Operand<'_> {
    /// What an output rule sees of it.
    pub(crate) fn meta(&self) -> Meta<'_> {
        let device = self.storage.on_device();
        Meta {
            layout: self.layout,
            dtype: self.dtype,
            device: device.map_or(Device::Cpu, |buffer| buffer.gpu().device()),
        }
    }

    /// The first element, in host memory. In bounds of the storage, whose end is checked here.
    pub(crate) fn ptr(&self) -> *mut u8 {
        // SAFETY: the place lies within the storage.
        unsafe { self.storage.as_ptr().add(self.first_byte()) }
    }

    /// The address of the first element, in device memory; checked as [`ptr`](Operand::ptr) is.
    pub(crate) fn address(&self) -> u64 {
        let buffer = self.storage.on_device();
        let buffer = buffer.expect("the door hands a device's kernel operands on that device");
        buffer.address() + self.first_byte() as u64
    }

    /// Where the first element is in the storage, in bytes, once the end of the last one is known to lie within it.
    fn first_byte(&self) -> usize {
        if self.layout.shape().contains(&0) {
            // No element, so an offset beyond the storage (of a view of an empty tensor) means nothing.
            return 0;
        }
        let size = self.dtype.size();
        let end = self.layout.end().and_then(|end| end.checked_mul(size));
        assert!(
            end.is_some_and(|end| end <= self.storage.nbytes()),
            "a layout reaches beyond its storage"
        );
        self.layout.offset() * size
    }
}

fn typed<T: Element>(operand: Operand<'_>) -> (*mut T, usize) {
    let bool_as_u8 = operand.dtype == DType::Bool && T::DTYPE == DType::U8;
    assert!(
        operand.dtype == T::DTYPE && T::DTYPE != DType::Bool || bool_as_u8,
        "a kernel took {} for {}",
        operand.dtype,
        T::DTYPE
    );
    (operand.ptr().cast(), operand.layout.numel())
}

/// An empty vector with room for the bytes of a device.
fn room_for(nbytes: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match bytes.try_reserve_exact(nbytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Error::out_of_memory(
            Device::Cpu,
            format!("{nbytes} bytes of a device can't be read: {error}"),
            "read parts of the tensor",
        )),
    }
}

/// An empty vector with room for `each` items per element. An expanded view may have more elements than memory has room for.
fn vec_for<T>(layout: &Layout, each: usize) -> Result<Vec<T>> {
    let mut items = Vec::new();
    match items.try_reserve_exact(layout.numel().saturating_mul(each)) {
        Ok(()) => Ok(items),
        Err(error) => Err(Error::out_of_memory(
            Device::Cpu,
            format!("{} elements can't be read out: {error}", layout.numel()),
            "read the tensor before it is expanded, or parts of it",
        )),
    }
}

/// The bytes of a storage, from the layout's first element to the end of its last one, on the host: where they are, or copied
/// from a device, which is waited for.
struct HostBytes<'a> {
    _access: Access<'a>,
    copied: Option<Vec<u8>>,
    base: *const u8,
}

impl<'a> HostBytes<'a> {
    #[track_caller]
    fn of(storage: &'a Arc<Storage>, layout: &Layout, dtype: DType) -> Result<HostBytes<'a>> {
        let access = Access::new(std::iter::once(storage), None);
        let operand = Operand {
            storage,
            layout,
            dtype,
        };
        let Some(buffer) = storage.on_device() else {
            return Ok(HostBytes {
                _access: access,
                copied: None,
                base: operand.ptr(),
            });
        };
        let span = match layout.numel() {
            0 => 0,
            _ => (layout.end().unwrap_or(0) - layout.offset()) * dtype.size(),
        };
        let mut bytes = room_for(span)?;
        bytes.resize(span, 0);
        // SAFETY: `address` checked that the span lies within the storage, which is locked for reading.
        let arrived = unsafe {
            fireclay_cuda::download(buffer.gpu().stream(), operand.address(), &mut bytes)
        };
        let location = call_site();
        arrived.map_err(|error| {
            let shape = layout.shape();
            error.with_request(|| format!("{dtype}{shape} to be read, called at {location}"))
        })?;
        Ok(HostBytes {
            _access: access,
            base: bytes.as_ptr(),
            copied: Some(bytes),
        })
    }

    /// The first element. Valid as far as the layout reaches, while this lives.
    fn base(&self) -> *const u8 {
        debug_assert!((self.copied.as_ref()).is_none_or(|bytes| bytes.as_ptr() == self.base));
        self.base
    }
}

/// Reads the elements of a layout in order. `T` may be bool.
#[track_caller]
pub(crate) fn read_elements<T: Element>(storage: &Arc<Storage>, layout: &Layout) -> Result<Vec<T>> {
    let mut elements = vec_for(layout, 1)?;
    let bytes = HostBytes::of(storage, layout, T::DTYPE)?;
    let base = bytes.base();
    for_each_place(layout, |place| {
        // SAFETY: the place lies within the layout, whose end was checked; the storage is locked, or copied.
        let element = unsafe {
            if T::DTYPE == DType::Bool {
                let byte = u8::from(base.add(place).read() != 0);
                std::mem::transmute_copy::<u8, T>(&byte)
            } else {
                base.cast::<T>().add(place).read_unaligned()
            }
        };
        elements.push(element);
    });
    Ok(elements)
}

/// The raw bytes of the elements of a layout, in order.
#[track_caller]
pub(crate) fn read_bytes(storage: &Arc<Storage>, layout: &Layout, dtype: DType) -> Result<Vec<u8>> {
    let size = dtype.size();
    let mut bytes = vec_for(layout, size)?;
    let from = HostBytes::of(storage, layout, dtype)?;
    let base = from.base();
    if layout.is_contiguous() {
        // SAFETY: contiguous, within the storage (checked), locked or copied.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(base, layout.numel() * size) });
    } else {
        for_each_place(layout, |place| {
            // SAFETY: as in `read_elements`.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(base.add(place * size), size)
            });
        });
    }
    Ok(bytes)
}

/// Fills a fresh storage, which nobody else has yet, from bytes.
#[track_caller]
pub(crate) fn fill_from_bytes(storage: &Arc<Storage>, bytes: &[u8]) -> Result<()> {
    let _access = Access::new(std::iter::empty(), Some(storage));
    assert!(bytes.len() <= storage.nbytes());
    if let Some(buffer) = storage.on_device() {
        // SAFETY: within the storage, locked for writing.
        let sent = unsafe { fireclay_cuda::upload(buffer.gpu().stream(), buffer.address(), bytes) };
        let location = call_site();
        return sent.map_err(|error| {
            let device = buffer.gpu().device();
            error.with_request(|| format!("a copy to {device}, called at {location}"))
        });
    }
    // SAFETY: within the storage, locked for writing.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), storage.as_ptr(), bytes.len()) };
    Ok(())
}

/// Fills a storage from elements; bools become one byte each.
#[track_caller]
pub(crate) fn fill_from_slice<T: Element>(storage: &Arc<Storage>, elements: &[T]) -> Result<()> {
    let nbytes = std::mem::size_of_val(elements);
    // SAFETY: every `Element` is plain old data without padding, valid for reads as bytes.
    fill_from_bytes(storage, unsafe {
        std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), nbytes)
    })
}

/// Runs `write` over the elements of a fresh contiguous storage; for a device, of a copy that is uploaded then.
#[track_caller]
pub(crate) fn fill_with<T: Element>(
    storage: &Arc<Storage>,
    write: impl FnOnce(&mut [T]),
) -> Result<()> {
    assert!(T::DTYPE != DType::Bool, "bools are written as u8");
    let len = storage.nbytes() / size_of::<T>();
    if storage.on_device().is_some() {
        let host = Storage::allocate(Device::Cpu, storage.nbytes(), call_site())?;
        fill_with(&host, write)?;
        // SAFETY: the bytes of a host storage that nobody else has.
        let bytes = unsafe { std::slice::from_raw_parts(host.as_ptr(), host.nbytes()) };
        return fill_from_bytes(storage, bytes);
    }
    let _access = Access::new(std::iter::empty(), Some(storage));
    // SAFETY: within the storage, aligned (64 bytes), locked for writing; any bytes are a valid number.
    write(unsafe { std::slice::from_raw_parts_mut(storage.as_ptr().cast::<T>(), len) });
    Ok(())
}

/// Copies all bytes of one storage to another one of the same size and of another device.
pub(crate) fn transfer(from: &Arc<Storage>, to: &Arc<Storage>, nbytes: usize) -> Result<()> {
    let _access = Access::new(std::iter::once(from), Some(to));
    assert!(nbytes <= from.nbytes() && nbytes <= to.nbytes());
    match (&from.memory, &to.memory) {
        (Memory::Cpu(from), Memory::Cuda(to)) => {
            let bytes = &from.as_bytes()[..nbytes];
            // SAFETY: within the storage, locked for writing.
            unsafe { fireclay_cuda::upload(to.gpu().stream(), to.address(), bytes) }
        }
        (Memory::Cuda(from), Memory::Cpu(to)) => {
            // SAFETY: within the storage, locked for writing.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), nbytes) };
            // SAFETY: within the storage, locked for reading.
            unsafe { fireclay_cuda::download(from.gpu().stream(), from.address(), bytes) }
        }
        (Memory::Cuda(from), Memory::Cuda(to)) => {
            let (to_stream, from_stream) = (to.gpu().stream(), from.gpu().stream());
            fireclay_cuda::copy_between(to, to_stream, from, from_stream, nbytes)
        }
        (Memory::Cpu(from), Memory::Cpu(to)) => {
            // SAFETY: within both storages, which are locked; `Access` locks one storage once, so they are two.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), nbytes) };
            Ok(())
        }
    }
}

/// Calls `visit` with the place of each element relative to the layout's offset, in order.
fn for_each_place(layout: &Layout, mut visit: impl FnMut(usize)) {
    let numel = layout.numel();
    if layout.is_contiguous() {
        return (0..numel).for_each(visit);
    }
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut index: fireclay_core::Dims = smallvec::smallvec![0; shape.ndim()];
    let mut place = 0;
    for _ in 0..numel {
        visit(place);
        for dim in (0..shape.ndim()).rev() {
            index[dim] += 1;
            place += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            place -= strides[dim] * shape[dim];
            index[dim] = 0;
        }
    }
}
