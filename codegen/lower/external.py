"""Launches of kernels that the user wrote: steps of a program beside those of our own kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tilewright.ir.node import Node

from ..kernel import Buffer, Scalar

if TYPE_CHECKING:
    from ..triton import Emitted


Config = tuple[tuple[str, Any], ...]
"""The config of an autotuned kernel: plain values by name."""


@dataclass(frozen=True)
class Site:
    """The facts that decide on the best config of an autotuned kernel. structure: a hash of its
    text, its configs and all else that isn't a size."""

    structure: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Autotuned(Site):
    """A launch of an autotuned kernel in each of its configs, for the tuner.

    outputs, inputs: the buffers of a launch, those it writes to first. scalars: the numbers passed
    to it that change from run to run. launches: by config, the default first; empty where nothing
    is tuned.
    """

    name: str
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    scalars: tuple[float, ...]
    launches: Mapping[Config, Emitted]


@dataclass(frozen=True)
class Registered:
    """A launch that nodes refer to. origin: the source of an autotuned kernel's config."""

    emitted: Emitted
    origin: str = ""
    autotuned: Autotuned | None = None


@dataclass(frozen=True, eq=False)
class External:
    """A user's kernel in the place of one of ours.

    emitted: the kernel and the arguments of a launch. Its buffers are the operands that it writes
        to, then the others.
    scalars: the numbers passed to it that change from run to run.
    """

    registered: Registered
    scalars: tuple[Scalar, ...]

    @property
    def emitted(self) -> Emitted:
        return self.registered.emitted

    @property
    def name(self) -> str:
        return self.emitted.name


_launches: dict[str, Registered] = {}
_names: dict[Hashable, str] = {}
_made: WeakValueDictionary[tuple[str, tuple[int, ...]], External] = WeakValueDictionary()


def register(key: Hashable, make: Callable[[], Registered]) -> str:
    """The name by which nodes refer to a launch. Equal keys share one launch."""
    name = _names.get(key)
    if name is None:
        made = make()
        name = f"{made.emitted.name}.{len(_launches)}"
        _launches[name] = made
        _names[key] = name
    return name


def launch_of(node: Node) -> External:
    """The External that runs a node, one object for all nodes with the same numbers."""
    name, tensors, *_ = node.attrs
    return external(name, node.operands[tensors:])


def external(name: str, numbers: Sequence[Node] = ()) -> External:
    """The External of a registered launch with these numbers."""
    key = name, tuple(n.attrs[0] for n in numbers)
    found = _made.get(key)
    if found is None:
        scalars = tuple(Scalar(n.attrs[0], n.dtype) for n in numbers)
        found = _made[key] = External(_launches[name], scalars)
    return found
