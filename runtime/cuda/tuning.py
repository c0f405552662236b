"""The tuner's engine for a GPU's kernels in Triton."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import Site
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.schedule.space import Space
from tilewright.codegen.target import Target

from ..device import Launch
from ..engine import FORMAT, Engine
from ..results import key as keys
from .context import properties

if TYPE_CHECKING:
    from .device import Cuda


@functools.cache
def _versions() -> str:
    found = importlib.util.find_spec("triton")
    version = metadata.version("triton") if found else "not installed"
    return f"schedules {FORMAT}, triton {version}"


class Triton(Engine[Schedule]):
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


class Gpu(Triton):
    """A GPU of this machine."""

    def __init__(self, device: Cuda):
        self.name, self._device = device.name, device

    @property
    def target(self) -> Target:  # type: ignore[override]
        return self._device.target

    @property
    def identity(self) -> str:
        number = int(self.name.partition(":")[2] or 0)
        return f"{self.target.name} {properties(number).name}"

    def device(self) -> Cuda:
        return self._device

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
