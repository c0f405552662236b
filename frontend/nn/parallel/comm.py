"""torch.nn.parallel.comm: tensors between the devices of a model, of which there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .data_parallel import _only
from .data_parallel import gather as _gather

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from ...types import DeviceLike

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def broadcast(
    tensor: Tensor, devices: Sequence[DeviceLike] | None = None, *, out: Any = None
) -> tuple[Tensor, ...]:
    """A tensor on each device."""
    if out is not None:
        return tuple(each.copy_(tensor) for each in out)
    return (tensor.to(_only(devices or ())),)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], buffer_size: int = 10485760
) -> tuple[tuple[Tensor, ...], ...]:
    """All tensors on each device."""
    device = _only(devices)
    return (tuple(t.to(device) for t in tensors),)


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike | None = None) -> Tensor:
    """The sum of tensors of one shape, on one device."""
    shapes = {tuple(t.shape) for t in inputs}
    if len(shapes) != 1:
        raise ValueError(f"reduce_add: expected tensors of one shape, got {sorted(shapes)}")
    first, *others = inputs
    total = first if destination is None else first.to(destination)
    for each in others:
        total = total + each.to(total.device)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]],
    destination: DeviceLike | None = None,
    buffer_size: int = 10485760,
) -> tuple[Tensor, ...]:
    """The sums of the tensors at each place of several lists."""
    return tuple(reduce_add(each, destination) for each in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Sequence[DeviceLike] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[Tensor, ...]:
    """The parts of a tensor, one for each device."""
    if out is not None:
        sizes = [t.shape[dim] for t in out]
        return tuple(o.copy_(part) for o, part in zip(out, tensor.split(sizes, dim), strict=True))
    return (tensor.to(_only(devices or ())),)


def gather(
    tensors: Sequence[Tensor],
    dim: int = 0,
    destination: DeviceLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Tensors one after another along `dim`, on one device."""
    from ...functions.joining import cat

    whole = cat(list(tensors), dim)
    return whole if destination is None else _gather([whole], destination, dim)
