"""GPUs that aren't present: the cost model and compiled kernels rank their schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, Usage, predict
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit

from .. import offline
from ..cuda.tuning import Triton
from ..device import Device, Launch


class Offline(Triton):
    """A GPU that isn't present. Its schedules can be ranked but not measured."""

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


def compiled_ranks(
    engine: Triton, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
) -> Mapping[Schedule, tuple[float, Usage | None]]:
    """Seconds by the cost model, which gets the registers and the memory of the compiled kernel.
    Schedules that can't be compiled, or spill, come last. Parallel processes compile the
    kernels."""
    requests = [offline.request(emit(kernel, s), engine.target.name) for s in schedules]
    found: dict[Schedule, tuple[float, Usage | None]] = {}
    for schedule, compiled in zip(schedules, _compiled(requests)):
        if compiled is None:
            found[schedule] = float("inf"), None
            continue
        usage = compiled.usage
        found[schedule] = predict(kernel, schedule, engine.target, usage).seconds, usage
    return dict(sorted(found.items(), key=lambda each: each[1][0]))


def _compiled(requests: Sequence[offline.Request]) -> Sequence[offline.Compiled | None]:
    try:
        return offline.compile_many(requests)
    except RuntimeError:
        if len(requests) == 1:
            return [None]
        middle = len(requests) // 2
        return [*_compiled(requests[:middle]), *_compiled(requests[middle:])]
