"""Loops at run time: the launches of one step, repeated over parts of the buffers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import External
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Loop, Program
from tilewright.ir.loop import order

from .device import Device, Launch
from .placement import place

if TYPE_CHECKING:
    from tilewright.codegen.triton import Emitted

_made: WeakKeyDictionary[Device, WeakKeyDictionary[Kernel | Bundle | External, Launch]] = (
    WeakKeyDictionary()
)


def launches_of(device: Device, program: Program) -> list[Launch]:
    """The launch of each step of a program. Steps with the same kernel share its launch."""
    made = _made.setdefault(device, WeakKeyDictionary())
    kernels = [s.kernel for s in program.steps if not isinstance(s.kernel, (Loop, Routine))]
    missing = [k for k in dict.fromkeys(kernels) if k not in made]
    ours = [k for k in missing if not isinstance(k, External)]
    made.update(zip(ours, device.compile_all(ours), strict=True))
    made.update((k, _bound(device, k.emitted)) for k in missing if isinstance(k, External))
    return [_launch(device, s.kernel, made) for s in program.steps]


def _launch(
    device: Device,
    kernel: Kernel | Bundle | Loop | External | Routine,
    made: Mapping[Kernel | Bundle | External, Launch],
) -> Launch:
    if isinstance(kernel, Loop):
        return BoundLoop(device, kernel)
    return device.call(kernel) if isinstance(kernel, Routine) else made[kernel]


def _bound(device: Device, emitted: Emitted) -> Launch:
    """The launch of a user's kernel. Its errors name the user's call."""
    try:
        return device.bind(emitted)
    except Exception as error:
        raise emitted.failure(error) from error


class BoundLoop:
    """A loop, ready to launch. Its buffers are the output and the operands.

    launches: the launches of one step, with the slots of each.
    """

    def __init__(self, device: Device, loop: Loop):
        self.device, self.loop = device, loop
        body = loop.body
        self.launches = [
            (launch, (*step.outputs, *step.inputs))
            for launch, step in zip(launches_of(device, body), body.steps, strict=True)
        ]
        operands = {leaf.attrs[0]: slot for leaf, slot in body.leaves.items()}
        first, after = loop.sequences, loop.sequences + loop.states
        self._sequences = [(slot, i) for i, slot in operands.items() if i < first]
        self._states = [(operands.get(i), i) for i in range(first, after)]
        self._whole = [(slot, i) for i, slot in operands.items() if i >= after]
        whole = {slot for slot, _ in self._whole}
        self._repeated = [
            (*device.repeated(launch, [i in whole for i in used]), used)
            for launch, used in self.launches
        ]
        written = dict.fromkeys(i for step in body.steps for i in step.outputs)
        own = [i for i in written if i not in body.results]
        self._offsets, self._total = place(body, own)
        self._memory: dict[str | None, Any] = {}  # that of temporaries, by lane
        self._temporaries: dict[str | None, list[tuple[int, Any]]] = {}  # by lane
        self._all_steps = device.loop(self._repeated, len(body.slots))
        self._rows: np.ndarray | None = None

    def times(self, count: int) -> BoundLoop:
        """The same loop with another number of steps."""
        other = copy.copy(self)
        other.loop, other._rows = replace(self.loop, count=count), None
        return other

    def __call__(self, buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        if self._all_steps is not None:
            if self._rows is None:
                self._rows = self._walked_rows()
            own = self._arena() if self._total else None
            self._all_steps((*buffers, own), self._rows, self.loop.count)
            return
        is_first = True
        for slots in self._walk(buffers):
            for first, other, used in self._repeated:
                (first if is_first else other)([slots[i] for i in used], ())
            is_first = False

    def steps(self, buffers: Sequence[Any]) -> Iterator[tuple[Launch, list[Any]]]:
        """All launches in order, with the buffers of each."""
        for slots in self._walk(buffers):
            for launch, used in self.launches:
                yield launch, [slots[i] for i in used]

    def _arena(self) -> Any:
        """Memory for the slots that the body alone uses."""
        lane = self.device.lane
        if lane not in self._memory:
            self._memory[lane] = self.device.arena(self._total)
        return self._memory[lane]

    def _walked_rows(self) -> np.ndarray:
        """The places of the body's slots, as `Walk` takes them. The buffers are the output, the
        operands and the arena."""
        loop, slots = self.loop, self.loop.body.slots
        rows = np.zeros((len(slots), 5), np.int64)
        where = order(loop.count, loop.reverse)
        begin, way = where[0], where.step
        size = {i: math.prod(s.shape) * s.dtype.itemsize for i, s in enumerate(slots)}
        for slot, offset in self._offsets.items():
            rows[slot] = (-1, offset, -1, offset, 0)
        for slot, i in self._whole:
            rows[slot] = (1 + i, 0, 1 + i, 0, 0)
        for slot, i in self._sequences:
            n = size[slot]
            rows[slot] = (1 + i, begin * n, 1 + i, (begin + way) * n, way * n)
        start = 0
        for k, slot in enumerate(loop.body.results):
            n = size[slot]
            at = start + begin * n
            rows[slot] = (0, at, 0, at + way * n, way * n)
            if k < loop.states and self._states[k][0] is not None:
                place_of, i = self._states[k]
                rows[place_of] = (1 + i, 0, 0, at, way * n)
            start += loop.count * n
        return rows

    def _own(self) -> list[tuple[int, Any]]:
        """The slots that the body alone uses, with their buffers."""
        device, slots = self.device, self.loop.body.slots
        found = self._temporaries.get(device.lane)
        if found is None:
            memory = self._arena() if self._total else None
            found = self._temporaries[device.lane] = [
                (i, device.view(memory, offset, slots[i].shape, slots[i].dtype))
                for i, offset in self._offsets.items()
            ]
        return found

    def _walk(self, buffers: Sequence[Any]) -> Iterator[list[Any]]:
        """The body's slots at each step."""
        loop, rows_of = self.loop, self.device.rows
        output, *given = buffers
        slots: list[Any] = [None] * len(loop.body.slots)
        for slot, view in self._own():
            slots[slot] = view
        for slot, i in self._whole:
            slots[slot] = given[i]
        walked = [(slot, rows_of(given[i], loop.count)) for slot, i in self._sequences]
        made, start = [], 0
        for slot, shape in zip(loop.body.results, loop.shapes, strict=True):
            stop = start + loop.count * math.prod(shape)
            made.append((slot, rows_of(output, loop.count, start, stop)))
            start = stop
        now = [given[i] for _, i in self._states]
        for t in order(loop.count, loop.reverse):
            for slot, rows in walked:
                slots[slot] = rows[t]
            for (place_of, _), state in zip(self._states, now, strict=True):
                if place_of is not None:  # some step reads it
                    slots[place_of] = state
            for slot, rows in made:
                slots[slot] = rows[t]
            yield slots
            now = [rows[t] for _, rows in made[: loop.states]]
