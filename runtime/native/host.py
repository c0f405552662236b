"""This machine, as the emitter and LLVM describe it, and the requirements of native code."""

from __future__ import annotations

import functools
import importlib.util
import platform
import sys
from typing import Any

from tilewright.codegen.llvm.machine import Machine


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
        machine()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return None


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
        missing = [f for f in ("avx2", "fma", "f16c") if not found.get(f)]
        if missing:
            raise RuntimeError(f"this processor lacks {', '.join(missing)}")
        width = 64 if found.get("avx512f") and found.get("avx512vl") else 32
    else:
        width = 16
    return Machine(triple, llvm.get_host_cpu_name(), features, width)
