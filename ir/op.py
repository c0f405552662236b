"""Op: the one record of everything the system knows of a primitive."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .dtype import FLOAT8, DType
from .location import at_user_line
from .node import Node, intern
from .shape import Size

if TYPE_CHECKING:
    from types import NotImplementedType

    Cotangents = tuple[Node | None, ...] | NotImplementedType
Aval = tuple[Size, DType]


class Kind(enum.Enum):
    """What codegen and runtime dispatch on; never on the name of an op."""

    LEAF = "leaf"  # a value supplied when the graph runs: a buffer or a scalar slot
    CONSTANT = "constant"  # a scalar known when the graph is recorded
    GENERATE = "generate"  # a function of the element's position: iota, random bits
    ELEMENTWISE = "elementwise"  # one output element from the same element of each operand
    MOVEMENT = "movement"  # rearranges elements by an index map known from the attrs
    REDUCE = "reduce"  # folds axes away; they stay with size 1
    CONTRACTION = "contraction"  # sums of products: matmul, convolution and its gradients
    GATHER = "gather"  # reads at positions that are data
    SCATTER = "scatter"  # writes at positions that are data
    CHECK = "check"  # positions that are data, of which each must be in range
    SCAN = "scan"  # sequential along one axis: cumulative sums, sorting
    ATTENTION = "attention"  # contractions around a softmax; decomposed where no template is
    LOOP = "loop"  # one step for each place of a leading axis, each from the states before it
    EXTERNAL = "external"  # a kernel that the user wrote, over whole tensors in memory
    COMPOSITE = "composite"  # a function over primitives, decomposed when compiled
    TRANSFER = "transfer"  # the same value on another device
    MARKER = "marker"  # an identity that means something to autograd only

    __hash__ = object.__hash__  # members are one object each; that of Enum hashes the name


class Fold(enum.Enum):
    """How many elements become one: all of a row in a reduction, those so far in a scan."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"  # NaN if one is among them, as in MIN
    MIN = "min"
    ANY = "any"
    ALL = "all"
    ARGMAX = "argmax"  # the row-major position of the first largest element
    ARGMIN = "argmin"
    LOGSUMEXP = "logsumexp"

    __hash__ = object.__hash__

    @property
    def picks(self) -> bool:
        """Whether it gives the position of an element."""
        return self is Fold.ARGMAX or self is Fold.ARGMIN

    @property
    def is_idempotent(self) -> bool:
        """Whether the fold of equal elements is that element."""
        return self in (Fold.MAX, Fold.MIN, Fold.ANY, Fold.ALL)


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """A primitive.

    infer(*operands, *attrs) -> (shape, dtype) checks the operands and raises in the user's line.
    vjp(g, out, *operands, *attrs) -> a cotangent (or None) for each operand. The sum that undoes
        broadcasting is taken by the caller. None: not differentiable, but by decomposition. It may
        answer NotImplemented, for operands whose cotangents are those of the decomposition.
    numpy: for elementwise ops a NumPy expression over `{0}`, `{1}`, …; for others a function of
        (*arrays, *attrs), the reference by which every emitter is judged.
    triton: for elementwise ops a Triton expression over `{0}`, `{1}`, …
    llvm: for elementwise ops that are a function of floats, what the LLVM emitter calls it: one
        of codegen/llvm/math or of C's library. Others have a routine in its arithmetic.py.
    onnx: the ONNX operator, or a function that adds it to an export; None if there is none.
    decompose(*operands, *attrs) -> Node, for composites, attention and products in groups; what a
        loop's derivative is taken of.
    step(*operands, *attrs) -> nodes, for loops: one step; see `ir/loop.py`.
    domain: the open interval from which float test inputs are drawn, for each operand alike.
    cost: arithmetic per output element, in units of one add.
    error: how far the result of an elementwise op may be from the true one, in units of the last
        place: 0 if it has no more digits than its operands, 0.5 if it is rounded to nearest (so
        that all engines agree on it), more where functions are approximated.
    fold: for reductions and scans how elements are folded.
    whole: whether a movement's result has every element of its operands.
    bijective: whether it has each of them once, so that it has an inverse (`movement.target`).
    collects: whether gradients are collected at its nodes, so that they always require one.
    float8: whether it takes operands of float8, as all ops do that only move elements.
    divides: whether integers that are divided by zero have no result, which is an error.
    convolution: whether a contraction is a convolution or a gradient of one, whose float32 PyTorch
        lets be rounded by a switch of its own.
    wide: whether float32 is computed in float64, since the op would round many times over, or lose
        the small differences of large numbers.
    """

    name: str
    kind: Kind
    infer: Callable[..., Aval]
    params: tuple[str, ...] = ()
    vjp: Callable[..., Cotangents] | None = None
    numpy: str | Callable[..., Any] | None = None
    triton: str | None = None
    llvm: str | None = None
    onnx: str | Callable[..., Any] | None = None
    decompose: Callable[..., Node] | None = None
    step: Callable[..., tuple[Node, ...]] | None = None
    domain: tuple[float, float] = (-3.0, 3.0)
    cost: int = 1
    error: float = 0.5
    commutative: bool = False
    fold: Fold | None = None
    whole: bool = False
    bijective: bool = False
    collects: bool = False
    float8: bool = False
    divides: bool = False
    convolution: bool = False
    wide: bool = False

    def __post_init__(self) -> None:
        if self.name in REGISTRY:
            raise ValueError(f"two ops are called {self.name}")
        REGISTRY[self.name] = self

    def __call__(self, *args: Any) -> Node:
        """The node of this op: leading Nodes are its operands, the rest its attrs."""
        count = 0
        while count < len(args) and isinstance(args[count], Node):
            count += 1
        return intern(self, args[:count], args[count:])

    @property
    def is_view(self) -> bool:
        """Whether a node may have more elements than any memory, as an `expand` may."""
        return self.kind is Kind.MOVEMENT or self.kind is Kind.MARKER

    @property
    def passes_gradient(self) -> bool:
        """True of every op but `detach`; one without a VJP raises when the gradient reaches it."""
        return self.kind is not Kind.MARKER or self.vjp is not None

    def check(self, operands: tuple[Node, ...]) -> None:
        """NotImplementedError for operands of float8 if this op doesn't take them."""
        if self.float8 or self.kind in _MOVING:
            return
        for operand in operands:
            if operand.dtype in FLOAT8:
                raise NotImplementedError(
                    f'"{self.name}" not implemented for {operand.dtype}: compute it in a wider '
                    f"dtype, as of x.float(), and convert the result{at_user_line()}"
                )

    def __repr__(self) -> str:
        return f"<op {self.name}>"


_MOVING = (
    Kind.MOVEMENT, Kind.GATHER, Kind.SCATTER, Kind.LOOP, Kind.TRANSFER, Kind.MARKER, Kind.EXTERNAL,
)  # fmt: skip


REGISTRY: dict[str, Op] = {}
