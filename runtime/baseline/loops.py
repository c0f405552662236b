"""Loops: a step that runs op by op, and is compiled when it has run often.

The step doesn't depend on the number of steps, so loops of all lengths share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.loop import order
from tilewright.ir.node import Node

from .. import debug, devices
from .forms import Form

if TYPE_CHECKING:
    from ..loops import BoundLoop
    from .program import Program


def never(runs: int, more: int, program: Program) -> bool:
    return False


is_due: Callable[[int, int, Program], bool] = never
"""Whether a step is compiled that ran so often, `more` times of them last. The tiers set it."""


class Steps:
    """The step of a loop for any number of steps.

    runs: how often it ran.
    """

    def __init__(self, node: Node, program: Program):
        self.program, self.runs = program, 0
        self._sequences, self._states, self._reverse = node.attrs[:3]
        self._compiled: BoundLoop | None = None

    def form_of(self, node: Node) -> Form:
        """The form of a loop that makes this step."""
        count = node.operands[0].shape[0]
        np_dtype = node.dtype.np

        def loop(*arrays: Any) -> Any:
            self.runs += count
            if self._compiled is None and is_due(self.runs, count, self.program):
                self._compiled = _compiled(node)
            if self._compiled is None:
                return self._op_by_op(count, arrays)
            out = np.empty(node.shape[0], np_dtype)
            self._compiled.times(count)((out, *map(np.ascontiguousarray, arrays)), ())
            return out

        return loop

    def _op_by_op(self, count: int, arrays: tuple[Any, ...]) -> Any:
        program, first, after = self.program, self._sequences, self._sequences + self._states
        if not program.is_settled:
            program.settle()
        walked, now, whole = arrays[:first], arrays[first:after], arrays[after:]
        made: list[Any] = [None] * count
        for t in order(count, self._reverse):
            values = program.compute((*[a[t] for a in walked], *now, *whole))
            made[t], now = values, tuple(values[: self._states])
        kept = range(len(program.results))
        return np.concatenate([np.ravel(made[t][k]) for k in kept for t in range(count)])


def _compiled(node: Node) -> BoundLoop:
    from tilewright.codegen.program import body_of, loop_of

    from ..loops import BoundLoop

    device = devices.get("cpu")
    loop = BoundLoop(device, loop_of(node, body_of(node, device.target)))
    debug.say(f"{node.op.name}: the step is compiled, as it ran often")
    return loop
