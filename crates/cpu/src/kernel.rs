//! `Kernel`: a pointwise function compiled for every class of numbers and every instruction set.
//!
//! Knows runs of contiguous elements; knows nothing of shapes, threads or dtypes.

use crate::arch::SimdLanes;
use crate::isa::{Isa, isa};
pub use fireclay_core::pointwise::Class;
use fireclay_core::pointwise::Pointwise;
use fireclay_core::trace::{Trace, trace};
use std::num::Wrapping;
use std::sync::Arc;

/// A compiled pointwise function whose number of inputs and outputs is known at run time. Cheap to clone.
#[derive(Clone)]
pub struct Kernel {
    function: Arc<dyn Function>,
}

impl Kernel {
    /// The kernel of `function`.
    pub fn new<const N: usize, const M: usize, P: Pointwise<N, M>>(function: P) -> Kernel {
        Kernel {
            function: Arc::new(Compiled(function)),
        }
    }

    /// How many inputs the function has.
    pub fn inputs(&self) -> usize {
        self.function.inputs()
    }

    /// How many outputs the function has.
    pub fn outputs(&self) -> usize {
        self.function.outputs()
    }

    /// Whether the function can be computed in [`Class::I64`].
    pub fn whole(&self) -> bool {
        self.function.whole()
    }

    /// The function written down, for other devices: see Note [Traces of formulas]. Panics on [`Class::I64`] if it is not
    /// [`whole`](Self::whole).
    pub fn trace(&self, class: Class) -> Trace {
        self.function.trace(class)
    }

    /// Applies the function to `len` elements, on the instruction set in use.
    ///
    /// Panics if there are not as many pointers as the function has inputs and outputs, or on [`Class::I64`] if it is
    /// not [`whole`](Self::whole).
    ///
    /// # Safety
    /// Each pointer is valid for `len` elements of `class`'s type (reading for inputs, writing for outputs) and
    /// aligned for one. An output either equals an input pointer or doesn't overlap any input, and outputs don't
    /// overlap each other.
    #[inline]
    pub unsafe fn run(&self, class: Class, inputs: &[*const u8], outputs: &[*mut u8], len: usize) {
        // SAFETY: the same conditions; `isa` returns only what the CPU supports.
        unsafe { self.function.run(isa(), class, inputs, outputs, len) }
    }

    /// [`run`](Self::run) on a given instruction set, for tests and measurements. Panics if the CPU lacks it.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn run_on(
        &self,
        isa: Isa,
        class: Class,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        len: usize,
    ) {
        assert!(isa.is_supported(), "this CPU lacks {isa:?}");
        // SAFETY: the same conditions, and the CPU supports `isa`.
        unsafe { self.function.run(isa, class, inputs, outputs, len) }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kernel({} -> {})", self.inputs(), self.outputs())
    }
}

/// Applies a function known when compiling to `len` elements, like [`Kernel::run`] but with nothing allocated.
///
/// # Safety
/// As for [`Kernel::run`].
#[inline]
pub unsafe fn run_pointwise<const N: usize, const M: usize, P: Pointwise<N, M>>(
    function: &P,
    class: Class,
    inputs: &[*const u8; N],
    outputs: &[*mut u8; M],
    len: usize,
) {
    // SAFETY: the same conditions; `isa` returns only what the CPU supports.
    unsafe { run_compiled(function, isa(), class, inputs, outputs, len) }
}

/// A [`Pointwise`] whose type is forgotten.
trait Function: Send + Sync {
    fn inputs(&self) -> usize;
    fn outputs(&self) -> usize;
    fn whole(&self) -> bool;
    fn trace(&self, class: Class) -> Trace;
    /// # Safety
    /// As for [`Kernel::run`], and the CPU supports `isa`.
    unsafe fn run(
        &self,
        isa: Isa,
        class: Class,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        len: usize,
    );
}

struct Compiled<const N: usize, const M: usize, P>(P);

impl<const N: usize, const M: usize, P: Pointwise<N, M>> Function for Compiled<N, M, P> {
    fn inputs(&self) -> usize {
        N
    }

    fn outputs(&self) -> usize {
        M
    }

    fn whole(&self) -> bool {
        P::WHOLE
    }

    fn trace(&self, class: Class) -> Trace {
        trace(&self.0, class)
    }

    unsafe fn run(
        &self,
        isa: Isa,
        class: Class,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        len: usize,
    ) {
        let (Ok(inputs), Ok(outputs)) = (inputs.try_into(), outputs.try_into()) else {
            panic!(
                "a kernel {N} -> {M} was run with {} inputs and {} outputs",
                inputs.len(),
                outputs.len()
            );
        };
        // SAFETY: the same conditions.
        unsafe { run_compiled(&self.0, isa, class, inputs, outputs, len) }
    }
}

/// # Safety
/// As for [`Kernel::run`], and the CPU supports `isa`.
#[inline(always)]
unsafe fn run_compiled<const N: usize, const M: usize, P: Pointwise<N, M>>(
    function: &P,
    isa: Isa,
    class: Class,
    inputs: &[*const u8; N],
    outputs: &[*mut u8; M],
    len: usize,
) {
    let scalar = match class {
        Class::F32 => lanes_loop::<f32, N, M, P>,
        Class::F64 => lanes_loop::<f64, N, M, P>,
        Class::I64 => whole_loop::<N, M, P>,
    };
    // SAFETY: the pointers are the caller's; by the match, a loop compiled for an instruction set runs only where the
    // caller vouched for that.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => match class {
                Class::F32 => on_avx512::f32(function, inputs, outputs, len),
                Class::F64 => on_avx512::f64(function, inputs, outputs, len),
                Class::I64 => on_avx512::i64(function, inputs, outputs, len),
            },
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => match class {
                Class::F32 => on_avx2::f32(function, inputs, outputs, len),
                Class::F64 => on_avx2::f64(function, inputs, outputs, len),
                Class::I64 => on_avx2::i64(function, inputs, outputs, len),
            },
            _ => scalar(function, inputs, outputs, len),
        }
    }
}

/// The three loops compiled under an instruction set.
macro_rules! loops_on {
    ($module:ident, $features:literal, $f32:ty, $f64:ty) => {
        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::*;

            loops_on!(f32, $features, lanes_loop::<$f32, N, M, P>);
            loops_on!(f64, $features, lanes_loop::<$f64, N, M, P>);
            loops_on!(i64, $features, whole_loop::<N, M, P>);
        }
    };
    ($name:ident, $features:literal, $run:expr) => {
        /// # Safety
        /// As for [`Kernel::run`], and the CPU has the features.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const N: usize, const M: usize, P: Pointwise<N, M>>(
            function: &P,
            inputs: &[*const u8; N],
            outputs: &[*mut u8; M],
            len: usize,
        ) {
            // SAFETY: the same conditions.
            unsafe { $run(function, inputs, outputs, len) }
        }
    };
}

loops_on!(
    on_avx2,
    "avx2,fma",
    crate::arch::avx2::F32x8,
    crate::arch::avx2::F64x4
);
loops_on!(
    on_avx512,
    "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl",
    crate::arch::avx512::F32x16,
    crate::arch::avx512::F64x8
);

/// # Safety
/// As for [`Kernel::run`] with elements of type `V::Elem`. See Note [Lanes inside target features].
#[inline(always)]
unsafe fn lanes_loop<V: SimdLanes, const N: usize, const M: usize, P: Pointwise<N, M>>(
    function: &P,
    inputs: &[*const u8; N],
    outputs: &[*mut u8; M],
    len: usize,
) {
    let inputs = inputs.map(|input| input.cast::<V::Elem>());
    let outputs = outputs.map(|output| output.cast::<V::Elem>());
    let mut start = 0;
    // Elements don't depend on each other, so the CPU overlaps the turns of this loop by itself. Two vectors a turn halve
    // what the loop costs, which doubles the speed of `add` in the L1 cache.
    while start + 2 * V::LANES <= len {
        for start in [start, start + V::LANES] {
            // SAFETY: start + LANES <= len, for which the caller vouches. All inputs are read before an output is
            // written, so that an output may equal an input.
            unsafe {
                let mut x = [V::of(0.0); N];
                for (lanes, input) in x.iter_mut().zip(inputs) {
                    *lanes = V::load(input.add(start));
                }
                for (lanes, output) in function.eval(x).iter().zip(outputs) {
                    lanes.store(output.add(start));
                }
            }
        }
        start += 2 * V::LANES;
    }
    while start < len {
        let count = V::LANES.min(len - start);
        // SAFETY: count <= LANES and start + count <= len, for which the caller vouches.
        unsafe {
            let mut x = [V::of(0.0); N];
            for (lanes, input) in x.iter_mut().zip(inputs) {
                *lanes = V::load_first(input.add(start), count);
            }
            for (lanes, output) in function.eval(x).iter().zip(outputs) {
                lanes.store_first(output.add(start), count);
            }
        }
        start += count;
    }
}

/// # Safety
/// As for [`Kernel::run`] with elements of type i64.
#[inline(always)]
unsafe fn whole_loop<const N: usize, const M: usize, P: Pointwise<N, M>>(
    function: &P,
    inputs: &[*const u8; N],
    outputs: &[*mut u8; M],
    len: usize,
) {
    assert!(
        P::WHOLE,
        "a pointwise function without a whole-number form was run on whole numbers"
    );
    let inputs = inputs.map(|input| input.cast::<Wrapping<i64>>());
    let outputs = outputs.map(|output| output.cast::<Wrapping<i64>>());
    for index in 0..len {
        // SAFETY: index < len, for which the caller vouches; Wrapping<i64> is laid out as i64.
        unsafe {
            let x = std::array::from_fn(|i| *inputs[i].add(index));
            for (value, output) in function.eval_int(x).into_iter().zip(outputs) {
                *output.add(index) = value;
            }
        }
    }
}
