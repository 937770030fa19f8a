"""Writes torch.result_type of every pair of operands: `<first> <second> <result>` a line.

    python promotion.py > promotion.txt

An operand is a dtype with `[1]` for a tensor with a dimension or `[]` for a zero-dim one, or the kind of a number.
"""

import torch

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
NUMBERS = {"float": 2.5, "int": 2, "bool": True}


def main():
    operands = {
        f"{name}{'[1]' if dims else '[]'}": torch.zeros((1,) * dims, dtype=getattr(torch, name))
        for name in DTYPES
        for dims in (1, 0)
    }
    for first, a in operands.items():
        for second, b in {**operands, **NUMBERS}.items():
            print(first, second, str(torch.result_type(a, b)).removeprefix("torch."))


if __name__ == "__main__":
    main()
