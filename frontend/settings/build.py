"""What PyTorch tells of its build, and switches of its processor: torch.has_lapack, …"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.ir.location import warn

from ..devices import device

has_lapack = has_openmp = has_spectral = True
"""Whether there are factorizations, threads in kernels, and Fourier transforms."""

has_mkl = False

_OLDER = {
    "has_cuda": "backends.cuda.is_built",
    "has_mps": "backends.mps.is_built",
    "has_cudnn": "backends.cudnn.is_available",
    "has_mkldnn": "backends.mkldnn.is_available",
}


def older(name: str) -> Any:
    """What a backend has, by the older name of the question; None for any other name."""
    if name not in _OLDER:
        return None
    path = _OLDER[name]
    warn(f"'{name}' is deprecated, please use 'torch.{path}()'", once=True)
    module, function = path.rsplit(".", 1)
    home = importlib.import_module(f"{__package__.partition('.')[0]}.{module}")
    return getattr(home, function)()


DeviceObjType = device

_warn_always = False


def compiled_with_cxx11_abi() -> bool:
    """Whether strings in C++ have the layout of C++11, as they have in every PyTorch since 2.7."""
    return True


def is_vulkan_available() -> bool:
    return False


def set_warn_always(b: bool, /) -> None:
    """Choose whether warnings that come once come each time. Python's filters choose here."""
    global _warn_always
    _warn_always = b


def is_warn_always_enabled() -> bool:
    return _warn_always


def init_num_threads() -> None:
    """The workers are there when they are needed."""
