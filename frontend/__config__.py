"""torch.__config__: what the kernels are made with."""

from __future__ import annotations

import importlib.util

from .settings.threads import get_num_interop_threads, get_num_threads
from .version import tilewright

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The emitters that are installed, one a line."""
    found = ["NumPy"]
    found += [name for name in ("llvmlite", "triton") if importlib.util.find_spec(name)]
    return "".join(
        ["PyTorch on tilewright:\n", f"  - tilewright {tilewright}\n"]
        + [f"  - kernels by {name}\n" for name in found]
    )


def parallel_info() -> str:
    """The numbers of threads."""
    return (
        f"get_num_threads() : {get_num_threads()}\n"
        f"get_num_interop_threads() : {get_num_interop_threads()}\n"
    )
