"""Storages: the memory of tensors, by its address, its bytes, or its elements."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import contiguous_strides

from .. import recording
from ..devices import named
from ..functions import creation, from_data, shapes
from ..functions.call import public
from ..recording import epoch
from . import arrays, resizing
from .resizing import base as base
from .resizing import whole
from .sharing import is_shared, over, share_memory

if TYPE_CHECKING:
    from .._tensor import Tensor


def data_ptr(t: Any) -> int:
    """The address of the first element. Values that are only recorded are computed first."""
    start = address(t)
    return start and start + shapes.layout_of(t)[2] * t.element_size()


def address(t: Any) -> int:
    """The address of the memory that `t` looks at; 0 where there is none."""
    if t.is_meta:
        return 0
    arrays.array_of(t)
    state = t if t._storage is None else t._storage
    buffer = state._buffer
    if state._node is not None or buffer is None or not state._aval[0].numel():
        return 0
    if isinstance(buffer, np.ndarray):
        return int(buffer.__array_interface__["data"][0])
    return int(getattr(buffer, "pointer", 0) or getattr(buffer, "address", 0) or id(buffer))


@public("set_", function=False)
def set_(
    input: Tensor,
    source: Tensor | UntypedStorage | TypedStorage | None = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Let `input` look at the memory of `source`; at none, with no elements, without `source`.

    storage_offset, size, stride: which elements, and in which shape; by default those of a tensor,
    and all of a storage. RuntimeError for a leaf that requires a gradient, and for another dtype.
    """
    if input.requires_grad and input.is_leaf and recording.is_grad_enabled():
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
            f"{at_user_line()}"
        )
    seen: Any = source
    if source is None:
        seen = creation.empty(0, dtype=input.dtype, device=input.device)
    elif isinstance(source, (UntypedStorage, TypedStorage)):
        seen = whole(source.untyped()._tensor)
        seen = seen if seen.dtype is input.dtype else seen.view(input.dtype)
    if seen.dtype is not input.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {seen.dtype} to a tensor of type {input.dtype}"
            f"{at_user_line()}"
        )
    seen = seen.detach()
    if size is None and not isinstance(source, epoch.tensor_type):
        size = (seen.numel() - storage_offset,) if source is not None else None
    if size is not None:
        steps = contiguous_strides(tuple(size)) if stride is None else stride
        seen = shapes.as_strided(whole(seen), size, steps, storage_offset)
    recording.set_data(input, seen)
    return input


@public("resize_as_")
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """Change the shape to that of another tensor; see `Tensor.resize_`. A sparse tensor gets the
    numbers of dimensions, too, as by `sparse_resize_`."""
    if input.is_sparse and the_template.is_sparse:
        dims = the_template.sparse_dim(), the_template.dense_dim()
        return input.sparse_resize_(tuple(the_template.shape), *dims)
    return input.resize_(tuple(the_template.shape))


def _mapped(filename: str, shared: bool, nbytes: int) -> np.ndarray:
    """The bytes of a file as memory. shared: writes go to it, and a shorter file is made longer."""
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < nbytes:
                file.truncate(nbytes)
    mode: Any = "r+" if shared else "c"
    return np.memmap(filename, np.uint8, mode, shape=(nbytes,)) if nbytes else np.zeros(0, "u1")


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A vector of `size` elements over the memory of a file. shared: writes go to the file, which
    is made longer if needed; else they stay in the process."""
    kind = recording.named_dtype(dtype)
    if size is None or size < 0:
        raise RuntimeError(f"from_file: expected a size of at least 0, got {size}{at_user_line()}")
    array = _mapped(filename, bool(shared), size * kind.itemsize).view(kind.np)
    return over(array, kind).requires_grad_(requires_grad)


def _from_buffer(
    buffer: Any, byte_order: str | None, count: int = -1, offset: int = 0, *, dtype: DType
) -> Tensor:
    """Elements of a buffer object, copied.

    byte_order: native, little or big. PyTorch wants it for all but whole numbers of one byte.
    count: how many, all by default. offset: bytes before the first one.
    """
    if byte_order is None:
        if dtype not in (dtypes.uint8, dtypes.int8):
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        byte_order = "native"
    if byte_order not in ("native", "little", "big"):
        raise ValueError(
            f"invalid byte_order '{byte_order}' (expected 'native', 'little' or 'big')"
        )
    size = memoryview(buffer).nbytes
    if offset < 0 or (offset >= size and size > 0):
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({size}), got {offset}"
        )
    if count < 0:
        count, rest = divmod(size - offset, dtype.itemsize)
        if rest:
            raise ValueError(
                f"buffer size ({size}) must be a multiple of element size ({dtype.itemsize})"
            )
    elif offset + count * dtype.itemsize > size:
        raise ValueError(
            f"buffer has only {size - offset} elements after offset {offset}, but specified a size "
            f"of {count}"
        )
    array = np.frombuffer(buffer, dtype.np, count, offset) if count else np.zeros(0, dtype.np)
    swapped = byte_order not in ("native", sys.byteorder)
    return from_data.from_numpy(array.byteswap() if swapped else array.copy())


def _listed(held: UntypedStorage | TypedStorage, name: str) -> str:
    """PyTorch's text of a storage: its elements, one a line, and its name."""
    if held.device.type == "meta":
        return f"...\n{name}"
    lines = "\n ".join(map(str, held))
    return f" {lines}\n{name}"


class StorageBase:
    """The class of memory without a type."""


class UntypedStorage(StorageBase):
    """The memory of a tensor, as bytes."""

    def __init__(self, *size: Any, device: Any = None, dtype: Any = None):
        if len(size) == 1 and isinstance(size[0], epoch.tensor_type):
            self._tensor: Any = size[0]
            return
        given = size[0] if size else 0
        make = from_data.tensor if isinstance(given, (list, tuple, bytes)) else creation.zeros
        if isinstance(given, bytes):
            given = list(given)
        self._tensor = make(given, dtype=dtypes.uint8, device=device)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file. shared: writes go to it, and it gets `nbytes` if it is shorter."""
        return cls(over(_mapped(filename, shared, nbytes), dtypes.uint8))

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *,
        dtype: Any,
    ) -> UntypedStorage:  # fmt: skip
        """A copy of the elements of a buffer object: see `_from_buffer`."""
        return cls(_from_buffer(buffer, byte_order, count, offset, dtype=dtype))

    @property
    def device(self) -> Any:
        return named(self._tensor._typed()[2])

    @property
    def is_cuda(self) -> bool:
        return bool(self._tensor.is_cuda)

    is_sparse = False

    def nbytes(self) -> int:
        return resizing.room(self._tensor)

    size = __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        return address(self._tensor)

    _cdata = property(lambda self: id(recording.storage_of(self._tensor)))

    def untyped(self) -> UntypedStorage:
        return self

    def _bytes(self) -> np.ndarray:
        """The bytes, as memory that is shared with NumPy."""
        array: np.ndarray = arrays.export(whole(self._tensor)).view(np.uint8)
        return array

    def __getitem__(self, key: Any) -> Any:
        found = self._bytes()[key]
        if isinstance(key, slice):
            return UntypedStorage(from_data.tensor(found.copy()))
        return int(found)

    def __setitem__(self, key: Any, value: int) -> None:
        self._bytes()[key] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        return list(self._bytes().tolist())

    def fill_(self, value: int) -> UntypedStorage:
        self._bytes()[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        self._bytes()[:] = source.untyped()._bytes()
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage(whole(self._tensor).clone())

    def cpu(self) -> UntypedStorage:
        return UntypedStorage(self._tensor.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        return UntypedStorage(self._tensor.cuda(device))

    def is_pinned(self, device: Any = None) -> bool:
        return bool(self._tensor.is_pinned())

    def is_shared(self) -> bool:
        return is_shared(self._tensor)

    def share_memory_(self) -> UntypedStorage:
        share_memory(self._tensor)
        return self

    def resizable(self) -> bool:
        return resizing.is_resizable(self._tensor)

    def resize_(self, size: int) -> UntypedStorage:
        """Change the number of bytes: see `resizing.resize_storage`."""
        resizing.resize_storage(self._tensor, int(size))
        return self

    def __repr__(self) -> str:
        kind = f"torch.storage.UntypedStorage(device={self.device})"
        return _listed(self, f"[{kind} of size {self.nbytes()}]")


class TypedStorage:
    """The memory of a tensor, as elements of its dtype. PyTorch's older form of a storage."""

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None,
        _internal: bool = False,
    ):  # fmt: skip
        if wrap_storage is None:
            own: DType = dtype or recording.default_dtype()
            given = args[0] if args else 0
            make = from_data.tensor if isinstance(given, (list, tuple)) else creation.zeros
            wrap_storage = UntypedStorage(make(given, dtype=own, device=device))
        self._untyped_storage: UntypedStorage = wrap_storage
        self.dtype: DType = dtype or wrap_storage._tensor.dtype

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        return self._untyped_storage.is_cuda

    is_sparse = False

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def _elements(self) -> np.ndarray:
        return self._untyped_storage._bytes().view(self.dtype.np)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        return self.nbytes() // self.dtype.itemsize

    __len__ = _size = size

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def __getitem__(self, key: int) -> Any:
        if isinstance(key, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._elements()[key].item()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._elements()[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        return list(self._elements().tolist())

    def fill_(self, value: Any) -> TypedStorage:
        self._elements()[:] = value
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        self._elements()[:] = source._elements()
        return self

    def resize_(self, size: int) -> TypedStorage:
        """Change the number of elements."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def resizable(self) -> bool:
        return self._untyped_storage.resizable()

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def __repr__(self) -> str:
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        return _listed(self, f"[{kind} of size {self.size()}]")


def untyped_storage(t: Tensor) -> UntypedStorage:
    return UntypedStorage(t)


def storage(t: Tensor) -> TypedStorage:
    return TypedStorage(wrap_storage=UntypedStorage(t), dtype=t.dtype)


def is_storage(obj: Any, /) -> bool:
    return isinstance(obj, (TypedStorage, UntypedStorage))
