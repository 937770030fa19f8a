//! What is applied to the sums of a matrix product before they are numbers of the result: a bias or a factor, an activation, a
//! residual; and the host's pass that does it.

use fireclay_core::{DType, Scalar};
use fireclay_cpu::convert::class_of;
use fireclay_cpu::program::{Program, Sink, Source};

use crate::function::Function;
use crate::ops::{binary, unary};
use crate::storage::Operand;

/// A pointwise function that a linear layer applies to its result.
///
/// But for relu, its derivative is one of what it was applied to, not of its result: the gradient has only that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// [`relu`](crate::Tensor::relu).
    Relu,
    /// [`gelu`](crate::Tensor::gelu).
    Gelu,
    /// [`gelu_tanh`](crate::Tensor::gelu_tanh).
    GeluTanh,
    /// [`silu`](crate::Tensor::silu).
    Silu,
}

impl Activation {
    /// The pointwise op: its kernel is the host's, its derivative that of both devices.
    pub(super) fn function(self) -> &'static dyn Function {
        match self {
            Activation::Relu => &unary::Relu,
            Activation::Gelu => &unary::Gelu,
            Activation::GeluTanh => &unary::GeluTanh,
            Activation::Silu => &unary::Silu,
        }
    }

    /// Its number in `matmul.cuh`.
    pub(super) fn number(self) -> u64 {
        match self {
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::GeluTanh => 3,
            Activation::Silu => 4,
        }
    }
}

/// `C = activation(alpha * sums + bias) + beta * residual`, on the host and on devices. Where there is a bias, alpha is 1.
///
/// The result is rounded to its dtype once, in the end: f32 and f64 have the bits of the ops one after the other, 16-bit floats
/// are nearer to the exact result than those, which round in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epilogue {
    /// The number of the input that is added to all rows.
    pub(super) bias: Option<usize>,
    pub(super) alpha: f64,
    pub(super) activation: Option<Activation>,
    pub(super) beta: f64,
    /// The number of the input that is added in the end, and its strides over matrices, rows and columns.
    pub(super) residual: Option<(usize, [usize; 3])>,
    /// The number of the output that gets what the activation is applied to.
    pub(super) kept: Option<usize>,
}

impl Epilogue {
    pub(super) const NONE: Epilogue = Epilogue {
        bias: None,
        alpha: 1.0,
        activation: None,
        beta: 1.0,
        residual: None,
        kept: None,
    };

    /// Whether it is a bias at most.
    pub(super) fn is_bias(&self) -> bool {
        self.alpha == 1.0 && self.activation.is_none() && self.residual.is_none()
    }

    /// The host's pass over sums with their bias, of `shape`: from `sums` to `to`, or where they are.
    pub(super) fn finish<T>(
        &self,
        dtype: DType,
        shape: &[usize],
        sums: &mut [T],
        residual: Option<Operand<'_>>,
        to: Option<&mut [T]>,
    ) {
        if self.is_bias() {
            return;
        }
        let class = class_of(dtype);
        let mut program = Program::new();
        let mut number = program.input(dtype);
        let scaled = |program: &mut Program, number, factor: f64| {
            if factor == 1.0 {
                return number;
            }
            let factor = program.constant(class, Scalar::F64(factor));
            program.apply(binary::Mul.kernel(), class, &[number, factor])[0]
        };
        let added = residual.map(|residual| program.input(residual.dtype));
        number = scaled(&mut program, number, self.alpha);
        if let Some(activation) = self.activation {
            number = program.apply(activation.function().kernel(), class, &[number])[0];
        }
        if let Some(added) = added {
            let added = scaled(&mut program, added, self.beta);
            number = program.apply(binary::Add.kernel(), class, &[number, added])[0];
        }
        program.output(number, dtype);
        let contiguous = fireclay_core::Layout::contiguous(shape.into());
        let count = contiguous.numel();
        assert!(sums.len() >= count && to.as_ref().is_none_or(|to| to.len() >= count));
        // One pointer for both uses of the sums.
        let at = sums.as_mut_ptr();
        let from = Source {
            ptr: at.cast::<u8>().cast_const(),
            dtype,
            strides: contiguous.strides().into(),
        };
        let residual = residual.map(|residual| {
            let layout = residual.layout.expand(&shape.into());
            let layout = layout.expect("the output rule checked that it broadcasts");
            Source {
                ptr: residual.ptr().cast_const(),
                dtype: residual.dtype,
                strides: layout.strides().into(),
            }
        });
        let sink = Sink {
            ptr: to.map_or(at, <[T]>::as_mut_ptr).cast::<u8>(),
            dtype,
            strides: contiguous.strides().into(),
        };
        let sources: Vec<Source> = [from].into_iter().chain(residual).collect();
        // SAFETY: both slices have `count` numbers of `dtype`; they are one and the same or apart; `ptr` checked the residual against
        // its storage, which is locked and another one.
        unsafe { program.evaluate(shape, &sources, &[sink]) };
    }
}
