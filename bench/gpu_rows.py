"""The rows of the GPU benchmark: kernels and a model, written once for any framework.

A piece is a list of rows. Sizes are those of large models. `bytes` is the least traffic, `flops`
the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import models
import numpy as np

DRAWN = 4_194_301
"""Numbers that are drawn for one tensor, at most. A prime, so that rows of a matrix differ."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    make(torch, device, dtype) -> (step, results): step() is timed; results() returns a list of
    tensors to compare. dtype: of the computation. measure: the kind of goal: "ratio" to PyTorch
    eager, "compiled" to torch.compile, "bandwidth" (a share of the bandwidth of a copy), or
    "tflops".
    """

    name: str
    goal: float
    measure: str
    make: Callable[[Any, str, str], tuple[Callable[[], Any], Callable[[], list[Any]]]]
    bytes: float = 0
    flops: float = 0
    dtype: str = "bfloat16"
    compiled: bool = False
    tolerance: float = 2e-2


def numbers(
    torch: Any,
    device: str,
    dtype: str,
    *shapes: Sequence[int],
    seed: int = 0,
    rounded: bool = True,
) -> list[Any]:
    """Tensors that are the same for every framework and dtype, as they are rounded to bfloat16
    (if `rounded`, otherwise for float32 and float64). Large ones repeat a block of numbers on the
    device."""
    rng = np.random.default_rng(seed)
    out = []
    for shape in shapes:
        count = math.prod(shape)
        block = rng.standard_normal(min(count, DRAWN), dtype=np.float32)
        if rounded:
            block = (block.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        values = torch.tensor(block).to(device).to(getattr(torch, dtype))
        if count > DRAWN:
            values = values.repeat(-(-count // DRAWN))[:count]
        out.append(values.reshape(tuple(shape)).clone())
    return out


def forward(function: Callable[..., Any], *shapes: Sequence[int], rounded: bool = True) -> Any:
    """function(torch, *tensors), without gradients."""

    def make(torch: Any, device: str, dtype: str) -> Any:
        tensors = numbers(torch, device, dtype, *shapes, rounded=rounded)

        def step() -> Any:
            with torch.no_grad():
                return function(torch, *tensors)

        return step, lambda: [step()]

    return make


def both_ways(function: Callable[..., Any], *shapes: Sequence[int]) -> Any:
    """function(torch, *tensors), then the gradients of its sum weighted by fixed numbers."""

    def make(torch: Any, device: str, dtype: str) -> Any:
        tensors = [t.requires_grad_() for t in numbers(torch, device, dtype, *shapes)]
        (weight,) = numbers(torch, device, dtype, shapes[0], seed=1)

        def step() -> list[Any]:
            for t in tensors:
                t.grad = None
            y = function(torch, *tensors)
            y.backward(weight)
            return [y.detach(), *(t.grad for t in tensors)]

        return step, step

    return make


def both_ways_of(function: Callable[..., Any], *shapes: Sequence[int]) -> Any:
    """function(torch, *tensors), then the gradients of half the sum of its squares."""

    def make(torch: Any, device: str, dtype: str) -> Any:
        tensors = [t.requires_grad_() for t in numbers(torch, device, dtype, *shapes)]

        def step() -> list[Any]:
            for t in tensors:
                t.grad = None
            y = function(torch, *tensors)
            y.backward(y.detach())
            return [y.detach(), *(t.grad for t in tensors)]

        return step, step

    return make


def _chain(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(x * w + b, approximate="tanh")


def _softmax(torch: Any, x: Any) -> Any:
    return torch.nn.functional.softmax(x, -1)


def _layer_norm(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)


def cross_entropy(rows: int, classes: int) -> Any:
    def make(torch: Any, device: str, dtype: str) -> Any:
        (logits,) = numbers(torch, device, dtype, (rows, classes))
        logits.requires_grad_()
        targets = torch.tensor(np.random.default_rng(2).integers(0, classes, rows)).to(device)

        def step() -> list[Any]:
            logits.grad = None
            loss = torch.nn.functional.cross_entropy(logits, targets)
            loss.backward()
            return [loss.detach(), logits.grad]

        return step, step

    return make


def adam(count: int) -> Any:
    def make(torch: Any, device: str, dtype: str) -> Any:
        shape = (count,)
        parameters = [t.requires_grad_() for t in numbers(torch, device, dtype, shape)]
        for p, g in zip(parameters, numbers(torch, device, dtype, shape, seed=1), strict=True):
            p.grad = g
        options = {"fused": True} if torch.__name__ == "torch" else {}
        optimizer = torch.optim.Adam(parameters, lr=1e-3, **options)

        def results() -> list[Any]:
            optimizer.step()
            return [p.detach() for p in parameters]

        return optimizer.step, results

    return make


WIDE, ROWS = 4096, 16384
MEMORY = [
    Row("gelu(x * w + b)", 0.92, "bandwidth", forward(_chain, (ROWS, WIDE), (WIDE,), (WIDE,)),
        bytes=2 * 2 * ROWS * WIDE, compiled=True),
    Row("softmax", 0.92, "bandwidth", forward(_softmax, (ROWS, WIDE)), bytes=2 * 2 * ROWS * WIDE),
    Row("softmax, both ways", 0.92, "bandwidth", both_ways(_softmax, (ROWS, WIDE)),
        bytes=2 * 4 * ROWS * WIDE, compiled=True),
    Row("layer norm", 0.92, "bandwidth", forward(_layer_norm, (ROWS, WIDE), (WIDE,), (WIDE,)),
        bytes=2 * 2 * ROWS * WIDE),
    Row("layer norm, both ways", 0.92, "bandwidth",
        both_ways(_layer_norm, (ROWS, WIDE), (WIDE,), (WIDE,)), bytes=2 * 4 * ROWS * WIDE,
        compiled=True),
    Row("cross entropy, both ways", 0.92, "bandwidth", cross_entropy(8192, 50304),
        bytes=2 * 3 * 8192 * 50304, compiled=True),
    Row("Adam, 124 M parameters", 0.92, "bandwidth", adam(124 << 20), bytes=4 * 7 * (124 << 20),
        dtype="float32", tolerance=1e-5),
]  # fmt: skip


def _product(torch: Any, a: Any, b: Any) -> Any:
    return a @ b


def _product_t(torch: Any, a: Any, b: Any) -> Any:
    return a @ b.T


def _linear_gelu(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b), approximate="tanh")


def _linear_add(torch: Any, x: Any, w: Any, b: Any, residual: Any) -> Any:
    return torch.nn.functional.linear(x, w, b) * 0.5 + residual


def _linear_softmax(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.softmax(torch.nn.functional.linear(x, w, b), -1)


def _linear_norm(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w, b), b.shape)


def _gemm(m: int, n: int, k: int, transposed: bool = False) -> Row:
    b = (n, k) if transposed else (k, n)
    name = f"GEMM {m} x {n} x {k}" + (", b transposed" if transposed else "")
    function = _product_t if transposed else _product
    whole = m == n == k == 8192
    return Row(
        name,
        750 if whole else 0.95,
        "tflops" if whole else "ratio",
        forward(function, (m, k), b),
        bytes=2.0 * (m * k + k * n + m * n),
        flops=2.0 * m * n * k,
    )


GEMM = [
    _gemm(1024, 1024, 1024),
    _gemm(2048, 2048, 2048),
    _gemm(4096, 4096, 4096),
    _gemm(8192, 8192, 8192),
    _gemm(8192, 8192, 8192, transposed=True),
    _gemm(8192, 4096, 1024, transposed=True),
    _gemm(8192, 1024, 4096, transposed=True),
    _gemm(8192, 28672, 4096, transposed=True),
    _gemm(16, 8192, 8192, transposed=True),
    _gemm(256, 256, 65536),
]


def _float32(m: int, n: int, k: int, transposed: bool = False) -> Row:
    """A product of float32 that isn't rounded to TF32, which PyTorch's default forbids."""
    row = _gemm(m, n, k, transposed)
    function, b = (_product_t, (n, k)) if transposed else (_product, (k, n))
    return replace(
        row,
        name=f"float32 {row.name}",
        goal=1.0,
        measure="ratio",
        make=forward(function, (m, k), b, rounded=False),
        bytes=2 * row.bytes,
        dtype="float32",
        tolerance=1e-6,
    )


FLOAT32 = [
    _float32(1024, 1024, 1024),
    _float32(4096, 4096, 4096),
    _float32(1024, 8192, 8192, transposed=True),
    _float32(16384, 4096, 4096, transposed=True),
    _float32(8205, 5921, 2949),
]
EPILOGUE = [
    Row("gelu(linear), 8192 x 4096 x 1024", 1.15, "ratio",
        forward(_linear_gelu, (8192, 1024), (4096, 1024), (4096,)),
        flops=2.0 * 8192 * 4096 * 1024, compiled=True),
    Row("linear / 2 + residual, 8192 x 1024 x 4096", 1.15, "ratio",
        forward(_linear_add, (8192, 4096), (1024, 4096), (1024,), (8192, 1024)),
        flops=2.0 * 8192 * 4096 * 1024, compiled=True),
    Row("softmax(linear), 65536 x 256 x 256", 1.15, "ratio",
        forward(_linear_softmax, (65536, 256), (256, 256), (256,)),
        bytes=2.0 * 2 * 65536 * 256, flops=2.0 * 65536 * 256 * 256, compiled=True),
    Row("layer norm(linear), 65536 x 128 x 256", 1.15, "ratio",
        forward(_linear_norm, (65536, 256), (128, 256), (128,)),
        bytes=2.0 * 65536 * (256 + 128), flops=2.0 * 65536 * 128 * 256, compiled=True),
]  # fmt: skip


def in_groups(m: int, n: int, k: int, groups: int, back: bool) -> Any:
    """x[M, K] in groups of rows times w[G, N, K], as with experts. Their shares of the rows are
    unequal, and the first has none."""
    shares = np.random.default_rng(3).dirichlet(np.full(groups - 1, 4.0))
    ends = [0, *(int(e) for e in np.rint(np.cumsum(shares) * m))]

    def make(torch: Any, device: str, dtype: str) -> Any:
        offs = torch.tensor(ends, dtype=torch.int32).to(device)

        def product(torch: Any, x: Any, w: Any) -> Any:
            if dtype == "float64":  # which PyTorch's grouped_mm doesn't take
                parts = zip([0, *ends], ends, w)
                return torch.cat([x[i:j] @ matrix.T for i, j, matrix in parts])
            return torch.nn.functional.grouped_mm(x, w.transpose(1, 2), offs=offs)

        measured = both_ways_of if back else forward
        return measured(product, (m, k), (groups, n, k))(torch, device, dtype)

    return make


def _grouped(m: int, n: int, k: int, groups: int) -> list[Row]:
    name = f"grouped GEMM {m} x {n} x {k}, {groups} groups"
    flops = 2.0 * m * n * k
    return [
        Row(f"{name}, forward", 0.95, "ratio", in_groups(m, n, k, groups, False), flops=flops),
        Row(f"{name}, both ways", 0.95, "ratio", in_groups(m, n, k, groups, True),
            flops=3 * flops),
    ]  # fmt: skip


GROUPED = [*_grouped(8192, 4096, 1024, 8), *_grouped(8192, 1024, 4096, 64)]


def _causal(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention(batch: int, heads: int, length: int, width: int) -> list[Row]:
    shape = (batch, heads, length, width)
    flops = 2.0 * batch * heads * length * length * width  # half of the products are masked
    name = f"attention {batch} x {heads} x {length} x {width}, causal"
    whole = (length, width) == (8192, 128)
    return [
        Row(f"{name}, forward", 600 if whole else 1.0, "tflops" if whole else "ratio",
            forward(_causal, shape, shape, shape), flops=flops),
        Row(f"{name}, both ways", 1.0, "ratio", both_ways(_causal, shape, shape, shape),
            flops=3.5 * flops),
    ]  # fmt: skip


ATTENTION = [*_attention(2, 16, 8192, 128), *_attention(8, 12, 1024, 64)]


def _conv(x: Sequence[int], w: Sequence[int], stride: int) -> list[Row]:
    def convolved(torch: Any, a: Any, b: Any) -> Any:
        return torch.nn.functional.conv2d(a, b, stride=stride, padding=w[-1] // 2)

    out = (x[2] + 2 * (w[-1] // 2) - w[-1]) // stride + 1
    flops = 2.0 * x[0] * out * out * math.prod(w)
    name = f"conv {w[2]}x{w[3]}, {x[1]} to {w[0]} at {x[2]}" + ("/2" if stride > 1 else "")
    return [
        Row(f"{name}, forward", 0.9, "ratio", forward(convolved, x, w), flops=flops),
        Row(f"{name}, both ways", 0.9, "ratio", both_ways_of(convolved, x, w), flops=3 * flops),
    ]


CONV = [
    *_conv((128, 64, 56, 56), (64, 64, 3, 3), 1),
    *_conv((128, 128, 28, 28), (128, 128, 3, 3), 1),
    *_conv((128, 256, 14, 14), (256, 256, 3, 3), 1),
    *_conv((128, 256, 56, 56), (512, 256, 1, 1), 2),
    *_conv((128, 512, 7, 7), (512, 512, 3, 3), 1),
    *_conv((128, 3, 224, 224), (64, 3, 7, 7), 2),
]

BATCH, CONTEXT, VOCAB = 8, 1024, 50304
TOKENS = BATCH * CONTEXT


def _gpt2(torch: Any, device: str, dtype: str) -> Any:
    """One AdamW step of GPT-2 with 124 M parameters, products in bfloat16 by autocast."""
    model = models.gpt(
        torch, layers=12, heads=12, width=768, context=CONTEXT, vocab=VOCAB, fused_attention=True
    )
    model = models.filled(torch, model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.integers(0, VOCAB, (BATCH, CONTEXT))).to(device) for _ in range(2))
    kind = device.partition(":")[0]
    half = dtype != "float64"
    if not half:
        model.double()

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(kind, torch.bfloat16, enabled=half):
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda: [step() for _ in range(3)]


MODEL = [
    Row("GPT-2 124M, AdamW step of 8 x 1024 tokens", 1.1, "compiled", _gpt2,
        flops=6.0 * 124e6 * TOKENS, compiled=True, tolerance=1e-2),
]  # fmt: skip

PIECES = {
    "memory": MEMORY,
    "gemm": GEMM,
    "float32": FLOAT32,
    "epilogue": EPILOGUE,
    "grouped": GROUPED,
    "attention": ATTENTION,
    "conv": CONV,
    "model": MODEL,
}
