//! The symbols of the CUDA driver, answered by a virtual GPU: each forwards to the function of the same name.
//!
//! The library is not meant to be installed: it stands in for `libcuda.so.1` only where a program is told to load it.
#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use virtual_gpu::driver::abi::*;
use virtual_gpu::for_each_driver_function;

/// Exports a function, and its variant if it has one.
macro_rules! export {
    (($($argument:ident: $ty:ty),*) $name:ident $variant:ident) => {
        export!(($($argument: $ty),*) $name);
        export!(($($argument: $ty),*) $variant);
    };
    (($($argument:ident: $ty:ty),*) $name:ident) => {
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the C interface says: pointers are null or valid for what the function reads and writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $ty),*) -> CUresult {
            // SAFETY: the caller's promise is passed on.
            unsafe { virtual_gpu::driver::$name($($argument),*) }
        }
    };
}

macro_rules! exports {
    (
        implemented { $($module:ident::$name:ident($($argument:ident: $ty:ty),* $(,)?) $(=> $variant:ident)?;)* }
        unsupported { $($stub:ident)* }
    ) => {
        $(
            export!(($($argument: $ty),*) $name $($variant)?);
        )*

        $(
            /// Not supported: answers 801 and says so in the log.
            #[unsafe(no_mangle)]
            pub extern "C" fn $stub() -> CUresult {
                virtual_gpu::driver::$stub()
            }
        )*
    };
}

for_each_driver_function!(exports);
