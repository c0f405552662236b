"""Values in and out: arrays that share a tensor's memory, and DLPack."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import DType, complex32, is_added
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import contiguous_strides
from tilewright.runtime import devices

from .. import devices as device_module
from .. import recording
from ..functions import from_data, shapes
from ..functions.memory import Window
from ..recording import views
from ..recording.epoch import clock
from ..recording.flushing import end_step
from ..recording.reading import value_of
from ..recording.states import Failed, SharedMemory
from . import dlpack

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike


def array_of(t: Any) -> np.ndarray:
    """The values as an array that must not be written to. They are computed first, and copied from
    a device."""
    clock.effects += 1
    if t._node is not None:
        end_step()
        if t._node is not None:  # the epoch is held: compute this value alone
            name = t._typed()[2]
            return devices.get(name).to_numpy(value_of(t._node))
    state = t if t._storage is None else t._storage
    if state._node is not None or state._buffer is None:
        end_step()
    if clock.capturing and state._node is None:  # unreadable only if it is a GPU's
        recording.resolve(t)
    if state._node is not None:
        name = t._typed()[2]
        return devices.get(name).to_numpy(value_of(recording.resolve(t)))
    if type(state._buffer) is Failed:
        raise state._buffer.error()
    device, buffer = devices.get(state._aval[2]), state._buffer
    if t._chain is None:
        return device.to_numpy(buffer)
    sizes, strides, offset = shapes.layout_of(t)
    if t._chain.retypes:
        whole = np.ascontiguousarray(device.to_numpy(buffer)).reshape(-1)
        return strided(whole.view(t.dtype.np)[offset:], sizes, strides)
    if not isinstance(
        buffer, np.ndarray
    ):  # copy only the part of a GPU's memory that the view spans
        part = device.part(buffer, offset, (views.span(sizes, strides),))
        return strided(device.to_numpy(part), sizes, strides)
    array = device.to_numpy(buffer)
    if array.flags.c_contiguous:
        return strided(array.reshape(-1)[offset:], sizes, strides)
    return _through_chain(array, t._chain)


def element_of(t: Any) -> Any:
    """The number that memory at rest holds, or that a view of it shows; None if it is another
    tensor."""
    storage, chain = t._storage, t._chain
    state = t if storage is None else storage
    buffer = state._buffer
    if t._node is not None or state._node is not None or buffer.__class__ is not np.ndarray:
        return None
    if chain is None:
        place, is_one = 0, buffer.size == 1
    else:
        layout = chain.layout
        if layout is None or layout[0] or chain.retypes or not buffer.flags.c_contiguous:
            return None
        place, is_one = layout[2], True
    if not is_one or buffer.dtype.isbuiltin != 1 or state._aval[2] != "cpu":
        return None
    if clock.capturing or t._aval[1].is_complex:
        return None
    clock.effects += 1
    return devices.get("cpu").to_numpy(buffer).item(place)


def strided(flat: np.ndarray, sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """A view of contiguous memory, with strides in elements. NumPy's as_strided doesn't know the
    dtypes of ml_dtypes."""
    steps = [s * flat.itemsize for s in strides]
    return np.ndarray(sizes, flat.dtype, flat, strides=steps)


def _through_chain(array: np.ndarray, chain: views.Chain) -> np.ndarray:
    """A view, by a chain, of an array that isn't contiguous (one shared with NumPy)."""
    for kind, attrs in chain.links:
        strides = tuple(s // array.itemsize for s in array.strides)
        found = kind.layout((array.shape, strides, 0), *attrs)
        if found is None:
            # Strides can't express it. A copy is enough, as the result is only read.
            array = np.ascontiguousarray(array)
            found = kind.layout((array.shape, contiguous_strides(array.shape), 0), *attrs)
            assert found is not None, "of what is contiguous there are strides"
        shape, strides, offset = found
        start = array.__array_interface__["data"][0] + offset * array.itemsize
        window = Window(array, start, shape, tuple(s * array.itemsize for s in strides))
        array = np.asarray(window).view(array.dtype)
    return array


def numpy(t: Tensor, force: bool) -> np.ndarray:
    """An array that shares the memory of `t`; with `force`, of what `t` is on the host."""
    if force:
        return export(t.detach().cpu())
    refuse_gradients(t)
    if t.device.type != "cpu":
        raise TypeError(
            f"can't convert {t.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
            f"tensor to host memory first.{at_user_line()}"
        )
    if t.dtype is complex32:
        raise TypeError(f"Got unsupported ScalarType ComplexHalf{at_user_line()}")
    return export(t)


def refuse_gradients(t: Tensor) -> None:
    """Raise for a tensor whose gradients NumPy wouldn't see."""
    if t.requires_grad and recording.is_grad_enabled():
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
            f"instead.{at_user_line()}"
        )


def export(t: Any) -> np.ndarray:
    """An array that shares the memory of `t`, which is on the host.

    Where the epoch is held (in hooks and backward functions), a pending value is copied instead.
    """
    recording.flush()
    state = t if t._storage is None else t._storage
    if t._node is None is state._node and state._buffer.__class__ is np.ndarray:
        clock.effects += 1
        devices.get("cpu").to_numpy(state._buffer)
    else:
        array_of(t)
        state = t if t._storage is None else t._storage
    if state._node is not None:
        return np.array(array_of(t))  # it has no memory yet, as a gradient in a hook
    shared = state._shared
    if shared is not None and shared.exported is None:
        return array_of(t)
    window = None if shared is None else shared.exported()
    if window is None:
        memory = state._buffer
        owner = memory.base
        # Three references are ours: `memory`, the state and the argument; to the array that owns
        # the memory, `owner`, `memory` and the argument. Any other holder would see writes.
        is_alone = owner is None or (
            type(owner) is np.ndarray
            and getrefcount(owner) == 3 + devices.get("cpu").recycles(owner)
        )
        if getrefcount(memory) > 3 or not is_alone:
            state._buffer = memory = np.array(memory, order="C")
        window = Window(memory)
        state._shared = SharedMemory(exported=weakref.ref(window))
    whole = np.asarray(window)
    dtype = state._aval[1].np
    if whole.dtype != dtype:
        whole = whole.view(dtype)
    if t._chain is None or (t._chain.only_detaches and whole.flags.c_contiguous):
        return whole
    sizes, strides, offset = shapes.layout_of(t)
    return strided(whole.reshape(-1).view(t.dtype.np)[offset:], sizes, strides)


class _Capsule:
    """A capsule of DLPack's older protocol, which is an argument itself, as NumPy takes it."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host: `to_dlpack` gives no others


def from_dlpack(
    ext_tensor: Any, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares the memory of another library's array or tensor.

    copy: True for memory of its own; with False, another `device` raises BufferError.
    """
    t = _of_dlpack(ext_tensor)
    if device is not None and device_module.resolve(device) != t._typed()[2]:
        if copy is False:
            raise BufferError(
                f"from_dlpack: an array on {t.device} can't be shared with {device}; leave "
                f"copy=False out{at_user_line()}"
            )
        return t.to(device)
    return t.clone() if copy else t


def _of_dlpack(source: Any) -> Tensor:
    if isinstance(source, recording.Handle):
        return source.detach()  # type: ignore[attr-defined, no-any-return]
    if type(source).__name__ == "PyCapsule":
        source = _Capsule(source)
    if not hasattr(source, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: expected an object with __dlpack__, got {type(source).__name__}"
            f"{at_user_line()}"
        )
    bits = None
    if source.__dlpack_device__()[0] == 1:
        capsule = source if isinstance(source, _Capsule) else _Capsule(source.__dlpack__())
        bits, source = dlpack.plain(capsule.__dlpack__()), capsule
    array = np.from_dlpack(source)
    if not array.flags.writeable:  # the old protocol can't tell and says so always
        window = Window(array)
        array = np.asarray(window)
    return from_data.from_numpy(array if bits is None else array.view(bits.np))


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor that shares its memory where it can.

    Tensors, NumPy arrays, what has `__dlpack__` and buffers share; the bytes of a buffer are read
    as `dtype`. Another dtype or device asks for a copy. Numbers and sequences are always copied.

    copy: True for memory of its own; with False, ValueError where the memory can't be shared.
    requires_grad: None keeps that of `obj`. Where it differs, a leaf is changed itself, as in
        PyTorch, and any other tensor is cut from its history.
    """
    dtype = None if dtype is None else recording.named_dtype(dtype)
    if (shared := _sharing(obj, dtype)) is None:
        if copy is False:
            kind = "a NumPy scalar" if isinstance(obj, np.generic) else "an arbitrary sequence"
            raise (RuntimeError if isinstance(obj, np.generic) else ValueError)(
                f"can't alias {kind} into a tensor: leave copy=False out{at_user_line()}"
            )
        return from_data.tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    t = shared.to(device=device or shared.device, dtype=dtype or shared.dtype)
    if copy is False and t is not shared:
        raise ValueError(
            f"can't alias a tensor of {shared.dtype} on {shared.device} as {t.dtype} on "
            f"{t.device}: leave copy=False out{at_user_line()}"
        )
    if copy and t is shared:
        t = t.clone()
    wanted = shared.requires_grad if requires_grad is None else requires_grad
    if wanted == t.requires_grad:
        return t
    return t.requires_grad_(wanted) if t.is_leaf else t.detach()


def _sharing(obj: Any, dtype: DType | None) -> Tensor | None:
    """A tensor over the memory of `obj`, None if it has none to share."""
    if isinstance(obj, recording.Handle):
        return obj  # type: ignore[return-value]
    if isinstance(obj, np.generic):
        return None
    if isinstance(obj, np.ndarray):
        return from_data.from_numpy(obj)
    if type(obj).__name__ == "PyCapsule" or hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return from_data.frombuffer(obj, dtype=dtype or recording.default_dtype())


def to_dlpack(t: Any, **options: Any) -> Any:
    if is_added(t.dtype.np) and not dlpack.is_known(t.dtype):
        raise BufferError(f"{t.dtype} can't be exchanged by DLPack through NumPy{at_user_line()}")
    if t.requires_grad:
        raise BufferError(
            f"Can't export tensors that require gradient, use tensor.detach(){at_user_line()}"
        )
    options.pop("stream", None)
    if dlpack.is_known(t.dtype):
        return dlpack.capsule_of(export(t), t.dtype, **options)
    return t.numpy().__dlpack__(**options)
