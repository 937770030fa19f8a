//! Checks that only a virtual GPU can do: what is remembered of bytes and of commands to find uninitialised reads and
//! races.

/// What the checks remember of an allocation's bytes.
#[derive(Debug)]
pub struct Shadow {}
