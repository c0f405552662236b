"""Kernels compiled for GPUs that aren't here, by the schedules that devices take them with."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.schedule import Schedule, Usage, default_schedule, settled
from tilewright.codegen.target import gpu
from tilewright.runtime.offline import Compiled, compile_offline


def taken(kernel: Kernel, target: str) -> Compiled:
    """`kernel` by its default schedule, or by the next one if that spills."""
    made: dict[Schedule, Compiled] = {}

    def compiled(asked: dict[Any, Schedule]) -> dict[Any, Usage]:
        made.update({s: compile_offline(kernel, target, s) for s in asked.values()})
        return {k: made[s].usage for k, s in asked.items()}

    machine = gpu(target)
    return made[settled({kernel: default_schedule(kernel, machine)}, machine, compiled)[kernel]]
