"""Types of tensors by their shapes, for checkers of graphs. A dimension may be unknown: `Dyn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class _DynType:
    """What nothing is known of."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __repr__(self) -> str:
        return "Dyn"


Dyn = _DynType()


class TensorType:
    """A tensor with these dimensions: numbers or `Dyn`."""

    def __init__(self, dim: Sequence[Any]):
        self.__origin__ = TensorType
        self.__args__ = dim

    @property
    def dims(self) -> Sequence[Any]:
        return self.__args__

    @staticmethod
    def __class_getitem__(dim: Any) -> TensorType:
        return TensorType(dim if isinstance(dim, tuple) else (dim,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"


def _pairs(t1: Any, t2: Any) -> Any:
    """The dimensions of two types at the same places; None if they aren't of the same rank."""
    if not (isinstance(t1, TensorType) and isinstance(t2, TensorType)):
        return None
    if len(t1.__args__) != len(t2.__args__):
        return None
    return zip(t1.__args__, t2.__args__, strict=True)


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether types are the same where both are known."""
    if t1 == t2 or Dyn in (t1, t2):
        return True
    pairs = _pairs(t1, t2)
    return pairs is not None and all(is_consistent(a, b) for a, b in pairs)


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether the first type is the second with more that is known, or the same."""
    if t1 == t2 or t2 == Dyn:
        return True
    pairs = _pairs(t1, t2)
    return pairs is not None and all(is_more_precise(a, b) for a, b in pairs)
