"""Parameter: a tensor that a module trains. Those of lazy modules have no shape yet."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import recording
from .._tensor import Tensor
from ..devices import device as Device
from ..exchange import copies
from ..functions import creation, from_data
from ..overriding import disabled, has_override
from ..recording import epoch
from ..recording.states import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from tilewright.ir.dtype import DType

    from ..types import DeviceLike


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        """A tensor of another subclass, of which a parameter was made, is a parameter too."""
        return super().__instancecheck__(instance) or (
            cls is Parameter
            and isinstance(instance, Tensor)
            and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that becomes a parameter of the module it is assigned to.

    data: the value; the parameter shares its memory. requires_grad: whether it collects gradients.
    Of a tensor of a subclass that has a say in calls (`__torch_function__`), the parameter is of
    this subclass.
    """

    __torch_function__: Any = disabled

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = creation.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter data has to be a Tensor, got {type(data).__name__}{at_user_line()}"
            )
        special = has_override(data) or hasattr(data, "__torch_dispatch__")
        if cls is Parameter and special and not isinstance(data, Parameter):
            own: Any = data.detach().requires_grad_(requires_grad)
            own._is_param = True
            return own
        count = getrefcount(data)  # on a line of its own: a pending call would hold it too
        return _taken(cls, data, count).requires_grad_(requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy without `.grad`, as in PyTorch."""
        with recording.grad_mode(False):
            made = type(self)(from_data.from_buffer(*copies.copied(self)), self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        array = copies.elements(self)
        arguments = (type(self), array, self.dtype, str(self.device), self.requires_grad)
        return _rebuild, arguments, self.__dict__ or None


def _rebuild(cls: type, array: Any, dtype: Any, device: str, requires_grad: bool) -> Any:
    return cls(copies.tensor_of(array, dtype, device), requires_grad)


def _taken(cls: type, data: Any, count: int) -> Any:
    """The value of `data` in a new tensor of type `cls` that shares its memory.

    A temporary that nobody else can see, as in Parameter(torch.empty(3)), hands its memory over
    instead: a tensor with its own storage is cheaper to read and to write.
    """
    mine = (
        type(data) is Tensor
        and data._storage is None
        and data._shared is None
        and not data.requires_grad
        and data._place < 0  # not read in an epoch, so no list of leaves holds it
        and count <= _TEMPORARY + (data._node is not None)  # the list of handles may
    )
    if not mine:
        if data.is_meta:  # there is no memory to share, and what it was made of may take much
            data = creation.empty(data.shape, dtype=data.dtype, device="meta")
        return data.detach().as_subclass(cls)
    t: Any = object.__new__(cls)
    t._buffer, t._aval, t._node = data._buffer, data._aval, data._node
    data._node = None
    if t._node is not None:
        recording.handles.append(t)
    return t


epoch.parameter_type = Parameter


class _Probe(Parameter):  # type: ignore[metaclass]
    """Measures the reference count of a temporary inside Parameter.__new__."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        return getrefcount(data)


_TEMPORARY: int = _Probe(from_data.from_buffer(np.zeros(0, np.float32), recording.default_dtype()))  # type: ignore[assignment]


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to."""

    __torch_function__: Any = disabled
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        made = (creation.empty(0) if data is None else data).as_subclass(cls)
        made.persistent = persistent
        return made


# ---- without a shape yet -----------------------------------------------------------------------

_UNUSABLE = (
    "Attempted to use an uninitialized parameter. This happens when you are using a `LazyModule` "
    "or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
    "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling "
    "torch functions"
)
_SHAPELESS = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
    "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. "
    "Call `forward` to initialize the parameters before accessing their attributes."
)


class UninitializedTensorMixin(Tensor):
    """A tensor of known dtype and device, whose shape is known later.

    It holds no value: an op that reads it is a ValueError.
    """

    cls_to_become: Any = Tensor
    __torch_function__: Any = disabled

    @classmethod
    def _blank(cls, dtype: DType, device: str) -> Any:
        made: Any = object.__new__(cls)
        made._buffer = Failed(ValueError(_UNUSABLE))
        made._aval = (Size((0,)), dtype, device)
        return made

    def materialize(
        self,
        shape: int | Sequence[int],
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Become a tensor of `shape`, a size or several, whose elements aren't set. It is still
        the same object."""
        own = self._typed()
        value = creation.empty(
            shape, dtype=dtype or own[1], device=own[2] if device is None else device
        )
        recording.flush()
        recording.adopt(self, value)
        self.__class__ = self.cls_to_become

    def to(self, *args: Any, **options: Any) -> Any:
        """The same in another dtype or on another device, still without a value."""
        like: Any = creation.empty(0, dtype=self.dtype, device=str(self.device))
        return self._like(like.to(*args, **options))

    def _like(self, converted: Any) -> Any:
        return self._blank(*converted._typed()[1:])

    def type(self, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        like: Any = creation.empty(0, dtype=self.dtype, device=str(self.device))
        return like.type() if dtype is None else self._like(like.type(dtype))

    if not TYPE_CHECKING:  # a checker takes them for those of Tensor

        @property
        def shape(self) -> Size:
            raise RuntimeError(f"{_SHAPELESS}{at_user_line()}")

        @property
        def data(self) -> Tensor:
            """A tensor without elements: the value comes later, and what is drawn now is lost."""
            return creation.empty(0, dtype=self.dtype, device=str(self.device))

        @data.setter
        def data(self, value: Tensor) -> None:
            Tensor.data.fset(self, value)

        def _refused(self, *args: Any, **options: Any) -> Any:
            raise ValueError(f"{_UNUSABLE}{at_user_line()}")

        numel = dim = detach = zero_ = fill_ = copy_ = clone = __len__ = _refused

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            f"initialize the parameters before calling `module.share_memory()`.{at_user_line()}"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<{self.__class__.__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = self._like(self)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        _, dtype, device = self._typed()
        return type(self), (self._requires_grad, device, dtype)


def _conversion(name: str) -> Any:
    def convert(self: Any, *args: Any, **options: Any) -> Any:
        like = creation.empty(0, dtype=self.dtype, device=str(self.device))
        return self._like(getattr(like, name)(*args, **options))

    convert.__name__ = name
    return convert


for _name in ("half", "float", "double", "bfloat16", "short", "int", "long", "char", "cuda", "cpu"):
    setattr(UninitializedTensorMixin, _name, _conversion(_name))


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc,metaclass]
    """A parameter whose shape is known later; `materialize` makes it a Parameter."""

    cls_to_become = Parameter

    def __new__(
        cls,
        requires_grad: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> Self:
        made = cls._blank(*_placed(device, dtype))
        made._requires_grad = bool(requires_grad)
        return made

    def _like(self, converted: Any) -> Any:
        made = super()._like(converted)
        made._requires_grad = self._requires_grad
        return made


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is known later; `materialize` makes it a tensor."""

    persistent: bool

    def __new__(
        cls,
        requires_grad: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> Self:
        made = cls._blank(*_placed(device, dtype))
        made._requires_grad, made.persistent = bool(requires_grad), persistent
        return made


def _placed(device: DeviceLike | None, dtype: DType | None) -> tuple[Any, str]:
    like: Any = creation.empty(0, dtype=dtype, device=None if device is None else Device(device))
    return like._typed()[1:]


def is_lazy(param: Any) -> bool:
    """Whether the shape of a parameter or buffer isn't known yet."""
    return isinstance(param, UninitializedTensorMixin)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter from the parts in PyTorch's pickles; the hooks, which aren't saved, are none."""
    return Parameter(data, requires_grad)
