"""The steps of loading by name: types of storages, and where storages go."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line

from .. import devices
from ..exchange.typed_storages import KINDS

__all__ = [
    "StorageType",
    "default_restore_location",
    "mkdtemp",
    "normalize_storage_type",
    "storage_to_tensor_type",
    "validate_hpu_device",
]


_ROOT: Any = sys.modules[__name__.partition(".")[0]]


class StorageType:
    """A class of storages in a file, by its name: `FloatStorage`."""

    def __init__(self, name: str):
        self._dtype = KINDS[name]

    @property
    def dtype(self) -> Any:
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def normalize_storage_type(storage_type: type) -> Any:
    """The class of torch that is named as a class of storages, which may be one of torch.cuda."""
    return getattr(_ROOT, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> Any:
    """The class of tensors for a storage of a class such as `FloatStorage`."""
    return getattr(_ROOT, type(storage).__name__.replace("Storage", "Tensor"))


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage on the device that a file names: itself if it is there."""
    known = ("cpu", "cuda", "meta")
    if str(location).split(":")[0] not in known:
        raise RuntimeError(
            f"don't know how to restore data location of {type(storage).__name__} (tagged with "
            f"{location}){at_user_line()}"
        )
    wanted = devices.device(location)
    return storage if storage.device == wanted else storage.to(device=wanted)


def validate_hpu_device(location: Any) -> int:
    """RuntimeError: there are no HPUs."""
    raise RuntimeError(
        "The HPU device module is not registered. If you are running on a CPU-only machine, please "
        "use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
    )


@contextmanager
def mkdtemp() -> Iterator[str]:
    """The block in which there is a new folder."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)
