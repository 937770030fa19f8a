//! NVIDIA's libraries, for which others stand in on the virtual GPU: the sequences of calls, the results, what is said without them.
#![cfg(unix)]

mod cublas_lt;
mod cudnn;
mod stand_in;
