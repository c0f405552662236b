"""The kernels to tune: those that a program launched, the busiest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.structure import identity
from tilewright.codegen.lower.external import Autotuned, External
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Loop, Program, compile_graph
from tilewright.codegen.schedule import work as needed
from tilewright.codegen.target import gpu
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.tuner import engines
from tilewright.runtime.tuner.session import family_of
from tilewright.runtime.tuner.users import USERS

from ..inspection.explanation import PlanReport, explain, members
from ..inspection.tracing import Call

_BANDWIDTH, _FLOPS, _SCALAR, _LAUNCH = 2e10, 1e11, 2e10, 2e-6


@dataclass(frozen=True)
class Launched:
    """A kernel that a program launched. count: number of launches. seconds: a rough estimate of
    their time, good enough for an order."""

    kernel: Kernel | Bundle | Autotuned
    device: str
    count: int
    seconds: float
    family: str

    @property
    def engine(self) -> str:
        """The name of the engine that knows its schedules."""
        return f"{USERS}{self.device}" if isinstance(self.kernel, Autotuned) else self.device


def launched_by(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> list[Launched]:
    """The kernels that a call launches, the busiest first. The call is made."""
    report = explain(function, *args, **(kwargs or {}))
    return busiest((p, 1) for p in report.plans)


def recorded(function: Callable[..., Any], args: Sequence[Any], target: str) -> list[Launched]:
    """The kernels that a call would launch on a GPU that isn't present (sm_90), the busiest first.
    Nothing is computed. RuntimeError if the call reads a value."""
    roots = list(Call(function, tuple(args), None).record().outputs.values())
    program = compile_graph(lower_graph(roots), gpu(target))
    return _ordered((target, kernel, count) for kernel, count in _kernels(program))


def launched_so_far(target: str | None = None) -> list[Launched]:
    """The kernels of all plans of this process, the busiest first."""
    return busiest(((p, p.runs) for p in explain().plans), target)


def busiest(plans: Iterable[tuple[PlanReport, int]], target: str | None = None) -> list[Launched]:
    """The kernels of (plan, number of runs) pairs, the busiest first. target: for a GPU that isn't
    present."""
    return _ordered(
        (device, kernel, runs * count)
        for plan, runs in plans
        for device, kernel, count in _launches(plan, target)
    )


def _ordered(launches: Iterable[tuple[str, Kernel | Bundle | Autotuned, int]]) -> list[Launched]:
    counts: dict[tuple[str, str], list[Any]] = {}
    for device, kernel, count in launches:
        key = device, name_of(kernel)
        counts.setdefault(key, [kernel, 0])[1] += count
    found = [
        Launched(kernel, device, count, count * estimate(kernel), family_of(kernel))
        for (device, _), (kernel, count) in counts.items()
    ]
    return sorted(found, key=lambda each: -each.seconds)


def _launches(
    plan: PlanReport, target: str | None
) -> Iterator[tuple[str, Kernel | Bundle | Autotuned, int]]:
    for segment, program in plan.programs(target):
        if target is None and not engines.known(segment.device.name):
            continue
        for kernel, count in _kernels(program):
            yield target or segment.device.name, kernel, count


def name_of(kernel: Kernel | Bundle | Autotuned) -> str:
    """A name for a kernel. Kernels that are tuned together have the same name."""
    if isinstance(kernel, Autotuned):
        return f"{kernel.structure} {kernel.sizes}"
    return "\n".join(map(identity, members(kernel)))


def _kernels(program: Program) -> Iterator[tuple[Kernel | Bundle | Autotuned, int]]:
    """(kernel, launches in one run) for each kernel."""
    for step in program.steps:
        if isinstance(step.kernel, External):
            if step.kernel.registered.autotuned is not None:
                yield step.kernel.registered.autotuned, 1
        elif isinstance(step.kernel, Loop):
            for kernel, count in _kernels(step.kernel.body):
                yield kernel, count * step.kernel.count
        elif not isinstance(step.kernel, Routine):
            yield step.kernel, 1


def estimate(kernel: Kernel | Bundle | Autotuned) -> float:
    """A rough estimate of a launch's seconds. For a user's kernel, the time to go through its
    memory."""
    if isinstance(kernel, Autotuned):
        moved = sum(b.size * b.dtype.itemsize for b in (*kernel.outputs, *kernel.inputs))
        return moved / _BANDWIDTH + _LAUNCH
    least = needed(kernel)
    takes = least.bytes / _BANDWIDTH, least.flops / _FLOPS, least.scalar / _SCALAR
    return max(takes) + _LAUNCH
