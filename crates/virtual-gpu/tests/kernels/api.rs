//! The driver's functions with their C signatures, made from the driver's own table and found by name at each call.

#![expect(
    clippy::too_many_arguments,
    reason = "the driver's functions have that many"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use virtual_gpu::driver::abi::*;

macro_rules! functions {
    (
        implemented { $($module:ident::$name:ident($($argument:ident: $ty:ty),* $(,)?) $(=> $variant:ident)?;)* }
        unsupported { $($stub:ident)* }
    ) => {
        $(
            function!($name ($($argument: $ty),*));
            function!($($variant)? ($($argument: $ty),*));
        )*
        /// Names of functions that answer that they are not supported.
        pub(crate) const UNSUPPORTED: &[&str] = &[$(stringify!($stub),)*];
        /// Names of all functions that do something.
        pub(crate) const IMPLEMENTED: &[&str] = &[$(stringify!($name), $(stringify!($variant),)?)*];
    };
}

macro_rules! function {
    (($($argument:ident: $ty:ty),*)) => {};
    ($name:ident ($($argument:ident: $ty:ty),*)) => {
        pub(crate) fn $name($($argument: $ty),*) -> u32 {
            let pointer = find(stringify!($name));
            // SAFETY: the table holds the driver's function of this name, which has this signature.
            let function = unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> u32>(pointer)
            };
            // SAFETY: tests pass pointers to live values of the sizes that the function reads or writes, or such as the
            // driver must refuse without following them.
            unsafe { function($($argument),*) }
        }
    };
}

virtual_gpu::for_each_driver_function!(functions);

/// The address of a function of the driver.
pub(crate) fn find(name: &str) -> *const c_void {
    virtual_gpu::driver::function(name).unwrap_or_else(|| panic!("the driver has no {name}"))
}

/// Panics unless a call has succeeded.
#[track_caller]
pub(crate) fn ok(code: u32) {
    if code != 0 {
        panic!("error {code}");
    }
}
