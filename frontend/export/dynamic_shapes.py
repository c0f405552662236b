"""Sizes that may differ: dimensions with names and ranges, and hints."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..recording import Handle
from ..utils._pytree import keystr, tree_flatten_with_path, tree_map_with_path

__all__ = [
    "AdditionalInputs",
    "Constraint",
    "Dim",
    "ShapesCollection",
    "dims",
]

UNBOUNDED = 2**63 - 1


class _Hint(enum.Enum):
    AUTO = enum.auto()
    STATIC = enum.auto()
    DYNAMIC = enum.auto()


@dataclass(frozen=True)
class DimHint:
    """AUTO: dynamic if that is possible. DYNAMIC: dynamic, or an error. STATIC: one size."""

    type: _Hint
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        if self.type is _Hint.STATIC and (min is not None or max is not None):
            raise AssertionError("Dim.STATIC has no range")
        return DimHint(self.type, min, max)

    def __repr__(self) -> str:
        parts = [self.type.name]
        parts += [f"min={self.min}"] if self.min is not None else []
        parts += [f"max={self.max}"] if self.max is not None else []
        return f"DimHint({', '.join(parts)})"


class Dim:
    """A size with a name: equal wherever it is used. 2 * dim + 1 is a size too.

    min, max: the range, both included.
    """

    AUTO: ClassVar[DimHint] = DimHint(_Hint.AUTO)
    DYNAMIC: ClassVar[DimHint] = DimHint(_Hint.DYNAMIC)
    STATIC: ClassVar[DimHint] = DimHint(_Hint.STATIC)

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None):
        low, high = 0 if min is None else min, UNBOUNDED if max is None else max
        if high < low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, low, high

    @property
    def root(self) -> Dim:
        return self

    def of(self, size: int) -> int:
        """This size where its root has `size`."""
        return size

    def back(self, size: int) -> int:
        """The root's size where this one has `size`."""
        return size

    def _linear(self, factor: int, offset: int) -> Dim:
        return Derived(self, factor, offset)

    def __add__(self, other: Any) -> Dim:
        return self._linear(1, _integer("add", other, self, "an integer"))

    def __sub__(self, other: Any) -> Dim:
        return self._linear(1, -_integer("subtract", other, self, "an integer"))

    def __mul__(self, other: Any) -> Dim:
        return self._linear(_integer("multiply", other, self, "a positive integer"), 0)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Dim:
        raise NotImplementedError(
            f"Attempted to negate {self.__name__}. (Only increasing linear operations with integer "
            "coefficients are supported.)"
        )

    def __repr__(self) -> str:
        text = [repr(self.__name__)]
        if self.min != 2:
            text.append(f"min={self.min}")
        if self.max != UNBOUNDED:
            text.append(f"max={self.max}")
        return f"Dim({', '.join(text)})"


def _integer(verb: str, value: Any, dim: Dim, wanted: str) -> int:
    if type(value) is not int or (verb == "multiply" and value <= 0):
        where = {"add": "to", "subtract": "from", "multiply": "with"}[verb]
        raise NotImplementedError(
            f"Attempted to {verb} {value} {where} {dim.__name__}, where {wanted} was expected. "
            "(Only increasing linear operations with integer coefficients are supported.)"
        )
    return value


class Derived(Dim):
    """factor * root + offset."""

    def __init__(self, inner: Dim, factor: int, offset: int):
        known = inner.of(1) - inner.of(0), inner.of(0)
        self.factor: int = known[0] * factor
        self.offset: int = known[1] * factor + offset
        self._root = inner.root
        root = self._root
        self.min = self.of(root.min)
        self.max = UNBOUNDED if root.max == UNBOUNDED else self.of(root.max)
        name = root.__name__ if self.factor == 1 else f"{self.factor}*{root.__name__}"
        if self.offset:
            name += f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}"
        self.__name__ = name

    @property
    def root(self) -> Dim:
        return self._root

    def of(self, size: int) -> int:
        return self.factor * size + self.offset

    def back(self, size: int) -> int:
        root, rest = divmod(size - self.offset, self.factor)
        if rest:
            raise ValueError(f"no integer makes {self.__name__} {size}")
        return root

    def __repr__(self) -> str:
        return self.__name__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several dimensions with the same range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclass(frozen=True)
class Constraint:
    """A dimension of a tensor with its range. PyTorch's older form of dynamic shapes."""

    t_id: int
    dim: int
    name: str = ""
    min: int = 0
    max: int = UNBOUNDED


class ShapesCollection:
    """Dynamic shapes by the tensor (or number) itself: shapes[x] = {0: batch}."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._kept: list[Any] = []

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, (Handle, int)):
            raise AssertionError(f"Cannot assign shape to non-tensor type {type(t)}")
        if id(t) in self._shapes and self._shapes[id(t)] != shape:
            raise AssertionError(f"Shapes assigned to input is a different value: {shape}")
        self._shapes[id(t)] = shape
        self._kept.append(t)

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """The dynamic shapes of a call, by the names of its arguments."""
        return {
            name: tree_map_with_path(lambda path, t: self._shapes.get(id(t)), value)
            for name, value in _bound(m, args, kwargs)
        }


class AdditionalInputs:
    """More example inputs: what differs between them is dynamic."""

    def __init__(self) -> None:
        self._examples: list[tuple[Any, Any]] = []

    def add(self, args: Any, kwargs: Any = None) -> None:
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        calls = [(args, kwargs or {}), *self._examples]
        flat = [dict(_leaves(_bound(m, a, k))) for a, k in calls]

        def shape(name: str, path: Any, leaf: Any) -> Any:
            others = [each.get((name, keystr(path))) for each in flat]
            if not isinstance(leaf, Handle):
                return Dim.DYNAMIC if any(o != leaf for o in others) else None
            return tuple(
                Dim.DYNAMIC if any(o.shape[i] != n for o in others) else None  # type: ignore[union-attr]
                for i, n in enumerate(leaf.shape)
            )

        return {
            name: tree_map_with_path(lambda path, leaf: shape(name, path, leaf), value)  # noqa: B023
            for name, value in _bound(m, args, kwargs)
        }

    def verify(self, ep: Any) -> None:
        """Run the program on all of them."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def _bound(m: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    forward = getattr(m, "forward", m)
    yield from inspect.signature(forward).bind(*args, **(kwargs or {})).arguments.items()


def _leaves(arguments: Iterator[tuple[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    for name, value in arguments:
        for path, leaf in tree_flatten_with_path(value)[0]:
            yield (name, keystr(path)), leaf
