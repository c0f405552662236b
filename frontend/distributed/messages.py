"""Messages from one process of a group to another, on tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .groups import ProcessGroup, Work
from .values import blank, checked, copied, write
from .world import group_of, index_of

if TYPE_CHECKING:
    from .._tensor import Tensor

Group = ProcessGroup | int | None


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
    found.send(copied(checked(tensor, "tensor")), to, tag)
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
    source = _source(found, src, group_src)
    array, sender = found.receive(blank(checked(tensor, "tensor")), source, tag)
    write(tensor, array)
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
    source = _source(found, src, group_src)
    like = blank(checked(tensor, "tensor"))
    work = Work(lambda made: [write(tensor, made[0])])
    threading.Thread(
        target=work._run, args=(lambda: found.receive(like, source, tag),), daemon=True
    ).start()
    return work


def _source(group: ProcessGroup, src: int | None, group_src: int | None) -> int | None:
    """The rank in a group of the sender, None for any."""
    if src is None and group_src is None:
        return None
    return index_of(group, src, group_src, "src")


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
