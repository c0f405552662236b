"""Copies from device to device."""

from __future__ import annotations

from ..node import Node, intern
from ..op import Kind, Op


def _transfer(name: str) -> Op:
    return Op(
        name,
        Kind.TRANSFER,
        lambda x, device: (x.shape, x.dtype),
        params=("device",),
        vjp=lambda g, out, x, device: (copy_to(g, x.device or "cpu"),),
        numpy=lambda x, device: x,
    )


copy_to_op = _transfer("copy_to")
fetch = _transfer("fetch")
"""A copy that its readers wait for; the program goes on."""


def copy_to(x: Node, device: str, waits: bool = True) -> Node:
    """`x` on `device`; `x` itself if it is there.

    waits: whether the program waits for the copy. If not, its readers wait.
    """
    op = copy_to_op if waits else fetch
    return x if x.device == device else intern(op, (x,), (device,), device)
