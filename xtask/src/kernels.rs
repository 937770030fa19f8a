//! `cargo xtask kernels`: the header of mathematical functions, the PTX of every CUDA C++ file, and the table of what the
//! kernels take of a device.
//!
//! All are checked in, so that nobody needs a compiler of CUDA to build or use the project. [`check`] is for CI: it writes the
//! header again and compares it, and compares what each bundle of PTX says that it was made from with what is there; where the
//! pinned compiler is at hand it also compiles everything again, and where `ptxas` is, it writes the table again.

mod bundle;
mod cpp;
mod nvrtc;
mod ptxas;

use std::fs;
use std::path::{Path, PathBuf};

use nvrtc::Compiler;
use ptxas::Assembler;

/// The compiler's options: a product and a sum stay two operations unless the source says otherwise, as on the host.
const OPTIONS: [&str; 3] = [
    "--std=c++17",
    "--device-as-default-execution-space",
    "--fmad=false",
];
/// What a source is compiled for unless it says more: the oldest devices that the kernels run on.
const OLDEST_TARGET: u32 = 70;
/// The line of a source that names all its targets, compute capabilities without their dot: `// Targets: 70 80 90.`
const TARGETS: &str = "// Targets: ";
/// The compiler that makes what is checked in. Its PTX loads on drivers from R525 on.
const PINNED: (i32, i32) = (12, 0);
/// How often a source is compiled again until what is checked in has come.
const TRIES: usize = 4;
/// Where the headers are.
const HEADERS: &str = "crates/cuda/include";
/// Where the kernels are: beside the ops that launch them.
const SOURCES: &str = "crates/tensor/src/ops";
/// Where their PTX is.
const PTX: &str = "crates/tensor/ptx";
/// Where the table is.
const TABLE: &str = "bench/kernels.md";

/// Compiles every kernel; true if all went well.
pub(crate) fn run(root: &Path) -> bool {
    match write(root) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}

fn write(root: &Path) -> Result<(), String> {
    let save = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    save(
        root.join(HEADERS).join("arith.cuh"),
        cpp::header().as_bytes(),
    )?;
    let compiler = Compiler::load()?;
    if compiler.version() != PINNED {
        return Err(format!(
            "NVRTC {:?} was found, the kernels are made by {PINNED:?}",
            compiler.version()
        ));
    }
    let sources = sources(root);
    let mut errors = Vec::new();
    let mut compiled = Vec::new();
    for path in &sources {
        let made = Source::read(root, path).and_then(|source| {
            let bundle = bundle_of(root, path);
            // One that was made from what is there stays, byte for byte.
            let there = read_bundle(&bundle).unwrap_or_default();
            if bundle::is_of(&there, &source.made_from) {
                return Ok((source.name, bundle::modules(&there)?));
            }
            let targets = source.compile(root, &compiler)?;
            let text = bundle::bundle(&source.made_from, &targets)?;
            save(bundle, &bundle::compressed(&text)?)?;
            Ok((source.name, bundle::modules(&text)?))
        });
        match made {
            Ok(made) => compiled.push(made),
            Err(error) => errors.push(format!("{}: {error}", path.display())),
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let known: Vec<PathBuf> = (sources.iter()).map(|path| bundle_of(root, path)).collect();
    for old in bundles(root).iter().filter(|path| !known.contains(path)) {
        fs::remove_file(old).map_err(|error| format!("{}: {error}", old.display()))?;
    }
    match Assembler::find() {
        Some(assembler) => {
            let path = root.join(TABLE);
            let old = fs::read_to_string(&path).unwrap_or_default();
            save(
                path,
                ptxas::with_table(&old, &assembler.table(&compiled)?).as_bytes(),
            )
        }
        None => {
            eprintln!("ptxas is not here: {TABLE} stays as it is");
            Ok(())
        }
    }
}

/// Whether what is checked in was made from the sources beside it.
pub(crate) fn check(root: &Path) -> bool {
    let wrong = match differences(root) {
        Ok(wrong) => wrong,
        Err(error) => vec![error],
    };
    for what in &wrong {
        eprintln!("{what}; run `cargo xtask kernels`");
    }
    wrong.is_empty()
}

/// What is not as the sources say.
fn differences(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let header = fs::read_to_string(root.join(HEADERS).join("arith.cuh")).unwrap_or_default();
    if header != cpp::header() {
        wrong.push(format!(
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
    let mut known: Vec<PathBuf> = sources
        .iter()
        .map(|source| bundle_of(root, source))
        .collect();
    known.sort();
    if known != bundles(root) || known.is_empty() {
        wrong.push(format!("{PTX} has other files than the sources give"));
    }
    let mut checked_in = Vec::new();
    for path in &sources {
        let bundle = bundle_of(root, path);
        let source = Source::read(root, path)?;
        let text = read_bundle(&bundle).unwrap_or_default();
        if !bundle::is_of(&text, &source.made_from) {
            wrong.push(format!(
                "{} was not made from what is there, or was changed",
                bundle.display()
            ));
        }
        if let Some(compiler) = &compiler
            && !source.gives(root, compiler, &text)?
        {
            wrong.push(format!(
                "{} differs when it is compiled again",
                bundle.display()
            ));
        }
        checked_in.push((source.name, bundle::modules(&text)?));
    }
    match Assembler::find() {
        Some(assembler) => {
            let table = fs::read_to_string(root.join(TABLE)).unwrap_or_default();
            if ptxas::with_table(&table, &assembler.table(&checked_in)?) != table {
                wrong.push(format!("{TABLE} is not what ptxas says"));
            }
        }
        None => eprintln!("ptxas is not here: the table is not compared"),
    }
    Ok(wrong)
}

/// The CUDA C++ files, by name.
fn sources(root: &Path) -> Vec<PathBuf> {
    files(&root.join(SOURCES), "cu")
}

/// The bundles that are there, by name.
fn bundles(root: &Path) -> Vec<PathBuf> {
    files(&root.join(PTX), "gz")
}

/// The text of a bundle.
fn read_bundle(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    bundle::text(&bytes)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

fn bundle_of(root: &Path, source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap_or_default();
    root.join(PTX).join(name).with_extension("ptx.gz")
}

/// A CUDA C++ file.
struct Source {
    /// Its name, without folder.
    name: String,
    text: String,
    targets: Vec<u32>,
    /// The first line of its bundle: a hash of the source, of the headers that it includes and of the options.
    made_from: String,
}

impl Source {
    fn read(root: &Path, path: &Path) -> Result<Source, String> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let text = read(path)?;
        let mut headers: Vec<String> = Vec::new();
        let mut open = vec![text.clone()];
        let mut hash = bundle::fnv1a(bundle::FNV_START, OPTIONS.join(" ").as_bytes());
        while let Some(text) = open.pop() {
            hash = bundle::fnv1a(hash, text.as_bytes());
            for included in text
                .lines()
                .filter_map(|line| line.strip_prefix("#include \""))
            {
                let included = included.trim_end_matches('"').to_owned();
                if !headers.contains(&included) {
                    open.push(read(&root.join(HEADERS).join(&included))?);
                    headers.push(included);
                }
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (major, minor) = PINNED;
        Ok(Source {
            targets: targets(&text)?,
            made_from: format!(
                "// {name}, {hash:016x}, NVRTC {major}.{minor}. Made by `cargo xtask kernels`."
            ),
            name: name.into_owned(),
            text,
        })
    }

    /// Whether the compiler gives the instructions of every kernel of a bundle, and no other kernels. It does not always give the
    /// same text: an instruction that nothing waits for stands now here and now there, and seldom another one does the same. So
    /// each kernel has to come in one of several tries.
    fn gives(&self, root: &Path, compiler: &Compiler, bundle: &str) -> Result<bool, String> {
        let mut missing = bundle::instructions(bundle);
        for _ in 0..TRIES {
            let again = bundle::bundle(&self.made_from, &self.compile(root, compiler)?)?;
            let again = bundle::instructions(&again);
            if again.keys().ne(bundle::texts(bundle).keys()) {
                return Ok(false);
            }
            missing.retain(|kernel, lines| again[kernel] != *lines);
            if missing.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The compiler's PTX for each target.
    fn compile(&self, root: &Path, compiler: &Compiler) -> Result<Vec<(u32, String)>, String> {
        let compiled = self.targets.iter().map(|&target| {
            let mut options: Vec<String> = OPTIONS.map(str::to_owned).into();
            options.push(format!("--gpu-architecture=compute_{target}"));
            options.push(format!("--include-path={}", root.join(HEADERS).display()));
            Ok((target, compiler.compile(&self.text, &self.name, &options)?))
        });
        compiled.collect()
    }
}

/// The targets of a source, rising.
fn targets(text: &str) -> Result<Vec<u32>, String> {
    let Some(line) = text.lines().find_map(|line| line.strip_prefix(TARGETS)) else {
        return Ok(vec![OLDEST_TARGET]);
    };
    let targets: Result<Vec<u32>, _> = line
        .trim_end_matches('.')
        .split(' ')
        .map(str::parse)
        .collect();
    match targets {
        Ok(targets) if targets.is_sorted_by(|a, b| a < b) => Ok(targets),
        _ => Err(format!("expected rising targets as `{TARGETS}70 80.`")),
    }
}
