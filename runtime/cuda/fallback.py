"""Kernels without a form in Triton: NumPy computes them on copies in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.codegen.kernel import Bundle, Kernel

from ..cpu.numpy import NumpyDevice
from .memory import Buffer

if TYPE_CHECKING:
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
