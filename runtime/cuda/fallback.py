"""Kernels without a form in Triton, and routines that no library of the GPU has: the host computes
them on copies in its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel

from ..cpu.numpy import NumpyDevice
from .memory import Buffer

if TYPE_CHECKING:
    from tilewright.codegen.lower.host import Routine

    from .device import Cuda


class HostLaunch:
    """A launch in a GPU's plan that the host computes. It waits for earlier work, and so may raise
    what that has to say."""

    waits = True

    def __init__(self, device: Cuda, kernel: Kernel | Bundle):
        self.device = device
        self._launch = NumpyDevice().compile(kernel)
        self._outputs = len(kernel.outputs)

    def __call__(self, buffers: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        # Outputs too: a kernel may update their contents.
        arrays = [self.device.to_numpy(b) for b in buffers]
        self._launch(arrays, scalars)
        for buffer, array in zip(buffers[: self._outputs], arrays):
            self.device.write(buffer, array)


class HostRoutine:
    """A launch of a routine, likewise."""

    waits = True

    def __init__(self, device: Cuda, routine: Routine):
        self.device, self.routine = device, routine

    def __call__(self, buffers: Sequence[Buffer | None], scalars: Sequence[Any]) -> None:
        count = len(self.routine.outputs)
        results = [None if b is None else np.empty(b.shape, b.dtype.np) for b in buffers[:count]]
        operands = [None if b is None else self.device.to_numpy(b) for b in buffers[count:]]
        self.routine([*results, *operands], scalars)
        for buffer, array in zip(buffers, results):
            if buffer is not None and array is not None:
                self.device.write(buffer, array)
