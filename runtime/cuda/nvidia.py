"""NVIDIA's driver, libcuda: its functions, numbers and advice on its errors."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from .platform import FORKED, Driver, Edge, LaunchConfig, MemoryAccess, Pointer

_out = POINTER(c_void_p)  # receives a new handle
_number = POINTER(c_int)
_sizes = POINTER(c_size_t)


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


PROTOTYPES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cuInit": ("start the CUDA driver", (c_uint,)),
    "cuDriverGetVersion": ("read the driver's version", (_number,)),
    "cuDeviceGetCount": ("count the GPUs", (_number,)),
    "cuDeviceGet": ("find a GPU", (_number, c_int)),
    "cuDeviceGetName": ("read a GPU's name", (c_void_p, c_int, c_int)),
    "cuDeviceGetAttribute": ("read a GPU's properties", (_number, c_int, c_int)),
    "cuDeviceTotalMem_v2": ("read the size of a GPU's memory", (_sizes, c_int)),
    "cuDeviceCanAccessPeer": ("ask whether a GPU reaches another", (_number, c_int, c_int)),
    "cuDevicePrimaryCtxRetain": ("begin to use a GPU", (_out, c_int)),
    "cuCtxSetCurrent": ("turn to a GPU", (c_void_p,)),
    "cuCtxSynchronize": ("wait for a GPU", ()),
    "cuStreamCreateWithPriority": ("make a stream", (_out, c_uint, c_int)),
    "cuStreamSynchronize": ("wait for the work in a stream", (c_void_p,)),
    "cuStreamQuery": ("ask whether a stream is done", (c_void_p,)),
    "cuStreamWaitEvent": ("let a stream wait for an event", (c_void_p, c_void_p, c_uint)),
    "cuEventCreate": ("make an event", (_out, c_uint)),
    "cuEventDestroy_v2": ("end an event", (c_void_p,)),
    "cuEventRecord": ("record an event", (c_void_p, c_void_p)),
    "cuEventQuery": ("ask whether an event has happened", (c_void_p,)),
    "cuEventSynchronize": ("wait for an event", (c_void_p,)),
    "cuEventElapsedTime": (
        "take the time between events",
        (POINTER(c_float), c_void_p, c_void_p),
    ),
    "cuDeviceGetDefaultMemPool": ("find a GPU's memory pool", (_out, c_int)),
    "cuMemPoolSetAttribute": ("set up a GPU's memory pool", (c_void_p, c_int, c_void_p)),
    "cuMemPoolGetAttribute": ("read a memory pool's statistics", (c_void_p, c_int, c_void_p)),
    "cuMemPoolSetAccess": (
        "open a GPU's memory to another GPU",
        (c_void_p, POINTER(MemoryAccess), c_size_t),
    ),
    "cuMemPoolTrimTo": ("give free memory back", (c_void_p, c_size_t)),
    "cuMemGetInfo_v2": ("ask how much memory is free", (_sizes, _sizes)),
    "cuMemAllocAsync": ("allocate memory", (POINTER(Pointer), c_size_t, c_void_p)),
    "cuMemFreeAsync": ("free memory", (Pointer, c_void_p)),
    "cuMemHostAlloc": ("allocate pinned host memory", (_out, c_size_t, c_uint)),
    "cuMemcpyHtoDAsync_v2": ("copy to the GPU", (Pointer, c_void_p, c_size_t, c_void_p)),
    "cuMemcpyDtoHAsync_v2": ("copy from the GPU", (c_void_p, Pointer, c_size_t, c_void_p)),
    "cuMemcpyDtoDAsync_v2": ("copy on the GPU", (Pointer, Pointer, c_size_t, c_void_p)),
    "cuMemcpyPeerAsync": (
        "copy between GPUs",
        (Pointer, c_void_p, Pointer, c_void_p, c_size_t, c_void_p),
    ),
    "cuMemsetD8Async": ("fill memory", (Pointer, ctypes.c_ubyte, c_size_t, c_void_p)),
    "cuModuleLoadData": ("load a kernel", (_out, c_void_p)),
    "cuModuleGetFunction": ("find a kernel in what was loaded", (_out, c_void_p, c_char_p)),
    "cuFuncSetCacheConfig": ("ask for shared memory rather than cache", (c_void_p, c_int)),
    "cuFuncSetAttribute": ("give a kernel its shared memory", (c_void_p, c_int, c_int)),
    "cuLaunchKernelEx": (
        "launch a kernel",
        (POINTER(LaunchConfig), c_void_p, c_void_p, c_void_p),
    ),
    "cuTensorMapEncodeTiled": (
        "describe a matrix",
        (
            *(c_void_p, c_int, c_uint, Pointer),
            *(POINTER(ctypes.c_uint64), POINTER(ctypes.c_uint64)),
            *(POINTER(ctypes.c_uint32), POINTER(ctypes.c_uint32)),
            *(c_int, c_int, c_int, c_int),
        ),
    ),
    "cuGraphCreate": ("begin a graph of launches", (_out, c_uint)),
    "cuGraphDestroy": ("drop a graph of launches", (c_void_p,)),
    "cuGraphAddKernelNode_v2": (
        "add a launch to a graph",
        (_out, c_void_p, _out, c_size_t, POINTER(KernelNode)),
    ),
    "cuGraphAddDependencies_v2": (
        "order the launches of a graph",
        (c_void_p, _out, _out, POINTER(Edge), c_size_t),
    ),
    "cuGraphInstantiateWithFlags": ("make a graph ready", (_out, c_void_p, ctypes.c_ulonglong)),
    "cuGraphExecKernelNodeSetParams_v2": (
        "change a launch in a graph",
        (c_void_p, c_void_p, POINTER(KernelNode)),
    ),
    "cuGraphLaunch": ("launch a graph", (c_void_p, c_void_p)),
    "cuGraphExecDestroy": ("end a graph", (c_void_p,)),
    "cuGetErrorName": ("name an error", (c_int, POINTER(c_char_p))),
    "cuGetErrorString": ("explain an error", (c_int, POINTER(c_char_p))),
}
"""The purpose of each function, for error messages, and its parameter types."""

NEWER = ("cuGraphAddDependencies_v2",)
"""The functions that drivers before CUDA 12.3 lack."""

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

    def launcher(self) -> Callable[[LaunchConfig, int, Any, None], int]:
        return self.unchecked(self.launch)

    def share(self, function: int, size: int) -> None:
        if size > STATIC_SHARED:
            self.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, size)
            # As Triton does, so that equally many programs share a multiprocessor.
            self.cuFuncSetCacheConfig(function, _PREFER_SHARED)
