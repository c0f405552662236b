"""The parts of graphs of recorded work: its plan, the plan's parts by device, and the launches that
compute each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.fusion.anchors import memory
from tilewright.codegen.legalize import legalize
from tilewright.codegen.program import Program, Step
from tilewright.codegen.target import Target, gpu
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.rewrite import above, substitute
from tilewright.runtime.placement import donors
from tilewright.runtime.plan import Plan, launch_count
from tilewright.runtime.segment import CROSSING
from tilewright.runtime.segments import stand_ins

from .. import recording
from ..recording import Handle, epoch
from ..recording.flushing import pending
from .explanation import PlanReport, Report, check_target, predict
from .tracing import Recording, tensors_of

_FREE = (Kind.LEAF, Kind.CONSTANT, Kind.GENERATE)
"""Kinds of nodes that each reading kernel gets or makes by itself."""


def report_on(work: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PlanReport:
    """The plan of some work; TypeError for an object that isn't work."""
    if isinstance(work, Report):
        if not work.plans:
            raise ValueError("the report has no plan: nothing was computed")
        work = work.plans[0]
    if (args or kwargs) and (isinstance(work, (PlanReport, Recording, Handle)) or work is None):
        raise TypeError(f"arguments are for a function, and {type(work).__name__} is none")
    if isinstance(work, PlanReport):
        return work
    if work is None:
        return PlanReport(Plan(pending(), tuple(epoch.fallible)))
    if isinstance(work, Recording):
        return PlanReport(Plan(tuple(work.outputs.values())))
    if isinstance(work, (Handle, tuple, list, Mapping)):
        tensors = [t for _, t in tensors_of("", work)]
        if tensors:
            return PlanReport(Plan([recording.resolve(t) for t in tensors]))
    elif callable(work):
        return predict(work, *args, **kwargs)
    raise TypeError(
        "expected a function, tensors, a report or a traced call to make a graph of, got "
        f"{type(work).__name__}"
    )


@dataclass(frozen=True)
class Part:
    """The work of one device. steps: its launches by name.

    arriving: slot -> number of a value from another device; leaving: such a number -> slot.
        results: (place among the results of the work, slot). donors: slot -> the leaves whose
        memory it may take.
    """

    number: int
    device: str
    program: Program
    target: Target | None
    steps: tuple[tuple[str, Step], ...]
    arriving: dict[int, int]
    leaving: dict[int, int]
    results: tuple[tuple[int, int], ...]
    donors: dict[int, tuple[int, ...]]


def parts_of(
    work: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None
) -> tuple[str, list[Part]]:
    """A title, and the parts by device."""
    from tilewright.runtime.cuda.packed import Package

    if isinstance(work, Package):
        if target not in (None, work.target):
            raise ValueError(f"a program for {work.target} has no kernels for {target}")
        program = work.program
        results = tuple(enumerate(program.results))
        title = f"compiled for {work.target}"
        part = Part(0, work.target, program, None, _named(program, 0), {}, {}, results, {})
        return title, [part]
    report = report_on(work, args, kwargs)
    return title_of(report, target), list(_of_plan(report, target))


def title_of(report: PlanReport, target: str | None) -> str:
    if target is not None:
        check_target(target)
    count = sum(launch_count(program) for _, program in report.programs(target))
    return f"{report.ops} ops recorded, {count} launches on {target or report.device}"


def _of_plan(report: PlanReport, target: str | None) -> Iterator[Part]:
    chip = None if target is None else gpu(check_target(target))
    count = 0
    plan = report.plan
    for number, (segment, program) in enumerate(report.programs(target)):
        steps = _named(program, count)
        count += len(steps)
        of_root = dict(zip(segment.roots, program.results))
        may_take: dict[int, tuple[int, ...]] = {}
        for (_, leaf), slot in donors(program).items():
            if leaf < CROSSING:
                may_take[slot] = (*may_take.get(slot, ()), leaf)
        yield Part(
            number,
            target or segment.device.name,
            program,
            chip,
            steps,
            {s: n.attrs[0] for n, s in program.leaves.items() if n.attrs[0] >= CROSSING},
            {
                number: of_root[node.operands[0]]
                for node, number in plan.crossings.items()
                if node.operands[0] in of_root
            },
            tuple(
                (i, program.results[k])
                for i, (place, k) in enumerate(plan.result_places)
                if place == number
            ),
            may_take,
        )


def _named(program: Program, first: int) -> tuple[tuple[str, Step], ...]:
    """The launches of a program, with names that begin with their number."""
    return tuple((f"{i} {s.kernel.name}", s) for i, s in enumerate(program.steps, first))


def kernels_of_nodes(report: PlanReport, target: str | None) -> dict[Node, tuple[str, ...]]:
    """The launches that compute each recorded node, operands first. The launch that stores the node
    comes first, then the others in order.

    A recorded node becomes several lowered nodes, and each of these becomes several compiled ones.
    Some nodes vanish, such as a transposition that a product takes over. They count as computed by
    the launches of their readers. So do nodes that only move elements.
    """
    nodes = reachable(report.plan.recorded)
    images = lower_graph(nodes)
    order: dict[str, int] = {}
    storing: dict[Node, str] = {}
    computing: dict[Node, set[str]] = {}
    for part, segment in zip(_of_plan(report, target), report.plan.segments):
        order |= {name: len(order) + i for i, (name, _) in enumerate(part.steps)}
        chip = part.target or segment.device.target
        _trace(part, segment.roots, stand_ins(report.plan.crossings), chip, storing, computing)
    found: dict[Node, tuple[str, ...]] = {}
    for node, image, kernels in zip(nodes, images, _within(images, computing)):
        first = storing.get(image)
        found[node] = tuple(sorted(kernels, key=lambda k: (k != first, order[k])))
    below: dict[Node, set[str]] = {}
    for node, image in zip(reversed(nodes), reversed(images)):
        vanished = not found[node] and image.op.kind not in (Kind.LEAF, Kind.TRANSFER)
        if vanished or (image.op.kind is Kind.MOVEMENT and image not in storing):
            kernels = below.get(node, set()).union(found[node])
            found[node] = tuple(sorted(kernels, key=order.__getitem__))
        for operand in node.operands:
            below.setdefault(operand, set()).update(found[node])
    return found


def _trace(
    part: Part,
    roots: Sequence[Node],
    stops: Mapping[Node, Node],
    chip: Target,
    storing: dict[Node, str],
    computing: dict[Node, set[str]],
) -> None:
    """Add the launches of a part's lowered nodes to `storing` and `computing`."""
    computed: dict[Node, set[str]] = {}
    for name, step in part.steps:
        for node in step.nodes:
            computed.setdefault(node, set()).add(name)
    # A buffer that is updated in place holds its node after the last launch that writes to it.
    last = {slot: name for name, step in part.steps for slot in step.outputs}
    stored = {part.program.slots[slot].node: name for slot, name in last.items()}
    inner = above(roots, stops)
    count = len(roots)
    inside = substitute([*roots, *inner], stops)
    images = legalize(inside[:count], chip, inside[count:])[count:]
    for node, image, kernels in zip(inner, images, _within(images, computed)):
        computing.setdefault(node, set()).update(kernels)
        if memory(image) in stored:
            storing.setdefault(node, stored[memory(image)])
            computing[node].add(storing[node])


def _within(images: Sequence[Node], computed: Mapping[Node, set[str]]) -> Iterator[set[str]]:
    """For each image, the launches of its own nodes: from the image down to the next images beneath
    it."""
    direct = set(images)
    boundary = direct.union(*(_turned(image, direct) for image in direct))
    for image in images:
        kernels: set[str] = set()
        seen = {image, *_turned(image, direct)}
        stack = list(seen)
        while stack:
            node = stack.pop()
            if node.op.kind not in _FREE:
                kernels |= computed.get(node, set())
                further = [o for o in node.operands if o not in boundary and o not in seen]
                seen.update(further)
                stack += further
        yield kernels


def _turned(image: Node, direct: set[Node]) -> list[Node]:
    """The nodes beneath an image that it only moves, as a result in another layout, if they aren't
    images themselves."""
    found: list[Node] = []
    while image.op.kind is Kind.MOVEMENT and image.operands[0] not in direct:
        image = image.operands[0]
        found.append(image)
    return found
