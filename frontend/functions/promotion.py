"""PyTorch's type promotion, applied to nodes."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, not_implemented
from tilewright.ir.ops.composite import as_dtype

from .. import recording
from ..recording.builders import blind


def result_dtype(*nodes: Node) -> DType:
    """The dtype of an operation on `nodes`: 0-d operands only lift the category
    (torch.result_type)."""
    sized: DType | None = None
    flat: DType | None = None
    for node in nodes:
        if node.shape:
            sized = node.dtype if sized is None else dtypes.promote(sized, node.dtype)
        else:
            flat = node.dtype if flat is None else dtypes.promote(flat, node.dtype)
    if sized is None or flat is None:
        out = sized or flat
        assert out is not None, "at least one operand"
        return out
    if flat.is_complex and sized.is_floating_point:
        return sized.to_complex()
    same = _rank(flat) <= _rank(sized)
    return sized if same else dtypes.promote(sized, flat)


def _rank(dtype: DType) -> int:
    """The category of a dtype in the promotion of 0-d operands; all integers are one category."""
    return dtypes.SIGNED if dtype.category == dtypes.UNSIGNED else dtype.category


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds the values of both."""
    return dtypes.promote(recording.named_dtype(type1), recording.named_dtype(type2))


def is_number(node: Node) -> bool:
    """Whether a node stands for a number that a call was given, and for no tensor."""
    return not node.shape and (node.op.kind is Kind.CONSTANT or node.op is ops.scalar)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of dtype `from_` may be written to a tensor of dtype `to`."""
    return _rank(recording.named_dtype(from_)) <= _rank(recording.named_dtype(to))


WHOLE = (dtypes.BOOL, dtypes.UNSIGNED, dtypes.SIGNED)


def refuse(name: str, node: Node, *categories: int) -> None:
    """NotImplementedError for an operand of these categories, which PyTorch's routine `name` on
    CPUs doesn't take, either."""
    if node.dtype.category in categories:
        raise not_implemented(name, node.dtype)


def promoted(*nodes: Node) -> tuple[Node, ...]:
    """`nodes` in their common dtype, 0-d ones on the CPU brought to the others' device."""
    dtype = result_dtype(*nodes)
    return tuple(to(n, dtype) for n in beside(*nodes))


def beside(*nodes: Node) -> tuple[Node, ...]:
    """`nodes`, 0-d ones on the CPU brought to the others' device."""
    devices = {n.device for n in nodes} - {None, "cpu"}
    if len(devices) != 1:
        return nodes
    (device,) = devices
    return tuple(
        ops.copy_to(n, device) if n.device == "cpu" and not n.shape else n  # type: ignore[arg-type]
        for n in nodes
    )


def to(node: Node, dtype: DType) -> Node:
    """Cast an operand of a call to `dtype`. A tensor for the user is cast by `ops.cast`."""
    wide = node.dtype in dtypes.HALVES and dtype is dtypes.float32
    return ops.widened(node) if wide else as_dtype(node, recording.named_dtype(dtype))


def floating(node: Node) -> Node:
    """`node`; integers and bools are cast to the default dtype."""
    return node if node.dtype.is_differentiable else ops.cast(node, recording.default_dtype())


def promoting(op: Callable[..., Node]) -> Callable[..., Node]:
    """A builder that applies `op`, which looks at no values, to its operands in their common
    dtype."""

    @blind
    def build(a: Node, b: Node) -> Node:
        a, b = promoted(a, b)
        return op(a, b)

    return build


def promoting_float(op: Callable[..., Node]) -> Callable[..., Node]:
    """As `promoting`, but integers become floats. Declare the builder with `floats=True`."""

    @blind
    def build(a: Node, b: Node) -> Node:
        a, b = beside(a, b)
        dtype = result_dtype(a, b)
        if not dtype.is_differentiable:
            dtype = recording.default_dtype()
        return op(to(a, dtype), to(b, dtype))

    return build


def on_float(op: Callable[..., Node]) -> Callable[..., Node]:
    """A builder that applies a function of floats; integers become floats first."""

    def build(x: Node) -> Node:
        return op(floating(x))

    return build
