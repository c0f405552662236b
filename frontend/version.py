"""torch.version: the version of PyTorch that is the specification, our own, and CUDA's or HIP's."""

from __future__ import annotations

from typing import Any

from .torch_version import __version__ as __version__

tilewright = "0.1.0"
xpu = None
git_version: str | None = None
debug = False
_PLATFORMS = {"cuda": "CUDA", "hip": "HIP", "rocm": "HIP"}


def __getattr__(name: str) -> Any:
    """cuda, hip: the version of the driver's platform; None without such a GPU. rocm: as hip."""
    if name in _PLATFORMS:
        from .devices import cuda_available

        if not cuda_available():
            return None
        from tilewright.runtime.cuda import driver

        found = driver.get()
        return found.version() if found.name == _PLATFORMS[name] else None
    raise AttributeError(f"torch.version has no {name!r}")
