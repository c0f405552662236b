"""Modules that formulas call and that load after them."""

from __future__ import annotations

import importlib
from typing import Any

_TOP = __package__.partition(".")[0]


def top() -> Any:
    """The package itself, as `torch`."""
    return importlib.import_module(_TOP)


def aten() -> Any:
    """`torch.ops.aten`."""
    return importlib.import_module(f"{_TOP}.ops").aten


def functional() -> Any:
    """`torch.nn.functional`."""
    return importlib.import_module(f"{_TOP}.nn.functional")
