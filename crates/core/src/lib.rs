//! The values of Fireclay: dtypes, promotion, scalars, shapes, layouts, devices, errors, arithmetic.
//!
//! Nothing here allocates device memory, does I/O or needs `unsafe`; everything else builds on it.
#![forbid(unsafe_code)]

pub mod arith;
pub mod caching;
pub mod call_site;
pub mod default_device;
pub mod device;
pub mod dtype;
pub mod error;
pub mod layout;
pub mod math;
pub mod philox;
pub mod pointwise;
pub mod program;
pub mod promote;
pub mod resume;
pub mod scalar;
pub mod shape;
pub mod state_dict;
pub mod trace;

pub use call_site::{as_one_call, call_site, called_from};
pub use default_device::{DefaultDeviceGuard, DeviceOrDefault, ThreadDevices, get_default_device};
pub use device::{Device, IntoDevice};
pub use dtype::{DType, Element};
pub use error::{Context, Error, Made, Operand, Origin, Result};
pub use layout::Layout;
pub use promote::{Promotion, promote_types};
pub use resume::{LoaderState, RngState};
pub use scalar::Scalar;
pub use shape::{Dims, Shape, resolve_dim};
pub use state_dict::StateEntry;
