"""torch.utils._foreach_utils: tensors in groups that one call can update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..devices import device

Lists = list[list["Tensor | None"]]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Kinds of devices on which optimizers take all parameters at once."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Kinds of devices for which optimizers take `fused=True`."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _has_foreach_support(tensors: list[Any], device: device) -> bool:
    supported = device.type in {*_get_foreach_kernels_supported_devices(), "cpu"}
    return supported and all(t is None or hasattr(t, "dtype") for t in tensors)


def _device_has_foreach_support(device: device) -> bool:
    return device.type in {*_get_foreach_kernels_supported_devices(), "cpu"}


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Lists, with_indices: bool = False
) -> dict[tuple[device, DType], tuple[Lists, list[int]]]:
    """Cut lists that run in parallel into groups by device and dtype of the first list's tensors.

    (device, dtype) -> the lists' parts, and their places, which are empty unless `with_indices`. An
    empty list stays empty. RuntimeError for lists of other lengths, and for None in the first.
    """
    if not tensorlistlist:
        raise RuntimeError(f"tensorlistlist: expected at least one list, got none{at_user_line()}")
    first = tensorlistlist[0]
    if any(len(each) not in (0, len(first)) for each in tensorlistlist):
        lengths = [len(each) for each in tensorlistlist]
        raise RuntimeError(
            f"tensorlistlist: expected lists of {len(first)} tensors, or empty ones, got lengths "
            f"{lengths}{at_user_line()}"
        )
    groups: dict[tuple[device, DType], tuple[Lists, list[int]]] = {}
    for place, tensor in enumerate(first):
        if tensor is None:
            raise RuntimeError(
                "Tensors of the first list of nested Tensor lists are supposed to be defined but "
                f"the {place}-th Tensor is not.{at_user_line()}"
            )
        key = tensor.device, tensor.dtype
        if key not in groups:
            groups[key] = [[] for _ in tensorlistlist], []
        parts, places = groups[key]
        for part, each in zip(parts, tensorlistlist):
            part.extend(each[place : place + 1])
        if with_indices:
            places.append(place)
    return groups
