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

impl PointwiseOp {
    /// The kernel for these dtypes on a device, and the numbers in it. Programs are kept by what they are made from, so that
    /// a formula is traced once.
    pub(super) fn device_program(
        &self,
        inputs: &[Meta<'_>],
        outputs: &[DType],
    ) -> Result<(Arc<Pointwise>, SmallVec<[Scalar; 4]>)> {
        static KNOWN: Mutex<Option<HashMap<ProgramKey, Arc<Pointwise>>>> = Mutex::new(None);
        let program = self.program(inputs, outputs)?;
        let constants: SmallVec<[Scalar; 4]> = program.constants().collect();
        let key = self.key(inputs, outputs, &constants);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = known
            .get_or_insert_default()
            .entry(key)
            .or_insert_with(|| Pointwise::of(&program.description()));
        Ok((Arc::clone(kernel), constants))
    }

    /// What the steps of the program depend on: functions, where their operands come from, dtypes; which numbers are equal,
    /// but not the numbers.
    fn key(&self, inputs: &[Meta<'_>], outputs: &[DType], numbers: &[Scalar]) -> ProgramKey {
        let mut key = ProgramKey::new();
        key.push(numbers.len() as u64);
        for node in &self.nodes {
            let name = node.function.name();
            key.extend([name.as_ptr() as u64, name.len() as u64]);
            for operand in &node.operands {
                key.push(match *operand {
                    Slot::Input(input) => input as u64,
                    Slot::Node(node) => 1 << 32 | node as u64,
                    Slot::Number(number) => {
                        let place = numbers.iter().position(|other| *other == number);
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
