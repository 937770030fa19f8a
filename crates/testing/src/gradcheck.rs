//! Gradient checks.
