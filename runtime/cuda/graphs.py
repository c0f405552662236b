"""CUDA graphs: one call of the driver makes all launches of a repeated plan.

After a few repeats a run becomes a graph of its launches, in which small kernels that share no
memory may run at the same time (`branches.py`). Before each further launch of the graph, only the
launches whose buffers or numbers changed get new parameters. In a training step these are few, as
weights and temporaries keep their places.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.ir.interruption import pass_on

from .. import debug
from ..arena import Arena
from ..device import Bound, Launch, Run
from ..driver import CudaError, Edge
from ..loops import BoundLoop
from . import driver
from .branches import Use, is_new, predecessors, sharing
from .launch import WARM, Launcher, Ready, settle
from .memory import Buffer, Memory

if TYPE_CHECKING:
    from .device import Cuda

_LEAST, _MOST = 3, 1 << 14
"""The least and the most launches of a graph. Setting up a longer loop would cost more memory and
time than the graph saves."""

BRANCHES = True
"""Whether small kernels that share no memory may run at the same time."""
_REBUILT = 4
"""Graphs that are made of a run, as its buffers come to share memory, before the next one is a
chain, which any sharing suits."""

_PROGRAMMATIC = 1  # CU_GRAPH_KERNEL_NODE_PORT_…, CU_GRAPH_DEPENDENCY_TYPE_…

Call = tuple[Launcher, Sequence[Buffer], Sequence[Any]]


def replays(device: Cuda, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
    """A Replay for each unbroken sequence of GPU launches: place of the first -> (Replay, how
    many)."""
    out: dict[int, tuple[Run, int]] = {}
    start = 0
    for end in range(len(launches) + 1):
        if end == len(launches) or not _is_native(launches[end][0]):
            found = launches[start:end]
            if _LEAST <= sum(_count(launch) for launch, _, _ in found) <= _MOST:
                out[start] = Replay(device, found), len(found)
            start = end + 1
    return out


def _is_native(launch: Launch) -> bool:
    if isinstance(launch, BoundLoop):
        return all(_is_native(each) for each, _ in launch.launches)
    return isinstance(launch, Launcher)


def _count(launch: Launch) -> int:
    if isinstance(launch, BoundLoop):
        return launch.loop.count * sum(_count(each) for each, _ in launch.launches)
    return 1


def _launchers(launches: Iterable[Launch]) -> Iterator[Launcher]:
    """The launchers within launches."""
    for each in launches:
        if isinstance(each, BoundLoop):
            yield from _launchers(inner for inner, _ in each.launches)
        elif isinstance(each, Launcher):
            yield each


def calls(launch: Any, buffers: Sequence[Buffer], scalars: Sequence[Any]) -> Iterator[Call]:
    """The kernel launches within a launch, in order."""
    if isinstance(launch, BoundLoop):
        for each, used in launch.steps(buffers):
            yield from calls(each, used, ())
    else:
        yield launch, buffers, scalars


class Replay:
    """Repeated launches of a plan: run(slots, scalars)."""

    def __init__(self, device: Cuda, launches: Sequence[Bound]):
        self.device, self.launches = device, launches
        by_slot: dict[int, list[int]] = {}  # the launches that use each slot, and each number
        by_number: dict[int, list[int]] = {}
        for i, (_, used, numbers) in enumerate(launches):
            for s in used:
                by_slot.setdefault(s, []).append(i)
            for n in numbers:
                by_number.setdefault(n, []).append(i)
        self._slots, self._numbers = list(by_slot), list(by_number)
        self._users = [*by_slot.values(), *by_number.values()]
        self._runs = 0
        self._refused = False  # by the driver
        self._graphs: dict[int, Graph] = {}  # by stream: runs of one graph never overlap
        self._made = 0

    def hasten(self) -> None:
        """Make the next run a graph already."""
        self._runs = max(self._runs, WARM)

    def __call__(self, slots: list[Any], scalars: Sequence[Any]) -> int:
        self._runs += 1
        if self._runs <= WARM or self._refused:
            return self._directly(slots, scalars)
        stream = self.device.context.stream
        try:
            graph = self._set(stream, slots, scalars)
        except Exception as reason:
            pass_on(reason)
            # Nothing was launched. A graph that is only partly set is not used again.
            self._graphs.pop(stream, None)
            self._refused = isinstance(reason, CudaError)
            if self._refused:
                debug.say(f"launches are not made a graph: {reason}")
            return self._directly(slots, scalars)
        graph.launch()
        return len(self.launches)

    def _set(self, stream: int, slots: list[Any], scalars: Sequence[Any]) -> Graph:
        """The graph for these buffers and numbers: a new one, or the last one updated."""
        state: list[Any] = [slots[i].pointer for i in self._slots]
        if self._numbers:
            state += [repr(scalars[n]) for n in self._numbers]  # as text: a NaN equals itself
        graph = self._graphs.get(stream)
        if graph is not None and state != graph.state and graph.sharing:
            # Launches that share memory now may not be ordered.
            pattern = sharing([slots[i] for i in self._slots])
            graph = None if is_new(pattern, graph.sharing) else graph
        if graph is None:
            self._made += 1
            settle(_launchers(launch for launch, _, _ in self.launches))
            branches = BRANCHES and self._made <= _REBUILT
            graph = Graph(
                self.device, self._calls(range(len(self.launches)), slots, scalars), branches
            )
            if graph.is_branched:
                graph.sharing = sharing([slots[i] for i in self._slots])
            self._graphs[stream] = graph
        elif state != graph.state:
            touched: set[int] = set()
            for users, new, old in zip(self._users, state, graph.state, strict=True):
                if new != old:
                    touched.update(users)
            graph.update(self._calls(sorted(touched), slots, scalars))
        graph.state = state
        return graph

    def _directly(self, slots: list[Any], scalars: Sequence[Any]) -> int:
        """Make the launches one by one; how many succeeded."""
        for done, (launch, used, numbers) in enumerate(self.launches):
            try:
                launch([slots[i] for i in used], [scalars[n] for n in numbers])
            except Exception as error:
                pass_on(error)
                return done
        return len(self.launches)

    def _calls(
        self, which: Sequence[int], slots: list[Any], scalars: Sequence[Any]
    ) -> Iterator[tuple[int, Call]]:
        """(number of the launch, call) for each kernel of the launches `which`."""
        for i in which:
            launch, used, numbers = self.launches[i]
            bound = [slots[s] for s in used]
            for call in calls(launch, bound, [scalars[n] for n in numbers]):
                yield i, call


class Graph:
    """Kernel calls as an executable graph.

    branches: whether small kernels that share no memory may run at the same time. is_branched:
    whether some do. state: the addresses and numbers that they have now. sharing: which buffers
    share memory, if the order of the launches depends on it.
    """

    state: Sequence[int | str] = ()
    sharing: Sequence[int] = ()

    def __init__(self, device: Cuda, made: Iterator[tuple[int, Call]], branches: bool = False):
        self.device, self.driver = device, device.driver
        self.handle = self._graph = 0
        device.context.use()
        # By launch: the nodes of its kernels, and the memory that these keep alive.
        self._nodes: dict[int, list[int]] = {}
        self._kept: dict[int, Memory | None] = {}
        self._accounted: dict[Launcher, None] = {}
        found = list(made)
        chain: list[list[int]] = [[i - 1] if i else [] for i in range(len(found))]
        after = predecessors(self._uses(found), Arena.of(device).memory) if branches else chain
        self.is_branched = after != chain
        # Kept too: its nodes name those of the executable graph.
        self._graph = self.driver.handle("cuGraphCreate", 0)
        nodes: list[int] = []
        for (number, (launcher, buffers, scalars)), before in zip(found, after, strict=True):
            ready, table = launcher.pack(buffers, scalars)
            node = self._added(ready, [nodes[i] for i in before], launcher.emitted.early)
            nodes.append(node)
            self._nodes.setdefault(number, []).append(node)
            self._kept[node] = table
            if launcher.constants:
                self._accounted[launcher] = None
        self.handle = self.driver.handle("cuGraphInstantiateWithFlags", self._graph, 0)

    def _added(self, ready: Ready, before: Sequence[int], early: bool) -> int:
        """A new node behind others. early: whether its programs may start while those end."""
        count = len(before)
        waits = (ctypes.c_void_p * count)(*before)
        add = partial(self.driver.handle, "cuGraphAddKernelNode_v2", self._graph)
        if not (before and early and hasattr(self.driver, "cuGraphAddDependencies_v2")):
            return add(waits if before else None, count, ready.node)
        node = add(None, 0, ready.node)
        edges = (Edge * count)(*[Edge(_PROGRAMMATIC, 0, _PROGRAMMATIC)] * count)
        own = (ctypes.c_void_p * count)(*[node] * count)
        self.driver.cuGraphAddDependencies_v2(self._graph, waits, own, edges, count)
        return node

    def _uses(self, made: Sequence[tuple[int, Call]]) -> Iterator[Use]:
        """What the calls use. The steps of a loop are a chain."""
        most = self.device.target.chip.multiprocessors
        times = Counter(number for number, _ in made)
        for number, (launcher, buffers, _) in made:
            if times[number] > 1 or launcher.programs >= most:
                yield Use(fills=True)
                continue
            count = len(buffers) if launcher.outputs is None else launcher.outputs
            own = launcher if launcher.words is not None or launcher.scratch else None
            yield Use(buffers[:count], buffers[count:], own)

    def update(self, made: Iterator[tuple[int, Call]]) -> None:
        """Set new buffers and numbers for all calls of some launches."""
        self.device.context.use()
        at: dict[int, int] = {}
        for number, (launcher, buffers, scalars) in made:
            place = at.get(number, 0)
            at[number] = place + 1
            node = self._nodes[number][place]
            ready, self._kept[node] = launcher.pack(buffers, scalars)
            self.driver.cuGraphExecKernelNodeSetParams_v2(self.handle, node, ready.node)

    def launch(self) -> None:
        self.device.context.use()
        self.driver.cuGraphLaunch(self.handle, self.device.context.stream)
        for launcher in self._accounted:
            launcher.launched()

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # The driver finishes running work before it destroys a graph. An ending interpreter has
        # cleared this module's names.
        if ending() or driver.forked():
            return
        with suppress(CudaError):  # of a lost GPU: nobody waits for this call
            if self.handle:
                self.driver.cuGraphExecDestroy(self.handle)
            if self._graph:
                self.driver.cuGraphDestroy(self._graph)
