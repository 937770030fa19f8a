#!/usr/bin/env python3
"""Compiles every `*.cu` file of this folder to PTX under `ptx/`, with NVRTC; no GPU or driver is needed.

Pinned compiler (the texts under `ptx/` were made by exactly these):

    python3 -m venv nvrtc
    nvrtc/bin/pip install nvidia-cuda-nvrtc-cu12==12.0.140 nvidia-cuda-runtime-cu12==12.0.146 \\
        nvidia-cuda-nvcc-cu12==12.0.140 nvidia-cuda-cccl-cu12==12.0.140
    nvrtc/bin/python compile.py            # rewrites ptx/*.ptx, ptx/hashes.txt
    nvrtc/bin/python compile.py --check    # recompiles, compares hashes, writes nothing
    nvrtc/bin/python compile.py --sources  # compares only the sources' hashes; needs no package

A name of a file is enough to compile only that one: `compile.py gemm.cu`. Every PTX text is also assembled by `ptxas`,
so that what is checked in is PTX that NVIDIA's own assembler accepts.
"""

import ctypes
import hashlib
import multiprocessing
import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata

PINNED = {
    "nvidia-cuda-nvrtc-cu12": "12.0.140",
    "nvidia-cuda-runtime-cu12": "12.0.146",
    "nvidia-cuda-nvcc-cu12": "12.0.140",
    "nvidia-cuda-cccl-cu12": "12.0.140",
}

OPTIONS = ["-default-device", "--std=c++17"]

# What is compiled beyond the plain compute_80 text of every file: (source, suffix, architecture, further options).
VARIANTS = [
    ("normalization.cu", ".75", 75, []),
    ("reduction.cu", ".75", 75, []),
    ("atomics.cu", ".90", 90, []),
    ("packed.cu", ".90", 90, []),
    ("gemm_wmma.cu", ".75", 75, []),
    ("bugs.cu", ".lineinfo", 80, ["-lineinfo"]),
]

HERE = os.path.dirname(os.path.abspath(__file__))
PTX = os.path.join(HERE, "ptx")
HASHES = os.path.join(PTX, "hashes.txt")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def targets():
    """Every text to make, as (output name, source name, architecture, options)."""
    sources = sorted(name for name in os.listdir(HERE) if name.endswith(".cu"))
    made = [(source[:-3] + ".ptx", source, 80, []) for source in sources]
    made += [(source[:-3] + suffix + ".ptx", source, arch, more) for source, suffix, arch, more in VARIANTS]
    return sorted(made)


def source_bytes(source):
    with open(os.path.join(HERE, source), "rb") as file:
        return file.read()


class Compiler:
    """NVRTC of the pinned package, through ctypes, and the `ptxas` that comes with the compiler package."""

    def __init__(self):
        for package, version in PINNED.items():
            installed = metadata.version(package)
            if installed != version:
                raise SystemExit(f"{package} is {installed}, and the texts are made with {version}")
        root = os.path.join(sysconfig.get_paths()["purelib"], "nvidia")
        library = os.path.join(root, "cuda_nvrtc", "lib")
        ctypes.CDLL(os.path.join(library, "libnvrtc-builtins.so.12.0"), mode=ctypes.RTLD_GLOBAL)
        self.nvrtc = ctypes.CDLL(os.path.join(library, "libnvrtc.so.12"))
        parts = ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
        self.includes = ["-I" + os.path.join(root, part, "include") for part in parts]
        self.ptxas = os.path.join(root, "cuda_nvcc", "bin", "ptxas")

    def text(self, get_size, get, program):
        size = ctypes.c_size_t()
        get_size(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        get(program, buffer)
        return buffer.value

    def compile(self, source, arch, more):
        program = ctypes.c_void_p()
        create = self.nvrtc.nvrtcCreateProgram
        # The name is what `-lineinfo` writes into the text, so it must not hold this machine's path.
        if create(ctypes.byref(program), source_bytes(source), source.encode(), 0, None, None) != 0:
            raise SystemExit(f"{source}: nvrtcCreateProgram failed")
        options = OPTIONS + [f"--gpu-architecture=compute_{arch}"] + more + self.includes
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self.nvrtc.nvrtcCompileProgram(program, len(options), array)
        log = self.text(self.nvrtc.nvrtcGetProgramLogSize, self.nvrtc.nvrtcGetProgramLog, program).decode()
        if log.strip():
            print(log, file=sys.stderr)
        if status != 0:
            raise SystemExit(f"{source}: does not compile")
        ptx = self.text(self.nvrtc.nvrtcGetPTXSize, self.nvrtc.nvrtcGetPTX, program)
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return self.without_paths(ptx)

    def without_paths(self, ptx):
        """`.file` lines of the headers keep their file name only: where the packages lie is no part of the text."""
        lines = []
        for line in ptx.decode().split("\n"):
            if line.lstrip().startswith(".file"):
                head, quote, tail = line.partition('"')
                path, quote, rest = tail.partition('"')
                line = f'{head}"{os.path.basename(path)}"'
            lines.append(line)
        return "\n".join(lines).encode()

    def assemble(self, name, ptx, arch):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.write(ptx)
            command = [self.ptxas, f"-arch=sm_{arch}", "-o", os.path.join(folder, "out.cubin"), path]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{name}: ptxas refuses it\n{done.stderr}")


def compile_one(name, source, arch, more):
    compiler = Compiler()
    ptx = compiler.compile(source, arch, more)
    compiler.assemble(name, ptx, arch)
    return ptx


def read_hashes():
    """output name -> (source's hash, text's hash)"""
    if not os.path.exists(HASHES):
        return {}
    with open(HASHES, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {name: (source, text) for name, source, text in rows}


def write_hashes(hashes):
    with open(HASHES, "w", encoding="utf-8") as file:
        file.write("# text, sha256 of its source, sha256 of the text; written by compile.py\n")
        for name in sorted(hashes):
            file.write(" ".join((name, *hashes[name])) + "\n")


def main(arguments):
    check = "--check" in arguments
    chosen = [os.path.basename(name) for name in arguments if not name.startswith("--")]
    recorded = read_hashes()
    wanted = [target for target in targets() if not chosen or target[1] in chosen]
    failures = [name for name in recorded if name not in {target[0] for target in targets()}]
    failures = [f"{name}: recorded, but nothing makes it" for name in failures] if not chosen else []
    if "--sources" in arguments:
        for name, source, _, _ in wanted:
            if recorded.get(name, ("", ""))[0] != sha256(source_bytes(source)):
                failures.append(f"{name}: {source} changed since it was compiled")
    else:
        hashes = {} if not chosen else recorded
        for name, source, arch, more in wanted:
            # A process for each: NVRTC numbers some names over the life of its process.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                ptx = pool.apply(compile_one, (name, source, arch, more))
            pair = (sha256(source_bytes(source)), sha256(ptx))
            path = os.path.join(PTX, name)
            if check:
                on_disk = open(path, "rb").read() if os.path.exists(path) else b""
                if recorded.get(name) != pair or on_disk != ptx:
                    failures.append(f"{name}: differs from what {source} compiles to")
                continue
            hashes[name] = pair
            with open(path, "wb") as file:
                file.write(ptx)
            print(f"{name}: {len(ptx)} bytes, {ptx.count(b'.entry ')} kernels")
        if not check:
            write_hashes(hashes)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
