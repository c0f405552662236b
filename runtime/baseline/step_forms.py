"""The forms of a template's steps: functions of arrays for all sizes, or found for these sizes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.normalization import layer_norm_op
from tilewright.ir.shape import Size

from . import composites, draws, folds, forms, indexed, maps, moments
from .forms import Form
from .products import quiet as product
from .program import CELLS, MOST_SCORES, cell_of, loop_of, routine_of, scores_of
from .quiet import bare, quiet, quietly

Shape = tuple[int, ...]
WIDE = (float32, float64)
Shared = dict[Any, tuple[list[Any], Any]]
"""Stages of composites, by their keys: the operands, and what was computed of them."""


class Untold(Exception):
    """Examples don't tell what a call computes for other sizes, or not for these."""


VIEWS = (operator.methodcaller, operator.itemgetter)
"""The classes of forms that make views."""


def is_bare(form: Form) -> bool:
    """Whether a form makes an array of its own, and NumPy warns of nothing."""
    return form.__class__ is BuiltinFunctionType or getattr(form, "is_bare", False)


def is_quiet(form: Form) -> bool:
    """Whether NumPy warns of nothing."""
    return is_bare(form) or form.__class__ in VIEWS or getattr(form, "is_quiet", False)


def is_whole(form: Form) -> bool:
    """Whether a form makes a view of all elements of an array in their order."""
    return form.__class__ is operator.methodcaller and form.__reduce__()[1][0] in (
        "reshape",
        "squeeze",
    )


def direct(
    op: Op, attrs: tuple[Any, ...], dtypes: tuple[DType, ...], dtype: DType
) -> Callable[..., Any] | None:
    """The form of a step for all sizes; None if there is none."""
    if op.kind is Kind.ELEMENTWISE:
        if op.params:
            form = forms.converted(op, dtypes[0], dtype)
        else:
            form = forms.elementwise(op, dtypes, dtype)
        if op.divides and not dtype.is_floating_point:
            return _divided(form)
        return maps.making(op, attrs, dtypes, dtype, form)
    if op is ops.matmul and dtype not in HALVES and all(d is dtype for d in dtypes):
        return _matmul
    if op.pointwise and len(dtypes) == 1:
        kernel = maps.composite(op, attrs, dtypes, dtype)
        return None if kernel is None else maps.making(op, attrs, dtypes, dtype, kernel)
    if op is ops.gather and len(dtypes) == 2:
        return forms.take(*attrs)
    if dtype in WIDE and op in _PRODUCTS and all(d is dtype for d in dtypes):
        return _linear(dtype) if op is ops.linear else _PRODUCTS[op]
    if op in _BY_ATTRS:
        return _BY_ATTRS[op](*attrs)
    if op in _FOLDS and dtype in WIDE and dtypes == (dtype,):
        by_sizes = sized(op, dtypes, dtype, None)
        return folds.of_last_axes(attrs[0], _FOLDS[op], dtype, lambda a: by_sizes(attrs, (a,))(a))
    if op.kind is Kind.HOST:
        return _routine(op, attrs, len(dtypes))
    if op is layer_norm_op and all([d is dtype for d in dtypes]) and moments.has_code(dtype):
        return Staged(*composites.layer_norm_parts(*attrs))
    if op in composites.SIZELESS and all(d is dtype for d in dtypes) and dtype in WIDE:
        return composites.SIZELESS[op](_stand_in(op, attrs, (), (), dtype))
    return None


def _routine(op: Op, attrs: tuple[Any, ...], count: int) -> Form:
    """The form of a result of a library's routine of `count` operands. Its other results, if it
    has some, share the call."""
    if op.results > 1:
        return Staged(*routine_of(op, attrs, count))
    function, given = op.routine, attrs[:-1]
    assert function is not None
    return lambda *arrays: function(*arrays, *given)[0]


def _divided(form: Form) -> Form:
    def divided(x: Any, divisor: Any) -> Any:
        if not divisor.all():  # an error, which the recorded call has
            raise Untold
        return form(x, divisor)

    return divided


@bare
def _matmul(a: Any, b: Any) -> Any:
    if a.ndim > 3 and a.size // a.shape[-1] * b.shape[-1] > MOST_SCORES:
        raise Untold
    return product(a, b)


@functools.cache
def _linear(dtype: DType) -> Form:
    add = maps.making(ops.add, (), (dtype, dtype), dtype, np.add)

    @bare
    def linear(x: Any, weight: Any, *bias: Any) -> Any:
        if not x.size or not weight.size:
            raise Untold
        if x.ndim == 2:
            out = product(x, weight.T)
        else:
            out = product(x.reshape(-1, x.shape[-1]), weight.T)
        if bias:
            out = add(out, bias[0]) if out.size < _IN_PLACE else quietly(np.add, out, *bias, out)
        return out if x.ndim == 2 else out.reshape(*x.shape[:-1], len(weight))

    return linear


_IN_PLACE = 2048
"""Elements from which a sum takes the place of its operand."""


@bare
def _input_grad(g: Any, weight: Any) -> Any:
    if not g.size or not weight.size:
        raise Untold
    if g.ndim == 2:
        return product(g, weight)
    return product(g.reshape(-1, len(weight)), weight).reshape(*g.shape[:-1], weight.shape[1])


@bare
def _weight_grad(g: Any, x: Any) -> Any:
    if not g.size or not x.size:
        raise Untold
    if g.ndim == 2:
        return product(g.T, x)
    return product(g.reshape(-1, g.shape[-1]).T, x.reshape(-1, x.shape[-1]))


def bias_grad(g: Any) -> Any:
    """The cotangent of a bias that has the size of the last axis."""
    if not g.size:
        raise Untold
    return folds.rows_total(g.reshape(-1, g.shape[-1]))


_PRODUCTS: dict[Op, Any] = {
    ops.linear: _linear,
    ops.linear_input_grad: _input_grad,
    ops.linear_weight_grad: _weight_grad,
}


_BY_ATTRS: dict[Op, Callable[..., Callable[..., Any] | None]] = {
    ops.permute_op: lambda order: operator.methodcaller("transpose", order),
    ops.reshape_op: lambda shape: operator.methodcaller("reshape", shape),
    ops.cat_op: lambda axis: quiet(lambda *arrays: np.concatenate(arrays, axis)),
    ops.slice_op: lambda *attrs: _cut(attrs),
}


def _cut(attrs: tuple[Any, ...]) -> Callable[..., Any]:
    return operator.itemgetter(tuple(map(slice, *attrs)))


def sized(
    op: Op, dtypes: tuple[DType, ...], dtype: DType, along: int | None
) -> Callable[[tuple[Any, ...], Sequence[Any]], Any]:
    """(attrs, operands) -> the form of a step for operands of these sizes. along: see Step."""
    if op is ops.reshape_op:
        return lambda attrs, _: operator.methodcaller("reshape", attrs[0])
    if op is ops.expand_op:
        return lambda attrs, _: quiet(functools.partial(_expanded, attrs[0]))
    if op is ops.slice_op:
        return lambda attrs, _: _cut(attrs)

    if op in ops.DRAWS and (draw := draws.bits(op)) is not None:
        return lambda attrs, _: lambda seed, offset: draw(seed, offset, attrs[0])

    known: dict[Any, Any] = {}  # forms by attrs and shapes

    def found(attrs: tuple[Any, ...], arrays: Sequence[Any]) -> Any:
        key = (attrs, *[a.shape for a in arrays])
        form = known.get(key)
        if form is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            operands = tuple([_stand_in(ops.leaf, (), (), s, d) for s, d in zip(key[1:], dtypes)])
            if along is not None:
                operands = _with_counts(operands, along)
            shape, _ = op.infer(*operands, *attrs)
            node = _stand_in(op, attrs, operands, shape, dtype)
            if op.kind is Kind.ATTENTION and scores_of(node) > MOST_SCORES:
                raise Untold
            form = known[key] = _form(node) if along is None else _form_along(node, along)
        return form

    return found


_FOLDS: dict[Op, Any] = {
    ops.sum_op: np.add, ops.prod_op: np.multiply, ops.max_op: np.maximum, ops.min_op: np.minimum,
}  # fmt: skip

_WRITTEN_OUT = 4096
"""The elements up to which a value is written out rather than looked at with strides of 0, which
takes NumPy several microseconds."""


def _expanded(shape: Shape, x: Any) -> Any:
    if x.shape == shape:
        return x
    if math.prod(shape) > _WRITTEN_OUT:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


_REMEMBERED = 256
"""The forms of a step that are kept, for as many sizes."""


def _form(node: Node) -> Any:
    """The form of a node, as a program has it."""
    kind = node.op.kind
    if kind is Kind.LOOP:
        return loop_of(node)
    if node.op in CELLS:
        return Staged(*cell_of(node))
    if kind is Kind.HOST:
        return _routine(node.op, node.attrs, len(node.operands))
    if kind not in (Kind.COMPOSITE, Kind.ATTENTION):
        return forms.form_of(node)
    parts = composites.parts_of(node)
    if parts is not None:
        return Staged(*parts)
    return composites.form_of(node) or forms.form_of(node)


def _with_counts(operands: tuple[Node, ...], along: int) -> tuple[Node, ...]:
    """The operands of a gather or scatter along a dimension, with the positions in the others."""
    *before, index = operands
    indices = []
    for i, size in enumerate(index.shape):
        shape = [1] * index.rank
        shape[i] = size
        counted = _stand_in(ops.iota, (size,), (), (size,), index.dtype)
        indices.append(_stand_in(ops.reshape_op, (tuple(shape),), (counted,), shape, index.dtype))
    indices[along] = index
    return (*before, *indices)


def _form_along(node: Node, along: int) -> Any:
    """The form of a gather or scatter along a dimension, which checks its positions."""
    native = indexed.gather(node) if node.op is ops.gather else indexed.scatter(node)
    form = native or forms.form_of(node)
    indices = node.operands[1:] if node.op is ops.gather else node.operands[2:]
    counts = [
        np.arange(n.shape[i]).reshape(n.shape) if i != along else None
        for i, n in enumerate(indices)
    ]
    before, after = counts[:along], counts[along + 1 :]
    size = node.operands[0].shape[along]

    def along_one(*arrays: Any) -> Any:
        *given, index = arrays
        if native is None and not are_inside(index, size):
            raise IndexError("a position is out of range")
        return form(*given, *before, index, *after)

    return bare(along_one) if is_bare(form) else along_one


class Staged:
    """The form of a composite whose stages others share, as those of its derivatives."""

    def __init__(self, stages: Sequence[composites.Stage], last: Form):
        self._stages, self._last = stages, last

    def __call__(self, shared: Shared, *given: Any) -> Any:
        arrays = list(given)
        for key, places, stage in self._stages:
            of = [arrays[p] for p in places]
            known = shared.get(key)
            if known is None or not all(map(operator.is_, known[0], of)):
                known = shared[key] = of, stage(*arrays)
            arrays.append(known[1])
        return self._last(*arrays)


def _stand_in(
    op: Op, attrs: tuple[Any, ...], operands: tuple[Node, ...], shape: Sequence[int], dtype: DType
) -> Node:
    """A node of no table: what forms ask for of one."""
    node = Node()
    node.op, node.attrs, node.operands = op, attrs, operands
    node.shape, node.dtype, node.device = Size(shape), dtype, None
    node.requires_grad, node.memo = False, {}
    return node
