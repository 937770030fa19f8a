//! What Fireclay's tests share: golden cases made by PyTorch, gradient checks, samples of every op, the comparison of devices.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod devices;
pub mod draw;
pub mod fixtures;
pub mod gpu_report;
pub mod gradcheck;
pub mod samples;

pub use fireclay_conformance::compare;
