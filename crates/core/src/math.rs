//! Functions over [`Arith`](crate::arith::Arith).
