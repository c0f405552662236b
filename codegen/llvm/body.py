"""A function of a kernel while it is written: its arguments, its axes, its masks.

Most kernels are one function, `void kernel(ptr args, i64 chunk)`; others have parts with parameters
of their own, but the same `args` (see arguments.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ..kernel import Buffer, Condition, Kernel, Scalar, Value
from ..kernel.analysis import analyzed
from ..kernel.index import Axis, Check, Index
from ..kernel.structure import SMALL
from .arguments import Arguments
from .arms import arms_of
from .code import Code, Level
from .form import Form
from .machine import Machine
from .types import Ref, computed, constant


@dataclass(frozen=True)
class Mask:
    """The places where guards let a value be computed. number: tells masks apart. held: the level
    whose next lines run only where they do."""

    ref: Ref
    level: int
    number: int
    held: Level | None = None


@dataclass(eq=False)
class Vector:
    """The axis that lanes run along, in a loop whose `variable` is the position of lane 0.

    count: how many lanes exist in this step, i64. full: whether all lanes exist. whole: whether
    that is known when the code is written.
    """

    axis: Axis
    level: Level
    variable: Ref
    count: Ref
    full: Ref
    lanes: int
    whole: bool = False


Evaluate = Callable[["Body", Value, Mask | None], Ref]


class Body:
    """The state that all parts of the emitter share. evaluate: writes a value and its operands."""

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        form: Form,
        evaluate: Evaluate,
        arguments: Arguments | None = None,
        code: Code | None = None,
    ):
        self.kernel, self.machine, self.form = kernel, machine, form
        self.evaluate = evaluate
        self.lanes = form.lanes
        self.code = code or Code("kernel", "ptr %args, i64 %chunk")
        self.analysis = analyzed(kernel)
        self.arguments = arguments or Arguments(kernel)
        self.axes: dict[Axis, tuple[Level, Ref]] = {}
        self.vector: Vector | None = None
        self.folded: dict[int, Ref] = {}  # finished reductions, and running folds, by id
        self.scratch: dict[int, Ref] = {}  # memory of values kept for later stages, by id
        self.kept: dict[int, Callable[[Value], Ref]] = {}  # the way to read it again
        self.padded: set[Buffer] = set()  # with room for lanes that don't exist, at each place
        self.row_level = 0  # values that depend on a reduction stand here or deeper
        self.arms = arms_of(kernel, self.analysis)
        self.nested = 0  # the arms of a `where` that are open branches
        self.masks = 0
        self.settled: dict[Condition, tuple[Ref, int]] = {}  # those that all lanes share, by depth

    # Arguments.

    @property
    def entry(self) -> Level:
        return self.code.levels[0]

    def _word(self, place: int, kind: str) -> Ref:
        def make() -> Ref:
            at = self.code.let(f"getelementptr i64, ptr %args, i64 {place}", "ptr", at=self.entry)
            return self.code.let(f"load {kind}, ptr {at.text}, align 8", kind, at=self.entry)

        found: Ref = self.code.once(("word", place), self.entry, make)
        return found

    def buffer(self, buffer: Buffer) -> Ref:
        start = self.arguments.kept.get(buffer)
        if start is None:
            return self._word(self.arguments.buffer(buffer), "ptr")
        entry, code = self.entry, self.code

        def make() -> Ref:
            place = self.size(start, ("start of", buffer.name), baked=False)
            text = f"getelementptr i8, ptr {self.workspace().text}, i64 {place.text}"
            return code.let(text, "ptr", at=entry)

        found: Ref = code.once(("kept", buffer), entry, make)
        return found

    def table(self, values: bytes, key: Hashable) -> Ref:
        """The address of constant data."""
        return self._word(self.arguments.table(values, key), "ptr")

    def workspace(self) -> Ref:
        """Memory of the launch, its address a multiple of 64."""
        return self._word(self.arguments.workspace(), "ptr")

    def scalar(self, value: Scalar) -> Ref:
        place = self.arguments.scalar(value)
        kind = computed(value.dtype)
        loaded = self._word(place, "i8" if kind == "i1" else kind)
        if kind != "i1":
            return loaded
        entry = self.entry
        return self.code.once(
            ("bool", place),
            entry,
            lambda: self.code.let(f"icmp ne i8 {loaded.text}, 0", "i1", at=entry),
        )

    def size(self, value: int, key: Hashable, baked: bool = True) -> Ref:
        """A number that follows from sizes. 0 and 1 are part of the code, others are passed."""
        if baked and value in (0, 1):
            return constant(value, "i64")
        return self._word(self.arguments.size(value, key), "i64")

    def constant_of(self, index: Index) -> Ref:
        """An index's constant, which is passed like a size."""
        if index.const in (0, 1):
            return constant(index.const, "i64")
        return self._word(self.arguments.constant_of(index), "i64")

    def extent(self, axis: Axis) -> Ref:
        if axis in self.kernel.reduction and axis.extent <= SMALL:
            return constant(axis.extent, "i64")
        return self.size(axis.extent, ("extent", axis.name))

    def check(self, check: Check) -> Ref:
        """The address of the pair of words in which a failure is recorded."""
        place = self.arguments.check(check)
        return self.code.let(f"getelementptr i64, ptr %args, i64 {place}", "ptr", at=self.entry)

    # Where things stand.

    def bind(self, axis: Axis, variable: Ref) -> None:
        """Sets the position along an axis to `variable`, from the innermost level on."""
        self.axes[axis] = self.code.level, variable

    def depth_of(self, axes: Sequence[Axis] | frozenset[Axis]) -> int:
        """The number of the level where all of the axes are bound."""
        return max((self.axes[a][0].depth for a in axes if a.extent != 1), default=0)

    def level_of(self, value: Value, mask: Mask | None = None) -> Level:
        """The level where a value is computed: as far out as its operands allow."""
        depth = self.depth_of(self.analysis.axes(value))
        if self.analysis.depth(value):
            depth = max(depth, self.row_level)
        if mask is not None and self.analysis.reads(value):
            depth = max(depth, mask.level)
        return self.code.levels[depth]

    def in_lanes(self, axes: frozenset[Axis] | set[Axis]) -> bool:
        """Whether a value that ranges over these axes differs between lanes."""
        return self.vector is not None and self.vector.axis in axes

    # Masks.

    def lane_mask(self, at: Level) -> Ref:
        """Which lanes exist in this step of the vector loop."""
        vector = self.vector
        assert vector is not None
        level = vector.level
        code = self.code
        if vector.whole:
            return constant(True, "i1", vector.lanes)

        def make() -> Ref:
            count = code.convert("trunc", vector.count, "i32", at=level)
            wide = code.spread(count, vector.lanes, level)
            return code.compare("icmp ult", code.lanes_of(vector.lanes, "i32"), wide, at=level)

        return code.once("lane mask", level, make)

    def and_lanes(self, mask: Mask | None, at: Level) -> Ref:
        """The lanes that exist and that `mask` lets through."""
        lanes = self.lane_mask(at)
        if mask is None:
            return lanes
        return self.code.binary("and", lanes, mask.ref, at=at)

    def some_lane(self, mask: Mask, at: Level) -> Ref:
        """Whether `mask` lets any lane through; values that all lanes share are computed then."""
        if mask.ref.lanes == 1:
            return mask.ref
        code = self.code

        def make() -> Ref:
            live = self.and_lanes(mask, at)
            bits = code.let(f"bitcast {live.typed} to i{live.lanes}", f"i{live.lanes}", at=at)
            return code.let(f"icmp ne {bits.typed}, 0", "i1", at=at)

        return code.once(("some lane", mask.number), at, make)
