//! NVIDIA's libraries, used where they are found and the user prefers them: cuBLASLt for matrix products, cuDNN for convolutions.
//! None is needed.
//!
//! Note [Vendor libraries]
//! Nothing of them is linked or shipped. They are looked for when somebody asks, `vendor/find.rs` says where; what was tried stays
//! readable in [`reports`]. Fireclay's own kernels are the default: they are what the tests run, on the virtual GPU, where
//! code of the vendor's libraries can't run. `FIRECLAY_BLAS=cublaslt` or [`preferred_blas_library`] prefers cuBLASLt for the
//! products that it takes (see [`Product`]), `FIRECLAY_CONV=cudnn` or [`preferred_conv_library`] cuDNN for the convolutions that it
//! takes (see [`Convolution`]); others, and processes without the library, go on with Fireclay's own.
//!
//! With the virtual GPU as driver a library is refused, unless it says that it can work there by exporting the symbol
//! `fireclay_virtual_gpu`. That is how the sequence of calls is tested: by a stand-in.

mod convolution;
mod cublas_lt;
mod cudnn;
mod find;
mod functions;
mod preference;

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use fireclay_core::{Context, Device, Error, Result};

use crate::stream::Stream;
pub use convolution::{
    ALIGNMENT, ConvLibrary, ConvOperands, Convolution, Pass, convolution, preferred_conv_library,
    takes_convolution,
};
pub use cublas_lt::{CublasLt, Matrix, Operands, Product};
pub use cudnn::Cudnn;
pub use find::{Absent, Found};
use preference::{Choice, Preference};

/// Names the preferred library for matrix products.
const BLAS_VARIABLE: &str = "FIRECLAY_BLAS";

/// Who computes matrix products on CUDA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlasLibrary {
    /// Fireclay's own kernels. The default.
    Own,
    /// NVIDIA's cuBLASLt.
    CublasLt,
}

impl Choice for BlasLibrary {
    const VALUES: &'static [(BlasLibrary, &'static str)] = &[
        (BlasLibrary::Own, "own"),
        (BlasLibrary::CublasLt, "cublaslt"),
    ];
    const FUNCTION: &'static str = "preferred_blas_library";
    const VARIABLE: &'static str = BLAS_VARIABLE;
}

impl fmt::Display for BlasLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for BlasLibrary {
    type Err = Error;

    fn from_str(text: &str) -> Result<BlasLibrary> {
        BlasLibrary::parse(text)
    }
}

/// The choice of [`preferred_blas_library`].
static PREFERENCE: Preference<BlasLibrary> = Preference::new();

/// Says who computes matrix products from now on, if `library` is given, and returns who does
/// (`torch.backends.cuda.preferred_blas_library`). Before the first choice it is what the environment variable `FIRECLAY_BLAS`
/// says, `own` or `cublaslt`, and [`BlasLibrary::Own`] without it.
///
/// # Errors
/// If cuBLASLt is chosen and can't be used, with what was tried; if the environment variable has another value.
pub fn preferred_blas_library(library: impl Into<Option<BlasLibrary>>) -> Result<BlasLibrary> {
    if let Some(library) = library.into() {
        if library == BlasLibrary::CublasLt
            && let Err(absent) = cublas_lt()
        {
            let what = format!("cuBLASLt can't be used: {absent}");
            return Err(Error::argument(BlasLibrary::FUNCTION, what));
        }
        PREFERENCE.set(library);
    }
    PREFERENCE.get()
}

/// The process's cuBLASLt, looked for at the first call, or why there is none.
pub fn cublas_lt() -> Result<&'static CublasLt, &'static Absent> {
    static FOUND: OnceLock<Result<CublasLt, Absent>> = OnceLock::new();
    FOUND
        .get_or_init(|| find::find(&find::CUBLAS_LT, CublasLt::new))
        .as_ref()
}

/// The process's cuDNN, looked for at the first call, or why there is none.
pub fn cudnn() -> Result<&'static Cudnn, &'static Absent> {
    static FOUND: OnceLock<Result<Cudnn, Absent>> = OnceLock::new();
    FOUND
        .get_or_init(|| find::find(&find::CUDNN, Cudnn::new))
        .as_ref()
}

/// Has the vendor's library compute a product, if it is preferred, there, and takes it; whether it did.
///
/// # Safety
/// The operands are memory of the stream's device that holds what `product` says; nobody else writes to it before the work is
/// done or uses the result.
///
/// # Errors
/// If a call of the library fails.
pub unsafe fn product(
    stream: &Stream,
    op: &'static str,
    product: &Product,
    operands: Operands,
) -> Result<bool> {
    if PREFERENCE.get()? == BlasLibrary::Own {
        return Ok(false);
    }
    match cublas_lt() {
        // SAFETY: the caller's promise.
        Ok(library) => unsafe { library.product(stream, op, product, operands) },
        Err(_) => Ok(false),
    }
}

/// What [`reports`] says of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: &'static str,
    /// Where it was found, and its version.
    pub found: Option<Found>,
    /// What is done with it, or why it is not used.
    pub what: String,
    /// How to change that.
    pub change: String,
}

/// What there is of the vendor's libraries and what is done with it. Looks for them all.
pub fn reports() -> Vec<Report> {
    let products = used_for(
        "matrix products",
        PREFERENCE.get().map(|choice| choice != BlasLibrary::Own),
        || cublas_lt().map_or(0, CublasLt::refusals),
    );
    let report = |name, found: Result<Found, &Absent>, used: String, change: String| Report {
        name,
        what: found
            .as_ref()
            .err()
            .map_or(used, |absent| format!("not used: {absent}")),
        found: found.ok(),
        change,
    };
    vec![
        report(
            "cuBLASLt",
            cublas_lt().map(|library| library.found().clone()),
            products,
            format!(
                "{}=PATH or off; {BLAS_VARIABLE}=cublaslt or own",
                find::CUBLAS_LT.variable
            ),
        ),
        report(
            "cuDNN",
            cudnn().map(|library| library.found().clone()),
            convolution::used(|| cudnn().map_or(0, Cudnn::refusals)),
            format!(
                "{}=PATH or off; {}=cudnn or own",
                find::CUDNN.variable,
                convolution::VARIABLE
            ),
        ),
    ]
}

/// What is done with a library that is there.
fn used_for(what: &str, is_preferred: Result<bool>, refusals: impl FnOnce() -> usize) -> String {
    match is_preferred {
        Ok(false) => format!("not used: Fireclay's own kernels compute {what}"),
        Ok(true) => match refusals() {
            0 => format!("used for {what}"),
            count => format!(
                "used for {what}; it has no algorithm for {count} of those met, which Fireclay's own kernels compute"
            ),
        },
        Err(error) => format!("not used: {error}"),
    }
}

/// The error of a call of a vendor's library, with the way out.
#[cold]
fn failed(device: Device, what: String, way_out: &'static str) -> Error {
    Error::Device {
        device,
        what,
        context: Context::hint(way_out),
    }
}

/// A lock on what nobody leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
