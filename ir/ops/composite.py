"""Records of composites: functions over primitives, recorded as one node.

`composite` adds to a record what all of them share: operands of a half type are computed in float32
and the result is rounded once; cotangents come back in the shape and dtype of their operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtype import FLOAT, NARROW, DType, accumulator, complex32
from ..node import Node
from ..op import Aval, Kind, Op, not_implemented
from .movement import sum_to
from .unary import cast, widened


def as_dtype(x: Node, dtype: DType) -> Node:
    """`x` in `dtype`. A widened half gives back the half."""
    if x.dtype is dtype:
        return x
    if x.op is widened and x.operands[0].dtype is dtype:
        return x.operands[0]
    return cast(x, dtype)


def to_accumulator(x: Node) -> Node:
    """`x` in the dtype in which it is summed."""
    return as_dtype(x, accumulator(x.dtype))


def widen(x: Any) -> Any:
    """A node of a half type in float32, of complex32 in complex64; anything else as it is."""
    narrow = isinstance(x, Node) and (x.dtype in NARROW or x.dtype is complex32)
    return widened(x) if narrow else x


def require_float(name: str, *operands: Node) -> None:
    """NotImplementedError unless every operand is of a floating point dtype."""
    for x in operands:
        if x.dtype.category < FLOAT:
            raise not_implemented(name, x.dtype, "expected floating point tensors")


def like_first(name: str) -> Callable[..., Aval]:
    """The rule of a float function that keeps the shape and dtype of its first operand."""

    def infer(x: Node, *_: Any) -> Aval:
        require_float(name, x)
        return x.shape, x.dtype

    return infer


def composite(
    name: str,
    infer: Callable[..., Aval],
    decompose: Callable[..., Node],
    *,
    vjp: Callable[..., tuple[Node | None, ...]] | None = None,
    **more: Any,
) -> Op:
    """The record of a composite. `decompose` and `vjp` see half types as float32."""

    def rounded(*args: Any) -> Node:
        _, dtype = infer(*args)
        return as_dtype(decompose(*map(widen, args)), dtype)

    def rounded_vjp(g: Node, out: Node, *args: Any) -> tuple[Node | None, ...]:
        assert vjp is not None
        parts = vjp(widen(g), widen(out), *map(widen, args))
        return tuple(
            None if part is None else as_dtype(sum_to(part, operand.shape), operand.dtype)
            for part, operand in zip(parts, args, strict=False)
        )

    return Op(
        name,
        Kind.COMPOSITE,
        infer,
        vjp=None if vjp is None else rounded_vjp,
        decompose=rounded,
        **more,
    )
