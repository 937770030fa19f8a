//! The elementary functions as kernels, for the tests of this folder.

use fireclay_core::arith::Arith;
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_cpu::isa::Isa;
use fireclay_cpu::kernel::{Class, Kernel};

macro_rules! unary {
    ($($name:ident)*) => {
        /// Name and kernel of every function of one argument.
        pub(crate) fn unary() -> Vec<(&'static str, Kernel)> {
            vec![$({
                struct Function;
                impl Pointwise<1> for Function {
                    #[inline(always)]
                    fn eval<A: Arith>(&self, [x]: [A; 1]) -> [A; 1] {
                        [math::$name(x)]
                    }
                }
                (stringify!($name), Kernel::new(Function))
            }),*]
        }
    };
}

unary!(exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan erf erfc);

macro_rules! binary {
    ($($name:ident)*) => {
        /// Name and kernel of every function of two arguments.
        pub(crate) fn binary() -> Vec<(&'static str, Kernel)> {
            vec![$({
                struct Function;
                impl Pointwise<2> for Function {
                    #[inline(always)]
                    fn eval<A: Arith>(&self, [x, y]: [A; 2]) -> [A; 1] {
                        [math::$name(x, y)]
                    }
                }
                (stringify!($name), Kernel::new(Function))
            }),*]
        }
    };
}

binary!(pow atan2);

/// A float type that kernels take.
pub(crate) trait Element: Copy {
    const CLASS: Class;
    const ZERO: Self;
}
impl Element for f32 {
    const CLASS: Class = Class::F32;
    const ZERO: Self = 0.0;
}
impl Element for f64 {
    const CLASS: Class = Class::F64;
    const ZERO: Self = 0.0;
}

/// The kernel's one output for these inputs, on the instruction set.
pub(crate) fn apply<T: Element>(kernel: &Kernel, isa: Isa, inputs: &[&[T]]) -> Vec<T> {
    let len = inputs[0].len();
    assert!(inputs.iter().all(|input| input.len() == len));
    let mut output = vec![T::ZERO; len];
    let pointers: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
    // SAFETY: inputs and output are all of `len` elements of the class's type, and the output is its own memory.
    unsafe { kernel.run_on(isa, T::CLASS, &pointers, &[output.as_mut_ptr().cast()], len) };
    output
}

/// Random bits (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
