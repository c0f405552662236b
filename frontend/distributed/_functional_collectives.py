"""torch.distributed._functional_collectives: collective operations that return new tensors, with
gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..functions import joining
from . import nn
from .groups import ProcessGroup, ReduceOp
from .world import get_world_size

if TYPE_CHECKING:
    from .._tensor import Tensor


class AsyncCollectiveTensor:
    """A result that may not be there yet: here results are there at once, as plain tensors."""


def _op(name: str) -> ReduceOp:
    return ReduceOp[name.upper()]


def all_reduce(self: Tensor, reduceOp: str, group: Any = None, tag: str = "") -> Tensor:
    """The reduction ("sum", "avg", …) of the tensors of all processes."""
    return nn.all_reduce(self, _op(reduceOp), _group(group))


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any = None, tag: str = "") -> Tensor:
    """The tensors of all processes, joined along `gather_dim`."""
    return joining.cat(nn.all_gather(self, _group(group)), gather_dim)


def reduce_scatter_tensor(
    self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None, tag: str = ""
) -> Tensor:
    """This process's part along `scatter_dim` of the sum of all tensors."""
    parts: Any = self.chunk(get_world_size(_group(group)), scatter_dim)  # type: ignore[attr-defined]
    return nn.reduce_scatter(
        parts[0], [p.contiguous() for p in parts], _op(reduceOp), _group(group)
    )


def all_to_all_single(
    self: Tensor,
    output_split_sizes: list[int] | None,
    input_split_sizes: list[int] | None,
    group: Any = None,
    tag: str = "",
) -> Tensor:
    """The parts for this process of all tensors, along the first dimension."""
    size = sum(output_split_sizes) if output_split_sizes else len(self)
    out: Any = self.new_empty((size, *self.shape[1:]))  # type: ignore[attr-defined]
    return nn.all_to_all_single(out, self, output_split_sizes, input_split_sizes, _group(group))


all_to_all_single_autograd = all_to_all_single
all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there."""
    return tensor


def _group(given: Any) -> ProcessGroup | None:
    return given if isinstance(given, ProcessGroup) else None
