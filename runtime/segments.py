"""Makes the segments of a plan: cuts the graph by device, compiles the parts and plans their
memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.codegen.program import Program, compile_graph
from tilewright.ir import ops
from tilewright.ir.node import Node, intern, reachable
from tilewright.ir.op import Kind
from tilewright.ir.rewrite import substitute

from .device import Device
from .loops import launches_of
from .placement import donors, place, takers
from .segment import CROSSING, Segment


def segments_of(
    roots: Sequence[Node],
    places: Sequence[str],
    crossings: dict[Node, int],
    device: Callable[[str], Device],
) -> list[Segment]:
    """One segment for each device and depth of transfers, in the order of their runs.

    places: the name of each root's device. crossings: receives the number of each transfer.
    device: returns the device with a name.
    """
    nodes = reachable(roots)
    depth: dict[Node, int] = {}
    for node in nodes:
        below = max((depth[o] for o in node.operands), default=0)
        depth[node] = below + (node.op.kind is Kind.TRANSFER)
    wanted: dict[tuple[int, str], dict[Node, None]] = {}
    for root, where in zip(roots, places, strict=True):
        wanted.setdefault((depth[root], where), {})[root] = None
    for node in nodes:
        if node.op.kind is Kind.TRANSFER:
            source = node.operands[0]
            wanted.setdefault((depth[source], source.device or "cpu"), {})[source] = None
            crossings[node] = CROSSING + len(crossings)
    stops = stand_ins(crossings)
    handed_out = set(zip(places, roots))
    out = []
    for (_, name), members in sorted(wanted.items(), key=lambda item: item[0][0]):
        kept = {r for r in members if (name, r) in handed_out}
        out.append(_segment(device(name), tuple(members), stops, kept))
    return out


def stand_ins(crossings: Mapping[Node, int]) -> dict[Node, Node]:
    """The leaves that stand for values from other devices."""
    return {
        n: intern(ops.leaf, (), (number, n.shape, n.dtype), n.device)
        for n, number in crossings.items()
    }


def _segment(
    device: Device, roots: tuple[Node, ...], stops: dict[Node, Node], kept: set[Node]
) -> Segment:
    """The segment of some roots. kept: the roots that are results of the plan. The others go to
    another device, and that makes a copy anyway."""
    inner = tuple(substitute(roots, stops)) if stops else roots
    program = compile_graph(inner, device.target)
    made = segment(device, program, [tuple(r.shape) for r in roots], roots)
    made.results = tuple(
        (slot, shape, copied and root in kept)
        for (slot, shape, copied), root in zip(made.results, roots, strict=True)
    )
    made.donors, made.takers = donors(program), takers(program)
    return made


def segment(
    device: Device,
    program: Program,
    shapes: Sequence[tuple[int, ...]],
    roots: tuple[Node, ...] = (),
) -> Segment:
    """Compile a program for a device and plan its memory. shapes: of its results."""
    bound = {slot for slot in program.leaves.values()}
    made = Segment(
        device,
        program,
        roots,
        tuple((slot, node.attrs[0]) for node, slot in program.leaves.items()),
        {},
    )
    for step, launch in zip(program.steps, launches_of(device, program), strict=True):
        numbers = tuple(s.slot for s in step.kernel.scalars)
        made.launches.append((launch, (*step.outputs, *step.inputs), numbers))
    beside = [
        at for at, (launch, *_) in enumerate(made.launches) if getattr(launch, "is_beside", False)
    ]
    made.launches = list(device.ordered(made.launches))
    made.runs = device.runs(made.launches)
    escaping = set(program.results)
    written = dict.fromkeys(i for step in program.steps for i in step.outputs)
    fresh = [i for i in written if i in escaping and i not in bound]
    temporary = temporaries(program)
    offsets, total = place(program, temporary, beside)
    made.arena_bytes = total
    made.arena_slots = {i: (offsets[i], program.slots[i]) for i in temporary}
    # Slots that no step writes and no leaf fills have no elements.
    known = bound | set(written)
    fresh += [i for i in dict.fromkeys(program.results) if i not in known]
    metas = program.slots
    made.makers = tuple((i, device.maker(metas[i].shape, metas[i].dtype)) for i in fresh)
    # Values from other devices are fresh copies, so a result may be one of them.
    taken = {slot for leaf, slot in program.leaves.items() if leaf.attrs[0] < CROSSING}
    made.results = _results(program, shapes, taken)
    return made


def temporaries(program: Program) -> list[int]:
    """The slots whose values don't leave a program, in the order of their first writes."""
    written = dict.fromkeys(i for step in program.steps for i in step.outputs)
    bound = {*program.leaves.values(), *program.results}
    return [i for i in written if i not in bound]


def _results(
    program: Program, shapes: Sequence[tuple[int, ...]], taken: set[int]
) -> tuple[tuple[int, tuple[int, ...] | None, bool], ...]:
    seen = set(taken)
    out = []
    for slot, shape in zip(program.results, shapes, strict=True):
        same = tuple(program.slots[slot].shape) == shape
        out.append((slot, None if same else shape, slot in seen))
        seen.add(slot)
    return tuple(out)
