"""One run of a segment: its launches in order, and the errors of those that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir.interruption import pass_on

from .arena import Arena
from .device import Device, Launch, Run, told
from .segment import CROSSING, Segment


def copy_of(
    source: Device, value: Any, copy: Callable[[Any, Device], Any], failures: list[Exception]
) -> Any:
    """A copy of `value`. An error stays as it is; if the copy fails, its error is returned."""
    if isinstance(value, Exception):
        return value
    try:
        return copy(value, source)
    except Exception as error:
        failures.append(told(error))
        return failures[-1]


_NO_RUN: tuple[Run | None, int] = (None, 0)


def as_one_call(segment: Segment) -> Callable[..., list[Any] | None] | None:
    """A function of buffers and scalars that runs the whole segment, if one call makes all its
    launches (or its only one) and no other work remains. It returns None if a launch fails; the
    caller then makes each launch by itself."""
    run, count = segment.runs.get(0, _NO_RUN)
    if run is None and len(segment.launches) == 1 and _may_repeat(segment):
        run, count = _alone(*segment.launches[0]), 1
    if run is None or count < len(segment.launches) or not segment.plain:
        return None
    inputs, makers, has_arena = segment.inputs, segment.makers, segment.arena_bytes > 0
    device = segment.device
    results = [slot for slot, _, _ in segment.results]
    lone = results[0] if len(results) == 1 else None
    blank: list[Any] = [None] * len(segment.program.slots)

    def whole(buffers: Sequence[Any], scalars: Sequence[Any]) -> list[Any] | None:
        try:
            slots = Arena.of(device).slots(segment) if has_arena else blank.copy()
            for slot, make in makers:
                slots[slot] = make()
        except MemoryError:
            return None
        for slot, source in inputs:
            slots[slot] = buffers[source]
        if device.concurrent:
            try:
                device.meet([slots[slot] for slot, _ in inputs], ())
            except Exception as error:
                pass_on(error)
                return None
        try:
            if run(slots, scalars) < count:
                return None
        except MemoryError:
            return None
        # A comprehension is a call, which counts in a run of one small kernel.
        return [slots[slot] for slot in results] if lone is None else [slots[lone]]

    return whole


def _may_repeat(segment: Segment) -> bool:
    """Whether a launch that failed may be made again: no kernel of the user, which may change what
    it reads, and no launch that waits, since that raises errors of earlier ones, once."""
    from tilewright.codegen.lower.external import External

    external = any(isinstance(step.kernel, External) for step in segment.program.steps)
    return not external and not any(getattr(each[0], "waits", False) for each in segment.launches)


def _alone(launch: Launch, used: Sequence[int], numbers: Sequence[int]) -> Run:
    """One launch as a run."""

    def run(slots: list[Any], scalars: Sequence[Any]) -> int:
        try:
            launch([slots[i] for i in used], [scalars[n] for n in numbers])
        except Exception as error:
            pass_on(error)
            return 0
        return 1

    return run


def run_segment(
    segment: Segment,
    buffers: Sequence[Any],
    scalars: Sequence[Any],
    crossed: dict[int, Any],
    given: Sequence[tuple[int, int]],
    failures: list[Exception],
) -> list[Any]:
    """The values of a segment's roots. An error takes the place of a missing value, and is added to
    `failures`.

    A run takes all memory before its first launch. Donated memory is overwritten only by steps from
    which on nothing can fail. So a failing run can go on with memory of its own (`_carry_on`), and
    leaves older buffers unchanged.
    """
    device = segment.device
    slots: list[Any] = [None] * len(segment.program.slots)
    has_room = True
    try:
        if segment.arena_bytes:
            slots = Arena.of(device).slots(segment)
        for slot, leaf in given:
            slots[slot] = buffers[leaf]
        for slot, make in segment.makers:
            if slots[slot] is None:
                slots[slot] = make()
    except MemoryError:
        has_room, slots = False, [None] * len(slots)
    for slot, source in segment.inputs:
        slots[slot] = buffers[source] if source < CROSSING else crossed[source]
    if device.concurrent and segment.launches:
        _meet(segment, slots, given, failures)
    launches, runs, done = segment.launches, segment.runs, 0
    count = 0 if failures or not has_room else len(launches)
    try:
        while done < count:
            run, together = runs.get(done, _NO_RUN)
            if run is not None:
                made = run(slots, scalars)
                done += made
                if made == together:
                    continue
            launch, used, numbers = launches[done]
            launch([slots[i] for i in used], [scalars[n] for n in numbers])
            done += 1
    except Exception as error:
        failures.append(told(error))
    if done < len(launches) or not has_room:
        met = failures[-1] if count else None
        written = {i for step in segment.program.steps[:done] for i in step.outputs}
        for slot, _ in given:
            if slot not in written:
                slots[slot] = None
        _carry_on(segment, slots, scalars, done, met, failures)
    if segment.plain:
        return [slots[slot] for slot, _, _ in segment.results]
    out = []
    for slot, shape, copied in segment.results:
        value = slots[slot]
        if copied:
            value = copy_of(device, value, device.copied, failures)
        if not (shape is None or isinstance(value, Exception)):
            value = value.reshape(shape)
        out.append(value)
    return out


def _meet(
    segment: Segment, slots: list[Any], given: Sequence[tuple[int, int]], failures: list[Exception]
) -> None:
    """Wait for work under way on the buffers that a run reads or writes. If it failed, its error
    takes the buffer's place."""
    for slot, _ in segment.inputs:
        try:
            segment.device.meet([slots[slot]], ())
        except Exception as error:
            pass_on(error)
            failures.append(error)
            slots[slot] = error
    segment.device.meet((), [slots[slot] for slot, _ in given if slots[slot] is not None])


def _carry_on(
    segment: Segment,
    slots: list[Any],
    scalars: Sequence[Any],
    at: int,
    error: Exception | None,
    failures: list[Exception],
) -> None:
    """Make the launches from `at` on one by one. `error` is that of the launch `at`, if it failed.
    Values that can't be computed are replaced by errors. Slots without memory get it when they are
    written, and temporaries are dropped after their last use."""
    device, steps = segment.device, segment.program.steps
    metas = {slot: meta for slot, (_, meta) in segment.arena_slots.items()}
    makers = dict(segment.makers)
    makers |= {slot: device.maker(meta.shape, meta.dtype) for slot, meta in metas.items()}
    last = {slot: k for k, (_, used, _) in enumerate(segment.launches) for slot in used}

    def give_memory(wanted: Iterable[int]) -> None:
        for slot in wanted:
            if slots[slot] is None and slot in makers:
                slots[slot] = makers[slot]()

    for k in range(at, len(segment.launches)):
        launch, used, numbers = segment.launches[k]
        failure: Exception | None = error if k == at else None
        failure = failure or next((s for i in used if isinstance(s := slots[i], Exception)), None)
        if failure is None:
            try:
                give_memory(used)
                launch([slots[i] for i in used], [scalars[n] for n in numbers])
            except Exception as other:
                failure = told(other)
                failures.append(failure)
        if failure is not None:
            for i in steps[k].outputs:
                slots[i] = failure
        for slot in used:
            if slot in metas and last[slot] == k:
                slots[slot] = None
    give_memory(slot for slot, _, _ in segment.results)  # no step writes empty results
