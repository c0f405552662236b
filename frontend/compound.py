"""Compound: the base of tensors that are made of dense tensors, sparse and nested ones.

A compound is a structure (positions, offsets) and a dense tensor of its values, the *elements*.
What can be differentiated are the elements: a compound requires a gradient if they do, and its
gradient has their gradient as elements and the same structure. What a compound does in a call is
told by rules (`recording/compounds.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from . import recording
from ._tensor import Tensor
from .autograd.grad_fn import GradFn
from .autograd.hooks import RemovableHandle
from .functions import conversions, creation, shapes
from .functions.call import DECLARED
from .overriding import disabled
from .recording import views
from .recording.compounds import COMPOUND, is_compound, rule

if TYPE_CHECKING:
    from typing_extensions import Self

    from .types import Number


class Compound(Tensor):
    """A tensor whose values are the dense tensor `_elements`. Subclasses hold the structure.

    _is_own_leaf: whether it collects gradients itself, so that its elements belong to it alone.
    """

    __slots__ = ("_elements", "_is_own_leaf", "_sizes")
    # To PyTorch these are plain tensors, of another layout.
    __torch_function__ = disabled  # type: ignore[assignment]

    _node = COMPOUND
    _advice = "convert it with to_dense(), or work on its values()"  # where a call has no rule
    _elements: Any
    _sizes: Size
    _is_own_leaf: bool

    def __new__(cls, *data: Any, **options: Any) -> NoReturn:
        raise TypeError(f"{cls.__name__} is made by functions such as torch.sparse_coo_tensor")

    # ---- what a subclass says ----------------------------------------------------------------

    def _like(self, elements: Tensor, sizes: Any = None) -> Self:
        """A compound of this structure with other elements."""
        raise NotImplementedError

    def _structure(self) -> tuple[Any, ...]:
        """The dense tensors (or None) of the structure, which have no gradients."""
        raise NotImplementedError

    def _restructured(self, structure: tuple[Any, ...], elements: Tensor) -> Self:
        """A compound of the same kind from parts as `_structure` and `_elements` give them."""
        raise NotImplementedError

    def _take(self, other: Any) -> None:
        """Take over structure and elements of a compound of the same class."""
        raise NotImplementedError

    # ---- properties --------------------------------------------------------------------------

    def _typed(self) -> tuple[Size, DType, str]:
        _, dtype, device = self._elements._typed()
        return self._sizes, dtype, device

    @property
    def shape(self) -> Size:
        return self._sizes

    @property
    def dtype(self) -> DType:
        return self._elements.dtype  # type: ignore[no-any-return]

    @property
    def requires_grad(self) -> bool:
        return self._elements.requires_grad  # type: ignore[no-any-return]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        return self._is_own_leaf or not self.requires_grad

    @property
    def grad_fn(self) -> GradFn | None:
        return None if self.is_leaf else self._elements.grad_fn

    @property
    def _grad(self) -> Any:
        """The gradient of a leaf: that of its elements, in its own structure."""
        found = self._elements._grad if self._is_own_leaf else None
        return None if found is None else self._like(found)

    @_grad.setter
    def _grad(self, value: Any) -> None:
        if value is not None and type(value) is not type(self):
            raise RuntimeError(
                f"the gradient of a tensor of layout {self.layout} has its structure; got one of "
                f"layout {value.layout}{at_user_line()}"
            )
        self._elements._grad = None if value is None else value._elements

    @property
    def _version(self) -> int:
        return recording.version(self._elements)  # type: ignore[no-any-return]

    @property
    def _base(self) -> None:
        return None

    def _is_view(self) -> bool:
        return False

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        wanted = self.requires_grad and self._is_own_leaf
        self._take(self._same_kind(value).detach())
        self._is_own_leaf = False
        if wanted:
            self.requires_grad_()

    @property
    def nbytes(self) -> int:
        return self._elements.nbytes  # type: ignore[no-any-return]

    def stride(self, dim: int | None = None) -> Any:
        raise RuntimeError(f"tensors of layout {self.layout} do not have strides{at_user_line()}")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    # ---- gradients ---------------------------------------------------------------------------

    def detach(self) -> Self:
        return self._like(self._elements.detach())

    def detach_(self) -> Self:
        self._elements, self._is_own_leaf = self._elements.detach(), False
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        if requires_grad == self.requires_grad:
            return self
        if requires_grad:
            self._elements = self._elements.detach().requires_grad_()
        elif not self._is_own_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use "
                "a computed variable in a subgraph that doesn't require differentiation use "
                f"var_no_grad = var.detach().{at_user_line()}"
            )
        else:
            self._elements = self._elements.detach()
        self._is_own_leaf = requires_grad
        return self

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """As of a dense tensor. Of the gradient the elements at this tensor's positions count."""
        given = None if gradient is None else self._elements_of(gradient)
        self._elements.backward(given, retain_graph, create_graph, inputs)

    def _elements_of(self, gradient: Tensor) -> Any:
        """The elements of a gradient, in the order of this tensor's own."""
        return self._same_kind(gradient)._elements

    def retain_grad(self) -> None:
        if self.is_leaf:
            return
        raise NotImplementedError(
            f"retain_grad: not implemented for tensors of layout {self.layout}; use a hook"
            f"{at_user_line()}"
        )

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(grad)` with the gradient, which has this tensor's structure."""

        def of_elements(g: Tensor) -> Tensor | None:
            replaced: Any = hook(self._like(g))
            return replaced._elements if is_compound(replaced) else replaced

        return self._elements.register_hook(of_elements)  # type: ignore[no-any-return]

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        if not self._is_own_leaf:
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
                f"{at_user_line()}"
            )
        return self._elements.register_post_accumulate_grad_hook(  # type: ignore[no-any-return]
            lambda _: hook(self)
        )

    # ---- values ------------------------------------------------------------------------------

    def _array(self) -> np.ndarray:
        raise TypeError(
            f"can't convert a tensor of layout {self.layout} to numpy. Use Tensor.to_dense() first."
            f"{at_user_line()}"
        )

    def numpy(self, *, force: bool = False) -> np.ndarray:
        return self._array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array()

    def item(self) -> Any:
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
                f"{at_user_line()}"
            )
        return self.to_dense().item()

    def tolist(self) -> Any:
        raise RuntimeError(
            f"a tensor of layout {self.layout} has no list of all elements: use to_dense()"
            f"{at_user_line()}"
        )

    def data_ptr(self) -> int:
        raise RuntimeError(
            f"Cannot access data pointer of Tensor that doesn't have storage{at_user_line()}"
        )

    def untyped_storage(self) -> Any:
        raise NotImplementedError(
            f"a tensor of layout {self.layout} has no storage of its own{at_user_line()}"
        )

    storage = _typed_storage = untyped_storage

    def is_shared(self) -> bool:
        return all(t is None or t.is_shared() for t in (*self._structure(), self._elements))

    def share_memory_(self) -> Self:
        for t in (*self._structure(), self._elements):
            if t is not None:
                t.share_memory_()
        return self

    def pin_memory(self, device: Any = None) -> Self:
        return self._map(lambda t: t.pin_memory(device))

    def is_pinned(self, device: Any = None) -> bool:
        return all(t is None or t.is_pinned() for t in (*self._structure(), self._elements))

    def _map(self, change: Callable[[Any], Any]) -> Self:
        """A compound of changed parts."""
        structure = tuple(None if t is None else change(t) for t in self._structure())
        return self._restructured(structure, change(self._elements))

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind(0))

    def __contains__(self, element: Any) -> bool:
        raise NotImplementedError(
            f"in: not implemented for tensors of layout {self.layout}{at_user_line()}"
        )

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def as_subclass(self, cls: type) -> Any:
        if cls is Tensor or cls is type(self):
            return self
        raise NotImplementedError(
            f"a tensor of layout {self.layout} can't be a {cls.__name__}{at_user_line()}"
        )

    # ---- copies ------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                f"protocol at the moment{at_user_line()}"
            )
        out = self.detach()._map(lambda t: copy.deepcopy(t, memo))
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        if self.requires_grad:
            out.requires_grad_()
            if self._grad is not None:
                out._elements._grad = copy.deepcopy(self._elements._grad.detach(), memo)
        memo[id(self)] = out
        return out

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        wants = self.requires_grad and self.is_leaf
        whole = self.detach()
        return _rebuilt, (type(self), *whole._pickled(), wants), self.__dict__ or None

    def _pickled(self) -> tuple[Any, Any]:
        """The state of everything, for a pickle: (parts, the rest)."""
        raise NotImplementedError

    @classmethod
    def _unpickled(cls, parts: Any, rest: Any) -> Any:
        raise NotImplementedError

    # ---- in place ----------------------------------------------------------------------------

    def _same_kind(self, other: Any) -> Any:
        """`other`, which must be of this class and shape."""
        if type(other) is not type(self) or tuple(other.shape) != tuple(self.shape):
            got = f"layout {other.layout} and shape {list(other.shape)}"
            raise RuntimeError(
                f"expected a tensor of layout {self.layout} and shape {list(self.shape)}, got one "
                f"of {got}{at_user_line()}"
            )
        return other

    def _become(self, other: Any) -> Self:
        """Take over the value of `other`, which a call has computed of this tensor."""
        if self._is_own_leaf and recording.is_grad_enabled():
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation; "
                f"use torch.no_grad() or .data{at_user_line()}"
            )
        own = self.dtype
        if not is_compound(other) or type(other) is not type(self):
            raise RuntimeError(
                f"the result is of layout {other.layout}, and can't be written to a tensor of "
                f"layout {self.layout}{at_user_line()}"
            )
        if other.dtype is not own:
            if other.dtype.category > own.category:
                raise RuntimeError(
                    f"result type {other.dtype} can't be cast to the desired output type "
                    f"{own}{at_user_line()}"
                )
            other = other.to(own)
        if self._is_own_leaf:
            grad = self._elements._grad
            self._take(other.detach())
            self._elements = self._elements.detach().requires_grad_()
            self._elements._grad = (
                grad if grad is None or grad.shape == other._elements.shape else None
            )
            return self
        self._take(other)
        return self

    def copy_(self, source: Tensor | Number, non_blocking: bool = False) -> Self:
        if not is_compound(source):
            raise RuntimeError(
                "copy_() between dense and sparse Tensors is not implemented! Found self of layout "
                f"{self.layout}{at_user_line()}"
            )
        return self._become(self._same_kind(source).to(self.device, self.dtype).clone())

    def fill_(self, value: Tensor | Number) -> Self:
        return self._become(self._like(shapes.clone(self._elements.detach()).fill_(value)))

    def zero_(self) -> Self:
        return self._become(self._like(creation.zeros_like(self._elements)))

    def resize_(self, *sizes: Any, memory_format: Any = None) -> Self:
        raise RuntimeError(
            f"resize_: not implemented for tensors of layout {self.layout}{at_user_line()}"
        )


def _rebuilt(cls: type[Compound], parts: Any, rest: Any, requires_grad: bool) -> Any:
    made = cls._unpickled(parts, rest)
    return made.requires_grad_() if requires_grad else made


def blank(cls: Any, elements: Any, sizes: Any) -> Any:
    """A compound of class `cls` without a structure, for the caller to fill in."""
    made = object.__new__(cls)
    made._elements, made._sizes, made._is_own_leaf = elements, Size(sizes), False
    return made


def _writing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of a method: the compound takes over the result."""

    def write(self: Any, *args: Any, **options: Any) -> Any:
        result = method(self, *args, **options)
        return result if result is NotImplemented else self._become(result)

    write.__name__ = write.__qualname__ = name
    return write


for _op in DECLARED.values():
    if _op.in_place is not None and _op.method is not None:
        for _name in (_op.name, *_op.aliases):
            setattr(Compound, f"{_name}_", _writing(f"{_name}_", _op.method))
    _operators = _op.operators or {}
    for _name in _operators:
        if _name.startswith("__i") and f"__{_name[3:]}" in _operators:
            setattr(Compound, _name, _writing(_name, _operators[f"__{_name[3:]}"]))


@rule(Compound, conversions.cast)
def _cast(t: Any, dtype: DType) -> Any:
    return t._like(recording.record(conversions.cast, t._elements, dtype))


@rule(Compound, conversions.copy_to)
def _copy_to(t: Any, device: str, *waits: bool) -> Any:
    return t._map(lambda part: part.to(device=device, non_blocking=bool(waits)))


@rule(Compound, shapes._identity)
def _clone(t: Any) -> Any:
    return t._like(shapes.clone(t._elements))


@rule(Compound, views.DETACH, views.DATA)
def _detach(t: Any) -> Any:
    return t.detach()
