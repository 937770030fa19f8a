//! Branches, calls and returns, and what ends or delays a thread.

use super::barrier::let_others_run;
use super::memory;
use crate::decode::builder::{Place, Successor};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::code::{CallSite, Class, FUNCTION_WINDOW};
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::{lanes_of, same};
use crate::fault::FaultKind;
use crate::ptx::ast::{Operand, Space, Symbol, Table, Type, Variable};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Control;
    form.take("uni");
    match form.opcode {
        "bra" => {
            form.done()?;
            let [Operand::Label(label)] = form.operands else {
                return Err(Refusal::new("expected a label"));
            };
            let guarded = builder.guard.is_some();
            builder.emit(handler::<Branch>(), &[], &[], u64::from(*label));
            let last = builder.last();
            last.immediate_is_label = true;
            last.successor = if guarded {
                Successor::Labels(vec![*label])
            } else {
                Successor::Jump(vec![*label])
            };
            Ok(())
        }
        "brx" => indexed_branch(form, builder),
        "ret" | "exit" => {
            let exit = form.opcode == "exit";
            form.done()?;
            form.expect_operands(0)?;
            if !exit {
                let (body, layout) = (builder.body, builder.layout.clone());
                for &(index, register) in &body.register_returns {
                    let ty = builder.function.returns[index as usize].ty;
                    let place = layout.returns[index as usize];
                    memory::store_local(builder, &Operand::Register(register), ty, place)?;
                }
            }
            let guarded = builder.guard.is_some();
            builder.emit(
                if exit {
                    handler::<Exit>()
                } else {
                    handler::<Return>()
                },
                &[],
                &[],
                0,
            );
            builder.last().successor = if guarded {
                Successor::Next
            } else {
                Successor::End
            };
            Ok(())
        }
        "call" => call(form, builder),
        "trap" => {
            form.done()?;
            builder.emit(handler::<Trap>(), &[], &[], 0);
            Ok(())
        }
        "brkpt" | "pmevent" => {
            form.modifiers.clear();
            builder.emit(handler::<Nothing>(), &[], &[], 0);
            Ok(())
        }
        "nanosleep" => {
            form.take("u32");
            form.done()?;
            builder.emit(handler::<Yield>(), &[], &[], 0);
            Ok(())
        }
        other => Err(Refusal::new(format!(
            "the instruction {other} is not supported"
        ))),
    }
}

/// The immediate is the target.
struct Branch;
impl Handler for Branch {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let target = inst.immediate as u32;
        if core.mask == core.active {
            core.target = target;
            return Flow::Jump;
        }
        core.split(core.mask, target);
        Flow::Schedule
    }
}

/// The most targets of a function's indexed branches, each branch counted.
const MOST_TARGETS: usize = 1 << 20;

fn indexed_branch(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !form.take("idx") {
        return Err(Refusal::new("expected brx.idx"));
    }
    form.done()?;
    form.expect_operands(2)?;
    let index = builder.read(form, 0, Type::U32)?;
    let labels = match &form.operands[1] {
        Operand::Table(table) => match builder.body.tables.get(*table as usize) {
            Some(Table::Branches(labels)) => labels.clone(),
            _ => return Err(Refusal::new("expected a list of branch targets")),
        },
        _ => return Err(Refusal::new("expected a list of branch targets")),
    };
    let targets: usize = builder.branch_tables.iter().map(Vec::len).sum();
    if targets + labels.len() > MOST_TARGETS {
        return Err(Refusal::new(format!(
            "the function's brx.idx have more than {MOST_TARGETS} targets together"
        )));
    }
    let table = builder.branch_tables.len() as u64;
    builder.branch_tables.push(labels.clone());
    let guarded = builder.guard.is_some();
    builder.emit(handler::<IndexedBranch>(), &[], &[index], table);
    builder.last().successor = if guarded {
        Successor::Labels(labels)
    } else {
        Successor::Jump(labels)
    };
    Ok(())
}

/// `slots = [index]`, the immediate is a table.
struct IndexedBranch;
impl Handler for IndexedBranch {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid out a word.
        let indices = unsafe { *core.read::<u32>(inst.slots[0]) };
        let table = &core.code.branch_tables[inst.immediate as usize];
        let mut left = core.mask;
        let all = left == core.active;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let Some(&target) = table.get(indices[lane] as usize) else {
                let message = format!("brx.idx of {} with {} targets", indices[lane], table.len());
                return core.fail(inst, lane, FaultKind::InvalidPc, message);
            };
            let mask = same(&indices, left);
            if all && mask == core.active {
                core.target = target;
                return Flow::Jump;
            }
            core.split(mask, target);
            left &= !mask;
        }
        Flow::Schedule
    }
}

struct Return;
impl Handler for Return {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, _inst: &Inst) -> Flow {
        core.return_(core.mask);
        Flow::Schedule
    }
}

struct Exit;
impl Handler for Exit {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, _inst: &Inst) -> Flow {
        core.exit(core.mask);
        Flow::Schedule
    }
}

struct Trap;
impl Handler for Trap {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let lane = core.mask.trailing_zeros() as usize;
        core.fail(
            inst,
            lane,
            FaultKind::LaunchFailed,
            "the kernel executed a trap".to_string(),
        )
    }
}

struct Nothing;
impl Handler for Nothing {
    #[inline(always)]
    unsafe fn run(_core: &mut Core<'_>, _inst: &Inst) -> Flow {
        Flow::Next
    }
}

/// Lets others run: another group, warp or block.
struct Yield;
impl Handler for Yield {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, _inst: &Inst) -> Flow {
        core.yielded = true;
        let_others_run(core)
    }
}

fn call(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    form.done()?;
    let (results, callee, arguments, table) = match form.operands {
        [Operand::Group(results), callee, Operand::Group(arguments)] => {
            (results, callee, arguments, None)
        }
        [
            Operand::Group(results),
            callee,
            Operand::Group(arguments),
            Operand::Table(table),
        ] => (results, callee, arguments, Some(*table)),
        _ => return Err(Refusal::new("expected results, a function and arguments")),
    };
    let (params, returns) = match callee {
        Operand::Symbol(Symbol::Function(index), 0) => {
            let function = &builder.module.functions[*index as usize];
            (&function.params, &function.returns)
        }
        _ => match table.map(|table| &builder.body.tables[table as usize]) {
            Some(Table::Prototype { returns, params }) => (params, returns),
            Some(Table::Calls(functions)) if !functions.is_empty() => {
                let function = &builder.module.functions[functions[0] as usize];
                (&function.params, &function.returns)
            }
            _ => {
                return Err(Refusal::new(
                    "an indirect call needs a prototype or a list of targets",
                ));
            }
        },
    };
    let after = results;
    let results = places(results, returns, builder)?;
    let arguments_given = arguments;
    let arguments = places(arguments, params, builder)?;
    for ((operand, place), param) in arguments_given.iter().zip(&arguments).zip(params) {
        if !is_variable(operand) {
            memory::store_local(builder, operand, param.ty, u64::from(place.0))?;
        }
    }
    let loads: Vec<(&Operand, Type, u64)> = after
        .iter()
        .zip(&results)
        .zip(returns)
        .filter(|((operand, _), _)| !is_variable(operand))
        .map(|((operand, place), variable)| (operand, variable.ty, u64::from(place.0)))
        .collect();
    let sizes = |places: &[(u32, u32)]| places.iter().map(|place| place.1).collect::<Vec<_>>();
    let check = |name: &str, what: &str, given: &[(u32, u32)], wanted: Vec<u32>| {
        if sizes(given) == wanted {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "{name} has {what} of {wanted:?} bytes, the call has {:?}",
            sizes(given)
        )))
    };
    let of = |variables: &[crate::ptx::ast::Variable]| {
        variables
            .iter()
            .map(|variable| variable.size.unwrap_or(0) as u32)
            .collect::<Vec<_>>()
    };
    let site = builder.calls.len() as u64;
    match callee {
        Operand::Symbol(Symbol::Function(index), 0) => {
            let function = &builder.module.functions[*index as usize];
            check(
                &function.name,
                "parameters",
                &arguments,
                of(&function.params),
            )?;
            check(&function.name, "results", &results, of(&function.returns))?;
            builder.calls.push(CallSite {
                callee: Some(*index),
                arguments,
                results,
            });
            if function.body.is_some() {
                builder.emit(handler::<Call>(), &[], &[], site);
                return load_results(&loads, builder);
            }
            let name = function.name.clone();
            if super::print::extern_call(&name).is_none() {
                return Err(Refusal::new(format!(
                    "the function {name} is declared but not defined"
                )));
            }
            let text = builder.text(name);
            builder.emit(handler::<ExternCall>(), &[], &[], site | text << 32);
            load_results(&loads, builder)
        }
        operand => {
            let address = builder.source(operand, Type::U64)?;
            builder.calls.push(CallSite {
                callee: None,
                arguments,
                results,
            });
            builder.emit(handler::<IndirectCall>(), &[], &[address], site);
            load_results(&loads, builder)
        }
    }
}

/// Copies results into registers.
fn load_results(loads: &[(&Operand, Type, u64)], builder: &mut Builder<'_>) -> Result<(), Refusal> {
    loads
        .iter()
        .try_for_each(|&(operand, ty, place)| memory::load_local(builder, operand, ty, place))
}

/// Whether a call's operand is a variable, whose memory is passed; registers and constants are copied.
fn is_variable(operand: &Operand) -> bool {
    matches!(operand, Operand::Symbol(Symbol::Body(_), 0))
}

/// Offsets and sizes of a call's variables in local memory. Registers and constants have memory of their own there,
/// as large as the parameters.
fn places(
    operands: &[Operand],
    variables: &[Variable],
    builder: &mut Builder<'_>,
) -> Result<Vec<(u32, u32)>, Refusal> {
    let mut places = Vec::with_capacity(operands.len());
    for (index, operand) in operands.iter().enumerate() {
        if let Operand::Symbol(symbol @ Symbol::Body(number), 0) = operand {
            let variable = &builder.body.variables[*number as usize];
            let (Space::Param, Place::Local(offset)) = (variable.space, builder.place(*symbol)?)
            else {
                return Err(Refusal::new("a call passes variables of the param space"));
            };
            places.push((offset as u32, variable.size.unwrap_or(0) as u32));
            continue;
        }
        let size = variables
            .get(index)
            .map_or(0, |variable| u64::from(variable.ty.size()));
        if !matches!(size, 1 | 2 | 4 | 8) || variables[index].size != Some(size) {
            return Err(Refusal::new(format!(
                "operand {} of the call is no variable, so the parameter must be a single number",
                index + 1
            )));
        }
        let start = builder.local_end.next_multiple_of(size);
        builder.local_end = start + size;
        places.push((start as u32, size as u32));
    }
    Ok(places)
}

/// The immediate is the call site.
struct Call;
impl Handler for Call {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let site = inst.immediate as u32;
        let callee = core.code.calls[site as usize].callee.unwrap_or(u32::MAX);
        core.call(inst, core.mask, callee, site)
    }
}

/// `slots = [address]`, the immediate is the call site.
struct IndirectCall;
impl Handler for IndirectCall {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid out 64 bits.
        let addresses = unsafe { *core.read::<u64>(inst.slots[0]) };
        let site = inst.immediate as u32;
        let mut left = core.mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let address = addresses[lane];
            let mask = same(&addresses, left);
            left &= !mask;
            let offset = address.wrapping_sub(FUNCTION_WINDOW);
            let index = if offset % 16 == 0 {
                u32::try_from(offset / 16).unwrap_or(u32::MAX)
            } else {
                u32::MAX
            };
            let kernel = core.launch.kernel;
            let site_info = &core.code.calls[site as usize];
            let fits = kernel
                .functions
                .get(index as usize)
                .and_then(Option::as_ref)
                .is_some_and(|code| {
                    let sizes = |places: &[(u32, u32)]| {
                        places.iter().map(|place| place.1).collect::<Vec<_>>()
                    };
                    sizes(&site_info.arguments) == sizes(&code.params)
                        && sizes(&site_info.results) == sizes(&code.returns)
                });
            if !fits {
                let message = format!(
                    "indirect call of {address:#x}, which is no function with these parameters"
                );
                return core.fail(inst, lane, FaultKind::InvalidPc, message);
            }
            if core.call(inst, mask, index, site) == Flow::Fault {
                return Flow::Fault;
            }
        }
        Flow::Schedule
    }
}

/// The immediate is the call site, and above it the index of the function's name.
struct ExternCall;
impl Handler for ExternCall {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        extern_call(core, inst)
    }
}

#[inline(never)]
fn extern_call(core: &mut Core<'_>, inst: &Inst) -> Flow {
    let code = core.code;
    let site = &code.calls[inst.immediate as u32 as usize];
    let name = &code.texts[(inst.immediate >> 32) as usize];
    let Some(function) = super::print::extern_call(name) else {
        return core.fail(
            inst,
            0,
            FaultKind::InvalidPc,
            format!("{name} is not defined"),
        );
    };
    let (base, mask) = (core.local_base, core.mask);
    for lane in lanes_of(mask) {
        let arguments: Vec<Vec<u8>> = site
            .arguments
            .iter()
            .map(|&(offset, size)| core.warp.local.bytes(lane, base + offset, size).to_vec())
            .collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        match function(core, inst, lane, &arguments) {
            Ok(result) => {
                if let Some(&(offset, size)) = site.results.first() {
                    let target = core.warp.local.bytes(lane, base + offset, size);
                    let length = result.len().min(target.len());
                    target[..length].copy_from_slice(&result[..length]);
                }
            }
            Err(flow) => return flow,
        }
    }
    Flow::Next
}
