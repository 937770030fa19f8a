#!/usr/bin/env python3
"""Asks NVIDIA's assembler about the forms of instructions: those that `src/instructions/grammar/forms.txt` allows must
assemble, those of `refused.txt` must not. Run by hand; the pinned package is nvidia-cuda-nvcc-cu12==12.9.86.

    FORMS=/tmp cargo test -p virtual-gpu answers_for_an_assembler -- --ignored   # writes /tmp/samples.txt
    nvcc/bin/python kernels/forms.py /tmp/samples.txt
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile

PTXAS = os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "cuda_nvcc", "bin", "ptxas")
REFUSED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "instructions", "grammar", "refused.txt")
HEAD = """.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 sm[1024];
.global .align 16 .b8 gm[1024];
.visible .entry k(.param .u64 a)
{
.reg .pred %p<9>; .reg .b8 %b<9>; .reg .b16 %h<20>; .reg .b32 %x<20>; .reg .b64 %y<20>; .reg .f32 %f<20>;
.reg .f64 %d<20>; .reg .u32 %u<9>; .reg .s32 %i<9>; .reg .u16 %c<9>; .reg .b128 %q<9>;
"""
# Forms of later targets and of earlier ones, which the table has for its messages.
ELSEWHERE = re.compile(r"satfinite\S*\.tf32|tf32\S*\.satfinite|^(shfl|vote)\.(?!sync)")


def assemble(forms):
    """The assembler's complaint about each form, or None."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(HEAD + "".join(form + "\n" for form in forms) + "ret;\n}\n")
        file.flush()
        command = [PTXAS, "-arch=sm_90", "-o", os.devnull, file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [None] * len(forms)
    for line, text in re.findall(r", line (\d+); (?:error|fatal)\s*: (.*)", result.stderr):
        index = int(line) - HEAD.count("\n") - 1
        if 0 <= index < len(forms):
            complaints[index] = complaints[index] or text
    if result.returncode != 0 and len(forms) > 1 and not any(complaints):
        middle = len(forms) // 2
        return assemble(forms[:middle]) + assemble(forms[middle:])
    if result.returncode != 0 and len(forms) == 1:
        complaints[0] = complaints[0] or result.stderr.strip()
    return complaints


def judge(forms):
    """As `assemble`, again and again without the forms that it complains of: it stops at some."""
    known = {}
    for start in range(0, len(forms), 64):
        left = forms[start : start + 64]
        while left:
            complaints = assemble(left)
            known.update((form, text) for form, text in zip(left, complaints) if text)
            if not any(complaints):
                break
            left = [form for form, text in zip(left, complaints) if not text]
    return known


def main():
    wrong = 0
    with open(REFUSED, encoding="utf-8") as file:
        refused = [line.split(" ## ")[0] for line in file if " ## " in line]
    complaints = judge(refused)
    for form in refused:
        if form not in complaints:
            wrong += 1
            print("taken by the assembler:", form)
    taken = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            taken += [line.strip() for line in file if line.strip() and not ELSEWHERE.search(line)]
    complaints = judge(taken)
    for form, text in complaints.items():
        wrong += 1
        print("refused by the assembler:", form, "#", text)
    print(f"{len(refused)} forms that PTX forbids, {len(taken)} that it has, {wrong} differences")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
