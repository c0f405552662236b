"""Segment: the part of a plan that runs on one device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir.node import Node

from .device import Bound, Device, Run

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.lower.external import External
    from tilewright.codegen.program import Program


CROSSING = 1 << 30
"""Values that cross from one device to another are leaves with numbers from here on."""


@dataclass
class Segment:
    """The part of a plan that runs on one device.

    inputs: (slot, source): what is bound to a slot before the run; a source is the number of a
        leaf, or of a crossing value.
    results: (slot, shape if it isn't the slot's, whether to copy) of each root. No two values that
        leave the segment share memory, and none is that of a leaf.
    donors: (root, leaf) -> slot: where the leaf's buffer may become the root's.
    makers: (slot, what makes a new buffer for it) of those that leave the segment.
    runs: (several launches as one call, how many) by the place of the first.
    plain: whether the results are the buffers of their slots as they are.
    """

    device: Device
    program: Program
    roots: tuple[Node, ...]
    inputs: tuple[tuple[int, int], ...]
    scalars: dict[int, int]
    launches: list[Bound] = field(default_factory=list)
    runs: dict[int, tuple[Run, int]] = field(default_factory=dict)
    results: tuple[tuple[int, tuple[int, ...] | None, bool], ...] = ()
    donors: dict[tuple[int, int], int] = field(default_factory=dict)
    arena_slots: dict[int, tuple[int, Any]] = field(default_factory=dict)
    makers: tuple[tuple[int, Callable[[], Any]], ...] = ()
    arena_bytes: int = 0

    @functools.cached_property
    def plain(self) -> bool:
        return not any(copied or shape is not None for _, shape, copied in self.results)

    def source(self, kernel: Kernel | Bundle | External) -> str:
        """The text of one of its kernels: what was generated, or what the user wrote."""
        from tilewright.codegen.lower.external import External

        if isinstance(kernel, External):
            return kernel.emitted.source
        return self.device.source(kernel)
