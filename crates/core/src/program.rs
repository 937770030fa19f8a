//! `Program`: a fused pointwise formula written down: what a device turns into one kernel.

use crate::dtype::DType;
use crate::pointwise::Class;
use crate::trace::Trace;

/// One step of a [`Program`]; registers are numbers into [`Program::classes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Applies a function.
    Apply {
        /// The function on numbers of the registers' class.
        trace: Trace,
        /// Its operands.
        inputs: Vec<usize>,
        /// Where its results go.
        outputs: Vec<usize>,
    },
    /// To another class (cut towards zero and kept in range from a float to whole numbers; NaN becomes 0).
    Convert {
        /// Gives 1 for anything but zero instead.
        truth: bool,
        /// The operand.
        input: usize,
        /// Where the result goes.
        output: usize,
    },
}

/// Pointwise functions over the elements of several tensors, done in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// What each register holds.
    pub classes: Vec<Class>,
    /// The register of each input, and what its elements are in memory.
    pub inputs: Vec<(usize, DType)>,
    /// Registers with the same number in every element. The numbers are given when it runs, so that programs that differ in
    /// them only are one.
    pub constants: Vec<usize>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The register of each output, and what its elements are in memory. A bool is stored as whether it is not zero.
    pub outputs: Vec<(usize, DType)>,
}

/// The class in which a dtype is computed with. Only computable dtypes have one.
pub fn class_of(dtype: DType) -> Class {
    match dtype {
        DType::F64 => Class::F64,
        DType::F32 | DType::F16 | DType::BF16 => Class::F32,
        _ => {
            debug_assert!(dtype.is_computable());
            Class::I64
        }
    }
}
