"""The `interpret` device: generated Triton kernels, run by Triton's interpreter over host memory.

The GPU's whole way but the silicon. The interpreter costs a NumPy call for each operation and
program, so kernels for this device are cut into few large programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import INTERPRET
from tilewright.codegen.triton import Emitted, emit
from tilewright.codegen.triton.emitted import failed

from ..cpu.host import HostDevice
from ..device import Launch


class InterpretDevice(HostDevice):
    """Host memory, and Triton's interpreter as the processor.

    schedule: how kernels are cut, from a kernel and the target.
    """

    name = "interpret"
    target = INTERPRET

    def __init__(self, schedule: Callable[..., Schedule] = default_schedule) -> None:
        super().__init__()
        self._schedule = schedule

    def emit(self, kernel: Kernel | Bundle) -> Emitted:
        return emit(kernel, self._schedule(kernel, self.target))

    def source(self, kernel: Kernel | Bundle) -> str:
        return self.emit(kernel).source

    def compile(self, kernel: Kernel | Bundle) -> Launch:
        return bind(self.emit(kernel))


def bind(emitted: Emitted) -> Launch:
    """The kernel, ready to be interpreted: launch(buffers, scalars)."""
    from .interpreter import argument, kernel_function, run

    function = kernel_function(emitted.sha, emitted.body, emitted.name)
    fixed: dict[str, Any] = dict(emitted.constexprs)
    tables = []
    for each in emitted.arguments:
        if each.role in ("size", "number"):
            fixed[each.name] = argument(each.type, each.value)
        elif each.role == "table":
            tables.append(each.value)
            fixed[each.name] = argument(each.type, each.value.ctypes.data)

    def launch(buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        # The arrays must live until the launch is over: `errors` and `addresses` do, as locals.
        errors = np.zeros(len(emitted.checks), np.int64)
        places = [b.ctypes.data for b in buffers]
        passed = dict(fixed)
        for each in emitted.arguments:
            if each.role == "buffer":
                passed[each.name] = argument(each.type, places[each.value])
            elif each.role == "place":
                place, offset = each.value
                passed[each.name] = argument(each.type, places[place] + offset)
            elif each.role == "matrix":
                place, *shape = each.value
                passed[each.name] = argument(each.type, (places[place], *shape))
            elif each.role == "scalar":
                passed[each.name] = argument(each.type, scalars[each.value])
            elif each.role == "errors":
                passed[each.name] = argument(each.type, errors.ctypes.data)
            elif each.role == "pointers":
                addresses = np.array([places[i] for i in each.value], np.int64)
                passed[each.name] = argument(each.type, addresses.ctypes.data)
        try:
            run(function, emitted.programs, passed)
        except Exception as error:
            raise (error if emitted.function is None else emitted.failure(error)) from error
        for check, word in zip(emitted.checks, errors.tolist()):
            if word:
                raise failed(check, word)

    return launch
