//! The PTX of a pointwise program: text from traces, loads, stores and conversions.
//!
//! Every operation is written with its rounding (`add.rn`), which forbids the driver's compiler to contract a product and
//! a sum, so that the kernel computes what the formula says, to the bit.

use std::fmt::Write;

use fireclay_core::DType;
use fireclay_core::pointwise::Class;
use fireclay_core::program::{Program, Step};
use fireclay_core::trace::{Kind, Node, Operation, Trace};

/// How an operand's elements lie, as far as it changes the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Form {
    /// One behind the other, in the order of the loop.
    Contiguous,
    /// All in one place.
    Same,
    /// As strides say.
    Strided,
}

/// What a kernel is written for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Plan {
    /// Of the inputs, then of the outputs.
    pub(super) forms: Vec<Form>,
    /// Dimensions of the loop, if any operand is strided; 0 otherwise.
    pub(super) ndim: usize,
    /// Elements that a thread loads and stores at once: more than one only if nothing is strided.
    pub(super) vector: usize,
    /// Whether 32 bits are too few for numbers and places of elements.
    pub(super) wide: bool,
    /// What becomes of the elements.
    pub(super) work: Work,
}

/// The entry's name.
pub(super) const ENTRY: &std::ffi::CStr = c"formula";

/// Threads of a block.
pub(super) const THREADS: usize = 256;

/// The whole text of a kernel.
///
/// Its parameters: the addresses of the inputs and of the outputs, the constants, the number of elements, then, if any operand is strided,
/// the loop's sizes, and each strided operand's strides, in elements. Over sets: the constants, then the table.
pub(super) fn kernel(program: &Program, plan: &Plan) -> String {
    let mut writer = Writer::new(program, plan);
    writer.kernel();
    writer.finish()
}

/// A register of PTX, by its kind and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Register {
    kind: Kind,
    number: u32,
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}{}", letter(self.kind), self.number)
    }
}

fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "f",
        Kind::F64 => "d",
        Kind::I64 => "q",
        Kind::I32 => "r",
        Kind::Mask => "p",
    }
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::F32, "f32"),
    (Kind::F64, "f64"),
    (Kind::I64, "b64"),
    (Kind::I32, "b32"),
    (Kind::Mask, "pred"),
];

fn kind_of(class: Class) -> Kind {
    match class {
        Class::F32 => Kind::F32,
        Class::F64 => Kind::F64,
        Class::I64 => Kind::I64,
    }
}

struct Writer<'a> {
    program: &'a Program,
    plan: &'a Plan,
    body: String,
    counts: [u32; 5],
    /// Registers of the program's constants.
    constants: Vec<(usize, Register)>,
    /// Registers with the operands' addresses.
    addresses: Vec<Register>,
    /// Sizes and strides, if any operand is strided.
    sizes: Vec<Register>,
    strides: Vec<Vec<Register>>,
}

/// Appends a line to the body.
macro_rules! line {
    ($writer:expr, $($text:tt)*) => {{
        // Writing to a string can't fail.
        let _ = writeln!($writer.body, $($text)*);
    }};
}

mod work;

pub(super) use work::{ROOM, TABLE_HEAD, Work, most_sets, row_size, table_size};

impl<'a> Writer<'a> {
    fn new(program: &'a Program, plan: &'a Plan) -> Writer<'a> {
        Writer {
            program,
            plan,
            body: String::new(),
            counts: [0; 5],
            constants: Vec::new(),
            addresses: Vec::new(),
            sizes: Vec::new(),
            strides: Vec::new(),
        }
    }

    fn register(&mut self, kind: Kind) -> Register {
        let place = KINDS.iter().position(|(other, _)| *other == kind);
        let count = &mut self.counts[place.expect("all kinds are listed")];
        *count += 1;
        Register {
            kind,
            number: *count - 1,
        }
    }

    /// The kind and the type of numbers of elements.
    fn index(&self) -> (Kind, &'static str) {
        if self.plan.wide {
            (Kind::I64, "u64")
        } else {
            (Kind::I32, "u32")
        }
    }

    fn finish(self) -> String {
        let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
        let _ = writeln!(text, ".visible .entry {}(", ENTRY.to_string_lossy());
        let parameters = self.parameters();
        for (number, (ty, name)) in parameters.iter().enumerate() {
            let comma = if number + 1 < parameters.len() {
                ","
            } else {
                ""
            };
            let _ = writeln!(text, "  .param .{ty} {name}{comma}");
        }
        text.push_str(")\n{\n");
        for ((kind, ty), count) in KINDS.iter().zip(self.counts) {
            if count > 0 {
                let _ = writeln!(text, "  .reg .{ty} %{}<{count}>;", letter(*kind));
            }
        }
        text.push_str("  .reg .b16 %h<2>;\n");
        text.push_str(&self.body);
        text.push_str("}\n");
        text
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let (_, index) = self.index();
        let constants = self.program.constants.iter().enumerate();
        let constants = constants.map(|(number, register)| {
            let class = self.program.classes[*register];
            (type_of(class), format!("constant{number}"))
        });
        if self.plan.work == Work::StoreSets {
            let table = format!("table[{}]", table_size(self.program));
            return constants.chain([("align 8 .b8", table)]).collect();
        }
        let addresses =
            (0..self.plan.forms.len()).map(|operand| ("u64", format!("address{operand}")));
        let mut parameters: Vec<(&'static str, String)> = addresses.chain(constants).collect();
        parameters.push((index, "count".to_owned()));
        for dim in 0..self.plan.ndim {
            parameters.push((index, format!("size{dim}")));
        }
        for (operand, form) in self.plan.forms.iter().enumerate() {
            if *form == Form::Strided {
                for dim in 0..self.plan.ndim {
                    parameters.push((index, format!("stride{operand}_{dim}")));
                }
            }
        }
        if self.plan.work == Work::Sum {
            parameters.push(("u32", "divide".to_owned()));
            parameters.push((self.number_summed().0, "divisor".to_owned()));
        }
        parameters
    }

    fn parameter(&mut self, kind: Kind, ty: &str, name: &str) -> Register {
        let register = self.register(kind);
        line!(self, "  ld.param.{ty} {register}, [{name}];");
        register
    }

    fn kernel(&mut self) {
        let (kind, index) = self.index();
        let program = self.program;
        for (number, &register) in program.constants.iter().enumerate() {
            let class = program.classes[register];
            let name = format!("constant{number}");
            let constant = self.parameter(kind_of(class), type_of(class), &name);
            self.constants.push((register, constant));
        }
        let (position, count) = match self.plan.work {
            Work::StoreSets => self.find_set(),
            Work::Store => {
                let count = self.load_parameters();
                let block = self.register(Kind::I32);
                line!(self, "  mov.u32 {block}, %ctaid.x;");
                (self.position(block), count)
            }
            Work::Sum => return self.sum(),
        };
        let stop = self.register(Kind::Mask);
        line!(self, "  setp.ge.{index} {stop}, {position}, {count};");
        line!(self, "  @{stop} bra DONE;");
        if self.plan.vector > 1 {
            let (end, part) = (self.register(kind), self.register(Kind::Mask));
            line!(
                self,
                "  add.{index} {end}, {position}, {};",
                self.plan.vector
            );
            line!(self, "  setp.gt.{index} {part}, {end}, {count};");
            line!(self, "  @{part} bra TAIL;");
            self.elements(position, self.plan.vector);
            line!(self, "  bra DONE;");
            line!(self, "TAIL:");
        }
        self.elements(position, 1);
        if self.plan.vector > 1 {
            line!(self, "  add.{index} {position}, {position}, 1;");
            line!(self, "  setp.lt.{index} {stop}, {position}, {count};");
            line!(self, "  @{stop} bra TAIL;");
        }
        line!(self, "DONE:");
        line!(self, "  ret;");
    }

    /// Loads addresses, sizes and strides; how many elements there are.
    fn load_parameters(&mut self) -> Register {
        let (kind, index) = self.index();
        for operand in 0..self.plan.forms.len() {
            let generic = self.parameter(Kind::I64, "u64", &format!("address{operand}"));
            let global = self.register(Kind::I64);
            line!(self, "  cvta.to.global.u64 {global}, {generic};");
            self.addresses.push(global);
        }
        let count = self.parameter(kind, index, "count");
        for dim in 0..self.plan.ndim {
            let size = self.parameter(kind, index, &format!("size{dim}"));
            self.sizes.push(size);
        }
        for operand in 0..self.plan.forms.len() {
            let mut strides = Vec::new();
            if self.plan.forms[operand] == Form::Strided {
                for dim in 0..self.plan.ndim {
                    strides.push(self.parameter(kind, index, &format!("stride{operand}_{dim}")));
                }
            }
            self.strides.push(strides);
        }
        count
    }

    /// The number of the thread's first element, of a block of this number.
    fn position(&mut self, block: Register) -> Register {
        let [threads, thread] = [(); 2].map(|()| self.register(Kind::I32));
        line!(self, "  mov.u32 {threads}, %ntid.x;");
        line!(self, "  mov.u32 {thread}, %tid.x;");
        let vector = self.plan.vector;
        if !self.plan.wide {
            let position = self.register(Kind::I32);
            line!(
                self,
                "  mad.lo.u32 {position}, {block}, {threads}, {thread};"
            );
            line!(self, "  mul.lo.u32 {position}, {position}, {vector};");
            return position;
        }
        let (position, thread64) = (self.register(Kind::I64), self.register(Kind::I64));
        line!(self, "  mul.wide.u32 {position}, {block}, {threads};");
        line!(self, "  cvt.u64.u32 {thread64}, {thread};");
        line!(self, "  add.u64 {position}, {position}, {thread64};");
        line!(self, "  mul.lo.u64 {position}, {position}, {vector};");
        position
    }

    /// Computes and stores `vector` elements from `position` on.
    fn elements(&mut self, position: Register, vector: usize) {
        let places = self.places(position);
        let results = self.compute(&places, vector);
        let program = self.program;
        for (output, &(_, dtype)) in program.outputs.iter().enumerate() {
            let operand = program.inputs.len() + output;
            self.store(places[operand], dtype, &results[output]);
        }
    }

    /// Computes `vector` elements of each output from what lies at the inputs' `places`.
    fn compute(&mut self, places: &[Register], vector: usize) -> Vec<Vec<Register>> {
        let program = self.program;
        let mut loaded: Vec<Vec<Register>> = Vec::new();
        for (operand, &(_, dtype)) in program.inputs.iter().enumerate() {
            let vector = match self.plan.forms[operand] {
                Form::Same => 1,
                _ => vector,
            };
            let place = places[operand];
            loaded.push(self.load(place, dtype, vector));
        }
        let mut results: Vec<Vec<Register>> = vec![Vec::new(); program.outputs.len()];
        for element in 0..vector {
            let mut values: Vec<Option<Register>> = vec![None; program.classes.len()];
            for &(register, constant) in &self.constants {
                values[register] = Some(constant);
            }
            for (&(register, _), loaded) in program.inputs.iter().zip(&loaded) {
                values[register] = Some(loaded[element.min(loaded.len() - 1)]);
            }
            for step in &program.steps {
                self.step(step, &mut values);
            }
            for (result, &(register, _)) in results.iter_mut().zip(&program.outputs) {
                result.push(value(&values, register));
            }
        }
        results
    }

    /// The address of each operand's element at `position`.
    fn places(&mut self, position: Register) -> Vec<Register> {
        let (kind, index) = self.index();
        let mut indices = Vec::new();
        let mut rest = position;
        for dim in (0..self.plan.ndim).rev() {
            if dim == 0 {
                indices.push(rest);
                break;
            }
            let (quotient, remainder) = (self.register(kind), self.register(kind));
            let size = self.sizes[dim];
            line!(self, "  div.{index} {quotient}, {rest}, {size};");
            line!(self, "  rem.{index} {remainder}, {rest}, {size};");
            indices.push(remainder);
            rest = quotient;
        }
        indices.reverse();
        let program = self.program;
        let dtypes = program.inputs.iter().chain(&program.outputs);
        let dtypes: Vec<DType> = dtypes.map(|(_, dtype)| *dtype).collect();
        let mut places = Vec::new();
        for (operand, dtype) in dtypes.into_iter().enumerate() {
            let place = match self.plan.forms[operand] {
                Form::Same => {
                    places.push(self.addresses[operand]);
                    continue;
                }
                Form::Contiguous => position,
                Form::Strided => {
                    let sum = self.register(kind);
                    line!(
                        self,
                        "  mul.lo.{index} {sum}, {}, {};",
                        indices[0],
                        self.strides[operand][0]
                    );
                    for (dim, at) in indices.iter().enumerate().skip(1) {
                        let stride = self.strides[operand][dim];
                        line!(self, "  mad.lo.{index} {sum}, {at}, {stride}, {sum};");
                    }
                    sum
                }
            };
            let address = self.register(Kind::I64);
            let (base, size) = (self.addresses[operand], dtype.size());
            let mad = if self.plan.wide {
                "mad.lo.u64"
            } else {
                "mad.wide.u32"
            };
            line!(self, "  {mad} {address}, {place}, {size}, {base};");
            places.push(address);
        }
        places
    }

    /// Loads elements as numbers of the dtype's class.
    fn load(&mut self, address: Register, dtype: DType, vector: usize) -> Vec<Register> {
        let class = fireclay_core::program::class_of(dtype);
        let (kind, ty) = match dtype {
            DType::F32 => (Kind::F32, "f32"),
            DType::F64 => (Kind::F64, "f64"),
            DType::I64 => (Kind::I64, "s64"),
            DType::I32 => (Kind::I32, "s32"),
            DType::I16 => (Kind::I32, "s16"),
            DType::I8 => (Kind::I32, "s8"),
            DType::F16 | DType::BF16 => (Kind::I32, "u16"),
            _ => (Kind::I32, "u8"),
        };
        let raw: Vec<Register> = (0..vector).map(|_| self.register(kind)).collect();
        let (width, list) = vector_of(&raw);
        // Not through the read-only cache: an output may be the input.
        line!(self, "  ld.global{width}.{ty} {list}, [{address}];");
        if kind == kind_of(class) {
            return raw;
        }
        raw.into_iter()
            .map(|raw| {
                let number = self.register(kind_of(class));
                match dtype {
                    DType::F16 => {
                        line!(self, "  cvt.u16.u32 %h0, {raw};");
                        line!(self, "  cvt.f32.f16 {number}, %h0;");
                    }
                    DType::BF16 => {
                        line!(self, "  shl.b32 {raw}, {raw}, 16;");
                        line!(self, "  mov.b32 {number}, {raw};");
                    }
                    DType::I32 | DType::I16 | DType::I8 => {
                        line!(self, "  cvt.s64.s32 {number}, {raw};");
                    }
                    _ => line!(self, "  cvt.u64.u32 {number}, {raw};"),
                }
                number
            })
            .collect()
    }

    fn store(&mut self, address: Register, dtype: DType, values: &[Register]) {
        let stored: Vec<Register> = values
            .iter()
            .map(|&value| match dtype {
                DType::F32 | DType::F64 | DType::I64 => value,
                DType::F16 => {
                    let bits = self.register(Kind::I32);
                    line!(self, "  cvt.rn.f16.f32 %h0, {value};");
                    line!(self, "  cvt.u32.u16 {bits}, %h0;");
                    bits
                }
                DType::BF16 => self.rounded_to_bf16(value),
                DType::Bool => {
                    let (truth, bits) = (self.register(Kind::Mask), self.register(Kind::I32));
                    line!(self, "  setp.ne.s64 {truth}, {value}, 0;");
                    line!(self, "  selp.u32 {bits}, 1, 0, {truth};");
                    bits
                }
                _ => {
                    let bits = self.register(Kind::I32);
                    line!(self, "  cvt.u32.u64 {bits}, {value};");
                    bits
                }
            })
            .collect();
        let ty = match dtype.size() {
            1 => "u8",
            2 => "u16",
            _ if dtype == DType::F32 => "f32",
            4 => "u32",
            _ if dtype == DType::F64 => "f64",
            _ => "u64",
        };
        let (width, list) = vector_of(&stored);
        line!(self, "  st.global{width}.{ty} [{address}], {list};");
    }

    /// A single to the nearest bf16, ties to even, as its bits; a NaN stays one. In whole numbers, since the conversion
    /// instruction is newer than the oldest devices.
    fn rounded_to_bf16(&mut self, value: Register) -> Register {
        let [bits, odd, rounded, quiet, result] = [(); 5].map(|()| self.register(Kind::I32));
        let nan = self.register(Kind::Mask);
        line!(self, "  mov.b32 {bits}, {value};");
        line!(self, "  shr.u32 {odd}, {bits}, 16;");
        line!(self, "  and.b32 {odd}, {odd}, 1;");
        line!(self, "  add.u32 {rounded}, {bits}, 32767;");
        line!(self, "  add.u32 {rounded}, {rounded}, {odd};");
        line!(self, "  or.b32 {quiet}, {bits}, 4194304;");
        line!(self, "  setp.nan.f32 {nan}, {value}, {value};");
        line!(self, "  selp.b32 {result}, {quiet}, {rounded}, {nan};");
        line!(self, "  shr.u32 {result}, {result}, 16;");
        result
    }

    fn step(&mut self, step: &Step, values: &mut [Option<Register>]) {
        match step {
            Step::Apply {
                trace,
                inputs,
                outputs,
            } => {
                let operands: Vec<Register> =
                    inputs.iter().map(|&input| value(values, input)).collect();
                let results = self.trace(trace, &operands);
                for (&output, result) in outputs.iter().zip(results) {
                    values[output] = Some(result);
                }
            }
            Step::Convert {
                truth,
                input,
                output,
            } => {
                let to = kind_of(self.program.classes[*output]);
                let converted = self.convert(value(values, *input), to, *truth);
                values[*output] = Some(converted);
            }
        }
    }

    fn convert(&mut self, from: Register, to: Kind, truth: bool) -> Register {
        if truth {
            let (mask, result) = (self.register(Kind::Mask), self.register(Kind::I64));
            match from.kind {
                Kind::F32 => line!(self, "  setp.neu.f32 {mask}, {from}, 0f00000000;"),
                Kind::F64 => line!(self, "  setp.neu.f64 {mask}, {from}, 0d0000000000000000;"),
                _ => line!(self, "  setp.ne.s64 {mask}, {from}, 0;"),
            }
            line!(self, "  selp.b64 {result}, 1, 0, {mask};");
            return result;
        }
        if from.kind == to {
            return from;
        }
        let result = self.register(to);
        match (from.kind, to) {
            (Kind::F32, Kind::F64) => line!(self, "  cvt.f64.f32 {result}, {from};"),
            (Kind::F64, Kind::F32) => line!(self, "  cvt.rn.f32.f64 {result}, {from};"),
            (Kind::I64, Kind::F32) => line!(self, "  cvt.rn.f32.s64 {result}, {from};"),
            (Kind::I64, Kind::F64) => line!(self, "  cvt.rn.f64.s64 {result}, {from};"),
            (_, _) => {
                // Devices differ in what a NaN becomes.
                let ty = if from.kind == Kind::F32 { "f32" } else { "f64" };
                let nan = self.register(Kind::Mask);
                line!(self, "  cvt.rzi.s64.{ty} {result}, {from};");
                line!(self, "  setp.nan.{ty} {nan}, {from}, {from};");
                line!(self, "  selp.b64 {result}, 0, {result}, {nan};");
            }
        }
        result
    }

    /// Writes a trace down; the registers of its outputs.
    fn trace(&mut self, trace: &Trace, inputs: &[Register]) -> Vec<Register> {
        let mut registers: Vec<Register> = Vec::with_capacity(trace.nodes.len());
        for node in &trace.nodes {
            let register = match node.operation {
                Operation::Input(input) => inputs[input as usize],
                _ => {
                    let register = self.register(node.kind);
                    self.node(node, register, &registers);
                    register
                }
            };
            registers.push(register);
        }
        trace
            .outputs
            .iter()
            .map(|&output| registers[output as usize])
            .collect()
    }

    fn node(&mut self, node: &Node, to: Register, registers: &[Register]) {
        use Operation as O;
        let operand = |index: usize| registers[node.operands[index] as usize];
        let float = matches!(node.kind, Kind::F32 | Kind::F64);
        let (ty, bits, unsigned) = match node.kind {
            Kind::F32 => ("f32", "b32", "u32"),
            Kind::F64 => ("f64", "b64", "u64"),
            Kind::I64 => ("s64", "b64", "u64"),
            Kind::I32 => ("s32", "b32", "u32"),
            Kind::Mask => ("pred", "pred", "pred"),
        };
        let rn = if float { ".rn" } else { "" };
        let name = match node.operation {
            O::Input(_) => return,
            O::Constant(value) => {
                match node.kind {
                    Kind::F32 => line!(self, "  mov.f32 {to}, 0f{value:08X};"),
                    Kind::F64 => line!(self, "  mov.f64 {to}, 0d{value:016X};"),
                    Kind::I32 => line!(self, "  mov.b32 {to}, {};", value as u32 as i32),
                    _ => line!(self, "  mov.b64 {to}, {};", value as i64),
                }
                return;
            }
            O::Lt | O::Le | O::Eq => {
                let compared = match operand(0).kind {
                    Kind::F32 => "f32",
                    Kind::F64 => "f64",
                    Kind::I32 => "s32",
                    _ => "s64",
                };
                match node.operation {
                    O::Lt => format!("setp.lt.{compared}"),
                    O::Le => format!("setp.le.{compared}"),
                    _ => format!("setp.eq.{compared}"),
                }
            }
            O::Select => {
                let [mask, yes, no] = [operand(0), operand(1), operand(2)];
                let ty = if float { ty } else { bits };
                line!(self, "  selp.{ty} {to}, {yes}, {no}, {mask};");
                return;
            }
            O::Copysign => {
                // PTX names the operand with the sign first.
                line!(
                    self,
                    "  copysign.{ty} {to}, {}, {};",
                    operand(1),
                    operand(0)
                );
                return;
            }
            O::Add => format!("add{rn}.{ty}"),
            O::Sub => format!("sub{rn}.{ty}"),
            O::Mul if float => format!("mul.rn.{ty}"),
            O::Mul => format!("mul.lo.{ty}"),
            O::Div => format!("div{rn}.{ty}"),
            O::Neg => format!("neg.{ty}"),
            O::Abs => format!("abs.{ty}"),
            O::MulAdd => format!("fma.rn.{ty}"),
            O::Sqrt => format!("sqrt.rn.{ty}"),
            O::Floor => format!("cvt.rmi.{ty}.{ty}"),
            O::Ceil => format!("cvt.rpi.{ty}.{ty}"),
            O::Trunc => format!("cvt.rzi.{ty}.{ty}"),
            O::RoundEven => format!("cvt.rni.{ty}.{ty}"),
            O::And => format!("and.{bits}"),
            O::Or => format!("or.{bits}"),
            O::Xor => format!("xor.{bits}"),
            O::Not => format!("not.{bits}"),
            O::MulHighUnsigned => format!("mul.hi.{unsigned}"),
            O::Reinterpret => format!("mov.{bits}"),
            O::Shl(count) => return self.shift(&format!("shl.{bits}"), to, operand(0), count),
            O::Shr(count) => return self.shift(&format!("shr.{ty}"), to, operand(0), count),
            O::ShrLogical(count) => {
                return self.shift(&format!("shr.{unsigned}"), to, operand(0), count);
            }
            O::ShlBy | O::ShrBy | O::ShrLogicalBy => {
                // The count has 32 bits whatever is shifted.
                let (value, mut count) = (operand(0), operand(1));
                if count.kind == Kind::I64 {
                    let short = self.register(Kind::I32);
                    line!(self, "  cvt.u32.u64 {short}, {count};");
                    count = short;
                }
                let name = match node.operation {
                    O::ShlBy => format!("shl.{bits}"),
                    O::ShrBy => format!("shr.{ty}"),
                    _ => format!("shr.{unsigned}"),
                };
                line!(self, "  {name} {to}, {value}, {count};");
                return;
            }
        };
        let mut text = format!("  {name} {to}");
        for index in 0..node.arity() {
            let _ = write!(text, ", {}", operand(index));
        }
        line!(self, "{text};");
    }

    fn shift(&mut self, name: &str, to: Register, value: Register, count: u32) {
        line!(self, "  {name} {to}, {value}, {count};");
    }
}

/// The value of a program's register, which an earlier step or input has set.
fn value(values: &[Option<Register>], register: usize) -> Register {
    values[register].expect("a step's operands come before it")
}

fn vector_of(registers: &[Register]) -> (&'static str, String) {
    match registers {
        [single] => ("", single.to_string()),
        many => {
            let list: Vec<String> = many.iter().map(Register::to_string).collect();
            let width = if many.len() == 2 { ".v2" } else { ".v4" };
            (width, format!("{{{}}}", list.join(", ")))
        }
    }
}

/// The type of a number of a class, as a parameter.
fn type_of(class: Class) -> &'static str {
    match class {
        Class::F32 => "f32",
        Class::F64 => "f64",
        Class::I64 => "s64",
    }
}
