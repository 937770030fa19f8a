//! `Program`: a formula flattened into steps over registers, evaluated tile by tile.
//!
//! A register holds one tile of numbers of one [`Class`]. Inputs are read straight from memory where they
//! lie contiguous in the class's own type, else gathered (and widened) into a tile in L1. Results are written
//! straight to memory under the same rule. So one step over contiguous f32 tensors is a plain loop over memory, and
//! a chain of ten steps still reads and writes memory once.

use std::cell::RefCell;

use fireclay_core::{DType, Scalar};

use crate::convert::{class_of, convert, fill, is_direct, load, store};
use crate::grid::Grid;
pub use crate::grid::{Sink, Source};
use crate::kernel::{Class, Kernel};
use crate::parallel;

/// Elements of a tile where tiles are buffered: small enough for all of a formula's tiles to stay in L1.
const TILE: usize = 1024;
/// Elements of a tile where one step runs from memory to memory.
const DIRECT_TILE: usize = 1 << 15;
/// Elements per parallel task. Depends on nothing, so the split depends on the shape alone.
const TASK: usize = 1 << 15;
/// The inner dimension from which on tiles keep to whole rows, so that rows can be used where they lie.
const LONG_ROW: usize = 256;

/// A register of a program under construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(usize);

#[derive(Clone, Debug)]
enum Step {
    Apply {
        kernel: Kernel,
        class: Class,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
    },
    /// To another class; `truth` gives 1 for anything but zero.
    Convert {
        from: Class,
        to: Class,
        truth: bool,
        input: usize,
        output: usize,
    },
}

/// A formula as a list of steps. Built once, evaluated over any shape.
#[derive(Clone, Debug, Default)]
pub struct Program {
    classes: Vec<Class>,
    inputs: Vec<usize>,
    input_dtypes: Vec<DType>,
    constants: Vec<(usize, Scalar)>,
    steps: Vec<Step>,
    outputs: Vec<usize>,
    output_dtypes: Vec<DType>,
}

impl Program {
    /// A program without steps.
    pub fn new() -> Program {
        Program::default()
    }

    fn register(&mut self, class: Class) -> usize {
        self.classes.push(class);
        self.classes.len() - 1
    }

    /// The next input, of a tensor of `dtype`.
    pub fn input(&mut self, dtype: DType) -> Register {
        let register = self.register(class_of(dtype));
        self.inputs.push(register);
        self.input_dtypes.push(dtype);
        Register(register)
    }

    /// A number in every element.
    pub fn constant(&mut self, class: Class, value: Scalar) -> Register {
        let register = self.register(class);
        self.constants.push((register, value));
        Register(register)
    }

    /// The class that `register` holds.
    pub fn class(&self, register: Register) -> Class {
        self.classes[register.0]
    }

    /// `register` in another class (cut towards zero from a float to whole numbers).
    pub fn convert(&mut self, register: Register, to: Class) -> Register {
        self.converted(register, to, false)
    }

    /// 1 where `register` isn't zero, else 0, in whole numbers.
    pub fn truth(&mut self, register: Register) -> Register {
        self.converted(register, Class::I64, true)
    }

    fn converted(&mut self, register: Register, to: Class, truth: bool) -> Register {
        let from = self.class(register);
        if from == to && !truth {
            return register;
        }
        let output = self.register(to);
        self.steps.push(Step::Convert {
            from,
            to,
            truth,
            input: register.0,
            output,
        });
        Register(output)
    }

    /// Applies `kernel` to registers, which must be of `class`, and returns its outputs.
    pub fn apply(&mut self, kernel: &Kernel, class: Class, inputs: &[Register]) -> Vec<Register> {
        assert_eq!(kernel.inputs(), inputs.len());
        assert!(inputs.iter().all(|&register| self.class(register) == class));
        let outputs: Vec<usize> = (0..kernel.outputs())
            .map(|_| self.register(class))
            .collect();
        self.steps.push(Step::Apply {
            kernel: kernel.clone(),
            class,
            inputs: inputs.iter().map(|register| register.0).collect(),
            outputs: outputs.clone(),
        });
        outputs.into_iter().map(Register).collect()
    }

    /// Adds an output, to be stored as `dtype`.
    pub fn output(&mut self, register: Register, dtype: DType) {
        let register = match (self.class(register), dtype) {
            (Class::I64, DType::Bool) => register, // stored as `!= 0`
            (_, DType::Bool) => self.truth(register),
            _ => self.convert(register, class_of(dtype)),
        };
        self.outputs.push(register.0);
        self.output_dtypes.push(dtype);
    }

    /// The numbers of its constants, in the order of [`description`](Program::description).
    pub fn constants(&self) -> impl Iterator<Item = Scalar> + '_ {
        self.constants.iter().map(|(_, value)| *value)
    }

    /// The program written down, for other devices.
    pub fn description(&self) -> fireclay_core::program::Program {
        use fireclay_core::program as core;
        let steps = self.steps.iter().map(|step| match step {
            Step::Apply {
                kernel,
                class,
                inputs,
                outputs,
            } => core::Step::Apply {
                trace: kernel.trace(*class),
                inputs: inputs.clone(),
                outputs: outputs.clone(),
            },
            Step::Convert {
                truth,
                input,
                output,
                ..
            } => core::Step::Convert {
                truth: *truth,
                input: *input,
                output: *output,
            },
        });
        let typed = |registers: &[usize], dtypes: &[DType]| {
            let pairs = registers.iter().copied().zip(dtypes.iter().copied());
            pairs.collect()
        };
        core::Program {
            classes: self.classes.clone(),
            inputs: typed(&self.inputs, &self.input_dtypes),
            constants: self
                .constants
                .iter()
                .map(|(register, _)| *register)
                .collect(),
            steps: steps.collect(),
            outputs: typed(&self.outputs, &self.output_dtypes),
        }
    }

    /// Evaluates over `shape`.
    ///
    /// # Safety
    /// Every source is readable and every sink writable at all places that `shape` and its strides reach. A
    /// sink overlaps no other sink, and a source only if it has the same first place, dtype and strides.
    pub unsafe fn evaluate(&self, shape: &[usize], sources: &[Source], sinks: &[Sink]) {
        // SAFETY: the caller's bound.
        unsafe { self.evaluate_all(&[(shape, sources, sinks)]) };
    }

    /// Evaluates over several sets of operands in one parallel loop, as an optimizer does over all parameters.
    ///
    /// # Safety
    /// As [`evaluate`](Program::evaluate) for each set; no sink overlaps an operand of another set.
    pub unsafe fn evaluate_all(&self, sets: &[(&[usize], &[Source], &[Sink])]) {
        let mut grids: smallvec::SmallVec<[Grid; 1]> = smallvec::SmallVec::new();
        for (shape, sources, sinks) in sets {
            assert_eq!(sources.len(), self.inputs.len());
            assert_eq!(sinks.len(), self.outputs.len());
            grids.extend(Grid::new(shape, sources, sinks));
        }
        let plans: smallvec::SmallVec<[Plan<'_>; 1]> =
            grids.iter().map(|grid| Plan::new(self, grid)).collect();
        if let ([grid], [plan]) = (grids.as_slice(), plans.as_slice()) {
            parallel::run(grid.numel.div_ceil(TASK), |task| {
                let start = task * TASK;
                let end = (start + TASK).min(grid.numel);
                // SAFETY: the range lies in the grid, whose places the caller vouches for; tasks write
                // disjoint ranges of it.
                unsafe { plan.run(grid, grid.sink_pointers(), start, end) };
            });
            return;
        }
        let tasks = pack(grids.iter().map(|grid| grid.numel));
        parallel::run(tasks.len(), |task| {
            for &(set, start, end) in &tasks[task] {
                // SAFETY: as above; sets don't overlap.
                unsafe { plans[set].run(&grids[set], grids[set].sink_pointers(), start, end) };
            }
        });
    }
}

/// A program of one output laid over operands, whose elements are computed piece by piece as they are asked for: what a
/// reduction at the end of a formula reads instead of a tensor.
pub struct Elements<'a> {
    grid: Grid,
    program: &'a Program,
}

impl Program {
    /// The elements of the only output, stored as `dtype`, over `shape`; None where there are none.
    ///
    /// # Safety
    /// As [`evaluate`](Program::evaluate), for as long as the result lives.
    pub unsafe fn elements(
        &self,
        shape: &[usize],
        sources: &[Source],
        dtype: DType,
    ) -> Option<Elements<'_>> {
        assert_eq!(self.outputs.len(), 1);
        let sink = Sink {
            ptr: std::ptr::null_mut(),
            dtype,
            strides: fireclay_core::Shape::new(shape).contiguous_strides(),
        };
        let grid = Grid::new(shape, sources, &[sink])?;
        Some(Elements {
            grid,
            program: self,
        })
    }
}

impl Elements<'_> {
    /// Computes the elements from `start` on, in the order of the shape, into `out`.
    ///
    /// # Panics
    /// If `T` isn't the dtype asked for, or there are not as many elements.
    pub fn compute<T: fireclay_core::Element>(&self, start: usize, out: &mut [T]) {
        assert!(self.grid.sinks[0].dtype == T::DTYPE && start + out.len() <= self.grid.numel);
        // The sink is contiguous: the element of flat index i lies at place i.
        let origin = out.as_mut_ptr().wrapping_sub(start).cast::<u8>();
        // SAFETY: sources are vouched for by whoever made this; only places start.. of the sink are written.
        unsafe {
            Plan::new(self.program, &self.grid).run(
                &self.grid,
                SinkPointers::from_slice(&[origin]),
                start,
                start + out.len(),
            )
        };
    }
}

type SinkPointers = smallvec::SmallVec<[*mut u8; 4]>;

/// Cuts sets of these sizes into tasks of about [`TASK`] elements: pieces of large sets, or several small ones.
fn pack(sizes: impl Iterator<Item = usize>) -> Vec<Vec<(usize, usize, usize)>> {
    let mut tasks = Vec::new();
    let mut task = Vec::new();
    let mut elements = 0;
    for (set, size) in sizes.enumerate() {
        let mut start = 0;
        while start < size {
            let end = (start + TASK - elements).min(size);
            task.push((set, start, end));
            elements += end - start;
            start = end;
            if elements == TASK {
                tasks.push(std::mem::take(&mut task));
                elements = 0;
            }
        }
    }
    if !task.is_empty() {
        tasks.push(task);
    }
    tasks
}

/// Where a register lives while a tile is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In the scratch buffer of this number.
    Buffer(usize),
    /// In an input's memory where that can be read as it lies, else in the buffer.
    Source(usize, usize),
    /// In an output's memory where that can be written as it lies, else in the buffer.
    Sink(usize, usize),
    /// Never read.
    Nowhere,
}

/// A program's registers placed for one grid.
struct Plan<'a> {
    program: &'a Program,
    homes: Vec<Home>,
    buffers: usize,
    tile: usize,
}

impl<'a> Plan<'a> {
    fn new(program: &'a Program, grid: &Grid) -> Plan<'a> {
        let mut homes = vec![Home::Nowhere; program.classes.len()];
        let mut buffers = 0;
        let mut fresh = || {
            buffers += 1;
            buffers - 1
        };
        for (number, &register) in program.inputs.iter().enumerate() {
            homes[register] = Home::Source(number, fresh());
        }
        for &(register, _) in &program.constants {
            homes[register] = Home::Buffer(fresh());
        }
        // A sink may be written early only if no later step reads the same memory as an input.
        let aliased = grid
            .sinks
            .iter()
            .any(|sink| grid.sources.iter().any(|source| source.ptr == sink.ptr));
        let early = program.steps.len() <= 1 || !aliased;
        for step in &program.steps {
            let outputs: &[usize] = match step {
                Step::Apply { outputs, .. } => outputs,
                Step::Convert { output, .. } => std::slice::from_ref(output),
            };
            for &register in outputs {
                let sink = program
                    .outputs
                    .iter()
                    .position(|&output| output == register);
                homes[register] = match sink {
                    Some(sink) if early => Home::Sink(sink, fresh()),
                    _ => Home::Buffer(fresh()),
                };
            }
        }
        let one_step = matches!(program.steps.as_slice(), [Step::Apply { .. }]);
        let direct = one_step
            && program.constants.is_empty()
            && (grid.shape.len() == 1 || grid.row() >= LONG_ROW)
            && (grid.sources.iter().chain(&grid.sinks))
                .all(|lane| is_direct(lane.dtype) && lane.strides[grid.shape.len() - 1] == 1);
        Plan {
            program,
            homes,
            buffers,
            tile: if direct { DIRECT_TILE } else { TILE },
        }
    }

    /// Evaluates the flat range `start..end`.
    ///
    /// # Safety
    /// As [`Program::evaluate`], and no other thread writes this range.
    unsafe fn run(&self, grid: &Grid, sinks: SinkPointers, start: usize, end: usize) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(
                if self.tile == TILE {
                    self.buffers * TILE
                } else {
                    0
                },
                0,
            );
            let scratch = scratch.as_mut_ptr().cast::<u8>();
            for &(register, value) in &self.program.constants {
                let Home::Buffer(buffer) = self.homes[register] else {
                    continue;
                };
                // SAFETY: a buffer has TILE places of 8 bytes.
                unsafe {
                    let ptr = scratch.add(buffer * TILE * 8);
                    match self.program.classes[register] {
                        Class::F32 => fill(ptr, TILE, value.to_f64() as f32),
                        Class::F64 => fill(ptr, TILE, value.to_f64()),
                        Class::I64 => fill(ptr, TILE, value.to_i64()),
                    }
                }
            }
            let mut at = start;
            while at < end {
                let mut len = self.tile.min(end - at);
                if grid.shape.len() > 1 && grid.row() >= LONG_ROW {
                    len = len.min(grid.row() - at % grid.row());
                }
                // SAFETY: the tile lies in the range, the scratch holds every buffer.
                unsafe { self.tile(grid, &sinks, at, len, scratch) };
                at += len;
            }
        });
    }

    /// # Safety
    /// As [`Plan::run`]; `scratch` has `buffers` buffers of TILE places of 8 bytes where `len <= TILE` needs them.
    unsafe fn tile(
        &self,
        grid: &Grid,
        sinks: &[*mut u8],
        start: usize,
        len: usize,
        scratch: *mut u8,
    ) {
        let mut pointers: smallvec::SmallVec<[*mut u8; 16]> =
            smallvec::smallvec![std::ptr::null_mut(); self.homes.len()];
        // SAFETY: each pointer is to the register's buffer, or to the run of `len` elements of an operand's
        // memory from flat index `start`; kernels and conversions touch `len` elements of the class.
        unsafe {
            let buffer = |number: usize| scratch.add(number * TILE * 8);
            for (register, home) in self.homes.iter().enumerate() {
                pointers[register] = match *home {
                    Home::Nowhere => std::ptr::null_mut(),
                    Home::Buffer(number) => buffer(number),
                    Home::Source(source, number) => {
                        let lane = &grid.sources[source];
                        if is_direct(lane.dtype) && grid.is_run(lane, start, len) {
                            lane.ptr.add(grid.place(lane, start) * lane.dtype.size())
                        } else {
                            load(grid, lane, start, len, buffer(number));
                            buffer(number)
                        }
                    }
                    Home::Sink(sink, number) => {
                        let lane = &grid.sinks[sink];
                        if is_direct(lane.dtype) && grid.is_run(lane, start, len) {
                            sinks[sink].wrapping_add(grid.place(lane, start) * lane.dtype.size())
                        } else {
                            buffer(number)
                        }
                    }
                };
            }
            for step in &self.program.steps {
                match step {
                    Step::Apply {
                        kernel,
                        class,
                        inputs,
                        outputs,
                    } => {
                        let inputs: smallvec::SmallVec<[*const u8; 8]> = inputs
                            .iter()
                            .map(|&register| pointers[register].cast_const())
                            .collect();
                        let outputs: smallvec::SmallVec<[*mut u8; 8]> =
                            outputs.iter().map(|&register| pointers[register]).collect();
                        kernel.run(*class, &inputs, &outputs, len);
                    }
                    Step::Convert {
                        from,
                        to,
                        truth,
                        input,
                        output,
                    } => {
                        convert(*from, *to, *truth, pointers[*input], pointers[*output], len);
                    }
                }
            }
            for (sink, &register) in self.program.outputs.iter().enumerate() {
                let lane = &grid.sinks[sink];
                let from = pointers[register];
                let in_place = is_direct(lane.dtype)
                    && grid.is_run(lane, start, len)
                    && from
                        == sinks[sink].wrapping_add(grid.place(lane, start) * lane.dtype.size());
                if !in_place {
                    let class = self.program.classes[register];
                    store(grid, lane, sinks[sink], (start, len), from, class);
                }
            }
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}
