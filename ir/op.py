"""Op: the one record with everything the system knows about a primitive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from .dtype import COMPLEX, FLOAT8, DType, complex32
from .enumeration import Enum
from .location import at_user_line
from .node import Node, intern
from .shape import Size

if TYPE_CHECKING:
    from types import NotImplementedType

Aval = tuple[Size, DType]
Part = Node | Callable[[], Node] | None
"""A cotangent, or the function that makes it, which is called if anything needs it."""
Cotangents: TypeAlias = "tuple[Part, ...] | NotImplementedType"


class Kind(Enum):
    """The class of an op. Codegen and runtime dispatch on it, never on an op's name."""

    LEAF = "leaf"  # a value supplied when the graph runs: a buffer or a scalar slot
    CONSTANT = "constant"  # a scalar known when the graph is recorded
    GENERATE = "generate"  # a function of the element's position: iota, random bits
    ELEMENTWISE = "elementwise"  # one output element from the same element of each operand
    MOVEMENT = "movement"  # rearranges elements by an index map known from the attrs
    REDUCE = "reduce"  # folds axes away; they stay with size 1
    CONTRACTION = "contraction"  # sums of products: matmul, convolution and its gradients
    GATHER = "gather"  # reads at positions that are data
    SCATTER = "scatter"  # writes at positions that are data
    CHECK = "check"  # positions that are data, each checked to be in range
    SCAN = "scan"  # sequential along one axis: cumulative sums, sorting
    ATTENTION = "attention"  # contractions around a softmax; decomposed without a template
    LOOP = "loop"  # one step for each place of a leading axis, from the states of the step before
    EXTERNAL = "external"  # a kernel that the user wrote, over whole tensors in memory
    HOST = "host"  # a routine of a library, over whole tensors in host memory
    COMPOSITE = "composite"  # a function over primitives, decomposed when compiled
    TRANSFER = "transfer"  # the same value on another device
    MARKER = "marker"  # an identity that means something to autograd only


class Fold(Enum):
    """How many elements become one: a whole row in a reduction, its part so far in a scan."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"  # NaN if one is among them, as in MIN
    MIN = "min"
    ANY = "any"
    ALL = "all"
    ARGMAX = "argmax"  # the row-major position of the first largest element
    ARGMIN = "argmin"
    LOGSUMEXP = "logsumexp"

    @property
    def picks(self) -> bool:
        """Whether the fold gives the position of an element."""
        return self is Fold.ARGMAX or self is Fold.ARGMIN

    @property
    def is_idempotent(self) -> bool:
        """Whether the fold of equal elements is that element."""
        return self in (Fold.MAX, Fold.MIN, Fold.ANY, Fold.ALL)


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """A primitive.

    infer(*operands, *attrs) -> (shape, dtype) checks the operands and raises in the user's line.
    vjp(g, out, *operands, *attrs) -> a cotangent (or None) for each operand; elementwise ops may
        give functions that make them. The caller takes the sum that undoes broadcasting. None: the
        op has no derivative, except through its decomposition. It may return NotImplemented, which
        asks for the derivative of the decomposition.
    numpy: for elementwise ops a NumPy expression over `{0}`, `{1}`, …; for others a function of
        (*arrays, *attrs), the reference by which every emitter is judged.
    triton: for elementwise ops a Triton expression over `{0}`, `{1}`, …
    llvm: for elementwise functions of floats, the name of the function, in codegen/llvm/math or in
        C's library. Other elementwise ops have a routine in codegen/llvm/arithmetic.py.
    aten: PyTorch's name of the operator, where that is another one.
    onnx: the ONNX operator, or a function that adds it to an export; None if there is none.
    decompose(*operands, *attrs) -> Node, for composites, attention, products in groups, and loops,
        whose derivative may be that of this graph.
    step(*operands, *attrs) -> nodes, for loops: one step; see `ir/loop.py`.
    routine(*arrays, *attrs) -> arrays, for host ops: all results; see `ir/ops/host.py`.
    results: the number of them.
    tile: for host ops, the most rows and columns of matrices for which GPUs have a kernel.
    fills: whether a routine of one result takes memory for it, `out`, which it may leave alone.
    domain: the open interval from which float test inputs are drawn, for each operand alike.
    cost: arithmetic per output element, in units of one add.
    error: the largest error of an elementwise op, in units of the last place: 0 if the result has
        no more digits than the operands, 0.5 if it is rounded to nearest (so that all engines agree
        on it), more for approximations.
    fold: how a reduction or scan folds elements.
    whole: whether a movement's result has every element of its operands.
    bijective: whether a movement's result has each element of its operand exactly once, so that the
        map has an inverse (`target` in codegen/lower/movement.py).
    collects: whether gradients are collected at its nodes, so that these always require one.
    float8: whether the op takes float8 operands. Ops that only move elements do anyway.
    complex_half: whether it takes complex32. PyTorch computes little with it.
    complex: whether the op takes complex operands. Its VJP is a formula that is holomorphic in all
        complex values, or follows autodiff's convention (`ir/passes/autodiff.py`). Ops that only
        move elements take them anyway.
    divides: whether an integer division by zero raises an error.
    convolution: whether a contraction is a convolution or a gradient of one. PyTorch has a separate
        switch that lets these round float32.
    wide: whether float32 is computed in float64, because the op would round many times, or lose the
        small differences of large numbers.
    spares_result: whether its derivative reads its result where PyTorch's doesn't. The result may
        be overwritten before the backward pass then.
    pointwise: whether a composite computes each element from those of its operands at the same
        place, in the same way for every size.
    calls_user: whether its derivative is a function that the user wrote.
    shows: what a function that builds nodes may look at, of a node of this op: its "type" alone, or
        "attrs" (the value of a constant), or "operands" (the half behind a `widened`).
    is_view: whether a node may have more elements than any memory holds, as an `expand` may.
    takes_float8, takes_complex, takes_complex_half: whether operands of these types are allowed.
    """

    name: str
    kind: Kind
    infer: Callable[..., Aval]
    params: tuple[str, ...] = ()
    vjp: Callable[..., Cotangents] | None = None
    numpy: str | Callable[..., Any] | None = None
    triton: str | None = None
    llvm: str | None = None
    aten: str = ""
    onnx: str | Callable[..., Any] | None = None
    decompose: Callable[..., Node] | None = None
    step: Callable[..., tuple[Node, ...]] | None = None
    routine: Callable[..., tuple[Any, ...]] | None = None
    results: int = 1
    tile: int = 0
    fills: bool = False
    domain: tuple[float, float] = (-3.0, 3.0)
    cost: int = 1
    error: float = 0.5
    commutative: bool = False
    fold: Fold | None = None
    whole: bool = False
    bijective: bool = False
    collects: bool = False
    float8: bool = False
    complex: bool = False
    complex_half: bool = False
    divides: bool = False
    convolution: bool = False
    wide: bool = False
    spares_result: bool = False
    pointwise: bool = False
    calls_user: bool = False
    shows: str = "type"
    is_view: bool = field(init=False)
    takes_float8: bool = field(init=False)
    takes_complex: bool = field(init=False)
    takes_complex_half: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_view", self.kind in (Kind.MOVEMENT, Kind.MARKER))
        object.__setattr__(self, "takes_float8", self.float8 or self.kind in _MOVING)
        object.__setattr__(self, "takes_complex", self.complex or self.kind in _MOVING)
        if self.kind is Kind.CONSTANT:
            object.__setattr__(self, "shows", "attrs")
        half = self.complex_half or self.kind in _MOVING
        object.__setattr__(self, "takes_complex_half", half)
        if self.name in REGISTRY:
            raise ValueError(f"two ops are called {self.name}")
        REGISTRY[self.name] = self

    def __call__(self, *args: Any) -> Node:
        """The node of this op: leading Nodes are its operands, the rest its attrs."""
        for count, each in enumerate(args):
            if each.__class__ is not Node:
                return intern(self, args[:count], args[count:])
        return intern(self, args)

    @property
    def passes_gradient(self) -> bool:
        """Whether a gradient goes through, which only `detach` prevents. An op without a VJP raises
        when a gradient reaches it."""
        return self.kind is not Kind.MARKER or self.vjp is not None

    def check(self, operands: tuple[Node, ...]) -> None:
        """NotImplementedError for operands of float8, or complex ones, for an op that doesn't take
        them."""
        for operand in operands:
            if operand.dtype.category == COMPLEX and not self.takes_complex:
                raise not_implemented(
                    self.name,
                    operand.dtype,
                    "expected real numbers, as x.abs(), x.real or x.imag gives",
                )
            if operand.dtype is complex32 and not self.takes_complex_half:
                raise not_implemented(
                    self.name,
                    operand.dtype,
                    "compute it in complex64, as of x.cfloat(), and convert the result",
                )
            if operand.dtype in FLOAT8 and not self.takes_float8:
                raise not_implemented(
                    self.name,
                    operand.dtype,
                    "compute it in a wider dtype, as of x.float(), and convert the result",
                )

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def not_implemented(name: str, dtype: DType, instead: str = "") -> NotImplementedError:
    """The error of an op that doesn't take a dtype. instead: what was expected, or what to do."""
    return NotImplementedError(
        f"\"{name}\" not implemented for '{dtype.kind}'{instead and ': '}{instead}{at_user_line()}"
    )


_MOVING = (
    Kind.MOVEMENT, Kind.GATHER, Kind.SCATTER, Kind.LOOP, Kind.TRANSFER, Kind.MARKER, Kind.EXTERNAL,
)  # fmt: skip


REGISTRY: dict[str, Op] = {}
