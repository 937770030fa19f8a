//! `cargo xtask kernels`: the header of mathematical functions, and the PTX of every CUDA C++ file.
//!
//! Both are checked in, so that nobody needs a compiler of CUDA to build or use the project. [`check`] is for CI: it writes the
//! header again and compares it, and compares what each PTX text says that it was made from with what is there; where the
//! pinned compiler is at hand it also compiles everything again.

mod cpp;
mod nvrtc;

use std::fs;
use std::path::{Path, PathBuf};

use nvrtc::Compiler;

/// The compiler's options: the oldest devices that the kernels run on; and a product and a sum stay two operations unless the
/// source says otherwise, as on the host.
const OPTIONS: [&str; 4] = [
    "--gpu-architecture=compute_70",
    "--std=c++17",
    "--device-as-default-execution-space",
    "--fmad=false",
];
/// The compiler that makes what is checked in. Its PTX loads on drivers from R525 on.
const PINNED: (i32, i32) = (12, 0);
/// Where the headers are.
const HEADERS: &str = "crates/cuda/include";
/// Where the kernels are: beside the ops that launch them.
const SOURCES: &str = "crates/tensor/src/ops";
/// Where their PTX is.
const PTX: &str = "crates/tensor/ptx";

/// Compiles every kernel; true if all went well.
pub(crate) fn run(root: &Path) -> bool {
    let header = root.join(HEADERS).join("arith.cuh");
    if let Err(error) = fs::write(&header, cpp::header()) {
        eprintln!("{}: {error}", header.display());
        return false;
    }
    let compiler = match Compiler::load() {
        Ok(compiler) => compiler,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    if compiler.version() != PINNED {
        eprintln!(
            "NVRTC {:?} was found, the kernels are made by {PINNED:?}",
            compiler.version()
        );
        return false;
    }
    let mut good = true;
    for source in sources(root) {
        let written = compile(root, &compiler, &source)
            .and_then(|text| fs::write(ptx_of(root, &source), text).map_err(|e| e.to_string()));
        if let Err(error) = written {
            eprintln!("{}: {error}", source.display());
            good = false;
        }
    }
    good
}

/// Whether what is checked in was made from the sources beside it.
pub(crate) fn check(root: &Path) -> bool {
    let mut good = true;
    let mut wrong = |what: String| {
        eprintln!("{what}; run `cargo xtask kernels`");
        good = false;
    };
    let header = fs::read_to_string(root.join(HEADERS).join("arith.cuh")).unwrap_or_default();
    if header != cpp::header() {
        wrong(format!(
            "{HEADERS}/arith.cuh is not what the functions give"
        ));
    }
    let compiler = Compiler::load()
        .ok()
        .filter(|compiler| compiler.version() == PINNED);
    if compiler.is_none() {
        eprintln!("the pinned NVRTC is not here: only the hashes are compared");
    }
    let sources = sources(root);
    let mut known: Vec<PathBuf> = sources.iter().map(|source| ptx_of(root, source)).collect();
    let mut found: Vec<PathBuf> = (fs::read_dir(root.join(PTX)).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    known.sort();
    found.sort();
    if known != found || known.is_empty() {
        wrong(format!("{PTX} has other files than the sources give"));
    }
    for source in sources {
        let ptx = ptx_of(root, &source);
        let text = fs::read_to_string(&ptx).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        match made_from(root, &source) {
            Ok(made_from) if first == made_from => {}
            _ => wrong(format!("{} was not made from what is there", ptx.display())),
        }
        let again = compiler
            .as_ref()
            .map(|compiler| compile(root, compiler, &source));
        if again.is_some_and(|again| again.as_ref() != Ok(&text)) {
            wrong(format!(
                "{} differs when it is compiled again",
                ptx.display()
            ));
        }
    }
    good
}

/// The CUDA C++ files, by name.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = fs::read_dir(root.join(SOURCES))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    sources.sort();
    sources
}

fn ptx_of(root: &Path, source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap_or_default();
    root.join(PTX).join(name).with_extension("ptx")
}

fn compile(root: &Path, compiler: &Compiler, source: &Path) -> Result<String, String> {
    let text = fs::read_to_string(source).map_err(|error| error.to_string())?;
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let mut options: Vec<String> = OPTIONS.map(str::to_owned).into();
    options.push(format!("--include-path={}", root.join(HEADERS).display()));
    let ptx = compiler.compile(&text, &name, &options)?;
    // What the compiler says of itself in comments is not for the file.
    let lines = ptx
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let body: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    Ok(format!(
        "{}\n{}\n",
        made_from(root, source)?,
        body.join("\n")
    ))
}

/// The first line of a PTX text: a hash of its source, of all headers and of the options.
fn made_from(root: &Path, source: &Path) -> Result<String, String> {
    let mut headers: Vec<PathBuf> = fs::read_dir(root.join(HEADERS))
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    headers.sort();
    let mut hash = fnv1a(0xcbf2_9ce4_8422_2325, OPTIONS.join(" ").as_bytes());
    for path in headers.iter().map(PathBuf::as_path).chain([source]) {
        hash = fnv1a(hash, &fs::read(path).map_err(|error| error.to_string())?);
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let (major, minor) = PINNED;
    Ok(format!(
        "// {name}, {hash:016x}, NVRTC {major}.{minor}. Made by `cargo xtask kernels`."
    ))
}

/// The FNV-1a hash, 64 bits, of bytes after others.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
