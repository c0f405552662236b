"""Affine maps and embeddings."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, int32, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from ... import recording
from ...functions.arguments import into
from ...functions.call import public
from ...functions.elementwise import ON_A_GPU
from ...functions.promotion import refuse, to
from ...functions.spellings import also_named, by_numpys_names
from ...recording import record, record_fallible
from ...recording.builders import LOWER, WIDEST, Step, builder

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = ["bilinear", "cosine_similarity", "embedding", "linear", "normalize", "one_hot",
           "pairwise_distance"]  # fmt: skip


@by_numpys_names
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """input[..., in] @ weight[out, in]^T + bias[out]."""
    found = record(_linear, input, weight, *(() if bias is None else (bias,)))
    return found if out is None else into(out, found)


def _linear_name(args: Sequence[Any]) -> str:
    """PyTorch multiplies matrices: other inputs are made one, and their results are views."""
    x, biased = args[0], len(args) > 2
    if x.rank == 2:
        return "AddmmBackward0" if biased else "MmBackward0"
    if biased:
        return "ViewBackward0"
    return "SqueezeBackward4" if x.rank == 1 else "UnsafeViewBackward0"


def _linear_steps(args: Sequence[Any]) -> Sequence[Any]:
    x, weight, *bias = args
    if weight.rank == 1:
        return args
    turned = Step("TBackward0", (weight,))
    if x.rank == 2:
        return *bias, x, turned
    if bias:
        rows = Step("ViewBackward0", (x,))
        return (Step("AddmmBackward0", (*bias, rows, turned)),)
    rows = Step("UnsqueezeBackward0" if x.rank == 1 else "ViewBackward0", (x,))
    return (Step("MmBackward0", (rows, turned)),)


@builder("linear", casts=LOWER, gradient=_linear_name, steps=_linear_steps, leads=2)
def _linear(x: Node, weight: Node, *bias: Node) -> Node:
    refuse("addmm_impl_cpu_", x, BOOL)
    if weight.rank == 1:  # a vector gives one number for each row, and the dimension is dropped
        y = ops.linear(x, ops.unsqueeze(weight, 0), *bias)
        return ops.squeeze(y, (y.rank - 1,))
    return ops.linear(x, weight, *bias)


def _bilinear(x: Node, y: Node, weight: Node, *bias: Node) -> Node:
    if (
        weight.rank != 3
        or (x.shape[-1], y.shape[-1]) != weight.shape[1:]
        or (x.shape[:-1] != y.shape[:-1])
    ):
        raise RuntimeError(
            "bilinear: expected inputs (..., in1) and (..., in2) for a weight (out, in1, in2), got "
            f"{tuple(x.shape)}, {tuple(y.shape)} and {tuple(weight.shape)}{at_user_line()}"
        )
    refuse("bmm", x, BOOL)
    return ops.bilinear(x, y, weight, *bias)


@public(
    "bilinear",
    _bilinear,
    method=False,
    casts={"cuda": WIDEST},
    gradient=lambda args: "AddBackward0" if len(args) > 3 else "ViewBackward0",
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T weight[out, in1, in2] x2 + bias[out]."""
    if bias is None:
        return record(_bilinear, input1, input2, weight)
    return record(_bilinear, input1, input2, weight, bias)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight[n, d] at the indices in `input`; the row `padding_idx` gets no gradient.

    max_norm: first the rows that are read are scaled in place, to this norm at most.
    scale_grad_by_freq: the gradient of a row is divided by the number of times that it is read.
    sparse: the gradient of `weight` is a sparse tensor of the rows that are read.
    """
    if padding_idx is not None:
        count, padding_idx = weight.shape[0], operator.index(padding_idx)
        if not -count <= padding_idx < count:
            raise AssertionError(
                f"Padding_idx must be within num_embeddings ({count}), got {padding_idx}"
                f"{at_user_line()}"
            )
        padding_idx %= count
    limit_rows(weight, input, max_norm, norm_type)
    padding = -1 if padding_idx is None else padding_idx
    if sparse and scale_grad_by_freq:
        _no_frequency()
    return record_fallible(
        _embedding, input, weight, padding, bool(scale_grad_by_freq), "row", bool(sparse)
    )


def _no_frequency() -> NoReturn:
    raise RuntimeError(
        "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
        + at_user_line()
    )


def limit_rows(weight: Any, index: Any, max_norm: float | None, norm_type: float) -> None:
    """Scale the rows of `weight` that are read in place, to the norm `max_norm` at most."""
    if max_norm is not None:
        with recording.grad_mode(False):
            node = recording.fallible_node_of(
                _renorm, weight, index, float(max_norm), float(norm_type)
            )
            recording.assign(weight, node)


def _indices(index: Node) -> Node:
    if index.dtype not in (int64, int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {index.dtype} instead{at_user_line()}"
        )
    return to(index, int64)


@builder("embedding", picks=1)
def _embedding(
    index: Node,
    weight: Node,
    padding_idx: int,
    by_frequency: bool,
    failure: str = "row",
    sparse: bool = False,
) -> Node:
    if weight.rank != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {tuple(weight.shape)}{at_user_line()}")
    index = ops.checked(_indices(index), weight.shape[0], 0, failure)
    rows = ops.take_rows(weight, index) if sparse else ops.gather(weight, index, 0)
    if by_frequency and rows.requires_grad:
        none, one = (ops.constant(v, rows.dtype) for v in (0, 1))
        counts = ops.expand(none, weight.shape[:1])
        counts = ops.scatter(counts, ops.expand(one, index.shape), index, 0, "add")
        times = ops.unsqueeze(ops.gather(counts, index, 0), index.rank)
        rows = ops.with_value(rows / times, ops.detach(rows))
    if padding_idx < 0 or not rows.requires_grad:
        return rows
    is_padding = ops.eq(index, ops.full_like(index, padding_idx))
    hidden = ops.expand(ops.unsqueeze(is_padding, index.rank), rows.shape)
    return ops.where(hidden, ops.detach(rows), rows)


def _renorm(weight: Node, index: Node, max_norm: float, p: float) -> Node:
    """`weight` with the rows at `index` scaled so that their p-norm is at most max_norm."""
    index = ops.checked(ops.reshape(_indices(index), (-1,)), weight.shape[0], 0, "row")
    rows = ops.gather(weight, index, 0)
    power = ops.full_like(rows, p)
    total = ops.sum(ops.pow(ops.abs(rows), power), (1,))
    norm = ops.pow(total, ops.full_like(total, 1 / p))
    scale = ops.where(norm > max_norm, max_norm / (norm + 1e-7), ops.full_like(norm, 1))
    return ops.scatter(weight, rows * scale, index, 0, "set")


def _p_norm(x: Node, p: float, axis: int | tuple[int, ...]) -> Node:
    from ...functions.reduction import _norm

    return _norm(x, p, axis, True)


@builder("normalize", casts=ON_A_GPU, gradient="DivBackward0")
def _normalize(x: Node, p: float, dim: int | tuple[int, ...], eps: float) -> Node:
    norm = _p_norm(x, p, dim)
    return x / to(ops.maximum(norm, ops.full_like(norm, eps)), x.dtype)


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float = 1e-12,
    out: Tensor | None = None,
) -> Tensor:
    """x / max(its p-norm along `dim`, eps). dim: one dimension, or several whose norm is one."""
    at = tuple(int(d) for d in dim) if isinstance(dim, (tuple, list)) else int(dim)  # type: ignore[arg-type]
    return into(out, record(_normalize, input, float(p), at, float(eps)))


def _cosine_similarity(a: Node, b: Node, dim: int, eps: float) -> Node:
    from tilewright.ir.shape import broadcast

    from ...functions.promotion import promoted

    a, b = promoted(a, b)
    shape = broadcast(a.shape, b.shape)
    a, b = ops.expand(a, shape), ops.expand(b, shape)
    alone = not shape
    if alone:
        a, b = ops.reshape(a, (1,)), ops.reshape(b, (1,))
    axis = normalize_axis(dim, a.rank)

    def unit(x: Node) -> Node:
        norm = _p_norm(x, 2.0, axis)
        return x / ops.maximum(norm, ops.full_like(norm, eps))

    return ops.squeeze(ops.sum(unit(a) * unit(b), (axis,)), (axis,))


@public(
    "cosine_similarity",
    _cosine_similarity,
    method=False,
    casts=ON_A_GPU,
    gradient="SumBackward1",
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 · x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`."""
    return record(_cosine_similarity, x1, x2, int(dim), float(eps))


@public("pairwise_distance", method=False)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return (x1 - x2 + eps).norm(p, -1, keepdim)


@builder("one_hot")
def _one_hot(index: Node, classes: int) -> Node:
    index = ops.checked(ops.cast(index, int64), classes, index.rank, "one-hot")
    line = ops.reshape(ops.iota(classes), (1,) * index.rank + (classes,))
    return ops.cast(ops.eq(ops.unsqueeze(index, index.rank), line), int64)


@also_named(input="tensor")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 one-hot rows of the class indices in `tensor`, which are int64."""
    if tensor.dtype is not int64:
        raise RuntimeError(
            "one_hot is only applicable to index tensor of type LongTensor, but got one of "
            f"{tensor.dtype}{at_user_line()}"
        )
    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1
    return record_fallible(_one_hot, tensor, int(num_classes))
