//! Pointwise programs on a device: chosen, compiled and cached by how their operands lie, and launched.

mod text;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fireclay_core::layout::merge_dims;
use fireclay_core::pointwise::Class;
use fireclay_core::program::Program;
use fireclay_core::{DType, Dims, Error, Layout, Result, Scalar};
use smallvec::SmallVec;

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Purpose};
use crate::module::{Argument, Kernel, Module};
use crate::reduce::{BLOCK, ROWS_PER_BLOCK, Reduction, finish_row};
use crate::stream::Stream;
use text::{Form, Plan, THREADS, Work};

/// An operand in device memory: its strides follow the dimensions of the evaluated shape, 0 where broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Of the first element.
    pub address: u64,
    /// Steps in elements.
    pub strides: &'a [usize],
}

/// Contiguous operands of one evaluation among many.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// Elements of each.
    pub count: usize,
    /// Of the first element of each input.
    pub addresses: &'a [u64],
}

/// The furthest element of which 32 bits are enough to count: one vector beyond it must fit too.
const LARGEST_NARROW: usize = u32::MAX as usize - THREADS * 4;

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
        text::kernel(&self.program, &self.plan(&[], &[], &[], Work::Store).0)
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
        let (plan, sizes, strides) = self.plan(shape, inputs, outputs, Work::Store);
        let operands = inputs.iter().chain(outputs).map(|operand| operand.address);
        let arguments = self.arguments(&plan, operands, constants, count, (&sizes, &strides));
        check_room(name, &arguments)?;
        let kernel = self.kernel(stream.gpu(), &plan)?;
        let blocks = count.div_ceil(THREADS * plan.vector);
        // SAFETY: the text declares these parameters in this order; the caller vouches for the memory.
        unsafe { kernel.launch(stream, [blocks, THREADS, 0], &arguments, name, count as u64) }
    }

    /// Puts the sum of the evaluation over `shape` into a stream's queue: one number at `to`, of the only output's dtype, divided
    /// by `divisor` if there is one. The elements themselves are stored nowhere.
    ///
    /// # Errors
    /// If memory for partial sums can't be had, or a kernel can't be compiled or launched.
    ///
    /// # Safety
    /// As for [`launch`](Pointwise::launch), of the inputs; `to` has room for the number.
    pub unsafe fn launch_sum(
        &self,
        stream: &Stream,
        name: &'static str,
        shape: &[usize],
        inputs: &[Placed<'_>],
        constants: &[Scalar],
        (to, divisor): (u64, Option<f64>),
    ) -> Result<()> {
        let [(register, dtype)] = self.program.outputs[..] else {
            unreachable!("one output is summed");
        };
        let class = self.program.classes[register];
        assert!(matches!(
            (class, dtype),
            (Class::F32, DType::F32) | (Class::F64, DType::F64)
        ));
        let count: usize = shape.iter().product();
        let parts = count.div_ceil(BLOCK);
        let partial = match parts {
            0 | 1 => None,
            _ => Some(DeviceBuffer::allocate(
                stream,
                parts * dtype.size(),
                Purpose::Workspaces,
            )?),
        };
        let results = partial.as_ref().map_or(to, DeviceBuffer::address);
        let contiguous = Layout::contiguous(shape.into());
        let placed = [Placed {
            address: results,
            strides: contiguous.strides(),
        }];
        let (plan, sizes, strides) = self.plan(shape, inputs, &placed, Work::Sum);
        let addresses = inputs.iter().chain(&placed).map(|operand| operand.address);
        let mut arguments = self.arguments(&plan, addresses, constants, count, (&sizes, &strides));
        let here = divisor.filter(|_| partial.is_none());
        arguments.push(Argument::U32(u32::from(here.is_some())));
        let number = here.unwrap_or(1.0);
        arguments.push(match class {
            Class::F64 => Argument::F64(number),
            _ => Argument::F32(number as f32),
        });
        check_room(name, &arguments)?;
        let kernel = self.kernel(stream.gpu(), &plan)?;
        let blocks = parts.div_ceil(ROWS_PER_BLOCK);
        // SAFETY: the text declares these parameters in this order; the caller vouches for the inputs, and there is room for the
        // partial sums.
        unsafe { kernel.launch(stream, [blocks, THREADS, 0], &arguments, name, count as u64)? };
        match partial {
            None => Ok(()),
            Some(partial) => {
                let what = (class, Reduction::Sum);
                let addresses = (partial.address(), to);
                // SAFETY: the partial sums that the launch before gives.
                unsafe { finish_row(stream, name, what, addresses, parts, divisor) }
            }
        }
    }

    /// Puts the evaluation over many sets of contiguous operands into a stream's queue, in as few launches as their addresses
    /// fit into. The outputs of a set lie where its first inputs do.
    ///
    /// # Errors
    /// If the kernel can't be compiled or launched.
    ///
    /// # Safety
    /// As for [`launch`](Pointwise::launch), of each set.
    pub unsafe fn launch_sets(
        &self,
        stream: &Stream,
        name: &'static str,
        sets: &[Set<'_>],
        constants: &[Scalar],
    ) -> Result<()> {
        let operands = self.program.inputs.len();
        assert_eq!(constants.len(), self.program.constants.len());
        assert!(sets.iter().all(|set| set.addresses.len() == operands));
        let sets: Vec<&Set<'_>> = sets.iter().filter(|set| set.count > 0).collect();
        let plan = self.plan_of_sets(&sets);
        let each = THREADS * plan.vector;
        for part in sets.chunks(text::most_sets(&self.program)) {
            let mut table = vec![0; text::table_size(&self.program)];
            table[..8].copy_from_slice(&(part.len() as u64).to_ne_bytes());
            let mut first_block = 0;
            let (_, rows) = table.split_at_mut(text::TABLE_HEAD);
            for (row, set) in rows.chunks_exact_mut(text::row_size(operands)).zip(part) {
                let numbers = [first_block as u64, set.count as u64];
                let values = numbers.iter().chain(set.addresses);
                for (place, value) in row.chunks_exact_mut(8).zip(values) {
                    place.copy_from_slice(&value.to_ne_bytes());
                }
                first_block += set.count.div_ceil(each);
            }
            let mut arguments = self.constant_arguments(constants);
            arguments.push(Argument::Bytes(&table));
            let elements: usize = part.iter().map(|set| set.count).sum();
            let kernel = self.kernel(stream.gpu(), &plan)?;
            // SAFETY: the text declares these parameters in this order; the caller vouches for the memory.
            unsafe {
                kernel.launch(
                    stream,
                    [first_block, THREADS, 0],
                    &arguments,
                    name,
                    elements as u64,
                )?;
            }
        }
        Ok(())
    }

    fn plan_of_sets(&self, sets: &[&Set<'_>]) -> Plan {
        let dtypes = self.program.inputs.iter().map(|(_, dtype)| dtype.size());
        let sizes: SmallVec<[usize; 8]> = dtypes.collect();
        let largest = sizes.iter().copied().max().unwrap_or(4);
        let mut vector = (16 / largest).min(4);
        let aligned = |set: &&Set<'_>| {
            let mut operands = set.addresses.iter().zip(&sizes);
            operands.all(|(address, size)| address.is_multiple_of((size * vector) as u64))
        };
        if !sets.iter().all(aligned) {
            vector = 1;
        }
        let count = sets.iter().map(|set| set.count).max().unwrap_or(0);
        Plan {
            forms: vec![Form::Contiguous; sizes.len() + self.program.outputs.len()],
            ndim: 0,
            vector,
            wide: count > LARGEST_NARROW,
            work: Work::StoreSets,
        }
    }

    /// The arguments of a kernel: addresses, constants, the number of elements, and sizes and strides as far as it takes them.
    fn arguments(
        &self,
        plan: &Plan,
        addresses: impl Iterator<Item = u64>,
        constants: &[Scalar],
        count: usize,
        (sizes, strides): (&Dims, &[Dims]),
    ) -> SmallVec<[Argument<'static>; 24]> {
        let number = |value: usize| {
            if plan.wide {
                Argument::U64(value as u64)
            } else {
                Argument::U32(value as u32)
            }
        };
        let mut arguments: SmallVec<[Argument<'_>; 24]> =
            addresses.map(Argument::Address).collect();
        arguments.extend(self.constant_arguments(constants));
        arguments.push(number(count));
        if plan.ndim > 0 {
            arguments.extend(sizes.iter().map(|size| number(*size)));
            for (form, strides) in plan.forms.iter().zip(strides) {
                if *form == Form::Strided {
                    arguments.extend(strides.iter().map(|stride| number(*stride)));
                }
            }
        }
        arguments
    }

    fn constant_arguments<'a>(&self, constants: &[Scalar]) -> SmallVec<[Argument<'a>; 24]> {
        let registers = self.program.constants.iter().zip(constants);
        let arguments = registers.map(|(register, value)| match self.program.classes[*register] {
            Class::F32 => Argument::F32(value.to_f64() as f32),
            Class::F64 => Argument::F64(value.to_f64()),
            Class::I64 => Argument::U64(value.to_i64() as u64),
        });
        arguments.collect()
    }

    /// What to write a kernel for, with the loop's sizes and each operand's strides over them.
    fn plan(
        &self,
        shape: &[usize],
        inputs: &[Placed<'_>],
        outputs: &[Placed<'_>],
        work: Work,
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
        if !aligned || work == Work::Sum {
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
        let plan = Plan {
            forms,
            ndim: if strided { dims.len() } else { 0 },
            vector,
            wide: furthest > LARGEST_NARROW,
            work,
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

/// Whether a kernel can take these arguments, each of at most eight bytes: asked before it is compiled.
fn check_room(name: &'static str, arguments: &[Argument<'_>]) -> Result<()> {
    const MOST: usize = text::ROOM / 8;
    if arguments.len() <= MOST {
        return Ok(());
    }
    let what = format!(
        "{} operands, numbers and strides are more than the {MOST} that a kernel takes",
        arguments.len()
    );
    Err(Error::argument(name, what).with_hint("evaluate a part of the formula first: eval()"))
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
