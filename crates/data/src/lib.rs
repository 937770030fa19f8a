//! Data for training: files, datasets, samplers and loading. Knows nothing of modules or optimizers.
#![forbid(unsafe_code)]

pub mod idx;
