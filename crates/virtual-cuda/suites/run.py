#!/usr/bin/env python3
"""Runs the tests of programs that nobody here wrote on the virtual `libcuda.so.1`, and says how many pass.

    python3 run.py FOLDER                    # sets everything up in FOLDER and runs the three suites
    python3 run.py FOLDER --suite cudarc     # one suite; may be given several times
    python3 run.py FOLDER --json result.json # also writes the figures as JSON
    python3 run.py FOLDER --library PATH     # a libcuda.so that is built already

Every suite runs in one process, one test after the other, on two virtual devices.

Needs Python 3.11 or newer, cargo, and the network for pip and cargo the first time; no GPU, no CUDA. What lies in
FOLDER already is used again: delete it to start afresh. The exit status is 1 if a suite misses its aim, or if a test
fails that known_failures.json does not name with a reason.

Everything is pinned: the compiler packages, the suites, and by their own lock files what they depend on. The suites'
sources are unchanged but for what CHANGES names.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
WORKSPACE = HERE.parents[2]

NUMBA = {"numba": "0.68.1", "llvmlite": "0.50.0", "numpy": "2.4.6"}

# The CCCL headers of CUDA 12.0's own package lack those without a suffix (`cuda/barrier`).
CCCL = {"nvidia-cuda-cccl-cu12": "12.9.27"}

# Crates whose library tests are run: version, arguments of cargo, and the share that must pass.
CRATES = {
    "cudarc": ("0.19.4", ["--no-default-features", "--features",
                          "std,cuda-12000,dynamic-loading,driver,nvrtc,f16"]),
    "cubecl-cuda": ("0.9.0", []),
}

# Changes to the suites: crate, file, old text, new text ({cuda} is the folder of the CUDA files).
CHANGES = [
    # A test that looks for cuda_fp16.h where some distributions put it.
    ("cudarc", "src/driver/safe/launch.rs", '"/usr/include".into()', '"{cuda}/include".into()'),
]

# Seconds that a suite may take.
LIMITS = {"cudarc": 900, "cubecl-cuda": 2400, "numba": 5400}

# Tests that fail: for each suite the reasons, and the tests that fail for them.
KNOWN = {
    suite: {name: reason for reason, names in reasons.items() for name in names}
    for suite, reasons in json.loads((HERE / "known_failures.json").read_text()).items()
}

# What must hold of a suite's figures.
AIMS = {
    "cudarc": ("all but those that assert timing, and one that cudarc refuses itself", lambda r: not r["unknown"]),
    "cubecl-cuda": ("at least 620 pass", lambda r: r["passed"] >= 620),
    "numba": ("at least 95 % of those not skipped pass", lambda r: r["passed"] >= 0.95 * (r["ran"] - r["skipped"])),
}


def compiler_pins():
    """The compiler packages that the kernels of the corpus are made with, and the newer headers."""
    path = WORKSPACE / "crates/virtual-gpu/kernels/compile.py"
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("compile_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {**module.PINNED, **CCCL}


def environment(folder, pins):
    """A virtual environment with exactly these packages; the folder of its packages."""
    python = folder / "bin/python"
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
    wanted = [f"{name}=={version}" for name, version in pins.items()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
    found = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           check=True, capture_output=True, text=True)
    return pathlib.Path(found.stdout.strip())


def link(target, path):
    """A symbolic link, made anew."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def set_up_cuda(folder):
    """Lays the packages out as an installed CUDA: headers, NVVM, libdevice, NVRTC."""
    nvidia = environment(folder / "compilers", compiler_pins()) / "nvidia"
    cuda, lib = folder / "cuda", folder / "lib"
    include = cuda / "include"
    if not (include / "cccl").exists():
        shutil.rmtree(include, ignore_errors=True)
        for package in ["cuda_runtime", "cuda_nvcc"]:
            shutil.copytree(nvidia / package / "include", include, dirs_exist_ok=True)
        shutil.copytree(nvidia / "cuda_cccl/include", include / "cccl")
    # The names that numba looks for: libnvvm's must end in a digit.
    link(nvidia / "cuda_nvcc/nvvm/lib64/libnvvm.so", cuda / "nvvm/lib64/libnvvm.so.4")
    link(nvidia / "cuda_nvcc/nvvm/libdevice/libdevice.10.bc", cuda / "nvvm/libdevice/libdevice.10.bc")
    link(nvidia / "cuda_runtime/lib/libcudart.so.12", cuda / "lib64/libcudart.so.12")
    link(nvidia / "cuda_nvrtc/lib/libnvrtc.so.12", lib / "libnvrtc.so.12")
    link(nvidia / "cuda_nvrtc/lib/libnvrtc.so.12", lib / "libnvrtc.so")
    link(nvidia / "cuda_nvrtc/lib/libnvrtc-builtins.so.12.0", lib / "libnvrtc-builtins.so.12.0")
    return cuda, lib


def built(arguments, wanted, cwd, more=None):
    """Runs cargo; the files that it says it has made and `wanted` accepts."""
    command = ["cargo", *arguments, "--message-format=json-render-diagnostics"]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(more or {})}, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo failed in {cwd}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [path for path in map(wanted, messages) if path]


def build_library(lib, given):
    """Puts the virtual driver where programs find it."""
    if given is None:
        def library(message):
            files = [name for name in message.get("filenames", []) if name.endswith("libcuda.so")]
            return files[0] if files else None
        given = built(["build", "--release", "-p", "virtual-cuda"], library, WORKSPACE)[-1]
    # Not written over: a program that runs may have it mapped.
    fresh = lib / "libcuda.so.new"
    shutil.copy(given, fresh)
    fresh.replace(lib / "libcuda.so")
    link("libcuda.so", lib / "libcuda.so.1")


def fetch(folder, crate):
    """The sources of a crate, as its registry gives them, in a folder of their own."""
    version = CRATES[crate][0]
    target = folder / "src" / f"{crate}-{version}"
    if target.exists():
        return target
    project = folder / "fetch" / crate
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src/lib.rs").touch()
    (project / "Cargo.toml").write_text(
        f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
        f'[dependencies]\n{crate} = {{ version = "={version}", default-features = false }}\n')
    found = subprocess.run(["cargo", "metadata", "--format-version=1"], cwd=project, check=True,
                           stdout=subprocess.PIPE, text=True, env={**os.environ, "CUDARC_CUDA_VERSION": "12000"})
    packages = json.loads(found.stdout)["packages"]
    manifest = next(package["manifest_path"] for package in packages if package["name"] == crate)
    shutil.copytree(pathlib.Path(manifest).parent, target)
    # It is no member of a workspace that the folder may lie in.
    with (target / "Cargo.toml").open("a") as out:
        out.write("\n[workspace]\n")
    return target


def build_tests(folder, crate, cuda):
    """The test program of a crate's library."""
    source = fetch(folder, crate)
    for name, file, old, new in CHANGES:
        if name == crate:
            path = source / file
            path.write_text(path.read_text().replace(old, new.format(cuda=cuda)))

    def program(message):
        return message.get("executable") if message.get("profile", {}).get("test") else None
    arguments = ["test", "--lib", "--no-run", "--locked", "--target-dir", str(folder / "target"), *CRATES[crate][1]]
    return source, built(arguments, program, source, {"CUDARC_CUDA_VERSION": "12000"})[-1]


def run(command, cwd, folder, cuda, lib, suite):
    """Runs a suite under its limit, with its output in a file; what it said, and why it was ended if it was."""
    log = folder / f"{suite}.log"
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("FIRECLAY_", "NUMBA_", "CUDA"))}
    variables |= {
        "LD_LIBRARY_PATH": str(lib), "CUDA_PATH": str(cuda), "CUDA_HOME": str(cuda), "CUDARC_CUDA_VERSION": "12000",
        "NUMBA_CUDA_DRIVER": str(lib / "libcuda.so"), "RUST_BACKTRACE": "0",
        # The version of the pinned NVRTC; numba knows none newer than 12.4.
        "FIRECLAY_VIRTUAL_GPU_DRIVER": "12.0",
        "FIRECLAY_VIRTUAL_GPU_LOG": str(folder / f"{suite}.driver.log"),
    }
    (folder / f"{suite}.driver.log").unlink(missing_ok=True)
    print(f"running {suite}, output in {log}", flush=True)
    ended = None
    with log.open("wb") as out:
        process = subprocess.Popen(list(map(str, command)), cwd=cwd, env=variables, stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(LIMITS[suite])
        except subprocess.TimeoutExpired:
            ended = f"not done after {LIMITS[suite]} s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode < 0 and ended is None:
        ended = f"ended by signal {-process.returncode}"
    return log.read_text(errors="replace"), ended


def of_cargo(text):
    """The figures of a test program of Rust."""
    last = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text)
    if not last:
        return None
    passed, failed, skipped = map(int, last[-1])
    names = re.findall(r"^    (\S+)$", text[text.rindex("\nfailures:\n"):], re.M) if failed else []
    return {"ran": passed + failed + skipped, "passed": passed, "skipped": skipped, "failures": sorted(set(names))}


def of_unittest(text):
    """The figures of Python's unittest: a test with several failing parts counts once, one that fails as it is expected
    to counts as passed."""
    ran = re.findall(r"^Ran (\d+) tests? in", text, re.M)
    if not ran:
        return None
    summary = text[text.rindex("\nRan "):]
    skipped = sum(map(int, re.findall(r"skipped=(\d+)", summary)))
    names = re.findall(r"^(?:ERROR|FAIL|UNEXPECTED SUCCESS): \w+ \(([\w.]+)\)", text, re.M)
    failures = sorted(set(names))
    ran = int(ran[-1])
    return {"ran": ran, "passed": ran - skipped - len(failures), "skipped": skipped, "failures": failures}


def run_suite(suite, folder, cuda, lib):
    """Sets a suite up and runs it; its figures."""
    if suite == "numba":
        environment(folder / "numba", NUMBA)
        command = [folder / "numba/bin/python", "-m", "numba.runtests", "numba.cuda.tests", "-v"]
        cwd, figures = folder, of_unittest
    else:
        cwd, program = build_tests(folder, suite, cuda)
        command, figures = [program, "--test-threads", "1"], of_cargo
    start = time.monotonic()
    text, ended = run(command, cwd, folder, cuda, lib, suite)
    result = figures(text) or {"ran": 0, "passed": 0, "skipped": 0, "failures": []}
    if not result["ran"]:
        ended = ended or "no result"
    known = KNOWN[suite]
    result |= {
        "version": NUMBA["numba"] if suite == "numba" else CRATES[suite][0],
        "seconds": round(time.monotonic() - start),
        "ended": ended,
        "known": {name: known[name] for name in result["failures"] if name in known},
        "unknown": [name for name in result["failures"] if name not in known],
        "aim": AIMS[suite][0],
    }
    result["aim_met"] = ended is None and AIMS[suite][1](result)
    return result


def report(results):
    """Prints the table and what failed."""
    print(f"\n{'suite':<20}{'ran':>6}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}  aim")
    for suite, r in results.items():
        aim = f"{r['aim']}: {'met' if r['aim_met'] else 'MISSED'}"
        print(f"{suite + ' ' + r['version']:<20}{r['ran']:>6}{r['passed']:>8}{len(r['failures']):>8}{r['skipped']:>9}"
              f"{r['seconds']:>9}  {aim}")
    for suite, r in results.items():
        if r["ended"]:
            print(f"\n{suite}: {r['ended']}")
        for reason in dict.fromkeys(r["known"].values()):
            print(f"\n{suite}, known: {reason}")
            for name in sorted(name for name, other in r["known"].items() if other == reason):
                print(f"    {name}")
        for name in r["unknown"]:
            print(f"\n{suite}, NOT KNOWN to fail: {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where everything is put")
    parser.add_argument("--suite", action="append", choices=list(AIMS), help="a suite; all unless given")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the figures")
    parser.add_argument("--library", type=pathlib.Path, help="a libcuda.so instead of one that is built now")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    cuda, lib = set_up_cuda(folder)
    build_library(lib, options.library)
    results = {suite: run_suite(suite, folder, cuda, lib) for suite in options.suite or AIMS}
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(r["aim_met"] and not r["unknown"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
