//! Pointwise ops as kernels of a device: their programs, kept by what they are made from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fireclay_core::{DType, Result, Scalar};
use fireclay_cuda::pointwise::Pointwise;
use smallvec::SmallVec;

use super::{PointwiseOp, Slot};
use crate::op::Meta;

/// What tells programs apart: see [`PointwiseOp::key`].
type ProgramKey = SmallVec<[u64; 16]>;

/// A kernel, and where the numbers for its constants stand among the graph's.
#[derive(Clone)]
struct Known {
    kernel: Arc<Pointwise>,
    constants: SmallVec<[usize; 4]>,
}

impl PointwiseOp {
    /// The kernel for these dtypes on a device, and the numbers in it. Kernels are kept by what they are made from, so that a
    /// formula is traced once, and a program written down once.
    pub(super) fn device_program(
        &self,
        inputs: &[Meta<'_>],
        outputs: &[DType],
    ) -> Result<(Arc<Pointwise>, SmallVec<[Scalar; 4]>)> {
        static KNOWN: Mutex<Option<HashMap<ProgramKey, Known>>> = Mutex::new(None);
        let numbers = self.numbers();
        let key = self.key(inputs, outputs, &numbers);
        let find = |known: &Known| {
            let constants = known.constants.iter().map(|place| numbers[*place]);
            (Arc::clone(&known.kernel), constants.collect())
        };
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().and_then(|known| known.get(&key)) {
            return Ok(find(known));
        }
        // Tracing runs functions of the user, perhaps: not while the table is locked.
        drop(known);
        let program = self.program(inputs, outputs)?;
        let constants: SmallVec<[Scalar; 4]> = program.constants().collect();
        let kernel = Pointwise::of(&program.description());
        let places = constants.iter().map(|constant| {
            let place = numbers.iter().position(|number| number.is_same(*constant));
            place.expect("a program's constants are numbers among its operands")
        });
        let made = Known {
            kernel,
            constants: places.collect(),
        };
        let result = find(&made);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().insert(key, made);
        Ok(result)
    }

    /// The numbers among the operands, in order.
    fn numbers(&self) -> SmallVec<[Scalar; 4]> {
        let operands = self.nodes.iter().flat_map(|node| &node.operands);
        let numbers = operands.filter_map(|operand| match *operand {
            Slot::Number(number) => Some(number),
            Slot::Input(_) | Slot::Node(_) => None,
        });
        numbers.collect()
    }

    /// What the steps of the program depend on: functions, where their operands come from, dtypes; which numbers are equal,
    /// but not the numbers.
    fn key(&self, inputs: &[Meta<'_>], outputs: &[DType], numbers: &[Scalar]) -> ProgramKey {
        let mut key = ProgramKey::new();
        key.push(numbers.len() as u64);
        for node in &self.nodes {
            // Where its compiled forms are: names need not be unique.
            key.push(std::ptr::from_ref(node.function.kernel()) as u64);
            for operand in &node.operands {
                key.push(match *operand {
                    Slot::Input(input) => input as u64,
                    Slot::Node(node) => 1 << 32 | node as u64,
                    Slot::Number(number) => {
                        let place = numbers.iter().position(|other| other.is_same(number));
                        let kind = number.dtype() as u64;
                        2 << 32 | kind << 16 | place.unwrap_or(usize::from(u16::MAX)) as u64
                    }
                });
            }
        }
        key.extend(self.outputs.iter().map(|output| 3 << 32 | *output as u64));
        key.extend(inputs.iter().map(|input| 4 << 32 | input.dtype as u64));
        key.extend(
            inputs
                .iter()
                .map(|input| 5 << 32 | u64::from(input.ndim() == 0)),
        );
        key.extend(outputs.iter().map(|dtype| 6 << 32 | *dtype as u64));
        key
    }
}
