"""Operations that all processes of a group make together, on tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line

from .. import recording
from ..exchange.arrays import array_of
from ..functions import creation
from .groups import ProcessGroup, ReduceOp, Work
from .world import group_of, index_of

if TYPE_CHECKING:
    from .._tensor import Tensor

Group = ProcessGroup | int | None


def _checked(t: Any, name: str) -> Any:
    if not isinstance(t, recording.Handle):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got "
            f"{type(t)} instead.{at_user_line()}"
        )
    return t


def _array(t: Any) -> np.ndarray:
    """A copy of the values: the tensor may change before they have been sent."""
    return np.array(array_of(t.detach()), order="C")


def _like(t: Any) -> np.ndarray:
    """An array of the shape and dtype of a tensor that is to be overwritten."""
    return np.empty(tuple(t.shape), t.dtype.np)


def _write(t: Any, array: np.ndarray) -> Any:
    with recording.grad_mode(False):
        t.copy_(creation.beside(np.array(array, order="C"), t))
    return t


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
    array = _array(_checked(tensor, "tensor"))
    return _started(
        found, lambda: found.all_reduce(array, op), lambda made: [_write(tensor, made)], async_op
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
    _checked(tensor, "tensor")
    array = _array(tensor) if found.rank() == source else _like(tensor)
    return _started(
        found,
        lambda: found.broadcast(array, source),
        lambda made: [tensor if found.rank() == source else _write(tensor, made)],
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
    array = _array(_checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.reduce(array, op, to),
        lambda made: [_write(tensor, made) if found.rank() == to else tensor],
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
    array, likes = _array(_checked(tensor, "tensor")), [_like(t) for t in tensor_list]
    return _started(
        found,
        lambda: found.all_gather(array, likes),
        lambda made: list(map(_write, tensor_list, made)),
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
    array = _array(_checked(input_tensor, "input_tensor"))
    return _started(
        found,
        lambda: found.all_gather(array),
        lambda made: _write(output_tensor, np.stack(made).reshape(tuple(output_tensor.shape))),
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
    if found.rank() == to:
        if not gather_list:
            raise ValueError(
                f"Argument `gather_list` must be specified on destination rank.{at_user_line()}"
            )
        _check_count("gather_list", gather_list, found)
    elif gather_list:
        raise ValueError(
            "Argument `gather_list` must NOT be specified on non-destination ranks."
            f"{at_user_line()}"
        )
    array = _array(_checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.gather(array, to),
        lambda made: [] if made is None else list(map(_write, gather_list or [], made)),
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
    parts = None
    if found.rank() == source:
        if not scatter_list:
            raise ValueError(
                f"Argument `scatter_list` must be specified on source rank.{at_user_line()}"
            )
        _check_count("scatter_list", scatter_list, found)
        parts = [_array(t) for t in scatter_list]
    elif scatter_list:
        raise ValueError(
            f"Argument `scatter_list` must NOT be specified on non-source ranks.{at_user_line()}"
        )
    like = _like(_checked(tensor, "tensor"))
    return _started(
        found,
        lambda: found.scatter(parts, like, source),
        lambda made: [_write(tensor, made)],
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
    parts = [_array(t) for t in input_list]
    return _started(
        found,
        lambda: found.reduce_scatter(parts, op),
        lambda made: [_write(output, made)],
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
    parts = list(_array(input).reshape(found.size(), *output.shape))
    return _started(
        found,
        lambda: found.reduce_scatter(parts, op),
        lambda made: [_write(output, made)],
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
    parts, likes = [_array(t) for t in input_tensor_list], [_like(t) for t in output_tensor_list]
    return _started(
        found,
        lambda: found.all_to_all(parts, likes),
        lambda made: list(map(_write, output_tensor_list, made)),
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
    parts = _split(_array(input), input_split_sizes, found)
    likes = _split(_like(output), output_split_sizes, found)
    return _started(
        found,
        lambda: found.all_to_all(parts, likes),
        lambda made: [_write(output, np.concatenate(made))],
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
    group: Group = None, async_op: bool = False, device_ids: Sequence[int] | None = None
) -> Work | None:
    """Wait until all processes have come here."""
    found = group_of(group)
    if found is None:
        return None
    nothing = np.zeros(1, np.uint8)
    recording.end_step()
    return _started(found, lambda: found.all_gather(nothing), lambda made: [], async_op)


def monitored_barrier(
    group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that fails after `timeout`."""
    found = group_of(group)
    if found is None:
        return
    before, found.timeout = found.timeout, timeout or found.timeout
    try:
        barrier(found)
    finally:
        found.timeout = before


# ---- single messages ----------------------------------------------------------------------------


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to the process `dst`."""
    isend(tensor, dst, group, tag, group_dst)


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Send a tensor without waiting. It may be changed at once."""
    found = group_of(group)
    if found is None:
        return None
    to = index_of(found, dst, group_dst, "dst")
    if to == found.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the "
            f"current process.{at_user_line()}"
        )
    found.send(_array(_checked(tensor, "tensor")), to, tag)
    work = Work()
    work._run(lambda: [tensor])
    return work


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from the process `src`, or from any. Returns the sender's rank; -1 outside
    of the group."""
    found = group_of(group)
    if found is None:
        return -1
    source = None
    if src is not None or group_src is not None:
        source = index_of(found, src, group_src, "src")
    array, sender = found.receive(_like(_checked(tensor, "tensor")), source, tag)
    _write(tensor, array)
    return sender


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Receive a tensor later: it is there when the work has been waited for."""
    found = group_of(group)
    if found is None:
        return None
    source = None
    if src is not None or group_src is not None:
        source = index_of(found, src, group_src, "src")
    like = _like(_checked(tensor, "tensor"))
    work = Work(lambda made: [_write(tensor, made[0])])
    threading.Thread(
        target=work._run, args=(lambda: found.receive(like, source, tag),), daemon=True
    ).start()
    return work


def _check_count(name: str, tensors: Sequence[Any], group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise ValueError(
            f"{name}: expected a tensor for each of {group.size()} processes, got {len(tensors)}"
            f"{at_user_line()}"
        )


class P2POp:
    """A message to make by `batch_isend_irecv`. op: isend or irecv."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ):
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                f"``torch.distributed.irecv``.{at_user_line()}"
            )
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group, self.tag, self.group_peer = group, tag, group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start all messages. Returns their works."""
    works = [o.op(o.tensor, o.peer, o.group, o.tag, o.group_peer) for o in p2p_op_list]
    return [w for w in works if w is not None]
