"""NVIDIA's driver, libcuda: its functions, numbers and advice on its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..driver import FORKED, NEWER, PROTOTYPES, Driver, KernelNode, LaunchConfig

_STALE_DRIVER = (
    "The NVIDIA driver is older than the compiler in Triton: update the driver, or install an "
    "older Triton (3.6 needs CUDA 12.8)"
)
_LOST = (
    "Nothing more can run on this GPU in this process. CUDA_LAUNCH_BLOCKING=1 tells which kernel "
    "it was, compute-sanitizer where it went wrong; please report it, for generated kernels stay "
    "in their buffers"
)
_FAILED = "The GPU has failed; see nvidia-smi and the kernel's log"
_ADVICE = {
    3: FORKED,
    46: "Another process has the GPU for itself (nvidia-smi tells); wait for it or choose another",
    100: "CUDA_VISIBLE_DEVICES may hide the GPUs",
    101: "CUDA_VISIBLE_DEVICES may hide the GPU",
    200: _STALE_DRIVER,
    209: _STALE_DRIVER,
    222: _STALE_DRIVER,
    214: _FAILED,
    220: _FAILED,
    226: _FAILED,
    700: _LOST,
    702: "The kernel ran for longer than the system lets one run on a GPU with a display",
    714: _LOST,
    715: _LOST,
    716: _LOST,
    717: _LOST,
    718: _LOST,
    719: _LOST,
    701: "The kernel needs more registers or shared memory than this GPU has",
    801: "This GPU, or its virtual form, lacks what is asked for (memory pools, above all)",
    803: "The NVIDIA driver's library and kernel module differ: reboot, or install them again",
}
"""Advice on an error, by its code."""


ATTRIBUTES = {
    "warp_size": 10,
    "max_threads_per_block": 1,
    "multi_processor_count": 16,
    "integrated": 18,
    "clock_rate": 13,
    "memory_clock_rate": 36,
    "memory_bus_width": 37,
    "L2_cache_size": 38,
    "max_threads_per_multi_processor": 39,
    "pci_bus_id": 33,
    "pci_device_id": 34,
    "pci_domain_id": 50,
    "major": 75,
    "minor": 76,
    "shared_memory_per_block": 8,
    "shared_memory_per_multiprocessor": 81,
    "regs_per_multiprocessor": 82,
    "is_multi_gpu_board": 84,
    "shared_memory_per_block_optin": 97,
}
"""CUdevice_attribute by PyTorch's names."""

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_…
_SOLVERS = [
    (13000, ("libcusolver.so.12", "libcublas.so.13")),
    (12000, ("libcusolver.so.11", "libcublas.so.12")),
]
"""The least version of the driver for cuSOLVER and cuBLAS of a CUDA, and their files on Linux."""

STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a launch may use without a request to the driver."""


class Nvidia(Driver):
    """libcuda of CUDA 12.0 or later."""

    name, vendor, oldest, launch = "CUDA", "NVIDIA", "CUDA 12.0", "cuLaunchKernelEx"
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    prototypes, newer, advice = PROTOTYPES, NEWER, _ADVICE
    Node = KernelNode
    attributes = ATTRIBUTES

    def version(self) -> str:
        number = self.number("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def context(self, device: int) -> int:
        return self.handle("cuDevicePrimaryCtxRetain", device)

    def architecture(self, device: int) -> str:
        major, minor = (
            self.number("cuDeviceGetAttribute", ATTRIBUTES[name], device)
            for name in ("major", "minor")
        )
        return f"sm_{major}{minor}"

    def bandwidth(self, device: int) -> float:
        """Two transfers in each cycle of the memory's clock, which is in kHz."""
        clock, width = (
            self.number("cuDeviceGetAttribute", ATTRIBUTES[name], device)
            for name in ("memory_clock_rate", "memory_bus_width")
        )
        return 2 * 1e3 * clock * width / 8

    def solvers(self) -> Sequence[tuple[str, str]]:
        version = self.number("cuDriverGetVersion")
        return [files for least, files in _SOLVERS if version >= least]

    def launcher(self) -> Callable[[LaunchConfig, int, Any, None], int]:
        return self.unchecked(self.launch)

    def share(self, function: int, size: int) -> None:
        if size > STATIC_SHARED:
            self.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, size)
            # As Triton does, so that equally many programs share a multiprocessor.
            self.cuFuncSetCacheConfig(function, _PREFER_SHARED)
