"""The `interpret` device: Triton's interpreter runs generated kernels over host memory.

It tests every stage of a GPU kernel but the machine code. The interpreter costs a NumPy call for
each operation and program, so kernels for this device are cut into few large programs.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import INTERPRET
from tilewright.codegen.triton import Emitted, emit

from ..device import Launch
from ..host import HostDevice
from .launch import bind


class InterpretDevice(HostDevice):
    """Host memory, and Triton's interpreter as the processor.

    schedule: returns the schedule of a kernel for a target.
    others: the device that compiles kernels without a form in Triton, over host memory too.
    """

    name = "interpret"
    target = INTERPRET

    def __init__(
        self,
        schedule: Callable[..., Schedule] = default_schedule,
        others: HostDevice | None = None,
    ) -> None:
        super().__init__()
        self._schedule = schedule
        self._others = others

    def emit(self, kernel: Kernel | Bundle) -> Emitted:
        return emit(kernel, self._schedule(kernel, self.target))

    def source(self, kernel: Kernel | Bundle) -> str:
        return self.emit(kernel).source

    def compile(self, kernel: Kernel | Bundle) -> Launch:
        try:
            return bind(self.emit(kernel))
        except NotImplementedError:
            if self._others is None:
                raise
            return self._others.compile(kernel)

    def bind(self, emitted: Emitted) -> Launch:
        return bind(emitted)
