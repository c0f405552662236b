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

from .dtype import BOOL, FLOAT, DType
from .location import at_user_line, user_location
from .shape import Size, check_storage

if TYPE_CHECKING:
    from .op import Op


class Type:
    """What a function that builds nodes may ask of an operand. One object for all equal types.

    shape, dtype, device: of the value; device None means the value lives anywhere (constants).
    requires_grad: whether autograd records through it.
    is_integer: whether the dtype is an integer, but no bool.
    """

    __slots__ = ("device", "dtype", "is_integer", "requires_grad", "shape", "stand_ins")

    def __init__(self, shape: Size, dtype: DType, device: str | None, requires_grad: bool):
        self.shape, self.dtype, self.device = shape, dtype, device
        self.requires_grad, self.is_integer = requires_grad, BOOL < dtype.category < FLOAT
        self.stand_ins: dict[Hashable, Node] = {}  # of recipes


OPAQUE: Any = object()


class Instruction:
    """An op with attrs on operands of given types, recorded in a grad mode: all that equal
    computations have in common, and the table of their nodes.

    op, attrs, type: of the nodes. recorded: the grad mode and the device argument of `intern`.
    alike: all that a function that builds nodes sees of a node: the type, or for a constant this
        instruction; `OPAQUE` where nodes of one instruction differ in it.
    nodes: operands -> the node. memo: results of analyses that depend on nothing else, by name.
    """

    __slots__ = ("alike", "attrs", "memo", "nodes", "op", "recorded", "type")

    def __init__(
        self, op: Op, attrs: tuple[Any, ...], type: Type, recorded: tuple[bool, str | None]
    ):
        self.op, self.attrs, self.type, self.recorded = op, attrs, type, recorded
        self.alike: Any = type
        if op.shows == "attrs":
            self.alike = self
        elif op.shows == "operands" or type.is_integer:  # functions ask for the bounds of integers
            self.alike = OPAQUE
        self.nodes: dict[tuple[Node, ...], Node] = {}
        self.memo: dict[Hashable, Any] = {}

    def of(self, operands: tuple[Node, ...], loc: tuple[str, int] | None = None) -> Node:
        """The node on `operands`. A new one gets `loc`, by default the user's line that called."""
        return self.nodes.get(operands) or self.new(operands, loc)

    def new(self, operands: tuple[Node, ...], loc: tuple[str, int] | None = None) -> Node:
        """The node on operands that have none yet."""
        made = Node()
        made.op, made.attrs, made.operands = self.op, self.attrs, operands
        made.instruction = self
        made.type = of = self.type
        made.shape, made.dtype = of.shape, of.dtype
        made.device, made.requires_grad = of.device, of.requires_grad
        made.loc = loc or _MODE.loc or user_location()
        made.seq, made.memo = next(_SEQ), {}
        self.nodes[operands] = made
        _MODE.size += 1
        return made


class Node:
    """An operation on earlier nodes. Two nodes are equal only if they are the same object.

    op, operands, attrs: the computation; attrs follow `op.params`.
    instruction, type: what it has in common with others; the type's fields are the node's, too.
    loc: (file, line) of the user's code that recorded it first.
    seq: creation order; operands come before their users.
    memo: results of analyses, by name.
    """

    __slots__ = (
        "attrs",
        "device",
        "dtype",
        "instruction",
        "loc",
        "memo",
        "op",
        "operands",
        "requires_grad",
        "seq",
        "shape",
        "type",
    )

    op: Op
    operands: tuple[Node, ...]
    attrs: tuple[Any, ...]
    instruction: Instruction
    type: Type
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
    """The grad mode, the location that new nodes get, and the number of nodes in the tables.

    An instruction has one grad mode. If a forward op found a node recorded without gradient,
    it would silently lose its gradient. A node that a pass makes gets the location of the one it
    replaces.
    """

    __slots__ = ("grad", "loc", "size")

    def __init__(self) -> None:
        self.grad = True
        self.loc: tuple[str, int] | None = None
        self.size = 0


_INSTRUCTIONS: dict[Hashable, Instruction] = {}
_TYPES: dict[Hashable, Type] = {}
_RECORDED: dict[tuple[bool, str | None], tuple[bool, str | None]] = {}  # one object for equal ones
_MODE = _Mode()
_SEQ = itertools.count()


def grad_enabled() -> bool:
    return _MODE.grad


def set_grad_enabled(enabled: bool) -> None:
    _MODE.grad = enabled


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record nodes with or without gradient inside the block."""
    before = _MODE.grad
    try:
        _MODE.grad = enabled
        yield
    finally:  # no call here: an interrupt may come at its beginning
        _MODE.grad = before


def location(depth: int) -> tuple[str, int]:
    """The location of a new node: the one that is set, or the user's line, which is outside of the
    first `depth` frames."""
    return _MODE.loc or user_location(depth + 1)


def set_location(loc: tuple[str, int] | None) -> tuple[str, int] | None:
    """Set the location of nodes made from now on (None: the user's line); return the former one."""
    before = _MODE.loc
    _MODE.loc = loc
    return before


def table_size() -> int:
    """The number of interned nodes."""
    return _MODE.size


def clear_tables() -> None:
    """Forget every interned node. Only sound while no live handle refers to one."""
    for instruction in _INSTRUCTIONS.values():  # instructions and their nodes refer to each other
        instruction.nodes.clear()
        instruction.memo.clear()
    for of in _TYPES.values():
        of.stand_ins.clear()
    _INSTRUCTIONS.clear()
    _TYPES.clear()
    _MODE.size = 0


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
    key = (op, attrs, device, _MODE.grad, *[o.type for o in operands])
    instruction = _INSTRUCTIONS.get(key)
    if instruction is None:
        instruction = _INSTRUCTIONS[key] = _instruction(op, operands, attrs, device)
    return instruction.nodes.get(operands) or instruction.new(operands, loc)


def literal(op: Op, attrs: tuple[Any, ...], of: Type) -> Node:
    """As `intern` for an op without operands whose type is known, in both grad modes."""
    key = (op, attrs, of.device, _MODE.grad)
    instruction = _INSTRUCTIONS.get(key)
    if instruction is None:
        instruction = Instruction(op, attrs, of, (True, of.device))
        for grad in (True, False):
            _INSTRUCTIONS[op, attrs, of.device, grad] = instruction
    return instruction.nodes.get(()) or instruction.new(())


def _instruction(
    op: Op, operands: tuple[Node, ...], attrs: tuple[Any, ...], device: str | None
) -> Instruction:
    """Check an application of `op` for the first time."""
    tracks = op.collects or any([o.requires_grad for o in operands])
    if not tracks:
        # Without a gradient at stake both modes share the nodes, so no work is done twice.
        other = (op, attrs, device, not _MODE.grad, *[o.type for o in operands])
        shared = _INSTRUCTIONS.get(other)
        if shared is not None:
            return shared
    if not (op.takes_float8 and op.takes_complex_half):
        op.check(operands)
    shape, dtype = op.infer(*operands, *attrs)
    if not op.is_view:
        check_storage(shape, dtype.itemsize)
    requires_grad = tracks and (
        op.collects or (_MODE.grad and dtype.is_differentiable and op.passes_gradient)
    )
    of = type_of(shape, dtype, device or _common_device(op, operands), requires_grad)
    recorded = _MODE.grad or not tracks, device
    return Instruction(op, attrs, of, _RECORDED.setdefault(recorded, recorded))


def type_of(shape: Size, dtype: DType, device: str | None, requires_grad: bool) -> Type:
    """The one type with these fields."""
    key = (shape, dtype, device, requires_grad)
    found = _TYPES.get(key)
    if found is None:
        found = _TYPES[key] = Type(*key)
    return found


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
