"""What a driver of GPUs is to the runtime: its functions as Python functions that raise.

A driver is NVIDIA's (`cuda/nvidia.py`) or AMD's (`hip/`), which is HIP. HIP's functions are those
of CUDA by other names, so the runtime calls both by CUDA's names, and what differs is a method of
`Driver`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

Pointer = c_uint64  # CUdeviceptr


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


class Edge(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("kind", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


class MemoryAccess(ctypes.Structure):
    """CUmemAccessDesc: GPU `number` may access memory."""

    _fields_ = [("kind", c_int), ("number", c_int), ("flags", c_int)]


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


_out = POINTER(c_void_p)  # receives a new handle
_number = POINTER(c_int)
_sizes = POINTER(c_size_t)

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

INVALID_VALUE, OUT_OF_MEMORY, NOT_READY = 1, 2, 600

FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' start method"
)


class CudaError(RuntimeError):
    """An error of the driver. code: CUresult. name: as in cuda.h."""

    def __init__(self, code: int, name: str, message: str):
        super().__init__(message)
        self.code, self.name = code, name


class Driver:
    """The functions of a driver by CUDA's names; each raises CudaError if it fails.

    name: of the platform, in messages. oldest: the first version that has all functions. library:
    its file. prototypes: by CUDA's names the purpose of each function, for error messages, and its
    parameter types. symbols: its name in the library where that is another one. newer: the
    functions that old versions lack. advice: on an error, by its code. attributes: numbers of
    properties by PyTorch's names. Node: the C structure of a launch in a graph. launch: the
    function that launches kernels.
    """

    name: str
    vendor: str
    oldest: str
    library: str
    prototypes: Mapping[str, tuple[str, tuple[Any, ...]]]
    symbols: Mapping[str, str] = {}
    newer: Sequence[str] = ()
    advice: Mapping[int, str]
    attributes: Mapping[str, int]
    Node: type[ctypes.Structure]
    launch: str

    def __init__(self, library: Any):
        for name, (doing, types) in self.prototypes.items():
            symbol = self.symbols.get(name, name)
            if name in self.newer and not hasattr(library, symbol):
                continue
            function = getattr(library, symbol)
            function.argtypes, function.restype = types, c_int
            if not name.startswith("cuGetError"):
                function.errcheck = self._check(name, doing)
            setattr(self, name, function)

    def version(self) -> str:
        """The version of CUDA or HIP that the driver has."""
        raise NotImplementedError

    def context(self, device: int) -> int:
        """Begin to use a GPU; its handle for `cuCtxSetCurrent`."""
        raise NotImplementedError

    def architecture(self, device: int) -> str:
        """The compiler's name of a GPU, such as sm_90."""
        raise NotImplementedError

    def bandwidth(self, device: int) -> float:
        """Bytes a second that a GPU's memory can move; 0 if the driver doesn't tell."""
        raise NotImplementedError

    def launcher(self) -> Callable[[LaunchConfig, int, Any, None], int]:
        """A function that launches a kernel: (configuration, function, addresses of parameters,
        None) -> error code."""
        raise NotImplementedError

    def solvers(self) -> Sequence[tuple[str, str]]:
        """Files of libraries for linear algebra that run on this driver, cuSOLVER's and cuBLAS's,
        in the order to try."""
        return ()

    def share(self, function: int, size: int) -> None:
        """Prepare a kernel for launches with `size` bytes of shared memory."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.name}'s driver has no {name} here")

    def _check(self, name: str, doing: str) -> Callable[[int, Any, Any], int]:
        def check(code: int, function: Any, arguments: Any) -> int:
            if code and code != NOT_READY:
                raise self.error(name, doing, code)
            return code

        return check

    def error(self, function: str, doing: str, code: int) -> CudaError:
        text = [c_char_p(), c_char_p()]
        self.cuGetErrorName(code, text[0])
        self.cuGetErrorString(code, text[1])
        name, meaning = ((t.value or b"unknown").decode() for t in text)
        advice = self.advice.get(code)
        return CudaError(
            code,
            name,
            f"{self.name} error: couldn't {doing}: {name} ({meaning}), from "
            f"{self.symbols.get(function, function)}"
            f"{'. ' + advice if advice else ''}",
        )

    def unchecked(self, function: str) -> Callable[..., int]:
        """A function without the check of its result, which takes a third of a call's time. Its
        caller raises `failure` for a result that isn't 0."""
        found = getattr(self, function)
        address = ctypes.cast(found, c_void_p).value or 0
        return ctypes.CFUNCTYPE(c_int, *self.prototypes[function][1])(address)

    def failure(self, function: str, code: int) -> CudaError:
        return self.error(function, self.prototypes[function][0], code)

    def handle(self, function: str, *args: Any) -> int:
        """Call a function and return the handle that it writes to its first parameter."""
        out = c_void_p()
        getattr(self, function)(out, *args)
        return out.value or 0

    def number(self, function: str, *args: Any) -> int:
        """Call a function and return the int that it writes to its first parameter."""
        out = c_int()
        getattr(self, function)(out, *args)
        return out.value
