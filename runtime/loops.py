"""Loops at run time: the launches of one step, made again and again over parts of the buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.program import Loop, Program
from tilewright.ir.loop import order

from .device import Bound, Device, Launch
from .memory import place

_made: WeakKeyDictionary[Device, WeakKeyDictionary[Kernel | Bundle, Launch]] = WeakKeyDictionary()


def launches_of(device: Device, program: Program) -> list[Launch]:
    """The launch of each step of a program; a kernel is compiled once for all that have it."""
    made = _made.setdefault(device, WeakKeyDictionary())
    kernels = [s.kernel for s in program.steps if not isinstance(s.kernel, Loop)]
    missing = [k for k in dict.fromkeys(kernels) if k not in made]
    for kernel, launch in zip(missing, device.compile_all(missing), strict=True):
        made[kernel] = launch
    return [
        bind(device, s.kernel) if isinstance(s.kernel, Loop) else made[s.kernel]
        for s in program.steps
    ]


def bind(device: Device, loop: Loop) -> Launch:
    """A loop, ready to launch: its buffers are the output and the operands."""
    body = loop.body
    operands = {leaf.attrs[0]: slot for leaf, slot in body.leaves.items()}
    sequences = [(slot, i) for i, slot in operands.items() if i < loop.sequences]
    first = loop.sequences
    states = [(operands.get(first + k), first + k) for k in range(loop.states)]
    whole = [(slot, i) for i, slot in operands.items() if i >= first + loop.states]
    lasting = {slot for slot, _ in whole}
    bound = [
        (device.repeated(launch, [i in lasting for i in used]), used)
        for launch, step in zip(launches_of(device, body), body.steps, strict=True)
        for used in [(*step.outputs, *step.inputs)]
    ]
    first_step, other_steps = (
        _together(device, [(launches[turn], used, ()) for launches, used in bound])
        for turn in (0, 1)
    )
    written = dict.fromkeys(i for step in body.steps for i in step.outputs)
    own = [i for i in written if i not in body.results]
    offsets, total = place(body, own)
    memory = device.arena(total) if total else None
    views = [
        (i, device.view(memory, offsets[i], body.slots[i].shape, body.slots[i].dtype)) for i in own
    ]
    places = list(order(loop.count, loop.reverse))

    def launch(buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        output, *given = buffers
        slots: list[Any] = [None] * len(body.slots)
        for slot, view in views:
            slots[slot] = view
        for slot, i in whole:
            slots[slot] = given[i]
        walked = [(slot, device.rows(given[i], loop.count)) for slot, i in sequences]
        made, start = [], 0
        for slot, shape in zip(body.results, loop.shapes, strict=True):
            stop = start + loop.count * math.prod(shape)
            made.append((slot, device.rows(output, loop.count, start, stop)))
            start = stop
        now = [given[i] for _, i in states]
        make = first_step
        for t in places:
            for slot, rows in walked:
                slots[slot] = rows[t]
            for (place_of, _), state in zip(states, now, strict=True):
                if place_of is not None:  # some step reads it
                    slots[place_of] = state
            for slot, rows in made:
                slots[slot] = rows[t]
            make(slots)
            make = other_steps
            now = [rows[t] for _, rows in made[: loop.states]]

    return launch


def _together(device: Device, launches: list[Bound]) -> Callable[[list[Any]], None]:
    """Several launches over one list of slots, in as few calls as the device can."""
    runs = device.runs(launches)
    run, _ = runs.get(0, (None, 0))

    def make(slots: list[Any]) -> None:
        made = run(slots, ()) if run is not None else 0
        for launch, used, _ in launches[made:]:
            launch([slots[i] for i in used], ())

    return make
