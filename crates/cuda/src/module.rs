//! `Module` and `Kernel`: code on a device, and how it is started.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};
use fireclay_core::{Error, Result};

use crate::driver::code;
use crate::gpu::Gpu;
use crate::stream::Stream;

/// Code that was loaded onto a device. It is unloaded with the last kernel made from it.
pub struct Module {
    gpu: &'static Gpu,
    handle: CUmodule,
}

// SAFETY: the driver lets every thread use a module.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Options of the driver's compiler: where its messages go, and how much room there is.
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_BYTES: u32 = 6;

impl Module {
    /// Compiles PTX for a device.
    ///
    /// # Errors
    /// If the driver refuses the text, with what its compiler says.
    pub fn from_ptx(gpu: &'static Gpu, ptx: &str) -> Result<Arc<Module>> {
        let driver = gpu.bound()?;
        let image = CString::new(ptx)
            .map_err(|_| Error::argument("module", "the PTX has a zero byte within"))?;
        let mut log = vec![0u8; 4096];
        let mut options = [ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_BYTES];
        let mut values: [*mut c_void; 2] = [
            log.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(log.len()),
        ];
        let mut handle: CUmodule = std::ptr::null_mut();
        // SAFETY: the image ends with a zero; the log has the room that the options say; one handle is written.
        let loaded = unsafe {
            driver.module_load(
                &mut handle,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if let Err(error) = loaded {
            let mut failed = gpu.failed(&error);
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let said = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            if let (Error::Device { what, .. }, false) = (&mut failed, said.is_empty()) {
                what.push_str(&format!("\n  the driver's compiler says: {said}"));
            }
            if error.code == code::INVALID_PTX {
                return Err(failed.with_hint(
                    "this is a bug of Fireclay, or of the driver: report it with the message",
                ));
            }
            if matches!(
                error.code,
                code::NO_BINARY_FOR_GPU | code::UNSUPPORTED_PTX_VERSION
            ) {
                let properties = gpu.properties();
                let (major, minor) = properties.capability;
                let target = ptx.lines().find_map(|line| line.strip_prefix(".target "));
                let target = target.unwrap_or("another architecture").trim();
                return Err(failed.with_hint(format!(
                    "the kernel is PTX for {target} or newer, which the driver compiles for each GPU; {} ({}) has compute \
                     capability {major}.{minor}, the driver is for CUDA {}.{}: update the driver, or use another device",
                    gpu.device(),
                    properties.name,
                    driver.version() / 1000,
                    driver.version() % 1000 / 10
                )));
            }
            return Err(failed);
        }
        Ok(Arc::new(Module { gpu, handle }))
    }

    /// One of its kernels.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn kernel(self: &Arc<Self>, name: &'static CStr) -> Result<Kernel> {
        let driver = self.gpu.bound()?;
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: the module is alive, the name ends with a zero, one handle is written.
        unsafe { driver.module_get_function(&mut function, self.handle, name.as_ptr()) }.map_err(
            |error| {
                let failed = self.gpu.failed(&error);
                match failed {
                    Error::Device {
                        device,
                        what,
                        context,
                    } => Error::Device {
                        device,
                        what: format!("kernel {name:?}: {what}"),
                        context,
                    },
                    other => other,
                }
            },
        )?;
        Ok(Kernel {
            module: Arc::clone(self),
            function,
            name: name.to_str().unwrap_or("kernel"),
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.bound() {
            // SAFETY: the handle is this module's own, and no kernel of it is left. Launched work keeps it alive in the driver.
            let _ = unsafe { driver.module_unload(self.handle) };
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module(on {})", self.gpu.device())
    }
}

/// A value that a kernel takes. Kernels read exactly its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument<'a> {
    /// An address of device memory.
    Address(u64),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    U64(u64),
    /// A single.
    F32(f32),
    /// A double.
    F64(f64),
    /// The bytes of a structure.
    Bytes(&'a [u8]),
    /// A structure of eight 64-bit numbers.
    Numbers(&'a [i64; 8]),
}

/// The most blocks that the driver takes along x.
const MOST_BLOCKS: usize = i32::MAX as usize;

/// A function of a [`Module`] that can be started.
#[derive(Clone)]
pub struct Kernel {
    module: Arc<Module>,
    function: CUfunction,
    name: &'static str,
}

// SAFETY: the driver lets every thread start a kernel.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Its device.
    pub fn gpu(&self) -> &'static Gpu {
        self.module.gpu
    }

    /// Puts the kernel into a stream's queue. `what_runs` and `elements` are for the journal that errors show.
    ///
    /// # Errors
    /// If there are more blocks than one launch can have, the driver refuses the launch, or an earlier one has failed.
    ///
    /// # Safety
    /// The arguments are those that the kernel's text declares, in order; what it reads and writes through them lies in
    /// memory that stays alive until the stream has come to the end of it.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        [blocks, threads, shared_bytes]: [usize; 3],
        arguments: &[Argument<'_>],
        what_runs: &'static str,
        elements: u64,
    ) -> Result<()> {
        let gpu = self.gpu();
        if blocks > MOST_BLOCKS {
            let what = format!("{blocks} blocks are more than the {MOST_BLOCKS} of one launch");
            return Err(Error::argument(what_runs, what));
        }
        debug_assert!(std::ptr::eq(gpu, stream.gpu()));
        let driver = gpu.bound()?;
        gpu.note_launch(what_runs, elements);
        let mut pointers: smallvec::SmallVec<[*mut c_void; 16]> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address(value) | Argument::U64(value) => pointer(value),
                Argument::U32(value) => pointer(value),
                Argument::F32(value) => pointer(value),
                Argument::F64(value) => pointer(value),
                Argument::Numbers(values) => pointer(*values),
                Argument::Bytes(bytes) => bytes.as_ptr().cast_mut().cast(),
            })
            .collect();
        // SAFETY: the function is alive; each pointer is to a value of the declared type (the caller's promise), which the
        // driver reads before it returns.
        unsafe {
            driver.launch_kernel(
                self.function,
                blocks as u32,
                1,
                1,
                threads as u32,
                1,
                1,
                shared_bytes as u32,
                stream.handle(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .map_err(|error| gpu.failed(&error))
    }
}

fn pointer<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} on {})", self.name, self.gpu().device())
    }
}
