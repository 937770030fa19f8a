//! The symbols of the CUDA driver, answered by a virtual GPU: each forwards to the function of the same name.
//!
//! The library is not meant to be installed: it stands in for `libcuda.so.1` only where a program is told to load it.
#![allow(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use virtual_gpu::driver::abi::*;
use virtual_gpu::for_each_driver_function;

macro_rules! exports {
    (
        implemented { $($module:ident::$name:ident($($argument:ident: $ty:ty),* $(,)?) $(=> $variant:ident)?;)* }
        unsupported { $($stub:ident)* }
    ) => {
        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// As the C interface says: pointers are null or valid for what the function reads and writes.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> CUresult {
                // SAFETY: the caller's promise is passed on.
                unsafe { virtual_gpu::driver::$name($($argument),*) }
            }

            variant!($($variant)?; ($($argument: $ty),*));
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

/// The symbol of a variant for the thread's own default stream, if the function has one.
macro_rules! variant {
    (; ($($argument:ident: $ty:ty),*)) => {};
    ($variant:ident; ($($argument:ident: $ty:ty),*)) => {
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the C interface says: pointers are null or valid for what the function reads and writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $variant($($argument: $ty),*) -> CUresult {
            // SAFETY: the caller's promise is passed on.
            unsafe { virtual_gpu::driver::$variant($($argument),*) }
        }
    };
}

for_each_driver_function!(exports);
