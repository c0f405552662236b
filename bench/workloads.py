"""The rows of the CPU benchmark: kernels and models, written once for any framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import models
import numpy as np


class Work(NamedTuple):
    """step() is timed. results() is compared first: tensors or numbers, also in nested lists."""

    step: Callable[[], Any]
    results: Callable[[], Any]


Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """One comparison. make(torch, wrap) -> Work. `wrap` compiles a model or function, or returns
    it.

    goal: speedup over PyTorch. tolerance: of the results, absolute and relative.
    """

    name: str
    goal: float
    make: Callable[[Any, Wrap], Work]
    rounds: int = 15
    inner: int = 5
    tolerance: float = 2e-4


def inputs(torch: Any, *shapes: tuple[int, ...], grad: bool = False) -> list[Any]:
    """The same numbers for both frameworks."""
    rng = np.random.default_rng(0)
    out = []
    for shape in shapes:
        tensor = torch.tensor(rng.standard_normal(shape).astype(np.float32))
        out.append(tensor.requires_grad_() if grad else tensor)
    return out


def integers(torch: Any, high: int, *shape: int, seed: int = 1) -> Any:
    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape))


# Kernels.


def forward(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """function(torch, *tensors), without gradients."""

    def make(torch: Any, wrap: Wrap) -> Work:
        tensors = [t.to(getattr(torch, dtype)) for t in inputs(torch, *shapes)]
        wrapped = wrap(lambda *xs: function(torch, *xs))

        def step() -> Any:
            with torch.no_grad():
                return wrapped(*tensors)

        return Work(step, lambda: [step()])

    return make


def both_ways(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    """function(torch, *tensors), then the gradients of its sum weighted by fixed numbers."""

    def make(torch: Any, wrap: Wrap) -> Work:
        tensors = inputs(torch, *shapes, grad=True)
        wrapped = wrap(lambda *xs: function(torch, *xs))
        (weight,) = inputs(torch, shapes[0])

        def step() -> list[Any]:
            for t in tensors:
                t.grad = None
            y = wrapped(*tensors)
            y.backward(weight)
            return [y.detach(), *(t.grad for t in tensors)]

        return Work(step, step)

    return make


def cross_entropy(torch: Any, wrap: Wrap) -> Work:
    (logits,) = inputs(torch, (2048, 1000), grad=True)
    targets = integers(torch, 1000, 2048)
    loss_of = wrap(torch.nn.functional.cross_entropy)

    def step() -> list[Any]:
        logits.grad = None
        loss = loss_of(logits, targets)
        loss.backward()
        return [loss.detach(), logits.grad]

    return Work(step, step)


def adam(fused: bool) -> Any:
    def make(torch: Any, wrap: Wrap) -> Work:
        sizes = [(1024, 1024)] * 9 + [(1024, 512), (512,), (1024,)]
        parameters = inputs(torch, *sizes, grad=True)
        for p, g in zip(parameters, inputs(torch, *sizes), strict=True):
            p.grad = g
        options = {"fused": True} if fused and torch.__name__ == "torch" else {}
        optimizer = torch.optim.Adam(parameters, lr=1e-3, **options)
        step = wrap(optimizer.step)

        def results() -> list[Any]:
            step()
            return [p.detach() for p in parameters[-3:]]

        return Work(step, results)

    return make


def conv_gradient(which: int, x: tuple[int, ...], w: tuple[int, ...], stride: int) -> Any:
    """The gradient of a convolution with respect to its input (0) or weight (1)."""

    def make(torch: Any, wrap: Wrap) -> Work:
        operands = inputs(torch, x, w)
        wanted = operands[which].requires_grad_()
        y = torch.nn.functional.conv2d(*operands, stride=stride, padding=w[-1] // 2)
        (g,) = inputs(torch, tuple(y.shape))

        def step() -> Any:
            return torch.autograd.grad(y, wanted, g, retain_graph=True)

        return Work(step, step)

    return make


def _gelu(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(x * w + b, approximate="tanh")


def _layer_norm(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)


def _softmax(torch: Any, x: Any) -> Any:
    return torch.nn.functional.softmax(x, -1)


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _matmul(torch: Any, a: Any, b: Any) -> Any:
    return a @ b


# Models: the losses of a few steps are compared.


def training(
    build: Callable[[Any], Any],
    data: Callable[[Any], tuple[Any, Any]],
    optimizer: Callable[[Any, Any], Any],
    loss_of: Callable[[Any, Any, Any, Any], Any] | None = None,
) -> Any:
    """Training steps. loss_of(torch, model, x, y) returns the loss; without it the model does."""

    def make(torch: Any, wrap: Wrap) -> Work:
        model = models.filled(torch, build(torch))
        updates = optimizer(torch, model.parameters())
        x, y = data(torch)
        wrapped = wrap(model)

        def step() -> Any:
            updates.zero_grad()
            loss = wrapped(x, y) if loss_of is None else loss_of(torch, wrapped, x, y)
            loss.backward()
            updates.step()
            return loss.detach()

        return Work(step, lambda: [step() for _ in range(4)])

    return make


def _classified(torch: Any, model: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(x), y)


def gpt(torch: Any) -> Any:
    return models.gpt(torch, layers=4, heads=4, width=128, context=64, vocab=128)


def _tokens(vocab: int, *shape: int) -> Callable[[Any], tuple[Any, Any]]:
    return lambda torch: (integers(torch, vocab, *shape), integers(torch, vocab, *shape, seed=2))


def _samples(count: int, classes: int, *shape: int) -> Callable[[Any], tuple[Any, Any]]:
    return lambda torch: (inputs(torch, (count, *shape))[0], integers(torch, classes, count))


def encoder(torch: Any, wrap: Wrap) -> Work:
    model = models.encoder(torch, layers=4, heads=12, width=768, hidden=3072)
    model = wrap(models.filled(torch, model).eval())
    (x,) = inputs(torch, (4, 128, 768))

    def step() -> Any:
        with torch.no_grad():
            return model(x)

    return Work(step, lambda: [step()])


TRAINING = {
    "GPT": training(gpt, _tokens(128, 12, 64), lambda torch, ps: torch.optim.AdamW(ps, lr=1e-3)),
    "ResNet-18": training(
        models.resnet18,
        _samples(32, 10, 3, 32, 32),
        lambda torch, ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9),
        _classified,
    ),
    "MLP": training(
        lambda torch: models.mlp(torch, 784, 512, 512, 10),
        _samples(128, 10, 784),
        lambda torch, ps: torch.optim.Adam(ps, lr=1e-3),
        _classified,
    ),
    "LSTM": training(
        lambda torch: models.lstm(torch, layers=2, width=256, vocab=128),
        _tokens(128, 64, 32),
        lambda torch, ps: torch.optim.SGD(ps, lr=0.1),
    ),
}

# The convolutions of ResNet-18 on images of 32 x 32, batch 32: (input, weight, stride).
CONVOLUTIONS = [
    ((32, 3, 32, 32), (64, 3, 3, 3), 1),
    ((32, 64, 32, 32), (64, 64, 3, 3), 1),
    ((32, 64, 32, 32), (128, 64, 3, 3), 2),
    ((32, 64, 32, 32), (128, 64, 1, 1), 2),
    ((32, 128, 16, 16), (128, 128, 3, 3), 1),
    ((32, 256, 8, 8), (256, 256, 3, 3), 1),
    ((32, 512, 4, 4), (512, 512, 3, 3), 1),
]


def _conv_rows() -> list[Row]:
    rows = []
    for x, w, stride in CONVOLUTIONS:
        shape = f"conv2d {w[2]}x{w[3]} {x[1]} to {w[0]} at {x[2]}" + ("/2" if stride > 1 else "")

        def convolved(torch: Any, a: Any, b: Any, stride: int = stride) -> Any:
            return torch.nn.functional.conv2d(a, b, stride=stride, padding=b.shape[-1] // 2)

        rows += [
            Row(f"{shape}, forward", 1.1, forward(convolved, x, w), 9, 3, 1e-3),
            Row(f"{shape}, dX", 1.1, conv_gradient(0, x, w, stride), 9, 3, 1e-3),
            Row(f"{shape}, dW", 1.1, conv_gradient(1, x, w, stride), 9, 3, 5e-3),
        ]
    return rows


HEADS = (4, 12, 256, 64)
ROWS = [
    Row("GPT, AdamW step", 1.5, TRAINING["GPT"], tolerance=1e-3),
    Row("ResNet-18, SGD step", 1.2, TRAINING["ResNet-18"], 5, 1, 5e-3),
    Row("MLP 784-512-512-10, Adam step", 2, TRAINING["MLP"], tolerance=1e-3),
    Row("LSTM 2 x 256, SGD step", 2, TRAINING["LSTM"], 5, 2, 1e-3),
    Row("BERT-base-shaped encoder x 4, inference", 1.3, encoder, 7, 1, 1e-3),
    Row("fused chain, forward", 4, forward(_gelu, (4096, 1024), (1024,), (1024,))),
    Row("fused chain, both ways", 4, both_ways(_gelu, (4096, 1024), (1024,), (1024,))),
    Row("layer norm, forward", 1.6, forward(_layer_norm, (4096, 768), (768,), (768,))),
    Row("layer norm, both ways", 1.6, both_ways(_layer_norm, (4096, 768), (768,), (768,))),
    Row("softmax, forward", 2, forward(_softmax, (3072, 256))),
    Row("softmax, both ways", 2, both_ways(_softmax, (3072, 256))),
    Row("cross entropy, both ways", 2, cross_entropy),
    Row("attention 4x12x256x64, forward", 1.5, forward(_attention, HEADS, HEADS, HEADS)),
    Row("attention 4x12x256x64, both ways", 1.5, both_ways(_attention, HEADS, HEADS, HEADS)),
    *(
        Row(f"GEMM {n}", 1.05, forward(_matmul, (n, n), (n, n)), 9, 3, 1e-3)
        for n in (512, 1024, 2048)
    ),
    *(
        Row(
            f"GEMM {n}, bfloat16", 1, forward(_matmul, (n, n), (n, n), dtype="bfloat16"), 9, 3, 1e-2
        )
        for n in (512, 2048)
    ),
    Row("batched GEMM 48x256x64x256", 1.3, forward(_matmul, (48, 256, 64), (48, 64, 256))),
    *_conv_rows(),
    Row("Adam 10M, against fused", 1.0, adam(fused=True), 9, 2),
    Row("Adam 10M, against default", 6, adam(fused=False), 9, 2),
]
