"""Runs one op the way docs/cases.md says its case is run."""

import functools

import torch

WIDE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64}


def resolve(op):
    return functools.reduce(getattr, op.split("."), torch)


def in_place(op):
    return op == "Tensor.__setitem__" or (op.startswith("Tensor.") and op.endswith("_") and not op.endswith("__"))


def flatten(value):
    """The outputs of an op in order; Python results become tensors."""
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, float):
        return [torch.tensor(value, dtype=torch.float64)]
    if isinstance(value, (bool, int)):
        return [torch.tensor(value)]
    if isinstance(value, torch.Size) or (value and all(type(item) is int for item in value)):
        return [torch.tensor(list(value), dtype=torch.int64)]
    return [leaf for item in value for leaf in flatten(item)]


class Run:
    """What a run leaves behind: outputs, the leaves gradients refer to, and state that changed."""

    def __init__(self, outputs, leaves=None, buffers=None, state=None):
        self.outputs = outputs
        self.leaves = leaves or {}
        self.buffers = buffers or {}
        self.state = state or {}


def run_function(case, values, args):
    op, names = case.op, case.names
    if op == "einsum":
        return Run(flatten(torch.einsum(args["equation"], *values[0])))
    if in_place(op) and values[0].requires_grad:
        values = [values[0].clone(), *values[1:]]
    if op in ("Tensor.__getitem__", "Tensor.__setitem__"):
        return Run(flatten(run_index(op, names, values, args)))
    function = resolve(op)
    if not callable(function):
        return Run(flatten(getattr(values[0], op.split(".")[-1])))
    positional, keywords = [], dict(args)
    for name, value in zip(names, values):
        if name == "self":
            positional.append(value)
        elif name.startswith("*"):
            positional.extend(value)
        else:
            keywords[name] = value
    return Run(flatten(function(*positional, **keywords)))


def run_index(op, names, values, args):
    index = tuple(values[item["input"]] if isinstance(item, dict) else item for item in args["index"])
    target = values[0]
    if op == "Tensor.__getitem__":
        return target[index]
    target[index] = values[names.index("value")] if "value" in names else args["value"]
    return target


def run_module(case, values, args):
    named = dict(zip(case.names, values))
    state = {name[5:]: value for name, value in named.items() if name.startswith("self.")}
    module = resolve(case.op)(**args)
    dtypes = {value.dtype for value in state.values() if value.is_floating_point()}
    if dtypes:
        module.to(dtypes.pop())
    module.load_state_dict(state)
    module.train(case.fields["training"])
    inputs = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in named.items()
        if not name.startswith("self.")
    }
    outputs = flatten(module(**inputs, **case.fields.get("forward", {})))
    keys = {name[5:]: key for name, key in zip(case.names, case.inputs) if name.startswith("self.")}
    leaves = {keys[name]: parameter for name, parameter in module.named_parameters()}
    buffers = {keys[name]: buffer for name, buffer in module.named_buffers()}
    return Run(outputs, leaves, buffers)


def run_optimizer(case, values, args):
    named = list(zip(case.names, values))
    if case.op.startswith("nn.utils."):
        parameters = [torch.zeros_like(grad).requires_grad_() for grad in values[0]]
        for parameter, grad in zip(parameters, values[0]):
            parameter.grad = grad
        total = resolve(case.op)(parameters, **args)
        return Run(([] if total is None else [total]) + [parameter.grad for parameter in parameters])
    parameters = [torch.nn.Parameter(value.clone()) for value in named[0][1]]
    args = dict(args)
    groups = [
        {**group, "params": [parameters[i] for i in group["params"]]}
        for group in args.pop("param_groups", [{"params": range(len(parameters))}])
    ]
    optimizer = resolve(case.op)(groups, **args)
    losses = []
    if case.op == "optim.LBFGS":
        x, a, b = parameters[0], named[1][1], named[2][1]

        def closure():
            optimizer.zero_grad()
            loss = 0.5 * x @ (a @ x) - b @ x
            loss.backward()
            return loss

        losses = [optimizer.step(closure).detach() for _ in range(case.fields["steps"])]
    for name, grads in named[1:]:
        if name == "grads":
            for parameter, grad in zip(parameters, grads):
                parameter.grad = None if grad is None else grad.clone()
            optimizer.step()
    state = {}
    if case.op != "optim.LBFGS":
        for i, parameter in enumerate(parameters):
            for key, value in optimizer.state[parameter].items():
                if key == "step":
                    state[f"{i}.step"] = torch.tensor(int(value))
                elif value is not None:
                    state[f"{i}.{key}"] = value
    return Run([parameter.detach() for parameter in parameters] + losses, state=state)


FACTORS = {
    "power": lambda spec: lambda epoch: spec["base"] ** epoch,
    "inverse": lambda spec: lambda epoch: 1 / (1 + spec["rate"] * epoch),
    "warmup": lambda spec: lambda epoch: min(1.0, (epoch + 1) / spec["steps"]),
}


def make_scheduler(op, args, optimizer):
    args = dict(args)
    if "lr_lambda" in args:
        args["lr_lambda"] = [FACTORS[spec["kind"]](spec) for spec in args["lr_lambda"]]
    if "schedulers" in args:
        args["schedulers"] = [make_scheduler(inner["op"], inner["args"], optimizer) for inner in args["schedulers"]]
    if op == "optim.lr_scheduler.ChainedScheduler":
        return resolve(op)(args["schedulers"])
    return resolve(op)(optimizer, **args)


def run_schedule(case, values, args):
    if case.op == "amp.GradScaler":
        return run_scaler(values[0], args)
    setup = dict(case.fields["optimizer"])
    lrs = setup.pop("lr")
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    optimizer = resolve(setup.pop("op"))(groups, lr=lrs[0], **setup)
    scheduler = make_scheduler(case.op, args, optimizer)
    cycles = args.get("cycle_momentum", False)

    def momentum(group):
        return group["betas"][0] if "betas" in group else group["momentum"]

    rates, momenta = [], []
    for step in range(case.fields["steps"] + 1):
        if step:
            optimizer.step()
            scheduler.step(*([values[0][step - 1].item()] if values else []))
        rates.append([float(group["lr"]) for group in optimizer.param_groups])
        momenta.append([float(momentum(group)) for group in optimizer.param_groups] if cycles else [])
    tables = [rates, momenta] if cycles else [rates]
    return Run([torch.tensor(table, dtype=torch.float64) for table in tables])


def run_scaler(found_inf, args):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", **args)
    scaler.scale(torch.zeros(1))
    scales, applied = [], []
    for bad in found_inf.tolist():
        before = parameter.item()
        parameter.grad = torch.full((1,), float("inf") if bad else scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        applied.append(parameter.item() != before)
    return Run([torch.tensor(scales), torch.tensor(applied)])


RUNNERS = {"module": run_module, "optim": run_optimizer, "schedule": run_schedule}


def widen(value, rounded):
    """Arguments for the float64 run. `rounded`: a number meets float32 tensors, so it is a float32."""
    if isinstance(value, torch.dtype):
        return WIDE.get(value, value)
    if isinstance(value, dict):
        return {key: widen(item, rounded) for key, item in value.items()}
    if isinstance(value, float) and rounded:
        return torch.tensor(value, dtype=torch.float32).item()
    return value


class Result:
    """What a case gives: values, gradients, the inputs afterwards, and how the outputs lie in memory."""

    def __init__(self, run, stores, grads, double_grads):
        def detach(found):
            return {key: None if value is None else value.detach() for key, value in found.items()}

        self.outputs = [y.detach() for y in run.outputs]
        self.tracked = [y.requires_grad for y in run.outputs]
        self.grads, self.double_grads = detach(grads), detach(double_grads)
        self.after = detach({key: run.buffers.get(key, store) for key, store in stores.items()})
        self.state = detach(run.state)
        owners = {store.untyped_storage().data_ptr(): key for key, store in stores.items() if store.numel()}
        self.layouts = []
        for y in run.outputs:
            layout = {"strides": list(y.stride()), "offset": y.storage_offset()}
            owner = owners.get(y.untyped_storage().data_ptr())
            self.layouts.append({**layout, "of": owner} if owner else layout)


def evaluate(case, wide=False, nudge=None):
    """Runs the case, in its own dtypes or in float64, optionally with relative noise on its inputs."""
    stores = {}
    for key, store in case.stores.items():
        store = store.to(WIDE.get(store.dtype, store.dtype) if wide else store.dtype, copy=True)
        if nudge is not None and store.is_floating_point() and key not in case.fixed:
            noise = torch.from_numpy(nudge.rng.uniform(-1, 1, size=tuple(store.shape)))
            store = store * (1 + noise * case.precision)
        stores[key] = store
    tensors = {key: store.as_strided(*case.views[key]) if key in case.views else store for key, store in stores.items()}
    for key in case.requires_grad:
        tensors[key].requires_grad_()

    def bind(item):
        return [bind(inner) for inner in item] if isinstance(item, list) else None if item is None else tensors[item]

    values = [bind(item) for item in case.inputs]
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        args = {**widen(case.args, case.rounds_numbers), **case.wide_args} if wide else case.args
        run = RUNNERS.get(case.family, run_function)(case, values, args)
        grads, double_grads = backward(case, run, tensors)
    finally:
        torch.set_default_dtype(torch.float32)
    return Result(run, stores, grads, double_grads)


def backward(case, run, tensors):
    """The gradients of the inputs, and those of <gradients, v> where the case asks for them."""
    if not case.grad_output:
        return {}, {}
    pairs = [(y, tensors[key]) for y, key in zip(run.outputs, case.grad_output) if key is not None]
    leaves = {key: run.leaves.get(key, tensors[key]) for key in case.requires_grad}
    seeds = {key: tensors[key] for key in case.grad_output if key is not None}
    twice = bool(case.double_grad)
    if twice:
        for seed in seeds.values():
            seed.requires_grad_()
    outputs, grad_outputs = zip(*pairs)
    found = torch.autograd.grad(outputs, list(leaves.values()), grad_outputs, allow_unused=True, create_graph=twice)
    grads = dict(zip(leaves, found))
    if not twice:
        return grads, {}
    total = sum((grads[key] * tensors[v]).sum() for key, v in case.double_grad.items())
    sources = {**leaves, **seeds}
    found = torch.autograd.grad(total, list(sources.values()), allow_unused=True)
    return grads, {key: value for key, value in zip(sources, found) if value is not None}
