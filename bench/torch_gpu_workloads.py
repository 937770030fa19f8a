#!/usr/bin/env python3
"""Workloads that keep a GPU busy, run on PyTorch: those of `fireclay bench --only gpu/` under the same names.

Prints one JSON object a line, as torch_workloads.py does; one that fails is a line that says so.
Usage: python torch_gpu_workloads.py [--only PREFIX] [--seconds S] [--device D] [--small]
"""
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_stopwatch import arguments, stopwatch

args = arguments(__doc__, "--small")
bench = stopwatch(args)

# As in crates/cli/src/bench/device_loads.rs.
LONG, ROWS, CLASSES, IMAGES, SQUARES, FEW, BATCH, HEADS, GPT = (
    (1 << 14, (16, 256), (8, 64), (2, 4, 6, 6), (64,), (4, 64, 64), (2, 32, 32, 16), (1, 2, 32, 16), (1, 16, 2, 8, 2))
    if args.small
    else (1 << 27, (32768, 4096), (8192, 32768), (32, 128, 56, 56), (4096, 8192), (16, 8192, 8192), (64, 1024, 1024, 64),
          (4, 16, 2048, 64), (12, 768, 12, 1024, 8))
)
TOKENS = 256
DTYPES = ((torch.float32, "f32"), (torch.bfloat16, "bf16"))


def load(name, prepare):
    """Measures what `prepare` makes, if it is asked for; memory is free again afterwards."""
    name = "gpu/" + name
    if not name.startswith(args.only):
        return
    try:
        bench(name, prepare())
    except RuntimeError as error:
        print(json.dumps({"workload": name, "failed": str(error).splitlines()[0]}), flush=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def random(shape, dtype):
    return torch.randn(shape).to(dtype)


def leaf(shape, dtype):
    return random(shape, dtype).requires_grad_()


def gradients(forward, leaves, grad=None):
    return lambda: torch.autograd.grad(forward(), leaves, grad)


# --- pointwise ---------------------------------------------------------------------------
for dtype, label in DTYPES:
    def vectors(call, dtype=dtype):
        x, y = random((LONG,), dtype), random((LONG,), dtype)
        return lambda: call(x, y)

    load(f"copy_{label}_{LONG}", lambda: vectors(lambda x, y: x.clone()))
    load(f"add_{label}_{LONG}", lambda: vectors(lambda x, y: x + y))
    load(f"gelu_{label}_{LONG}", lambda: vectors(lambda x, y: F.gelu(x)))
    load(f"fused_chain_{label}_{LONG}", lambda: vectors(lambda x, y: ((x * y + x).tanh() * 0.5 + 1.0).relu()))
    load(f"sum_{label}_{LONG}", lambda: vectors(lambda x, y: x.sum()))


# --- rows --------------------------------------------------------------------------------
def there_and_back(module, shape, dtype):
    module, x, grad = module.to(dtype), leaf(shape, dtype), random(shape, dtype)
    return gradients(lambda: module(x), [x, *module.parameters()], grad)


def forward_only(module, x):
    def call():
        with torch.no_grad():
            return module(x)

    return call


for dtype, label in DTYPES:
    place, cols = f"{label}_{ROWS[0]}x{ROWS[1]}", ROWS[1]

    def softmax(dtype=dtype):
        x = random(ROWS, dtype)
        return lambda: x.softmax(-1)

    load(f"softmax_{place}", softmax)
    load(f"layer_norm_{place}", lambda: forward_only(nn.LayerNorm(cols).to(dtype), random(ROWS, dtype)))
    load(f"layer_norm_fwd_bwd_{place}", lambda: there_and_back(nn.LayerNorm(cols), ROWS, dtype))
    load(f"rms_norm_fwd_bwd_{place}", lambda: there_and_back(nn.RMSNorm(cols), ROWS, dtype))


def cross_entropy():
    logits, targets = leaf(CLASSES, torch.float32), torch.randint(0, CLASSES[1], (CLASSES[0],))
    return gradients(lambda: F.cross_entropy(logits, targets), [logits])


def index_select():
    x, places = random(ROWS, torch.float32), torch.randint(0, ROWS[0], (ROWS[0],))
    return lambda: x.index_select(0, places)


load(f"cross_entropy_fwd_bwd_f32_{CLASSES[0]}x{CLASSES[1]}", cross_entropy)
load(f"index_select_f32_{ROWS[0]}x{ROWS[1]}", index_select)

# --- images ------------------------------------------------------------------------------
images, channels, height, width = IMAGES
place = f"b{images}_c{channels}_{height}x{width}"
load(f"batch_norm_fwd_bwd_f32_{place}", lambda: there_and_back(nn.BatchNorm2d(channels), IMAGES, torch.float32))
for dtype, label in DTYPES:
    kernel = (channels, channels, 3, 3)

    def conv(dtype=dtype):
        x, weight = random(IMAGES, dtype), random(kernel, dtype)
        return lambda: F.conv2d(x, weight, padding=1)

    def conv_back(dtype=dtype):
        x, weight, grad = leaf(IMAGES, dtype), leaf(kernel, dtype), random(IMAGES, dtype)
        return gradients(lambda: F.conv2d(x, weight, padding=1), [x, weight], grad)

    load(f"conv3x3_{label}_{place}", conv)
    load(f"conv3x3_fwd_bwd_{label}_{place}", conv_back)


# --- products ----------------------------------------------------------------------------
def product(batch, m, n, k, dtype):
    a, b = random((batch, m, k), dtype), random((batch, k, n), dtype)
    return lambda: a @ b


for dtype, label in DTYPES:
    for n in SQUARES:
        load(f"matmul_{label}_{n}", lambda: product(1, n, n, n, dtype))
    m, n, k = FEW
    load(f"matmul_{label}_{m}x{n}x{k}", lambda: product(1, m, n, k, dtype))
    batch, m, n, k = BATCH
    load(f"matmul_{label}_b{batch}_{m}x{n}x{k}", lambda: product(batch, m, n, k, dtype))

# --- attention ---------------------------------------------------------------------------
for dtype, label in DTYPES:
    place = "{}_b{}_h{}_t{}_d{}".format(label, *HEADS)

    def attention(dtype=dtype):
        query, key, value = (random(HEADS, dtype) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def attention_back(dtype=dtype):
        operands, grad = [leaf(HEADS, dtype) for _ in range(3)], random(HEADS, dtype)
        return gradients(lambda: F.scaled_dot_product_attention(*operands, is_causal=True), operands, grad)

    load(f"attention_causal_{place}", attention)
    load(f"attention_causal_fwd_bwd_{place}", attention_back)


# --- training ----------------------------------------------------------------------------
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = self.qkv(self.ln1(x)).split(width, 2)
        query, key, value = (part.view(n, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, TOKENS, bias=False)

    def forward(self, x):
        return self.scores(self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]]))).flatten(0, 1)


def train():
    layers, width, heads, context, passages = GPT
    model = Gpt(layers, width, heads, context)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    x, y = torch.randint(0, TOKENS, (passages, context)), torch.randint(0, TOKENS, (passages * context,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


load("train_gpt_{}x{}_t{}_b{}_adamw_f32".format(*GPT[:2], *GPT[3:]), train)
