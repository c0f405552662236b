"""Numbers of a program that is traced while it runs: they have values, and nodes of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .node import Node

if TYPE_CHECKING:
    from .concrete import Watcher

_ARITHMETIC = "add sub mul truediv floordiv mod pow".split()
_COMPARISONS = "eq ne lt le gt ge".split()
_UNARY: dict[str, Callable[..., Any]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__abs__": abs, "__floor__": math.floor,
    "__ceil__": math.ceil, "__trunc__": math.trunc,
}  # fmt: skip


class Traced:
    """What TracedInt and TracedFloat have in common.

    The node is made when the number is first used. What a comparison finds is a fact about the
    sizes, on which the rest of the trace rests: the watcher is told.
    """

    _watcher: Watcher
    _make: Callable[[], Node] | None
    _made: Node | None

    @property
    def node(self) -> Node:
        if self._made is None:
            assert self._make is not None
            self._made = self._make()
            self._made.meta["value"] = plain(self)
        return self._made


class TracedInt(int, Traced):
    __hash__ = int.__hash__

    def __reduce__(self) -> Any:  # copies and pickles are plain numbers
        return int, (int(self),)

    def __deepcopy__(self, memo: Any) -> int:
        return plain(self)  # type: ignore[no-any-return]


class TracedFloat(float, Traced):
    __hash__ = float.__hash__

    def __reduce__(self) -> Any:
        return float, (float(self),)

    def __deepcopy__(self, memo: Any) -> float:
        return plain(self)  # type: ignore[no-any-return]


def traced(watcher: Watcher, value: Any, make: Callable[[], Node]) -> Any:
    """A number with the node that `make` adds to the graph."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    number: Any = (TracedInt if isinstance(value, int) else TracedFloat)(value)
    number._watcher, number._make, number._made = watcher, make, None
    return number


def plain(value: Any) -> Any:
    """A number without its node."""
    if isinstance(value, TracedInt):
        return int.__add__(value, 0)
    return float.__add__(value, 0.0) if isinstance(value, TracedFloat) else value


def _calculated(kind: type, name: str, target: Callable[..., Any], swapped: bool) -> None:
    own = getattr(kind, name, None)
    if own is None:
        return

    def call(self: Any, *args: Any) -> Any:
        if args and not isinstance(args[0], (int, float)):
            return NotImplemented
        values = [plain(self), *map(plain, args)]
        operands = (*args, self) if swapped else (self, *args)
        result = target(*(reversed(values) if swapped else values))
        watcher = self._watcher
        return traced(watcher, result, lambda: watcher.calculation(target, operands))

    setattr(kind, name, call)


def _compared(kind: type, name: str, target: Callable[..., Any]) -> None:
    def call(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        result = target(plain(self), plain(other))
        self._watcher.fact(target, (self, other), result)
        return result

    setattr(kind, name, call)


for _kind in (TracedInt, TracedFloat):
    for _name in _ARITHMETIC:
        _calculated(_kind, f"__{_name}__", getattr(operator, _name), False)
        _calculated(_kind, f"__r{_name}__", getattr(operator, _name), True)
    for _name, _target in _UNARY.items():
        _calculated(_kind, _name, _target, False)
    for _name in _COMPARISONS:
        _compared(_kind, f"__{_name}__", getattr(operator, _name))
