//! Where the vendor's libraries are looked for, and why each place had none that can be used.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::driver::{Attempt, Source, driver};

/// A library to look for.
pub(super) struct Wanted {
    /// The environment variable that names its path, or is `off`.
    pub(super) variable: &'static str,
    /// Names of its files, the newest major version first, with the major version of CUDA that each is for if the name tells.
    files: &'static [(&'static str, Option<i32>)],
    /// Folders of Python packages that have it, under `site-packages/nvidia`.
    folders: &'static [&'static str],
    /// The function that tells its version.
    version: &'static CStr,
    /// From the number to major, minor and patch.
    parts: fn(usize) -> [usize; 3],
}

/// cuBLASLt.
pub(super) const CUBLAS_LT: Wanted = Wanted {
    variable: "FIRECLAY_CUBLASLT",
    #[cfg(not(windows))]
    files: &[
        ("libcublasLt.so.13", Some(13)),
        ("libcublasLt.so.12", Some(12)),
    ],
    #[cfg(windows)]
    files: &[
        ("cublasLt64_13.dll", Some(13)),
        ("cublasLt64_12.dll", Some(12)),
    ],
    folders: &["cu13/lib", "cublas/lib"],
    version: c"cublasLtGetVersion",
    parts: |number| [number / 10_000, number / 100 % 100, number % 100],
};

/// cuDNN.
pub(super) const CUDNN: Wanted = Wanted {
    variable: "FIRECLAY_CUDNN",
    #[cfg(not(windows))]
    files: &[("libcudnn.so.9", None), ("libcudnn.so.8", None)],
    #[cfg(windows)]
    files: &[("cudnn64_9.dll", None), ("cudnn64_8.dll", None)],
    folders: &["cudnn/lib"],
    version: c"cudnnGetVersion",
    // Since version 9 the major number has four digits behind it.
    parts: |number| match number {
        0..=9_999 => [number / 1_000, number / 100 % 10, number % 100],
        _ => [number / 10_000, number / 100 % 100, number % 100],
    },
};

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name or path that it was loaded by.
    pub path: String,
    /// Its version: major, minor, patch.
    pub version: [usize; 3],
}

/// Why a library is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The environment variable says so.
    Off {
        /// The variable.
        variable: &'static str,
    },
    /// There is no driver, so there is nothing to use it on.
    NoDriver,
    /// The driver is the virtual GPU, where its code can't run.
    VirtualGpu,
    /// None of the files tried could be used.
    NotFound {
        /// What was tried.
        tried: Vec<Attempt>,
    },
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Off { variable } => write!(f, "{variable} is \"off\""),
            Absent::NoDriver => f.write_str("there is no CUDA driver"),
            Absent::VirtualGpu => f.write_str("its code can't run on the virtual GPU"),
            Absent::NotFound { tried } => {
                f.write_str("none was found (tried")?;
                for (number, Attempt { path, why }) in tried.iter().enumerate() {
                    let comma = if number == 0 { ' ' } else { ';' };
                    let space = if number == 0 { "" } else { " " };
                    write!(f, "{comma}{space}{path}: {why}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl std::error::Error for Absent {}

/// Finds a library that `accept` makes something of, or all that was tried.
pub(super) fn find<T>(
    wanted: &Wanted,
    accept: impl Fn(&Library, Found) -> Result<T, String>,
) -> Result<T, Absent> {
    let named = std::env::var(wanted.variable).ok();
    let named = named.filter(|value| !value.is_empty());
    if named.as_deref() == Some("off") {
        return Err(Absent::Off {
            variable: wanted.variable,
        });
    }
    let driver = driver().map_err(|_| Absent::NoDriver)?;
    let on_virtual = *driver.source() == Source::Virtual;
    if on_virtual && named.is_none() {
        return Err(Absent::VirtualGpu);
    }
    let candidates = match named {
        Some(path) => vec![Ok(path)],
        None => candidates(wanted, driver.version(), &roots()),
    };
    let mut tried = Vec::new();
    for candidate in candidates {
        let path = match candidate {
            Ok(path) => path,
            Err(attempt) => {
                tried.push(attempt);
                continue;
            }
        };
        match open(wanted, &path, on_virtual, &accept) {
            Ok(Some(library)) => return Ok(library),
            Ok(None) => return Err(Absent::VirtualGpu),
            Err(why) => tried.push(Attempt { path, why }),
        }
    }
    Err(Absent::NotFound { tried })
}

/// Loads a library and has `accept` look at it; nothing if it can't work with the virtual GPU that is the driver.
fn open<T>(
    wanted: &Wanted,
    path: &str,
    on_virtual: bool,
    accept: &impl Fn(&Library, Found) -> Result<T, String>,
) -> Result<Option<T>, String> {
    // SAFETY: loading runs the library's initialisers. The names are those of NVIDIA's libraries, or what the user chose.
    let library = unsafe { Library::new(path) }.map_err(|error| {
        // The loader's own words stand below libloading's.
        let below = std::error::Error::source(&error).map(ToString::to_string);
        let said = below.unwrap_or_else(|| error.to_string());
        let said = said.strip_prefix(path).unwrap_or(&said);
        said.trim_start_matches([':', ' ']).to_owned()
    })?;
    if on_virtual && symbol(&library, c"fireclay_virtual_gpu").is_none() {
        return Ok(None);
    }
    let version = symbol(&library, wanted.version)
        .ok_or_else(|| format!("it lacks {}", wanted.version.to_string_lossy()))?;
    // SAFETY: both libraries' functions that tell the version take nothing and return a size.
    let version =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> usize>(version)() };
    let found = Found {
        path: path.to_owned(),
        version: (wanted.parts)(version),
    };
    let accepted = accept(&library, found)?;
    // Its functions stay in use until the process ends.
    std::mem::forget(library);
    Ok(Some(accepted))
}

/// The address of a symbol.
pub(super) fn symbol(library: &Library, name: &CStr) -> Option<*const c_void> {
    // SAFETY: the symbol is looked at as an address only, while the library is loaded.
    let address = unsafe {
        let symbol = library
            .get::<*const c_void>(name.to_bytes_with_nul())
            .ok()?;
        symbol.try_as_raw_ptr().map(<*mut c_void>::cast_const)
    };
    address.filter(|address| !address.is_null())
}

/// The files to try: by name, in the toolkit's folder, in Python's packages. What is passed over is an attempt.
fn candidates(wanted: &Wanted, driver: i32, roots: &[PathBuf]) -> Vec<Result<String, Attempt>> {
    let mut candidates = Vec::new();
    for (name, cuda) in wanted.files {
        if let Some(cuda) = cuda
            && let Err(why) = check_driver(*cuda, driver)
        {
            candidates.push(Err(Attempt {
                path: (*name).to_owned(),
                why,
            }));
            continue;
        }
        candidates.push(Ok((*name).to_owned()));
        let toolkit = Path::new("/usr/local/cuda/lib64");
        let packages = roots.iter().flat_map(|root| {
            wanted
                .folders
                .iter()
                .map(move |folder| root.join("nvidia").join(folder))
        });
        let paths = std::iter::once(toolkit.to_owned())
            .chain(packages)
            .map(|folder| folder.join(name));
        let there = paths.filter(|path| path.exists());
        candidates.extend(there.map(|path| Ok(path.to_string_lossy().into_owned())));
    }
    if candidates.iter().flatten().all(|path| !path.contains('/')) {
        let looked: Vec<_> = roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        candidates.push(Err(Attempt {
            path: format!(
                "nvidia/{} of Python's packages",
                wanted.folders.join(", nvidia/")
            ),
            why: match looked.is_empty() {
                true => "no folder of Python packages was found".to_owned(),
                false => format!("not in {}", looked.join(", ")),
            },
        }));
    }
    candidates
}

/// Whether a driver of this version can do with a library made for this major version of CUDA; why not otherwise.
pub(super) fn check_driver(cuda: i32, driver: i32) -> Result<(), String> {
    match driver / 1000 {
        major if cuda <= major => Ok(()),
        major => Err(format!(
            "it needs a driver for CUDA {cuda}, this one is for CUDA {major}"
        )),
    }
}

/// Folders of Python packages: of the active environment, of the interpreters on `PATH`, of the user.
fn roots() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(variable)
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path) {
        let python = ["python3", "python"].map(|name| folder.join(name));
        if python.iter().any(|python| python.exists()) {
            prefixes.extend(folder.parent().map(Path::to_owned));
        }
    }
    prefixes.extend(variable("HOME").map(|home| home.join(".local")));
    let mut roots = Vec::new();
    for prefix in prefixes {
        let lib = prefix.join("lib");
        let Ok(entries) = std::fs::read_dir(&lib) else {
            continue;
        };
        let mut pythons: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .flat_map(|entry| {
                ["site-packages", "dist-packages"].map(|name| entry.path().join(name))
            })
            .filter(|packages| packages.is_dir())
            .collect();
        pythons.sort();
        for packages in pythons {
            if !roots.contains(&packages) {
                roots.push(packages);
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_each_library_writes_them() {
        assert_eq!((CUBLAS_LT.parts)(120_803), [12, 8, 3]);
        assert_eq!((CUDNN.parts)(8_907), [8, 9, 7]);
        assert_eq!((CUDNN.parts)(91_002), [9, 10, 2]);
    }

    #[test]
    fn packages_are_searched_and_what_is_too_new_is_passed_over() {
        let root = std::env::temp_dir().join(format!("fireclay-find-{}", std::process::id()));
        let folder = root.join("nvidia/cublas/lib");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("libcublasLt.so.12");
        std::fs::write(&file, "no library").unwrap();
        let found = candidates(&CUBLAS_LT, 12_040, std::slice::from_ref(&root));
        let paths: Vec<_> = found.iter().flatten().collect();
        assert!(
            paths.contains(&&file.to_string_lossy().into_owned()),
            "{paths:?}"
        );
        let passed: Vec<_> = found
            .iter()
            .filter_map(|found| found.as_ref().err())
            .collect();
        assert!(
            passed[0]
                .why
                .contains("driver for CUDA 13, this one is for CUDA 12"),
            "{passed:?}"
        );
        let why = open(&CUBLAS_LT, &file.to_string_lossy(), false, &|_, found| {
            Ok(found)
        })
        .unwrap_err();
        assert!(!why.is_empty() && !why.contains("fireclay-find"), "{why}");
        std::fs::remove_dir_all(&root).unwrap();
        let found = candidates(&CUDNN, 12_040, std::slice::from_ref(&root));
        let last = found.last().unwrap().as_ref().unwrap_err();
        assert!(last.why.contains("fireclay-find"), "{last:?}");
    }

    #[cfg(not(windows))]
    #[test]
    fn both_versions_of_cudnn_are_looked_for_the_newer_first() {
        let root = std::env::temp_dir().join(format!("fireclay-cudnn-{}", std::process::id()));
        let folder = root.join("nvidia/cudnn/lib");
        std::fs::create_dir_all(&folder).unwrap();
        let files = ["libcudnn.so.9", "libcudnn.so.8"].map(|name| folder.join(name));
        for file in &files {
            std::fs::write(file, "no library").unwrap();
        }
        let found = candidates(&CUDNN, 13_000, std::slice::from_ref(&root));
        std::fs::remove_dir_all(&root).unwrap();
        let paths: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        let place = |path: &str| paths.iter().position(|found| found == path);
        let [nine, eight] = files.map(|file| place(&file.to_string_lossy()).expect("a candidate"));
        assert!(place("libcudnn.so.9") < Some(nine) && nine < eight);
        assert!(Some(nine) < place("libcudnn.so.8"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_of_another_kind_is_named_with_what_it_lacks() {
        let why = open(&CUDNN, "libm.so.6", false, &|_, found| Ok(found)).unwrap_err();
        assert_eq!(why, "it lacks cudnnGetVersion");
        // On the virtual GPU it is not even asked.
        let refused = open(&CUDNN, "libm.so.6", true, &|_, found| Ok(found));
        assert_eq!(refused, Ok(None));
    }
}
