"""Where the storages of a file belong: PyTorch's words for devices, and what it checks of them."""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.runtime.devices import cuda_count


def location_tag(storage: Any) -> str:
    """The word for a storage's device, as files have it: "cpu", or "cuda:0"."""
    kind = str(storage.device)
    return "cpu" if kind.partition(":")[0] in ("cpu", "interpret") else kind


def validate_cuda_device(location: str) -> int:
    """The number of the GPU that `location` names. RuntimeError if there is none of it here."""
    name, _, number = str(location).partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"Expected a CUDA device location, but got: {location}{at_user_line()}")
    count = cuda_count()
    if not count:
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
            "False. If you are running on a CPU-only machine, please use torch.load with "
            f"map_location=torch.device('cpu') to map your storages to the CPU{at_user_line()}"
        )
    found = int(number or 0)
    if found >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {found} but "
            f"torch.cuda.device_count() is {count}. Please use torch.load with map_location to "
            f"map your storages to an existing device{at_user_line()}"
        )
    return found


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: Sequence[int], error_if_malformed: bool = True
) -> bool:
    """Whether the `__version__` of a module is at least the given one, compared number by number.

    A version of other or fewer parts is an error, or counts as new enough with a warning.
    """
    parts = str(module.__version__).split(".")
    try:
        found = tuple(type(wanted)(parts[i]) for i, wanted in enumerate(req_version_tuple))
    except (ValueError, IndexError) as error:
        text = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and "
            f"cannot be compared with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(text) from error
        warnings.warn(f"{text}, but continuing assuming that requirement is met", stacklevel=2)
        return True
    return found >= tuple(req_version_tuple)


class _Package(NamedTuple):
    priority: int
    tagger: Callable[[Any], str | None]
    deserializer: Callable[[Any, str], Any]


_packages: list[_Package] = []


def register_package(
    priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]
) -> None:
    """Ask tagger(storage) for the word with which a storage is saved, and deserializer(storage,
    word) for the storage that takes its place when it is loaded; None leaves it to others. The
    lowest `priority` is asked first."""
    made = _Package(priority, tagger, deserializer)
    _packages.insert(bisect.bisect([p.priority for p in _packages], priority), made)


def tagged(t: Any) -> str | None:
    """The word of a registered package for the memory of a tensor."""
    words = (p.tagger(t.untyped_storage()) for p in _packages)
    return next((w for w in words if w is not None), None)


def restored(raw: np.ndarray, location: str) -> tuple[np.ndarray, str] | None:
    """The bytes, and their device, that a registered package gives for those of a file."""
    if not _packages:
        return None
    from ..functions.from_data import from_numpy

    for package in _packages:
        made = package.deserializer(from_numpy(raw).untyped_storage(), location)
        if made is not None:
            return np.frombuffer(bytearray(made.tolist()), np.uint8), location_tag(made)
    return None
