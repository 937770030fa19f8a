//! Layers that put something around their input.

use fireclay_tensor::{Error, Pad, Result, Scalar, Tensor};

use crate::module::Module;

/// How much goes on each side of `N` dimensions: from a number for all sides, or from `[left, right, top, bottom, front, back]`, the
/// last dimension first. Negative numbers cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sides<const N: usize>(Vec<isize>);

impl<const N: usize> From<isize> for Sides<N> {
    fn from(all: isize) -> Sides<N> {
        Sides(vec![all; 2 * N])
    }
}

macro_rules! sides {
    ($($N:literal $numbers:literal)*) => {$(
        impl From<[isize; $numbers]> for Sides<$N> {
            fn from(each: [isize; $numbers]) -> Sides<$N> {
                Sides(each.into())
            }
        }
    )*};
}

sides! { 1 2 2 4 3 6 }

macro_rules! paddings {
    ($($(#[$doc:meta])* $Name:ident, $N:literal, ($($value:ident: $Scalar:ty)?), $mode:expr;)*) => {$(
        $(#[$doc])*
        #[derive(crate::Module, Clone, Debug)]
        pub struct $Name {
            #[module(skip)]
            sides: Sides<$N>,
            $(#[module(skip)]
            $value: $Scalar,)?
        }

        impl $Name {
            /// With so much on each side.
            pub fn new(padding: impl Into<Sides<$N>> $(, $value: impl Into<$Scalar>)?) -> $Name {
                $Name { sides: padding.into() $(, $value: $value.into())? }
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                // One dimension of channels, and a batch or none.
                if ![$N + 1, $N + 2].contains(&input.ndim()) {
                    let what = format!(
                        "{} takes {} or {} dimensions, got {}", stringify!($Name), $N + 1, $N + 2, input.shape()
                    );
                    return Err(Error::shape("pad", what).with_operands(|| vec![input.operand("input")]));
                }
                $(let $value = self.$value;)?
                input.pad(&self.sides.0, $mode)
            }
        }
    )*};
}

paddings! {
    /// A number around the last dimension (`torch.nn.ConstantPad1d`).
    ConstantPad1d, 1, (value: Scalar), Pad::Constant(value);
    /// Zeros around (`torch.nn.ZeroPad1d`).
    ZeroPad1d, 1, (), Pad::default();
    /// What a mirror at the outermost elements shows (`torch.nn.ReflectionPad1d`).
    ReflectionPad1d, 1, (), Pad::Reflect;
    /// The outermost elements (`torch.nn.ReplicationPad1d`).
    ReplicationPad1d, 1, (), Pad::Replicate;
    /// The input from its other end on (`torch.nn.CircularPad1d`).
    CircularPad1d, 1, (), Pad::Circular;
    /// A number around the last 2 dimensions (`torch.nn.ConstantPad2d`).
    ConstantPad2d, 2, (value: Scalar), Pad::Constant(value);
    /// Zeros around (`torch.nn.ZeroPad2d`).
    ZeroPad2d, 2, (), Pad::default();
    /// What a mirror at the outermost elements shows (`torch.nn.ReflectionPad2d`).
    ReflectionPad2d, 2, (), Pad::Reflect;
    /// The outermost elements (`torch.nn.ReplicationPad2d`).
    ReplicationPad2d, 2, (), Pad::Replicate;
    /// The input from its other end on (`torch.nn.CircularPad2d`).
    CircularPad2d, 2, (), Pad::Circular;
    /// A number around the last 3 dimensions (`torch.nn.ConstantPad3d`).
    ConstantPad3d, 3, (value: Scalar), Pad::Constant(value);
    /// Zeros around (`torch.nn.ZeroPad3d`).
    ZeroPad3d, 3, (), Pad::default();
    /// What a mirror at the outermost elements shows (`torch.nn.ReflectionPad3d`).
    ReflectionPad3d, 3, (), Pad::Reflect;
    /// The outermost elements (`torch.nn.ReplicationPad3d`).
    ReplicationPad3d, 3, (), Pad::Replicate;
    /// The input from its other end on (`torch.nn.CircularPad3d`).
    CircularPad3d, 3, (), Pad::Circular;
}
