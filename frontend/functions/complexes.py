"""Complex tensors: their parts, and the tensors that are made of parts.

A complex number lies in memory as its real and its imaginary part, side by side. So `view_as_real`,
`x.real` and `x.imag` are views that can be written. Conjugates are computed: none is pending, and
`is_conj()` is False for all tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from ..recording import cached_view, record, view, views
from .arguments import into
from .call import public, unary
from .parts import select
from .promotion import floating
from .shapes import _conjugate, layout_of
from .spellings import by_numpys_names, named_tensor

if TYPE_CHECKING:
    from .._tensor import Tensor


def _both_real(name: str, a: Node, b: Node) -> None:
    taken = (dtypes.float16, dtypes.float32, dtypes.float64)
    if a.dtype not in taken or b.dtype not in taken:
        raise RuntimeError(
            f"{name}: Expected both inputs to be Half, Float or Double tensors but got {a.dtype} "
            f"and {b.dtype}{at_user_line()}"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected object of scalar type {a.dtype} but got scalar type {b.dtype} for "
            f"second argument{at_user_line()}"
        )


def _complex(a: Node, b: Node) -> Node:
    _both_real("complex", a, b)
    return ops.complex(a, b)


def _polar(size: Node, angle: Node) -> Node:
    _both_real("polar", size, angle)
    if size.dtype is dtypes.float16:
        raise not_implemented("polar", size.dtype)
    return ops.complex(size * ops.cos(angle), size * ops.sin(angle))


@public("complex", _complex, method=False)
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """real + i imag, of two float tensors of one dtype. Halves give complex32."""
    return into(out, record(_complex, real, imag), cast=False)


@public("polar", _polar, method=False)
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """abs * exp(i angle), of two float tensors of one dtype."""
    return into(out, record(_polar, abs, angle))


@public("view_as_real", method=False)
@cached_view
@by_numpys_names
def view_as_real(input: Tensor) -> Tensor:
    """A view of the parts of complex numbers, along a new last dimension of size 2."""
    if not input.dtype.is_complex:
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, got {input.dtype}{at_user_line()}"
        )
    return view(input, views.VIEW_AS_REAL)


@public("view_as_complex", method=False)
@cached_view
@by_numpys_names
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs of numbers along the last dimension, of size 2, as complex numbers."""
    if input.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {input.dtype}{at_user_line()}"
        )
    if not input.dim():
        raise RuntimeError(f"Input tensor must have one or more dimensions{at_user_line()}")
    if input.shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2{at_user_line()}")
    if views.VIEW_AS_COMPLEX.layout(layout_of(input)) is None:
        raise RuntimeError(
            "Tensor must have a last dimension with stride 1, and strides and a storage_offset "
            f"divisible by 2 for all others{at_user_line()}"
        )
    return view(input, views.VIEW_AS_COMPLEX)


@public("real", method=False)
def real(input: Tensor) -> Tensor:
    """A view of the real parts; a real tensor itself."""
    return select(view_as_real(input), -1, 0) if input.dtype.is_complex else input


@public("imag", method=False)
def imag(input: Tensor) -> Tensor:
    """A view of the imaginary parts. RuntimeError for a real tensor."""
    if not input.dtype.is_complex:
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, got {input.dtype}"
            f"{at_user_line()}"
        )
    return select(view_as_real(input), -1, 1)


def _angle(x: Node) -> Node:
    return ops.angle(floating(x))


def _sgn(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.sgn(x)
    return x if x.dtype is dtypes.bool_ else ops.sign(x)


def _conj(x: Node) -> Node:
    return ops.conj(x)


angle = unary("angle", _angle, in_place=False)
sgn = unary("sgn", _sgn, in_place_function=False, same_out=True)


@public(
    "conj_physical",
    _conj,
    in_place=True,
    in_place_function=True,
    gradient="ConjPhysicalBackward0",
)
def conj_physical(input: Any = None, *, out: Tensor | None = None, **numpys: Any) -> Tensor:
    """The conjugates; a real tensor itself."""
    found = named_tensor("conj_physical", input, numpys)
    result = record(_conj, found) if found.dtype.is_complex else found
    return result if out is None else into(out, result, cast=False)


@public("conj")
def conj(input: Any = None, **numpys: Any) -> Tensor:
    """The conjugates, in memory of their own; a real tensor itself."""
    found = named_tensor("conj", input, numpys)
    return record(_conjugate, found) if found.dtype.is_complex else found


@public("resolve_conj")
def resolve_conj(input: Any = None, **numpys: Any) -> Tensor:
    """The tensor itself: no conjugate is pending."""
    return named_tensor("resolve_conj", input, numpys)


@public("resolve_neg")
def resolve_neg(input: Any = None, **numpys: Any) -> Tensor:
    """The tensor itself: no sign is pending."""
    return named_tensor("resolve_neg", input, numpys)


@public("is_conj")
def is_conj(input: Tensor) -> bool:
    """False: conjugates are computed, none is pending."""
    return False


@public("is_neg")
def is_neg(input: Tensor) -> bool:
    """False: signs are computed, none is pending."""
    return False


@public("is_complex", method=False)
def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    return input.dtype.is_complex
