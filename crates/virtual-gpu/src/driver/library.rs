//! Libraries, which are modules of every context that asks, and the linker, which hands PTX back.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::abi::{Handle, put, put_if, text};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::function;
use super::module::{
    self, Function, JitLogs, MAX_REGISTERS_LINE, image_text, kernel_index, no_symbol, parse,
    read_file, variable,
};
use super::state::State;
use crate::ptx::ast;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    /// What was parsed.
    pub(crate) parsed: Arc<ast::Module>,
    /// Its module in each context that asked for it.
    pub(crate) modules: HashMap<u64, u64>,
    /// Handles of its kernels, by name.
    kernels: HashMap<Arc<str>, u64>,
}

/// PTX texts on their way to become one.
#[derive(Debug, Default)]
pub(crate) struct Link {
    texts: Vec<String>,
    /// The most registers that a thread may have.
    max_registers: Option<u32>,
    /// The result, which lives as long as the link.
    linked: Option<CString>,
}

/// The library's module in a context.
fn module_in(call: &Call<'_>, state: &mut State, context: u64, library: u64) -> Outcome<u64> {
    let missing = state.unknown("library", library);
    let found = state.libraries.get(&library).ok_or(missing)?;
    if let Some(&module) = found.modules.get(&context) {
        return Ok(module);
    }
    let parsed = found.parsed.clone();
    let module = module::instantiate(call, state, context, &parsed)?;
    state
        .libraries
        .get_mut(&library)
        .expect("looked up above")
        .modules
        .insert(context, module);
    Ok(module)
}

/// The function of a library's kernel in a context.
pub(crate) fn function_in(
    call: &Call<'_>,
    state: &mut State,
    context: u64,
    kernel: u64,
) -> Outcome<u64> {
    let missing = state.unknown("kernel", kernel);
    let (library, name) = state.kernels.get(&kernel).cloned().ok_or(missing)?;
    let module = module_in(call, state, context, library)?;
    let parsed = &state.modules[&module].parsed;
    let index = kernel_index(parsed, &name).ok_or_else(|| no_symbol("kernel", &name, parsed))?;
    module::function_handle(state, module, index)
}

unsafe fn load(
    call: &Call<'_>,
    library: *mut Handle,
    code: *const c_void,
    options: (*mut c_uint, *mut *mut c_void, c_uint),
) -> Outcome {
    drop(call.state()?);
    // SAFETY: the C interface's contract.
    unsafe {
        let logs = JitLogs::read(options.2, options.0, options.1)?;
        let parsed = image_text(code).and_then(|text| parse(call, text, logs.max_registers));
        let error = parsed
            .as_ref()
            .err()
            .and_then(|failure| failure.message.as_deref())
            .unwrap_or("");
        logs.write("", error);
        let parsed = parsed?;
        let mut state = call.machine.state();
        let new = state.new_handle();
        put(library, handle(new), "library")?;
        state.libraries.insert(
            new,
            Library {
                parsed,
                modules: HashMap::new(),
                kernels: HashMap::new(),
            },
        );
    }
    Ok(())
}

pub(super) unsafe fn cuLibraryLoadData(
    call: &Call<'_>,
    library: *mut Handle,
    code: *const c_void,
    jit_options: *mut c_uint,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    _library_options: *mut c_uint,
    _library_option_values: *mut *mut c_void,
    _num_library_options: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        load(
            call,
            library,
            code,
            (jit_options, jit_options_values, num_jit_options),
        )
    }
}

pub(super) unsafe fn cuLibraryLoadFromFile(
    call: &Call<'_>,
    library: *mut Handle,
    file_name: *const c_char,
    jit_options: *mut c_uint,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    _library_options: *mut c_uint,
    _library_option_values: *mut *mut c_void,
    _num_library_options: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let image = read_file(text(file_name, "fileName")?)?;
        load(
            call,
            library,
            image.as_ptr().cast(),
            (jit_options, jit_options_values, num_jit_options),
        )
    }
}

pub(super) unsafe fn cuLibraryUnload(call: &Call<'_>, library: Handle) -> Outcome {
    let mut state = call.state()?;
    let contexts: Vec<u64> = match state.libraries.get(&number(library)) {
        Some(found) => found.modules.keys().copied().collect(),
        None => return Err(state.unknown("library", number(library))),
    };
    for context in contexts {
        state = call.drain_context(state, context);
    }
    let Some(old) = state.libraries.remove(&number(library)) else {
        return Ok(());
    };
    for module in old.modules.values() {
        module::unload(call, &mut state, *module);
    }
    state
        .kernels
        .retain(|_, (owner, _)| *owner != number(library));
    Ok(())
}

/// The handle of a library's kernel.
fn kernel_handle(state: &mut State, library: u64, name: &str) -> Outcome<u64> {
    let missing = state.unknown("library", library);
    let found = state.libraries.get(&library).ok_or(missing)?;
    if let Some(&known) = found.kernels.get(name) {
        return Ok(known);
    }
    kernel_index(&found.parsed, name).ok_or_else(|| no_symbol("kernel", name, &found.parsed))?;
    let (new, name) = (state.new_handle(), Arc::<str>::from(name));
    state
        .libraries
        .get_mut(&library)
        .expect("looked up above")
        .kernels
        .insert(name.clone(), new);
    state.kernels.insert(new, (library, name));
    Ok(new)
}

pub(super) unsafe fn cuLibraryGetKernel(
    call: &Call<'_>,
    p_kernel: *mut Handle,
    library: Handle,
    name: *const c_char,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            p_kernel,
            handle(kernel_handle(
                &mut state,
                number(library),
                text(name, "name")?,
            )?),
            "pKernel",
        )
    }
}

pub(super) unsafe fn cuLibraryGetKernelCount(
    call: &Call<'_>,
    count: *mut c_uint,
    lib: Handle,
) -> Outcome {
    let state = call.state()?;
    let found = state
        .libraries
        .get(&number(lib))
        .ok_or_else(|| state.unknown("library", number(lib)))?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            count,
            module::kernels(&found.parsed).len() as c_uint,
            "count",
        )
    }
}

pub(super) unsafe fn cuLibraryEnumerateKernels(
    call: &Call<'_>,
    kernels: *mut Handle,
    num_kernels: c_uint,
    lib: Handle,
) -> Outcome {
    let mut state = call.state()?;
    let found = state
        .libraries
        .get(&number(lib))
        .ok_or_else(|| state.unknown("library", number(lib)))?;
    let parsed = found.parsed.clone();
    for (place, index) in module::kernels(&parsed)
        .into_iter()
        .take(num_kernels as usize)
        .enumerate()
    {
        let kernel = kernel_handle(
            &mut state,
            number(lib),
            &parsed.functions[index as usize].name,
        )?;
        // SAFETY: the C interface's contract: the list has that many places.
        unsafe { put(kernels.wrapping_add(place), handle(kernel), "kernels")? };
    }
    Ok(())
}

pub(super) unsafe fn cuLibraryGetModule(
    call: &Call<'_>,
    p_mod: *mut Handle,
    library: Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            p_mod,
            handle(module_in(call, &mut state, context, number(library))?),
            "pMod",
        )
    }
}

pub(super) unsafe fn cuLibraryGetGlobal(
    call: &Call<'_>,
    dptr: *mut u64,
    bytes: *mut usize,
    library: Handle,
    name: *const c_char,
) -> Outcome {
    let (mut state, context) = call.current()?;
    // SAFETY: the C interface's contract.
    let name = unsafe { text(name, "name")? };
    let module = module_in(call, &mut state, context, number(library))?;
    let (address, size) = variable(&state.modules[&module], name)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(dptr, address);
        put_if(bytes, size as usize);
    }
    Ok(())
}

pub(super) unsafe fn cuKernelGetFunction(
    call: &Call<'_>,
    p_func: *mut Handle,
    kernel: Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let found = function_in(call, &mut state, context, number(kernel))?;
    let function = state.functions[&found].clone();
    drop(state);
    function.decoded()?;
    // SAFETY: the C interface's contract.
    unsafe { put(p_func, handle(found), "pFunc") }
}

pub(super) unsafe fn cuKernelGetLibrary(
    call: &Call<'_>,
    p_lib: *mut Handle,
    kernel: Handle,
) -> Outcome {
    let state = call.state()?;
    let found = state
        .kernels
        .get(&number(kernel))
        .ok_or_else(|| state.unknown("kernel", number(kernel)))?;
    // SAFETY: the C interface's contract.
    unsafe { put(p_lib, handle(found.0), "pLib") }
}

/// A kernel as a function of a device's primary context, or of the current context for null.
fn on_device(call: &Call<'_>, kernel: Handle, dev: Option<c_int>) -> Outcome<Arc<Function>> {
    let mut state = call.state()?;
    let current = call.top().filter(|&context| {
        let device = state.context(context).map(|context| context.device).ok();
        dev.is_none_or(|dev| device == usize::try_from(dev).ok())
    });
    let context = match (current, dev) {
        (Some(context), _) => context,
        (None, Some(dev)) => state.devices[state.device(dev)?].primary,
        (None, None) => {
            return Err(Failure::new(
                code::INVALID_CONTEXT,
                "no context is current to the thread",
            ));
        }
    };
    function::function(call, &mut state, context, kernel)
}

pub(super) unsafe fn cuKernelGetName(
    call: &Call<'_>,
    name: *mut *const c_char,
    hfunc: Handle,
) -> Outcome {
    let function = on_device(call, hfunc, None)?;
    // SAFETY: the C interface's contract.
    unsafe { put(name, function.c_name.as_ptr(), "name") }
}

pub(super) unsafe fn cuKernelGetAttribute(
    call: &Call<'_>,
    pi: *mut c_int,
    attrib: c_uint,
    kernel: Handle,
    dev: c_int,
) -> Outcome {
    let function = on_device(call, kernel, Some(dev))?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            pi,
            function::attribute(&function, attrib, &call.machine.settings)?,
            "pi",
        )
    }
}

pub(super) unsafe fn cuKernelSetAttribute(
    call: &Call<'_>,
    attrib: c_uint,
    val: c_int,
    kernel: Handle,
    dev: c_int,
) -> Outcome {
    let function = on_device(call, kernel, Some(dev))?;
    function::set_attribute(&function, attrib, val, &call.machine.settings)
}

pub(super) unsafe fn cuKernelSetCacheConfig(
    call: &Call<'_>,
    kernel: Handle,
    _config: c_uint,
    dev: c_int,
) -> Outcome {
    on_device(call, kernel, Some(dev)).map(drop)
}

pub(super) unsafe fn cuKernelGetParamInfo(
    call: &Call<'_>,
    kernel: Handle,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> Outcome {
    let function = on_device(call, kernel, None)?;
    // SAFETY: the C interface's contract.
    unsafe { function::parameter(&function, param_index, param_offset, param_size) }
}

pub(super) unsafe fn cuKernelGetParamCount(
    call: &Call<'_>,
    kernel: Handle,
    param_count: *mut usize,
) -> Outcome {
    let function = on_device(call, kernel, None)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            param_count,
            function.decoded()?.entry.params.len(),
            "paramCount",
        )
    }
}

pub(super) unsafe fn cuLinkCreate_v2(
    call: &Call<'_>,
    num_options: c_uint,
    options: *mut c_uint,
    option_values: *mut *mut c_void,
    state_out: *mut Handle,
) -> Outcome {
    let (mut state, _) = call.current()?;
    // SAFETY: the C interface's contract.
    let options = unsafe { JitLogs::read(num_options, options, option_values)? };
    let new = state.new_handle();
    // SAFETY: the C interface's contract.
    unsafe { put(state_out, handle(new), "stateOut")? };
    let link = Link {
        max_registers: options.max_registers,
        ..Link::default()
    };
    state.links.insert(new, link);
    Ok(())
}

/// Kinds of input of the linker: PTX, and the static library of device functions.
const INPUT_PTX: c_uint = 1;
const INPUT_LIBRARY: c_uint = 4;

fn add(call: &Call<'_>, link: Handle, kind: c_uint, text: &str, name: &str) -> Outcome {
    if kind != INPUT_PTX {
        let message = format!(
            "{name}: input of kind {kind}; the virtual GPU links PTX (kind {INPUT_PTX}) only"
        );
        return Err(Failure::new(code::NO_BINARY_FOR_GPU, message));
    }
    parse(call, text, None).map_err(|failure| {
        let message = failure.message.as_deref().unwrap_or("").to_string();
        Failure::new(failure.code, format!("{name}: {message}"))
    })?;
    let mut state = call.state()?;
    let missing = state.unknown("link", number(link));
    state
        .links
        .get_mut(&number(link))
        .ok_or(missing)?
        .texts
        .push(text.to_string());
    Ok(())
}

pub(super) unsafe fn cuLinkAddData_v2(
    call: &Call<'_>,
    state: Handle,
    kind: c_uint,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    _num_options: c_uint,
    _options: *mut c_uint,
    _option_values: *mut *mut c_void,
) -> Outcome {
    if data.is_null() || size == 0 {
        return Err(Failure::invalid("the data is null or has no bytes"));
    }
    // SAFETY: the C interface's contract.
    let (bytes, name) = unsafe {
        let name = if name.is_null() {
            "unnamed"
        } else {
            text(name, "name")?
        };
        (std::slice::from_raw_parts(data.cast::<u8>(), size), name)
    };
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(size);
    let content = std::str::from_utf8(&bytes[..end]);
    if kind == INPUT_PTX && content.is_err() {
        return Err(Failure::new(
            code::INVALID_PTX,
            format!("{name}: the PTX is not text"),
        ));
    }
    add(call, state, kind, content.unwrap_or(""), name)
}

pub(super) unsafe fn cuLinkAddFile_v2(
    call: &Call<'_>,
    state: Handle,
    kind: c_uint,
    path: *const c_char,
    _num_options: c_uint,
    _options: *mut c_uint,
    _option_values: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the C interface's contract.
    let path = unsafe { text(path, "path")? };
    let bytes = read_file(path)?;
    if kind == INPUT_LIBRARY && path.contains("cudadevrt") {
        // What it holds (synchronisation of a grid) the executor knows itself.
        return Ok(());
    }
    let content = std::str::from_utf8(&bytes[..bytes.len() - 1]).unwrap_or("");
    add(call, state, kind, content, path)
}

/// One text of several: the first one's header, and the bodies of all.
fn concatenated(texts: &[String]) -> String {
    let mut out = texts.first().cloned().unwrap_or_default();
    for text in texts.iter().skip(1) {
        out.push('\n');
        let is_header = |line: &str| {
            [".version", ".target", ".address_size"]
                .iter()
                .any(|word| line.trim_start().starts_with(word))
        };
        for line in text.lines().filter(|line| !is_header(line)) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

pub(super) unsafe fn cuLinkComplete(
    call: &Call<'_>,
    state: Handle,
    cubin_out: *mut *mut c_void,
    size_out: *mut usize,
) -> Outcome {
    let mut all = call.state()?;
    let missing = all.unknown("link", number(state));
    let link = all.links.get_mut(&number(state)).ok_or(missing)?;
    let text = concatenated(&link.texts);
    let text = match link.max_registers {
        Some(most) => format!("{MAX_REGISTERS_LINE}{most}\n{text}"),
        None => text,
    };
    if link.texts.len() > 1 {
        parse(call, &text, None)?;
    }
    let linked = CString::new(text)
        .map_err(|_| Failure::new(code::INVALID_PTX, "a zero within the text"))?;
    let (pointer, size) = (linked.as_ptr(), linked.as_bytes_with_nul().len());
    link.linked = Some(linked);
    // SAFETY: the C interface's contract.
    unsafe {
        put(cubin_out, pointer.cast_mut().cast(), "cubinOut")?;
        put_if(size_out, size);
    }
    Ok(())
}

pub(super) unsafe fn cuLinkDestroy(call: &Call<'_>, state: Handle) -> Outcome {
    let mut all = call.state()?;
    let missing = all.unknown("link", number(state));
    all.links.remove(&number(state)).map(drop).ok_or(missing)
}
