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
    from tilewright.codegen.lower.host import Routine
    from tilewright.codegen.program import Program


CROSSING = 1 << 30
"""The first number of leaves that stand for values from other devices."""


@dataclass
class Segment:
    """The part of a plan that runs on one device.

    inputs: (slot, source) of each slot that is bound before a run; a source is the number of a leaf
    or of a crossing value.
    results: (slot, shape if it isn't the slot's, whether to copy) of each root. Copies ensure that
        values that leave the segment share no memory with each other or with a leaf.
    donors: (root, leaf) -> slot, where the root may overwrite the leaf's buffer.
    takers: root -> slot, where the root may overwrite the buffer of a leaf that nobody reads.
    makers: (slot, function that makes a new buffer) of each slot that leaves the segment.
    runs: place of the first -> (several launches as one call, how many).
    plain: whether the results are the slots' buffers, without a copy or reshape.
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
    takers: dict[int, int] = field(default_factory=dict)
    arena_slots: dict[int, tuple[int, Any]] = field(default_factory=dict)
    makers: tuple[tuple[int, Callable[[], Any]], ...] = ()
    arena_bytes: int = 0

    @functools.cached_property
    def plain(self) -> bool:
        return not any(copied or shape is not None for _, shape, copied in self.results)

    def source(self, kernel: Kernel | Bundle | External | Routine) -> str:
        """The text of one of its kernels, generated or written by the user."""
        from tilewright.codegen.lower.external import External
        from tilewright.codegen.lower.host import Routine

        if isinstance(kernel, External):
            return kernel.emitted.source
        if isinstance(kernel, Routine):
            return f"# {kernel}\n"
        return self.device.source(kernel)
