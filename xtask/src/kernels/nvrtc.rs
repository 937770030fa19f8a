//! NVIDIA's run-time compiler, loaded where it is found.
#![expect(unsafe_code, reason = "the compiler is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;

/// Where it is looked for first: the path of the library.
const VARIABLE: &str = "FIRECLAY_NVRTC";

type Program = *mut c_void;

/// The loaded compiler.
pub(super) struct Compiler {
    library: Library,
}

/// Calls a function of the library by its name and C signature.
macro_rules! call {
    ($compiler:expr, $name:expr, ($($argument:expr),*) : fn($($ty:ty),*)) => {{
        // SAFETY: the signature is that of NVRTC's public header, the same since CUDA 7.
        unsafe {
            let function = $compiler.library.get::<unsafe extern "C" fn($($ty),*) -> c_int>($name);
            let function = function.map_err(|error| error.to_string())?;
            function($($argument),*)
        }
    }};
}

impl Compiler {
    /// Loads `$FIRECLAY_NVRTC` or `libnvrtc.so.12`.
    pub(super) fn load() -> Result<Compiler, String> {
        let name = std::env::var_os(VARIABLE).unwrap_or_else(|| "libnvrtc.so.12".into());
        // SAFETY: loading NVRTC runs its initialisers only.
        let library = unsafe { Library::new(&name) }.map_err(|error| {
            format!(
                "NVRTC can't be loaded: {error}\nset {VARIABLE} to libnvrtc.so.12 of the package \
                 nvidia-cuda-nvrtc-cu12==12.0.140"
            )
        })?;
        Ok(Compiler { library })
    }

    /// Major and minor; zeros if it doesn't say.
    pub(super) fn version(&self) -> (i32, i32) {
        let ask = || -> Result<(i32, i32), String> {
            let (mut major, mut minor) = (0, 0);
            let code = call!(self, b"nvrtcVersion\0", (&mut major, &mut minor): fn(*mut c_int, *mut c_int));
            Ok(if code == 0 { (major, minor) } else { (0, 0) })
        };
        ask().unwrap_or_default()
    }

    /// The PTX of a source, or what the compiler says against it.
    pub(super) fn compile(
        &self,
        source: &str,
        name: &str,
        options: &[String],
    ) -> Result<String, String> {
        let source = CString::new(source).map_err(|error| error.to_string())?;
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let options: Vec<CString> = options
            .iter()
            .filter_map(|text| CString::new(text.as_str()).ok())
            .collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        let code = call!(
            self,
            b"nvrtcCreateProgram\0",
            (&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()):
                fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char)
        );
        if code != 0 {
            return Err(format!("nvrtcCreateProgram answers {code}"));
        }
        let code = call!(
            self,
            b"nvrtcCompileProgram\0",
            (program, pointers.len() as c_int, pointers.as_ptr()): fn(Program, c_int, *const *const c_char)
        );
        let result = if code == 0 {
            self.text(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0")
        } else {
            let log = self.text(
                program,
                b"nvrtcGetProgramLogSize\0",
                b"nvrtcGetProgramLog\0",
            );
            Err(log.unwrap_or_else(|error| error))
        };
        call!(self, b"nvrtcDestroyProgram\0", (&mut program): fn(*mut Program));
        result
    }

    /// A text of a program: its size from one function, its bytes from another.
    fn text(&self, program: Program, size_name: &[u8], name: &[u8]) -> Result<String, String> {
        let mut size = 0_usize;
        let code = call!(self, size_name, (program, &mut size): fn(Program, *mut usize));
        if code != 0 {
            return Err(format!("the size of a text could not be had: {code}"));
        }
        let mut bytes = vec![0_u8; size + 1];
        let code =
            call!(self, name, (program, bytes.as_mut_ptr().cast()): fn(Program, *mut c_char));
        let text = CStr::from_bytes_until_nul(&bytes).map_err(|error| error.to_string())?;
        match code {
            0 => Ok(text.to_string_lossy().into_owned()),
            code => Err(format!("a text could not be had: {code}")),
        }
    }
}
