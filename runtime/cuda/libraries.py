"""The functions of cuSOLVER and cuBLAS, by ctypes.

The libraries are loaded by name when a program first asks for a routine. They come with NVIDIA's
wheels (nvidia-cusolver) or with a CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, c_byte, c_int, c_int64, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import debug
from ..device import OutOfMemoryError

_out, _sizes, _handle = POINTER(c_void_p), POINTER(c_size_t), c_void_p
_dense = (_handle, c_void_p)  # the handle and the parameters
_matrix = (c_int, c_void_p, c_int64)  # type, address, elements between columns
_asked = (c_int, _sizes, _sizes)  # type of the computation, bytes on the device and on the host
_given = (c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)  # ..., and info
_vector = (c_int, c_void_p)

_GENERIC: dict[str, tuple[Any, ...]] = {
    "Xpotrf": (c_int, c_int64, *_matrix),
    "Xgeqrf": (c_int64, c_int64, *_matrix, *_vector),
    "Xsyevd": (c_int, c_int, c_int64, *_matrix, *_vector),
    "Xgesvd": (c_byte, c_byte, c_int64, c_int64, *_matrix, *_vector, *_matrix, *_matrix),
    "Xgeev": (c_int, c_int, c_int64, *_matrix, *_vector, *_matrix, *_matrix),
}
_PLACES = (c_int, c_int, c_int, c_void_p, c_int, c_void_p)  # m, n, k, A, lda, tau

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cusolverDnCreate": (_out,),
    "cusolverDnCreateParams": (_out,),
    "cusolverDnCreateGesvdjInfo": (_out,),
    "cusolverDnSetStream": (_handle, c_void_p),
    "cublasCreate_v2": (_out,),
    "cublasSetStream_v2": (_handle, c_void_p),
    "cusolverDnXgetrf_bufferSize": (*_dense, c_int64, c_int64, *_matrix, *_asked),
    "cusolverDnXgetrf": (*_dense, c_int64, c_int64, *_matrix, c_void_p, *_given),
    "cusolverDnXgetrs": (
        *(*_dense, c_int, c_int64, c_int64),
        *(*_matrix, c_void_p, *_matrix, c_void_p),
    ),
    "cusolverDnXsyevBatched_bufferSize": (*_dense, *_GENERIC["Xsyevd"], *_asked, c_int64),
    "cusolverDnXsyevBatched": (*_dense, *_GENERIC["Xsyevd"], *_given, c_int64),
    "cusolverDnDlaswp": (
        *(_handle, c_int, c_void_p, c_int),
        *(c_int, c_int, c_void_p, c_int),
    ),
}
"""The parameter types of the functions."""

for _name, _types in _GENERIC.items():
    PROTOTYPES[f"cusolverDn{_name}_bufferSize"] = (*_dense, *_types, *_asked)
    PROTOTYPES[f"cusolverDn{_name}"] = (*_dense, *_types, *_given)
_JACOBI = (
    *(_handle, c_int, c_int, c_int, c_void_p, c_int),  # whether vectors, m, n, A, lda
    *(c_void_p, c_void_p, c_int, c_void_p, c_int),  # S, U, ldu, V, ldv
)
for _letter in "SDCZ":
    _name = f"cusolverDn{_letter}gesvdjBatched"
    PROTOTYPES[f"{_name}_bufferSize"] = (*_JACOBI, POINTER(c_int), c_void_p, c_int)
    PROTOTYPES[_name] = (*_JACOBI, c_void_p, c_int, c_void_p, c_void_p, c_int)
    _name = f"cusolverDn{_letter}{'orgqr' if _letter in 'SD' else 'ungqr'}"
    PROTOTYPES[f"{_name}_bufferSize"] = (_handle, *_PLACES, POINTER(c_int))
    PROTOTYPES[_name] = (_handle, *_PLACES, c_void_p, c_int, c_void_p)
    PROTOTYPES[f"cublas{_letter}trsm_v2"] = (
        *(_handle, c_int, c_int, c_int, c_int, c_int, c_int),
        *(c_void_p, c_void_p, c_int, c_void_p, c_int),
    )

NEWER = ("Xgeev", "XsyevBatched")
"""What older libraries of CUDA 12 lack."""

FAULTS = {
    "cusolver": {
        1: "NOT_INITIALIZED",
        2: "ALLOC_FAILED",
        3: "INVALID_VALUE",
        4: "ARCH_MISMATCH",
        6: "EXECUTION_FAILED",
        7: "INTERNAL_ERROR",
        8: "MATRIX_TYPE_NOT_SUPPORTED",
        9: "NOT_SUPPORTED",
    },
    "cublas": {
        1: "NOT_INITIALIZED",
        3: "ALLOC_FAILED",
        7: "INVALID_VALUE",
        8: "ARCH_MISMATCH",
        13: "EXECUTION_FAILED",
        14: "INTERNAL_ERROR",
        15: "NOT_SUPPORTED",
    },
}


class Libraries:
    """The functions of cuSOLVER and cuBLAS by name; each raises RuntimeError if it fails."""

    def __init__(self, solver: Any, blas: Any):
        for name, types in PROTOTYPES.items():
            library = blas if name.startswith("cublas") else solver
            if any(each in name for each in NEWER) and not hasattr(library, name):
                continue
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int
            function.errcheck = _check(name)
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this cuSOLVER has no {name}")

    def handle(self, function: str) -> int:
        """Call a function and return the handle that it writes to its parameter."""
        out = c_void_p()
        getattr(self, function)(out)
        return out.value or 0


def _check(name: str) -> Callable[[int, Any, Any], int]:
    library = "cusolver" if name.startswith("cusolver") else "cublas"

    def check(code: int, function: Any, arguments: Any) -> int:
        if code:
            fault = FAULTS[library].get(code, str(code))
            kind = OutOfMemoryError if fault == "ALLOC_FAILED" else RuntimeError
            raise kind(f"CUDA error: {library.upper()}_STATUS_{fault}, from {name}")
        return code

    return check


_libraries: Libraries | None = None
_absence: str | None = None  # why there are none, after a search for them


def load(files: Sequence[tuple[str, str]]) -> Libraries | None:
    """The libraries, if they are installed. files: names of both, in the order to try."""
    global _libraries, _absence
    if _libraries is None and _absence is None:
        for solver, blas in files:
            for path in paths(solver):
                try:
                    # It loads cuBLAS itself, from its own folder or one beside it.
                    found = ctypes.CDLL(path)
                    _libraries = Libraries(found, ctypes.CDLL(blas))
                except (OSError, AttributeError) as error:
                    _absence = str(error)
                else:
                    return _libraries
        if _absence is None:
            _absence = "this platform has none"
        debug.say(f"no cuSOLVER was found: {_absence}")
    return _libraries


def paths(name: str) -> Iterator[str]:
    """Where a library may be: in NVIDIA's wheels, in a toolkit, and where the system looks."""
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for part in ("cusolver", "cu13"):
            path = Path(folder, part, "lib", name)
            if path.exists():
                yield os.fspath(path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(variable, "/usr/local/cuda"), "lib64", name)
        if path.exists():
            yield os.fspath(path)
    yield name
