"""Node: one immutable operation of the graph, interned once for good.

A program that repeats meets its nodes again instead of building them, so everything derived from a
node (its gradient graph, its decomposition) is cached on it, and a tuple of nodes identifies the
graph that computes them without a walk.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .dtype import DType
from .location import at_user_line, user_location
from .shape import Size, check_storage

if TYPE_CHECKING:
    from .op import Op


class Node:
    """An operation on earlier nodes. Two nodes are equal only if they are the same object.

    op, operands, attrs: the computation; attrs follow `op.params`.
    shape, dtype, device: of the value; device None means the value lives anywhere (constants).
    requires_grad: whether autograd records through it.
    loc: (file, line) of the user's code that recorded it first.
    seq: creation order; operands come before their users.
    memo: results of analyses, by name.
    """

    __slots__ = (
        "attrs",
        "device",
        "dtype",
        "loc",
        "memo",
        "op",
        "operands",
        "requires_grad",
        "seq",
        "shape",
    )

    op: Op
    operands: tuple[Node, ...]
    attrs: tuple[Any, ...]
    shape: Size
    dtype: DType
    device: str | None
    requires_grad: bool
    loc: tuple[str, int]
    seq: int
    memo: dict[Hashable, Any]

    def __repr__(self) -> str:
        ins = ", ".join(f"%{o.seq}" for o in self.operands)
        attrs = "".join(f" {k}={v}" for k, v in zip(self.op.params, self.attrs, strict=False))
        return f"%{self.seq} = {self.op.name}({ins}){attrs}: {self.dtype.short}{list(self.shape)}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    if TYPE_CHECKING:  # for short VJPs and decompositions; `ir/ops/operators.py` installs them

        def __add__(self, other: Node | float) -> Node: ...
        def __radd__(self, other: Node | float) -> Node: ...
        def __sub__(self, other: Node | float) -> Node: ...
        def __rsub__(self, other: Node | float) -> Node: ...
        def __mul__(self, other: Node | float) -> Node: ...
        def __rmul__(self, other: Node | float) -> Node: ...
        def __truediv__(self, other: Node | float) -> Node: ...
        def __rtruediv__(self, other: Node | float) -> Node: ...
        def __neg__(self) -> Node: ...
        def __lt__(self, other: Node | float) -> Node: ...
        def __le__(self, other: Node | float) -> Node: ...
        def __gt__(self, other: Node | float) -> Node: ...
        def __ge__(self, other: Node | float) -> Node: ...


class _Mode:
    """The grad mode, its intern table, and the location that new nodes get.

    Each mode has its own table. If a forward op found a node that was recorded without gradient, it
    would silently lose its gradient. A node that a pass makes gets the location of the one it
    replaces.
    """

    __slots__ = ("grad", "loc", "table")

    def __init__(self) -> None:
        self.grad = True
        self.table = _TABLES[True]
        self.loc: tuple[str, int] | None = None


_TABLES: dict[bool, dict[Hashable, Node]] = {True: {}, False: {}}
_MODE = _Mode()
_SEQ = itertools.count()


def grad_enabled() -> bool:
    return _MODE.grad


def set_grad_enabled(enabled: bool) -> None:
    _MODE.grad = enabled
    _MODE.table = _TABLES[enabled]


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record nodes with or without gradient inside the block."""
    before = _MODE.grad
    try:
        set_grad_enabled(enabled)
        yield
    finally:  # no call here: an interrupt may come at its beginning
        _MODE.grad, _MODE.table = before, _TABLES[before]


def set_location(loc: tuple[str, int] | None) -> tuple[str, int] | None:
    """Set the location of nodes made from now on (None: the user's line); return the former one."""
    before = _MODE.loc
    _MODE.loc = loc
    return before


def table_size() -> int:
    return len(_TABLES[True]) + len(_TABLES[False])


def clear_tables() -> None:
    """Forget every interned node. Only sound while no live handle refers to one."""
    for table in _TABLES.values():
        table.clear()


def intern(
    op: Op,
    operands: tuple[Node, ...],
    attrs: tuple[Any, ...] = (),
    device: str | None = None,
    loc: tuple[str, int] | None = None,
) -> Node:
    """The one node that applies `op` to `operands` with `attrs` in the current grad mode.

    A new node gets `loc`, by default the user's line that called.

    Attrs are compared by equality, so a position always holds values of one type (ops normalize
    their attrs), and floats whose sign of zero or NaN matters are stored as bits.
    """
    key = (op, operands, attrs, device)
    table = _MODE.table
    node = table.get(key)
    if node is not None:
        return node
    tracks = op.collects
    for operand in operands:
        if operand.requires_grad:
            tracks = True
            break
    shared = None
    if not tracks and table is _TABLES[False]:
        # Without a gradient at stake both modes share the node, so no work is done twice.
        shared = _TABLES[True]
        node = shared.get(key)
        if node is not None:
            table[key] = node
            return node
    if not op.takes_float8:
        op.check(operands)
    node = Node()
    node.op = op
    node.operands = operands
    node.attrs = attrs
    node.shape, node.dtype = op.infer(*operands, *attrs)
    if not op.is_view:
        check_storage(node.shape, node.dtype.itemsize)
    node.device = device or _common_device(op, operands)
    node.requires_grad = tracks and (
        op.collects or (_MODE.grad and node.dtype.is_floating_point and op.passes_gradient)
    )
    node.loc = loc or _MODE.loc or user_location()
    node.seq = next(_SEQ)
    node.memo = {}
    table[key] = node
    if shared is not None:
        shared[key] = node
    return node


def recorded_as(node: Node) -> tuple[bool, str | None]:
    """The grad mode and the device argument for which `intern` returns `node` again."""
    for grad in (True, False):
        for device in (None, node.device):
            key = (node.op, node.operands, node.attrs, device)
            if _TABLES[grad].get(key) is node:
                return grad, device
    # clear_tables has dropped the node: these arguments give an equal one.
    follows = node.device == _common_device(node.op, node.operands)
    tracked = any(o.requires_grad for o in node.operands)
    return node.requires_grad or not tracked, None if follows else node.device


def _common_device(op: Op, operands: tuple[Node, ...]) -> str | None:
    device = None
    for operand in operands:
        other = operand.device
        if other is None or other == device:
            continue
        if device is None:
            device = other
        else:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{device} and {other}! Move one operand of {op.name} with .to(){at_user_line()}"
            )
    return device


def reachable(roots: Iterable[Node]) -> list[Node]:
    """Every node that `roots` depend on, themselves included, operands first."""
    return sorted(beneath(roots), key=_by_age)


def beneath(roots: Iterable[Node]) -> set[Node]:
    """Every node that `roots` depend on, themselves included, in no order."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.operands)
    return seen


_by_age = operator.attrgetter("seq")


def format_location(loc: tuple[str, int]) -> str:
    return f"{os.path.basename(loc[0])}:{loc[1]}"
