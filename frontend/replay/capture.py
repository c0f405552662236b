"""Captures: work that is recorded once and computed many times, on the present values of its
tensors.

Between `begin` and `finish` calls are recorded and nothing is computed. This is one epoch, whose
plan is kept instead of run. A capture reads and writes storages, not buffers, so each run uses the
current memory of its tensors. The memory of its results is allocated once and belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, reachable
from tilewright.runtime import devices, tiers
from tilewright.runtime.plan import Incomplete

from .. import recording
from ..functions.generator import default_generator, signed
from ..recording import flushing
from ..recording.epoch import clock, counted, drawn, fallible, leaves, scalars
from ..recording.histories import Held, History
from ..recording.keeping import histories_of, keep
from ..recording.resolving import storage_of
from ..recording.states import Failed, Handle, Storage


class Program:
    """A recorded capture.

    sources: for each leaf its storage, or the buffer of a snapshot.
    results: (root, memory, its storage) of each result. The storage is None for values kept only
        for a backward pass.
    written: (root, leaf, storage) of the storages that it reads and overwrites.
    histories: of the results, for backward passes.
    """

    def __init__(self, roots: tuple[Node, ...]):
        self.plan = tiers.compiled_for(roots, tuple(filter(_is_of_gpu, fallible)))
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
        """Compute all results again, in place."""
        recording.claim()
        if clock.capturing or clock.holding:
            where = "a capture" if clock.capturing else "a hook or the backward of a Function"
            raise RuntimeError(f"CUDAGraph.replay() can't be called in {where}{at_user_line()}")
        flushing.flush()
        buffers = [_buffer_of(source) for source in self.sources]
        # Three references: the storage, the list and the argument. Then nobody else uses the
        # memory.
        donated = tuple([(r, p) for r, p, _ in self.written if getrefcount(buffers[p]) == 3])
        homes, count = self.plan.homes, len(buffers)
        into = tuple([(r, count + i) for i, (r, _, _) in enumerate(self.results) if r in homes])
        buffers += [memory for _, memory, _ in self.results]
        error: Exception | None = None
        try:
            values = self.plan.run(buffers, self._next_numbers(), donated, into)
        except Incomplete as incomplete:
            values, error = incomplete.values, incomplete.error
        del buffers
        self._hand_out(values)
        if error is not None:
            raise error

    def _next_numbers(self) -> list[Any]:
        """The numbers of the next run. Random draws and optimizer steps advance; others are as
        captured."""
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
            if value.pointer != memory.pointer:  # it couldn't be computed in place
                _device_of(self.plan.recorded[root]).overwrite(memory, value)
            if storage is not None:
                storage._buffer = memory.reshape(value.shape)
                storage._changes += 1
        for root, _, storage in self.written:
            if not isinstance(values[root], Exception):
                storage._buffer = values[root]
                storage._changes += 1
        # The saved results are now those of this run.
        own = {id(storage) for _, _, storage in self.results if storage is not None}
        for history in self.histories:
            for node, held in history.saved.items():
                if held.owner is not None and id(held.state) in own:
                    history.saved[node] = Held.of(held.tensor, held.owner)


_begun: tuple[Any, int] | None = None  # (argument of `flushing.resume`, the seed at `begin`)


def begin() -> None:
    """Start to record a Program. Nothing is computed until `finish` or `abandon`."""
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
    clock.change(capturing=True)


def abandon() -> None:
    """Forget everything recorded since `begin`."""
    _undo()
    _end()
    flushing.drop()


def finish() -> Program | None:
    """Return the recorded Program; None if it has no work for a GPU.

    Results get memory with unspecified contents until the first run. Values computed on the host
    are ready.
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
    _begun = None
    clock.change(capturing=False)


def _undo() -> None:
    """Undo the counting of draws and steps, which only runs should count."""
    for what, generator in drawn.values():
        if what == "offset":
            generator._offset -= 1
    for _, states, _ in counted:
        _count(states, -1)


def _count(states: Sequence[Any], by: int) -> int:
    """Advance the step of optimizer states and return it; 0 without states."""
    for state in states:
        state.count += by
        state.write()
    return states[0].count if states else 0


def _refusal(node: Node | None) -> Exception | None:
    """Refuse values of a GPU; those of the host can be computed."""
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
    histories, kept = histories_of(live, nodes, outcome.tracked)
    roots = (*nodes, *dict.fromkeys(n for h in kept for n in h.saved_nodes))
    own = [i for i, n in enumerate(roots) if (n.device or "cpu").startswith("cuda")]
    values = _host_values(roots, set(own), replaced)
    program = _program(roots, own, values, live, dict(replaced)) if own else None
    if program is not None:
        program.histories = kept
        for history in program.histories:
            history.is_captured = True
    keep(kept, roots, values, live)
    flushing._hand_out(live, outcome, histories, values, False)
    _undo()
    flushing._end_epoch()
    return program


def _share() -> None:
    """Give a storage to every tensor that is read or is a result: a program knows only memory."""
    flushing._forget_views()
    states = [*flushing._live()[0], *[state for state, _, _ in leaves if state is not None]]
    for state in states:
        if isinstance(state, Handle):
            storage_of(state)
    flushing._forget_views()


def _host_values(
    roots: tuple[Node, ...], own: set[int], replaced: Sequence[tuple[int, int]]
) -> list[Any]:
    """Compute the roots on the host now. Roots of a GPU (`own`) get None."""
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
            plan = tiers.plan_for(tuple([roots[i] for i in host]), checked)
            found = plan.run([buffer for _, _, buffer in leaves], scalars)
        except Incomplete as incomplete:
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
    """The program of the GPU's roots (`own`). Their entries in `values` become their memory."""
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
    """The current memory of a leaf."""
    if not isinstance(source, Storage):
        return source
    if type(source._buffer) is Failed:
        raise source._buffer.error()
    return source._buffer


def _is_of_gpu(node: Node) -> bool:
    return any((n.device or "cpu").startswith("cuda") for n in reachable((node,)))


def _device_of(node: Node) -> Any:
    return devices.get(node.device or "cpu")
