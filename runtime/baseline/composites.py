"""Forms of whole composites of float32 and float64 that fold, in few calls of NumPy.

Other composites run as the primitives that they decompose into.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.attention import (
    attention,
    attention_key_grad,
    attention_logsumexp,
    attention_query_grad,
    attention_value_grad,
)
from tilewright.ir.ops.classification import cross_entropy_grad, cross_entropy_op, nll_op
from tilewright.ir.ops.normalization import (
    batch_norm_op,
    layer_norm_op,
    layer_norm_weight_grad,
)

from . import chains, folds, kernels, losses, maps, moments, probabilities, updates
from .forms import Form, elementwise
from .products import matmul


def form_of(node: Node) -> Form | None:
    """The form of a composite; None if it is computed as its primitives or in parts."""
    if node.op.pointwise:
        return _pointwise(node)
    if node.op in updates.UPDATES:
        return updates.form_of(node)
    if node.op in kernels.LAYERS:
        return kernels.layer(node)
    if node.op is nll_op:
        return losses.likelihood(node) if _is_float(node) else None
    make = _FORMS.get(node.op)
    if make is None or not _is_float(node) or any(o.dtype is not node.dtype for o in node.operands):
        return None
    return make(node)


def _pointwise(node: Node) -> Form | None:
    if any(o.shape != node.shape for o in node.operands):
        return None
    return maps.composite(node.op, node.attrs, tuple([o.dtype for o in node.operands]), node.dtype)


Stage = tuple[Any, tuple[int, ...], Form]
"""(key, places, form): what records with this key have in common whose operands at `places` are the
same. A program computes it once for all of them."""
Parts = tuple[list[Stage], Form]
"""(stages, last) of a record that shares work with others. Each form has the results of the stages
before it as further operands."""


def parts_of(node: Node) -> Parts | None:
    """The parts of a composite; None if it has none."""
    make = _PARTS.get(node.op)
    return None if make is None or not _is_float(node) else make(node)


def _is_float(node: Node) -> bool:
    """Whether a node is float32 or float64, and something is folded."""
    return node.dtype in (float32, float64) and not any(0 in o.shape for o in node.operands)


def _linear(node: Node) -> Form:
    shape = tuple(node.shape)
    if len(shape) == 2 and len(node.operands) == 3:

        def matrix(x: Any, weight: Any, bias: Any) -> Any:
            out = matmul(x, weight.T)
            out += bias
            return out

        return matrix
    rows = (math.prod(shape[:-1]), node.operands[0].shape[-1])

    def linear(x: Any, weight: Any, *bias: Any) -> Any:
        out = matmul(x.reshape(rows), weight.T)
        if bias:
            out += bias[0]
        return out.reshape(shape)

    return linear


def _linear_input_grad(node: Node) -> Form:
    shape, weight = tuple(node.shape), node.operands[1]
    if len(shape) == 2:
        return matmul
    rows = (math.prod(shape[:-1]), weight.shape[0])
    return lambda g, weight: matmul(g.reshape(rows), weight).reshape(shape)


def _linear_weight_grad(node: Node) -> Form:
    if node.operands[0].rank == 2:
        return lambda g, x: matmul(g.T, x)
    (outputs, inputs), count = node.shape, math.prod(node.operands[0].shape[:-1])
    of_g, of_x = (count, outputs), (count, inputs)
    return lambda g, x: matmul(g.reshape(of_g).T, x.reshape(of_x))


def _linear_bias_grad(node: Node) -> Form:
    shape, g = tuple(node.shape), node.operands[0]
    axes = range(g.rank - 1) if shape == g.shape[-1:] else range(g.rank)
    if not axes:
        return lambda g: g.reshape(shape)
    total = folds.total(g, axes)
    return lambda g: total(g).reshape(shape)


def _exp(dtype: DType) -> Form:
    return elementwise(ops.exp, (dtype,), dtype)


def _log(dtype: DType) -> Form:
    return elementwise(ops.log, (dtype,), dtype)


# By position: the name `keepdims` takes longer than the fold of a short row.
_maximum: Any = np.maximum.reduce
_plus: Any = np.add.reduce


def _top(x: Any, axes: Any) -> Any:
    return _maximum(x, axes, None, None, True)


def _sum(x: Any, axes: Any) -> Any:
    return _plus(x, axes, None, None, True)


def _softmax(node: Node) -> Form:
    (axis,) = node.attrs
    native = probabilities.form_of("softmax", node.dtype, axis)
    if native is not None:
        return native
    exp = _exp(node.dtype)

    def softmax(x: Any) -> Any:
        e = exp(x - _top(x, axis))
        e /= _sum(e, axis)
        return e

    return softmax


def _safe_softmax(node: Node) -> Form:
    (axis,) = node.attrs
    native = probabilities.form_of("safe", node.dtype, axis)
    if native is not None:
        return native
    exp = _exp(node.dtype)

    def softmax(x: Any) -> Any:
        x = np.asarray(x)
        top = np.asarray(_top(x, axis))
        top[top == -np.inf] = 0
        e = exp(x - top)
        total = np.asarray(_sum(e, axis))
        total[total == 0] = 1
        e /= total
        return e

    return softmax


def _log_softmax(node: Node) -> Form:
    (axis,) = node.attrs
    return _log_softmax_along(axis, node.dtype)


def _log_softmax_along(axis: int, dtype: DType) -> Form:
    native = probabilities.form_of("log", dtype, axis)
    if native is not None:
        return native
    exp, log = _exp(dtype), _log(dtype)

    def log_softmax(x: Any) -> Any:
        x = x - _top(x, axis)
        x -= log(_sum(exp(x), axis))
        return x

    return log_softmax


def _normal(then: Callable[..., Form], at: int = 0) -> Callable[[Node], Parts | None]:
    """Parts of a record that normalizes its operand number `at`. then(node, axes) makes the last
    one, whose last operands are the mean and the deviation. They are computed once for a record,
    its gradients and those of its parameters."""

    def make(node: Node) -> Parts | None:
        x, eps = node.operands[at], node.attrs[-1]
        axes = _normalized_axes(node)
        if any(o.dtype is not node.dtype for o in node.operands) or chains.folds(x, axes):
            return None
        key, last = _moments(tuple([a - x.rank for a in axes]), eps), then(node, axes)
        length = _row(x, axes)
        if length:
            kept, wide = (*x.shape[: axes[0]], *[1] * len(axes)), np.array([eps], np.float64)

            def of_rows(*arrays: Any) -> Any:
                mean, scale = moments.of_rows(arrays[at], length, wide)
                return mean.reshape(kept), scale.reshape(kept)

            return [(key, (at,), of_rows)], last
        total, products, count = folds.total(x, axes), folds.products(x, axes), _count(x, axes)

        def by_numpy(*arrays: Any) -> Any:
            x = arrays[at]
            mean = total(x)
            mean /= count
            centred = x - mean
            scale = products(centred, centred)
            scale /= count
            scale += eps
            return mean, np.sqrt(scale, scale)

        return [(key, (at,), by_numpy)], last

    return make


def _moments(axes: tuple[int, ...], eps: float) -> Any:
    """The key of the mean and the deviation over axes, counted from the last one."""
    return "moments", axes, eps


def layer_norm_parts(rank: int, eps: float) -> Parts:
    """Parts of a layer norm by native code, for any sizes but 0."""
    wide = np.array([eps], np.float64)

    def of_rows(x: Any, *_: Any) -> Any:
        shape = x.shape
        mean, scale = moments.of_rows(x, math.prod(shape[-rank:]), wide)
        kept = (*shape[:-rank], *[1] * rank)
        return mean.reshape(kept), scale.reshape(kept)

    def scaled(x: Any, *more: Any) -> Any:
        return moments.normalized(x, math.prod(x.shape[-rank:]), more[-1], more[:-1])

    return [(_moments(tuple(range(-rank, 0)), eps), (0,), of_rows)], scaled


def _row(x: Node, axes: tuple[int, ...]) -> int:
    """The elements of the rows that `axes` are, if native code normalizes them; else 0."""
    is_row = axes == tuple(range(x.rank - len(axes), x.rank)) and x.shape.numel() > 0
    return int(_count(x, axes)) if is_row and axes and moments.has_code(x.dtype) else 0


def _count(x: Node, axes: tuple[int, ...]) -> float:
    return float(math.prod([x.shape[a] for a in axes]))


def _normalized_axes(node: Node) -> tuple[int, ...]:
    rank = node.operands[0].rank
    if node.op is batch_norm_op:
        return (0, *range(2, rank))
    if node.op in (layer_norm_op, layer_norm_weight_grad):
        return tuple(range(rank - node.attrs[0], rank))
    axes: tuple[int, ...] = node.attrs[0]
    return axes


def _normalize(node: Node, axes: tuple[int, ...]) -> Form:
    length = _row(node.operands[0], axes)
    if length:
        return lambda x, found: moments.normalized(x, length, found, ())

    def normalize(x: Any, found: Any) -> Any:
        mean, scale = found
        y = x - mean
        y /= scale
        return y

    return normalize


def _scaled(node: Node, axes: tuple[int, ...]) -> Form:
    """Layer and batch norm: x[..., *rest] or x[n, c, ...], with parameters of the shape of `rest`
    or of `c`."""
    x = node.operands[0]
    is_batch = node.op is batch_norm_op
    length = 0 if is_batch else _row(x, axes)
    if length:
        return lambda x, *more: moments.normalized(x, length, more[-1], more[:-1])
    shape = (1, x.shape[1], *[1] * (x.rank - 2)) if is_batch else x.shape[axes[0] :]

    def scaled(x: Any, *more: Any) -> Any:
        *parameters, (mean, scale) = more
        parameters = [p.reshape(shape) for p in parameters]
        y = x - mean
        if parameters and is_batch:
            y *= parameters[0] / scale
        else:
            y /= scale
            if parameters:
                y *= parameters[0]
        if len(parameters) > 1:
            y += parameters[1]
        return y

    return scaled


def _weight_grad(node: Node, axes: tuple[int, ...]) -> Form:
    x, shape = node.operands[1], tuple(node.shape)
    total = folds.total(x, range(axes[0])) if axes[0] else None

    def weight_grad(g: Any, x: Any, moments: Any) -> Any:
        mean, scale = moments
        y = x - mean
        y /= scale
        y *= g
        return (y if total is None else total(y)).reshape(shape)

    return weight_grad


def _normalize_grad(node: Node, axes: tuple[int, ...]) -> Form:
    x = node.operands[1]
    total, products, count = folds.total(x, axes), folds.products(x, axes), _count(x, axes)

    def normalize_grad(g: Any, x: Any, moments: Any) -> Any:
        # (g - mean(g) - y mean(g y)) / scale, where y = (x - mean) / scale
        mean, scale = moments
        y = x - mean
        slope = products(g, y)
        slope /= -count * scale * scale
        y *= slope
        y += g
        level = total(g)
        level /= count
        y -= level
        y /= scale
        return y

    return normalize_grad


def _classes(make: Callable[[Node, Form], Parts | None]) -> Callable[[Node], Parts | None]:
    """Parts of a loss of scores, or of its gradient. make: of the node and the form of log_softmax
    along the last axis."""
    return lambda node: make(node, _log_softmax_along(1, node.dtype))


# ---- attention -------------------------------------------------------------------------------


def _attention(then: Callable[..., Any]) -> Callable[[Node], Parts | None]:
    """Parts of a record of the forward pass; then(v, weights, what gives the logsumexp)."""

    def make(node: Node) -> Parts | None:
        weights = _weights(node)
        if weights is None:
            return None
        return [weights], lambda *arrays: then(arrays[2], *arrays[-1])

    return make


def _attention_grad(then: Callable[..., Any]) -> Callable[[Node], Parts | None]:
    """Parts of the record of a cotangent; then(q, k, g, weights, cotangent of the products)."""

    def make(node: Node) -> Parts | None:
        weights = _weights(node)
        if weights is None:
            return None
        scale = node.attrs[0]

        def back(*arrays: Any) -> Any:
            _, delta, g, (made, _) = arrays[-4:]
            out = matmul(g, arrays[2].swapaxes(-1, -2))
            out -= delta
            out *= made
            out *= scale
            return out

        def last(*arrays: Any) -> Any:
            g, (made, _), products = arrays[-3:]
            return then(arrays[0], arrays[1], g, made, products)

        every = tuple(range(len(node.operands)))
        return [weights, (("back", node.attrs), every, back)], last

    return make


_MOST_HELD = 1 << 14
"""Elements of a mask that a form keeps."""


_MATRIX = 1 << 12
"""Elements of a matrix of scores from which it is computed by itself."""


def _hidden(queries: int, keys: int) -> Any:
    """Which keys a query of causal attention doesn't see."""
    return np.arange(queries)[:, None] < np.arange(keys)


class _Scores:
    """What gives the weights of the attrs that are common."""

    def __init__(self, node: Node):
        self.scale, _, self.causal, _, self.has_mask, _ = node.attrs
        self.np_dtype = node.dtype.np
        self.size = node.operands[0].shape[-2], node.operands[1].shape[-2]
        self.exp, self.log = _exp(node.dtype), _log(node.dtype)
        is_small = math.prod(self.size) <= _MOST_HELD
        self.held = _hidden(*self.size) if self.causal and is_small else None
        self.least = np.finfo(self.np_dtype).min

    def shape(self, q: Any, k: Any, mask: Any) -> tuple[int, ...]:
        """The shape of the weights."""
        given = (q, k) if mask is None else (q, k, mask)
        return (*np.broadcast_shapes(*[a.shape[:-2] for a in given]), *self.size)

    def of(
        self, whole: tuple[int, ...] | None, q: Any, k: Any, mask: Any
    ) -> Iterator[tuple[Any, Callable[..., Any]]]:
        """(index, fill) of matrices of weights[*whole, queries, keys] that are computed together.
        All are computed together where operands repeat, and where `whole` is None. fill(out) writes
        them; (the largest score, the sum of the exponentials) of each row."""
        hidden = self.held
        if self.causal and hidden is None:
            hidden = _hidden(*self.size)
        is_same = whole is not None and q.shape[:-2] == k.shape[:-2] == whole
        if whole is None or not is_same or math.prod(self.size) < _MATRIX:
            yield ..., functools.partial(self._fill, q, k, hidden, mask)
            return
        if mask is not None:
            mask = np.broadcast_to(mask, (*whole, *self.size))
        for i in np.ndindex(*whole):  # the scores of one matrix stay in the nearer caches
            own = None if mask is None else mask[i]
            yield i, functools.partial(self._fill, q[i], k[i], hidden, own)

    def _fill(self, q: Any, k: Any, hidden: Any, mask: Any, out: Any) -> tuple[Any, Any]:
        scores = matmul(q * self.np_dtype.type(self.scale), k.swapaxes(-1, -2), out)
        if hidden is not None:
            scores[..., hidden] = -np.inf
        if mask is not None and mask.dtype == bool:
            np.copyto(scores, -np.inf, where=~mask)
        elif mask is not None:
            scores += mask
        top = _top(scores, -1)
        np.maximum(top, self.least, out=top)  # finite for a row without keys: its weights are 0
        scores -= top
        powers = self.exp(scores)
        total = _sum(powers, -1)
        np.maximum(total, 1, out=total)  # the weight of the top is 1: less is a row without keys
        np.divide(powers, total, out)
        return top, total


def _has_weights(node: Node) -> bool:
    _, cap, _, dropout, _, has_spans = node.attrs
    has_keys = 0 not in (o.shape[-2] for o in node.operands[:2])
    return has_keys and not (cap or dropout or has_spans)


def _weights(node: Node) -> Stage | None:
    """The weights and a function that gives each row's logsumexp, which nobody asks for without
    gradients; for the attrs that are common."""
    if not _has_weights(node):
        return None
    scores = _Scores(node)
    has_mask, log, least = scores.has_mask, scores.log, scores.least

    def weights(q: Any, k: Any, _: Any, *rest: Any) -> Any:
        mask = rest[0] if has_mask else None
        shape = scores.shape(q, k, mask)
        made = np.empty(shape, scores.np_dtype)
        top, total = (np.empty((*shape[:-1], 1), scores.np_dtype) for _ in range(2))
        for i, fill in scores.of(shape[:-2], q, k, mask):
            top[i], total[i] = fill(made[i])

        def logsumexp() -> Any:
            rows = log(total) + top
            rows[top == least] = 0
            return rows

        return made, logsumexp

    return ("weights", node.attrs), (0, 1, *range(3, 3 + has_mask)), weights


def alone(node: Node) -> Form | None:
    """The form of a record in parts whose stages nobody else needs; None if it is the parts'."""
    if node.op is not attention or parts_of(node) is None:
        return None
    scores, shape = _Scores(node), tuple(node.shape)

    def attend(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        mask = rest[0] if scores.has_mask else None
        whole = shape[:-2] if v.shape[:-2] == shape[:-2] else None
        out, made = np.empty(shape, scores.np_dtype), None
        for i, fill in scores.of(whole, q, k, mask):
            if made is None:
                sizes = scores.size if i is not ... else scores.shape(q, k, mask)
                made = np.empty(sizes, scores.np_dtype)
            fill(made)
            matmul(made, v[i], out[i])
        return out

    return attend


SIZELESS: dict[Op, Callable[[Node], Form]] = {
    ops.softmax: _softmax,
    ops.safe_softmax: _safe_softmax,
    ops.log_softmax: _log_softmax,
}
"""Composites whose forms are the same for all sizes: they look at attrs and dtype alone."""
_FORMS: dict[Op, Callable[[Node], Form]] = {
    ops.linear: _linear,
    ops.linear_input_grad: _linear_input_grad,
    ops.linear_weight_grad: _linear_weight_grad,
    ops.linear_bias_grad: _linear_bias_grad,
    **SIZELESS,
}
_PARTS: dict[Op, Callable[[Node], Parts | None]] = {
    ops.normalize: _normal(_normalize),
    ops.normalize_grad: _normal(_normalize_grad, 1),
    layer_norm_op: _normal(_scaled),
    layer_norm_weight_grad: _normal(_weight_grad, 1),
    batch_norm_op: _normal(_scaled),
    cross_entropy_op: _classes(losses.cross_entropy),
    cross_entropy_grad: _classes(losses.cross_entropy_grad),
    attention: _attention(lambda v, weights, _: matmul(weights, v)),
    attention_logsumexp: _attention(lambda v, weights, rows: rows()),
    attention_query_grad: _attention_grad(lambda q, k, g, weights, back: matmul(back, k)),
    attention_key_grad: _attention_grad(
        lambda q, k, g, weights, back: matmul(back.swapaxes(-1, -2), q)
    ),
    attention_value_grad: _attention_grad(
        lambda q, k, g, weights, back: matmul(weights.swapaxes(-1, -2), g)
    ),
}
