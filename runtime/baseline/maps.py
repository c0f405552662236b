"""Maps: native kernels of single elementwise ops, for arrays of any size.

They are emitted as for any graph, so they have the bits of fused kernels. NumPy's own functions are
taken where they have these bits too: wherever the result is exact or rounded to nearest.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.target import LLVM
from tilewright.ir import ops
from tilewright.ir.dtype import (
    COMPLEX,
    FLOAT,
    HALVES,
    DType,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.ops.activation import GRADS
from tilewright.ir.ops.generate import leaf
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size

from . import copies, linking
from .quiet import quietly

if TYPE_CHECKING:
    from tilewright.codegen.llvm.machine import Machine

    from ..native.calls import Flat
    from ..native.pack import Layout

MANY = 1 << 20
"""The size for which a kernel is emitted: the code is the same for all that fill some vectors."""

_ZEROS = (ops.maximum, ops.minimum, ops.relu)
"""Ops in which the sign of a zero depends on the function that computes them."""


_ROUNDED_ONCE = (ops.add, ops.sub)
"""Ops on complex numbers that round each part once. NumPy's product contracts its sums where the
processor can, and so do its quotient and all functions in their way."""


_SLOW = (ops.sign, ops.fmod, ops.copysign)
"""Ops of floats that NumPy computes number by number, with the same bits."""


def is_native(op: Op) -> bool:
    """Whether NumPy's results of an elementwise op of floats have other bits than a kernel's."""
    return op.error > 0.5 or op in _ZEROS


def is_native_complex(op: Op) -> bool:
    """The same for an op of complex numbers."""
    return op.complex and op.error > 0 and not op.params and op not in _ROUNDED_ONCE


def native(op: Op, dtypes: Sequence[DType], dtype: DType) -> Callable[..., Any] | None:
    """The kernel of an op as a function of arrays; None if NumPy computes it."""
    kinds = {d.category for d in (*dtypes, dtype)}
    if COMPLEX in kinds:
        if not is_native_complex(op) or dtype.category != COMPLEX:
            return None
    elif not (is_native(op) or op in _SLOW) or FLOAT not in kinds:
        return None
    kernel = compiled(_name(op, dtypes), lambda: _alone(op, dtypes))
    return None if kernel is None else _function(kernel, len(dtypes), dtype)


@functools.cache
def composite(
    op: Op, attrs: tuple[Any, ...], dtypes: tuple[DType, ...], dtype: DType
) -> Callable[..., Any] | None:
    """The pack's kernel of a pointwise composite, from operands of `dtypes` and of one shape to
    `dtype`; None if it isn't there."""
    name = _name(op, dtypes, attrs)
    if not linking.has_code() or not _is_packed(name):
        return None
    kernel = compiled(name, lambda: _alone(op, dtypes, attrs))
    return None if kernel is None else _function(kernel, len(dtypes), dtype)


@functools.cache
def half_cast(source: DType, target: DType) -> Callable[[Any], Any]:
    """The conversion between float32 and a half type. NumPy converts float16 number by number."""
    np_dtype = target.np
    name = _name(ops.cast, (source,), (target,))
    kernel = None
    if linking.has_code() and _is_packed(name):
        kernel = compiled(name, lambda: _alone(ops.cast, (source,), (target,)))
    if kernel is None:
        return lambda x: x.astype(np_dtype)
    native = _function(kernel, 1, target)
    return lambda x: native(x) if x.size >= _FEW else x.astype(np_dtype)


def converter(source: DType, target: DType) -> Callable[[Any], Any]:
    """What converts between numbers and wider ones, and takes the bits between others of a size."""
    if source is target:
        return lambda x: x
    if source in HALVES or target in HALVES:
        return half_cast(source, target)
    np_dtype = target.np
    if source.itemsize == target.itemsize:
        return lambda x: x.view(np_dtype)
    return lambda x: x.astype(np_dtype)


@functools.cache
def tile(op: Op, attrs: tuple[Any, ...], dtypes: tuple[DType, ...], dtype: DType) -> Flat | None:
    """The pack's kernel of an op, for a chain; None if it isn't there."""
    if not linking.has_code():
        return None
    if op is ops.where:
        name = _choice_name(dtype, False, False)
    elif op in (ops.cast, ops.widened):
        name = _name(ops.cast, dtypes, (dtype,))
    else:
        name = _name(op, dtypes, attrs)
    return compiled(name, lambda: _alone(op, dtypes, attrs)) if _is_packed(name) else None


@functools.cache
def making(
    op: Op,
    attrs: tuple[Any, ...],
    dtypes: tuple[DType, ...],
    dtype: DType,
    form: Callable[..., Any],
) -> Callable[..., Any]:
    """The pack's kernel of an op as a function that costs less to call than `form`, where the
    operands are small and lie in order; `form` itself if there is no kernel. NumPy doesn't warn of
    it."""
    kernel = tile(op, attrs, dtypes, dtype)
    if kernel is None:
        return form
    from ..native import calls

    def usual(*arrays: Any) -> Any:
        return quietly(form, *arrays)

    made: Callable[..., Any] = calls.making(kernel, [d.np for d in dtypes], dtype.np, usual)
    return made


@functools.lru_cache(64)
def rows(op: Op, dtypes: tuple[DType, ...], size: int) -> Any:
    """The pack's kernel of an op over rows of `size` elements, as a function of (buffers, walk,
    count); None if it isn't there. See `runtime/native/calls.py`."""
    from ..native import calls

    ready = linking.packed(_name(op, dtypes))
    return None if ready is None else calls.rows(*ready, size, 1, len(dtypes))


@functools.cache
def choice_by(op: Op, dtype: DType) -> Flat | None:
    """The pack's kernel of where(op(..), c, d) over the operands of `op`, c and d, all of `dtype`,
    for a chain; None if it isn't there."""
    if op not in _DECIDING or dtype not in (float32, float64) or not linking.has_code():
        return None
    name = _choice_by_name(op, dtype)
    return compiled(name, lambda: _choice_by(op, dtype)) if _is_packed(name) else None


def _choice_by_name(op: Op, dtype: DType) -> str:
    return f"where {op.name} {dtype.name}"


def _choice_by(op: Op, dtype: DType) -> Graph:
    arity = 1 if op is ops.isnan else 2
    leaves = [leaf(i, Size((MANY,)), dtype) for i in range(arity + 2)]
    return (ops.where(op(*leaves[:arity]), *leaves[arity:]),), leaves


def _is_packed(name: str) -> bool:
    from ..native import pack

    return pack.layout(name) is not None


def _function(kernel: Flat, arity: int, dtype: DType) -> Callable[..., Any]:
    """A kernel as a function of arrays."""
    np_dtype, empty, order = dtype.np, np.empty, kernel.order

    if arity == 1:

        def unary(x: Any) -> Any:
            x = copies.in_order(x)
            out = empty(x.shape, np_dtype)
            if x.size:
                kernel((out, x), x.size)
            return out

        return unary

    def several(*arrays: Any) -> Any:
        shape = arrays[0].shape
        if shape and all([a.shape == shape and a.flags.c_contiguous for a in arrays]):
            out = empty(shape, np_dtype)
            if out.size:
                kernel((out, *[arrays[i] for i in order]), out.size)
            return out
        if max([a.size for a in arrays]) > _BLOCK and not all([a.shape for a in arrays]):
            return _by_blocks(kernel, arrays, np_dtype)
        spread = _spread(arrays)
        out = empty(spread[0].shape, np_dtype)
        if out.size:
            kernel((out, *[copies.in_order(spread[i]) for i in order]), out.size)
        return out

    return several


def _spread(arrays: Sequence[Any]) -> Sequence[Any]:
    """`arrays` broadcast to one shape. Numbers beside an array are written out, which takes a tenth
    of the time of NumPy's function."""
    first = max(arrays, key=_rank)
    if not first.shape or any([a.shape and a.shape != first.shape for a in arrays]):
        return np.broadcast_arrays(*arrays)
    return [a if a.shape else np.full(first.shape, a, a.dtype) for a in arrays]


def _by_blocks(kernel: Flat, arrays: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """What a kernel makes of large arrays and numbers. These are written out for a block alone."""
    from ..native.pool import num_threads

    block = _BLOCK if num_threads() == 1 else _BLOCK << 4  # which threads share
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    given, steps = [], []
    for a in arrays:
        whole = (
            copies.in_order(np.broadcast_to(a, shape)) if a.shape else np.full(block, a, a.dtype)
        )
        given.append(whole.reshape(-1))
        steps.append(block if a.shape else 0)
    out = np.empty(shape, dtype)
    flat, order = out.reshape(-1), kernel.order
    for start in range(0, out.size, block):
        size = min(block, out.size - start)
        parts = [a[start if step else 0 :] for a, step in zip(given, steps)]
        kernel((flat[start:], *[parts[i] for i in order]), size)
    return out


_BLOCK = 1 << 14
"""Elements for which numbers are written out beside an array: they stay in the nearest cache."""

_rank = operator.attrgetter("ndim")


_BITS = {1: uint8, 2: int16, 4: int32, 8: int64}
"""The dtypes as which elements of other ones are chosen, by bytes."""


@functools.cache
def where(dtype: DType) -> Callable[..., Any]:
    """where(condition, a, b). NumPy's jumps at each element, so it is slow where the condition
    follows no pattern."""
    has_numbers = dtype in (float32, float64)
    bits = dtype if has_numbers else _BITS.get(dtype.itemsize)
    if bits is None or not linking.has_code():
        return np.where
    np_dtype, as_bits, empty = dtype.np, bits.np, np.empty

    def where(condition: Any, *arrays: Any) -> Any:
        shape = condition.shape
        if any([a.shape and a.shape != shape for a in arrays]):
            if _chooses_first(condition, *arrays):
                return np.array(arrays[0], order="C")
            if _is_few(condition, *arrays):
                return np.where(condition, *arrays)
            shape = np.broadcast_shapes(shape, *[a.shape for a in arrays])
            condition = np.broadcast_to(condition, shape)
            arrays = tuple([np.broadcast_to(a, shape) if a.shape else a for a in arrays])
        if condition.size < _FEW:
            return np.where(condition, *arrays)
        kinds = tuple([not any(a.strides) for a in arrays])
        kernel = _chooser(bits, *(kinds if has_numbers else (False, False)))
        if kernel is None:
            return np.where(condition, *arrays)
        numbers, given = [], [copies.in_order(condition)]
        for a, is_number in zip(arrays, kinds):
            if not is_number:
                given.append(copies.in_order(a).view(as_bits))
            elif has_numbers:
                numbers.append(a.item(0))
            else:
                given.append(np.full(shape, a.view(as_bits).item(0), as_bits))
        out = empty(shape, as_bits)
        kernel((out, *[given[i] for i in kernel.order]), out.size, numbers)
        return out if has_numbers else out.view(np_dtype)

    return where


def _chooses_first(condition: Any, a: Any, b: Any) -> bool:
    """Whether all of `a` is chosen before a number, by conditions of many elements each, which are
    cheap to look at: such as whether the matrix had a result of which the elements are."""
    return (
        not b.ndim
        and condition.size * _PER_CONDITION <= a.size
        and condition.ndim == a.ndim
        and all([n in (1, own) for n, own in zip(condition.shape, a.shape)])
        and bool(condition.all())
    )


_PER_CONDITION = 8


def _is_few(*operands: Any) -> bool:
    """Whether operands of different shapes surely have few elements together."""
    widest = max(operands, key=_size)
    if widest.size >= _FEW:
        return False
    if math.prod([each.size for each in operands]) < _FEW:
        return True
    fit = [
        each.ndim <= widest.ndim
        and all([n in (1, own) for n, own in zip(each.shape[::-1], widest.shape[::-1])])
        for each in operands
    ]
    return all(fit)


_size = operator.attrgetter("size")
_FEW = 2048
"""Elements up to which NumPy chooses and converts as fast."""

_KINDS = tuple(itertools.product((False, True), repeat=2))
"""Whether either operand of `where` is one number."""


@functools.cache
def _chooser(dtype: DType, *kinds: bool) -> Flat | None:
    return compiled(_choice_name(dtype, *kinds), _choice(dtype, *kinds))


def _choice_name(dtype: DType, *kinds: bool) -> str:
    return " ".join(["where", *["number" if each else dtype.name for each in kinds], dtype.name])


def _choice(dtype: DType, *kinds: bool) -> Callable[[], Graph]:
    def graph() -> Graph:
        shape = Size((MANY,))
        leaves, values, numbers = [leaf(0, shape, bool_)], [], itertools.count()
        for is_number in kinds:
            if is_number:
                values.append(ops.expand(ops.scalar(next(numbers), dtype), shape))
            else:
                leaves.append(leaf(len(leaves), shape, dtype))
                values.append(leaves[-1])
        return (ops.where(leaves[0], *values),), leaves

    return graph


Graph = tuple[Sequence[Node | None], Sequence[Node]]
"""The roots and the leaves of a kernel's graph. None: a result that no kernel computes."""


def _name(op: Op, dtypes: Sequence[DType], attrs: Sequence[Any] = ()) -> str:
    return " ".join([op.name, *map(repr, attrs), *[d.name for d in dtypes]])


def _alone(op: Op, dtypes: Sequence[DType], attrs: Sequence[Any] = ()) -> Graph:
    leaves = [leaf(i, Size((MANY,)), d) for i, d in enumerate(dtypes)]
    return (op(*leaves, *attrs),), leaves


_ACTIVATIONS: tuple[tuple[Any, ...], ...] = (
    (ops.gelu, "none"),
    (ops.gelu, "tanh"),
    (ops.silu,),
    (ops.mish,),
    (ops.softplus, 1.0, 20.0),
    (ops.logsigmoid,),
    (ops.elu, 1.0),
    (ops.celu, 1.0),
    (ops.selu,),
    (ops.softsign,),
    (ops.tanhshrink,),
    (ops.leaky_relu, 0.01),
    (ops.hardshrink, 0.5),
    (ops.softshrink, 0.5),
    (ops.hardtanh, -1.0, 1.0),
    (ops.relu6,),
    (ops.hardsigmoid,),
    (ops.hardswish,),
)
"""The activations, with their attrs, that are in the pack together with their gradients."""


_SIMPLE = (
    ops.neg, ops.abs, ops.sign, ops.floor, ops.ceil, ops.round, ops.trunc, ops.sqrt, ops.root,
    ops.reciprocal, ops.isnan, ops.isinf, ops.isfinite, ops.add, ops.sub, ops.mul, ops.div,
    ops.fmod, ops.copysign, ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge,
)  # fmt: skip
"""Ops on floats that are in the pack for chains, beside those whose bits need a kernel."""

_WHOLE = (ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum)
_COMPARED = (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge)
"""The same for whole numbers."""

_DECIDING = (*_COMPARED, ops.isnan)
"""Ops on floats that make one kernel with a choice that they decide: a mask of bytes between two
kernels takes longer to write and to read than either of them."""

_LOGICAL = (ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.logical_not)

_BITWISE = (
    ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.bitwise_not, ops.shift_left,
    ops.shift_right,
)  # fmt: skip
"""The same for the bits of whole numbers."""

_SHIFTED = (uint32, uint64)
"""Random bits, whose upper ones are read."""

_SPECIAL = (
    ops.i1e, ops.j0, ops.j1, ops.y0, ops.y1, ops.log_ndtr, ops.ndtri, ops.trigamma_above,
    ops.turn,
)  # fmt: skip
"""Functions of many primitives, in float32: those that take longest as chains."""

_CASTS = (
    (uint64, uint32), (uint32, float32),
    (bool_, float32), (bool_, float64), (bool_, int64), (bool_, int32), (int32, int64),
    (int64, int32), (int64, float32), (int64, float64), (int32, float32), (float32, float64),
    (float64, float32), (float32, int64), (float64, int64), (float32, bool_),
)  # fmt: skip


def _simple() -> Iterator[tuple[str, Graph]]:
    """Kernels of one instruction or few."""
    for of, dtypes in (
        (_SIMPLE, (float32, float64)),
        (_WHOLE, (int64, int32)),
        (_COMPARED, (int64,)),
        ((*_LOGICAL, ops.eq, ops.ne), (bool_,)),
        (_BITWISE, (int64, int32)),
        ((ops.shift_right,), _SHIFTED),
        (_SPECIAL, (float32,)),
    ):
        for op, dtype in itertools.product(of, dtypes):
            operands = (dtype,) * (2 if "{1}" in str(op.numpy) else 1)
            yield _name(op, operands), _alone(op, operands)
    for source, target in _CASTS:
        yield _name(ops.cast, (source,), (target,)), _alone(ops.cast, (source,), (target,))
    for dtype in (*_BITS.values(), bool_):
        yield _choice_name(dtype, False, False), _choice(dtype, False, False)()


def compiled(name: str, graph: Callable[[], Graph]) -> Flat | None:
    """A kernel from the pack, or compiled now; None if the engine of the CPU computes it by
    NumPy."""
    if not linking.has_code():
        return None
    from ..native import host, jit
    from ..native.calls import Flat

    ready = linking.packed(name)
    if ready is not None:
        return Flat(*ready)
    if not host.compiles():
        return None
    found = emitted(*graph(), host.machine())
    if found is None:
        return None
    layout, code = found
    return Flat(layout, jit.link(code, "kernel"))


def emitted(
    roots: Sequence[Node | None], leaves: Sequence[Node], machine: Machine
) -> tuple[Layout, str] | None:
    """The layout and the LLVM IR of a kernel; None if there is no native code for it."""
    from tilewright.codegen.kernel import Kernel
    from tilewright.codegen.llvm import CannotLower, emit
    from tilewright.codegen.program import compile_graph

    from ..native import launch

    computed = {i: root for i, root in enumerate(roots) if root is not None}
    program = compile_graph(lower_graph([*computed.values()]), LLVM)
    (step,) = program.steps
    assert isinstance(step.kernel, Kernel)
    places = {program.leaves.get(each): i for i, each in enumerate(leaves)}
    order = [places[slot] for slot in step.inputs]
    numbers = dict(zip(program.results, computed, strict=True))
    results = [numbers[slot] for slot in step.outputs]
    try:
        made = emit(step.kernel, machine)
        return launch.layout_of(step.kernel, made, MANY, order, results), made.code
    except CannotLower:
        return None


def all_graphs() -> list[tuple[str, Graph]]:
    """(name, graph) of every kernel, for the pack."""
    graphs: list[tuple[str, Graph]] = []
    for op in REGISTRY.values():
        if op.kind is Kind.ELEMENTWISE and is_native(op) and not op.params:
            for dtype in (float32, float64):
                dtypes = (dtype,) * (2 if "{1}" in str(op.numpy) else 1)
                graphs.append((_name(op, dtypes), _alone(op, dtypes)))
        if op.kind is Kind.ELEMENTWISE and is_native_complex(op):
            for dtype in (complex64, complex128):
                dtypes = (dtype,) * (2 if "{1}" in str(op.numpy) else 1)
                graphs.append((_name(op, dtypes), _alone(op, dtypes)))
    for half in HALVES:
        for source, target in ((half, float32), (float32, half)):
            name = _name(ops.cast, (source,), (target,))
            graphs.append((name, _alone(ops.cast, (source,), (target,))))
    for dtype in (complex64, complex128):
        graphs.append((_name(ops.modulus, (dtype,)), _alone(ops.modulus, (dtype,))))
    for dtype in (float32, float64):
        for activation, *attrs in _ACTIVATIONS:
            grad = GRADS.get(activation)
            for each, arity in [(activation, 1), *([] if grad is None else [(grad, 2)])]:
                dtypes = (dtype,) * arity
                graphs.append((_name(each, dtypes, attrs), _alone(each, dtypes, attrs)))
        for kinds in _KINDS:
            graphs.append((_choice_name(dtype, *kinds), _choice(dtype, *kinds)()))
        for op in _DECIDING:
            graphs.append((_choice_by_name(op, dtype), _choice_by(op, dtype)))
    graphs += _simple()
    return graphs
