"""The static memory plan: places of temporaries, and leaves whose memory a result may take over."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tilewright.codegen.kernel import Apply, Buffer, Bundle, Kernel, Load, data_values
from tilewright.codegen.kernel.index import Index
from tilewright.codegen.lower.external import External
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Loop, Program, Step

ALIGNMENT = 256
"""Bytes. Vector loads and GPU transactions are faster at such addresses."""


def place(
    program: Program, slots: Sequence[int], beside: Sequence[int] = ()
) -> tuple[dict[int, int], int]:
    """Byte offsets for `slots`, and the total. Slots that are alive together don't overlap.

    beside: steps that run beside those behind them, until one of these reads their results. What
    they use is alive as long.

    Greedy by size, as in "Efficient memory management for deep neural net inference" (Pisarchyk
    and Lee, 2020): large slots first, each in the lowest gap that its lifetime leaves.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, step in enumerate(program.steps):
        for slot in (*step.outputs, *step.inputs):
            first.setdefault(slot, at)
            last[slot] = at
    for at in beside:
        own = program.steps[at]
        later = range(at + 1, len(program.steps))
        end = next(
            (k for k in later if not set(own.outputs).isdisjoint(program.steps[k].inputs)),
            len(program.steps),
        )
        for slot in (*own.outputs, *own.inputs):
            last[slot] = max(last[slot], end)
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
    """(root, leaf) -> the root's slot, for each leaf whose buffer the root may overwrite.

    The step that writes the root must be the last to read the leaf, and must read each element at
    the place where it writes. Neither it nor a later step may fail: a failed run must leave the
    buffers of leaves unchanged.
    """
    last_reader: dict[int, int] = {}
    last_writer: dict[int, int] = {}
    for at, step in enumerate(program.steps):
        last_reader.update(dict.fromkeys(step.inputs, at))
        last_writer.update(dict.fromkeys(step.outputs, at))
    safe = _first_safe(program)
    results = Counter(program.results)
    roots = {s: i for i, s in enumerate(program.results) if results[s] == 1}
    leaves = {s: leaf.attrs[0] for leaf, s in program.leaves.items() if s not in results}
    out: dict[tuple[int, int], int] = {}
    for at, step in enumerate(program.steps[safe:], safe):
        reads = Counter(step.inputs)
        for kernel, written, read in _by_member(step):
            sources = [
                (b, s)
                for b, s in zip(kernel.inputs, read, strict=True)
                if s in leaves and reads[s] == 1 and last_reader[s] == at
            ]
            targets = [
                (b, s)
                for b, s in zip(kernel.outputs, written, strict=True)
                if s in roots and last_writer[s] == at
            ]
            if sources and targets and not kernel.has_dot and not kernel.is_update:
                for source, target in _in_place(kernel, sources, targets):
                    if program.slots[source].shape == program.slots[target].shape:
                        out[roots[target], leaves[source]] = target
    return out


def takers(program: Program) -> dict[int, int]:
    """root -> its slot, for each root that may overwrite the buffer of a leaf that nobody reads,
    such as that of `x.zero_()`. As for donors, no step from the first that writes it on may fail.
    """
    results = Counter(program.results)
    early = {*program.leaves.values()}
    safe = _first_safe(program)
    for step in program.steps[:safe]:
        early.update(step.outputs)
    written = {slot for step in program.steps[safe:] for slot in step.outputs}
    return {
        i: slot
        for i, slot in enumerate(program.results)
        if slot in written and slot not in early and results[slot] == 1
    }


def _first_safe(program: Program) -> int:
    """The first step from which on nothing can fail."""
    found = 0
    for at, step in enumerate(program.steps, 1):
        # The user's code may do what it likes, and a library's routine may lack memory.
        foreign = isinstance(step.kernel, (External, Routine))
        if foreign or any(_may_fail(k) for k in _members(step.kernel)):
            found = at
    return found


def _by_member(step: Step) -> Iterator[tuple[Kernel, tuple[int, ...], tuple[int, ...]]]:
    """Each kernel of a launch with the slots of its outputs and inputs. Loops give none, as their
    steps read the results of other steps; neither do users' kernels and routines."""
    if isinstance(step.kernel, (Loop, External, Routine)):
        return
    output, input_ = 0, 0
    for kernel in _members(step.kernel):
        outputs, inputs = len(kernel.outputs), len(kernel.inputs)
        yield (
            kernel,
            step.outputs[output : output + outputs],
            step.inputs[input_ : input_ + inputs],
        )
        output, input_ = output + outputs, input_ + inputs


def _members(kernel: Kernel | Bundle | Loop | External | Routine) -> tuple[Kernel, ...]:
    """The generated kernels of a launch."""
    if isinstance(kernel, (External, Routine)):
        return ()
    if isinstance(kernel, Loop):
        return tuple(m for k in kernel.kernels for m in _members(k))
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def _may_fail(kernel: Kernel) -> bool:
    """Whether data can make a launch raise: positions read from data, integer divisions."""
    for store in kernel.stores:
        if any(data_values(store.offset)):
            return True
    for value in kernel.values:
        if any(True for index in value.indices() for _ in data_values(index)):
            return True
        if isinstance(value, Apply) and value.may_fail:
            return True
    return False


def _in_place(
    kernel: Kernel, sources: Sequence[tuple[Buffer, int]], targets: Sequence[tuple[Buffer, int]]
) -> Iterator[tuple[int, int]]:
    """(source, target) slots where the source is read only where the target is written."""
    places = {s.buffer: s.offset for s in reversed(kernel.stores)}
    offsets: dict[Buffer, set[Index]] = {}
    for value in kernel.values:
        if isinstance(value, Load):
            offsets.setdefault(value.buffer, set()).add(value.offset)
    for source, from_slot in sources:
        for target, to_slot in targets:
            if source.dtype is target.dtype and offsets[source] == {places[target]}:
                yield from_slot, to_slot
