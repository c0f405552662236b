"""What a graph of recorded work is made of: the plan, its parts by device, and which launches compute
which node."""

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
from tilewright.runtime.plan import CROSSING, Plan
from tilewright.runtime.segments import stand_ins

from .. import recording
from ..recording import Handle, epoch
from ..recording.flushing import pending
from .explanation import PlanReport, Report, check_target, predict
from .tracing import Recording, tensors_of

_FREE = (Kind.LEAF, Kind.CONSTANT, Kind.GENERATE)
"""What any kernel that reads it has for itself."""


def report_on(work: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PlanReport:
    """The plan of some work; TypeError if it is none."""
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
    """What runs on one device. steps: its launches by name.

    arriving: by slot the number of a value from another device; leaving: by such a number the slot.
    results: (place among the values asked for, slot).
    """

    number: int
    device: str
    program: Program
    target: Target | None
    steps: tuple[tuple[str, Step], ...]
    arriving: dict[int, int]
    leaving: dict[int, int]
    results: tuple[tuple[int, int], ...]


def parts_of(
    work: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None
) -> tuple[str, list[Part]]:
    """A title, and what runs by device."""
    from tilewright.runtime.cuda.packed import Package

    if isinstance(work, Package):
        if target not in (None, work.target):
            raise ValueError(f"a program for {work.target} has no kernels for {target}")
        program = work.program
        results = tuple(enumerate(program.results))
        title = f"compiled for {work.target}"
        part = Part(0, work.target, program, None, _named(program, 0), {}, {}, results)
        return title, [part]
    report = report_on(work, args, kwargs)
    return report.title(), list(_of_plan(report, target))


def _of_plan(report: PlanReport, target: str | None) -> Iterator[Part]:
    chip = None if target is None else gpu(check_target(target))
    count = 0
    plan = report.plan
    for number, (segment, program) in enumerate(report.programs(target)):
        steps = _named(program, count)
        count += len(steps)
        of_root = dict(zip(segment.roots, program.results))
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
        )


def _named(program: Program, first: int) -> tuple[tuple[str, Step], ...]:
    """The launches of a program by names, which begin with their number."""
    return tuple((f"{i} {s.kernel.name}", s) for i, s in enumerate(program.steps, first))


def kernels_of_nodes(report: PlanReport, target: str | None) -> dict[Node, tuple[str, ...]]:
    """For each recorded node, operands first, the launches that compute it.

    A node becomes several of the lowered graph, and each of these a node of what is compiled. What
    vanishes on the way, as a transposition does that a product takes over, is computed where its
    readers are.
    """
    nodes = reachable(report.plan.recorded)
    lowered = lower_graph(nodes)
    places = _kernels_of_lowered(report, target)
    boundary = set(lowered)
    found: dict[Node, tuple[str, ...]] = {}
    for node, image in zip(nodes, lowered):
        kernels = dict.fromkeys(places.get(image, ()))
        inside = [o for o in image.operands if o not in boundary]
        seen = set(inside)
        while inside:
            each = inside.pop()
            if each.op.kind not in _FREE:
                kernels.update(dict.fromkeys(places.get(each, ())))
                further = [o for o in each.operands if o not in boundary and o not in seen]
                seen.update(further)
                inside += further
        found[node] = tuple(kernels)
    below: dict[Node, dict[str, None]] = {}
    for node, image in zip(reversed(nodes), reversed(lowered)):
        if not found[node] and image.op.kind is not Kind.LEAF:
            found[node] = tuple(below.get(node, ()))
        for operand in node.operands:
            below.setdefault(operand, {}).update(dict.fromkeys(found[node]))
    return found


def _kernels_of_lowered(report: PlanReport, target: str | None) -> dict[Node, tuple[str, ...]]:
    """For each node of the lowered graph the launches that compute it, those that store it first."""
    stops = stand_ins(report.plan.crossings)
    found: dict[Node, tuple[str, ...]] = {}
    for part, segment in zip(_of_plan(report, target), report.plan.segments):
        storing: dict[Node, dict[str, None]] = {}
        computing: dict[Node, dict[str, None]] = {}
        for name, step in part.steps:
            for node in (part.program.slots[slot].node for slot in step.outputs):
                if node is not None:
                    storing.setdefault(node, {})[name] = None
            for node in step.nodes:
                computing.setdefault(node, {})[name] = None
        inner = above(segment.roots, stops)
        chip = part.target or segment.device.target
        count = len(segment.roots)
        images = substitute([*segment.roots, *inner], stops)
        for node, image in zip(inner, legalize(images[:count], chip, images[count:])[count:]):
            kernels = dict(storing.get(memory(image), {}))
            if image.op.kind not in _FREE:
                kernels.update(computing.get(image, {}))
            found[node] = (*found.get(node, ()), *kernels)
    return found
