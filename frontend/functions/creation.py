"""Tensors of a shape, filled with one value: zeros, ones, those like another tensor."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented
from tilewright.ir.shape import check_storage

from .. import devices as device_module
from .. import recording
from ..layouts import strided
from ..recording import Handle, at_once, compounds
from .arguments import into, need_tensor, shape_of, sizes
from .fitting import fitting
from .from_data import finished, upload
from .spellings import by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike, Number


def written(out: Tensor | None, dtype: DType | None) -> DType | None:
    """The dtype of a result that is written to `out`."""
    return out.dtype if dtype is None and out is not None else dtype


def _full(value: Node, shape: tuple[int, ...]) -> Node:
    return ops.expand(value, shape)


def filled(
    shape: Any,
    value: Number | Tensor,
    dtype: DType | None,
    device: DeviceLike | None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    site: Any = None,
) -> Tensor:
    """site: the caller, if the value may change from call to call."""
    if value.__class__ is int and site is None:  # zeros and ones
        made = at_once.filled(tuple(map(int, shape)), value, dtype, device_module.resolve(device))
        if made is not None:
            return finished(made, requires_grad, pin_memory)
    t = recording.wrap(_filled(shape, value, dtype, device, site))
    return finished(t, requires_grad, pin_memory)


def _filled(shape: Any, value: Any, dtype: DType | None, device: Any, site: Any = None) -> Node:
    target = tuple(map(int, shape))
    if value.__class__ is int and dtype.__class__ is DType and site is None:  # zeros and ones
        key = (_filled, target, value, dtype, device_module.resolve(device))
        found = recording.lookup(key)
        if found is None:
            found = recording.remember(key, _filled_anew(target, value, dtype, device))
        return found
    return _filled_anew(target, value, dtype, device, site)


def _filled_anew(
    target: tuple[int, ...], value: Any, dtype: DType | None, device: Any, site: Any = None
) -> Node:
    if target and min(target) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension: {list(target)}{at_user_line()}"
        )
    if dtype is None:
        dtype = dtypes.of_scalar(value, recording.default_dtype())
    dtype = recording.named_dtype(dtype)
    value = fitting(value, dtype)
    check_storage(target, dtype.itemsize)
    where = device_module.resolve(device)
    number = (
        ops.constant(value, dtype, where)
        if site is None
        else (recording.number((site, target, type(value)), value, dtype, 8, where))
    )
    return ops.expand(number, target)


def full(
    size: int | Sequence[int],
    fill_value: Number | Tensor,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of shape `size` filled with one value."""
    if isinstance(fill_value, Handle):
        fill_value = fill_value.item()
    return into(
        out,
        filled(
            shape_of("full", size),
            fill_value,
            written(out, dtype),
            device,
            requires_grad,
            pin_memory,
            full,
        ),
    )


def zeros(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Zeros of shape `size`; without elements in a sparse layout."""
    if layout not in (None, strided):
        dtype = recording.named_dtype(dtype)
        return compounds.sparse().empty(
            layout, sizes(args, size, "zeros"), dtype, device, requires_grad
        )
    dtype = recording.named_dtype(written(out, dtype))
    made = filled(sizes(args, size, "zeros"), 0, dtype, device)
    return finished(into(out, made, cast=dtype is None), requires_grad, pin_memory)


def ones(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Ones of shape `size`."""
    dtype = recording.named_dtype(written(out, dtype))
    made = filled(sizes(args, size, "ones"), 1, dtype, device)
    return finished(into(out, made, cast=dtype is None), requires_grad, pin_memory)


def empty(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose contents don't matter.

    They read as zeros, so that runs are reproducible. Only a kernel of the user's gets memory that
    nothing was written to. In a sparse layout it has no elements.
    """
    if layout not in (None, strided):
        dtype = recording.named_dtype(dtype)
        return compounds.sparse().empty(
            layout, sizes(args, size, "empty"), dtype, device, requires_grad
        )
    node = _filled(
        sizes(args, size, "empty"), 0, recording.named_dtype(written(out, dtype)), device
    )
    t = recording.wrap(ops.empty(node))
    return finished(into(out, t, cast=dtype is None), requires_grad, pin_memory)


def _like(name: str, value: Any) -> Any:
    def build(
        input: Any,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        pin_memory: bool = False,
    ) -> Any:
        """A tensor of the shape, dtype and device of `input` (unless others are named)."""
        need_tensor(name, input)
        if compounds.is_compound(input) and layout is not strided:
            return compounds.apply(filled, (input, value, dtype, requires_grad))
        return filled(
            input.shape,
            value,
            recording.named_dtype(dtype, input.dtype),
            device or input.device,
            requires_grad,
            pin_memory,
        )

    return by_numpys_names(build)


zeros_like, ones_like = _like("zeros_like", 0), _like("ones_like", 1)


@by_numpys_names
def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """`empty` of the shape, dtype and device of `input` (unless others are named)."""
    need_tensor("empty_like", input)
    if compounds.is_compound(input):
        return zeros_like(input, dtype=dtype, requires_grad=requires_grad)
    return empty(
        tuple(input.shape),
        dtype=recording.named_dtype(dtype, input.dtype),
        device=device or input.device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )


@by_numpys_names
def full_like(
    input: Tensor,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    need_tensor("full_like", input)
    if isinstance(fill_value, Handle):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    if compounds.is_compound(input):
        return compounds.apply(full, (input, fill_value, dtype, requires_grad))
    return filled(
        input.shape,
        fill_value,
        recording.named_dtype(dtype, input.dtype),
        device or input.device,
        requires_grad,
        pin_memory,
        full,
    )


def count_of(name: str, what: str, given: Any) -> int:
    count = operator.index(given)
    if count < 0:
        raise RuntimeError(f"{name}: {what} must be non-negative, got {count}{at_user_line()}")
    return count


def computed(name: str, dtype: DType) -> DType:
    """`dtype`, unless it is complex32, which PyTorch computes no values in."""
    if dtype is dtypes.complex32:
        raise not_implemented(name, dtype)
    return dtype


def eye_of(rows: int, columns: int, dtype: DType) -> Node:
    """The values of `eye` as a graph, for recordings that are generic in sizes."""
    place = ops.reshape(ops.iota(rows), (rows, 1)), ops.reshape(ops.iota(columns), (1, columns))
    shape = (rows, columns)
    return ops.cast(ops.eq(*(ops.expand(p, shape) for p in place)), dtype)


def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The identity matrix of n rows and m columns."""
    dtype = computed("eye", recording.named_dtype(written(out, dtype)))
    n, m = count_of("eye", "n", n), None if m is None else count_of("eye", "m", m)
    if recording.stand_in(eye_of):
        t = recording.wrap(eye_of(n, n if m is None else m, dtype))
    else:
        t = upload(np.eye(n, m, dtype=dtype.np), dtype, device_module.resolve(device))
    return finished(into(out, t, cast=dtype is None), requires_grad, pin_memory)
