"""What a driver of GPUs is to the runtime: its functions as Python functions that raise.

A driver is NVIDIA's (`nvidia.py`) or AMD's (`runtime/hip`), which is HIP. HIP's functions are those
of CUDA by other names, so the runtime calls both by CUDA's names, and what differs is a method of
`Driver`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int, c_uint, c_uint64, c_void_p
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
