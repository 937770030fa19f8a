//! `Library`: the kernels of one CUDA C++ file, each loaded onto a device when it is first launched there.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use fireclay_core::{Context, Error, Result};
use flate2::read::GzDecoder;

use crate::gpu::Gpu;
use crate::module::{Kernel, Module};

/// The compiled kernels of one file, as a static beside the op that launches them; see [`library!`](crate::library).
///
/// They are a bundle as `cargo xtask kernels` writes it: PTX texts, one for each kernel and target, compressed. Nothing is
/// unpacked before a kernel is asked for, and the driver is given the text of that kernel alone.
pub struct Library {
    bundle: &'static [u8],
    loaded: Mutex<Option<Loaded>>,
}

/// The bundle that `cargo xtask kernels` made of `ops/NAME.cu`, as a [`Library`].
#[macro_export]
macro_rules! library {
    ($name:literal) => {
        $crate::Library::new(include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/ptx/",
            $name,
            ".ptx.gz"
        )))
    };
}

#[derive(Default)]
struct Loaded {
    text: String,
    kernels: HashMap<(usize, &'static CStr), Kernel>,
}

impl Library {
    /// The library of a bundle.
    pub const fn new(bundle: &'static [u8]) -> Library {
        Library {
            bundle,
            loaded: Mutex::new(None),
        }
    }

    /// One of its kernels, on a device: of its texts the one for the newest target that the device runs.
    ///
    /// # Errors
    /// If the device is older than all targets of the kernel, there is no kernel of that name, or the driver can't load the
    /// text.
    pub fn kernel(&self, gpu: &'static Gpu, name: &'static CStr) -> Result<Kernel> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match &mut *loaded {
            Some(loaded) => loaded,
            empty => empty.insert(Loaded {
                text: unpacked(self.bundle)?,
                kernels: HashMap::new(),
            }),
        };
        let key = (gpu.ordinal(), name);
        if let Some(kernel) = loaded.kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let (major, minor) = gpu.properties().capability;
        let capability = major * 10 + minor;
        let text = text_for(&loaded.text, name, capability).map_err(|reason| Error::Device {
            device: gpu.device(),
            what: format!("kernel {name:?}: {reason}"),
            context: Context::hint("use a newer device, or the CPU: to(\"cpu\")"),
        })?;
        let kernel = Module::from_ptx(gpu, text)?.kernel(name)?;
        loaded.kernels.insert(key, kernel.clone());
        Ok(kernel)
    }
}

fn unpacked(bundle: &[u8]) -> Result<String> {
    let mut text = String::new();
    match GzDecoder::new(bundle).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Error::argument(
            "library",
            format!("the bundle of kernels can't be unpacked: {error}"),
        )),
    }
}

/// The text of a kernel for a device of this compute capability (without its dot), or why there is none.
fn text_for<'a>(bundle: &'a str, kernel: &CStr, capability: u32) -> Result<&'a str, String> {
    let kernel = kernel.to_string_lossy();
    // Before the first kernel stands what the bundle was made from.
    let texts = bundle.split("\n//# ").skip(1);
    let own: Vec<(u32, &str)> = texts
        .filter_map(|text| {
            let (head, body) = text.split_once('\n')?;
            let (name, target) = head.split_once(' ')?;
            (name == kernel).then_some((target.parse().ok()?, body))
        })
        .collect();
    let fitting = own.iter().filter(|(target, _)| *target <= capability);
    let newest = fitting.max_by_key(|(target, _)| *target);
    match (newest, own.iter().map(|(target, _)| *target).min()) {
        (Some((_, text)), _) => Ok(text),
        (None, Some(oldest)) => Err(format!(
            "it needs compute capability {}.{}, the device has {}.{}",
            oldest / 10,
            oldest % 10,
            capability / 10,
            capability % 10
        )),
        (None, None) => Err("there is none of that name".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::text_for;

    #[test]
    fn the_newest_target_that_the_device_runs_is_taken() {
        let bundle = "// a.cu\n//# a 70\none\n//# b 70\ntwo\n//# a 80\nthree\n//# c 80\nfour\n";
        assert_eq!(text_for(bundle, c"a", 75).unwrap(), "one");
        assert_eq!(text_for(bundle, c"a", 90).unwrap(), "three");
        assert_eq!(text_for(bundle, c"b", 90).unwrap(), "two");
        assert_eq!(text_for(bundle, c"c", 80).unwrap(), "four\n");
        let error = text_for(bundle, c"c", 75).unwrap_err();
        assert_eq!(error, "it needs compute capability 8.0, the device has 7.5");
        assert!(
            text_for(bundle, c"d", 90)
                .unwrap_err()
                .contains("none of that name")
        );
    }
}
