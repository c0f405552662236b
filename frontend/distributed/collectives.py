"""Operations that all processes of a group make together, on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line

from .. import recording
from .groups import ProcessGroup, ReduceOp, Work
from .values import blank, checked, copied, write
from .world import group_of, index_of

if TYPE_CHECKING:
    from .._tensor import Tensor

Group = ProcessGroup | int | None


def _started(
    group: ProcessGroup, call: Callable[[], Any], finish: Callable[[Any], Any], async_op: bool
) -> Work | None:
    work = group.start(call, finish, async_op)
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor of each process by the reduction of all."""
    found = group_of(group)
    if found is None:
        return None
    array = copied(checked(tensor, "tensor"))
    return _started(
        found, lambda: found.all_reduce(array, op), lambda made: [write(tensor, made)], async_op
    )


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give all processes the tensor of the process `src` (a rank in the world; group_src: in the
    group)."""
    found = group_of(group)
    if found is None:
        return None
    source = index_of(found, src, group_src, "src")
    checked(tensor, "tensor")
    array = copied(tensor) if found.rank() == source else blank(tensor)
    return _started(
        found,
        lambda: found.broadcast(array, source),
        lambda made: [tensor if found.rank() == source else write(tensor, made)],
        async_op,
    )


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Replace the tensor of the process `dst` by the reduction of all."""
    found = group_of(group)
    if found is None:
        return None
    to = index_of(found, dst, group_dst, "dst")
    array = copied(checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.reduce(array, op, to),
        lambda made: [write(tensor, made) if found.rank() == to else tensor],
        async_op,
    )


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all processes to `tensor_list`. Their sizes may differ."""
    found = group_of(group)
    if found is None:
        return None
    _check_count("tensor_list", tensor_list, found)
    array, likes = copied(checked(tensor, "tensor")), [blank(t) for t in tensor_list]
    return _started(
        found,
        lambda: found.all_gather(array, likes),
        lambda made: list(map(write, tensor_list, made)),
        async_op,
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all processes to one, joined along the first dimension, or as its
    rows."""
    found = group_of(group)
    if found is None:
        return None
    array = copied(checked(input_tensor, "input_tensor"))
    return _started(
        found,
        lambda: found.all_gather(array),
        lambda made: write(output_tensor, np.stack(made).reshape(tuple(output_tensor.shape))),
        async_op,
    )


all_gather_single = all_gather_into_tensor


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the tensors of all processes to the list of the process `dst`."""
    found = group_of(group)
    if found is None:
        return None
    to = index_of(found, 0 if dst is None and group_dst is None else dst, group_dst, "dst")
    _check_list("gather_list", gather_list, found, to, "destination")
    array = copied(checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.gather(array, to),
        lambda made: [] if made is None else list(map(write, gather_list or [], made)),
        async_op,
    )


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each process its tensor of the list of the process `src`."""
    found = group_of(group)
    if found is None:
        return None
    source = index_of(found, 0 if src is None and group_src is None else src, group_src, "src")
    _check_list("scatter_list", scatter_list, found, source, "source")
    parts = [copied(t) for t in scatter_list] if scatter_list else None
    like = blank(checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.scatter(parts, like, source),
        lambda made: [write(tensor, made)],
        async_op,
    )


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the lists of all processes, and give each process its entry."""
    found = group_of(group)
    if found is None:
        return None
    _check_count("input_list", input_list, found)
    parts = [copied(t) for t in input_list]
    return _started(
        found,
        lambda: found.reduce_scatter(parts, op),
        lambda made: [write(output, made)],
        async_op,
    )


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """As `reduce_scatter`, of the parts of one tensor along the first dimension."""
    found = group_of(group)
    if found is None:
        return None
    parts = list(copied(input).reshape(found.size(), *output.shape))
    return _started(
        found,
        lambda: found.reduce_scatter(parts, op),
        lambda made: [write(output, made)],
        async_op,
    )


reduce_scatter_single = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Give each process one tensor of each list."""
    found = group_of(group)
    if found is None:
        return None
    _check_count("output_tensor_list", output_tensor_list, found)
    _check_count("input_tensor_list", input_tensor_list, found)
    parts, likes = [copied(t) for t in input_tensor_list], [blank(t) for t in output_tensor_list]
    return _started(
        found,
        lambda: found.all_to_all(parts, likes),
        lambda made: list(map(write, output_tensor_list, made)),
        async_op,
    )


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """As `all_to_all`, of the parts of one tensor along the first dimension."""
    found = group_of(group)
    if found is None:
        return None
    parts = _split(copied(input), input_split_sizes, found)
    likes = _split(blank(output), output_split_sizes, found)
    return _started(
        found,
        lambda: found.all_to_all(parts, likes),
        lambda made: [write(output, np.concatenate(made))],
        async_op,
    )


def _split(array: np.ndarray, sizes: list[int] | None, group: ProcessGroup) -> list[np.ndarray]:
    if sizes:
        return np.split(array, np.cumsum(sizes)[:-1])
    if len(array) % group.size():
        raise RuntimeError(
            f"Tensor's dim 0 does not divide equally across group size{at_user_line()}"
        )
    return np.split(array, group.size())


def barrier(
    group: Group = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Wait until all processes have come here, for `timeout` or the group's at most."""
    found = group_of(group)
    if found is None:
        return None
    nothing = np.zeros(1, np.uint8)

    def meet() -> Any:
        before, found.timeout = found.timeout, timeout or found.timeout
        try:
            return found.all_gather(nothing)
        finally:
            found.timeout = before

    recording.end_step()
    return _started(found, meet, lambda made: [], async_op)


def monitored_barrier(
    group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that fails after `timeout`."""
    barrier(group, timeout=timeout)


def _check_count(name: str, tensors: Sequence[Any], group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise ValueError(
            f"{name}: expected a tensor for each of {group.size()} processes, got {len(tensors)}"
            f"{at_user_line()}"
        )


def _check_list(
    name: str, tensors: Sequence[Any] | None, group: ProcessGroup, root: int, role: str
) -> None:
    """ValueError unless the process `root`, and no other one, has given a list."""
    if group.rank() != root:
        if tensors:
            raise ValueError(
                f"Argument `{name}` must NOT be specified on non-{role} ranks.{at_user_line()}"
            )
        return
    if not tensors:
        raise ValueError(f"Argument `{name}` must be specified on {role} rank.{at_user_line()}")
    _check_count(name, tensors, group)
