"""Draws: random numbers of one distribution by one kernel, for any sizes.

The kernels are emitted from the functions of `ir/ops/random.py`, so they have the bits that these
have in a plan. A form takes (seed, offset, shape, dtype), and what the distribution depends on. It
gives None where no kernel computes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import SIGNED, UNSIGNED, DType, float32, float64, int64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.generate import leaf
from tilewright.ir.shape import Size

from . import copies, maps, scans, sorting
from .maps import MANY, Graph

if TYPE_CHECKING:
    from ..native.calls import Flat

Shape = tuple[int, ...]


def uniform(
    seed: int, offset: int, shape: Shape, dtype: DType, low: float = 0.0, high: float = 1.0
) -> Any:
    """Uniform in [low, high)."""
    kernel = _kernel("uniform", dtype)
    if kernel is None:
        return None
    made = _filled(kernel, seed, offset, shape, dtype)
    if (low, high) != (0.0, 1.0):
        made *= high - low
        made += low
    return made


def normal(seed: int, offset: int, shape: Shape, dtype: DType) -> Any:
    """Standard normal."""
    kernel = _kernel("normal", dtype)
    return None if kernel is None else _filled(kernel, seed, offset, shape, dtype)


def scaled_normal(seed: int, offset: int, shape: Shape, dtype: DType, mean: Any, std: Any) -> Any:
    """Normal of these means and standard deviations: numbers, or arrays of the dtype that
    broadcast."""
    made = normal(seed, offset, shape, dtype)
    if made is not None:
        made *= std
        made += mean
    return made


def integers(seed: int, offset: int, shape: Shape, dtype: DType, low: int, high: int) -> Any:
    """Uniform integers in [low, high)."""
    kernel = _kernel("integers", int64)
    if kernel is None or high - low > 1 << 31 or not _is_integer(dtype):
        return None
    made = _filled(kernel, seed, offset, shape, int64, high - low, low)
    return made if dtype is int64 else made.astype(dtype.np)


def permutation(seed: int, offset: int, shape: Shape, dtype: DType) -> Any:
    """The numbers below the size of a vector, in any order."""
    draw = bits(ops.random_bits)
    if draw is None or not _is_integer(dtype):
        return None
    made = sorting.positions(draw(seed, offset, shape), False)
    return made if dtype is int64 else made.astype(dtype.np)


def trials(seed: int, offset: int, shape: Shape, dtype: DType, p: Any, of: DType = float32) -> Any:
    """1 with the probability p, else 0. p: an array of the dtype `of`."""
    kernel = _kernel("uniform", of)
    if kernel is None or not (dtype in (float32, float64) or _is_integer(dtype)):
        return None
    return (_filled(kernel, seed, offset, shape, of) < p).astype(dtype.np)


def classes(
    seed: int,
    offset: int,
    shape: Shape,
    _: DType,
    weights: Any,
    of: DType,
    replacement: bool,
) -> Any:
    """Positions in rows of weights, an array of the dtype `of`, as those of `_multinomial` in
    `frontend/functions/sampling.py`. No row is empty, and each has a weight that isn't zero."""
    kernel = _kernel("uniform" if replacement else "clocks", of)
    if kernel is None:
        return None
    if replacement:
        return _with_replacement(kernel, seed, offset, shape, weights, of)
    clocks = np.empty(weights.shape, of.np)
    kernel((clocks, copies.in_order(weights)), clocks.size, (seed, offset))
    if shape[-1] == 1:
        return clocks.argmin(-1, keepdims=True)
    return np.ascontiguousarray(sorting.first(clocks, shape[-1], False))


def _with_replacement(
    kernel: Flat, seed: int, offset: int, shape: Shape, weights: Any, of: DType
) -> Any:
    sums = scans.sums(weights, of)
    if sums is None or sums.size * shape[-1] > _MOST:
        return None
    total = sums[..., -1:]
    bounds = _filled(kernel, seed, offset, shape, of)
    bounds *= total
    if sums.ndim == 1:
        found = np.searchsorted(sums, bounds, "right")
        last = np.searchsorted(sums, total, "left")
    else:
        found = (sums[:, None] <= bounds[..., None]).sum(-1)
        last = (sums < total).sum(-1, keepdims=True)
    return np.minimum(found, last)


_MOST = 1 << 16
"""Comparisons up to which bounds are compared with all sums of their row."""


def _is_integer(dtype: DType) -> bool:
    return dtype.category in (SIGNED, UNSIGNED)


def _filled(kernel: Flat, seed: int, offset: int, shape: Shape, dtype: DType, *numbers: int) -> Any:
    out = np.empty(shape, dtype.np)
    if out.size:
        kernel((out,), out.size, (seed, offset, *numbers))
    return out


@functools.cache
def bits(op: Op) -> Callable[[int, int, Shape], Any] | None:
    """One of `ops.DRAWS`; None if NumPy computes it."""
    kernel = maps.compiled(op.name, functools.partial(_bits, op))
    (drawn,), _ = _bits(op)
    dtype = drawn.dtype  # type: ignore[union-attr]
    if kernel is None:
        return None
    return lambda seed, offset, shape: _filled(kernel, seed, offset, shape, dtype)


# ---- kernels ---------------------------------------------------------------------------------


_SIZE = Size((MANY,))


def _integers(seed: Node, offset: Node) -> Node:
    """`ops.randint` of a range and a lowest number that are given at the call."""
    span, low = (ops.expand(ops.scalar(slot, int64), _SIZE) for slot in (2, 3))
    word = ops.cast(ops.random_bits(seed, offset, _SIZE), int64)
    return ops.shift_right(word * span, ops.full_like(word, 32)) + low


def _clocks(seed: Node, offset: Node, weights: Node) -> Node:
    """Exponential clocks of these rates, as in `_multinomial`."""
    ring = -ops.log1p(-ops.uniform(seed, offset, _SIZE, weights.dtype)) / weights
    return ops.where(weights > 0, ring, ops.full_like(weights, math.inf))


_KERNELS: dict[tuple[str, DType], Callable[..., Node]] = {
    ("uniform", float32): lambda seed, offset: ops.uniform(seed, offset, _SIZE, float32),
    ("uniform", float64): lambda seed, offset: ops.uniform(seed, offset, _SIZE, float64),
    ("normal", float32): lambda seed, offset: ops.normal(seed, offset, _SIZE, float32),
    ("integers", int64): _integers,
    ("clocks", float32): _clocks,
    ("clocks", float64): _clocks,
}
"""What they compute of a seed and an offset, and of an array."""


@functools.cache
def _kernel(name: str, dtype: DType) -> Flat | None:
    if (name, dtype) not in _KERNELS:
        return None
    return maps.compiled(_name(name, dtype), lambda: _graph(name, dtype))


def _name(name: str, dtype: DType) -> str:
    return f"{name} {dtype.name}"


def _graph(name: str, dtype: DType) -> Graph:
    build = _KERNELS[name, dtype]
    given = [leaf(0, _SIZE, dtype)] if build is _clocks else []
    return (build(*_seeds(), *given),), given


def _bits(op: Op) -> Graph:
    return (op(*_seeds(), _SIZE),), ()


def _seeds() -> tuple[Node, Node]:
    return ops.scalar(0, int64), ops.scalar(1, int64)


def all_graphs() -> list[tuple[str, Graph]]:
    """(name, graph) of every kernel, for the pack."""
    graphs: list[tuple[str, Graph]] = [(op.name, _bits(op)) for op in ops.DRAWS]
    return graphs + [(_name(*each), _graph(*each)) for each in _KERNELS]
