"""Compiles this folder's CUDA C++ to the PTX texts that the parser's tests read. Needs no GPU.

    compile.py NVRTC12_0 NVRTC12_9 CUDA13

Each argument is a virtual environment:
    NVRTC12_0: nvidia-cuda-nvrtc-cu12==12.0.140 nvidia-cuda-runtime-cu12==12.0.146 nvidia-cuda-nvcc-cu12==12.0.140
    NVRTC12_9: nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86
    CUDA13:    nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
               nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = [
    ("calls", "12.0", 80, "lineinfo"),
    ("calls", "13.0", 90, None),
    ("debug", "12.9", 90, "G"),
    ("elementwise", "12.9", 80, None),
    ("half", "12.0", 90, None),
    ("half", "13.0", 75, "lineinfo"),
    ("inline_asm", "12.9", 80, None),
]


def packages(environment):
    return next(pathlib.Path(environment).glob("lib/python3*/site-packages/nvidia"))


def nvrtc(environment, source, arch, flag):
    root = packages(environment)
    builtins = next(root.glob("cuda_nvrtc/lib/libnvrtc-builtins.so.12.*"))
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(root / "cuda_nvrtc/lib/libnvrtc.so.12"))
    # NVRTC has printf and assert built in.
    text = re.sub(r"#include <(stdio|assert)\.h>", "", source.read_text())
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture=compute_{arch}", "--std=c++17", "-default-device"]
    options += [f"-I{root}/cuda_runtime/include", f"-I{root}/cuda_nvcc/include"]
    options += [f"-{flag}"] if flag else []
    encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    name = f"/kernels/{source.name}".encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name, 0, None, None) == 0
    failed = library.nvrtcCompileProgram(program, len(options), encoded)
    get_size, get = (library.nvrtcGetPTXSize, library.nvrtcGetPTX)
    if failed:
        get_size, get = (library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
    get_size(program, ctypes.byref(size))
    result = ctypes.create_string_buffer(size.value)
    get(program, result)
    if failed:
        sys.exit(result.value.decode())
    return result.value.decode()


def nvcc(environment, source, arch, flag):
    compiler = packages(environment) / "cu13/bin/nvcc"
    options = [f"-{flag}"] if flag else []
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out.ptx"
        command = [compiler, "-ptx", f"-arch=compute_{arch}", "-std=c++17", *options, "-o", output, source.name]
        subprocess.run(command, cwd=HERE, check=True)
        return output.read_text()


def main():
    environments = dict(zip(["12.0", "12.9", "13.0"], [pathlib.Path(argument).absolute() for argument in sys.argv[1:4]]))
    if len(sys.argv) == 6:  # One text in a process of its own: two NVRTCs do not fit one.
        version, index = sys.argv[4], int(sys.argv[5])
        name, _, arch, flag = TEXTS[index]
        compile_text = nvcc if version == "13.0" else nvrtc
        text = compile_text(environments[version], HERE / f"{name}.cu", arch, flag)
        # No folder of the machine that compiled it.
        text = re.sub(r'(\.file\s+\d+ ")[^"]*/([^"/]*")', r"\1\2", text)
        target = "_".join([name, version.replace(".", ""), str(arch)] + ([flag] if flag else []))
        (HERE / f"{target}.ptx").write_text(text)
        return
    for index, (_, version, _, _) in enumerate(TEXTS):
        command = [sys.executable, HERE / "compile.py", *environments.values(), version, str(index)]
        # Debug information names the current folder: let it be the same on every machine.
        subprocess.run(command, cwd="/", check=True)


main()
