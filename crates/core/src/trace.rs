//! Tracing: a formula run on lanes that record what is done to them, to be written down for a device.
//!
//! Note [Traces of formulas]
//! A formula is generic over its lanes. On the lanes of this file nothing is computed: every operation appends a [`Node`]
//! to the recording of the thread and gives its number. Equal operations of equal operands get one node, and what no output
//! needs is left out. Since a formula's lanes can't be looked at, it does the same steps whatever the values are, so that the
//! recording is the whole of it; [`Mask::any`] says that work must not be skipped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use crate::arith::{Arith, Bits, Mask, Num, Whole};
use crate::pointwise::{Class, Pointwise};

/// What a node's value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A single.
    F32,
    /// A double.
    F64,
    /// A whole number of 64 bits, which is also the bits of a double.
    I64,
    /// The bits of a single, as a signed whole number.
    I32,
    /// True or false.
    Mask,
}

/// What a node does with its operands, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// The formula's input of this number.
    Input(u32),
    /// These bits, the lowest ones of the value's width.
    Constant(u64),
    /// a + b. Whole numbers wrap around, floats are rounded to nearest; so below.
    Add,
    /// a - b
    Sub,
    /// a * b; of whole numbers the low half.
    Mul,
    /// a / b; of whole numbers cut towards zero, and anything where b is 0 or -1.
    Div,
    /// -a
    Neg,
    /// Without its sign; the smallest whole number stays.
    Abs,
    /// a * b + c, rounded once.
    MulAdd,
    /// The square root.
    Sqrt,
    /// The magnitude of a with the sign of b.
    Copysign,
    /// Rounded down.
    Floor,
    /// Rounded up.
    Ceil,
    /// Rounded towards zero.
    Trunc,
    /// Rounded to the nearest whole number, ties to even.
    RoundEven,
    /// Bits, or masks, that both have.
    And,
    /// Bits, or masks, that either has.
    Or,
    /// Bits that one of them has.
    Xor,
    /// The opposite mask, or bits.
    Not,
    /// Shifted left.
    Shl(u32),
    /// Shifted right, filled with the sign.
    Shr(u32),
    /// Shifted right, filled with zeros.
    ShrLogical(u32),
    /// a shifted left by b.
    ShlBy,
    /// a shifted right by b, filled with the sign.
    ShrBy,
    /// a shifted right by b, filled with zeros.
    ShrLogicalBy,
    /// The high half of the product of unsigned numbers.
    MulHighUnsigned,
    /// a < b: a mask, false where either is NaN. The operands say the kind.
    Lt,
    /// a <= b, likewise.
    Le,
    /// a == b, likewise.
    Eq,
    /// b where the mask a holds, c elsewhere.
    Select,
    /// The same bits as another kind.
    Reinterpret,
}

/// One operation of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// What its value is.
    pub kind: Kind,
    /// What it does.
    pub operation: Operation,
    /// Numbers of earlier nodes; those beyond the operation's count are 0.
    pub operands: [u32; 3],
}

impl Node {
    /// How many operands it has.
    pub fn arity(&self) -> usize {
        use Operation as O;
        match self.operation {
            O::Input(_) | O::Constant(_) => 0,
            O::MulAdd | O::Select => 3,
            O::Neg
            | O::Abs
            | O::Sqrt
            | O::Floor
            | O::Ceil
            | O::Trunc
            | O::RoundEven
            | O::Not
            | O::Shl(_)
            | O::Shr(_)
            | O::ShrLogical(_)
            | O::Reinterpret => 1,
            _ => 2,
        }
    }
}

/// A formula written down: operations in an order in which they can be done.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Trace {
    /// The operations.
    pub nodes: Vec<Node>,
    /// The nodes that are the formula's results.
    pub outputs: Vec<u32>,
}

/// Writes a function down for numbers of a class. [`Class::I64`] needs [`Pointwise::WHOLE`].
pub fn trace<const N: usize, const M: usize, P: Pointwise<N, M>>(
    function: &P,
    class: Class,
) -> Trace {
    /// Gives the recording back even if the formula panics.
    struct Recording;
    impl Drop for Recording {
        fn drop(&mut self) {
            RECORDER.with_borrow_mut(Vec::pop);
        }
    }
    RECORDER.with_borrow_mut(|recorders| recorders.push(Recorder::default()));
    let recording = Recording;
    let input = |kind: Kind, index: usize| record(kind, Operation::Input(index as u32), []);
    let outputs: Vec<u32> = match class {
        Class::F32 => {
            let x = std::array::from_fn(|index| Single(input(Kind::F32, index)));
            function.eval(x).iter().map(|lane| lane.0).collect()
        }
        Class::F64 => {
            let x = std::array::from_fn(|index| Double(input(Kind::F64, index)));
            function.eval(x).iter().map(|lane| lane.0).collect()
        }
        Class::I64 => {
            let x = std::array::from_fn(|index| WholeNumber(input(Kind::I64, index)));
            function.eval_int(x).iter().map(|lane| lane.0).collect()
        }
    };
    let nodes = RECORDER.with_borrow(|recorders| {
        recorders
            .last()
            .map(|recorder| recorder.nodes.clone())
            .unwrap_or_default()
    });
    drop(recording);
    Trace { nodes, outputs }.needed()
}

impl Trace {
    /// Without the nodes that no output needs.
    fn needed(self) -> Trace {
        let mut used = vec![false; self.nodes.len()];
        for &output in &self.outputs {
            used[output as usize] = true;
        }
        for index in (0..self.nodes.len()).rev() {
            if used[index] {
                let node = &self.nodes[index];
                for &operand in &node.operands[..node.arity()] {
                    used[operand as usize] = true;
                }
            }
        }
        let mut numbers = vec![0; self.nodes.len()];
        let mut nodes = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if used[index] {
                numbers[index] = nodes.len() as u32;
                let arity = node.arity();
                let mut node = *node;
                for operand in &mut node.operands[..arity] {
                    *operand = numbers[*operand as usize];
                }
                nodes.push(node);
            }
        }
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|&output| numbers[output as usize]).collect();
        Trace { nodes, outputs }
    }
}

#[derive(Default)]
struct Recorder {
    nodes: Vec<Node>,
    known: HashMap<Node, u32>,
}

thread_local! {
    /// Of the traces that the thread is making, the innermost last.
    static RECORDER: RefCell<Vec<Recorder>> = const { RefCell::new(Vec::new()) };
}

fn record<const N: usize>(kind: Kind, operation: Operation, operands: [u32; N]) -> u32 {
    let mut padded = [0; 3];
    padded[..N].copy_from_slice(&operands);
    let node = Node {
        kind,
        operation,
        operands: padded,
    };
    debug_assert_eq!(node.arity(), N);
    RECORDER.with_borrow_mut(|recorders| {
        let recorder = recorders
            .last_mut()
            .expect("lanes of a trace live only while it is made");
        let next = recorder.nodes.len() as u32;
        let number = *recorder.known.entry(node).or_insert(next);
        if number == next {
            recorder.nodes.push(node);
        }
        number
    })
}

/// True or false, as it will be.
#[derive(Clone, Copy, Debug)]
pub struct Truth(u32);

impl BitAnd for Truth {
    type Output = Truth;
    fn bitand(self, other: Truth) -> Truth {
        Truth(record(Kind::Mask, Operation::And, [self.0, other.0]))
    }
}

impl BitOr for Truth {
    type Output = Truth;
    fn bitor(self, other: Truth) -> Truth {
        Truth(record(Kind::Mask, Operation::Or, [self.0, other.0]))
    }
}

impl Not for Truth {
    type Output = Truth;
    fn not(self) -> Truth {
        Truth(record(Kind::Mask, Operation::Not, [self.0]))
    }
}

impl Mask for Truth {
    fn any(self) -> bool {
        true
    }
}

macro_rules! operators {
    ($lane:ident, $kind:expr; $($trait:ident $method:ident $operation:ident),*) => {$(
        impl $trait for $lane {
            type Output = $lane;
            fn $method(self, other: $lane) -> $lane {
                $lane(record($kind, Operation::$operation, [self.0, other.0]))
            }
        }
    )*};
}

macro_rules! comparisons {
    ($lane:ident, $kind:expr; $($method:ident $operation:ident),*) => {
        $(
            fn $method(self, other: $lane) -> Truth {
                Truth(record(Kind::Mask, Operation::$operation, [self.0, other.0]))
            }
        )*
        fn select(mask: Truth, if_true: $lane, if_false: $lane) -> $lane {
            $lane(record($kind, Operation::Select, [mask.0, if_true.0, if_false.0]))
        }
    };
}

macro_rules! numbers {
    ($lane:ident, $kind:expr, |$value:ident| $bits:expr) => {
        operators!($lane, $kind; Add add Add, Sub sub Sub, Mul mul Mul);

        impl Neg for $lane {
            type Output = $lane;
            fn neg(self) -> $lane {
                $lane(record($kind, Operation::Neg, [self.0]))
            }
        }

        impl Num for $lane {
            type Mask = Truth;

            fn int($value: i64) -> $lane {
                $lane(record($kind, Operation::Constant($bits), []))
            }
            fn abs(self) -> $lane {
                $lane(record($kind, Operation::Abs, [self.0]))
            }
            comparisons!($lane, $kind; lt Lt, le Le, eq Eq);
        }
    };
}

macro_rules! float_lanes {
    ($lane:ident, $kind:expr, $float:ty, $double:literal, $magic:literal, $bits_lane:ident, $bits_kind:expr, $bits:ty) => {
        impl Div for $lane {
            type Output = $lane;
            fn div(self, other: $lane) -> $lane {
                $lane(record($kind, Operation::Div, [self.0, other.0]))
            }
        }

        impl $lane {
            fn one(self, operation: Operation) -> $lane {
                $lane(record($kind, operation, [self.0]))
            }
            fn magic() -> $lane {
                $lane::of($magic)
            }
        }

        impl Arith for $lane {
            const DOUBLE: bool = $double;
            type Bits = $bits_lane;

            fn of(value: f64) -> $lane {
                let bits = (value as $float).to_bits();
                $lane(record($kind, Operation::Constant(u64::from(bits)), []))
            }
            fn mul_add(self, factor: $lane, addend: $lane) -> $lane {
                let operands = [self.0, factor.0, addend.0];
                $lane(record($kind, Operation::MulAdd, operands))
            }
            fn sqrt(self) -> $lane {
                self.one(Operation::Sqrt)
            }
            fn copysign(self, sign: $lane) -> $lane {
                $lane(record($kind, Operation::Copysign, [self.0, sign.0]))
            }
            fn floor(self) -> $lane {
                self.one(Operation::Floor)
            }
            fn ceil(self) -> $lane {
                self.one(Operation::Ceil)
            }
            fn trunc(self) -> $lane {
                self.one(Operation::Trunc)
            }
            fn round_even(self) -> $lane {
                self.one(Operation::RoundEven)
            }
            fn to_bits(self) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::Reinterpret, [self.0]))
            }
            fn from_bits(bits: $bits_lane) -> $lane {
                $lane(record($kind, Operation::Reinterpret, [bits.0]))
            }
            // As the scalar lanes do it.
            fn to_whole(self) -> $bits_lane {
                (self + $lane::magic()).to_bits() - $lane::magic().to_bits()
            }
            fn from_whole(bits: $bits_lane) -> $lane {
                $lane::from_bits(bits + $lane::magic().to_bits()) - $lane::magic()
            }
        }

        impl BitAnd for $bits_lane {
            type Output = $bits_lane;
            fn bitand(self, other: $bits_lane) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::And, [self.0, other.0]))
            }
        }

        operators!($bits_lane, $bits_kind; BitOr bitor Or, BitXor bitxor Xor);

        impl Bits for $bits_lane {
            type Mask = Truth;

            fn splat(value: i64) -> $bits_lane {
                let bits = (value as $bits) as u64;
                $bits_lane(record($bits_kind, Operation::Constant(bits), []))
            }
            fn shl(self, count: u32) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::Shl(count), [self.0]))
            }
            fn shr(self, count: u32) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::Shr(count), [self.0]))
            }
            fn shr_logical(self, count: u32) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::ShrLogical(count), [self.0]))
            }
            fn shl_by(self, count: $bits_lane) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::ShlBy, [self.0, count.0]))
            }
            fn shr_logical_by(self, count: $bits_lane) -> $bits_lane {
                let operands = [self.0, count.0];
                $bits_lane(record($bits_kind, Operation::ShrLogicalBy, operands))
            }
            fn mul_low(self, other: $bits_lane) -> $bits_lane {
                $bits_lane(record($bits_kind, Operation::Mul, [self.0, other.0]))
            }
            fn mul_high_unsigned(self, other: $bits_lane) -> $bits_lane {
                let operands = [self.0, other.0];
                $bits_lane(record($bits_kind, Operation::MulHighUnsigned, operands))
            }
            comparisons!($bits_lane, $bits_kind; lt Lt, eq Eq);
        }
    };
}

/// A single, as it will be.
#[derive(Clone, Copy, Debug)]
struct Single(u32);
/// A double, as it will be.
#[derive(Clone, Copy, Debug)]
struct Double(u32);
/// A whole number, as it will be.
#[derive(Clone, Copy, Debug)]
struct WholeNumber(u32);
/// The bits of a single, as they will be.
#[derive(Clone, Copy, Debug)]
struct SingleBits(u32);
/// The bits of a double, as they will be.
#[derive(Clone, Copy, Debug)]
struct DoubleBits(u32);

numbers!(Single, Kind::F32, |value| u64::from(
    (value as f32).to_bits()
));
numbers!(Double, Kind::F64, |value| (value as f64).to_bits());
numbers!(WholeNumber, Kind::I64, |value| value as u64);
operators!(WholeNumber, Kind::I64; BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor);

impl Not for WholeNumber {
    type Output = WholeNumber;
    fn not(self) -> WholeNumber {
        WholeNumber(record(Kind::I64, Operation::Not, [self.0]))
    }
}

impl Whole for WholeNumber {
    fn shl_by(self, count: WholeNumber) -> WholeNumber {
        WholeNumber(record(Kind::I64, Operation::ShlBy, [self.0, count.0]))
    }
    fn shr_by(self, count: WholeNumber) -> WholeNumber {
        WholeNumber(record(Kind::I64, Operation::ShrBy, [self.0, count.0]))
    }
    fn quotient(self, divisor: WholeNumber) -> WholeNumber {
        // Devices differ in what a division by 0 gives, and one by -1 may overflow.
        let (zero, one) = (WholeNumber::int(0), WholeNumber::int(1));
        let (is_zero, is_minus) = (divisor.eq(zero), divisor.eq(-one));
        let safe = WholeNumber::select(is_zero | is_minus, one, divisor);
        let quotient = WholeNumber(record(Kind::I64, Operation::Div, [self.0, safe.0]));
        let quotient = WholeNumber::select(is_minus, -self, quotient);
        WholeNumber::select(is_zero, zero, quotient)
    }
}

operators!(SingleBits, Kind::I32; Add add Add, Sub sub Sub);
operators!(DoubleBits, Kind::I64; Add add Add, Sub sub Sub);
float_lanes!(
    Single,
    Kind::F32,
    f32,
    false,
    12_582_912.0,
    SingleBits,
    Kind::I32,
    u32
);
float_lanes!(
    Double,
    Kind::F64,
    f64,
    true,
    6_755_399_441_055_744.0,
    DoubleBits,
    Kind::I64,
    u64
);

#[cfg(test)]
mod tests {
    use super::*;

    struct Example;
    impl Pointwise<2> for Example {
        const WHOLE: bool = true;
        fn eval<A: Arith>(&self, [x, y]: [A; 2]) -> [A; 1] {
            let unused = x.sqrt();
            let _ = unused;
            [(x + y) * (x + y)]
        }
        fn eval_int<I: Whole>(&self, [x, y]: [I; 2]) -> [I; 1] {
            [I::select(x.lt(y), x, I::int(-1))]
        }
    }

    #[test]
    fn equal_work_is_done_once_and_needless_work_not_at_all() {
        let trace = trace(&Example, Class::F32);
        let operations: Vec<Operation> = trace.nodes.iter().map(|node| node.operation).collect();
        let expected = [
            Operation::Input(0),
            Operation::Input(1),
            Operation::Add,
            Operation::Mul,
        ];
        assert_eq!(operations, expected);
        assert_eq!(
            (trace.nodes[3].operands, trace.outputs),
            ([2, 2, 0], vec![3])
        );
    }

    #[test]
    fn whole_numbers_have_their_own_form() {
        let trace = trace(&Example, Class::I64);
        assert!(
            trace
                .nodes
                .iter()
                .any(|node| node.operation == Operation::Constant(u64::MAX))
        );
        assert_eq!(
            trace.nodes[trace.outputs[0] as usize].operation,
            Operation::Select
        );
    }
}
