"""Work that is recorded once, and computed again and again on what its tensors then hold.

Between `begin` and `finish` calls are recorded and nothing is computed: that is one epoch, whose
plan is kept instead of run. What it reads and writes are storages, not buffers, so that it meets
whatever is in a tensor's memory by then; memory of its results is allocated once and is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, reachable
from tilewright.runtime import devices
from tilewright.runtime import plan as plans

from .. import recording
from ..functions.generator import default_generator, signed
from ..recording import flushing
from ..recording.epoch import (
    Failed,
    Handle,
    Storage,
    clock,
    counted,
    drawn,
    fallible,
    leaves,
    scalars,
    storage_of,
)
from ..recording.histories import History
from ..recording.keeping import histories_of, keep


class Program:
    """What a capture recorded.

    sources: for each leaf its storage, or the buffer of a snapshot.
    results: (root, memory, the storage whose it is, unless it is kept for a backward pass only).
    written: (root, leaf, storage) of the storages that it reads and overwrites.
    histories: how results were computed, for backward passes.
    """

    def __init__(self, roots: tuple[Node, ...]):
        self.plan = plans.plan_for(roots, tuple(filter(_is_of_gpu, fallible)))
        self.plan.hasten()
        self.sources: list[Any] = [
            buffer if state is None else state for state, _, buffer in leaves
        ]
        self.results: list[tuple[int, Any, Storage | None]] = []
        self.written: list[tuple[int, int, Storage]] = []
        self.histories: list[History] = []
        self._numbers, self._drawn, self._counted = list(scalars), dict(drawn), list(counted)

    @property
    def launches(self) -> int:
        return self.plan.launches

    def run(self) -> None:
        """Compute everything anew, in place."""
        recording.claim()
        if clock.capturing or clock.holding:
            where = "a capture" if clock.capturing else "a hook or the backward of a Function"
            raise RuntimeError(f"CUDAGraph.replay() can't be called in {where}{at_user_line()}")
        flushing.flush()
        buffers = [_buffer_of(source) for source in self.sources]
        # Its storage, the list and the argument refer to memory that nobody else looks at.
        donated = tuple([(r, p) for r, p, _ in self.written if getrefcount(buffers[p]) == 3])
        homes, count = self.plan.homes, len(buffers)
        into = tuple([(r, count + i) for i, (r, _, _) in enumerate(self.results) if r in homes])
        buffers += [memory for _, memory, _ in self.results]
        error: Exception | None = None
        try:
            values = self.plan.run(buffers, self._next_numbers(), donated, into)
        except plans.Incomplete as incomplete:
            values, error = incomplete.values, incomplete.error
        del buffers
        self._hand_out(values)
        if error is not None:
            raise error

    def _next_numbers(self) -> list[Any]:
        """Those of a run: random draws and steps of optimizers go on, the rest is as captured."""
        for place, (what, generator) in self._drawn.items():
            draws = what == "offset"
            self._numbers[place] = generator._take() if draws else signed(generator._seed)
        for place, states, numbers in self._counted:
            found = numbers(_count(states, 1))
            self._numbers[place : place + len(found)] = found
        for history in self.histories:
            for node in history.scalar_values:
                history.scalar_values[node] = self._numbers[node.attrs[0]]
        return self._numbers

    def _hand_out(self, values: Sequence[Any]) -> None:
        for root, memory, storage in self.results:
            value = values[root]
            if isinstance(value, Exception):
                continue
            if value.pointer != memory.pointer:  # of what can't be computed in place
                _device_of(self.plan.recorded[root]).overwrite(memory, value)
            if storage is not None:
                storage._buffer = memory.reshape(value.shape)
                storage._changes += 1
        for root, _, storage in self.written:
            if not isinstance(values[root], Exception):
                storage._buffer = values[root]
                storage._changes += 1
        # What is saved of the results is that of this run.
        own = {id(storage) for _, _, storage in self.results if storage is not None}
        for history in self.histories:
            for node, (kept, owner, _) in history.saved.items():
                if id(owner) in own:
                    history.saved[node] = kept, owner, owner._changes


_begun: tuple[Any, int] | None = None  # what `flushing.resume` wants, and the seed then


def begin() -> None:
    """Record what comes for a Program; nothing is computed until `finish` or `abandon`."""
    global _begun
    recording.claim()
    if clock.capturing:
        raise RuntimeError(
            "a capture is under way already: graphs can't be captured inside each other"
            f"{at_user_line()}"
        )
    if clock.holding:
        raise RuntimeError(
            f"a graph can't be captured in a hook or the backward of a Function{at_user_line()}"
        )
    _begun = flushing.suspend(_refusal), default_generator._seed
    clock.capturing = True


def abandon() -> None:
    """Forget what was recorded: nothing has happened."""
    _undo()
    _end()
    flushing.drop()


def finish() -> Program | None:
    """What was recorded; None if it is nothing for a GPU.

    Results get their memory, which holds garbage until the first run. What is computed on the host
    has its value already.
    """
    try:
        program = _finish()
    except BaseException:
        abandon()
        raise
    _end()
    return program


def _end() -> None:
    global _begun
    if _begun is not None:
        flushing.resume(_begun[0])
    _begun, clock.capturing = None, False


def _undo() -> None:
    """Take back what was counted: draws and steps are made by runs."""
    for what, generator in drawn.values():
        if what == "offset":
            generator._offset -= 1
    for _, states, _ in counted:
        _count(states, -1)


def _count(states: Sequence[dict[str, Any]], by: int) -> int:
    """The step that optimizer states have come to; 0 for those that count none."""
    for state in states:
        state["step"] += by
    return states[0]["step"] if states else 0


def _refusal(node: Node | None) -> Exception | None:
    """Values on the host can be had, those of a GPU can't."""
    if node is not None and not _is_of_gpu(node):
        return None
    return RuntimeError(
        "CUDA error: operation not permitted when stream is capturing: a value is needed (item(), "
        "numpy(), print, a branch on a tensor) or a device waited for inside of torch.cuda.graph, "
        f"where work is recorded and nothing computed; do it before or after the block"
        f"{at_user_line()}"
    )


def _finish() -> Program | None:
    if default_generator._seed != _begun[1]:  # type: ignore[index]
        raise RuntimeError(
            "a random generator was seeded while a graph was captured: each replay draws on from "
            f"where the generator is; seed it before{at_user_line()}"
        )
    _share()
    live, replaced = flushing._live()
    nodes = tuple([state._node for state in live])
    outcome = flushing._Outcome(nodes)
    histories = histories_of(live, nodes, outcome.tracked)
    kept = {i: h for i, h in histories.items() if not h.is_freed}
    roots = (*nodes, *dict.fromkeys(n for h in kept.values() for n in h.saved_nodes))
    own = [i for i, n in enumerate(roots) if (n.device or "cpu").startswith("cuda")]
    values = _host_values(roots, set(own), replaced)
    program = _program(roots, own, values, live, dict(replaced)) if own else None
    if program is not None:
        program.histories = list(kept.values())
        for history in program.histories:
            history.is_captured = True
    keep(kept, roots, values, live)
    flushing._hand_out(live, outcome, histories, values, False)
    _undo()
    flushing._end_epoch()
    return program


def _share() -> None:
    """Give every tensor that is read or is a result a storage: the program knows memory only."""
    flushing._forget_views()
    states = [*flushing._live()[0], *[state for state, _, _ in leaves if state is not None]]
    for state in states:
        if isinstance(state, Handle):
            storage_of(state)
    flushing._forget_views()


def _host_values(
    roots: tuple[Node, ...], own: set[int], replaced: Sequence[tuple[int, int]]
) -> list[Any]:
    """The values of roots that are none of a GPU, computed now; None for the others (`own`)."""
    host = [i for i in range(len(roots)) if i not in own]
    if any(_is_of_gpu(roots[i]) for i in host):
        raise RuntimeError(
            "CUDA error: operation not permitted when stream is capturing: a copy from the GPU to "
            "the host can't be captured; make it after the replay, of a tensor of the graph"
            f"{at_user_line()}"
        )
    changed = {leaf for root, leaf in replaced if root not in own}
    read = {n.attrs[0] for n in reachable([roots[i] for i in own]) if n.op is ops.leaf}
    if changed & read:
        raise RuntimeError(
            "a tensor on the host is changed in a capture, and read by the GPU's work: each replay "
            f"would meet another value; change it before{at_user_line()}"
        )
    values: list[Any] = [None] * len(roots)
    if host:
        try:
            checked = tuple([n for n in fallible if not _is_of_gpu(n)])
            plan = plans.plan_for(tuple([roots[i] for i in host]), checked)
            found = plan.run([buffer for _, _, buffer in leaves], scalars)
        except plans.Incomplete as incomplete:
            raise incomplete.error from None
        for i, value in zip(host, found, strict=True):
            values[i] = value
    return values


def _program(
    roots: tuple[Node, ...],
    own: Sequence[int],
    values: list[Any],
    live: Sequence[Storage],
    replaced: dict[int, int],
) -> Program:
    """The program of the GPU's roots (`own`), whose `values` become the memory they will be in."""
    program = Program(tuple([roots[i] for i in own]))
    for root, i in enumerate(own):
        node = roots[i]
        if i in replaced:
            place = replaced[i]
            values[i] = leaves[place][2]
            program.written.append((root, place, live[i]))
        else:
            shape = tuple(node.shape)
            memory = _device_of(node).empty(program.plan.homes.get(root, shape), node.dtype)
            storage = live[i] if i < len(live) else None
            program.results.append((root, memory, storage))
            values[i] = memory.reshape(shape)
    return program


def _buffer_of(source: Any) -> Any:
    """The memory of a leaf now."""
    if not isinstance(source, Storage):
        return source
    if type(source._buffer) is Failed:
        raise source._buffer.error()
    return source._buffer


def _is_of_gpu(node: Node) -> bool:
    return any((n.device or "cpu").startswith("cuda") for n in reachable((node,)))


def _device_of(node: Node) -> Any:
    return devices.get(node.device or "cpu")
