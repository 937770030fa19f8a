//! The kernels of `kernels/*.cu`, run from their PTX on the virtual GPU and held against plain Rust, under several
//! schedules each.

#[expect(dead_code, reason = "shared with the tests of the driver's functions")]
mod api;
mod atomics;
mod attention;
mod bugs;
mod calls;
mod casts;
mod compare;
mod cooperative;
mod draw;
mod elementwise;
mod gemm;
#[expect(dead_code, reason = "shared with the tests of the driver's functions")]
mod gpu;
mod indexing;
mod integer;
mod memory;
mod normalization;
mod packed;
mod precise;
mod random;
mod reduction;
mod rounding;
mod scan_sort;
mod tensor_core;
mod warp;

/// Makes a test of each function, which is called with a fresh machine for every schedule.
macro_rules! kernel_tests {
    ($($name:ident)*) => {
        mod on_the_machine {
            $(
                #[test]
                fn $name() {
                    for schedule in crate::gpu::SCHEDULES {
                        super::$name(&crate::gpu::Gpu::new(schedule));
                    }
                }
            )*
        }
    };
}
pub(crate) use kernel_tests;
