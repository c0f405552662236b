"""The calls that bench/sweep.py measures, one for every op."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import sweep_numeric as numeric
from sweep_tensors import (
    Call,
    Maker,
    floats,
    image,
    integers,
    logits,
    rows_and_index,
    rows_and_index_of_columns,
    rows_and_one_order,
)

from tests.support import api_cases

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
    yield from numeric.of_matrices()
    yield from numeric.of_complex_numbers()
    yield from numeric.of_transforms()
    yield from numeric.special()
    yield from numeric.of_chance()


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
    yield "conj_physical", lambda t, x: t.conj_physical(x), one
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


def _batch_norm(torch: Any, x: Any) -> Any:
    zero, one = x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1
    return torch.nn.functional.batch_norm(x, zero, one)


def _conv(torch: Any, x: Any) -> Any:
    return torch.nn.functional.conv2d(x, x[:1, :, :3, :3], padding=1)


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
    yield "bucketize", lambda t, x: t.bucketize(x, t.arange(100) / 50 - 1), one
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
    yield "unbind and stack", lambda t, x: t.stack(x.view(8, -1).unbind(0), 1), one
    yield "meshgrid", lambda t, x: t.meshgrid(x[:, 0], x[0], indexing="ij")[0] + 0, one
    yield (
        "one_hot",
        lambda t, x: t.nn.functional.one_hot(x.view(-1)[: x.numel() // 100], 100),
        integers(1),
    )
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
