//! The macro that turns a row into a pointwise op: struct, kernel, dtypes, derivative, methods.

/// Declares pointwise functions, one row each:
///
/// ```text
/// /// What it computes.
/// Sigmoid, sigmoid(x), Float, saves OUTPUTS, autocast Keep,
///     eval float { A::int(1) / (A::int(1) + math::exp(-x)) },
///     grad(x, y, g) { [Some(g * (1.0 - y) * y)] };
/// ```
///
/// In `eval` the type `A` is the lane type. `eval number` bodies use [`Num`](fireclay_core::arith::Num) only and serve whole
/// numbers too; `eval float` bodies use [`Arith`](fireclay_core::arith::Arith); `eval whole` bodies are for whole numbers alone and use
/// [`Whole`](fireclay_core::arith::Whole); `eval float_or_whole` has a body for each, parted by a semicolon. In `grad`, the operands, the result and its
/// gradient are formulas. The row makes the eager `Tensor` method and the `Formula` method.
macro_rules! pointwise {
    ($($(#[$doc:meta])* $Name:ident, $method:ident($($x:ident),+), $typing:ident, saves $saves:expr, autocast $autocast:ident,
        eval $class:ident { $eval:expr $(; $whole:expr)? }, grad($gy:ident, $gg:ident) { $grad:expr };)*) => {
        /// Every row of this file.
        pub(super) const FUNCTIONS: &[&dyn $crate::function::Function] = &[$(&$Name),*];

        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $Name;

            $crate::ops::row::pointwise!(@eval $class, $Name, ($($x),+), $eval $(, $whole)?);

            impl $crate::function::Function for $Name {
                fn name(&self) -> &'static str {
                    $crate::ops::row::plain_name(stringify!($method))
                }
                fn arity(&self) -> usize {
                    [$(stringify!($x)),+].len()
                }
                fn kernel(&self) -> &fireclay_cpu::kernel::Kernel {
                    static KERNEL: std::sync::OnceLock<fireclay_cpu::kernel::Kernel> = std::sync::OnceLock::new();
                    KERNEL.get_or_init(|| fireclay_cpu::kernel::Kernel::new($Name))
                }
                fn typing(&self) -> $crate::function::Typing {
                    $crate::function::Typing::$typing
                }
                fn saves(&self) -> $crate::op::Saves {
                    use $crate::op::Saves;
                    $saves
                }
                #[allow(unused_variables, reason = "a derivative need not use every operand")]
                fn grad(
                    &self,
                    operands: &[$crate::formula::Formula],
                    $gy: &$crate::formula::Formula,
                    $gg: &$crate::formula::Formula,
                ) -> $crate::function::GradFormulas {
                    let [$($x),+] = operands else {
                        unreachable!("the arity of a function is fixed")
                    };
                    smallvec::SmallVec::from_vec($grad.into())
                }
                fn autocast(&self) -> $crate::op::Autocast {
                    $crate::op::Autocast::$autocast
                }
            }

            $crate::ops::row::pointwise!(@method $(#[$doc])* $Name, $method, ($($x),+));
        )*
    };

    (@eval number, $Name:ident, ($($x:ident),+), $eval:expr) => {
        impl fireclay_core::pointwise::Pointwise<{ [$(stringify!($x)),+].len() }, 1> for $Name {
            const WHOLE: bool = true;
            #[inline(always)]
            fn eval<A: fireclay_core::arith::Arith>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$eval]
            }
            #[inline(always)]
            fn eval_int<A: fireclay_core::arith::Whole>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$eval]
            }
        }
    };
    (@eval float, $Name:ident, ($($x:ident),+), $eval:expr) => {
        impl fireclay_core::pointwise::Pointwise<{ [$(stringify!($x)),+].len() }, 1> for $Name {
            #[inline(always)]
            fn eval<A: fireclay_core::arith::Arith>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$eval]
            }
        }
    };
    // A function with a rule of its own for whole numbers (`pow`).
    (@eval float_or_whole, $Name:ident, ($($x:ident),+), $eval:expr, $whole:expr) => {
        impl fireclay_core::pointwise::Pointwise<{ [$(stringify!($x)),+].len() }, 1> for $Name {
            const WHOLE: bool = true;
            #[inline(always)]
            fn eval<A: fireclay_core::arith::Arith>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$eval]
            }
            #[inline(always)]
            fn eval_int<A: fireclay_core::arith::Whole>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$whole]
            }
        }
    };
    // A function of whole numbers and bools alone (`bitwise_and`).
    (@eval whole, $Name:ident, ($($x:ident),+), $eval:expr) => {
        impl fireclay_core::pointwise::Pointwise<{ [$(stringify!($x)),+].len() }, 1> for $Name {
            const WHOLE: bool = true;
            #[inline(always)]
            fn eval<A: fireclay_core::arith::Arith>(&self, x: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                // The typing refuses floats.
                [x[0]]
            }
            #[inline(always)]
            fn eval_int<A: fireclay_core::arith::Whole>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                [$eval]
            }
        }
    };
    // A function that leaves whole numbers as they are (`floor`).
    (@eval float_or_same, $Name:ident, ($x:ident), $eval:expr) => {
        impl fireclay_core::pointwise::Pointwise<1, 1> for $Name {
            const WHOLE: bool = true;
            #[inline(always)]
            fn eval<A: fireclay_core::arith::Arith>(&self, [$x]: [A; 1]) -> [A; 1] {
                [$eval]
            }
            #[inline(always)]
            fn eval_int<A: fireclay_core::arith::Whole>(&self, x: [A; 1]) -> [A; 1] {
                x
            }
        }
    };

    (@method $(#[$doc:meta])* $Name:ident, $method:ident, ($x:ident)) => {
        impl $crate::tensor::Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self) -> fireclay_core::Result<$crate::tensor::Tensor> {
                $crate::function::eager(&$Name, &[self.into()])
            }
        }
        impl $crate::formula::Formula {
            $(#[$doc])*
            #[must_use]
            pub fn $method(&self) -> $crate::formula::Formula {
                $crate::formula::Formula::apply(&$Name, smallvec::smallvec![self.clone()])
            }
        }
    };
    (@method $(#[$doc:meta])* $Name:ident, $method:ident, ($x:ident, $y:ident)) => {
        impl $crate::tensor::Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method<'a>(&self, $y: impl Into<$crate::function::Arg<'a>>) -> fireclay_core::Result<$crate::tensor::Tensor> {
                $crate::function::eager(&$Name, &[self.into(), $y.into()])
            }
        }
        impl $crate::formula::Formula {
            $(#[$doc])*
            #[must_use]
            pub fn $method(&self, $y: impl Into<$crate::formula::Formula>) -> $crate::formula::Formula {
                $crate::formula::Formula::apply(&$Name, smallvec::smallvec![self.clone(), $y.into()])
            }
        }
    };
    (@method $(#[$doc:meta])* $Name:ident, $method:ident, ($x:ident, $y:ident, $z:ident)) => {
        impl $crate::tensor::Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method<'a, 'b>(
                &self,
                $y: impl Into<$crate::function::Arg<'a>>,
                $z: impl Into<$crate::function::Arg<'b>>,
            ) -> fireclay_core::Result<$crate::tensor::Tensor> {
                $crate::function::eager(&$Name, &[self.into(), $y.into(), $z.into()])
            }
        }
        impl $crate::formula::Formula {
            $(#[$doc])*
            #[must_use]
            pub fn $method(
                &self,
                $y: impl Into<$crate::formula::Formula>,
                $z: impl Into<$crate::formula::Formula>,
            ) -> $crate::formula::Formula {
                $crate::formula::Formula::apply(&$Name, smallvec::smallvec![self.clone(), $y.into(), $z.into()])
            }
        }
    };
    (@method $(#[$doc:meta])* $Name:ident, $method:ident, ($x:ident, $y:ident, $z:ident, $w:ident)) => {
        impl $crate::tensor::Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method<'a, 'b, 'c>(
                &self,
                $y: impl Into<$crate::function::Arg<'a>>,
                $z: impl Into<$crate::function::Arg<'b>>,
                $w: impl Into<$crate::function::Arg<'c>>,
            ) -> fireclay_core::Result<$crate::tensor::Tensor> {
                $crate::function::eager(&$Name, &[self.into(), $y.into(), $z.into(), $w.into()])
            }
        }
        impl $crate::formula::Formula {
            $(#[$doc])*
            #[must_use]
            pub fn $method(
                &self,
                $y: impl Into<$crate::formula::Formula>,
                $z: impl Into<$crate::formula::Formula>,
                $w: impl Into<$crate::formula::Formula>,
            ) -> $crate::formula::Formula {
                let operands = smallvec::smallvec![self.clone(), $y.into(), $z.into(), $w.into()];
                $crate::formula::Formula::apply(&$Name, operands)
            }
        }
    };
}

pub(crate) use pointwise;

/// A method's name as PyTorch has it: a keyword's trailing underscore doesn't count.
pub(crate) fn plain_name(method: &'static str) -> &'static str {
    method.strip_suffix('_').unwrap_or(method)
}

/// Declares in-place forms: `a.add_(&b)?`, `x.relu_()?`.
macro_rules! in_place {
    ($($Name:ident => $method:ident($($arg:ident),*);)*) => {
        impl $crate::tensor::Tensor {
            $($crate::ops::row::in_place!(@method $Name, $method, $($arg),*);)*
        }
    };
    (@method $Name:ident, $method:ident, ) => {
        #[doc = concat!("The in-place form of [`", stringify!($Name), "`](struct@", stringify!($Name), "): overwrites `self` and returns it (`Tensor.", stringify!($method), "`).")]
        #[track_caller]
        pub fn $method(&self) -> fireclay_core::Result<$crate::tensor::Tensor> {
            $crate::function::eager_into(&$Name, &[self.into()], self)?;
            Ok(self.clone())
        }
    };
    (@method $Name:ident, $method:ident, $x:ident, $y:ident) => {
        #[doc = concat!("The in-place form of [`", stringify!($Name), "`](struct@", stringify!($Name), "): overwrites `self` and returns it (`Tensor.", stringify!($method), "`).")]
        #[track_caller]
        pub fn $method<'a, 'b>(
            &self,
            $x: impl Into<$crate::function::Arg<'a>>,
            $y: impl Into<$crate::function::Arg<'b>>,
        ) -> fireclay_core::Result<$crate::tensor::Tensor> {
            $crate::function::eager_into(&$Name, &[self.into(), $x.into(), $y.into()], self)?;
            Ok(self.clone())
        }
    };
    (@method $Name:ident, $method:ident, $x:ident, $y:ident, $z:ident) => {
        #[doc = concat!("The in-place form of [`", stringify!($Name), "`](struct@", stringify!($Name), "): overwrites `self` and returns it (`Tensor.", stringify!($method), "`).")]
        #[track_caller]
        pub fn $method<'a, 'b, 'c>(
            &self,
            $x: impl Into<$crate::function::Arg<'a>>,
            $y: impl Into<$crate::function::Arg<'b>>,
            $z: impl Into<$crate::function::Arg<'c>>,
        ) -> fireclay_core::Result<$crate::tensor::Tensor> {
            $crate::function::eager_into(&$Name, &[self.into(), $x.into(), $y.into(), $z.into()], self)?;
            Ok(self.clone())
        }
    };
    (@method $Name:ident, $method:ident, $arg:ident) => {
        #[doc = concat!("The in-place form of [`", stringify!($Name), "`](struct@", stringify!($Name), "): overwrites `self` and returns it (`Tensor.", stringify!($method), "`).")]
        #[track_caller]
        pub fn $method<'a>(&self, $arg: impl Into<$crate::function::Arg<'a>>) -> fireclay_core::Result<$crate::tensor::Tensor> {
            $crate::function::eager_into(&$Name, &[self.into(), $arg.into()], self)?;
            Ok(self.clone())
        }
    };
}

pub(crate) use in_place;
