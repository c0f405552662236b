"""What a GPU that isn't here would run: its kernels, compiled, and what the cost model predicts."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from problems import FULL, Problem

COLUMNS = ("name", "launches", "us", "share", "worst", "bound", "spills", "fallbacks")


def recorded(problem: Problem, tw: Any) -> tuple[Any, int]:
    """The node of the problem's result at full size, and the bytes of all that it is made of.
    Nothing is drawn or computed: its memory is zeros that nobody touches."""
    from tilewright import creation, recording

    def place_of(tensor: Any) -> Any:
        zeros = np.zeros(tuple(tensor.shape), tensor.dtype.np)
        return creation.from_buffer(zeros, tensor.dtype)

    with tw.no_grad(), recording.unevaluated(lambda: RuntimeError("a value is looked at")):
        inputs = [place_of(x) for x in problem.draw(tw, FULL)]
        model = problem.model(tw, FULL)
        for module in model.modules():
            for name, value in list(module.named_parameters(recurse=False)):
                setattr(module, name, tw.nn.Parameter(place_of(value)))
        result = model(*inputs)
        tensors = [*inputs, *model.parameters(), result]
        moved = sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors)
        return recording.resolve(result), moved


def predict(problem: Problem, target: str, tw: Any) -> dict[str, Any]:
    """Of one problem: launches, microseconds, share of the roofline (of a single kernel that reads
    its inputs and writes its result once), the least share of a kernel, spills, and the kernels
    that the CPU would have to run."""
    from tilewright.codegen.program import compile_graph, launched
    from tilewright.codegen.schedule import Usage, default_schedule
    from tilewright.codegen.schedule import predict as predicted
    from tilewright.codegen.target import gpu
    from tilewright.codegen.triton import emit
    from tilewright.ir.passes.pipeline import lower_graph
    from tilewright.runtime import offline

    node, moved = recorded(problem, tw)
    machine = gpu(target)
    found: list[Any] = []
    fallbacks, spills, products = [], 0, 0.0
    kernels = launched(compile_graph(lower_graph([node]), machine))
    for kernel in kernels:
        schedule = default_schedule(kernel, machine)
        try:
            request = offline.request(emit(kernel, schedule), target)
        except NotImplementedError as reason:
            fallbacks.append(f"{kernel.name}: {reason}")
            continue
        made = offline.compile_request(request)
        spills += made.spills
        usage = Usage(made.registers, made.shared, made.spills)
        each = predicted(kernel, schedule, machine, usage)
        if each.work.dtype is not None:
            products += each.work.flops / machine.chip.flops(each.work.dtype, schedule.tf32)
        found.append((each, kernel.name))
    seconds = sum(p.seconds for p, _ in found)
    worst, name = min(found, key=lambda each: each[0].share)
    longest, long_name = max(found, key=lambda each: each[0].seconds)
    return {
        "launches": len(kernels),
        "us": seconds * 1e6,
        "share": max(moved / machine.chip.bandwidth, products) / seconds,
        "worst": f"{worst.share:.0%} {name}",
        "bound": f"{longest.bound} {longest.share:.0%} {long_name}",
        "spills": spills,
        "fallbacks": fallbacks,
    }


def milliseconds(tw: Any, step: Callable[[], Any]) -> float:
    """What the cost model says of the launches of a call on the GPU that it runs on."""
    from tilewright.codegen.external import External
    from tilewright.codegen.program import launched
    from tilewright.codegen.schedule import predict as predicted

    seconds = 0.0
    for report in tw.explain(step).plans:
        for segment, program in report.programs():
            card: Any = segment.device
            for kernel in launched(program) if card.name.startswith("cuda") else ():
                if not isinstance(kernel, External):
                    schedule = card._schedule(kernel, card.target)
                    seconds += predicted(kernel, schedule, card.target).seconds
    return seconds * 1e3


def rows(
    problems: Sequence[tuple[str, Problem]], target: str, tw: Any, end: float
) -> Iterator[dict[str, Any]]:
    for name, problem in problems:
        if time.monotonic() > end:
            yield {"name": "problems that are left", "error": "no time was left"}
            return
        row: dict[str, Any] = {"name": name, "sizes": problem.shapes(FULL)}
        try:
            row |= predict(problem, target, tw)
        except Exception as error:  # the other rows are still worth having
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        yield row
        gc.collect()
