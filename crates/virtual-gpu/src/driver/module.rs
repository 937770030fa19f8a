//! Modules: PTX parsed and checked when it is loaded, its variables given memory, its kernels decoded when asked for.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::{Arc, OnceLock};

use super::abi::{Handle, list, put, put_if, text};
use super::call::{Call, handle, number};
use super::device_runtime;
use super::error::{Failure, Outcome, code};
use super::state::State;
use crate::decode::{self, DecodeError};
use crate::device::address_space::Origin;
use crate::exec::code::{FUNCTION_WINDOW, Kernel};
use crate::ptx::{self, ast};

/// A module in a context.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its context.
    pub(crate) context: u64,
    /// What was parsed.
    pub(crate) parsed: Arc<ast::Module>,
    /// Device addresses of its variables; 0 for shared ones.
    pub(crate) addresses: Arc<[u64]>,
    /// Handles of the kernels that were asked for.
    pub(crate) functions: HashMap<u32, u64>,
}

/// A kernel in a context.
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its name for C.
    pub(crate) c_name: CString,
    /// Its module.
    pub(crate) module: u64,
    /// Its context.
    pub(crate) context: u64,
    /// What was parsed.
    pub(crate) parsed: Arc<ast::Module>,
    addresses: Arc<[u64]>,
    /// Its index in the module.
    pub(crate) index: u32,
    kernel: OnceLock<Result<Kernel, DecodeError>>,
    /// Dynamic shared memory that was asked for; `u32::MAX` if nothing was.
    pub(crate) dynamic_shared: AtomicU32,
    /// The share of shared memory that was asked for; -1 if nothing was.
    pub(crate) carveout: AtomicI32,
}

impl fmt::Debug for Function {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Function({})", self.name)
    }
}

impl Function {
    /// The decoded kernel; decoded at the first call.
    pub(crate) fn kernel(&self) -> Result<&Kernel, &DecodeError> {
        let decode = || decode::kernel(&self.parsed, self.index, &self.addresses);
        self.kernel.get_or_init(decode).as_ref()
    }

    /// The decoded kernel, or the failure that the driver answers with.
    pub(crate) fn decoded(&self) -> Outcome<&Kernel> {
        self.kernel()
            .map_err(|error| Failure::new(code::INVALID_PTX, error.to_string()))
    }
}

/// Options of a load or link, as far as they matter: where the texts go, and the most registers of a thread.
#[derive(Debug, Default)]
pub(crate) struct JitLogs {
    info: Option<(*mut c_char, usize)>,
    error: Option<(*mut c_char, usize)>,
    /// Where the lengths of the texts are written to.
    values: *mut *mut c_void,
    info_length: Option<usize>,
    error_length: Option<usize>,
    /// The most registers that a thread may have.
    pub(crate) max_registers: Option<u32>,
}

impl JitLogs {
    /// Reads options.
    ///
    /// # Safety
    /// Both lists have `count` elements, and the values are what the options say.
    pub(crate) unsafe fn read(
        count: c_uint,
        options: *const c_uint,
        values: *mut *mut c_void,
    ) -> Outcome<JitLogs> {
        // SAFETY: the caller's promise.
        let (options, given) = unsafe {
            let count = count as usize;
            (
                list(options, count, "options")?,
                list(values.cast_const(), count, "optionValues")?,
            )
        };
        let value_of = |option| {
            options
                .iter()
                .position(|other| *other == option)
                .map(|index| given[index])
        };
        let place_of = |option| options.iter().position(|other| *other == option);
        let buffer = |buffer, size| {
            let (buffer, size) = (value_of(buffer)?, value_of(size)?);
            // The size is passed in place of a pointer, as 32 bits.
            Some((buffer.cast::<c_char>(), size as usize & 0xffff_ffff))
        };
        Ok(JitLogs {
            info: buffer(3, 4),
            error: buffer(5, 6),
            values,
            info_length: place_of(4),
            error_length: place_of(6),
            max_registers: value_of(0)
                .map(|value| value as usize as u32)
                .filter(|&most| most > 0),
        })
    }

    /// Writes the texts and their lengths.
    ///
    /// # Safety
    /// The buffers and values that were read are still there.
    pub(crate) unsafe fn write(&self, info: &str, error: &str) {
        let texts = [
            (self.info, self.info_length, info),
            (self.error, self.error_length, error),
        ];
        for (buffer, place, text) in texts {
            let Some((buffer, size)) =
                buffer.filter(|(buffer, size)| !buffer.is_null() && *size > 0)
            else {
                continue;
            };
            let length = text.len().min(size - 1);
            // SAFETY: the buffer has `size` bytes, and `place` is an index of the values (the caller's promise).
            unsafe {
                buffer
                    .cast::<u8>()
                    .copy_from_nonoverlapping(text.as_ptr(), length);
                buffer.add(length).write(0);
                if let Some(place) = place {
                    self.values.add(place).write_unaligned(if text.is_empty() {
                        0
                    } else {
                        length + 1
                    } as *mut c_void);
                }
            }
        }
    }
}

/// The text of an image that an application hands over.
///
/// # Safety
/// The image is null, or PTX that ends with a zero, or machine code with its header.
pub(crate) unsafe fn image_text<'i>(image: *const c_void) -> Outcome<&'i str> {
    if image.is_null() {
        return Err(Failure::invalid("the image is null"));
    }
    // SAFETY: an image has at least a byte, and a text or a header more than four unless a zero ends it before.
    let start: Vec<u8> = unsafe {
        let bytes = image.cast::<u8>();
        (0..4)
            .map_while(|index| Some(bytes.add(index).read()).filter(|byte| *byte != 0))
            .collect()
    };
    let machine_code = match start[..] {
        [0x7f, b'E', b'L', b'F'] => Some("a cubin"),
        [0x50, 0xed, 0x55, 0xba] => Some("a fat binary"),
        [0xb1, 0x43, 0x62, 0x46] => Some("the wrapper of a fat binary"),
        _ => None,
    };
    if let Some(what) = machine_code {
        let message =
            format!("the image is {what}; the virtual GPU executes PTX, so hand it the PTX text");
        return Err(Failure::new(code::NO_BINARY_FOR_GPU, message));
    }
    // SAFETY: it is a text, which ends with a zero.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    text.to_str().map_err(|_| {
        Failure::new(
            code::INVALID_IMAGE,
            "the image is neither PTX nor anything known",
        )
    })
}

/// The newest PTX that a CUDA version loads.
fn newest_ptx(driver_version: i32) -> (u32, u32) {
    match driver_version {
        ..12000 => (7, driver_version as u32 / 10 % 100),
        12000..12060 => (8, driver_version as u32 / 10 % 100),
        12060..12080 => (8, 5),
        12080..12090 => (8, 7),
        12090..13000 => (8, 8),
        _ => (9, driver_version as u32 / 10 % 100),
    }
}

/// What the linker writes before its result, with the most registers of a thread: the result is PTX, which would have
/// no other place for it.
pub(crate) const MAX_REGISTERS_LINE: &str = "// max-registers ";

/// Holds the kernels to a number of registers, as far as they are not held to fewer.
fn limit_registers(module: &mut ast::Module, most: Option<u32>) {
    let Some(most) = most else { return };
    for function in &mut module.functions {
        function.max_registers = Some(function.max_registers.map_or(most, |own| own.min(most)));
    }
}

/// Parses a text and checks that the driver and the devices may run it.
pub(crate) fn parse(
    call: &Call<'_>,
    text: &str,
    max_registers: Option<u32>,
) -> Outcome<Arc<ast::Module>> {
    let settings = &call.machine.settings;
    let read = |text: &str| {
        ptx::parse(text).map_err(|error| Failure::new(code::INVALID_PTX, error.to_string()))
    };
    let mut module = read(text)?;
    if let Some(whole) = device_runtime::completed(text, &module) {
        module = read(&whole)?;
    }
    let newest = newest_ptx(settings.driver_version);
    if module.version > newest {
        let ((major, minor), (most, least)) = (module.version, newest);
        let message = format!(
            "the PTX is of version {major}.{minor}; a driver of this CUDA version loads up to {most}.{least}"
        );
        return Err(Failure::new(code::UNSUPPORTED_PTX_VERSION, message));
    }
    let (major, minor) = settings.capability;
    let device = major * 10 + minor;
    if module.target > device || module.target_suffix.is_some() && module.target != device {
        let suffix = module.target_suffix.map(String::from).unwrap_or_default();
        let message = format!(
            "the PTX is for sm_{}{suffix}, the device is sm_{device}",
            module.target
        );
        return Err(Failure::new(code::INVALID_PTX, message));
    }
    if module.address_size != 64 {
        return Err(Failure::new(
            code::INVALID_PTX,
            "the PTX is for 32-bit addresses",
        ));
    }
    limit_registers(&mut module, max_registers);
    let linked = text.lines().next().unwrap_or_default();
    let linked = linked.strip_prefix(MAX_REGISTERS_LINE);
    limit_registers(&mut module, linked.and_then(|most| most.parse().ok()));
    Ok(Arc::new(module))
}

/// Makes a module of a parsed text in a context.
pub(crate) fn instantiate(
    call: &Call<'_>,
    state: &mut State,
    context: u64,
    parsed: &Arc<ast::Module>,
) -> Outcome<u64> {
    let device = state.context(context)?.device;
    let mut addresses = Vec::with_capacity(parsed.variables.len());
    for variable in &parsed.variables {
        let address = match variable.space {
            ast::Space::Shared => 0,
            _ if variable.linkage == ast::Linkage::Extern => {
                let message = format!(
                    "line {}: {} is declared extern and nothing defines it; link the module that does",
                    variable.line, variable.name
                );
                release(call, state, device, &addresses);
                return Err(Failure::new(code::INVALID_PTX, message));
            }
            _ => {
                let size = variable.size.unwrap_or(0).max(1);
                match state.allocate(call.machine, device, size, Origin::Module, context) {
                    Ok(address) => address,
                    Err(failure) => {
                        release(call, state, device, &addresses);
                        return Err(failure);
                    }
                }
            }
        };
        addresses.push(address);
    }
    for (variable, &address) in parsed.variables.iter().zip(&addresses) {
        if address != 0 {
            initialize(state, device, variable, address, &addresses);
        }
    }
    let module = Module {
        context,
        parsed: parsed.clone(),
        addresses: addresses.into(),
        functions: HashMap::new(),
    };
    let handle = state.new_handle();
    state.modules.insert(handle, module);
    Ok(handle)
}

fn release(call: &Call<'_>, state: &mut State, device: usize, addresses: &[u64]) {
    for &address in addresses {
        state.devices[device].memory.release(address, call.number());
    }
}

/// Writes a variable's initial value.
fn initialize(
    state: &State,
    device: usize,
    variable: &ast::Variable,
    address: u64,
    addresses: &[u64],
) {
    let Some((start, allocation)) = state.devices[device].memory.find(address) else {
        return;
    };
    let element = variable.ty.size() as usize;
    let given = variable.init.len().saturating_mul(element);
    let mut bytes = vec![0u8; given.min(allocation.size as usize)];
    for (index, init) in variable.init.iter().enumerate() {
        let bits = init.bits(|symbol| match symbol {
            ast::Symbol::Function(function) => FUNCTION_WINDOW + 16 * u64::from(function),
            ast::Symbol::Module(other) => addresses.get(other as usize).copied().unwrap_or(0),
            _ => 0,
        });
        let source = bits.to_le_bytes();
        if let Some(target) = bytes.get_mut(index * element..(index + 1) * element) {
            target.copy_from_slice(&source[..element.min(8)]);
        }
    }
    state.devices[device].memory.zero(start);
    let region = allocation.region(start);
    // SAFETY: the allocation has at least that many bytes, and is not known to anyone yet.
    unsafe {
        region
            .host
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    if let Some(shadow) = &allocation.shadow {
        shadow.mark_written(0, allocation.size);
    }
}

/// Takes a module out of a context. Its kernels are gone with it.
pub(crate) fn unload(call: &Call<'_>, state: &mut State, module: u64) {
    let Some(old) = state.modules.remove(&module) else {
        return;
    };
    for function in old.functions.values() {
        state.functions.remove(function);
    }
    if let Some(device) = state
        .contexts
        .get(&old.context)
        .map(|context| context.device)
    {
        release(call, state, device, &old.addresses);
    }
}

/// The handle of a module's kernel.
pub(crate) fn function_handle(state: &mut State, module: u64, index: u32) -> Outcome<u64> {
    let missing = state.unknown("module", module);
    let Some(owner) = state.modules.get(&module) else {
        return Err(missing);
    };
    if let Some(&known) = owner.functions.get(&index) {
        return Ok(known);
    }
    let name = &owner.parsed.functions[index as usize].name;
    let function = Function {
        name: Arc::from(name.as_str()),
        c_name: CString::new(name.as_str()).unwrap_or_default(),
        module,
        context: owner.context,
        parsed: owner.parsed.clone(),
        addresses: owner.addresses.clone(),
        index,
        kernel: OnceLock::new(),
        dynamic_shared: AtomicU32::new(u32::MAX),
        carveout: AtomicI32::new(-1),
    };
    let handle = state.new_handle();
    state.functions.insert(handle, Arc::new(function));
    state
        .modules
        .get_mut(&module)
        .expect("looked up above")
        .functions
        .insert(index, handle);
    Ok(handle)
}

/// The index of a kernel that has a body.
pub(crate) fn kernel_index(parsed: &ast::Module, name: &str) -> Option<u32> {
    let found = parsed
        .functions
        .iter()
        .position(|f| f.entry && f.body.is_some() && f.name == name)?;
    Some(found as u32)
}

/// The failure for a name that a module does not have.
pub(crate) fn no_symbol(what: &str, name: &str, parsed: &ast::Module) -> Failure {
    let names: Vec<&str> = match what {
        "kernel" => parsed
            .functions
            .iter()
            .filter(|f| f.entry)
            .map(|f| f.name.as_str())
            .take(5)
            .collect(),
        _ => parsed
            .variables
            .iter()
            .map(|variable| variable.name.as_str())
            .take(5)
            .collect(),
    };
    Failure::new(
        code::NOT_FOUND,
        format!(
            "the module has no {what} {name:?}; it has {}",
            names.join(", ")
        ),
    )
}

unsafe fn load(
    call: &Call<'_>,
    module: *mut Handle,
    image: *const c_void,
    logs: &JitLogs,
) -> Outcome {
    let (state, context) = call.current()?;
    drop(state);
    if module.is_null() {
        return Err(Failure::invalid("module is null"));
    }
    // SAFETY: the C interface's contract.
    let parsed =
        unsafe { image_text(image) }.and_then(|text| parse(call, text, logs.max_registers));
    let loaded =
        parsed.and_then(|parsed| instantiate(call, &mut call.machine.state(), context, &parsed));
    let error = match &loaded {
        Ok(_) => "",
        Err(failure) => failure.message.as_deref().unwrap_or(""),
    };
    // SAFETY: the C interface's contract.
    unsafe {
        logs.write("", error);
        put(module, handle(loaded?), "module")
    }
}

pub(super) unsafe fn cuModuleLoad(
    call: &Call<'_>,
    module: *mut Handle,
    fname: *const c_char,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let image = read_file(text(fname, "fname")?)?;
        load(call, module, image.as_ptr().cast(), &JitLogs::default())
    }
}

/// A file's bytes, with a zero at the end.
pub(crate) fn read_file(path: &str) -> Outcome<Vec<u8>> {
    let mut bytes = std::fs::read(path)
        .map_err(|error| Failure::new(code::FILE_NOT_FOUND, format!("{path}: {error}")))?;
    bytes.push(0);
    Ok(bytes)
}

pub(super) unsafe fn cuModuleLoadData(
    call: &Call<'_>,
    module: *mut Handle,
    image: *const c_void,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { load(call, module, image, &JitLogs::default()) }
}

pub(super) unsafe fn cuModuleLoadDataEx(
    call: &Call<'_>,
    module: *mut Handle,
    image: *const c_void,
    num_options: c_uint,
    options: *mut c_uint,
    option_values: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let logs = JitLogs::read(num_options, options, option_values)?;
        load(call, module, image, &logs)
    }
}

pub(super) unsafe fn cuModuleLoadFatBinary(
    call: &Call<'_>,
    module: *mut Handle,
    fat_cubin: *const c_void,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { load(call, module, fat_cubin, &JitLogs::default()) }
}

pub(super) unsafe fn cuModuleUnload(call: &Call<'_>, hmod: Handle) -> Outcome {
    // The module's own context counts: programs unload after they have popped it.
    let state = call.state()?;
    let module = number(hmod);
    let Some(context) = state.modules.get(&module).map(|module| module.context) else {
        return Err(state.unknown("module", module));
    };
    let mut state = call.wait_for_context(state, context)?;
    unload(call, &mut state, module);
    Ok(())
}

pub(super) unsafe fn cuModuleGetFunction(
    call: &Call<'_>,
    hfunc: *mut Handle,
    hmod: Handle,
    name: *const c_char,
) -> Outcome {
    let (mut state, _) = call.current()?;
    // SAFETY: the C interface's contract.
    let name = unsafe { text(name, "name")? };
    let module = number(hmod);
    let Some(owner) = state.modules.get(&module) else {
        return Err(state.unknown("module", module));
    };
    let index = kernel_index(&owner.parsed, name)
        .ok_or_else(|| no_symbol("kernel", name, &owner.parsed))?;
    let found = function_handle(&mut state, module, index)?;
    let function = state.functions[&found].clone();
    drop(state);
    // An instruction that cannot be executed is an error here, not at the launch.
    function.decoded()?;
    // SAFETY: the C interface's contract.
    unsafe { put(hfunc, handle(found), "hfunc") }
}

/// The address and size of a module's variable.
pub(crate) fn variable(module: &Module, name: &str) -> Outcome<(u64, u64)> {
    let variables = module.parsed.variables.iter().zip(module.addresses.iter());
    let found = variables
        .filter(|(_, address)| **address != 0)
        .find(|(variable, _)| variable.name == name);
    let (variable, &address) = found.ok_or_else(|| no_symbol("variable", name, &module.parsed))?;
    Ok((address, variable.size.unwrap_or(0)))
}

pub(super) unsafe fn cuModuleGetGlobal_v2(
    call: &Call<'_>,
    dptr: *mut u64,
    bytes: *mut usize,
    hmod: Handle,
    name: *const c_char,
) -> Outcome {
    let (state, _) = call.current()?;
    // SAFETY: the C interface's contract.
    let name = unsafe { text(name, "name")? };
    let module = state
        .modules
        .get(&number(hmod))
        .ok_or_else(|| state.unknown("module", number(hmod)))?;
    let (address, size) = variable(module, name)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(dptr, address);
        put_if(bytes, size as usize);
    }
    Ok(())
}

pub(super) unsafe fn cuModuleGetLoadingMode(_call: &Call<'_>, mode: *mut c_uint) -> Outcome {
    // Kernels are decoded when they are asked for.
    // SAFETY: the C interface's contract.
    unsafe { put(mode, 2, "mode") }
}

/// Indices of a module's kernels.
pub(crate) fn kernels(parsed: &ast::Module) -> Vec<u32> {
    let all = parsed.functions.iter().enumerate();
    all.filter(|(_, function)| function.entry && function.body.is_some())
        .map(|(index, _)| index as u32)
        .collect()
}

pub(super) unsafe fn cuModuleGetFunctionCount(
    call: &Call<'_>,
    count: *mut c_uint,
    hmod: Handle,
) -> Outcome {
    let (state, _) = call.current()?;
    let module = state
        .modules
        .get(&number(hmod))
        .ok_or_else(|| state.unknown("module", number(hmod)))?;
    // SAFETY: the C interface's contract.
    unsafe { put(count, kernels(&module.parsed).len() as c_uint, "count") }
}

pub(super) unsafe fn cuModuleEnumerateFunctions(
    call: &Call<'_>,
    functions: *mut Handle,
    num_functions: c_uint,
    hmod: Handle,
) -> Outcome {
    let (mut state, _) = call.current()?;
    let module = state
        .modules
        .get(&number(hmod))
        .ok_or_else(|| state.unknown("module", number(hmod)))?;
    for (place, index) in kernels(&module.parsed)
        .into_iter()
        .take(num_functions as usize)
        .enumerate()
    {
        let found = function_handle(&mut state, number(hmod), index)?;
        // SAFETY: the C interface's contract: the list has that many places.
        unsafe { put(functions.wrapping_add(place), handle(found), "functions")? };
    }
    Ok(())
}
