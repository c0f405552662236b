"""Launches: an emitted kernel bound to its machine code, as a function of buffers and scalars."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.structure import starts
from tilewright.codegen.llvm import DEFAULT, CannotLower, Emitted, Schedule, emit, form_of

from ..device import Bound, Launch, Run
from . import emissions, entries, host, jit
from .calls import entry, kind_of
from .pack import Layout
from .pool import pool

_MOVES, _TEMPLATE, _PHASES, _ENDS, _SPACE, _SPACE_PLACE, _FIRST = (
    entries.DESCRIPTOR.index(word)
    for word in ("moves", "template", "phases", "phase_ends", "space", "space_place", "first")
)


def emitted(kernel: Kernel | Bundle, schedule: Schedule = DEFAULT) -> list[Emitted]:
    """The members of a kernel as LLVM IR; CannotLower if it can't be native."""
    known = emissions.load(kernel, schedule)
    if known is None:
        known = _emit(kernel, schedule)
        emissions.keep(kernel, schedule, known)
    return known


def _emit(kernel: Kernel | Bundle, schedule: Schedule) -> list[Emitted]:
    machine = host.machine()
    if isinstance(kernel, Kernel):
        return [emit(kernel, machine, schedule=schedule)]
    # All members take the form of the largest one, so that they share its code.
    form = form_of(kernel.largest, machine, schedule=schedule)
    return [emit(m, machine, form, schedule) for m in kernel.members]


def compile_kernel(kernel: Kernel | Bundle) -> Launch:
    """The native launch of a kernel; CannotLower if it can't be native."""
    return bind(kernel, emitted(kernel))


def bind(kernel: Kernel | Bundle, emitted: Sequence[Emitted]) -> Launch:
    """The launch of a kernel whose members were emitted."""
    linked = jit.link_all([e.code for e in emitted], "kernel")
    return Native(kernel, emitted, linked)


class Native:
    """A launch: a descriptor and the tables that it points to."""

    def __init__(
        self, kernel: Kernel | Bundle, emitted: Sequence[Emitted], linked: Sequence[jit.Linked]
    ):
        self.linked = linked  # the code stays as long as the launch
        functions = [each.addresses["kernel"] for each in linked]
        is_bundle = isinstance(kernel, Bundle)
        members = kernel.members if isinstance(kernel, Bundle) else (kernel,)
        slots = {v.slot: i for i, v in enumerate(kernel.scalars)}
        outputs = sum(len(m.outputs) for m in members)
        chunks = sum(e.chunks for e in emitted)
        # Members of a bundle run side by side.
        phases = (chunks,) if is_bundle else emitted[0].phases
        self.space = 0 if is_bundle else emitted[0].workspace
        space_place = 0
        self.tables: list[Any] = []
        words: list[int] = []
        moves: list[int] = []
        self.errors: list[int] = []
        self.checks = [c for e in emitted for c in e.checks]
        places = [0] * (outputs + sum(len(m.inputs) for m in members))
        if is_bundle:
            table = []
            words.append(0)
        function = functions[0]
        output, input_ = 0, outputs
        for member, each, native in zip(members, emitted, functions, strict=True):
            start, begins = len(words), starts(member)
            if is_bundle:
                table += [n for c in range(each.chunks) for n in (native, start, c)]
            for place, word in enumerate(each.words, start):
                words.append(int(word.value) if word.role == "size" else 0)
                if word.role == "buffer":
                    own = word.value < len(member.outputs)
                    which = (
                        output + word.value if own else input_ + word.value - len(member.outputs)
                    )
                    places[which] = place
                elif word.role == "scalar":
                    assert word.dtype is not None
                    slot = member.scalars[word.value].slot
                    moves += [slots[slot], place, kind_of(word.dtype)]
                elif word.role == "start":
                    words[place] = begins[word.value]
                elif word.role == "workspace":
                    space_place = place
                elif word.role == "table":
                    self.tables.append(np.frombuffer(word.value, np.uint8))
                    words[place] = self.tables[-1].ctypes.data
            flags = [i for i, w in enumerate(each.words, start) if w.role == "error"]
            self.errors += flags[::2]
            output += len(member.outputs)
            input_ += len(member.inputs)
        if is_bundle:
            self.table = np.array(table, np.int64)
            words[0] = self.table.ctypes.data
            function = pool().native["tw_bundle"]
        self.places = np.array(places or [0], np.int64)
        self.moves = np.array(moves or [0], np.int64)
        self.error_places = np.array(self.errors or [0], np.int64)
        self.template = np.array(words, np.int64)
        self.ends = np.cumsum(np.array(phases, np.int64))
        self.descriptor = np.array(
            [
                function,
                chunks,
                len(words),
                len(places),
                len(moves) // 3,
                len(self.errors),
                self.places.ctypes.data,
                self.moves.ctypes.data,
                self.error_places.ctypes.data,
                self.template.ctypes.data,
                int(any(n > 1 for n in phases)),
                len(phases),
                self.ends.ctypes.data,
                self.space,
                space_place,
                0,
            ],
            np.int64,
        )
        self.prepared = None if is_bundle else emitted[0].prepared
        self._outputs = outputs
        self._entry = entry("tw_launch", self.descriptor.ctypes.data)
        if chunks > 1:
            pool().start()

    def __call__(self, buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        words = self._entry(buffers, scalars)
        if words is not None:
            self.fail(words)

    def repeated(self, fixed: Sequence[bool]) -> tuple[Native, Native]:
        """One launch for the first step of a loop, and one for the later steps. fixed: which
        buffers are the same in every step. The first launch prepares data from these buffers, and
        the later ones reuse it."""
        if self.prepared is None or not all(fixed[self._outputs + i] for i in self.prepared):
            return self, self
        memory = np.empty(self.space + 63, np.uint8)
        first, again = (self._within(memory) for _ in range(2))
        again.descriptor[_PHASES] -= 1
        again.descriptor[_ENDS] += again.ends.itemsize
        again.descriptor[_FIRST] = again.ends[0]
        return first, again

    def _within(self, memory: np.ndarray) -> Native:
        """This launch, with a workspace of its own."""
        other = copy.copy(self)
        other.tables = [*self.tables, memory]
        other.template, other.descriptor = self.template.copy(), self.descriptor.copy()
        other.template[self.descriptor[_SPACE_PLACE]] = -(-memory.ctypes.data // 64) * 64
        other.descriptor[_TEMPLATE] = other.template.ctypes.data
        other.descriptor[_SPACE] = 0
        other._entry = entry("tw_launch", other.descriptor.ctypes.data)
        return other

    def fail(self, words: bytes) -> None:
        """Raise the first error.

        The chunks ran in any order, so this runs them again one by one, up to the one that fails.
        """
        held = np.frombuffer(words, np.int64).copy()
        held[self.errors] = 0
        if self.space:
            memory = np.empty(self.space + 63, np.uint8)
            held[self.descriptor[_SPACE_PLACE]] = -(-memory.ctypes.data // 64) * 64
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(int(self.descriptor[0]))
        for chunk in range(int(self.descriptor[1])):
            run(held.ctypes.data, chunk)
            if held[self.errors].any():
                break
        for place, check in zip(self.errors, self.checks):
            if held[place]:
                raise check.error(int(held[place + 1]))


def layout_of(
    kernel: Kernel, emitted: Emitted, size: int, order: Sequence[int], results: Sequence[int]
) -> Layout:
    """The words of a kernel of one axis that was emitted for `size` elements; CannotLower if it is
    none. order: the operand that each input is. results: the result that each output is."""
    words = emitted.words
    sizes = [i for i, w in enumerate(words) if w.role == "size"]
    roles = {w.role for w in words} - {"buffer", "scalar", "size"}
    flat = len(sizes) == 3 and words[sizes[0]].value == size
    if roles or emitted.workspace or not flat or emitted.phases != (words[sizes[1]].value,):
        raise CannotLower("not a kernel of one axis")
    scalars = []
    for place, word in enumerate(words):
        if word.role == "scalar":
            assert word.dtype is not None
            scalars.append((kernel.scalars[word.value].slot, place, kind_of(word.dtype)))
    buffers = tuple([i for i, w in enumerate(words) if w.role == "buffer"])
    at: Any = tuple(sizes)
    return Layout(len(words), buffers, at, tuple(scalars), tuple(order), tuple(results))


def _run(launches: Sequence[Bound]) -> Run:
    """One call that makes several launches over the slots of a plan. It walks through tables."""
    layouts = [launch for launch, _, _ in launches]
    places = [np.array(each or (0,), np.int64) for _, *both in launches for each in both]
    addresses = iter([each.ctypes.data for each in places])
    words = [len(launches)]
    for layout in layouts:
        words += [layout.descriptor.ctypes.data, next(addresses), next(addresses)]  # type: ignore[attr-defined]
    table = np.array(words, np.int64)
    run: Run = entry("tw_sequence", table.ctypes.data, (table, places, layouts))
    return run


def runs(launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
    """Each unbroken sequence of native launches as one call; see `Device.runs`."""
    found: dict[int, tuple[Run, int]] = {}
    begin = 0
    while begin < len(launches):
        end = begin
        while end < len(launches) and isinstance(launches[end][0], Native):
            end += 1
        if end > begin:
            found[begin] = _run(launches[begin:end]), end - begin
        begin = max(end, begin + 1)
    return found


def steps_of_loop(launches: Sequence[tuple[Launch, Launch, tuple[int, ...]]], slots: int) -> Any:
    """One call for the launches of all steps of a loop; see `Device.loop`."""
    if not all(
        isinstance(each, Native) and not each.errors and not each.descriptor[_MOVES]
        for first, later, _ in launches
        for each in (first, later)
    ):
        return None
    used = [np.array(slots_of or (0,), np.int64) for *_, slots_of in launches]
    words = [len(launches), slots]
    for (first, later, _), places in zip(launches, used, strict=True):
        both = (first.descriptor, later.descriptor)  # type: ignore[attr-defined]
        words += [*(each.ctypes.data for each in both), places.ctypes.data]
    table = np.array(words, np.int64)
    return entry("tw_loop", table.ctypes.data, (table, used, launches))
