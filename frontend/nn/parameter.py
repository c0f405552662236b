"""Parameter: a tensor that a module trains."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tilewright.ir.location import at_user_line

from .. import recording
from .._tensor import Tensor, _copied
from ..functions import creation

if TYPE_CHECKING:
    from typing_extensions import Self


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to.

    data: the value; the parameter shares its memory. requires_grad: whether it collects gradients.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = creation.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter data has to be a Tensor, got {type(data).__name__}{at_user_line()}"
            )
        count = getrefcount(data)  # on a line of its own: a pending call would hold it too
        return _taken(cls, data, count).requires_grad_(requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy without `.grad`, as in PyTorch."""
        with recording.grad_mode(False):
            made = type(self)(creation.from_buffer(*_copied(self)), self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        array = np.ascontiguousarray(self.detach().cpu()._array()).reshape(self.shape)
        arguments = (type(self), array, self.dtype, str(self.device), self.requires_grad)
        return _rebuild, arguments, self.__dict__ or None


def _rebuild(cls: type, array: np.ndarray, dtype: Any, device: str, requires_grad: bool) -> Any:
    return cls(creation.tensor(array, dtype=dtype, device=device), requires_grad)


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
        return data.detach().as_subclass(cls)
    t: Any = object.__new__(cls)
    t._buffer, t._aval, t._node = data._buffer, data._aval, data._node
    data._node = None
    if t._node is not None:
        recording.handles.append(t)
    return t


class _Probe(Parameter):
    """Measures the reference count of a temporary inside Parameter.__new__."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        return getrefcount(data)


_TEMPORARY: int = _Probe(creation.from_buffer(np.zeros(0, np.float32), recording.default_dtype()))  # type: ignore[assignment]


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to."""

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        made = (creation.empty(0) if data is None else data).as_subclass(cls)
        made.persistent = persistent
        return made
