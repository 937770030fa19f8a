"""Writes a set of op conformance cases made by PyTorch. docs/cases.md describes the result.

    python make_cases.py --out DIR --seed N [--family NAME ...] [--per-op K] [--report]

Equal arguments give equal files. Another seed gives other shapes, values and arguments for the same
ops. `--per-op K` gives K cases per op (error cases included) in place of one round of its recipes.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file

from recipes import OPS
from recipes.families import FAMILIES
from recipes.record import OpCases


class Enough(Exception):
    """The op has as many cases as were asked for."""


class Writer:
    """Collects the cases of a set."""

    def __init__(self, per_op):
        self.per_op = per_op
        self.cases, self.tensors, self.notes = [], {}, []
        self.seen, self.count = set(), Counter()

    def fresh(self, case):
        """Whether the set has no such case yet."""
        if self.per_op is not None and self.count[case.op] >= self.per_op:
            raise Enough
        fingerprint = case.fingerprint()
        known = fingerprint in self.seen
        self.seen.add(fingerprint)
        return not known

    def add(self, record, tensors, notes):
        record["id"] = f"{record['op']}/{self.count[record['op']]}"
        self.count[record["op"]] += 1
        self.cases.append(record)
        self.tensors.update(
            {
                f"{record['id']}/{key}": tensor.clone(memory_format=torch.contiguous_format)
                for key, tensor in tensors.items()
            }
        )
        self.notes += [f"{record['id']}: {note}" for note in notes]

    def save(self, folder, seed):
        folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in self.cases)
        version = torch.__version__.split("+")[0]
        (folder / "cases.json").write_text(f'{{"torch":"{version}","seed":{seed},"cases":[\n{lines}\n]}}\n')
        save_file(self.tensors, folder / "tensors.safetensors")


def make(writer, seed, families):
    for op in sorted(OPS.values(), key=lambda op: FAMILIES.index(op.family)):
        if op.family not in families:
            continue
        rounds = 1 if writer.per_op is None else writer.per_op
        try:
            for turn in range(rounds):
                for number, recipe in enumerate(op.recipes):
                    recipe(OpCases(writer, op, (seed, op.name, number, turn)))
        except Enough:
            pass
        except Exception as error:
            error.add_note(f"in a recipe of {op.name}")
            raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for cases.json and tensors.safetensors")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this family (repeatable)")
    parser.add_argument("--per-op", type=int, metavar="K")
    parser.add_argument("--report", action="store_true", help="name the cases whose tolerance PyTorch itself widened")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    writer = Writer(options.per_op)
    make(writer, options.seed, options.family or FAMILIES)
    writer.save(options.out, options.seed)

    for family, count in Counter(case["family"] for case in writer.cases).items():
        ops = len({case["op"] for case in writer.cases if case["family"] == family})
        print(f"{family:12} {count:5} cases {ops:4} ops")
    errors = sum("error" in case for case in writer.cases)
    print(f"{'all':12} {len(writer.cases):5} cases {len(writer.count):4} ops, {errors} of the cases are errors")
    if options.report:
        print(*writer.notes, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
