"""The special functions: those that are names of torch, and the builders of torch.special's own.

PyTorch gives most of torch.special's own functions no derivative: their results are detached. Some
of them refuse half types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.numeric import orthogonal
from tilewright.ir.numeric.orthogonal import Family
from tilewright.ir.op import Kind, not_implemented
from tilewright.ir.ops.composite import as_dtype, to_accumulator

from .. import recording
from ..recording import record
from ..recording.builders import builder
from .arguments import into
from .call import binary, of_one, of_two, public, unary, without_operator
from .promotion import on_float, promoted, promoting_float, refuse

if TYPE_CHECKING:
    from .._tensor import Tensor

Build = Callable[..., Node]


# ---- names of torch --------------------------------------------------------------------------

i0 = unary("i0", on_float(ops.i0))


def _mvlgamma(input: Tensor, p: int) -> Tensor:
    if input.dtype is dtypes.bool_:
        raise RuntimeError(
            f"mvlgamma: The input tensor may not be a boolean tensor{at_user_line()}"
        )
    if p < 1:
        raise RuntimeError(
            f"mvlgamma: p has to be greater than or equal to 1, got {p}{at_user_line()}"
        )
    return record(_multivariate, input, int(p))


@builder("mvlgamma")
def _multivariate(x: Node, p: int) -> Node:
    refuse("mvlgamma", x, dtypes.COMPLEX)
    dtype = x.dtype if x.dtype.is_floating_point else recording.default_dtype()
    x = ops.cast(x, dtype) if x.dtype is not dtype else x
    wide = to_accumulator(x)
    total = ops.full_like(wide, math.log(math.pi) * p * (p - 1) / 4)
    for j in range(p):
        total = total + ops.lgamma(wide - j / 2)
    return as_dtype(total, dtype)


@public("mvlgamma", _multivariate, in_place=True, unexportable=without_operator(ops.lgamma))
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p, elementwise.

    log(pi) p (p - 1) / 4 plus the sum of lgamma(input - j / 2) over j < p.
    """
    return into(out, _mvlgamma(input, p))


def _igamma(a: Node, x: Node) -> Node:
    return ops.igamma(*_floats("igamma", a, x))


def _igammac(a: Node, x: Node) -> Node:
    return ops.igammac(*_floats("igammac", a, x))


def _floats(name: str, a: Node, x: Node) -> tuple[Node, ...]:
    a, x = promoted(a, x)
    if not a.dtype.is_floating_point:
        raise not_implemented(name, a.dtype, "expected floating point tensors")
    return a, x


igamma = binary("igamma", _igamma, numbers=False, unexportable=without_operator(ops.igamma))
igammac = binary("igammac", _igammac, numbers=False, unexportable=without_operator(ops.igammac))


# ---- torch.special's own ---------------------------------------------------------------------


def refusing_halves(name: str, build: Build) -> Build:
    """`build`, which raises NotImplementedError for half types, as PyTorch does."""

    def refusing(*operands: Node) -> Node:
        for x in operands:
            if x.dtype in dtypes.HALVES:
                raise not_implemented(name, x.dtype, "compute it in a wider dtype, as x.float()")
        return build(*operands)

    return refusing


def constant_in(build: Build) -> Build:
    """`build` without a derivative: its result requires no gradient."""
    return lambda *operands: ops.detach(build(*operands))


def _named(function: Any) -> Any:
    function.__module__ = "tilewright.special"  # where pickle finds it
    return function


def own(name: str, op: Build, *, halves: bool = False, derivative: bool = False) -> Any:
    """The function of torch.special that applies `op` to one tensor."""
    build = on_float(op)
    build = build if halves else refusing_halves(name, build)
    build = build if derivative else constant_in(build)
    builder(f"special_{name}", gradient=_gradient(name))(build)
    return _named(of_one(name, build))


def own_of_two(
    name: str, op: Build, *, halves: bool = False, derivative: bool = False, second: str = "other"
) -> Any:
    """The function of torch.special that applies `op` to two tensors, or a tensor and a number.
    second: another name of the second."""
    build = promoting_float(op if halves else refusing_halves(name, op))
    build = build if derivative else constant_in(build)
    builder(f"special_{name}", gradient=_gradient(name), floats=True)(build)
    return _named(of_two(name, build, recording.binary(build, name), second=second))


def _gradient(name: str) -> str:
    """PyTorch's name for the gradient's node: SpecialI0EBackward0, with a capital after a digit."""
    words = "".join(
        c.upper() if i == 0 or name[i - 1].isdigit() or name[i - 1] == "_" else c
        for i, c in enumerate(name)
    )
    return f"Special{words.replace('_', '')}Backward0"


def sinc_of_radians(x: Node) -> Node:
    refuse("spherical_bessel_j0_cpu", x, dtypes.COMPLEX)
    wide = as_dtype(x, dtypes.float64)
    zero, far = ops.eq(wide, ops.full_like(wide, 0)), ops.isinf(wide)
    safe = ops.where(ops.bitwise_or(zero, far), ops.full_like(wide, 1), wide)
    inside = ops.where(zero, ops.full_like(wide, 1), ops.sin(safe) / safe)
    return as_dtype(ops.where(far, ops.full_like(wide, 0), inside), x.dtype)


def polynomial(name: str, family: Family, shifted: bool = False) -> Any:
    """The function of torch.special for a family of orthogonal polynomials, of x and a degree.

    shifted: the polynomial at 2 x - 1.
    """
    hermite = family in (orthogonal.HERMITE_H, orthogonal.HERMITE_HE)

    def at(x: Node, n: Node) -> Node:
        if x.dtype.is_complex:
            raise not_implemented(f"{name}_cpu", x.dtype)
        # PyTorch gives NaN above these degrees.
        most = {dtypes.float32: 128, dtypes.float64: 512}[x.dtype] if hermite else None
        if shifted:
            wide = as_dtype(x, dtypes.float64)
            return as_dtype(ops.orthogonal(family, wide + wide - 1, _wide_degree(n)), x.dtype)
        if most is None or (n.op.kind is Kind.CONSTANT and 0 <= ops.constant_value(n) <= 32):
            return ops.orthogonal(family, x, n)
        above = n > most
        found = ops.orthogonal(family, x, ops.where(above, ops.full_like(n, 0), n))
        return ops.where(above, ops.full_like(found, math.nan), found)

    return own_of_two(name, at, second="n")


def _wide_degree(n: Node) -> Node:
    if n.op.kind is Kind.CONSTANT:
        return ops.constant(float(ops.constant_value(n)), dtypes.float64)
    return as_dtype(n, dtypes.float64)
