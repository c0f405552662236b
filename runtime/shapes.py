"""Values on the meta device, which are shapes and are not computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.node import Node

from .meta import NAME, Absent
from .plan import Incomplete


def is_absent(node: Node) -> bool:
    return node.device == NAME


class Shapes:
    """Values of which some are on the meta device, with the interface of a plan: those are shapes,
    and another plan computes the rest."""

    def __init__(
        self,
        roots: tuple[Node, ...],
        fallible: tuple[Node, ...],
        planned: Callable[[tuple[Node, ...], tuple[Node, ...]], Any],
    ):
        self.recorded, self.fallible = roots, fallible
        rest = tuple(n for n in roots if not is_absent(n))
        checked = tuple(n for n in fallible if not is_absent(n))
        self._rest = planned(rest, checked) if rest or checked else None

    @property
    def due(self) -> bool:
        return self._rest is not None and bool(self._rest.due)

    def run(
        self,
        buffers: Sequence[Any],
        scalars: Sequence[Any],
        donated: Sequence[tuple[int, int]] = (),
    ) -> list[Any]:
        if self._rest is None:
            return self._with([])
        try:
            return self._with(self._rest.run(buffers, scalars))
        except Incomplete as incomplete:
            raise Incomplete(self._with(incomplete.values), incomplete.error) from None

    def _with(self, values: Sequence[Any]) -> list[Any]:
        """The values of all roots, given those of the rest."""
        rest = iter(values)
        return [Absent(n.shape, n.dtype) if is_absent(n) else next(rest) for n in self.recorded]
