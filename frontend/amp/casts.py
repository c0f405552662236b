"""Autocast's casts of the operands of a call, as its builder's declaration says.

https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording.builders import Cast, facts, name_of

# The kinds of devices, each with the kind that declarations name for it.
KINDS = {"cpu": "cpu", "cuda": "cuda", "interpret": "cuda"}


@dataclass(frozen=True)
class Casts:
    """The mode of a thread: the dtypes of autocast, by kind of device. A kind where autocast is off
    has none."""

    dtypes: tuple[tuple[str, DType], ...]

    def dtype(self, kind: str) -> DType | None:
        return dict(self.dtypes).get(kind)

    def __call__(self, build: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        """The arguments of a call, with nodes cast as the builder's declaration says."""
        lower = self.dtype(kind := _kind(args))
        cast = None if lower is None else cast_of(build, kind)
        if lower is None or cast in (None, Cast.LOWER_BEFORE):
            return list(args)
        found = [a.dtype for a in args if is_cast(a)]
        if cast is Cast.REFUSED:
            raise RuntimeError(
                f"{name_of(build)}: binary_cross_entropy and BCELoss are unsafe to autocast. Give "
                "scores instead of probabilities to binary_cross_entropy_with_logits or "
                f"BCEWithLogitsLoss, which are safe{at_user_line()}"
            )
        if not found:
            return list(args)
        if cast is Cast.LOWER:
            target = lower
        elif cast is Cast.FLOAT32:
            target = dtypes.float32
        elif cast is Cast.FIRST:
            target = found[0]
        elif all(d is found[0] for d in found):
            return list(args)
        else:
            target = dtypes.float32 if dtypes.float32 in found else lower
        return [to(a, target) if is_cast(a) else a for a in args]

    def lowered(self, build: Callable[..., Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The tensors for a builder, cast if its declaration says so."""
        kind = tensors[0].device.type
        lower, cast = self.dtype(kind), cast_of(build, kind)
        if lower is None or cast not in (Cast.LOWER_BEFORE, Cast.FLOAT32):
            return tuple(tensors)
        dtype = dtypes.float32 if cast is Cast.FLOAT32 else lower
        return tuple(t.to(dtype) if is_cast(t) else t for t in tensors)


def cast_of(build: Callable[..., Any], kind: str) -> Cast | None:
    """The cast that autocast applies to calls of a builder on a kind of device."""
    known = facts(build)
    return None if known is None else known.casts.get(KINDS[kind])


def _kind(args: Sequence[Any]) -> str:
    device = next((a.device for a in args if isinstance(a, Node) and a.device), None)
    return "cpu" if device is None else device.partition(":")[0]


def is_cast(a: Any) -> bool:
    """Whether autocast may cast an argument: only nodes and tensors of floats, except float64."""
    dtype = getattr(a, "dtype", None)
    return isinstance(dtype, DType) and dtype.is_floating_point and dtype is not dtypes.float64
