"""The facts that `tilewright env` shows."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tilewright.runtime import cache, devices, offline

from ..version import tilewright
from .card import numbers

REQUIRED = ("numpy", "ml_dtypes", "networkx", "tqdm", "rich", "typer")
EXTRAS = {
    "gpu": ("triton",),
    "onnx": ("onnx", "onnxruntime"),
    "cpu": ("llvmlite",),
}


def environment() -> dict[str, Any]:
    """Versions, devices, extras and caches, as plain data."""
    entries, size = _cache_size(cache.directory())
    return {
        "tilewright": tilewright,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "installed at": str(Path(__file__).resolve().parents[1]),
        "packages": {name: _version(name) for name in REQUIRED},
        "extras": {extra: {n: _version(n) for n in names} for extra, names in EXTRAS.items()},
        "devices": {name: _describe(name) for name in devices.names()},
        "cache": {
            "folder": str(cache.directory()),
            "on": cache.enabled(),
            "entries": entries,
            "bytes": size,
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _describe(name: str) -> str:
    try:
        device = devices.get(name)
    except Exception as error:  # report a device that can't start
        return f"not usable: {error}"
    kind = (type(device).__doc__ or type(device).__name__).strip().splitlines()[0]
    if device.target.name in offline.TARGETS:
        return f"{kind} {device.target.name}, card {numbers(device.target.chip)}"
    return kind


def _cache_size(folder: Path) -> tuple[int, int]:
    entries = size = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                entries, size = entries + 1, size + path.stat().st_size
        except OSError:  # removed by another process meanwhile
            continue
    return entries, size
