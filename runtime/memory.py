"""The static memory plan: where temporaries live, and whose memory a result may take over."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.codegen.kernel import Apply, Bundle, Kernel, Load, data_values
from tilewright.codegen.program import Loop, Program

ALIGNMENT = 256
"""Bytes; vector loads and GPU transactions want it."""


def place(program: Program, slots: Sequence[int]) -> tuple[dict[int, int], int]:
    """Byte offsets for `slots` such that no two that are alive together overlap, and the total.

    Greedy by size, as in "Efficient memory management for deep neural net inference" (Pisarchyk
    and Lee, 2020): large slots first, each in the lowest gap that its lifetime leaves.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, step in enumerate(program.steps):
        for slot in (*step.outputs, *step.inputs):
            first.setdefault(slot, at)
            last[slot] = at
    sizes = {s: _bytes(program, s) for s in slots}
    taken: list[tuple[int, int, int]] = []  # (slot, begin, end)
    offsets: dict[int, int] = {}
    total = 0
    for slot in sorted(slots, key=lambda s: (-sizes[s], s)):
        overlapping = sorted(
            (begin, end)
            for other, begin, end in taken
            if first[slot] <= last[other] and first[other] <= last[slot]
        )
        at = 0
        for begin, end in overlapping:
            if begin - at >= sizes[slot]:
                break
            at = max(at, end)
        offsets[slot] = at
        taken.append((slot, at, at + sizes[slot]))
        total = max(total, at + sizes[slot])
    return offsets, total


def _bytes(program: Program, slot: int) -> int:
    meta = program.slots[slot]
    size = math.prod(meta.shape) * meta.dtype.itemsize
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def donors(program: Program) -> dict[tuple[int, int], int]:
    """(root, leaf) -> the root's slot, where the leaf's buffer may become that of the root.

    The step that writes the root must be the last to read the leaf, must read each element at the
    place where it writes, and no step from there on may fail: a run that fails is tried again.
    """
    last_reader: dict[int, int] = {}
    writer: dict[int, int] = {}
    last_fallible = -1
    for at, step in enumerate(program.steps):
        for slot in step.inputs:
            last_reader[slot] = at
        for slot in step.outputs:
            writer[slot] = at
        if any(_may_fail(k) for k in _members(step.kernel)):
            last_fallible = at
    out: dict[tuple[int, int], int] = {}
    for leaf, source in program.leaves.items():
        at = last_reader.get(source, -1)
        if at <= last_fallible or source in program.results:
            continue
        for root, slot in enumerate(program.results):
            if writer.get(slot) == at and program.results.count(slot) == 1:
                a, b = program.slots[source], program.slots[slot]
                if (
                    a.shape == b.shape
                    and a.dtype is b.dtype
                    and _in_place(program, at, source, slot)
                ):
                    out[root, leaf.attrs[0]] = slot
    return out


def _members(kernel: Kernel | Bundle | Loop) -> tuple[Kernel, ...]:
    if isinstance(kernel, Loop):
        return tuple(m for k in kernel.kernels for m in _members(k))
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def _may_fail(kernel: Kernel) -> bool:
    """Whether values can make a launch raise: positions that are data, integer divisions."""
    for store in kernel.stores:
        if any(data_values(store.offset)):
            return True
    for value in kernel.values:
        if any(True for index in value.indices() for _ in data_values(index)):
            return True
        if isinstance(value, Apply) and not value.dtype.is_floating_point and value.op.cost >= 8:
            return True
    return False


def _in_place(program: Program, at: int, source: int, target: int) -> bool:
    """Whether the step reads the slot `source` only where it writes the slot `target`."""
    step = program.steps[at]
    if isinstance(step.kernel, Loop):
        return False  # its steps read what others have written
    output, input_ = 0, 0
    for kernel in _members(step.kernel):
        outs = step.outputs[output : output + len(kernel.outputs)]
        ins = step.inputs[input_ : input_ + len(kernel.inputs)]
        output, input_ = output + len(kernel.outputs), input_ + len(kernel.inputs)
        if source not in ins and target not in outs:
            continue
        if ins.count(source) != 1 or target not in outs or kernel.has_dot or kernel.is_update:
            return False
        read = kernel.inputs[ins.index(source)]
        written = kernel.outputs[outs.index(target)]
        place = next(s.offset for s in kernel.stores if s.buffer == written)
        loads = [v for v in kernel.values if isinstance(v, Load) and v.buffer == read]
        if any(v.offset != place for v in loads):
            return False
    return True
