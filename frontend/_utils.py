"""torch._utils: the names that pickles of tensors and a few packages use."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .devices import cuda_available, current_cuda
from .devices import device as Device

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["_element_size", "_get_device_index"]


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a storage (a TypedStorage, or an UntypedStorage of the default dtype)."""
    from .functions import creation

    dtype = getattr(storage, "dtype", None)
    t: Any = creation.empty(0, dtype=dtype, device=storage.device)
    return t.set_(storage, storage_offset, size, stride)  # type: ignore[no-any-return]


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """A tensor over a storage. The hooks, which aren't saved, must be none."""
    t = _rebuild_tensor(storage, storage_offset, size, stride)
    return t.requires_grad_() if requires_grad else t


def _element_size(dtype: Any) -> int:
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU; -1 for the CPU where it is allowed."""
    if isinstance(device, int):
        return device
    if device is None:
        if optional:
            return current_cuda()
        raise ValueError("Expected a torch.device with a specified index or an integer, got None")
    kind = Device(device)
    if kind.type == "cpu" and allow_cpu:
        return -1
    if kind.type != "cuda":
        raise ValueError(f"Expected a non cpu device, but got: {kind}")
    if kind.index is None and not optional:
        raise ValueError(
            "Expected a torch.device with a specified index or an integer, but got: " + str(kind)
        )
    return current_cuda() if kind.index is None else kind.index


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors in one vector."""
    from .functions.joining import cat

    return cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector that `_flatten_dense_tensors` made, in the shapes of `tensors`."""
    sizes = [t.numel() for t in tensors]
    parts = flat[: sum(sizes)].split(sizes)
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype, each of at most `size_limit` bytes or of one tensor."""
    lists: dict[Any, list[Tensor]] = {}
    sizes: dict[Any, int] = {}
    for t in tensors:
        size = t.numel() * t.element_size()
        if lists.get(t.dtype) and sizes[t.dtype] + size > size_limit:
            yield lists[t.dtype]
            lists[t.dtype], sizes[t.dtype] = [], 0
        sizes[t.dtype] = sizes.get(t.dtype, 0) + size
        lists.setdefault(t.dtype, []).append(t)
    yield from filter(None, lists.values())


def __getattr__(name: str) -> Any:
    if name == "_rebuild_parameter":
        home = importlib.import_module(f"{__package__}.nn.parameter")
        return home._rebuild_parameter
    if name == "ExceptionWrapper":
        return importlib.import_module(f"{__package__}.utils.data.worker").ExceptionWrapper
    raise AttributeError(f"torch._utils has no {name!r}")


def _get_available_device_type() -> str | None:
    """The kind of this machine's accelerators; None without one."""
    return "cuda" if cuda_available() else None


def _get_device_module(device_type: str) -> ModuleType:
    """The module of a kind of devices, as `torch.cuda`."""
    try:
        return importlib.import_module(f"{__package__}.{device_type}")
    except ImportError:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as "
            f"'torch.{device_type}'{at_user_line()}"
        ) from None
