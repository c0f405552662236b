"""torch.version: the version of PyTorch that is the specification, our own, and CUDA's."""

from __future__ import annotations

from typing import Any

from .torch_version import __version__ as __version__

tilewright = "0.1.0"
hip = rocm = xpu = None
git_version: str | None = None
debug = False


def __getattr__(name: str) -> Any:
    """cuda: the driver's version of CUDA; None without a GPU."""
    if name == "cuda":
        from .devices import cuda_available

        if not cuda_available():
            return None
        from tilewright.runtime.cuda import driver

        number = driver.get().number("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"
    raise AttributeError(f"torch.version has no {name!r}")
