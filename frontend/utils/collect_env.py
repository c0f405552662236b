"""torch.utils.collect_env: what a report of a defect needs to say of the machine."""

from __future__ import annotations

import platform
import sys

from tilewright.runtime import devices

from ..torch_version import __version__
from ..version import tilewright

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """The versions and the devices, one a line."""
    import numpy

    found = {
        "PyTorch version": __version__,
        "tilewright version": tilewright,
        "OS": platform.platform(),
        "Python version": sys.version.replace("\n", " "),
        "NumPy version": numpy.__version__,
        "Is CUDA available": devices.cuda_count() > 0,
        "CUDA devices": devices.cuda_count(),
        "CPU": platform.processor() or platform.machine(),
    }
    return "\n".join(f"{name}: {value}" for name, value in found.items())


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
