#!/usr/bin/env python3
"""PyTorch's side of the bench of ops: the loads of bench/op_loads.txt (its head says how they are written), which
`fireclay bench --ops` measures too, one JSON object a line.

Elements have the distributions of the examples of Fireclay's table, not the same bits.
"""
import ast
import pathlib
import re
import sys

import torch

import torch_stopwatch

# Seconds that a run takes at least, as in crates/cli/src/bench/table_loads.rs.
SHORTEST_RUN = 0.0005
# The arguments, whether gradients are asked for, and by which of them.
BACKWARD = re.compile(r"(.*?)( ?backward(?::(\S+))?)?")
# Parameters that PyTorch takes one by one.
SPREAD = {
    "broadcast_tensors": "tensors",
    "meshgrid": "tensors",
    "cartesian_prod": "tensors",
    "block_diag": "tensors",
    "einsum": "operands",
}


def main():
    here = pathlib.Path(__file__).resolve().parent
    args = torch_stopwatch.arguments(__doc__, loads=str(here / "op_loads.txt"))
    bench = torch_stopwatch.stopwatch(args, SHORTEST_RUN)
    for line in pathlib.Path(args.loads).read_text(encoding="utf-8").splitlines():
        if not line or line.startswith(("#", "- ")):
            continue
        name, _, rest = line.partition(" ")
        rest, backward, by = BACKWARD.fullmatch(rest).groups()
        backward = backward is not None
        if not any(f"op/{name}{end}".startswith(args.only) for end in ("", "/backward")[: 1 + backward]):
            continue
        try:
            call, leaves = prepared(name.split("/")[0], rest, by and by.split(","))
            bench(f"op/{name}", call)
            if backward:
                bench(f"op/{name}/backward", differentiated(call, leaves))
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            sys.exit(f"torch_ops: {line}: {type(error).__name__}: {error}")


def prepared(op, text, by):
    """A function that makes the call, and the floating tensors among its arguments, or among those called `by`."""
    leaves = []
    arguments = {}
    for part in parts(text, " "):
        name, _, value = part.partition("=")
        arguments[name] = read(value, leaves if by is None or name in by else [])
    receiver = []
    if op.startswith("Tensor."):
        receiver = [arguments.pop("self")]
        function = getattr(torch.Tensor, op.removeprefix("Tensor."))
        if not callable(function):
            return lambda: function.__get__(receiver[0]), leaves
    else:
        function = torch
        for step in op.split("."):
            function = getattr(function, step)
    if op in SPREAD:
        spread = arguments.pop(SPREAD[op])
        if op == "einsum":
            receiver.append(arguments.pop("equation"))
        receiver += list(spread)

    def by_name():
        return function(*receiver, **arguments)

    def by_place():
        return function(*receiver, *arguments.values())

    # Some of PyTorch's functions have parameters without names.
    try:
        by_name()
    except TypeError:
        return by_place, leaves
    return by_name, leaves


def differentiated(call, leaves):
    """The call and its gradients by `leaves`; gradients of 1 flow into its outputs."""
    for leaf in leaves:
        leaf.requires_grad_()
    incoming = [torch.ones_like(output) for output in tracked(call())]

    def both():
        return torch.autograd.grad(tracked(call()), leaves, incoming, allow_unused=True)

    return both


def tracked(outputs):
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    return [output for output in outputs if isinstance(output, torch.Tensor) and output.requires_grad]


def parts(text, separator):
    """Parts at `separator` that stand in no brackets, parentheses or quotes."""
    found, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        if not quoted:
            depth += (letter in "[(") - (letter in "])")
            if letter == separator and depth == 0:
                found.append("")
                continue
        found[-1] += letter
    return [part for part in found if part]


def read(text, leaves):
    """The value that `text` writes; floating tensors are added to `leaves`."""
    if text.startswith("("):
        return tuple(read(item, leaves) for item in parts(text[1:-1], ","))
    if text.startswith("["):
        return [read(item, leaves) for item in parts(text[1:-1], ",")]
    if text.endswith("]"):
        word, _, sizes = text[:-1].partition("[")
        tensor = filled(word, [int(size) for size in sizes.split(",") if size])
        leaves += [tensor] if tensor.is_floating_point() else []
        return tensor
    if text == "...":
        return ...
    if text in ("inf", "-inf"):
        return float(text)
    if isinstance(getattr(torch, text, None), torch.dtype):
        return getattr(torch, text)
    if ":" in text and not text.startswith('"'):
        return slice(*(int(bound) if bound else None for bound in text.split(":")))
    return ast.literal_eval(text)


def filled(word, shape):
    """A tensor of the elements that `word` asks for."""
    if word == "normal":
        return torch.randn(shape)
    if word in RANGES:
        low, high = RANGES[word]
        return torch.rand(shape) * (high - low) + low
    if word == "sorted":
        return torch.randn(shape).sort().values
    if word == "spd":
        factors = torch.randn(shape)
        return factors @ factors.mT + torch.eye(shape[-1])
    if word == "int":
        return torch.randint(-5, 6, shape)
    if word == "bool":
        return torch.randint(0, 2, shape).bool()
    if word.startswith("index<"):
        # None a second time before each was there once.
        bound, count = int(word.removeprefix("index<")), torch.Size(shape).numel()
        rounds = [torch.randperm(bound) for _ in range(-(-count // bound))]
        return torch.cat(rounds)[:count].reshape(shape)
    raise ValueError(f"{word} is no word for elements")


RANGES = {"positive": (0.1, 2.6), "above1": (1.1, 3.6), "unit": (-0.9, 0.9), "prob": (0.05, 0.95)}


if __name__ == "__main__":
    main()
