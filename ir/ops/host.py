"""Routines of the host's libraries (LAPACK), as nodes.

A routine reads whole tensors and gives several results at once. A node is one of them: its last
attr, `index`, tells which. The nodes of one call have the same operands and other attrs, so a
program makes the call once (`results_of`).

`called` leaves operands on their device if that computes the routine itself: by a kernel for small
matrices (`has_kernel`; `codegen/triton/matrices.py`), or by a library (`offered`;
`codegen/legalize/factors.py`). Otherwise operands go to the host (`on_host`), and results come
`back`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..dtype import float32, float64, int32
from ..node import Node, grad_mode
from ..op import Aval, Kind, Op
from .transfer import copy_to

HOST = "cpu"
TILE = 64
"""The rows and columns of the largest matrices that a program of a GPU holds in its registers."""


def _none_offers(device: str, op: Op, operands: Sequence[Node]) -> bool:
    return False


offered: Callable[[str, Op, Sequence[Node]], bool] = _none_offers
"""Whether the library of a device computes a routine of operands. The runtime tells
(`runtime/devices.py`)."""


def routine(
    name: str,
    types: Callable[..., tuple[Aval, ...]],
    function: Callable[..., tuple[Any, ...]],
    results: int,
    params: tuple[str, ...] = (),
    vjp: Callable[..., Any] | None = None,
    complex: bool = True,
    tile: int = 0,
    fills: bool = False,
) -> Op:
    """The record of a routine.

    types(*operands, *attrs): the shape and dtype of each result. function(*arrays, *attrs): the
    results, as contiguous arrays of these types; no error for values, which is a result of its own.
    complex: whether operands may be complex. tile: as in `Op`.
    fills: whether the function of a single result takes `out`: memory of its type, or None. It may
        leave it alone.
    vjp(g, out, *operands, *attrs, index): the cotangents of the operands by that of one result.
    """

    def infer(*args: Any) -> Aval:
        *given, index = args
        return types(*given)[index]

    def numpy(*args: Any) -> Any:
        *given, index = args
        return function(*given)[index]

    return Op(
        name,
        Kind.HOST,
        infer,
        params=(*params, "index"),
        vjp=vjp,
        numpy=numpy,
        routine=function,
        results=results,
        complex=complex,
        tile=tile,
        fills=fills,
    )


def results_of(node: Node) -> tuple[Node, ...]:
    """The nodes of all results of the call that `node` is a result of."""
    *attrs, index = node.attrs
    with grad_mode(node.instruction.recorded[0]):
        return tuple(
            node if i == index else node.op(*node.operands, *attrs, i)
            for i in range(node.op.results)
        )


def called(op: Op, *args: Any) -> tuple[Node, ...]:
    """All results of a routine, on the device of its operands, wherever it is computed."""
    count = sum(isinstance(a, Node) for a in args)
    if stays(op, args[:count]):
        return in_place(op, *args)
    operands, device = on_host(args[:count])
    return back(in_place(op, *operands, *args[count:]), device)


def in_place(op: Op, *args: Any) -> tuple[Node, ...]:
    """All results of a routine that is computed where its operands are."""
    return tuple([op(*args, i) for i in range(op.results)])


def stays(op: Op, operands: Sequence[Node]) -> bool:
    """Whether a routine is computed where its operands are."""
    device = next((o.device for o in operands if o.device not in (None, HOST)), None)
    if device is None or has_kernel(op, operands):
        return True
    return not any(0 in o.shape for o in operands) and offered(device, op, operands)


def has_kernel(op: Op, operands: Sequence[Node]) -> bool:
    """Whether operands are on a device that has a kernel for this routine of theirs: real matrices
    that fit a tile, a batch of them alike, or the pivots of such."""
    places = {o.device for o in operands} - {None}  # a device may compute numbers of none
    if not op.tile or not places or HOST in places or any(0 in o.shape for o in operands):
        return False
    if operands[0].dtype is int32:
        return operands[0].shape[-1] <= op.tile
    batch = operands[0].shape[:-2]
    return all(
        o.rank >= 2
        and o.shape[:-2] == batch
        and max(o.shape[-2:]) <= op.tile
        and o.dtype in (float32, float64)
        for o in operands
    )


def on_host(operands: Sequence[Node]) -> tuple[tuple[Node, ...], str | None]:
    """The operands on the host, and the device that they were on."""
    device = next((o.device for o in operands if o.device not in (None, HOST)), None)
    if device is None:
        return tuple(operands), None
    return tuple([o if o.device is None else copy_to(o, HOST) for o in operands]), device


def back(results: Sequence[Node], device: str | None) -> tuple[Node, ...]:
    """Results of the host on the device that their operands were on."""
    return tuple(results) if device is None else tuple([copy_to(r, device) for r in results])
