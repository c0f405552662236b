"""The ops that bench/sweep.py measures: calls and their tensors, of 1,000 or 1,000,000 elements."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import numpy as np

from tests.support import api_cases

ROW = {1_000: (10, 100), 1_000_000: (1000, 1000)}
IMAGE = {1_000: (1, 4, 16, 16), 1_000_000: (16, 64, 32, 32)}

Call = Callable[..., Any]
Maker = Callable[[Any, int], tuple[Any, ...]]

# Ops on floats whose inputs must lie above a bound.
ABOVE = {"acosh": 1.0, "log": 0.1, "log2": 0.1, "log10": 0.1, "sqrt": 0.0, "rsqrt": 0.1,
         "lgamma": 0.2, "digamma": 0.2, "pow": 0.1, "float_power": 0.1, "xlogy": 0.1,
         "igamma": 0.1, "igammac": 0.1}  # fmt: skip
# Ops on integers, and the bound of these.
INTEGER = {"bitwise_and": 100, "bitwise_or": 100, "bitwise_xor": 100, "bitwise_not": 100,
           "bitwise_left_shift": 31, "bitwise_right_shift": 31, "gcd": 100, "lcm": 100}  # fmt: skip
REDUCTIONS = (
    "sum prod mean amax amin any all var std norm nansum count_nonzero argmax argmin max min "
    "logsumexp"
).split()
POINTWISE = (
    "relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardsigmoid hardswish softplus "
    "softsign logsigmoid tanhshrink softshrink hardshrink"
).split()
LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits "
    "soft_margin_loss poisson_nll_loss"
).split()


def floats(count: int, low: float = -1.0) -> Maker:
    """`count` tensors of shape ROW, uniform between `low` and 1 (or 1 above `low`)."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        high = max(1.0, low + 1)
        arrays = (rng.uniform(low, high, ROW[size]).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(a) for a in arrays)

    return make


def integers(count: int, high: int = 100) -> Maker:
    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        return tuple(torch.tensor(rng.integers(0, high, ROW[size])) for _ in range(count))

    return make


def numbers(count: int) -> Maker:
    """`count` complex tensors of shape ROW, both parts between -1 and 1."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        parts = (rng.uniform(-1, 1, (2, *ROW[size])).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(real + 1j * imag) for real, imag in parts)

    return make


def image(torch: Any, size: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return (torch.tensor(rng.standard_normal(IMAGE[size]).astype(np.float32)),)


def matrices(n: int) -> Maker:
    """A batch of positive-definite n x n matrices, and right sides of three columns."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((max(size // n**2, 1), n, n)).astype(np.float32)
        a = a @ a.swapaxes(-1, -2) / n + np.eye(n, dtype=np.float32)
        return torch.tensor(a), torch.tensor(a[..., :3] * 1)

    return make


def rows_and_index(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    index = np.random.default_rng(1).integers(0, ROW[size][0], ROW[size][0])
    return x, torch.tensor(index)


def logits(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    classes = np.random.default_rng(1).integers(0, ROW[size][1], ROW[size][0])
    return x, torch.tensor(classes)


def cases() -> Iterator[tuple[str, Call, Maker]]:
    """(name, call(torch, *tensors), maker of the tensors) for every op."""
    for name in api_cases.UNARY:
        makers = integers(1) if name in INTEGER else floats(1, ABOVE.get(name, -0.9))
        yield name, lambda t, x, name=name: getattr(t, name)(x), makers
    for name in api_cases.BINARY:
        makers = integers(2, INTEGER[name]) if name in INTEGER else floats(2, ABOVE.get(name, -0.9))
        yield name, lambda t, x, y, name=name: getattr(t, name)(x, y), makers
    for name in REDUCTIONS:
        if name != "logsumexp":
            yield f"{name}()", lambda t, x, name=name: getattr(x, name)(), floats(1)
        for dim in (0, 1):
            yield (
                f"{name}({dim})",
                lambda t, x, name=name, dim=dim: getattr(x, name)(dim=dim),
                floats(1),
            )
    for name in POINTWISE:
        yield f"F.{name}", lambda t, x, name=name: getattr(t.nn.functional, name)(x), floats(1)
    for name in LOSSES:
        yield (
            f"F.{name}",
            lambda t, x, y, name=name: getattr(t.nn.functional, name)(x, y),
            floats(2, 0.1),
        )
    yield from _others()
    yield from _of_order()
    yield from _of_places()
    yield from _of_images()
    yield from _of_matrices()
    yield from _of_complex_numbers()
    yield from _of_transforms()
    yield from _special()
    yield from _of_chance()


def _others() -> Iterator[tuple[str, Call, Maker]]:
    one, two, three = floats(1), floats(2), floats(3)
    yield "add a number", lambda t, x: x + 1, one
    yield "mul a row", lambda t, x: x * x[0], one
    yield "where", lambda t, x, y: t.where(x > 0, x, y), two
    yield "clamp", lambda t, x: x.clamp(-0.5, 0.5), one
    yield "lerp", lambda t, x, y: t.lerp(x, y, 0.3), two
    yield "addcmul", lambda t, x, y, z: t.addcmul(x, y, z), three
    yield "masked_fill", lambda t, x: x.masked_fill(x > 0, 0.0), one
    yield "to int32", lambda t, x: x.to(t.int32), one
    yield "to bfloat16 and back", lambda t, x: x.to(t.bfloat16).to(t.float32), one
    yield "clone", lambda t, x: x.clone(), one
    yield "contiguous transpose", lambda t, x: x.t().contiguous(), one
    yield "cat", lambda t, x, y: t.cat([x, y], 1), two
    yield "stack", lambda t, x, y: t.stack([x, y]), two
    yield "flip", lambda t, x: x.flip(1), one
    yield "roll", lambda t, x: x.roll(3, 1), one
    yield "repeat", lambda t, x: x.repeat(1, 2), one
    yield "tril", lambda t, x: x.tril(), one
    yield "expand and sum", lambda t, x: x[:, None].expand(-1, 2, -1).sum(1), one
    yield "slice with step", lambda t, x: x[:, ::2] + 0, one
    yield "pad", lambda t, x: t.nn.functional.pad(x, (1, 1)), one
    yield "cumsum", lambda t, x: x.cumsum(1), one
    yield "cumprod", lambda t, x: x.cumprod(1), one
    yield "sort", lambda t, x: x.sort(1)[0], one
    yield "argsort", lambda t, x: t.argsort(x, dim=1, stable=True), one
    yield "topk", lambda t, x: x.topk(5, 1)[0], one
    yield "median(1)", lambda t, x: x.median(1)[0], one
    yield "unique", lambda t, x: x.unique(), integers(1)
    yield "bincount", lambda t, x: x.reshape(-1).bincount(), integers(1)
    yield "nonzero", lambda t, x: (x > 0).nonzero(), one
    yield "masked_select", lambda t, x: x[x > 0], one
    yield "softmax(1)", lambda t, x: x.softmax(1), one
    yield "softmax(0)", lambda t, x: x.softmax(0), one
    yield "log_softmax(1)", lambda t, x: x.log_softmax(1), one
    yield "layer_norm", lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]), one
    yield "rms_norm", lambda t, x: t.nn.functional.rms_norm(x, x.shape[1:]), one
    yield "normalize", lambda t, x: t.nn.functional.normalize(x), one
    yield "cross_entropy", lambda t, x, y: t.nn.functional.cross_entropy(x, y), logits
    yield "nll_loss", lambda t, x, y: t.nn.functional.nll_loss(x, y), logits
    yield "index_select", lambda t, x, i: x.index_select(0, i), rows_and_index
    yield "embedding", lambda t, x, i: t.nn.functional.embedding(i, x), rows_and_index
    yield "x[i]", lambda t, x, i: x[i], rows_and_index
    yield "index_add", lambda t, x, i: x.index_add(0, i, x), rows_and_index
    yield "gather", lambda t, x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])), rows_and_index
    yield "matmul", lambda t, x, y: x @ y.t(), two
    yield "matrix times vector", lambda t, x: x @ x[0], one
    yield "linear", lambda t, x, w: t.nn.functional.linear(x, w), two
    yield "batch_norm", _batch_norm, image
    yield "group_norm", lambda t, x: t.nn.functional.group_norm(x, 2), image
    yield "instance_norm", lambda t, x: t.nn.functional.instance_norm(x), image
    yield "max_pool2d", lambda t, x: t.nn.functional.max_pool2d(x, 2), image
    yield "avg_pool2d", lambda t, x: t.nn.functional.avg_pool2d(x, 2), image
    yield (
        "adaptive_avg_pool2d",
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1),
        image,
    )
    yield "conv2d", _conv, image
    yield "pixel_shuffle", lambda t, x: t.nn.functional.pixel_shuffle(x, 2), image
    yield "unfold", lambda t, x: t.nn.functional.unfold(x, 3), image
    yield "ones", lambda t, x: t.ones(x.shape), one
    yield "arange", lambda t, x: t.arange(x.numel()), one


COMPLEX = (
    "exp log sqrt rsqrt reciprocal sin tan acos asinh tanh atanh sigmoid abs angle sgn sum prod "
    "mean"
).split()
TRANSFORMS = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2".split()
LENGTHS = (16, 60, 64, 127, 256, 1000, 1009, 1024, 4096, 10_007, 65_536, 1 << 20)


def _of_complex_numbers() -> Iterator[tuple[str, Call, Maker]]:
    one, two = numbers(1), numbers(2)
    for name in COMPLEX:
        yield f"complex {name}", lambda t, x, name=name: getattr(t, name)(x), one
    yield "complex mul", lambda t, x, y: x * y, two
    yield "complex div", lambda t, x, y: x / y, two
    yield "complex pow", lambda t, x, y: x**y, two
    yield "complex chain", lambda t, x, y: (x * y + x).exp() * y.conj() - 1j, two
    yield "complex sum(0)", lambda t, x: x.sum(0), one
    yield "complex sum(1)", lambda t, x: x.sum(1), one
    yield "complex cumsum", lambda t, x: x.cumsum(1), one
    yield "complex cumprod", lambda t, x: x.cumprod(1), one
    yield "complex contiguous transpose", lambda t, x: x.t().contiguous(), one
    yield "complex cat", lambda t, x, y: t.cat([x, y], 1), two
    yield "complex from parts", lambda t, x: t.complex(x.imag, x.real), one
    yield "complex matmul", lambda t, x, y: x @ y.t(), two
    yield "complex matrix times vector", lambda t, x: x @ x[0], one
    yield "complex bmm", lambda t, x: x.view(-1, 10, 10) @ x.view(-1, 10, 10), one
    yield "complex einsum", lambda t, x, y: t.einsum("ij,ij->i", x, y), two
    yield "complex conv1d", lambda t, x: t.nn.functional.conv1d(x[:, None], x[:4, None, :5]), one


def of_length(n: int) -> Maker:
    """Complex rows of n elements."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        x = np.random.default_rng(0).standard_normal((max(size // n, 1), n, 2)).astype(np.float32)
        return (torch.tensor(x.view(np.complex64)[..., 0]),)

    return make


def _of_transforms() -> Iterator[tuple[str, Call, Maker]]:
    for name in TRANSFORMS:
        make = floats(1) if name.startswith("rfft") else numbers(1)
        if name.endswith("2"):
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x), make
        else:
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x.view(-1)), make
            yield f"fft.{name} of rows", lambda t, x, name=name: getattr(t.fft, name)(x), make
    for n in LENGTHS:
        yield f"fft.fft of {n}", lambda t, x: t.fft.fft(x), of_length(n)
        yield f"fft.rfft of {n}", lambda t, x: t.fft.rfft(x.real), of_length(n)
        yield f"fft.irfft of {n}", lambda t, x, n=n: t.fft.irfft(x, n), of_length(n // 2 + 1)
    yield "fft.fftn", lambda t, x: t.fft.fftn(x.view(10, 10, -1)), numbers(1)
    yield "fft.dim 0", lambda t, x: t.fft.fft(x, dim=0), numbers(1)
    yield "fft.fftshift", lambda t, x: t.fft.fftshift(x), floats(1)
    yield (
        "stft",
        lambda t, x: t.stft(x.reshape(-1), 256, window=t.hann_window(256), return_complex=True),
        floats(1),
    )


def _of_matrices() -> Iterator[tuple[str, Call, Maker]]:
    for n in (8, 64, 512):
        of = f"of {n} x {n}"
        make = matrices(n)
        yield f"cholesky {of}", lambda t, a, b: t.linalg.cholesky(a), make
        yield f"solve {of}", lambda t, a, b: t.linalg.solve(a, b), make
        yield f"inv {of}", lambda t, a, b: t.linalg.inv(a), make
        yield f"eigh {of}", lambda t, a, b: t.linalg.eigh(a)[0], make
        yield f"eigvalsh {of}", lambda t, a, b: t.linalg.eigvalsh(a), make
        yield f"svd {of}", lambda t, a, b: t.linalg.svd(a)[1], make
        yield f"svdvals {of}", lambda t, a, b: t.linalg.svdvals(a), make
        yield f"qr {of}", lambda t, a, b: t.linalg.qr(a)[1].abs(), make
        yield f"lu {of}", lambda t, a, b: t.linalg.lu_factor(a)[0], make
        yield f"det {of}", lambda t, a, b: t.linalg.det(a), make
        yield f"slogdet {of}", lambda t, a, b: t.linalg.slogdet(a)[1], make
        yield f"eigvals {of}", lambda t, a, b: t.linalg.eigvals(a).abs().sort().values, make
        yield f"pinv {of}", lambda t, a, b: t.linalg.pinv(a), make
        yield f"lstsq {of}", lambda t, a, b: t.linalg.lstsq(a, b).solution, make
        yield f"matrix_exp {of}", lambda t, a, b: t.linalg.matrix_exp(a * 0.1), make
        yield (
            f"solve_triangular {of}",
            lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False),
            make,
        )
        yield f"cholesky_solve {of}", lambda t, a, b: t.cholesky_solve(b, a), make
        yield f"bmm {of}", lambda t, a, b: a @ a, make
    two = floats(2)
    yield "addmm", lambda t, x, y: t.addmm(x[:, :1].t(), x, y.t()), two
    yield "einsum", lambda t, x, y: t.einsum("ij,ij->i", x, y), two
    yield "outer", lambda t, x, y: t.outer(x[:, 0], y[:, 0]), two
    yield "cdist", lambda t, x, y: t.cdist(x[:, :64], y[:, :64]), two
    yield "cross", lambda t, x, y: t.cross(x[:, :999].view(-1, 3), y[:, :999].view(-1, 3)), wide(2)
    yield "kron", lambda t, x, y: t.kron(x[:10, :10].contiguous(), y[:, :10].contiguous()), two
    yield "csr times dense", lambda t, a, x: a @ x, sparse("csr")
    yield "coo times dense", lambda t, a, x: a @ x, sparse("coo")
    yield "csr times vector", lambda t, a, x: a @ x[:, 0], sparse("csr")
    yield "coo to dense", lambda t, a, x: a.to_dense(), sparse("coo")
    yield (
        "coalesce",
        lambda t, a, x: t.sparse_coo_tensor(a.indices(), a.values(), a.shape).coalesce().values(),
        sparse("coo"),
    )
    yield "int8 matmul", lambda t, x: t._int_mm(x, x.t()), bytes_of
    yield "attention", lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x), heads


def _batch_norm(torch: Any, x: Any) -> Any:
    zero, one = x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1
    return torch.nn.functional.batch_norm(x, zero, one)


def _conv(torch: Any, x: Any) -> Any:
    return torch.nn.functional.conv2d(x, x[:1, :, :3, :3], padding=1)


def wide(count: int) -> Maker:
    """As `floats`, in rows whose length is a multiple of 999."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        shape = (max(size // 999, 1), 999)
        return tuple(
            torch.tensor(rng.uniform(-1, 1, shape).astype(np.float32)) for _ in range(count)
        )

    return make


def heads(torch: Any, size: int) -> tuple[Any, ...]:
    """[batch, heads, length, width]."""
    shape = (1, 2, 16, 32) if size == 1_000 else (4, 8, 512, 64)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return (torch.tensor(x),)


def bytes_of(torch: Any, size: int) -> tuple[Any, ...]:
    n = 32 if size == 1_000 else 1000
    return (torch.tensor(np.random.default_rng(0).integers(-100, 100, (n, n)).astype(np.int8)),)


def sparse(layout: str) -> Maker:
    """A square matrix of which a hundredth is there, and a dense one of 64 columns."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        n = 100 if size == 1_000 else 10_000
        rng = np.random.default_rng(0)
        places = np.unique(rng.integers(0, n * n, n * n // 100))
        values = rng.standard_normal(len(places)).astype(np.float32)
        a = torch.sparse_coo_tensor(
            torch.tensor(np.stack(np.divmod(places, n))), torch.tensor(values), (n, n)
        ).coalesce()
        x = torch.tensor(rng.standard_normal((n, 64)).astype(np.float32))
        return (a if layout == "coo" else a.to_sparse_csr()), x

    return make


def _of_order() -> Iterator[tuple[str, Call, Maker]]:
    """Ops that sort, search and count."""
    one, whole = floats(1), integers(1, 1000)
    yield "sort of all", lambda t, x: x.view(-1).sort()[0], one
    yield "sort(0)", lambda t, x: x.sort(0)[0], one
    yield "sort of integers", lambda t, x: x.sort(1)[0], whole
    yield "topk of all", lambda t, x: x.view(-1).topk(50)[0], one
    yield "topk of half", lambda t, x: x.topk(x.shape[1] // 2, 1)[0], one
    yield "kthvalue", lambda t, x: x.kthvalue(7, 1)[0], one
    yield "median()", lambda t, x: x.median(), one
    yield "nanmedian(1)", lambda t, x: x.nanmedian(1)[0], one
    yield "quantile(1)", lambda t, x: x.quantile(0.3, 1), one
    yield "mode(1)", lambda t, x: x.mode(1)[0], whole
    yield "unique of floats", lambda t, x: x.unique(), one
    yield "unique with counts", lambda t, x: x.unique(return_counts=True)[1], whole
    yield "unique_consecutive", lambda t, x: x.view(-1).unique_consecutive(), integers(1, 3)
    yield "cummax", lambda t, x: x.cummax(1)[0], one
    yield "cummin(0)", lambda t, x: x.cummin(0)[0], one
    yield "cumsum(0)", lambda t, x: x.cumsum(0), one
    yield "cumsum of all", lambda t, x: x.view(-1).cumsum(0), one
    yield "cumsum of integers", lambda t, x: x.cumsum(1), whole
    yield "logcumsumexp", lambda t, x: x.logcumsumexp(1), one
    yield "diff", lambda t, x: x.diff(), one
    yield "searchsorted", lambda t, x: t.searchsorted(x[0].sort()[0], x), one
    yield "bucketize", lambda t, x: t.bucketize(x, t.linspace(-1, 1, 100)), one
    yield "histc", lambda t, x: x.histc(100, -1, 1), one
    yield "histogram", lambda t, x: t.histogram(x, 100, range=(-1.0, 1.0))[0], one
    yield "isin", lambda t, x: t.isin(x, x[0, :20]), whole
    yield "aminmax", lambda t, x: t.aminmax(x)[0], one
    yield "std_mean(1)", lambda t, x: t.std_mean(x, 1)[0], one
    yield "var_mean(0)", lambda t, x: t.var_mean(x, 0)[0], one
    yield "sum of integers", lambda t, x: x.sum(), whole
    yield "sum of bool", lambda t, x: (x > 0).sum(), one
    yield "argmax of integers", lambda t, x: x.argmax(1), whole
    yield "cov", lambda t, x: x[:100].cov(), one
    yield "renorm", lambda t, x: x.renorm(2, 0, 1.0), one
    yield "equal", lambda t, x: t.equal(x, x + 0) and x[0, 0], one


def _of_places() -> Iterator[tuple[str, Call, Maker]]:
    """Ops that read or write at places that come as data."""
    one = floats(1)
    yield (
        "scatter",
        lambda t, x, i: t.zeros_like(x).scatter(1, i.expand_as(x).t().contiguous().t(), x),
        rows_and_index_of_columns,
    )
    yield (
        "scatter_add",
        lambda t, x, i: t.zeros_like(x).scatter_add(1, i.expand_as(x), x),
        rows_and_index_of_columns,
    )
    yield (
        "scatter_reduce amax",
        lambda t, x, i: x.scatter_reduce(1, i.expand_as(x), x, "amax"),
        rows_and_index_of_columns,
    )
    yield "gather(1)", lambda t, x, i: x.gather(1, i.expand_as(x)), rows_and_index_of_columns
    yield "index_select(1)", lambda t, x, i: x.index_select(1, i[0]), rows_and_index_of_columns
    yield (
        "index_copy",
        lambda t, x, i: x.index_copy(0, i.sort()[0] * 0 + t.arange(len(i)), x),
        rows_and_index,
    )
    yield "index_fill", lambda t, x, i: x.index_fill(0, i, 1.0), rows_and_index
    yield "index_put", lambda t, x, i: x.index_put((i,), x), rows_and_one_order
    yield (
        "index_put accumulate",
        lambda t, x, i: x.index_put((i,), x, accumulate=True),
        rows_and_index,
    )
    yield (
        "take",
        lambda t, x, i: x.take(i[:, None] * x.shape[1] + t.arange(x.shape[1])),
        rows_and_index,
    )
    yield "x[mask] = 0", _write_where, one
    yield "repeat_interleave", lambda t, x: x.repeat_interleave(2, 1), one
    yield "rot90", lambda t, x: x.rot90(), one
    yield "permute", lambda t, x: x.view(10, 10, -1).permute(2, 0, 1).contiguous(), one
    yield "diagonal of a sum", lambda t, x: (x + 1).diagonal(), one
    yield "diag_embed", lambda t, x: x[:, :1].flatten().diag_embed(), one
    yield "triu", lambda t, x: x.triu(), one
    yield "chunk and cat", lambda t, x: t.cat(x.chunk(2, 1)[::-1], 1), one
    yield "cat(0)", lambda t, x, y: t.cat([x, y]), floats(2)
    yield "unbind and stack", lambda t, x: t.stack(x[:, :8].unbind(1), 0), one
    yield "meshgrid", lambda t, x: t.meshgrid(x[:, 0], x[0], indexing="ij")[0] + 0, one
    yield "one_hot", lambda t, x: t.nn.functional.one_hot(x[:, 0], 100), integers(1)
    yield (
        "embedding_bag",
        lambda t, x, i: t.nn.functional.embedding_bag(i.view(-1, 10), x),
        rows_and_index,
    )
    yield (
        "as_strided",
        lambda t, x: x.as_strided((x.shape[0], x.shape[1] - 1), (x.shape[1], 1), 1) + 0,
        one,
    )
    yield "to float64", lambda t, x: x.double(), one
    yield "to bfloat16", lambda t, x: x.bfloat16().float(), one
    yield "int64 to float", lambda t, x: x.float(), integers(1)
    yield "float to int64", lambda t, x: (x * 100).long(), one
    yield "float to bool", lambda t, x: x.bool(), one
    yield "half add", lambda t, x, y: (x.half() + y.half()).float(), floats(2)


def _of_images() -> Iterator[tuple[str, Call, Maker]]:
    yield "max_pool2d of 3", lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1), image
    yield (
        "max_pool2d with places",
        lambda t, x: t.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
        image,
    )
    yield "avg_pool2d of 3", lambda t, x: t.nn.functional.avg_pool2d(x, 3, 1, 1), image
    yield "max_pool1d", lambda t, x: t.nn.functional.max_pool1d(x.flatten(2), 3), image
    yield "adaptive_max_pool2d", lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 5), image
    yield "lp_pool2d", lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2), image
    yield "interpolate nearest", lambda t, x: t.nn.functional.interpolate(x, scale_factor=2), image
    yield (
        "interpolate bilinear",
        lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        image,
    )
    yield (
        "interpolate bicubic",
        lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bicubic"),
        image,
    )
    yield "grid_sample", _grid_sample, image
    yield (
        "fold",
        lambda t, x: t.nn.functional.fold(t.nn.functional.unfold(x, 2), x.shape[2:], 2),
        image,
    )
    yield "pad reflect", lambda t, x: t.nn.functional.pad(x, (2, 2, 2, 2), "reflect"), image
    yield "conv2d 3x3 of all channels", _wide_conv, image
    yield "conv2d depthwise", _depthwise, image
    yield "conv2d 1x1", _pointwise_conv, image
    yield (
        "conv1d",
        lambda t, x: t.nn.functional.conv1d(x.flatten(2), x.flatten(2)[:1, :, :5]),
        image,
    )
    yield (
        "conv_transpose2d",
        lambda t, x: t.nn.functional.conv_transpose2d(
            x, x[:1, :, :3, :3].transpose(0, 1), stride=2
        ),
        image,
    )
    yield "local_response_norm", lambda t, x: t.nn.functional.local_response_norm(x, 5), image
    yield "channel_shuffle", lambda t, x: t.nn.functional.channel_shuffle(x, 2), image


def _grid_sample(torch: Any, x: Any) -> Any:
    across = torch.linspace(-1, 1, x.shape[3])
    down = torch.linspace(-1, 1, x.shape[2])
    grid = torch.stack(torch.meshgrid(down, across, indexing="xy"), -1)
    return torch.nn.functional.grid_sample(x, grid.expand(len(x), *grid.shape), align_corners=True)


def _wide_conv(torch: Any, x: Any) -> Any:
    c = x.shape[1]
    return torch.nn.functional.conv2d(x, x.reshape(-1)[: c * c * 9].view(c, c, 3, 3), padding=1)


def _depthwise(torch: Any, x: Any) -> Any:
    c = x.shape[1]
    return torch.nn.functional.conv2d(
        x, x.reshape(-1)[: c * 9].view(c, 1, 3, 3), padding=1, groups=c
    )


def _pointwise_conv(torch: Any, x: Any) -> Any:
    c = x.shape[1]
    return torch.nn.functional.conv2d(x, x.reshape(-1)[: c * c].view(c, c, 1, 1))


def _write_where(torch: Any, x: Any) -> Any:
    y = x.clone()
    y[y > 0.5] = 0
    return y


def rows_and_index_of_columns(torch: Any, size: int) -> tuple[Any, ...]:
    """x[m, n], and an order of its columns for each row [m, n]."""
    x = floats(1)(torch, size)[0]
    order = np.argsort(np.random.default_rng(1).random(ROW[size]), 1)
    return x, torch.tensor(order)


def rows_and_one_order(torch: Any, size: int) -> tuple[Any, ...]:
    """x[m, n], and an order of its rows."""
    x = floats(1)(torch, size)[0]
    return x, torch.tensor(np.random.default_rng(1).permutation(ROW[size][0]))


SPECIAL = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx exp2 gammaln i0e i1 i1e log_ndtr "
    "modified_bessel_i0 modified_bessel_k0 modified_bessel_k1 ndtr scaled_modified_bessel_k0 "
    "spherical_bessel_j0"
).split()


def _special() -> Iterator[tuple[str, Call, Maker]]:
    for name in SPECIAL:
        yield f"special.{name}", lambda t, x, name=name: getattr(t.special, name)(x), floats(1, 0.1)
    yield "special.ndtri", lambda t, x: t.special.ndtri(x), floats(1, 0.01)
    yield "special.logit", lambda t, x: t.special.logit(x, 1e-6), floats(1, 0.01)
    yield "special.polygamma", lambda t, x: t.special.polygamma(1, x), floats(1, 0.3)
    yield "special.multigammaln", lambda t, x: t.special.multigammaln(x + 2, 3), floats(1, 0.3)
    yield "special.zeta", lambda t, x, y: t.special.zeta(x + 1, y), floats(2, 0.3)
    yield "special.xlog1py", lambda t, x, y: t.special.xlog1py(x, y), floats(2, 0.1)
    yield (
        "special.chebyshev_polynomial_t",
        lambda t, x: t.special.chebyshev_polynomial_t(x, 7),
        floats(1),
    )


RANDOM = {
    "rand_like",
    "randn_like",
    "randint",
    "bernoulli",
    "dropout",
    "exponential_",
    "multinomial",
    "randperm",
    "normal",
}
"""Ops whose values PyTorch draws otherwise."""


def _of_chance() -> Iterator[tuple[str, Call, Maker]]:
    one = floats(1)
    yield "rand_like", lambda t, x: t.rand_like(x), one
    yield "randn_like", lambda t, x: t.randn_like(x), one
    yield "randint", lambda t, x: t.randint(0, 100, x.shape), one
    yield "bernoulli", lambda t, x: t.bernoulli(x), floats(1, 0.0)
    yield "dropout", lambda t, x: t.nn.functional.dropout(x, 0.5), one
    yield "exponential_", lambda t, x: t.empty_like(x).exponential_(), one
    yield "normal", lambda t, x: t.normal(0.0, 1.0, x.shape), one
    yield "multinomial", lambda t, x: t.multinomial(x, 5), floats(1, 0.1)
    yield "randperm", lambda t, x: t.randperm(x.numel()), one
