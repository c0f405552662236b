"""torch.cuda.utilization and its kin: what NVIDIA's monitor tells of a GPU.

They ask the package nvidia-ml-py, as PyTorch does.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.ir.location import at_user_line

from .numbering import number_of

__all__ = [
    "clock_rate",
    "list_gpu_processes",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]


def _monitor() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"nvidia-ml-py does not seem to be installed or it can't be imported.{at_user_line()}"
        ) from None


def _handle(device: Any) -> tuple[Any, Any]:
    """(the monitor, what it knows a GPU by)."""
    monitor = _monitor()
    monitor.nvmlInit()
    return monitor, monitor.nvmlDeviceGetHandleByIndex(number_of(device))


def utilization(device: Any = None) -> int:
    """Percent of the last moments in which kernels ran."""
    monitor, handle = _handle(device)
    return int(monitor.nvmlDeviceGetUtilizationRates(handle).gpu)


def memory_usage(device: Any = None) -> int:
    """Percent of the last moments in which memory was read or written."""
    monitor, handle = _handle(device)
    return int(monitor.nvmlDeviceGetUtilizationRates(handle).memory)


def temperature(device: Any = None) -> int:
    """Degrees Celsius of the chip."""
    monitor, handle = _handle(device)
    return int(monitor.nvmlDeviceGetTemperature(handle, 0))


def power_draw(device: Any = None) -> int:
    """Milliwatts."""
    monitor, handle = _handle(device)
    return int(monitor.nvmlDeviceGetPowerUsage(handle))


def clock_rate(device: Any = None) -> int:
    """Megahertz of the multiprocessors."""
    monitor, handle = _handle(device)
    return int(monitor.nvmlDeviceGetClockInfo(handle, 1))


def list_gpu_processes(device: Any = None) -> str:
    """A text with the processes that use a GPU, and the megabytes of each."""
    try:
        monitor, handle = _handle(device)
    except ModuleNotFoundError:
        return "pynvml module not found, please install nvidia-ml-py"
    lines = [f"GPU:{number_of(device)}"]
    found = monitor.nvmlDeviceGetComputeRunningProcesses(handle)
    for each in found:
        used = (each.usedGpuMemory or 0) / 2**20
        lines.append(f"process {each.pid:>10d} uses {used:>12.3f} MB GPU memory")
    return "\n".join(lines if found else [*lines, "no processes are running"])
