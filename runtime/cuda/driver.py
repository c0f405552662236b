"""libcuda: its functions as Python functions that raise, and its view of the machine.

The driver is loaded by name at run time, so no compiler and no CUDA toolkit is needed. `use` puts
any object with the C functions below in its place. Tests run that way without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from importlib.util import find_spec
from typing import Any

Pointer = c_uint64  # CUdeviceptr
_out = POINTER(c_void_p)  # receives a new handle
_number = POINTER(c_int)
_sizes = POINTER(c_size_t)


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

_STALE_DRIVER = (
    "The NVIDIA driver is older than the compiler in Triton: update the driver, or install an "
    "older Triton (3.6 needs CUDA 12.8)"
)
_FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' start method"
)
_LOST = (
    "Nothing more can run on this GPU in this process. CUDA_LAUNCH_BLOCKING=1 tells which kernel "
    "it was, compute-sanitizer where it went wrong; please report it, for generated kernels stay "
    "in their buffers"
)
_FAILED = "The GPU has failed; see nvidia-smi and the kernel's log"
_ADVICE = {
    3: _FORKED,
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


class CudaError(RuntimeError):
    """An error of the driver. code: CUresult. name: as in cuda.h."""

    def __init__(self, code: int, name: str, message: str):
        super().__init__(message)
        self.code, self.name = code, name


class Driver:
    """The driver's functions by their names in C; each raises CudaError if it fails."""

    def __init__(self, library: Any):
        for name, (doing, types) in PROTOTYPES.items():
            if name in NEWER and not hasattr(library, name):
                continue
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int
            if not name.startswith("cuGetError"):
                function.errcheck = self._check(name, doing)
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} has no prototype in runtime/cuda/driver.py")

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
        advice = _ADVICE.get(code)
        return CudaError(
            code,
            name,
            f"CUDA error: couldn't {doing}: {name} ({meaning}), from {function}"
            f"{'. ' + advice if advice else ''}",
        )

    def unchecked(self, function: str) -> Callable[..., int]:
        """A function without the check of its result, which takes a third of a call's time. Its
        caller raises `failure` for a result that isn't 0."""
        found = getattr(self, function)
        address = ctypes.cast(found, c_void_p).value or 0
        return ctypes.CFUNCTYPE(c_int, *PROTOTYPES[function][1])(address)

    def failure(self, function: str, code: int) -> CudaError:
        return self.error(function, PROTOTYPES[function][0], code)

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


_driver: Driver | None = None
_absence: str | None = None  # why there is no driver, after a search for it
_inherited = False  # the driver was started by a parent of this process


def use(library: Any) -> None:
    """Use `library` in the place of libcuda; None: load the real one when it is needed."""
    global _driver, _absence, _inherited
    _absence, _inherited = None, False
    _driver = None if library is None else Driver(library)
    if _driver is not None:
        _driver.cuInit(0)


def get() -> Driver:
    """The driver; RuntimeError with the reason if there is none."""
    if _driver is None and _absence is None:
        _start()
    if _driver is None:
        raise RuntimeError(f"no CUDA device can be used: {_absence}")
    if _inherited:
        raise RuntimeError(_FORKED)
    return _driver


def forked() -> bool:
    """Whether this process inherited a started driver from its parent. It must not use that."""
    return _inherited


def _in_child() -> None:
    global _inherited
    _inherited = _driver is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _start() -> None:
    global _driver, _absence
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = Driver(ctypes.CDLL(name))
        driver.cuInit(0)
    except OSError:
        _absence = f"the NVIDIA driver's {name} wasn't found"
    except AttributeError as error:
        _absence = f"the NVIDIA driver is older than CUDA 12.0: {error}"
    except CudaError as error:
        _absence = str(error)
    else:
        _driver = driver


@functools.cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def reason_against(compiling: bool = True) -> str | None:
    """Why no CUDA device can be used on this machine; None if one can. Raises nothing.

    compiling: whether kernels are to be compiled too.
    """
    if compiling and not _has_triton():
        return "Triton isn't installed, which compiles kernels: pip install 'tilewright[gpu]'"
    if _driver is None and _absence is None:
        _start()
    if _driver is None:
        return _absence
    return None if count() else "the NVIDIA driver shows no GPU"


def count() -> int:
    """The number of CUDA devices that the driver shows; 0 without a driver."""
    if _driver is None and _absence is None:
        _start()
    try:
        return _driver.number("cuDeviceGetCount") if _driver is not None else 0
    except CudaError:
        return 0
