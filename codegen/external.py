"""Launches of kernels that the user wrote: steps of a program beside those of our own kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tilewright.ir.node import Node

from .kernel import Scalar

if TYPE_CHECKING:
    from .triton import Emitted


@dataclass(frozen=True, eq=False)
class External:
    """A user's kernel in the place of one of ours.

    emitted: the kernel and what a launch passes to it. Its buffers are the operands that it writes
        to, then the others.
    scalars: the numbers it is passed that change from run to run.
    """

    emitted: Emitted
    scalars: tuple[Scalar, ...]

    @property
    def name(self) -> str:
        return self.emitted.name


_launches: dict[str, Emitted] = {}
_names: dict[Hashable, str] = {}
_made: WeakValueDictionary[tuple[str, tuple[int, ...]], External] = WeakValueDictionary()


def register(key: Hashable, make: Callable[[], Emitted]) -> str:
    """The name by which nodes refer to a launch: one for equal keys, made when it is new."""
    name = _names.get(key)
    if name is None:
        emitted = make()
        name = f"{emitted.name}.{len(_launches)}"
        _launches[name] = emitted
        _names[key] = name
    return name


def launch_of(node: Node) -> External:
    """What runs an `external` node, one object for all that have the same numbers."""
    name, tensors, *_ = node.attrs
    numbers = node.operands[tensors:]
    key = name, tuple(n.attrs[0] for n in numbers)
    found = _made.get(key)
    if found is None:
        scalars = tuple(Scalar(n.attrs[0], n.dtype) for n in numbers)
        found = _made[key] = External(_launches[name], scalars)
    return found
