"""What users set on tensors for autograd: whether they are leaves, and the gradients of leaves."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn

from .. import recording
from ..functions import shapes
from ..recording import Handle, epoch
from ..recording.compounds import gradients, is_compound

if TYPE_CHECKING:
    from .._tensor import Tensor


def set_requires_grad(t: Tensor, enabled: bool) -> None:
    """Begin (or stop) to collect gradients in the `.grad` of `t`."""
    recording.claim()
    if enabled.__class__ is not bool:
        raise TypeError(
            "requires_grad_(): argument 'requires_grad' must be bool, not "
            f"{type(enabled).__name__}{at_user_line()}"
        )
    if enabled == t.requires_grad:
        return
    if epoch.inferred and not epoch.inferring and recording.is_inference(t):
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not "
            f"allowed{at_user_line()}"
        )
    if not enabled and not t.is_leaf:
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables. If you want to use "
            "a computed variable in a subgraph that doesn't require differentiation use "
            f"var_no_grad = var.detach().{at_user_line()}"
        )
    if enabled and not t.dtype.is_differentiable:
        raise RuntimeError(
            "only Tensors of floating point and complex dtype can require gradients, got "
            f"{t.dtype}{at_user_line()}"
        )
    recording.set_requires_grad(t, enabled)


def detach(t: Tensor) -> None:
    """Forget how `t` was computed."""
    if not t.requires_grad:
        return
    if t._chain is not None and not t._chain.view.detaches:
        raise RuntimeError(f"Can't detach views in-place. Use detach() instead.{at_user_line()}")
    storage = t._storage
    is_shared = storage is not None and getrefcount(storage) > 3  # the field, the name, this
    if is_shared and t._chain is None and not t.is_leaf:
        shapes.become(t, t.detach())  # views of it keep their history
        return
    if t._root is not None:
        t._root.own = None
    recording.set_requires_grad(t, False)


def grad(t: Tensor) -> Any:
    """The gradient of a leaf, or None."""
    found: Any = t._grad
    if found is None and t.requires_grad and not t.is_leaf and not t.retains_grad:
        warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
            ".grad attribute won't be populated during autograd.backward(). If you indeed want "
            "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
            "non-leaf Tensor."
        )
    return found


def set_grad(t: Tensor, value: Tensor | None) -> None:
    if value is not None:
        _check_grad(t, value)
    t._grad = value


def delete_grad(t: Tensor) -> None:
    t._grad = None


def grad_dtype(t: Tensor) -> DType | None:
    """The dtype of a leaf's `.grad`: its own, unless another one is assigned. None lets
    gradients of any dtype be assigned to it."""
    _need_leaf(t, "accessed")
    return t.dtype if t._grad_dtype is NotImplemented else t._grad_dtype


def set_grad_dtype(t: Tensor, dtype: DType | None) -> None:
    if dtype is not None and not isinstance(dtype, DType):
        raise RuntimeError(
            f"grad_dtype must be a torch.dtype or None, but got {type(dtype).__name__}"
            f"{at_user_line()}"
        )
    _need_leaf(t, "set")
    held = t._grad
    if held is not None and dtype is not None and held.dtype is not dtype:
        raise RuntimeError(
            f"Cannot set grad_dtype to {dtype} because there is already a gradient with dtype "
            f"{held.dtype}. Please clear the gradient (.grad = None) before changing "
            f"grad_dtype{at_user_line()}"
        )
    t._grad_dtype = NotImplemented if dtype is t.dtype else dtype


def _need_leaf(t: Tensor, done: str) -> None:
    if not t.is_leaf:
        raise RuntimeError(f"grad_dtype can only be {done} on leaf tensors.{at_user_line()}")


def _check_grad(t: Any, value: Any) -> None:
    """Raise unless `value` may be the gradient of `t`."""
    if not isinstance(value, Handle):
        raise TypeError(
            "assigned grad expected to be a Tensor or None but got grad of type "
            f"{type(value).__name__}{at_user_line()}"
        )
    if is_compound(value):
        gradients.are_sparse = True
    if value is t:
        raise RuntimeError(f"can't assign Variable as its own grad{at_user_line()}")
    (shape, dtype, device), (own, kind, where) = value._typed(), t._typed()
    if tuple(shape) != tuple(own):
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(shape)}' to a tensor of size "
            f"'{list(own)}'. Please ensure that the gradient and the tensor are the same size"
            f"{at_user_line()}"
        )
    if t._grad_dtype is not NotImplemented:
        kind = dtype if t._grad_dtype is None else t._grad_dtype
    if dtype is not kind:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{dtype}' to a tensor with grad_dtype "
            f"'{kind}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's "
            f"dtype){at_user_line()}"
        )
    if device != where:
        raise RuntimeError(
            f"attempting to assign a gradient on {device} to a tensor on {where}. Please ensure "
            f"that the gradient and the tensor are on the same device{at_user_line()}"
        )
