"""What can be chosen for a GPU: one at hand, or one that isn't there."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import Site
from tilewright.codegen.schedule import Schedule, Usage, predict
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.schedule.space import Space
from tilewright.codegen.target import Target, gpu
from tilewright.codegen.triton import emit

from .. import devices, offline
from ..device import Device, Launch
from . import key as keys
from .engines import FORMAT, Engine


@functools.cache
def _versions() -> str:
    found = importlib.util.find_spec("triton")
    version = metadata.version("triton") if found else "not installed"
    return f"schedules {FORMAT}, triton {version}"


class _Triton(Engine[Schedule]):
    """Kernels in Triton."""

    kind = Schedule
    target: Target

    @property
    def versions(self) -> str:
        return _versions()

    def space(self, kernel: Kernel | Bundle) -> Space[Schedule]:
        return space(kernel, self.target)

    def prior_key(self, kernel: Kernel | Bundle | Site) -> keys.Key:
        return keys.of(kernel, f"{self.target.name}, predicted", self.versions)


class Offline(_Triton):
    """A GPU that isn't at hand: its schedules are ranked, none is measured."""

    def __init__(self, target: str):
        self.name, self.target = target, gpu(target)

    @property
    def identity(self) -> str:
        return self.name

    def device(self) -> Device:
        raise RuntimeError(f"there is no {self.name} on this machine: nothing can be measured")

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
    ) -> list[Launch | Exception]:
        raise RuntimeError(f"there is no {self.name} on this machine: nothing can be measured")


class Gpu(_Triton):
    """A GPU of this machine."""

    def __init__(self, name: str):
        self.name = name

    @property
    def target(self) -> Target:  # type: ignore[override]
        return devices.get(self.name).target

    @property
    def identity(self) -> str:
        from ..cuda.context import properties

        number = int(self.name.partition(":")[2] or 0)
        return f"{self.target.name} {properties(number).name}"

    def device(self) -> Device:
        return devices.get(self.name)

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
    ) -> list[Launch | Exception]:
        try:
            made = device.compile_with(kernel, schedules)
        except Exception as error:
            if len(schedules) == 1:
                return [error]
            return [self.compile(device, kernel, [s])[0] for s in schedules]
        too_large = RuntimeError("it needs more shared memory than this GPU has")
        return [too_large if launch is None else launch for launch in made]


def compiled_ranks(
    engine: _Triton, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
) -> Mapping[Schedule, tuple[float, Usage | None]]:
    """Seconds by the cost model with the registers and the memory of the compiled kernel; those
    that can't be compiled, or spill, are last. Compiled in parallel processes."""
    requests = [offline.request(emit(kernel, s), engine.target.name) for s in schedules]
    found: dict[Schedule, tuple[float, Usage | None]] = {}
    for schedule, compiled in zip(schedules, _compiled(requests)):
        if compiled is None:
            found[schedule] = float("inf"), None
            continue
        usage = Usage(compiled.registers, compiled.shared, compiled.spills)
        warps = replace(schedule, num_warps=compiled.num_warps)
        found[schedule] = predict(kernel, warps, engine.target, usage).seconds, usage
    return dict(sorted(found.items(), key=lambda each: each[1][0]))


def _compiled(requests: Sequence[offline.Request]) -> Sequence[offline.Compiled | None]:
    try:
        return offline.compile_many(requests)
    except RuntimeError:
        if len(requests) == 1:
            return [None]
        middle = len(requests) // 2
        return [*_compiled(requests[:middle]), *_compiled(requests[middle:])]
