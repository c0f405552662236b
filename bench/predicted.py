"""Predictions for a GPU that isn't present: its compiled kernels, and their times by the cost
model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from problems import FULL, Problem

COLUMNS = ("name", "launches", "us", "share", "worst", "bound", "spills", "fallbacks")


def recorded(problem: Problem, tw: Any) -> tuple[Any, int]:
    """A report on a call of the problem at full size, and the bytes of its inputs, parameters and
    result. Nothing is drawn or computed: the memory is untouched zeros."""
    from tilewright import recording
    from tilewright.functions import from_data
    from tilewright.inspection import explanation

    def place_of(tensor: Any) -> Any:
        return from_data.from_buffer(np.zeros(tuple(tensor.shape), tensor.dtype.np), tensor.dtype)

    with tw.no_grad():
        with recording.unevaluated(lambda: RuntimeError("a value is looked at")):
            inputs = [place_of(x) for x in problem.draw(tw, FULL)]
            model = problem.model(tw, FULL)
            for module in model.modules():
                for name, value in list(module.named_parameters(recurse=False)):
                    setattr(module, name, tw.nn.Parameter(place_of(value)))
                for name, value in list(module.named_buffers(recurse=False)):
                    setattr(module, name, place_of(value))
        sizes: list[int] = []

        def call() -> Any:
            result = model(*inputs)
            tensors = (*inputs, *model.parameters(), result)
            sizes.extend(math.prod(t.shape) * t.dtype.itemsize for t in tensors)
            return result

        report = explanation.predict(call)
    return report, sum(sizes)


def predict(problem: Problem, target: str, tw: Any) -> dict[str, Any]:
    """Predictions for one problem: launches, microseconds, share of the roofline (that of a single
    kernel that reads the inputs and writes the result once), the least share of any kernel, spills,
    and the kernels that the CPU would have to run."""
    from tilewright.codegen.program import launched
    from tilewright.codegen.schedule import predict as predicted
    from tilewright.codegen.target import gpu
    from tilewright.runtime.cuda import pack

    report, moved = recorded(problem, tw)
    machine = gpu(target)
    found: list[Any] = []
    spills, products = 0, 0.0
    kernels = [k for _, program in report.programs(target) for k in launched(program)]
    taken = pack.compiled(kernels, target).taken
    fallbacks = [k.name for k in kernels if k not in taken]
    for kernel in kernels:
        if kernel not in taken:
            continue
        schedule, image = taken[kernel]
        spills += image.spills
        each = predicted(kernel, schedule, machine, image.usage)
        if each.work.dtype is not None:
            how = schedule.tf32, schedule.digits
            products += each.work.flops / machine.chip.flops(each.work.dtype, *how)
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
    """The cost model's time for the launches of a call, on the GPU that runs it."""
    return sum(
        microseconds(kernel, card._schedule(kernel, card.target), card.target) * 1e-3
        for card, kernel in kernels(tw, step)
    )


def microseconds(kernel: Any, schedule: Any, target: Any) -> float:
    """The cost model's time for a kernel."""
    from tilewright.codegen.schedule import predict as predicted

    return predicted(kernel, schedule, target).seconds * 1e6


def kernels(tw: Any, step: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
    """Each kernel that a call launches on a GPU, with the device."""
    from tilewright.codegen.lower.external import External
    from tilewright.codegen.program import launched

    for report in tw.explain(step).plans:
        for segment, program in report.programs():
            card: Any = segment.device
            for kernel in launched(program) if card.name.startswith("cuda") else ():
                if not isinstance(kernel, External):
                    yield card, kernel
