"""AMD's driver, libamdhip64: its names for CUDA's functions, and what differs.

HIP's calls, codes of errors and flags are those of CUDA. Others are the numbers of properties, the
launch and its structures, and a GPU's number where CUDA takes a context. Matrices are read without
descriptors, and no kernel of a graph starts before those ahead of it end.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import POINTER, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from ..driver import FORKED, PROTOTYPES, Driver, LaunchConfig, Pointer

_out = POINTER(c_void_p)
_PROPERTIES, _ARCHITECTURE = 1472, 1160
"""Bytes of hipDeviceProp_tR0600, and the offset of gcnArchName in it."""
_NAME = 256  # bytes of gcnArchName


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams."""

    _fields_ = [
        ("block", c_uint * 3),
        ("extra", c_void_p),
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("parameters", c_void_p),
        ("shared", c_uint),
    ]


SYMBOLS = {
    "cuInit": "hipInit",
    "cuDriverGetVersion": "hipDriverGetVersion",
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuDeviceGet": "hipDeviceGet",
    "cuDeviceGetName": "hipDeviceGetName",
    "cuDeviceGetAttribute": "hipDeviceGetAttribute",
    "cuDeviceTotalMem_v2": "hipDeviceTotalMem",
    "cuDeviceCanAccessPeer": "hipDeviceCanAccessPeer",
    "cuCtxSetCurrent": "hipSetDevice",
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuStreamCreateWithPriority": "hipStreamCreateWithPriority",
    "cuStreamSynchronize": "hipStreamSynchronize",
    "cuStreamQuery": "hipStreamQuery",
    "cuStreamWaitEvent": "hipStreamWaitEvent",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuEventDestroy_v2": "hipEventDestroy",
    "cuEventRecord": "hipEventRecord",
    "cuEventQuery": "hipEventQuery",
    "cuEventSynchronize": "hipEventSynchronize",
    "cuEventElapsedTime": "hipEventElapsedTime",
    "cuDeviceGetDefaultMemPool": "hipDeviceGetDefaultMemPool",
    "cuMemPoolSetAttribute": "hipMemPoolSetAttribute",
    "cuMemPoolGetAttribute": "hipMemPoolGetAttribute",
    "cuMemPoolSetAccess": "hipMemPoolSetAccess",
    "cuMemPoolTrimTo": "hipMemPoolTrimTo",
    "cuMemGetInfo_v2": "hipMemGetInfo",
    "cuMemAllocAsync": "hipMallocAsync",
    "cuMemFreeAsync": "hipFreeAsync",
    "cuMemHostAlloc": "hipHostMalloc",
    "cuMemcpyHtoDAsync_v2": "hipMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync_v2": "hipMemcpyDtoHAsync",
    "cuMemcpyDtoDAsync_v2": "hipMemcpyDtoDAsync",
    "cuMemcpyPeerAsync": "hipMemcpyPeerAsync",
    "cuMemsetD8Async": "hipMemsetD8Async",
    "cuModuleLoadData": "hipModuleLoadData",
    "cuModuleGetFunction": "hipModuleGetFunction",
    "cuGraphCreate": "hipGraphCreate",
    "cuGraphDestroy": "hipGraphDestroy",
    "cuGraphAddKernelNode_v2": "hipGraphAddKernelNode",
    "cuGraphInstantiateWithFlags": "hipGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams_v2": "hipGraphExecKernelNodeSetParams",
    "cuGraphLaunch": "hipGraphLaunch",
    "cuGraphExecDestroy": "hipGraphExecDestroy",
    "cuGetErrorName": "hipDrvGetErrorName",
    "cuGetErrorString": "hipDrvGetErrorString",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "hipGetDeviceProperties": "hipGetDevicePropertiesR0600",
}
"""HIP's name of each function that the runtime calls by CUDA's."""

_TYPES: dict[str, tuple[Any, ...]] = {
    "cuCtxSetCurrent": (c_int,),
    "cuMemcpyPeerAsync": (Pointer, c_int, Pointer, c_int, c_size_t, c_void_p),
    "cuGraphAddKernelNode_v2": (_out, c_void_p, _out, c_size_t, POINTER(KernelNode)),
    "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, POINTER(KernelNode)),
}
"""Types of parameters where they aren't CUDA's."""

_OWN: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cuLaunchKernel": ("launch a kernel", (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p)),
    "hipGetDeviceProperties": ("read a GPU's properties", (c_void_p, c_int)),
}
"""Functions that the runtime calls on AMD's GPUs alone."""

ATTRIBUTES = {
    "warp_size": 87,
    "max_threads_per_block": 56,
    "multi_processor_count": 63,
    "integrated": 16,
    "clock_rate": 5,
    "memory_clock_rate": 60,
    "memory_bus_width": 59,
    "L2_cache_size": 19,
    "max_threads_per_multi_processor": 57,
    "pci_bus_id": 67,
    "pci_device_id": 68,
    "pci_domain_id": 69,
    "major": 23,
    "minor": 61,
    "shared_memory_per_block": 74,
    "shared_memory_per_multiprocessor": 10002,
    "regs_per_multiprocessor": 72,
    "is_multi_gpu_board": 17,
    "shared_memory_per_block_optin": 74,
}
"""hipDeviceAttribute_t by PyTorch's names. No kernel needs to ask for its shared memory, so the
most that one may have is the most without asking."""

_LOST = (
    "Nothing more can run on this GPU in this process. AMD_SERIALIZE_KERNEL=3 tells which kernel "
    "it was; please report it, for generated kernels stay in their buffers"
)
_HIDDEN = "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES may hide the GPUs"
_ADVICE = {
    3: FORKED,
    100: f"{_HIDDEN}; the user may lack access to /dev/kfd (group render)",
    101: _HIDDEN,
    209: "The kernel was compiled for another architecture: rocminfo shows this GPU's",
    700: _LOST,
    719: _LOST,
    701: "The kernel needs more registers or shared memory than this GPU has",
    801: "This GPU, or its virtual form, lacks what is asked for (memory pools, above all)",
}


class Amd(Driver):
    """libamdhip64 of ROCm 6.0 or later."""

    name, vendor, oldest, launch = "HIP", "AMD", "ROCm 6.0", "cuLaunchKernel"
    library = "amdhip64.dll" if sys.platform == "win32" else "libamdhip64.so"
    prototypes = _OWN | {
        name: (doing, _TYPES.get(name, types))
        for name, (doing, types) in PROTOTYPES.items()
        if name in SYMBOLS
    }
    symbols, advice, attributes, Node = SYMBOLS, _ADVICE, ATTRIBUTES, KernelNode

    def version(self) -> str:
        number = self.number("cuDriverGetVersion")
        return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"

    def context(self, device: int) -> int:
        return device

    def architecture(self, device: int) -> str:
        """Without the features behind the name, as in gfx942:sramecc+:xnack-."""
        found = ctypes.create_string_buffer(_PROPERTIES)
        self.hipGetDeviceProperties(found, device)
        name = found.raw[_ARCHITECTURE : _ARCHITECTURE + _NAME].partition(b"\0")[0]
        return name.decode().partition(":")[0]

    def bandwidth(self, device: int) -> float:
        """Not known: how many transfers a cycle of the memory's clock makes depends on its kind."""
        return 0.0

    def launcher(self) -> Callable[[LaunchConfig, int, Any, None], int]:
        launch = self.unchecked(self.launch)

        def launched(config: LaunchConfig, function: int, parameters: Any, extra: None) -> int:
            sizes = (*config.grid, *config.block, config.shared)
            return launch(function, *sizes, config.stream, parameters, extra)

        return launched
