//! Device machinery: everything of CUDA that knows no tensors.
//!
//! [`driver()`] loads the driver (or the virtual GPU), [`Gpu`] is one device with its context, its default stream and its
//! caching allocator, [`DeviceBuffer`] and [`PinnedBuffer`] are memory, [`Module`] and [`Kernel`] are code. Calls return
//! values or [`fireclay_core::Error`]s; none panics because a driver is missing or fails.

mod check;
mod copy;
pub mod driver;
mod event;
mod gpu;
mod library;
pub mod memory;
mod module;
pub mod pointwise;
pub mod reduce;
mod stream;
pub mod surface;
pub mod sync;
pub mod vendor;

pub use check::Site;
pub use copy::{copy, copy_between, download, download_for, fill, upload};
pub use driver::{Driver, DriverError, Source, Unavailable, driver};
pub use event::Event;
pub use gpu::{Gpu, Launches, Properties};
pub use library::Library;
pub use memory::{DeviceBuffer, PinnedBuffer, Purpose};
pub use module::{Argument, Kernel, Module};
pub use stream::Stream;
