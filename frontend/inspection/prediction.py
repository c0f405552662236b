"""The table of `tilewright explain --target`: predicted times of kernels on a GPU that isn't
present."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Prediction, Schedule, Usage, default_schedule, predict
from tilewright.codegen.target import Target
from tilewright.codegen.triton import emit
from tilewright.runtime import offline

_HEAD = (
    ("kernel", "<40"),
    ("registers", ">9"),
    ("spills", ">6"),
    ("shared", ">7"),
    ("programs", ">9"),
    ("a CU", ">4"),
    ("waves", ">7"),
    ("bound by", "<12"),
    ("us", ">9"),
    ("roofline", ">8"),
)


def cost_table(kernels: Sequence[Kernel | Bundle], target: Target) -> str:
    """One line for each launch, in order, and the sum of their times.

    Registers, spills and shared memory are the compiler's figures, or estimates where Triton is not
    installed.
    """
    schedules = [default_schedule(kernel, target) for kernel in kernels]
    if importlib.util.find_spec("triton"):
        usages = _compiled(kernels, schedules, target)
    else:
        usages = [None] * len(kernels)
    lines = [" ".join(format(title, form) for title, form in _HEAD)]
    total = 0.0
    for kernel, schedule, usage in zip(kernels, schedules, usages):
        predicted = predict(kernel, schedule, target, usage)
        total += predicted.seconds
        lines.append(_line(kernel.name, predicted))
    chip = target.chip
    lines.append(f"{total * 1e6:.1f} us on one {chip.model} ({chip.bandwidth / 1e12:.1f} TB/s)")
    return "\n".join(lines)


def _compiled(
    kernels: Sequence[Kernel | Bundle], schedules: Sequence[Schedule], target: Target
) -> list[Usage | None]:
    """Each kernel's use of a multiprocessor. Kernels with equal text are compiled once."""
    requests = [offline.request(emit(k, s), target.name) for k, s in zip(kernels, schedules)]
    distinct = {repr(r): r for r in requests}
    found = dict(zip(distinct, offline.compile_many(list(distinct.values()))))
    compiled = [found[repr(r)] for r in requests]
    return [c.usage for c in compiled]


def _line(name: str, predicted: Prediction) -> str:
    usage = predicted.usage
    cells = (
        name[:40],
        str(usage.registers),
        str(usage.spills),
        f"{usage.shared / 1024:.1f}K",
        str(predicted.programs),
        str(predicted.resident),
        f"{predicted.waves:.2f}",
        predicted.bound,
        f"{predicted.seconds * 1e6:.1f}",
        f"{predicted.share:.0%}",
    )
    return " ".join(format(cell, form) for cell, (_, form) in zip(cells, _HEAD)).rstrip()
