"""Engines by name: those of devices, and those of the user's kernels on a device."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from .. import devices
from ..cpu import native
from ..engine import Engine
from .users import USERS, Users


def known(device: str) -> bool:
    """Whether a device has an engine."""
    return device == "cpu" or device.startswith("cuda")


def named(name: str) -> Engine[Any]:
    """The engine of a device, of the user's kernels there (`users@cuda:0`), or of a class named as
    `module:Class`. ValueError for a device without one."""
    if name == "cpu":  # even where NumPy runs all kernels
        return native.ENGINE
    if name.startswith(USERS):
        return of_users(name.removeprefix(USERS))
    module, _, what = name.partition(":")
    if what and not what.isdigit():
        made: Engine[Any] = getattr(importlib.import_module(module), what)()
        return made
    engine = devices.get(name).engine if module == "cuda" else None
    if engine is None:
        raise ValueError(f"there is nothing to tune on {name!r}: expected cpu or cuda")
    return engine


@functools.cache
def of_users(device: str) -> Users:
    """The engine of the user's kernels on a device."""
    return Users(device)
