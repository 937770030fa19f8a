//! What the vendor's libraries have in common as libraries of C: a table of functions, statuses, and objects that are made and ended.

use std::ffi::{c_int, c_void};

/// What nearly every function returns: 0, or the number of an error.
pub(super) type Status = c_int;
/// A handle, a description or a preference, of which only the library knows what it is.
pub(super) type Opaque = *mut c_void;

/// Makes the structure `Functions` of the addresses of a library's functions, each given as `method = symbol(parameters);` if it
/// returns a status, or as `method = symbol[type];`.
macro_rules! functions {
    (@type ($($parameter:ident: $ty:ty),* $(,)?)) => {
        unsafe extern "C" fn($($ty),*) -> $crate::vendor::functions::Status
    };
    (@type [$ty:ty]) => { $ty };
    ($visibility:vis struct Functions { $($method:ident = $symbol:ident $signature:tt;)* }) => {
        /// Addresses of the functions in use.
        $visibility struct Functions {
            $($visibility $method: $crate::vendor::functions::functions!(@type $signature),)*
        }

        impl Functions {
            /// Looks every symbol up; the names of those that are missing otherwise.
            $visibility fn load(library: &libloading::Library) -> Result<Functions, String> {
                use std::ffi::{CString, c_void};
                let mut missing = Vec::new();
                let mut find = |name: &'static str| {
                    let name_for_c = CString::new(name).ok();
                    let found = name_for_c.and_then(|name| $crate::vendor::find::symbol(library, &name));
                    found.unwrap_or_else(|| {
                        missing.push(name);
                        std::ptr::null()
                    })
                };
                $(let $method = find(stringify!($symbol));)*
                if !missing.is_empty() {
                    return Err(format!("it lacks {}", missing.join(", ")));
                }
                Ok(Functions {
                    // SAFETY: not null, as nothing is missing; the library's interface gives the symbol this type.
                    $($method: unsafe {
                        std::mem::transmute::<*const c_void, $crate::vendor::functions::functions!(@type $signature)>($method)
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;

/// An object of the library's that ends with this value.
pub(super) struct Made {
    pub(super) raw: Opaque,
    pub(super) destroy: unsafe extern "C" fn(Opaque) -> Status,
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the library made it, and nobody uses it any more: its calls don't keep descriptions.
        unsafe { (self.destroy)(self.raw) };
    }
}
