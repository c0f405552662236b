"""The routines of elementwise ops, and their common argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT, SIGNED, DType
from tilewright.ir.op import Op

from ..kernel import Apply
from .body import Body, Mask
from .code import Level
from .types import Ref, constant

Routine = Callable[["Context"], Ref]


class Context:
    """One op at the place where it is computed."""

    def __init__(self, body: Body, value: Apply, args: Sequence[Ref], mask: Mask | None, at: Level):
        self.body, self.value, self.mask, self.at = body, value, mask, at
        self.code = body.code
        self.given = args
        self.args = body.code.matched(*args, at=at)
        self.dtype: DType = value.dtype if value.op is ops.where else value.args[0].dtype

    @property
    def floating(self) -> bool:
        return self.dtype.category == FLOAT

    @property
    def signed(self) -> bool:
        return self.dtype.category == SIGNED

    @property
    def lanes(self) -> int:
        return self.args[0].lanes

    def binary(self, op: str, a: Ref, b: Ref) -> Ref:
        return self.code.binary(op, a, b, self.at)

    def compare(self, op: str, a: Ref, b: Ref) -> Ref:
        return self.code.compare(op, a, b, self.at)

    def select(self, condition: Ref, a: Ref, b: Ref) -> Ref:
        return self.code.select(condition, a, b, self.at)

    def intrinsic(self, name: str, *args: Ref) -> Ref:
        return self.code.intrinsic(name, args, self.at)

    def like(self, number: float) -> Ref:
        return constant(number, self.args[0].type, self.lanes)


ROUTINES: dict[Op, Routine] = {}


def routine(*written: Op) -> Callable[[Routine], Routine]:
    def register(function: Routine) -> Routine:
        for op in written:
            ROUTINES[op] = function
        return function

    return register
