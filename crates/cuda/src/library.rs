//! `Library`: the kernels of one CUDA C++ file, loaded onto a device when the first of them is launched there.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use fireclay_core::Result;

use crate::gpu::Gpu;
use crate::module::{Kernel, Module};

/// The compiled kernels of one file, as a static beside the op that launches them.
pub struct Library {
    ptx: &'static str,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Default)]
struct Loaded {
    modules: HashMap<usize, Arc<Module>>,
    kernels: HashMap<(usize, &'static CStr), Kernel>,
}

impl Library {
    /// The library of a PTX text.
    pub const fn new(ptx: &'static str) -> Library {
        Library {
            ptx,
            loaded: Mutex::new(None),
        }
    }

    /// One of its kernels, on a device.
    ///
    /// # Errors
    /// If the driver can't load the text, or there is no kernel of that name.
    pub fn kernel(&self, gpu: &'static Gpu, name: &'static CStr) -> Result<Kernel> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        let key = (gpu.ordinal(), name);
        if let Some(kernel) = loaded.kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let module = match loaded.modules.get(&gpu.ordinal()) {
            Some(module) => Arc::clone(module),
            None => {
                let module = Module::from_ptx(gpu, self.ptx)?;
                loaded.modules.insert(gpu.ordinal(), Arc::clone(&module));
                module
            }
        };
        let kernel = module.kernel(name)?;
        loaded.kernels.insert(key, kernel.clone());
        Ok(kernel)
    }
}
