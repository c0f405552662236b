"""torch.distributed.device_mesh: devices in a grid. None can be made yet."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _Absent, _refuse

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh(_Absent):
    """Devices in a grid. None can be made."""


def init_device_mesh(*args: Any, **options: Any) -> NoReturn:
    _refuse("init_device_mesh")
