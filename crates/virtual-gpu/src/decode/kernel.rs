//! A kernel as a whole: its entry with every function it may call, and the layout of its shared memory.

use std::sync::Arc;

use super::builder::{Builder, Form, Kind, Layout, Origin, Refusal, Successor, Value};
use super::{DecodeError, flow, registers};
use crate::exec::code::{Code, Kernel};
use crate::exec::instruction::{INLINE_SLOTS, Inst, NO_GUARD};
use crate::instructions;
use crate::ptx::ast::{Function, Init, Module, Operand, Space, Symbol, Variable};

/// Decodes the entry `index` of a module and all it may call. `addresses` has the device address of each module-scope
/// variable; those of shared variables are found here.
pub(crate) fn kernel(
    module: &Arc<Module>,
    index: u32,
    addresses: &[u64],
) -> Result<Kernel, DecodeError> {
    let reached = reachable(module, index);
    let mut shared = Packing::default();
    let mut variables = addresses.to_vec();
    variables.resize(module.variables.len(), 0);
    let used = used_shared(module, index, &reached);
    for (place, variable) in variables
        .iter_mut()
        .zip(&module.variables)
        .zip(&used)
        .filter_map(|(pair, &used)| (used && pair.1.size.is_some()).then_some(pair))
    {
        *place = shared.place(variable);
    }
    let order = || std::iter::once(index).chain(reached.iter().copied());
    // Shared variables of bodies come next, then everything of unknown size at the end.
    let mut bodies: Vec<(u32, Vec<u64>)> = Vec::new();
    for function in order() {
        let body = module.functions[function as usize].body.as_ref();
        let place = |variable: &Variable| match (variable.space, variable.size) {
            (Space::Shared, Some(_)) => shared.place(variable),
            _ => 0,
        };
        bodies.push((
            function,
            body.map_or_else(Vec::new, |body| body.variables.iter().map(place).collect()),
        ));
    }
    let shared_bytes = shared.end(module, &module.functions[index as usize])?;
    for (place, variable) in variables.iter_mut().zip(&module.variables) {
        if variable.space == Space::Shared && variable.size.is_none() {
            *place = u64::from(shared_bytes.next_multiple_of(16));
        }
    }
    let variables = Arc::new(variables);
    let mut functions: Vec<Option<Code>> = module.functions.iter().map(|_| None).collect();
    let mut entry = None;
    for (function, shared_places) in bodies {
        let code = decode_function(
            module,
            function,
            &variables,
            shared_places,
            shared_bytes,
            function == index,
        )?;
        if function == index {
            entry = Some(code);
        } else {
            functions[function as usize] = Some(code);
        }
    }
    let entry = entry.expect("the entry comes first");
    Ok(Kernel {
        entry,
        functions,
        shared_bytes,
        module: module.clone(),
    })
}

/// Places variables one behind the other.
#[derive(Default)]
struct Packing {
    end: u64,
}

impl Packing {
    fn place(&mut self, variable: &Variable) -> u64 {
        let start = self.end.next_multiple_of(u64::from(variable.align.max(1)));
        self.end = start.saturating_add(variable.size.unwrap_or(0));
        start
    }

    fn end(&self, module: &Module, function: &Function) -> Result<u32, DecodeError> {
        // The launch compares with the device's limit; here it only has to be a number that fits.
        u32::try_from(self.end)
            .ok()
            .filter(|&end| end <= 1 << 24)
            .ok_or_else(|| DecodeError {
                function: function.name.clone(),
                line: function.line,
                text: module
                    .functions
                    .first()
                    .map_or_else(String::new, |_| format!(".entry {}", function.name)),
                message: format!("{} bytes of shared memory", self.end),
            })
    }
}

/// Functions with a body that the entry may call: named by a call, or anything whose address is taken where a call is
/// indirect.
fn reachable(module: &Module, entry: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut queue = vec![entry];
    let taken = module
        .variables
        .iter()
        .flat_map(|variable| &variable.init)
        .filter_map(|init| match init {
            Init::Address {
                symbol: Symbol::Function(index),
                ..
            } => Some(*index),
            _ => None,
        });
    let taken: Vec<u32> = taken.collect();
    let mut seen = vec![false; module.functions.len()];
    seen[entry as usize] = true;
    while let Some(function) = queue.pop() {
        let Some(body) = &module.functions[function as usize].body else {
            continue;
        };
        let operands = body
            .instructions
            .iter()
            .flat_map(|instruction| &instruction.operands);
        let mut named: Vec<u32> = operands
            .filter_map(|operand| match operand {
                Operand::Symbol(Symbol::Function(index), _) => Some(*index),
                _ => None,
            })
            .collect();
        named.extend(&taken);
        for index in named {
            let callee = &module.functions[index as usize];
            if !seen[index as usize] && callee.body.is_some() && !callee.entry {
                seen[index as usize] = true;
                found.push(index);
                queue.push(index);
            }
        }
    }
    found
}

/// Which module-scope variables are shared memory that the kernel or a function of it names.
fn used_shared(module: &Module, entry: u32, reached: &[u32]) -> Vec<bool> {
    let mut used = vec![false; module.variables.len()];
    let mut mark = |symbol: Symbol| {
        if let Symbol::Module(index) = symbol
            && module.variables[index as usize].space == Space::Shared
        {
            used[index as usize] = true;
        }
    };
    for &function in std::iter::once(&entry).chain(reached) {
        let Some(body) = &module.functions[function as usize].body else {
            continue;
        };
        for operand in body
            .instructions
            .iter()
            .flat_map(|instruction| &instruction.operands)
        {
            symbols(operand, &mut mark);
        }
    }
    used
}

fn symbols(operand: &Operand, mark: &mut impl FnMut(Symbol)) {
    match operand {
        Operand::Symbol(symbol, _) => mark(*symbol),
        Operand::Address {
            base: crate::ptx::ast::Base::Symbol(symbol),
            ..
        } => mark(*symbol),
        Operand::Vector(parts) | Operand::Group(parts) => {
            parts.iter().for_each(|part| symbols(part, mark))
        }
        Operand::Pair(pair) => {
            symbols(&pair.0, mark);
            symbols(&pair.1, mark);
        }
        _ => {}
    }
}

fn decode_function(
    module: &Arc<Module>,
    index: u32,
    variables: &Arc<Vec<u64>>,
    mut body_places: Vec<u64>,
    shared_bytes: u32,
    is_entry: bool,
) -> Result<Code, DecodeError> {
    let function = &module.functions[index as usize];
    let error = |line: u32, text: &str, message: String| DecodeError {
        function: function.name.clone(),
        line,
        text: text.to_string(),
        message,
    };
    let Some(body) = &function.body else {
        return Err(error(
            function.line,
            &function.name,
            "the function is declared but not defined".to_string(),
        ));
    };
    let too_large = |_| {
        error(
            function.line,
            &function.name,
            "its parameters or variables are too large".to_string(),
        )
    };
    // Parameters of a kernel have a block of their own; all else lies in local memory.
    let mut local = Packing::default();
    let mut block = Packing::default();
    let params: Vec<u64> = function
        .params
        .iter()
        .map(|param| {
            if function.entry {
                block.place(param)
            } else {
                local.place(param)
            }
        })
        .collect();
    let returns: Vec<u64> = function
        .returns
        .iter()
        .map(|variable| local.place(variable))
        .collect();
    for (place, variable) in body_places.iter_mut().zip(&body.variables) {
        match (variable.space, variable.size) {
            (Space::Local | Space::Param, _) => *place = local.place(variable),
            (Space::Shared, None) => *place = u64::from(shared_bytes.next_multiple_of(16)),
            _ => {}
        }
    }
    let spans = |places: &[u64], variables: &[Variable]| -> Vec<(u32, u32)> {
        places
            .iter()
            .zip(variables)
            .map(|(&place, variable)| (place as u32, variable.size.unwrap_or(0) as u32))
            .collect()
    };
    let param_bytes = u32::try_from(block.end)
        .ok()
        .filter(|&bytes| bytes <= 1 << 16)
        .ok_or(())
        .map_err(too_large)?;
    let (param_spans, return_spans) = (
        spans(&params, &function.params),
        spans(&returns, &function.returns),
    );
    let layout = Arc::new(Layout {
        module: variables.to_vec(),
        body: body_places,
        params,
        returns,
    });

    let mut builder = Builder::new(module, function, body, layout);
    builder.local_end = local.end;
    let decoded = register_parameters(&mut builder);
    decoded.map_err(|Refusal(message)| error(function.line, &function.name, message))?;
    // Of each instruction, its first step.
    let mut starts = Vec::with_capacity(body.instructions.len() + 1);
    for (number, instruction) in body.instructions.iter().enumerate() {
        starts.push(builder.steps.len() as u32);
        builder.origin = number as u32;
        builder.guard = instruction
            .guard
            .map(|guard| (builder.register(guard.register), guard.negated));
        let mut form = Form::new(module.text(instruction.name), &instruction.operands);
        let decoded = instructions::decode(&mut form, &mut builder);
        let decoded = decoded.and_then(|()| builder.finish_instruction());
        decoded.map_err(|Refusal(message)| {
            error(instruction.line, module.text(instruction.span), message)
        })?;
    }
    starts.push(builder.steps.len() as u32);
    // Control that runs off the end returns.
    builder.guard = None;
    builder.origin = body.instructions.len().saturating_sub(1) as u32;
    let mut form = Form::new("ret", &[]);
    instructions::decode(&mut form, &mut builder)
        .map_err(|Refusal(message)| error(function.line, "ret", message))?;

    let local_bytes = u32::try_from(builder.local_end)
        .ok()
        .filter(|&bytes| bytes <= 1 << 20)
        .ok_or(())
        .map_err(too_large)?;
    let labels: Vec<u32> = body
        .labels
        .iter()
        .map(|&instruction| {
            starts
                .get(instruction as usize)
                .copied()
                .unwrap_or(starts[starts.len() - 1])
        })
        .collect();
    let placement = registers::place(&builder, &flow::lifetimes(&builder, &labels))
        .map_err(|Refusal(message)| error(function.line, &function.name, message))?;
    let mut code = lay_out(&builder, &labels, &placement);
    code.name.clone_from(&function.name);
    code.function = index;
    code.profile = if is_entry { 0 } else { index + 1 };
    code.local_bytes = local_bytes;
    code.param_bytes = param_bytes;
    code.max_threads = function.max_threads.or(function.required_threads);
    code.required_threads = function.required_threads;
    code.params = param_spans;
    code.returns = return_spans;
    Ok(code)
}

/// Loads the parameters that are registers, which a call leaves in memory as it does the others.
fn register_parameters(builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let body = builder.body;
    if body.instructions.is_empty() {
        return Ok(());
    }
    for &(index, register) in &body.register_params {
        let (ty, place) = (
            builder.function.params[index as usize].ty,
            builder.layout.params[index as usize],
        );
        instructions::load_local(builder, &Operand::Register(register), ty, place)?;
    }
    Ok(())
}

/// Turns steps into instructions, with the slots that registers were given.
fn lay_out(builder: &Builder<'_>, labels: &[u32], placement: &registers::Placement) -> Code {
    let slot = |value: Value| placement.slots[value.0 as usize];
    let mut more_slots = Vec::new();
    let mut instructions = Vec::with_capacity(builder.steps.len());
    for step in &builder.steps {
        let operands = step
            .writes
            .iter()
            .chain(&step.reads)
            .map(|&value| slot(value));
        let mut slots = [0; INLINE_SLOTS];
        if step.far {
            slots[0] = more_slots.len() as u32;
            more_slots.extend(operands);
        } else {
            for (place, operand) in slots.iter_mut().zip(operands) {
                *place = operand;
            }
        }
        let immediate = if step.immediate_is_label {
            u64::from(labels[step.immediate as usize])
        } else {
            step.immediate
        };
        instructions.push(Inst {
            run: step.run,
            slots,
            guard: step.guard.map_or(NO_GUARD, |(value, _)| slot(value)),
            guard_inverted: step
                .guard
                .map_or(0, |(_, negated)| if negated { u32::MAX } else { 0 }),
            immediate,
        });
    }
    let mut constants = vec![0; placement.frame_bytes - placement.constants_start];
    let mut specials = Vec::new();
    for (index, &(kind, origin)) in builder.values.iter().enumerate() {
        let slot = placement.slots[index];
        match origin {
            Origin::Constant(bits) => {
                let start = slot as usize - placement.constants_start;
                let target = &mut constants[start..start + kind.bytes()];
                match kind {
                    Kind::Long => target
                        .chunks_exact_mut(8)
                        .for_each(|lane| lane.copy_from_slice(&bits.to_le_bytes())),
                    Kind::Word | Kind::Predicate => {
                        let bits = bits as u32;
                        target
                            .chunks_exact_mut(4)
                            .for_each(|lane| lane.copy_from_slice(&bits.to_le_bytes()));
                    }
                }
            }
            Origin::Special(special) => specials.push((special, slot)),
            Origin::Register(_) | Origin::Temporary(_) | Origin::Carry => {}
        }
    }
    let tables = builder.branch_tables.iter();
    Code {
        name: String::new(),
        function: 0,
        profile: 0,
        instructions,
        origins: builder.steps.iter().map(|step| step.origin).collect(),
        classes: builder.steps.iter().map(|step| step.class).collect(),
        more_slots,
        frame_bytes: placement.frame_bytes,
        constants,
        constants_start: placement.constants_start,
        specials,
        local_bytes: 0,
        param_bytes: 0,
        registers: placement.registers,
        max_threads: None,
        required_threads: None,
        calls: builder.calls.clone(),
        branch_tables: tables
            .map(|table| table.iter().map(|&label| labels[label as usize]).collect())
            .collect(),
        texts: builder.texts.clone(),
        params: Vec::new(),
        returns: Vec::new(),
    }
}

/// Whether a step never goes on to the next.
pub(super) fn ends(successor: &Successor) -> bool {
    matches!(successor, Successor::Jump(_) | Successor::End)
}
