"""torch.distributed.nn: collective operations with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..functions import creation, joining, shapes
from . import ReduceOp, group
from . import collectives as plain
from .groups import ProcessGroup
from .world import get_rank, get_world_size

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "group",
    "reduce",
    "reduce_scatter",
    "scatter",
]
Group = ProcessGroup | None


def _copy(t: Any) -> Any:
    return shapes.clone(t.detach())


class _AllReduce(Function):
    """The reduction of all tensors. Its gradient is that of all processes together."""

    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        ctx.op, ctx.group = op, group
        out = _copy(tensor)
        plain.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _AllToAll(Function):
    """One tensor of each process's list. The gradients go back."""

    @staticmethod
    def forward(ctx: Any, group: Any, likes: Any, *tensors: Any) -> Any:
        ctx.group, ctx.likes = group, [creation.empty_like(t.detach()) for t in tensors]
        outs = [creation.empty_like(t) for t in likes]
        plain.all_to_all(outs, [_copy(t) for t in tensors], group)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *_AllToAll.apply(ctx.group, ctx.likes, *grads))


class _Broadcast(Function):
    """The tensor of one process, which gets the sum of all gradients."""

    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Any) -> Any:
        ctx.src, ctx.group = src, group
        out = _copy(tensor)
        plain.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        total = _copy(grad)
        plain.reduce(total, ctx.src, ReduceOp.SUM, ctx.group)
        own = get_rank() == ctx.src
        return None, None, total if own else creation.zeros_like(total)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The reduction of the tensors of all processes."""
    return _AllReduce.apply(op, group, tensor)  # type: ignore[no-any-return]


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """One tensor of each process's list. output_tensor_list: tensors of their sizes."""
    likes = [t.detach() for t in output_tensor_list]
    return _AllToAll.apply(group, likes, *input_tensor_list)  # type: ignore[no-any-return]


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all processes, which are of one size."""
    count = get_world_size(group)
    return all_to_all([tensor] * count, [tensor] * count, group)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Group = None,
) -> Tensor:
    """As `all_to_all`, of the parts of one tensor along the first dimension."""
    count = get_world_size(group)
    ins: Any = input.split(input_split_sizes or len(input) // count)
    outs: Any = output.split(output_split_sizes or len(output) // count)
    return joining.cat(all_to_all(list(outs), list(ins), group))


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """The tensor of the process `src`."""
    return _Broadcast.apply(src, group, tensor)  # type: ignore[no-any-return]


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The reduction of all tensors in the process `dst`; elsewhere the tensor itself."""
    total = all_reduce(tensor, op, group)
    return total if get_rank() == dst else tensor + 0 * total


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all processes in the process `dst`; elsewhere zeros."""
    found = all_gather(tensor, group)
    return found if get_rank() == dst else tuple(0 * t for t in found)


def scatter(tensors: list[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """This process's tensor of the list of the process `src`."""
    return all_to_all(tensors, tensors, group)[src]


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """The reduction of what all processes have for this one."""
    if op is not ReduceOp.SUM:
        raise NotImplementedError("torch.distributed.nn.reduce_scatter: only sums have gradients")
    found = all_to_all([output] * get_world_size(group), input_list, group)
    total = found[0]
    for each in found[1:]:
        total = total + each
    return total
