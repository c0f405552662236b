"""torch.distributed.tensor: tensors over several devices. None can be made yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from .. import paths
from . import _Absent, _refuse
from .device_mesh import DeviceMesh, init_device_mesh

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "init_device_mesh",
]


class DTensor(_Absent):
    """A tensor whose parts lie on several devices. None can be made."""

    @staticmethod
    def from_local(*args: Any, **options: Any) -> NoReturn:
        _refuse("tensor.DTensor.from_local")


class Placement:
    """How a tensor lies on the devices of one axis of a mesh."""


@dataclass(frozen=True)
class Shard(Placement):
    """Cut along an axis."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Whole on each device."""


@dataclass(frozen=True)
class Partial(Placement):
    """To be reduced over the devices."""

    reduce_op: str = "sum"


def distribute_tensor(*args: Any, **options: Any) -> NoReturn:
    _refuse("tensor.distribute_tensor")


def distribute_module(*args: Any, **options: Any) -> NoReturn:
    _refuse("tensor.distribute_module")


def __getattr__(name: str) -> object:
    return paths.found(__name__, name)
