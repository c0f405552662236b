"""Forms: the function of arrays that computes a primitive, for any size.

A form has the bits of a compiled kernel for elementwise ops, and the reference's bounds for others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import (
    FLOAT8,
    HALVES,
    SIGNED,
    UNSIGNED,
    DType,
    accumulator,
    bfloat16,
    bool_,
    complex32,
    complex64,
    complex128,
    float32,
    float64,
)
from tilewright.ir.node import Node
from tilewright.ir.numeric import special
from tilewright.ir.numeric.positions import are_inside
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.generate import leaf
from tilewright.ir.ops.strided import diagonal, set_diagonal
from tilewright.ir.reference import elementwise_function, evaluate

from . import (
    convolutions,
    copies,
    depthwise,
    draws,
    exact,
    folds,
    indexed,
    linking,
    maps,
    scans,
    sorting,
)
from .products import matmul
from .quiet import bare, quiet
from .rows import add as add_rows

Form = Callable[..., Any]
"""form(*arrays) -> an array of the node's shape and dtype. It may be a view of an operand."""


def form_of(node: Node) -> Form:
    """The form of a primitive that isn't a leaf."""
    op = node.op
    if op.kind is Kind.ELEMENTWISE:
        if op.params:
            return converted(op, node.operands[0].dtype, node.dtype)
        dtypes = tuple([o.dtype for o in node.operands])
        if node.dtype in FLOAT8 or any(d in FLOAT8 for d in dtypes):
            return functools.partial(_evaluated, node)
        form = elementwise(op, dtypes, node.dtype)
        return _by_rows(node, dtypes, form) if _has_rows(node) else form
    make = _FORMS.get(op)
    if make is not None:
        return make(node)
    form = functools.partial(_evaluated, node)
    return quiet(form) if op.kind is Kind.MOVEMENT else form


def has_form(op: Op) -> bool:
    """Whether a record that decomposes is computed as it is."""
    return op in _FORMS or (op.numpy is not None and op.kind is not Kind.COMPOSITE)


def _evaluated(node: Node, *arrays: Any) -> Any:
    """By the reference, which expects arrays, also of a single element."""
    return evaluate(node, [np.asarray(a) for a in arrays])


# ---- elementwise -----------------------------------------------------------------------------


@functools.cache
def elementwise(op: Op, dtypes: Sequence[DType], dtype: DType) -> Form:
    """The form of an elementwise op over operands of `dtypes`, of any shapes that broadcast."""
    if op is ops.where:
        return maps.where(dtype)
    if dtype in HALVES and op in _SIGNS:
        return _SIGNS[op]
    narrow = (*HALVES, complex32)
    if dtype in narrow or any(d in narrow for d in dtypes):
        # Computed in float32 or complex64, and rounded once.
        wide = tuple([accumulator(d) if d in narrow else d for d in dtypes])
        inner = elementwise(op, wide, accumulator(dtype) if dtype in narrow else dtype)
        return _rounded(inner, dtypes, dtype)
    ready = maps.native(op, dtypes, dtype)
    if ready is not None:
        return ready
    function = elementwise_function(op, len(dtypes))
    np_dtype = dtype.np
    probe = function(*[np.ones(1, d.np) for d in dtypes], np_dtype)
    if probe.dtype == np_dtype:
        return _direct(op, len(dtypes), np_dtype)
    return lambda *arrays: special.cast(function(*arrays, np_dtype), np_dtype)


_SIGNS: dict[Op, Form] = {
    ops.neg: lambda x: (x.view(np.uint16) ^ np.uint16(0x8000)).view(x.dtype),
    ops.abs: lambda x: (x.view(np.uint16) & np.uint16(0x7FFF)).view(x.dtype),
}
"""Ops on halves that change the sign alone."""


_ROWS = 1 << 16
"""Elements from which a form looks for rows."""


def _has_rows(node: Node) -> bool:
    """Whether operands may be rows that lie apart, as those of a slice."""
    return node.shape.numel() >= _ROWS and node.op in _BY_ROWS and node.dtype in (float32, float64)


def _by_rows(node: Node, dtypes: Sequence[DType], form: Form) -> Form:
    """The form of a node, with the pack's kernel for each row where rows lie apart: NumPy takes
    twice the time for rows at odd addresses."""
    shape, np_dtype = tuple(node.shape), node.dtype.np

    def by_rows(*arrays: Any) -> Any:
        if any([a.shape != shape for a in arrays]):
            return form(*_with_longer_rows(arrays, shape))
        if all([a.flags.c_contiguous for a in arrays]):
            return form(*arrays)
        size = np_dtype.itemsize
        strides = [[s // size for s in a.strides] for a in arrays]
        sizes, steps = copies.merged(shape, strides)
        if len(sizes) != 2 or any([step[1] != 1 for step in steps]):
            return form(*arrays)
        run = maps.rows(node.op, tuple(dtypes), sizes[1])
        if run is None:
            return form(*arrays)
        out = np.empty(shape, np_dtype)
        moves = [size * step for step in (sizes[1], *[each[0] for each in steps])]
        run((out, *arrays), np.array([[i, 0, i, by, by] for i, by in enumerate(moves)]), sizes[0])
        return out

    return by_rows


def _with_longer_rows(arrays: Sequence[Any], shape: tuple[int, ...]) -> Sequence[Any]:
    """Operands of an op whose result has short rows, repeated along the last dimensions if they are
    small then: NumPy walks row by row, and takes as long for a short one as for some dozen
    elements."""
    count = inner = 0
    while inner < _SHORT_ROW and count < len(shape):
        count += 1
        inner = math.prod(shape[-count:])
    most = math.prod(shape) // 4
    if count < 2 or any([a.ndim != len(shape) for a in arrays]):
        return arrays
    wholes = [(*a.shape[:-count], *shape[-count:]) for a in arrays]
    if any([math.prod(whole) > most for whole in wholes]):
        return arrays
    return [np.ascontiguousarray(np.broadcast_to(a, whole)) for a, whole in zip(arrays, wholes)]


_SHORT_ROW = 64
_BY_ROWS = {ops.add, ops.sub, ops.mul}
_UFUNCS: dict[Op, Any] = {
    ops.add: np.add,
    ops.sub: np.subtract,
    ops.mul: np.multiply,
    ops.neg: np.negative,
    ops.abs: np.abs,
    ops.real: np.real,
    ops.imag: np.imag,
    ops.sqrt: np.sqrt,
    ops.root: np.sqrt,
    ops.maximum: np.maximum,
    ops.minimum: np.minimum,
    ops.eq: np.equal,
    ops.ne: np.not_equal,
    ops.lt: np.less,
    ops.le: np.less_equal,
    ops.gt: np.greater,
    ops.ge: np.greater_equal,
}
"""Templates that are one call, which needs no function around it."""


def _direct(op: Op, arity: int, np_dtype: Any) -> Form:
    if op is ops.neg and np_dtype.kind == "c":  # NumPy's takes eight times as long
        part = np.dtype(f"f{np_dtype.itemsize // 2}")

        def negative(x: Any) -> Any:
            if not x.ndim:
                return np.negative(x)
            return np.negative(np.asarray(x, order="C").view(part)).view(np_dtype)

        return negative
    if op in (ops.maximum, ops.minimum) and np_dtype.kind in "iu":
        return _whole_extremum(op, np_dtype)
    known = _UFUNCS.get(op)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if op is ops.sign and np_dtype.kind in "iu":
        return np.sign if np_dtype.kind == "i" else lambda x: (x != 0).astype(np_dtype)
    function = elementwise_function(op, arity)
    if arity == 1:
        return lambda x: function(x, np_dtype)
    if arity == 2:
        return lambda x, y: function(x, y, np_dtype)
    return lambda *arrays: function(*arrays, np_dtype)


def _whole_extremum(op: Op, np_dtype: Any) -> Form:
    """The larger or smaller of whole numbers. NumPy compares with one number element by element,
    but limits to two of them in vectors."""
    ufunc, limits = _UFUNCS[op], np.iinfo(np_dtype)
    last = np_dtype.type(limits.max if op is ops.maximum else limits.min)

    def extremum(a: Any, b: Any) -> Any:
        if a.ndim and b.ndim:
            return ufunc(a, b)
        x, bound = (a, b) if a.ndim else (b, a)
        return x.clip(bound, last) if op is ops.maximum else x.clip(last, bound)

    return extremum


def _rounded(inner: Form, dtypes: Sequence[DType], dtype: DType) -> Form:
    widen = [maps.half_cast(d, float32) if d in HALVES else None for d in dtypes]
    narrow = maps.half_cast(float32, dtype) if dtype in HALVES else None

    def rounded(*arrays: Any) -> Any:
        out = inner(*[a if w is None else w(a) for a, w in zip(arrays, widen)])
        return out if narrow is None else narrow(out)

    def rounded_pairs(*arrays: Any) -> Any:
        wide = [special.cast(a, accumulator(d).np) for a, d in zip(arrays, dtypes)]
        return special.cast(inner(*wide), dtype.np)

    return rounded_pairs if complex32 in (*dtypes, dtype) else rounded


@functools.cache
def converted(op: Op, source: DType, target: DType) -> Form:
    """A cast or a bitcast."""
    np_dtype = target.np
    if op is ops.bitcast:
        return lambda x: special.bitcast(x, np_dtype)
    if (source is float32 and target in HALVES) or (source in HALVES and target is float32):
        return maps.half_cast(source, target)
    if source is target:
        return lambda x: x
    odd = (*FLOAT8, complex32)
    if (source in HALVES or target in HALVES) and not (
        source in odd or target in odd or source.is_complex or target.is_complex
    ):
        # NumPy goes by way of float32, too, number by number.
        first, second = converted(op, source, float32), converted(op, float32, target)
        return lambda x: second(first(x))
    if source in (complex64, complex128) and not (target.is_complex or target in (bool_, *odd)):
        second = converted(op, source.to_real(), target)
        return lambda x: second(np.asarray(x.real, order="C"))
    if target in odd or source in odd or (source.is_complex and not target.is_complex):
        return lambda x: special.cast(x, np_dtype)
    return lambda x: x.astype(np_dtype)


# ---- movement and folds ----------------------------------------------------------------------


def _reshape(node: Node) -> Form:
    shape, (x,) = tuple(node.shape), node.operands
    if x.op is not ops.expand_op or x.rank < 2 or x.shape[-1] < 2 or x.shape.numel() < _ROWS:
        return lambda x: x.reshape(shape)

    def reshape(x: Any) -> Any:
        if x.strides[-1] or not any(x.strides):
            return x.reshape(shape)
        # A copy in which each element follows itself takes NumPy's copies up to five times as long.
        count = x.shape[-1]
        if count > _NARROW:
            return np.repeat(x[..., 0], count, -1).reshape(shape)
        out = np.empty(x.shape, x.dtype)
        for i in range(count):
            out[..., i] = x[..., i]
        return out.reshape(shape)

    return reshape


def _permute(node: Node) -> Form:
    order = node.attrs[0]
    return lambda x: x.transpose(order)


_SMALL = 1024


def _expand(node: Node) -> Form:
    shape = tuple(node.shape)
    if node.shape.numel() <= _SMALL:
        np_dtype = node.dtype.np

        def filled(x: Any) -> Any:  # cheaper than a view
            out = np.empty(shape, np_dtype)
            out[...] = x
            return out

        return filled
    return lambda x: np.broadcast_to(x, shape)


def _slice(node: Node) -> Form:
    place = tuple(map(slice, *node.attrs))
    return lambda x: x[place]


_NARROW = 4
"""Columns up to which each is copied by itself: NumPy copies short rows one by one."""


def _cat(node: Node) -> Form:
    axis = node.attrs[0]
    shape, np_dtype = tuple(node.shape), node.dtype.np
    if axis < node.rank - 1 or shape[axis] > _NARROW or node.shape.numel() <= _SMALL:
        return lambda *arrays: np.concatenate(arrays, axis)

    def columns(*arrays: Any) -> Any:
        out = np.empty(shape, np_dtype)
        every = [a[..., i] for a in arrays for i in range(a.shape[-1])]
        for i, column in enumerate(every):
            out[..., i] = column
        return out

    return columns


def _fold(ufunc: Any) -> Callable[[Node], Form]:
    def make(node: Node) -> Form:
        (x,), (axes, *_) = node.operands, node.attrs
        if node.dtype not in HALVES or x.dtype is not node.dtype:
            return folds.total(x, axes, ufunc)
        wide = leaf(0, x.shape, float32)
        return _rounded(folds.total(wide, axes, ufunc), (x.dtype,), node.dtype)

    return make


def _extremum(ufunc: Any) -> Callable[[Node], Form]:
    def make(node: Node) -> Form:
        (x,), (axes, *_) = node.operands, node.attrs
        if node.dtype not in HALVES:
            return folds.extremum(x, axes, ufunc)
        wide = leaf(0, x.shape, float32)
        return _rounded(folds.extremum(wide, axes, ufunc), (x.dtype,), node.dtype)

    return make


def _place(ufunc: Any) -> Callable[[Node], Form]:
    def make(node: Node) -> Form:
        (x,), (axes, *_) = node.operands, node.attrs
        found = folds.place(x, axes, ufunc)
        if found is None:
            return functools.partial(_evaluated, node)
        return _rounded(found, (x.dtype,), node.dtype) if x.dtype in HALVES else found

    return make


def _matmul(node: Node) -> Form:
    if any(o.dtype is not node.dtype for o in node.operands):
        return functools.partial(_evaluated, node)
    if node.dtype not in HALVES:
        return matmul
    if _reads_more(node):
        from . import kernels

        return kernels.product(node)
    widen, narrow = maps.half_cast(node.dtype, float32), maps.half_cast(float32, node.dtype)

    def wide(x: Any) -> Any:  # in the order that it has in memory
        turned = x.swapaxes(-1, -2)
        return widen(turned).swapaxes(-1, -2) if turned.flags.c_contiguous else widen(x)

    def product(a: Any, b: Any) -> Any:
        return narrow(matmul(wide(a), wide(b)))

    return _in_registers(node, product) or product


_MANY_ROWS, _LARGE = 8, 1 << 18
"""The rows of a product with a matrix of halves from which to multiply takes longer than to
convert it, and the elements of a large one."""


def _reads_more(node: Node) -> bool:
    """Whether a product takes longer to convert its matrix than to multiply."""
    a, b = node.operands
    few = 0 < math.prod(a.shape[:-1]) < _MANY_ROWS
    return few and a.rank <= 2 and b.rank == 2 and math.prod(b.shape) >= _LARGE


_MUCH, _PAID = 1 << 24, 1 << 27
"""The terms of the sums of a product from which matrix registers are worth their code, and from
which it takes no longer to compile it than to multiply once without."""


def _in_registers(node: Node, otherwise: Form) -> Form | None:
    """The form of a large product on a processor with registers for matrices of bfloat16, which
    takes a tenth of the time of float32; else None."""
    a, b = node.operands
    work = math.prod(node.shape) * a.shape[-1]
    if a.dtype is not bfloat16 or b.dtype is not bfloat16 or work < _MUCH or not linking.has_code():
        return None
    from ..native import host

    if not (
        "amx_bf16" in host.features() and host.compiles() and host.machine().multiplies_squares
    ):
        return None
    from . import kernels

    return kernels.product(node, otherwise if work < _PAID else None)


def _wide_matmul(node: Node) -> Form:
    form = functools.partial(_evaluated, node)
    return _in_registers(node, form) or form


def _by_numpy(node: Node) -> Form:
    """The reference, whose result has the right dtype already."""
    function, attrs = node.op.numpy, node.attrs
    assert callable(function)
    return lambda *arrays: function(*map(np.asarray, arrays), *attrs)


def _check(node: Node) -> Form:
    return quiet(_by_numpy(node))


def _gather(node: Node) -> Form:
    axis = node.attrs[0]
    return take(axis) if len(node.operands) == 2 else indexed.gather(node) or _by_numpy(node)


def take(axis: int) -> Form:
    """The form of a gather along one axis."""

    @bare
    def take(x: Any, index: Any) -> Any:
        if not are_inside(index, x.shape[axis]):
            raise IndexError("a position is out of range")
        return np.asarray(x.take(index, axis))  # an element that is picked alone is no array

    return take


def _scatter(node: Node) -> Form:
    """Rows added in the order of their positions; other records by the reference."""
    axis, mode = node.attrs
    if mode == "set":
        return indexed.scatter(node) or _by_numpy(node)
    plain = len(node.operands) == 3 and mode == "add"
    if not plain or node.dtype not in (float32, float64) or 0 in node.operands[1].shape:
        return indexed.scatter(node) or functools.partial(_evaluated, node)
    size, depth = node.shape[axis], node.operands[2].rank
    inner = (size, *node.shape[:axis], *node.shape[axis + 1 :])
    rows = (math.prod(node.operands[2].shape), math.prod(inner[1:]))

    def scatter(base: Any, values: Any, index: Any) -> Any:
        at, values = np.ravel(index), values.reshape(rows)
        if not are_inside(at, size):
            raise IndexError("a position is out of range")
        out = np.array(base, order="C").reshape(size, rows[1])
        add_rows(out, values, at)
        return out.reshape(inner)

    def along(base: Any, values: Any, index: Any) -> Any:
        values = np.moveaxis(values, range(axis, axis + depth), range(depth))
        return np.moveaxis(scatter(np.moveaxis(base, axis, 0), values, index), 0, axis)

    return (indexed.scatter(node) or along) if axis else scatter


def _filled(shape: tuple[int, ...], value: Any) -> Any:
    out = np.zeros(shape, value.dtype)
    if value.tobytes().strip(b"\0"):  # zero has no other bits
        out[...] = value
    return out


def _pad(node: Node) -> Form:
    low, _, interior = node.attrs
    shape = tuple(node.shape)
    sizes = node.operands[0].shape
    region = tuple(
        [
            slice(a, a + max((n - 1) * (i + 1) + 1, 0), i + 1)
            for n, a, i in zip(sizes, low, interior, strict=True)
        ]
    )
    if 0 in sizes or min((*low, *node.attrs[1]), default=0) < 0:
        return functools.partial(_evaluated, node)

    def pad(x: Any, value: Any) -> Any:
        out = _filled(shape, value)
        out[region] = x
        return out

    return pad


def _windows(node: Node) -> Form:
    """A view by strides, which NumPy's own function makes in ten times the time."""
    function, attrs = node.op.numpy, node.attrs
    assert callable(function)
    known = np.empty(tuple(node.operands[0].shape), node.dtype.np)
    shape, strides = tuple(node.shape), function(known, *attrs).strides

    def windows(x: Any) -> Any:
        if not x.flags.c_contiguous:
            return function(x, *attrs)
        out = np.ndarray(shape, x.dtype, x, 0, strides)
        out.flags.writeable = False  # windows overlap
        return out

    return windows


def _convolution(node: Node) -> Form:
    found = depthwise.form_of(node)
    if found is not None:
        return found
    if convolutions.has_form(node):
        return convolutions.form_of(node)
    return _converted_convolution(node) or functools.partial(_evaluated, node)


def _converted_convolution(node: Node) -> Form | None:
    """The form of a convolution of halves, or of whole numbers where floats are exact; None for
    others."""
    dtype = node.dtype
    if any(o.dtype is not dtype for o in node.operands):
        return None
    if dtype in HALVES:
        form = _of_floats(node, float32)
        return None if form is None else _rounded(form, (dtype, dtype), dtype)
    if dtype in (complex64, complex128):
        form = _of_floats(node, dtype.to_real())
        return None if form is None else _of_parts(form, dtype)
    single, double = (_of_floats(node, d) for d in (float32, float64))
    is_whole = node.op is ops.conv and dtype.category in (UNSIGNED, SIGNED)
    if not is_whole or single is None or double is None:
        return None
    forms, terms = {float32.np: single, float64.np: double}, math.prod(node.operands[1].shape[1:])

    def multiply(x: Any, w: Any) -> Any:
        return forms[x.dtype](x, w)

    def whole(x: Any, w: Any) -> Any:
        found = exact.product(multiply, x, w, terms)
        return _evaluated(node, x, w) if found is None else found

    return whole


def _of_parts(form: Form, dtype: DType) -> Form:
    """A convolution of complex numbers, by convolutions of their parts."""
    np_dtype = dtype.np

    def convolution(x: Any, w: Any) -> Any:
        (a, b), (c, d) = (
            [np.ascontiguousarray(part) for part in (each.real, each.imag)] for each in (x, w)
        )
        real = form(a, c)
        out = np.empty(real.shape, np_dtype)
        np.subtract(real, form(b, d), out.real)
        np.add(form(a, d), form(b, c), out.imag)
        return out

    return convolution


def _of_floats(node: Node, dtype: DType) -> Form | None:
    """The form of a convolution of operands of this dtype instead; None if there is none."""
    operands = [leaf(i, o.shape, dtype) for i, o in enumerate(node.operands)]
    other = node.op(*operands, *node.attrs)
    if not convolutions.has_form(other):
        return None
    return depthwise.form_of(other) or convolutions.form_of(other)


def _iota(node: Node) -> Form:
    size, np_dtype = node.shape[0], node.dtype.np
    return bare(lambda: np.arange(size, dtype=np_dtype))


def _set_diagonal(node: Node) -> Form:
    offset, a, b = node.attrs
    count, np_dtype = node.operands[1].shape[-1], node.dtype.np
    rows, columns = (slice(n, n + count) for n in (max(-offset, 0), max(offset, 0)))
    last = (node.rank - 2, node.rank - 1)

    def set_diagonal(x: Any, value: Any) -> Any:
        is_one = x.size and not any(x.strides)  # element for all
        out = _filled(x.shape, x.flat[0]) if is_one else np.array(x, np_dtype, order="C")
        square = out if (a, b) == last else np.moveaxis(out, (a, b), (-2, -1))
        square = square[..., rows, columns]
        strides = (*square.strides[:-2], sum(square.strides[-2:]))
        np.lib.stride_tricks.as_strided(square, square.shape[:-1], strides)[...] = value
        return out

    return set_diagonal


def _insertion(node: Node) -> Form:
    lines, values = node.operands
    dtype = lines.dtype
    is_known = dtype in (float32, float64, *HALVES) or dtype.category in (UNSIGNED, SIGNED)
    if dtype is not values.dtype or not is_known:
        return functools.partial(_evaluated, node)
    form = _by_numpy(node)
    return _rounded(form, (dtype, dtype), node.dtype) if dtype in HALVES else form


def _scan(node: Node) -> Form:
    return scans.form_of(node) or functools.partial(_evaluated, node)


def _random_bits(node: Node) -> Form:
    draw, shape = draws.bits(node.op), tuple(node.shape)
    if draw is None:
        return functools.partial(_evaluated, node)
    return lambda seed, offset: draw(seed, offset, shape)


_FORMS: dict[Op, Callable[[Node], Form]] = {
    ops.pad_op: _pad,
    ops.gather: _gather,
    ops.scatter: _scatter,
    ops.check: _check,
    **dict.fromkeys(ops.DRAWS, _random_bits),
    ops.reshape_op: _reshape,
    ops.permute_op: _permute,
    ops.expand_op: _expand,
    ops.slice_op: _slice,
    ops.cat_op: _cat,
    ops.windows_op: _windows,
    ops.iota: _iota,
    set_diagonal: _set_diagonal,
    diagonal: _by_numpy,
    ops.insertion: _insertion,
    ops.sum_op: _fold(np.add),
    ops.prod_op: _fold(np.multiply),
    ops.max_op: _extremum(np.maximum),
    ops.min_op: _extremum(np.minimum),
    ops.any_op: _extremum(np.logical_or),
    ops.all_op: _extremum(np.logical_and),
    ops.argsort_op: sorting.order,
    **dict.fromkeys(scans.FOLDS, _scan),
    ops.argmax: _place(np.maximum),
    ops.argmin: _place(np.minimum),
    ops.matmul: _matmul,
    ops.matmul_wide: _wide_matmul,
    ops.grouped_matmul: _by_numpy,
    ops.grouped_weight_grad: _by_numpy,
    ops.conv: _convolution,
    ops.conv_input_grad: _convolution,
    ops.conv_weight_grad: _convolution,
}
