"""Where the storages of a file belong: PyTorch's words for devices, and what it checks of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

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
