"""torch.utils.cpp_extension: refused. Extensions in C++ are written against PyTorch's own headers.

A kernel of one's own is a Triton kernel here: see torch.library.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, NoReturn

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "SyclExtension",
    "load",
    "load_inline",
]


def _cuda_home() -> str | None:
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    compiler = shutil.which("nvcc")
    return named or (os.path.dirname(os.path.dirname(compiler)) if compiler else None)


CUDA_HOME = _cuda_home()
ROCM_HOME = None
IS_HIP_EXTENSION = False


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.utils.cpp_extension.{name}: tilewright can't build or load extensions in C++, "
        "which need PyTorch's headers. Write the kernel in Triton (torch.library.triton_op), or "
        "use the package's own fallback in Python"
    )


def load(name: str, *args: Any, **options: Any) -> NoReturn:
    _refuse("load")


def load_inline(name: str, *args: Any, **options: Any) -> NoReturn:
    _refuse("load_inline")


def CppExtension(name: str, *args: Any, **options: Any) -> NoReturn:
    _refuse("CppExtension")


def CUDAExtension(name: str, *args: Any, **options: Any) -> NoReturn:
    _refuse("CUDAExtension")


def SyclExtension(name: str, *args: Any, **options: Any) -> NoReturn:
    _refuse("SyclExtension")


class BuildExtension:
    def __init__(self, *args: Any, **options: Any):
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> NoReturn:
        _refuse("BuildExtension")
