//! `Program`: a fused pointwise formula written down: what a device turns into one kernel.

use crate::dtype::DType;
use crate::pointwise::Class;
use crate::scalar::Scalar;
use crate::trace::{Kind, Operation, Trace};

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

/// The most numbers that are taken out of a program: kernels have little room for arguments.
const MOST_NUMBERS: usize = 64;

impl Program {
    /// The same program with the floating numbers in its functions taken out, as further constants, and those numbers: programs
    /// that differ only in what a function's fields are, as those of an optimizer's steps do, become one.
    pub fn with_numbers_apart(mut self) -> (Program, Vec<Scalar>) {
        let mut numbers = Vec::new();
        for step in &mut self.steps {
            let Step::Apply { trace, inputs, .. } = step else {
                continue;
            };
            for node in &mut trace.nodes {
                let Operation::Constant(bits) = node.operation else {
                    continue;
                };
                if numbers.len() == MOST_NUMBERS {
                    break;
                }
                let (class, number) = match node.kind {
                    Kind::F32 => (Class::F32, f64::from(f32::from_bits(bits as u32))),
                    Kind::F64 => (Class::F64, f64::from_bits(bits)),
                    _ => continue,
                };
                node.operation = Operation::Input(inputs.len() as u32);
                inputs.push(self.classes.len());
                self.constants.push(self.classes.len());
                self.classes.push(class);
                numbers.push(Scalar::F64(number));
            }
        }
        (self, numbers)
    }
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
