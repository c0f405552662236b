"""Calls that stay one node in a recording for ONNX: ONNX has an operator for the whole call, or the
size of the result is data.

Outside of exports such a call is recorded as what it consists of. Inside, a stand-in makes a node
of the op `whole_call`, whose decomposition that is. A form for the builder (`forms`) comes first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir import node as graph
from tilewright.ir.location import user_location
from tilewright.ir.node import Node
from tilewright.ir.op import Aval, Kind, Op

from ..functions.creation import eye_of
from ..functions.data_sized import distinct_of, positions_of
from ..functions.ranges import linspace_of

SLOT = "<operand>"
"""Stands for the next operand among the arguments of a call."""


def _called(args: Sequence[Any]) -> Node:
    """The result of a call as it is recorded outside of exports."""
    operands = iter([a for a in args if isinstance(a, Node)])
    build, arguments, result = args[-3:]
    made = build(*(next(operands) if a is SLOT else a for a in arguments))
    return made[result] if isinstance(made, tuple) else made  # type: ignore[no-any-return]


def _infer(*args: Any) -> Aval:
    made = _called(args)
    return made.shape, made.dtype


whole_call = Op(
    "whole_call",
    Kind.COMPOSITE,
    _infer,
    params=("build", "arguments", "result"),
    decompose=lambda *args: _called(args),
)
"""whole_call(*operands, build, arguments, result): one result of build(*arguments), in which SLOT
stands for operands."""


def call_nodes(build: Callable[..., Any], *args: Any) -> Any:
    """The nodes of a call that stays whole: one, or a tuple."""
    operands = [a for a in args if isinstance(a, Node)]
    arguments = tuple(SLOT if isinstance(a, Node) else a for a in args)
    made = build(*args)
    if not isinstance(made, tuple):
        return whole_call(*operands, build, arguments, 0)
    return tuple(whole_call(*operands, build, arguments, i) for i in range(len(made)))


@functools.cache
def _standing(build: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(*args: Any) -> Any:
        return call_nodes(build, *args)

    return stand_in


class Counts:
    """The sizes of one recording that data will determine: `sizes` for the first of them, `usual`
    for the rest. found: how many there are."""

    def __init__(self, sizes: Sequence[int], usual: int = 7):
        self.sizes, self.usual, self.found = sizes, usual, 0

    def standing(self, build: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(x: Node) -> Any:
            known = self.found < len(self.sizes)
            count = self.sizes[self.found] if known else self.usual
            self.found += 1
            before = graph.set_location(user_location())
            try:
                return call_nodes(build, x, count)
            finally:
                graph.set_location(before)

        return stand_in


WHOLE: dict[Any, Callable[..., Any]] = {}
"""Builders whose calls stay whole -> their stand-ins. `forms` fills it."""


def keep_whole(build: Callable[..., Any]) -> None:
    WHOLE.setdefault(build, _standing(build))


def stand_ins(
    counts: Counts, translated: Iterable[Callable[..., Any]] = ()
) -> Mapping[Any, Callable[..., Any]]:
    """What `recording.standing_in` takes for one recording. translated: more builders whose calls
    stay whole."""
    return {
        **WHOLE,
        **{build: _standing(build) for build in translated},
        positions_of: counts.standing(positions_of),
        distinct_of: counts.standing(distinct_of),
        linspace_of: linspace_of,
        eye_of: eye_of,
    }
