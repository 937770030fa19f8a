"""Runs a set of cases through PyTorch, reading nothing but the format that docs/cases.md describes.

    python check_cases.py DIR [--against OTHER] [--verbose]

It is an example of a reader, and a proof that the format says enough. `--against OTHER` also counts
the cases that both sets hold. The exit status is 1 if a case fails or is malformed.
"""

import argparse
import json
import math
import sys
import warnings
from collections import Counter
from functools import reduce
from pathlib import Path

import torch
from safetensors.torch import load_file

FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")


class Mismatch(Exception):
    """The case does not reproduce."""


def require(condition, message):
    if not condition:
        raise Mismatch(message)


# ---- reading


def decode(value):
    """An argument as Python has it."""
    if isinstance(value, str):
        if value in FLOATS:
            return FLOATS[value]
        return getattr(torch, value) if value in DTYPES + FORMATS else value
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return value


def lookup(path):
    return reduce(getattr, path.split("."), torch)


class Tensors:
    """The tensors of one case by their short keys."""

    def __init__(self, case, stored):
        self.case, self.stored = case, stored
        self.read = set()

    def load(self, key):
        self.read.add(key)
        return self.stored[f"{self.case['id']}/{key}"].clone()


def bind(item, tensors):
    """An entry of `inputs`: a key, a list of entries, or nothing."""
    if isinstance(item, list):
        return [bind(inner, tensors) for inner in item]
    return None if item is None else tensors[item]


def keys_of(item):
    if isinstance(item, list):
        return [key for inner in item for key in keys_of(inner)]
    return [] if item is None else [item]


def flatten(value):
    """What an op returned, as a list of tensors."""
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, bool):
        return [torch.tensor(value)]
    if isinstance(value, int):
        return [torch.tensor(value, dtype=torch.int64)]
    if isinstance(value, float):
        return [torch.tensor(value, dtype=torch.float64)]
    if isinstance(value, torch.Size) or (value and all(type(item) is int for item in value)):
        return [torch.tensor(list(value), dtype=torch.int64)]
    return [tensor for item in value for tensor in flatten(item)]


# ---- running


def writes(op):
    """Whether the op changes its first operand."""
    return op == "Tensor.__setitem__" or (op.startswith("Tensor.") and op.endswith("_") and not op.endswith("__"))


def run_function(case, tensors, args):
    op, names = case["op"], case["names"]
    values = [bind(item, tensors) for item in case["inputs"]]
    if writes(op) and values[0].requires_grad:
        values[0] = values[0].clone()
    if op == "einsum":
        return torch.einsum(args["equation"], *values[0])
    if op in ("Tensor.__getitem__", "Tensor.__setitem__"):
        index = tuple(index_item(item, values) for item in case["args"]["index"])
        if op == "Tensor.__getitem__":
            return values[0][index]
        values[0][index] = values[names.index("value")] if "value" in names else args["value"]
        return values[0]
    found = lookup(op)
    if not callable(found):
        return found.__get__(values[0])
    positional, named = [], {}
    for name, value in zip(names, values):
        if name == "self":
            positional.append(value)
        elif name.startswith("*"):
            positional += value
        else:
            named[name] = value
    return found(*positional, **named, **args)


def index_item(item, values):
    if isinstance(item, dict):
        return values[item["input"]] if "input" in item else slice(*item["slice"])
    return Ellipsis if item == "..." else item


class Module:
    """Runs a module case and keeps the module, whose parameters hold the gradients."""

    def __init__(self, case, tensors, args):
        self.keys, state, inputs = {}, {}, {}
        for name, item in zip(case["names"], case["inputs"]):
            value = bind(item, tensors)
            if name.startswith("self."):
                state[name.removeprefix("self.")] = value
                self.keys[item] = name.removeprefix("self.")
            else:
                inputs[name] = tuple(value) if isinstance(value, list) else value
        self.module = lookup(case["op"])(**args)
        for value in state.values():
            if value.is_floating_point():
                self.module.to(value.dtype)
        self.module.load_state_dict(state)
        self.module.train(case["training"])
        self.result = self.module(**inputs, **decode(case.get("forward", {})))

    def leaf(self, key):
        return self.module.get_parameter(self.keys[key]) if key in self.keys else None

    def buffers(self):
        names = dict(self.module.named_buffers())
        return {key: names[name] for key, name in self.keys.items() if name in names}


def run_optimizer(case, tensors, args):
    """Parameters after the steps, then losses if there is a closure; and the optimizer's state."""
    named = [(name, bind(item, tensors)) for name, item in zip(case["names"], case["inputs"])]
    if case["op"].startswith("nn.utils."):
        parameters = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in named[0][1]]
        for parameter, grad in zip(parameters, named[0][1]):
            parameter.grad = grad
        total = lookup(case["op"])(parameters, **args)
        return flatten(total) + [parameter.grad for parameter in parameters], {}
    parameters = [torch.nn.Parameter(value) for value in named[0][1]]
    groups = args.pop("param_groups", [{"params": list(range(len(parameters)))}])
    groups = [{**group, "params": [parameters[i] for i in group["params"]]} for group in groups]
    optimizer = lookup(case["op"])(groups, **args)
    if case["op"] == "optim.LBFGS":
        a, b, x = named[1][1], named[2][1], parameters[0]

        def closure():
            optimizer.zero_grad()
            loss = x @ (a @ x) / 2 - b @ x
            loss.backward()
            return loss

        losses = [optimizer.step(closure) for _ in range(case["steps"])]
        return [*parameters, *losses], {}
    for name, grads in named[1:]:
        require(name == "grads", f"unexpected input {name}")
        for parameter, grad in zip(parameters, grads):
            parameter.grad = grad
        optimizer.step()
    state = {
        f"{i}.{name}": torch.tensor(int(value)) if name == "step" else value
        for i, parameter in enumerate(parameters)
        for name, value in optimizer.state[parameter].items()
        if value is not None
    }
    return parameters, state


def rate_function(spec):
    if spec["kind"] == "power":
        return lambda epoch: spec["base"] ** epoch
    if spec["kind"] == "inverse":
        return lambda epoch: 1 / (1 + spec["rate"] * epoch)
    return lambda epoch: min(1, (epoch + 1) / spec["steps"])


def scheduler_for(op, args, optimizer):
    args = dict(args)
    if "lr_lambda" in args:
        args["lr_lambda"] = [rate_function(spec) for spec in args["lr_lambda"]]
    if "schedulers" in args:
        args["schedulers"] = [scheduler_for(part["op"], part["args"], optimizer) for part in args["schedulers"]]
    if op.endswith("ChainedScheduler"):
        return lookup(op)(**args)
    return lookup(op)(optimizer, **args)


def run_schedule(case, tensors, args):
    values = [bind(item, tensors) for item in case["inputs"]]
    if case["op"] == "amp.GradScaler":
        return run_scaler(values[0].tolist(), args)
    setup = dict(case["optimizer"])
    rates = setup.pop("lr")
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    optimizer = lookup(setup.pop("op"))(groups, lr=rates[0], **setup)
    scheduler = scheduler_for(case["op"], args, optimizer)
    table, momenta = [], []
    for step in range(case["steps"] + 1):
        if step > 0:
            optimizer.step()
            scheduler.step(*[metrics[step - 1].item() for metrics in values])
        table.append([group["lr"] for group in optimizer.param_groups])
        momenta.append(
            [group["betas"][0] if "betas" in group else group["momentum"] for group in optimizer.param_groups]
        )
    outputs = [table, momenta] if args.get("cycle_momentum") else [table]
    return [torch.tensor(rows, dtype=torch.float64) for rows in outputs]


def run_scaler(found_inf, args):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", **args)
    scaler.scale(torch.ones(1))
    scales, applied = [], []
    for bad in found_inf:
        before = parameter.detach().clone()
        parameter.grad = torch.tensor([math.inf if bad else scaler.get_scale()])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        applied.append(not torch.equal(before, parameter.detach()))
    return [torch.tensor(scales), torch.tensor(applied)]


# ---- comparing


def compare(label, got, want, rtol, atol, signed_zero=False):
    got = got.detach()
    require(got.dtype == want.dtype, f"{label}: dtype {got.dtype}, expected {want.dtype}")
    require(got.shape == want.shape, f"{label}: shape {list(got.shape)}, expected {list(want.shape)}")
    if not want.is_floating_point():
        require(torch.equal(got, want), f"{label}: values differ")
        return
    a, b = got.double(), want.double()
    require(torch.equal(a.isnan(), b.isnan()), f"{label}: NaN in other places")
    require(torch.equal(a.isinf() * a.sign(), b.isinf() * b.sign()), f"{label}: infinities in other places")
    finite = b.isfinite()
    excess = (a - b).abs()[finite] - (atol + rtol * b.abs()[finite])
    require(
        not (excess > 0).any(), f"{label}: off by {excess.max().item() if excess.numel() else 0:.2e} more than allowed"
    )
    if signed_zero:
        zero = b == 0
        require(torch.equal(a[zero].signbit(), b[zero].signbit()), f"{label}: sign of zero")


def same_bytes(a, b):
    def raw(x):
        return bytes(x.detach().clone(memory_format=torch.contiguous_format).untyped_storage())

    return raw(a) == raw(b)


def check_layout(case, outputs, stores):
    owners = {store.untyped_storage().data_ptr(): key for key, store in stores.items() if store.numel()}
    for key, output in zip(case["expect"], outputs):
        want = case["expect_layout"][key]
        owner = owners.get(output.untyped_storage().data_ptr())
        require(owner == want.get("of"), f"{key}: memory of {owner}, expected {want.get('of')}")
        if output.numel():
            matters = [i for i, size in enumerate(output.shape) if size > 1]
            strides = [output.stride(i) for i in matters], [want["strides"][i] for i in matters]
            require(strides[0] == strides[1], f"{key}: strides {strides[0]}, expected {strides[1]}")
            require(output.storage_offset() == want["offset"], f"{key}: offset {output.storage_offset()}")


def check_property(name, a, outputs):
    """The outputs that have several right answers."""
    outputs = [y.detach() for y in outputs]
    a = a.detach()

    def near(x, y):
        limit = 16 * torch.finfo(a.dtype).eps * max(a.shape[-2:]) * max(1.0, a.abs().max().item())
        require((x - y).abs().max().item() <= limit, f"property {name} does not hold")

    def orthonormal(q):
        near(q.mT @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand_as(q.mT @ q))

    if name == "qr":
        q, r = outputs
        near(q @ r, a)
        orthonormal(q)
        near(r.tril(-1), torch.zeros_like(r))
    elif name == "svd":
        u, s, vh = outputs
        near(u * s.unsqueeze(-2) @ vh, a)
        orthonormal(u)
        orthonormal(vh.mT)
    elif name == "eigh":
        w, v = outputs
        near(v * w.unsqueeze(-2) @ v.mT, a)
        orthonormal(v)
    else:
        raise Mismatch(f"unknown property {name}")


# ---- one case


def check(case, tensors):
    views = case.get("views", {})
    grad_keys = [key for key in case.get("grad_output") or [] if key]
    double = case.get("double_grad", {})
    inputs = [key for key in dict.fromkeys(keys_of(case["inputs"]))]
    stores = {key: tensors.load(key) for key in inputs}
    originals = {key: store.clone() for key, store in stores.items()}
    bound = {
        key: torch.as_strided(store, views[key]["shape"], views[key]["strides"], views[key]["offset"])
        if key in views
        else store
        for key, store in stores.items()
    }
    for key in case.get("requires_grad", []):
        bound[key].requires_grad_()
    args = {name: decode(value) for name, value in case["args"].items()}

    module, state = None, {}
    if case["family"] == "module":
        module = Module(case, bound, args)
        outputs = flatten(module.result)
    elif case["family"] == "optim":
        outputs, state = run_optimizer(case, bound, args)
    elif case["family"] == "schedule":
        outputs = run_schedule(case, bound, args)
    else:
        outputs = flatten(run_function(case, bound, args))

    require(len(outputs) == len(case["expect"]), f"{len(outputs)} outputs, expected {len(case['expect'])}")
    limits = case["rtol"], case["atol"]
    for key, output in zip(case["expect"], outputs):
        if key is not None:
            compare(key, output, tensors.load(key), *limits, case.get("signed_zero", False))
    if "expect_layout" in case:
        check_layout(case, outputs, stores)
    if "property" in case:
        check_property(case["property"], bound[case["inputs"][0]], outputs)

    require(set(state) == set(case.get("expect_state", {})), f"state {sorted(state)}")
    for name, key in case.get("expect_state", {}).items():
        compare(f"state {name}", state[name], tensors.load(key), *limits)
    after = {**stores, **(module.buffers() if module else {})}
    changed = case.get("expect_inputs", {})
    for key in inputs:
        if key in changed:
            compare(f"{key} afterwards", after[key], tensors.load(changed[key]), *limits)
        elif not (writes(case["op"]) and key == case["inputs"][0] and key not in views) and case["family"] != "optim":
            require(same_bytes(after[key], originals[key]), f"{key} was changed")

    if grad_keys:
        check_gradients(case, tensors, module, bound, outputs, double)


def check_gradients(case, tensors, module, bound, outputs, double):
    limits = case["grad_rtol"], case["grad_atol"]
    seeds = {key: tensors.load(key).requires_grad_(bool(double)) for key in case["grad_output"] if key}
    pairs = [(output, seeds[key]) for output, key in zip(outputs, case["grad_output"]) if key]
    leaves = {}
    for key in case["requires_grad"]:
        leaf = module.leaf(key) if module else None
        leaves[key] = bound[key] if leaf is None else leaf
    require(set(leaves) == set(case["expect_grads"]), "gradients of other inputs")
    grads = torch.autograd.grad(
        [y for y, _ in pairs], list(leaves.values()), [seed for _, seed in pairs], create_graph=bool(double)
    )
    grads = dict(zip(leaves, grads))
    for key, want in case["expect_grads"].items():
        compare(f"gradient of {key}", grads[key], tensors.load(want), *limits)
    if not double:
        return
    total = sum((grads[key] * tensors.load(v)).sum() for key, v in double.items())
    expected = case["expect_double_grads"]
    second = torch.autograd.grad(total, [leaves.get(key, seeds.get(key)) for key in expected])
    for (key, want), value in zip(expected.items(), second):
        compare(f"second derivative to {key}", value, tensors.load(want), *limits)


def check_error(case, tensors):
    """The call must raise, and not for a slip of this reader."""
    try:
        check({**case, "rtol": 0, "atol": 0}, tensors)
    except Mismatch:
        raise Mismatch("PyTorch accepts it") from None
    except Exception as error:
        require(case["error"]["torch"] in str(error), f"refused for another reason: {error}")
    else:
        raise Mismatch("PyTorch accepts it")


def contents(case, stored):
    """What makes a case the same as another: the op, its arguments and its inputs."""
    fields = {
        key: case.get(key)
        for key in ("op", "inputs", "names", "args", "views", "forward", "training", "optimizer", "steps")
    }
    keys = dict.fromkeys(keys_of(case["inputs"]))
    tensors = [
        (str(t.dtype), tuple(t.shape), bytes(t.clone().untyped_storage()))
        for t in (stored[f"{case['id']}/{key}"] for key in keys)
    ]
    return json.dumps(fields, sort_keys=True), tuple(tensors)


def load(folder):
    return json.loads((folder / "cases.json").read_text()), load_file(folder / "tensors.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path, metavar="OTHER", help="count the cases that this set shares with OTHER")
    parser.add_argument("--verbose", action="store_true", help="show the traceback of the first failure")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    document, stored = load(options.folder)
    passed, failed, used, ids = Counter(), [], set(), set()
    for case in document["cases"]:
        tensors = Tensors(case, stored)
        try:
            require(case["id"] not in ids, "the id is taken")
            (check_error if "error" in case else check)(case, tensors)
            passed[case["family"]] += 1
        except Exception as error:
            if options.verbose and not failed and not isinstance(error, Mismatch):
                raise
            failed.append(f"{case['id']}: {type(error).__name__}: {str(error).splitlines()[0]}")
        ids.add(case["id"])
        used |= {f"{case['id']}/{key}" for key in tensors.read}
    unread = set(stored) - used
    failed += [f"{key}: no case reads it" for key in sorted(unread)]
    print(*failed, sep="\n") if failed else None
    for family, count in passed.items():
        print(f"{family:12} {count:5} pass")
    print(f"{'all':12} {sum(passed.values()):5} pass of {len(document['cases'])}")
    if options.against:
        other, other_stored = load(options.against)
        mine = {contents(case, stored): case["id"] for case in document["cases"]}
        shared = [mine[key] for key in (contents(case, other_stored) for case in other["cases"]) if key in mine]
        print(f"{len(shared)} cases are in both sets", *shared)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
