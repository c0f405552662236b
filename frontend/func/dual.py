"""torch.autograd.forward_ad: dual numbers, a value and its tangent, in one forward pass.

    with forward_ad.dual_level():
        x = forward_ad.make_dual(primal, tangent)
        y, t = forward_ad.unpack_dual(f(x))

A dual tensor is a new variable; nothing is carried along with it. `unpack_dual` asks the graph for
the product of the Jacobian with the tangents, which is the derivative of a reverse pass by its
seed (`derivatives.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.location import at_user_line

from .. import recording
from ..autograd import api
from ..autograd.function import pushing
from ..functions import creation
from ..recording import Handle, grad_mode
from .derivatives import _leaf, _point, complete, outside

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class _Dual(NamedTuple):
    """A dual tensor: what derivatives are taken of, what it was made of, what the caller got."""

    x: Any
    primal: Any
    tangent: Any
    given: Any


_levels: list[list[_Dual]] = []  # the dual tensors of each level


class UnpackedDualTensor(NamedTuple):
    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Begin a level; returns its number. Levels don't nest, as in PyTorch."""
    if _levels:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment. Use torch.func.jvp"
            f"{at_user_line()}"
        )
    _levels.append([])
    return len(_levels) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: its dual tensors have no tangents any more."""
    if not _levels or (level is not None and level != len(_levels) - 1):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            f"not supported.{at_user_line()}"
        )
    _levels.pop()


class dual_level:
    """The block in which tensors have tangents."""

    def __enter__(self) -> int:
        self.level = enter_dual_level()
        return self.level

    def __exit__(self, *exc: object) -> None:
        exit_dual_level(level=self.level)


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """A tensor with the value of `tensor` and a tangent of its shape, dtype and device."""
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            f"enter_dual_level() first.{at_user_line()}"
        )
    for name, given in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(given, Handle) or not given.dtype.is_differentiable:  # type: ignore[attr-defined]
            kind = given.dtype if isinstance(given, Handle) else type(given).__name__  # type: ignore[attr-defined]
            raise ValueError(
                f"Expected {name} to be a floating point or complex tensor, but got: {kind}"
                f"{at_user_line()}"
            )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            f"Trying to set a forward gradient of size {list(tangent.shape)} that has a different "
            f"size than that of the original Tensor, {list(tensor.shape)}, this is not supported. "
            "Tensor and its forward gradient must have the same size." + at_user_line()
        )
    with grad_mode(True):
        dual = _point(tensor) if tensor.requires_grad else _leaf(tensor)
        given = _point(dual)  # the caller may write into it
    _levels[-1].append(_Dual(dual, tensor, tangent, given))
    return given


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor, and its tangent: None if it doesn't depend on a dual tensor."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    for dual in _levels[-1]:
        if dual.given is tensor and not recording.version(tensor):
            return UnpackedDualTensor(dual.primal, dual.tangent)
    duals = [dual.x for dual in _levels[-1]]
    if not isinstance(tensor, Handle) or not tensor.requires_grad or not duals:  # type: ignore[attr-defined]
        return UnpackedDualTensor(tensor, None)
    with grad_mode(True):
        seed = creation.ones_like(tensor).requires_grad_()
        given: Any = tensor
        with pushing():
            pulled = api.grad(given, duals, seed, create_graph=True, allow_unused=True)
        pairs = [(g, d.tangent) for g, d in zip(pulled, _levels[-1], strict=True) if g is not None]
        if not pairs:
            return UnpackedDualTensor(tensor, None)
        product: Any = sum((g * t.conj()).sum() for g, t in pairs)
        pushed = None
        if product.requires_grad:  # gradients of draws are zero, whatever the seed
            (pushed,) = api.grad(product, seed, create_graph=True, allow_unused=True)
    if pushed is None:  # a linear function of no variable
        pushed = creation.zeros_like(tensor)
    with complete([*duals, seed]):
        return UnpackedDualTensor(outside(tensor), outside(pushed))
