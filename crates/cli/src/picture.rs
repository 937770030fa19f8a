//! The pictures that the commands read and write. Knows pixels and numbers, not tensors.

pub(crate) mod contact_sheet;
pub(crate) mod curve;
pub(crate) mod digit_image;
mod font;
