//! NVIDIA's libraries, used where they are found and the user prefers them: cuBLASLt for matrix products. None is needed.
//!
//! Note [Vendor libraries]
//! Nothing of them is linked or shipped. They are looked for when somebody asks, `vendor/find.rs` says where; what was tried stays
//! readable in [`reports`]. Fireclay's own kernels are the default: they are what the tests run, on the virtual GPU, where
//! code of the vendor's libraries can't run. `FIRECLAY_BLAS=cublaslt` or [`preferred_blas_library`] prefers cuBLASLt for the
//! products that it takes (see [`Product`]); others, and processes without the library, go on with Fireclay's own.
//!
//! With the virtual GPU as driver a library is refused, unless it says that it can work there by exporting the symbol
//! `fireclay_virtual_gpu`. That is how the sequence of calls is tested: by a stand-in.

mod cublas_lt;
mod find;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use fireclay_core::{Context, Device, Error, Result};

use crate::stream::Stream;
pub use cublas_lt::{CublasLt, Matrix, Operands, Product};
pub use find::{Absent, Found};

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

impl fmt::Display for BlasLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlasLibrary::Own => "own",
            BlasLibrary::CublasLt => "cublaslt",
        })
    }
}

impl FromStr for BlasLibrary {
    type Err = Error;

    fn from_str(text: &str) -> Result<BlasLibrary> {
        match text.trim() {
            "own" => Ok(BlasLibrary::Own),
            "cublaslt" => Ok(BlasLibrary::CublasLt),
            _ => Err(Error::argument(
                "preferred_blas_library",
                format!("expected \"own\" or \"cublaslt\", got {text:?}"),
            )),
        }
    }
}

/// The choice of [`preferred_blas_library`]: 0 while there is none.
static PREFERRED: AtomicU8 = AtomicU8::new(0);

/// Says who computes matrix products from now on, if `library` is given, and returns who does
/// (`torch.backends.cuda.preferred_blas_library`). Before the first choice it is what the environment variable `FIRECLAY_BLAS`
/// says, `own` or `cublaslt`, and [`BlasLibrary::Own`] without it.
///
/// # Errors
/// If cuBLASLt is chosen and can't be used, with what was tried; if the environment variable has another value.
pub fn preferred_blas_library(library: impl Into<Option<BlasLibrary>>) -> Result<BlasLibrary> {
    let chosen = match library.into() {
        Some(BlasLibrary::Own) => 1,
        Some(BlasLibrary::CublasLt) => {
            cublas_lt().map_err(|absent| {
                let what = format!("cuBLASLt can't be used: {absent}");
                Error::argument("preferred_blas_library", what)
            })?;
            2
        }
        None => return preferred(),
    };
    PREFERRED.store(chosen, Ordering::Relaxed);
    preferred()
}

fn preferred() -> Result<BlasLibrary> {
    static ASKED: OnceLock<Option<String>> = OnceLock::new();
    match PREFERRED.load(Ordering::Relaxed) {
        1 => Ok(BlasLibrary::Own),
        2 => Ok(BlasLibrary::CublasLt),
        _ => {
            let asked = ASKED.get_or_init(|| std::env::var(BLAS_VARIABLE).ok());
            match asked.as_deref().filter(|value| !value.is_empty()) {
                None => Ok(BlasLibrary::Own),
                Some(value) => value.parse().map_err(|_| {
                    let what = format!(
                        "the environment variable {BLAS_VARIABLE} is {value:?}, expected \"own\" or \"cublaslt\""
                    );
                    Error::argument("preferred_blas_library", what)
                }),
            }
        }
    }
}

/// The process's cuBLASLt, looked for at the first call, or why there is none.
pub fn cublas_lt() -> Result<&'static CublasLt, &'static Absent> {
    static FOUND: OnceLock<Result<CublasLt, Absent>> = OnceLock::new();
    FOUND
        .get_or_init(|| find::find(&find::CUBLAS_LT, CublasLt::new))
        .as_ref()
}

/// The process's cuDNN, looked for at the first call, or why there is none. Nothing uses it yet.
pub fn cudnn() -> Result<&'static Found, &'static Absent> {
    static FOUND: OnceLock<Result<Found, Absent>> = OnceLock::new();
    FOUND
        .get_or_init(|| find::find(&find::CUDNN, |_, found| Ok(found)))
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
    if preferred()? == BlasLibrary::Own {
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
    let products = match preferred() {
        Ok(BlasLibrary::Own) => {
            "not used: Fireclay's own kernels compute matrix products".to_owned()
        }
        Ok(BlasLibrary::CublasLt) => match refusals() {
            0 => "used for matrix products".to_owned(),
            count => format!(
                "used for matrix products; it has no algorithm for {count} of those met, which Fireclay's own kernels compute"
            ),
        },
        Err(error) => format!("not used: {error}"),
    };
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
            cudnn().cloned(),
            "not used: convolutions have no path through it yet, Fireclay's own kernels compute them".to_owned(),
            format!("{}=PATH or off", find::CUDNN.variable),
        ),
    ]
}

/// Products met that the library has no algorithm for.
fn refusals() -> usize {
    cublas_lt().map_or(0, CublasLt::refusals)
}

/// The error of a call of a vendor's library.
#[cold]
fn failed(device: Device, what: String) -> Error {
    Error::Device {
        device,
        what,
        context: Context::hint(
            "Fireclay's own kernels do without the library: FIRECLAY_BLAS=own, or preferred_blas_library(BlasLibrary::Own)",
        ),
    }
}

/// A lock on what nobody leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
