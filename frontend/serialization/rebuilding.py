"""Rebuilds tensors over the storages of a file."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import contiguous_strides

from .. import layouts
from ..exchange.storages import TypedStorage, UntypedStorage
from ..functions import from_data, older, shapes
from ..functions.quantized import QuantizedDType, QuantizedTensor, unpacked
from ..recording.compounds import is_compound

AnyDType = DType | QuantizedDType


class UnpicklingError(pickle.UnpicklingError):
    """A file contains an object that `load` refuses to build."""


class Loaded:
    """A storage of the file. Tensors that refer to it share its memory."""

    def __init__(self, array: np.ndarray, dtype: AnyDType | None, device: str):
        self.array, self.dtype, self.device = array, dtype, device
        self.used = False  # by a tensor
        self.owners: dict[DType, Any] = {}  # dtype -> a contiguous tensor of the whole storage

    def elements(self, dtype: DType) -> np.ndarray:
        if self.array.nbytes % dtype.itemsize:
            raise RuntimeError(
                f"load: a storage of {self.array.nbytes} bytes holds no whole number of elements "
                f"of {dtype}: the file is damaged{at_user_line()}"
            )
        return self.array.view(dtype.np)

    def whole(self, dtype: DType) -> Any:
        """The whole storage as a 1-d tensor."""
        if dtype not in self.owners:
            self.owners[dtype] = from_data.upload(self.elements(dtype), dtype, self.device)
        return self.owners[dtype].detach().view(-1)


def storage_id(saved: Any, path: Any) -> tuple[Any, AnyDType | None, str]:
    """(key, dtype, device) of the storage that a pickle refers to."""
    if not isinstance(saved, tuple) or len(saved) not in (5, 6) or saved[0] != "storage":
        raise UnpicklingError(
            f"load: {path!s} refers to an unknown kind of object: {saved!r:.80}{at_user_line()}"
        )
    _, dtype, key, location = saved[:4]
    known = dtype is None or isinstance(dtype, (DType, QuantizedDType))
    if not known or not isinstance(key, (str, int)) or not isinstance(location, str):
        raise UnpicklingError(f"load: {path!s} refers to no storage: {saved!r:.80}{at_user_line()}")
    return key, dtype, location


def loaded(raw: np.ndarray, dtype: AnyDType | None, device: str, swapped: bool) -> Loaded:
    """A storage with these bytes. swapped: whether they have the other byte order."""
    storage = Loaded(raw, dtype, device)
    if dtype is not None:
        array = storage.elements(dtype.stored if isinstance(dtype, QuantizedDType) else dtype)
        storage.array = array.byteswap() if swapped else array
    return storage


def rebuild(storage: Loaded, offset: int, size: Any, stride: Any, *more: Any) -> Any:
    """A tensor of the storage's dtype. more: (whether it requires a gradient, hooks)."""
    if not isinstance(storage, Loaded) or not isinstance(storage.dtype, DType):
        raise RuntimeError(f"load: a tensor without a storage of a known dtype{at_user_line()}")
    wants = bool(more[0]) if more else False
    metadata = more[2] if len(more) > 2 else None
    return rebuild_any(storage, offset, size, stride, wants, None, storage.dtype, metadata)


def rebuild_any(
    storage: Loaded,
    offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    hooks: Any,
    dtype: DType,
    metadata: Any = None,
) -> Any:
    """A tensor of elements of `dtype`, at any strides of the storage."""
    if not isinstance(storage, Loaded) or not isinstance(dtype, DType):
        raise RuntimeError(f"load: a tensor without a storage or a dtype{at_user_line()}")
    storage.used = True
    shape, strides = tuple(map(int, size)), tuple(map(int, stride))
    flat = storage.elements(dtype)
    count = math.prod(shape)
    whole = offset == 0 and count == flat.size and strides == contiguous_strides(shape)
    if whole and dtype not in storage.owners:
        # The usual case: a tensor with memory of its own.
        t = storage.owners[dtype] = from_data.upload(flat.reshape(shape), dtype, storage.device)
    else:
        t = _strided(storage.whole(dtype), shape, strides, int(offset))
    for name in ("conj", "neg"):  # the storage has the values without it
        if isinstance(metadata, dict) and metadata.get(name):
            t = getattr(t, name)()
    return t.requires_grad_() if requires_grad else t


def _strided(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """A view of a storage with these strides: a permuted slice, where possible."""
    count = math.prod(shape)
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i]))
    packed = tuple(shape[i] for i in order)
    regular = zip(order, contiguous_strides(packed), strict=True)
    if (
        not count
        or not 0 <= offset <= flat.numel() - count
        or not all(shape[i] == 1 or strides[i] == step for i, step in regular)
    ):
        return shapes.as_strided(flat, shape, strides, offset)
    base = flat[offset : offset + count].view(packed)
    if order == sorted(order):
        return base
    return base.permute(*[order.index(i) for i in range(len(shape))])


def rebuild_quantized(
    storage: Loaded, offset: int, size: Any, stride: Any, params: Any, *more: Any
) -> QuantizedTensor:
    """A quantized tensor. params: ("per_tensor_affine", scale, zero point), or the same with one of
    each for each place of an axis, and the axis."""
    dtype = storage.dtype if isinstance(storage, Loaded) else None
    if not isinstance(dtype, QuantizedDType):
        raise RuntimeError(
            "load: a quantized tensor of elements that tilewright doesn't have: in PyTorch, save "
            f"x.dequantize(){at_user_line()}"
        )
    if dtype.per_byte > 1:
        codes = unpacked(storage.whole(dtype.stored), tuple(size), dtype)
    else:
        codes = rebuild_any(storage, offset, size, stride, False, None, dtype.stored)
    scheme, scale, zero, *axis = params
    if str(scheme).removeprefix("torch.") == "per_tensor_affine":
        return QuantizedTensor(codes, float(scale), int(zero), dtype)
    return QuantizedTensor(codes, scale, zero, dtype, int(axis[0]))


def rebuild_parameter(data: Any, requires_grad: bool, hooks: Any, state: Any = None) -> Any:
    """A parameter. state: its attributes, as a dict or as (dict, slots)."""
    from ..nn.parameter import Parameter

    return _with_attributes(Parameter(data, requires_grad), state)


def rebuild_typed(function: Any, kind: type, args: Any, state: Any) -> Any:
    """A tensor with attributes, or of a subclass of Tensor."""
    made = function(*args)
    if is_compound(made):  # it is whole; the attributes are those of PyTorch's class
        return made
    if kind is not type(made) and isinstance(kind, type) and issubclass(kind, type(made)):
        made = made.as_subclass(kind)
    return _with_attributes(made, state)


def _with_attributes(made: Any, state: Any) -> Any:
    own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for name, value in {**(own or {}), **(slots or {})}.items():
        setattr(made, name, value)
    return made


def rebuild_meta(dtype: DType, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor without memory."""
    made = older.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
    return made.requires_grad_() if requires_grad else made


def rebuild_from_array(data: Any, dtype: DType, device: Any, requires_grad: bool) -> Any:
    """A tensor of a device that PyTorch saves as a NumPy array."""
    made = from_data.tensor(data, dtype=dtype)
    return made.requires_grad_() if requires_grad else made


def rebuild_moved(data: Any, dtype: DType, device: Any, requires_grad: bool) -> Any:
    """A tensor of a device that PyTorch saves as one of the CPU."""
    made = data.detach().to(dtype)
    return made.requires_grad_() if requires_grad else made


def refused(what: str, way: str) -> Any:
    """What stands for a function of PyTorch that makes tensors of a kind that isn't there."""

    def rebuild(*args: Any, **options: Any) -> Any:
        raise RuntimeError(
            f"load: the file holds {what}, which tilewright can't rebuild. In PyTorch, save "
            f"{way}{at_user_line()}"
        )

    return rebuild


def revealed(obj: Any, storages: Any) -> Any:
    """Storages of the file that are objects of their own, as storages of ours: replaced in
    containers."""
    if all(each.used for each in storages):
        return obj
    if isinstance(obj, Loaded):
        kind = obj.dtype.stored if isinstance(obj.dtype, QuantizedDType) else obj.dtype
        whole = obj.whole(kind or dtypes.uint8)
        untyped = UntypedStorage(whole)
        return (
            untyped
            if kind is None
            else TypedStorage(wrap_storage=untyped, dtype=kind, _internal=True)
        )
    if isinstance(obj, dict):
        for key in obj:
            obj[key] = revealed(obj[key], storages)
        return obj
    if isinstance(obj, list):
        obj[:] = [revealed(each, storages) for each in obj]
        return obj
    if type(obj) is tuple:
        return tuple(revealed(each, storages) for each in obj)
    return obj


def layout_named(name: str) -> Any:
    """torch.sparse_coo and its like, by name."""
    found = getattr(layouts, name.removeprefix("torch."), None)
    if not isinstance(found, layouts.layout):
        raise UnpicklingError(f"load: unknown layout {name!r:.40}{at_user_line()}")
    return found


def rebuild_sparse(layout: Any, parts: Any) -> Any:
    """A sparse tensor of this layout. Its positions are checked."""
    from ..sparse import creating

    if layout is layouts.sparse_coo:
        at, values, size, *merged = parts
        return creating.sparse_coo_tensor(at, values, size, is_coalesced=bool(merged and merged[0]))
    return creating.sparse_compressed_tensor(*parts, layout=layout)


def rebuild_nested(state: Any) -> Any:
    from ..nested.tensors import nested, sequences

    rows = sequences(state["offsets"], state["lengths"])
    made = nested(state["values"], rows, int(state["_ragged_idx"]))
    return made.requires_grad_() if state["requires_grad"] else made


class Skipped:
    """An object of a file that nothing here needs."""

    def __setstate__(self, state: Any) -> None:
        pass
