"""This machine, as the emitter and LLVM describe it, and the requirements of native code."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import platform
import sys
from collections.abc import Container
from typing import Any

from tilewright.codegen.llvm.machine import Machine

from .. import debug


@functools.cache
def binding() -> Any:
    """llvmlite's binding, initialized; ImportError if it isn't installed."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def is_proven() -> bool:
    """Whether native code has been tested and measured on machines of this kind."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


@functools.cache
def reason_against() -> str | None:
    """Why there can be no native code here, or None."""
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed (pip install 'tilewright[cpu]')"
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()  # the lock may be off from 3.13 on
    if platform.python_implementation() != "CPython" or not locked:
        return "native launches need CPython with its global lock"
    if platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        return f"no native code for {platform.machine()}"
    if sys.byteorder != "little" or sys.maxsize < 2**32:
        return "native code needs a little-endian 64-bit machine"
    try:
        if is_proven():
            return _missing(features())
        machine()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return None


NEEDED = "avx2", "fma", "f16c"
"""The extensions of x86-64 that kernels need."""
_SPELLED = {"bmi1": "bmi", "abm": "lzcnt"}  # Linux's names of features that LLVM calls otherwise


@functools.cache
def features() -> frozenset[str]:
    """The extensions that this processor has, by LLVM's names. Linux is asked first: LLVM takes
    long to load, and most processes compile nothing."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        for line in file:
            if line.startswith(b"flags"):
                return frozenset(_SPELLED.get(f, f) for f in line.decode().split())
    return frozenset(f for f, has in binding().get_host_cpu_features().items() if has)


def _missing(found: Container[str]) -> str | None:
    """Which extensions this processor lacks, as a sentence."""
    missing = [f for f in NEEDED if f not in found]
    return f"this processor lacks {', '.join(missing)}" if missing else None


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    found = []
    for name in (None, "libm.so.6", "libm.so", "libm.dylib"):
        with contextlib.suppress(OSError, TypeError):
            found.append(ctypes.CDLL(name))
    return found


def address_of(name: str) -> int | None:
    """The address of a function of the C library."""
    for library in _libraries():
        function = getattr(library, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


@functools.cache
def compiles() -> bool:
    """Whether LLVM can be loaded. Its installation may be damaged."""
    try:
        machine()
    except (ImportError, OSError, RuntimeError) as error:
        debug.say(f"nothing can be compiled, so NumPy computes it: {error}")
        return False
    return True


def _allows_matrices() -> bool:
    """Ask Linux for the matrix registers of x86, as each process has to: the memory in which it
    keeps a thread's registers grows by 8 KiB once the thread has used them."""
    request, of_matrices = 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    arch_prctl = 158
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    return bool(call(ctypes.c_long(arch_prctl), request, of_matrices) == 0)


@functools.cache
def machine() -> Machine:
    """This machine. RuntimeError if it lacks an instruction that kernels need."""
    llvm = binding()
    triple = llvm.get_process_triple()
    try:
        found = llvm.get_host_cpu_features()
        features = found.flatten()
    except RuntimeError:  # unknown on some platforms
        found, features = {}, ""
    if triple.startswith(("x86_64", "amd64")):
        missing = _missing([f for f, has in found.items() if has])
        if missing:
            raise RuntimeError(missing)
        width = 64 if found.get("avx512f") and found.get("avx512vl") else 32
        if found.get("amx-tile") and not _allows_matrices():
            features = features.replace("+amx-", "-amx-")
    else:
        width = 16
    return Machine(triple, llvm.get_host_cpu_name(), features, width)
