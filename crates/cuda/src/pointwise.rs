//! Pointwise programs on a device: chosen, compiled and cached by how their operands lie, and launched.

mod text;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fireclay_core::layout::merge_dims;
use fireclay_core::pointwise::Class;
use fireclay_core::program::Program;
use fireclay_core::{Dims, Error, Result, Scalar};
use smallvec::SmallVec;

use crate::gpu::Gpu;
use crate::module::{Argument, Kernel, Module};
use crate::stream::Stream;
use text::{Form, Plan, THREADS};

/// An operand in device memory: its strides follow the dimensions of the evaluated shape, 0 where broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Of the first element.
    pub address: u64,
    /// Steps in elements.
    pub strides: &'a [usize],
}

/// A program that can be launched, with the kernels compiled for it so far.
pub struct Pointwise {
    program: Program,
    kernels: Mutex<HashMap<(usize, Plan), Kernel>>,
}

impl Pointwise {
    /// The program, nothing compiled yet.
    pub fn new(program: Program) -> Pointwise {
        Pointwise {
            program,
            kernels: Mutex::default(),
        }
    }

    /// The one for a program, kept for the process: equal programs share their kernels.
    pub fn of(program: &Program) -> Arc<Pointwise> {
        static KNOWN: Mutex<Option<HashMap<Program, Arc<Pointwise>>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(found) = known.get(program) {
            return Arc::clone(found);
        }
        let made = Arc::new(Pointwise::new(program.clone()));
        known.insert(program.clone(), Arc::clone(&made));
        made
    }

    /// The PTX for contiguous operands, to be looked at.
    pub fn ptx(&self) -> String {
        text::kernel(&self.program, &self.plan(&[], &[], &[]).0)
    }

    /// Puts the evaluation over `shape` into a stream's queue.
    ///
    /// # Errors
    /// If the kernel can't be compiled or launched.
    ///
    /// # Safety
    /// Every input is readable and every output writable, on the stream's device and until the stream has come past this
    /// work, at all places that `shape` and its strides reach. An output overlaps no other output, and an input only if it
    /// lies there element for element.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        name: &'static str,
        shape: &[usize],
        inputs: &[Placed<'_>],
        constants: &[Scalar],
        outputs: &[Placed<'_>],
    ) -> Result<()> {
        assert_eq!(inputs.len(), self.program.inputs.len());
        assert_eq!(constants.len(), self.program.constants.len());
        assert_eq!(outputs.len(), self.program.outputs.len());
        let count: usize = shape.iter().product();
        if count == 0 {
            return Ok(());
        }
        let (plan, sizes, strides) = self.plan(shape, inputs, outputs);
        let kernel = self.kernel(stream.gpu(), &plan)?;
        let number = |value: usize| {
            if plan.wide {
                Argument::U64(value as u64)
            } else {
                Argument::U32(value as u32)
            }
        };
        let mut arguments: SmallVec<[Argument<'_>; 24]> = inputs
            .iter()
            .chain(outputs)
            .map(|operand| Argument::Address(operand.address))
            .collect();
        for (register, value) in self.program.constants.iter().zip(constants) {
            arguments.push(match self.program.classes[*register] {
                Class::F32 => Argument::F32(value.to_f64() as f32),
                Class::F64 => Argument::F64(value.to_f64()),
                Class::I64 => Argument::U64(value.to_i64() as u64),
            });
        }
        arguments.push(number(count));
        if plan.ndim > 0 {
            arguments.extend(sizes.iter().map(|size| number(*size)));
            for (form, strides) in plan.forms.iter().zip(&strides) {
                if *form == Form::Strided {
                    arguments.extend(strides.iter().map(|stride| number(*stride)));
                }
            }
        }
        let blocks = count.div_ceil(THREADS as usize * plan.vector);
        let Ok(blocks) = u32::try_from(blocks) else {
            let what = format!("{count} elements are more than one launch can take");
            return Err(Error::argument(name, what));
        };
        // SAFETY: the text declares these parameters in this order; the caller vouches for the memory.
        unsafe { kernel.launch(stream, [blocks, THREADS, 0], &arguments, name, count as u64) }
    }

    /// What to write a kernel for, with the loop's sizes and each operand's strides over them.
    fn plan(
        &self,
        shape: &[usize],
        inputs: &[Placed<'_>],
        outputs: &[Placed<'_>],
    ) -> (Plan, Dims, Vec<Dims>) {
        let operands: SmallVec<[Placed<'_>; 8]> = inputs.iter().chain(outputs).copied().collect();
        let dtypes = self.program.inputs.iter().chain(&self.program.outputs);
        let sizes: SmallVec<[usize; 8]> = dtypes.map(|(_, dtype)| dtype.size()).collect();
        let all_strides: SmallVec<[&[usize]; 8]> =
            operands.iter().map(|operand| operand.strides).collect();
        let written = (!outputs.is_empty()).then_some(inputs.len());
        let (dims, strides) = merge_dims(shape, &all_strides, written);
        let forms: Vec<Form> = if operands.is_empty() {
            vec![Form::Contiguous; sizes.len()]
        } else {
            strides
                .iter()
                .map(|strides| form_of(&dims, strides))
                .collect()
        };
        let strided = forms.contains(&Form::Strided);
        let largest = sizes.iter().copied().max().unwrap_or(4);
        let mut vector = if strided { 1 } else { (16 / largest).min(4) };
        let aligned = operands
            .iter()
            .zip(&sizes)
            .zip(&forms)
            .all(|((operand, size), form)| {
                *form == Form::Same || operand.address.is_multiple_of((size * vector) as u64)
            });
        if !aligned {
            vector = 1;
        }
        let count: usize = dims.iter().product();
        // The furthest place of any operand, and one vector beyond the last element, must fit 32 bits.
        let furthest = strides.iter().map(|strides| {
            let steps = strides
                .iter()
                .zip(&dims)
                .map(|(stride, size)| stride * (size - 1));
            steps.sum::<usize>()
        });
        let furthest = furthest.max().unwrap_or(0).max(count);
        let limit = u32::MAX as usize - THREADS as usize * 4;
        let plan = Plan {
            forms,
            ndim: if strided { dims.len() } else { 0 },
            vector,
            wide: furthest > limit,
        };
        (plan, dims, strides)
    }

    fn kernel(&self, gpu: &'static Gpu, plan: &Plan) -> Result<Kernel> {
        let key = (gpu.ordinal(), plan.clone());
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let module = Module::from_ptx(gpu, &text::kernel(&self.program, plan))?;
        let kernel = module.kernel(text::ENTRY)?;
        kernels.insert(key, kernel.clone());
        Ok(kernel)
    }
}

fn form_of(dims: &[usize], strides: &[usize]) -> Form {
    if strides.iter().all(|stride| *stride == 0) {
        return Form::Same;
    }
    let mut expected = 1;
    for (size, stride) in dims.iter().zip(strides).rev() {
        if *stride != expected {
            return Form::Strided;
        }
        expected *= size;
    }
    Form::Contiguous
}
