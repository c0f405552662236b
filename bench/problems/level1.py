"""Level 1: single operations, in KernelBench's order."""

from __future__ import annotations

import math
from typing import Any

from .problem import (
    Building,
    Input,
    Layer,
    Problem,
    Shape,
    Source,
    columns,
    conv,
    conv_transpose,
    cube,
    diagonal,
    features,
    group_norm,
    image,
    layer,
    matrix,
    norm,
    normal,
    problem,
    product,
)


def _halves(source: Source, shape: Shape) -> Any:
    return source.uniform(shape).to(source.torch.float16)


def _scaled(source: Source, shape: Shape) -> Any:
    return source.uniform(shape) * 0.75


def _symmetric(source: Source, shape: Shape) -> Any:
    x = source.uniform(shape)
    return (x + x.T) / 2


def _upper(source: Source, shape: Shape) -> Any:
    return source.torch.triu(source.uniform(shape))


def _lower(source: Source, shape: Shape) -> Any:
    return source.torch.tril(source.uniform(shape))


def _mask(source: Source, shape: Shape) -> Any:
    return source.uniform(shape) < 0.5


def _signs(source: Source, shape: Shape) -> Any:
    return _mask(source, shape).float() * 2 - 1


def _shares(source: Source, shape: Shape) -> Any:
    """Rows of positive numbers whose sum is about 1."""
    return (source.uniform(shape) + 0.5) / shape[1]


def _classes(source: Source, shape: Shape) -> Any:
    """A column number for each row of a matrix of `shape`."""
    return source.integers(shape[1], shape[:1])


def _heads(batch: int, heads: int, length: int, width: int) -> tuple[Input, ...]:
    """Queries, keys and values of attention."""
    each = image(batch, heads, length, width, draw=_halves)
    return each, each, each


def _depthwise(channels: int, kernel: Any, **options: Any) -> Layer:
    return conv(2, channels, kernel, groups=channels, bias=False, **options)


def _layer_norm(torch: Any, at: Building) -> Any:
    """A layer norm over all axes but the batch."""
    return torch.nn.LayerNorm(at.shape[1:])


def _run(t: Any, f: Any, m: Any, x: Any) -> Any:
    """The forward function of a problem with one layer."""
    return m.op(x)


PRODUCTS = [
    problem("matmul, square",
            lambda t, f, m, a, b: t.matmul(a, b), product("mk kn", m=4096, k=4096, n=4096)),
    problem("matmul", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=2048, k=8192, n=4096)),
    problem("bmm", lambda t, f, m, a, b: t.bmm(a, b),
            product("bmk bkn", b=128, m=512, k=1024, n=2048)),
    problem("matrix times column", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=2048, k=1 << 20, n=1)),
    problem("matrix times number", lambda t, f, m, a: a * 3.14, matrix(65536, 16384)),
    problem("matmul, long k", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=256, k=1 << 19, n=256)),
    problem("matmul, short k", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=32768, k=64, n=32768)),
    problem("matmul, odd sizes", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=8205, k=2949, n=5921)),
    problem("matmul, tall and skinny", lambda t, f, m, a, b: t.matmul(a, b),
            product("mk kn", m=32768, k=32, n=32768)),
    problem("matmul, 3-d by 2-d", lambda t, f, m, a, b: t.matmul(a, b),
            product("bmk kn", b=16, m=1024, k=2048, n=768)),
    problem("einsum, 4-d by 2-d", lambda t, f, m, a, b: t.einsum("bijl,lk->bijk", a, b),
            product("bijl lk", b=8, i=256, j=512, l=256, k=768)),
    problem("diag @ matrix", lambda t, f, m, a, b: t.diag(a) @ b, diagonal(4096),
            features(4096, 4096)),
    problem("matmul, symmetric", lambda t, f, m, a, b: t.matmul(a, b),
            product("ij jk", draw=_symmetric, i=4096, j=4096, k=4096)),
    problem("matmul, triu", lambda t, f, m, a, b: t.triu(t.matmul(a, b)),
            product("ij jk", draw=_upper, i=4096, j=4096, k=4096)),
    problem("matmul, tril", lambda t, f, m, a, b: t.tril(t.matmul(a, b)),
            product("ij jk", draw=_lower, i=4096, j=4096, k=4096)),
    problem("matmul, a transposed", lambda t, f, m, a, b: t.matmul(a.T, b),
            product("km kn", m=2048, k=8192, n=4096)),
    problem("matmul, b transposed", lambda t, f, m, a, b: t.matmul(a, b.T),
            product("mk nk", m=2048, k=8192, n=4096)),
    problem("matmul, both transposed", lambda t, f, m, a, b: t.matmul(a.T, b.T),
            product("km nk", m=2048, k=8192, n=4096)),
]  # fmt: skip

_WIDE = matrix(4096, 393216)
ACTIVATIONS = [
    problem("relu", lambda t, f, m, x: t.relu(x), _WIDE),
    problem("leaky relu", lambda t, f, m, x: f.leaky_relu(x, negative_slope=0.01), _WIDE),
    problem("sigmoid", lambda t, f, m, x: t.sigmoid(x), _WIDE),
    problem("tanh", lambda t, f, m, x: t.tanh(x), _WIDE),
    problem("softmax", lambda t, f, m, x: t.softmax(x, dim=1), _WIDE),
    problem("log softmax", lambda t, f, m, x: t.log_softmax(x, dim=1), _WIDE),
    problem("swish", lambda t, f, m, x: x * t.sigmoid(x), _WIDE),
    problem("gelu", lambda t, f, m, x: f.gelu(x), _WIDE),
    problem("selu", lambda t, f, m, x: t.selu(x), _WIDE),
    problem("hardsigmoid", lambda t, f, m, x: f.hardsigmoid(x), _WIDE),
    problem("softplus", lambda t, f, m, x: f.softplus(x), _WIDE),
    problem("softsign", lambda t, f, m, x: x / (1 + t.abs(x)), _WIDE),
    problem("elu", lambda t, f, m, x: f.elu(x, alpha=1.0), _WIDE),
    problem("hardtanh", lambda t, f, m, x: f.hardtanh(x, min_val=-1.0, max_val=1.0), _WIDE),
]

_PHOTOS, _LONG = image(112, 64, 512, 512), matrix(32768, 65535)
NORMS = [
    problem("batch norm", _run, image(64, 64, 512, 512), op=norm("BatchNorm2d")),
    problem("instance norm", _run, _PHOTOS, op=norm("InstanceNorm2d")),
    problem("group norm", _run, _PHOTOS, op=group_norm(8)),
    problem("rms norm of channels",
            lambda t, f, m, x: x / t.sqrt(t.mean(x**2, dim=1, keepdim=True) + 1e-5), _PHOTOS),
    problem("frobenius norm", lambda t, f, m, x: x / t.norm(x, p="fro"), _PHOTOS),
    problem("l1 norm",
            lambda t, f, m, x: x / t.mean(t.abs(x), dim=1, keepdim=True), _LONG),
    problem("l2 norm", lambda t, f, m, x: x / t.norm(x, p=2, dim=1, keepdim=True), _LONG),
    problem("layer norm", _run, image(16, 64, 256, 256), op=_layer_norm),
]  # fmt: skip

_STACK = cube(128, 4096, 4095)
POOLS_AND_FOLDS = [
    problem("max pool 1d", _run, image(64, 192, 65536),
            op=layer("MaxPool1d", 8, stride=1, padding=4, dilation=3)),
    problem("max pool 2d", _run, image(32, 64, 512, 512),
            op=layer("MaxPool2d", 4, stride=1, padding=1, dilation=1)),
    problem("max pool 3d", _run, image(16, 32, 128, 128, 128),
            op=layer("MaxPool3d", 3, stride=2, padding=1, dilation=3)),
    problem("avg pool 1d", _run, image(64, 128, 65536),
            op=layer("AvgPool1d", 8, stride=1, padding=4)),
    problem("avg pool 2d", _run, image(16, 64, 2048, 2048), op=layer("AvgPool2d", 11)),
    problem("avg pool 3d", _run, image(16, 32, 128, 128, 256),
            op=layer("AvgPool3d", 3, stride=2, padding=1)),
    problem("sum", lambda t, f, m, x: t.sum(x, dim=1, keepdim=True), _STACK),
    problem("mean", lambda t, f, m, x: t.mean(x, dim=1), _STACK),
    problem("max", lambda t, f, m, x: t.max(x, dim=1)[0], _STACK),
    problem("conv 2d, 11x11 by 4", _run, image(256, 3, 224, 224),
            op=conv(2, 96, 11, stride=4, padding=2)),
    problem("argmax", lambda t, f, m, x: t.argmax(x, dim=1), _STACK),
    problem("argmin", lambda t, f, m, x: t.argmin(x, dim=1), _STACK),
    problem("min", lambda t, f, m, x: t.min(x, dim=1)[0], _STACK),
]  # fmt: skip


def _conv(name: str, sizes: Shape, out: int, kernel: Any, **options: Any) -> Problem:
    made = conv(len(sizes) - 2, out, kernel, bias=False, **options)
    return problem(f"conv {name}", _run, image(*sizes), op=made)


def _transposed(name: str, sizes: Shape, out: int, kernel: Any, **options: Any) -> Problem:
    made = conv_transpose(len(sizes) - 2, out, kernel, bias=False, **options)
    return problem(f"conv transpose {name}", _run, image(*sizes), op=made)


CONVOLUTIONS = [
    _conv("3d", (16, 3, 64, 64, 64), 64, 3),
    _conv("2d, wide", (8, 64, 512, 1024), 128, 3),
    _conv("2d, high, 5x7", (8, 64, 512, 256), 128, (5, 7)),
    _transposed("2d", (8, 64, 1024, 1024), 64, 3),
    _transposed("3d, wide, 3x5x7", (16, 32, 16, 32, 64), 16, (3, 5, 7)),
    _conv("3d, flat, 3x3x1", (16, 3, 256, 256, 10), 64, (3, 3, 1)),
    _conv("3d, 3x5x7", (16, 3, 64, 64, 64), 64, (3, 5, 7)),
    _transposed("3d", (8, 48, 64, 64, 64), 48, 3),
    _conv("2d, 5x9", (8, 32, 512, 512), 64, (5, 9)),
    _conv("2d", (16, 16, 1024, 1024), 128, 3),
    _transposed("1d", (64, 128, 65536), 128, 3),
    _transposed("2d, 3x7", (8, 64, 512, 512), 64, (3, 7)),
    _conv("3d, flat, 3x5x7", (8, 3, 16, 128, 128), 64, (3, 5, 7)),
    _conv("1d", (32, 64, 131072), 128, 3),
    _transposed("3d, 3x5x5", (16, 32, 64, 64, 64), 64, (3, 5, 5)),
    _transposed("2d, wide, 3x5", (64, 64, 128, 256), 128, (3, 5)),
    _transposed("3d, narrowing", (8, 48, 96, 96, 96), 24, 3),
    _transposed("2d, wide", (8, 32, 512, 1024), 32, 3),
    _transposed("3d, strided, 4 groups, 3x5x7", (8, 32, 12, 24, 48), 32, (3, 5, 7), stride=2,
                padding=(1, 2, 3), output_padding=1, groups=4),
    _transposed("3d, strided, 4 groups", (4, 32, 32, 64, 128), 32, 3, stride=2, padding=1,
                groups=4),
    _transposed("1d, dilated", (32, 32, 131072), 64, 5, dilation=3),
    _transposed("2d, strided, dilated, 4 groups", (16, 32, 128, 256), 64, (3, 5), stride=(2, 3),
                padding=(1, 2), dilation=(2, 1), groups=4),
    _conv("1d, strided, dilated", (64, 64, 524280), 128, 3, stride=3, dilation=4),
    _transposed("3d, strided, dilated", (16, 32, 16, 32, 32), 64, 3, stride=2, padding=1,
                dilation=2),
    _transposed("2d, padded, 3x7", (8, 32, 512, 1024), 32, (3, 7), padding=(1, 3)),
    _transposed("1d, strided, dilated", (16, 32, 131072), 64, 3, stride=2, padding=1, dilation=2),
    _conv("2d, dilated, 5x9", (8, 32, 512, 512), 64, (5, 9), padding=(2, 4), dilation=(2, 3)),
    _transposed("2d, strided, dilated", (16, 32, 64, 128), 64, 3, stride=5, padding=1,
                dilation=2),
    problem("conv 2d, depthwise", _run, image(16, 64, 512, 512), op=_depthwise(64, 3)),
    problem("conv 2d, depthwise, 3x1", _run, image(64, 8, 512, 512), op=_depthwise(8, (3, 1))),
    problem("conv 2d, depthwise, wide", _run, image(64, 128, 256, 512), op=_depthwise(128, 3)),
    problem("conv 2d, depthwise, 3x7", _run, image(32, 128, 128, 256),
            op=_depthwise(128, (3, 7))),
    problem("conv 2d, depthwise separable", lambda t, f, m, x: m.point(m.depth(x)),
            image(16, 64, 512, 512), depth=_depthwise(64, 3, padding=1),
            point=conv(2, 128, 1, bias=False)),
    _conv("2d, 1x1", (16, 64, 1024, 1024), 128, 1),
]  # fmt: skip

_SQUARE = matrix(32768, 32768)
_PAIR = (matrix(32768, 32768, _scaled), _SQUARE)
OTHERS = [
    problem("gelu by tanh, written out",
            lambda t, f, m, x: 0.5 * x * (
                1.0 + t.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * t.pow(x, 3.0)))),
            matrix(8192, 8192)),
    problem("cumsum", lambda t, f, m, x: t.cumsum(x, dim=1), _SQUARE),
    problem("cumprod", lambda t, f, m, x: t.cumprod(x, dim=1), matrix(32768, 32768, normal)),
    problem("cumsum, reverse", lambda t, f, m, x: t.cumsum(x.flip(1), dim=1).flip(1), _SQUARE),
    problem("cumsum, exclusive",
            lambda t, f, m, x: t.cumsum(
                t.cat((t.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:-1], dim=1),
            _SQUARE),
    problem("cumsum, masked", lambda t, f, m, x, mask: t.cumsum(x * mask, dim=1), _SQUARE,
            matrix(32768, 32768, _mask)),
    problem("mse loss", lambda t, f, m, x, y: t.mean((x - y) ** 2), *_PAIR),
    problem("cross entropy", lambda t, f, m, x, y: f.cross_entropy(x, y), matrix(32768, 4096),
            matrix(32768, 4096, _classes)),
    problem("huber loss", lambda t, f, m, x, y: f.smooth_l1_loss(x, y), *_PAIR),
    problem("attention", lambda t, f, m, q, k, v: f.scaled_dot_product_attention(q, k, v),
            _heads(32, 32, 512, 1024)),
    problem("kl divergence",
            lambda t, f, m, x, y: f.kl_div(t.log(x), y, reduction="batchmean"),
            matrix(16384, 16384, _shares), matrix(16384, 16384, _shares)),
    problem("triplet margin loss", lambda t, f, m, a, p, n: m.loss(a, p, n),
            matrix(32768, 8192, _scaled), matrix(32768, 8192), matrix(32768, 8192),
            loss=layer("TripletMarginLoss", margin=1.0)),
    problem("hinge loss", lambda t, f, m, x, y: t.mean(t.clamp(1 - x * y, min=0)), _SQUARE,
            columns(32768, _signs)),
]  # fmt: skip

PROBLEMS = [*PRODUCTS, *ACTIVATIONS, *NORMS, *POOLS_AND_FOLDS, *CONVOLUTIONS, *OTHERS]
