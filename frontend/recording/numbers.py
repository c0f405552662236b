"""Python numbers among tensors: their nodes, their dtypes, and the dtype of new tensors."""

from __future__ import annotations

import functools
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from . import epoch


def key_of(value: Any) -> Any:
    """What stands for a number in keys, which compare by equality: the number itself; for zeros its
    text, as 0.0 == -0.0; None for NaN, which equals nothing, and for complex numbers with such
    parts."""
    if isinstance(value, complex):
        return value if value.real and value.imag and value == value else None
    if not isinstance(value, float) or value:
        return value if value == value else None
    return repr(value)


def number(
    site: Any, value: Any, dtype: dtypes.DType, patience: int = 3, device: str | None = None
) -> Node:
    """The node of a Python number at `site`. It is a constant; after `patience` different values it
    becomes an input of the run, so that a changing learning rate doesn't compile anew. A complex
    number stays one: kernels compute with its parts."""
    bound = not dtype.is_complex and varies(site, value, patience)
    if bound and not epoch.clock.looking:  # a graph has no such inputs
        return epoch.scalar(value, dtype, device)
    return ops.constant(value, dtype, device)


@functools.lru_cache(4096, typed=True)
def known_constant(token: Any, value: Any, dtype: dtypes.DType) -> Node:
    """A number as a constant, for calls that are computed at once: no graph has too many numbers.
    token: its `key_of`, as numbers that are equal may be different constants."""
    return ops.constant(value, dtype)


def varies(site: Any, value: Any, patience: int = 3) -> bool:
    """Whether `value` is one of too many different numbers at `site` to be a constant there."""
    seen = epoch.sites.setdefault(site, set())
    if len(seen) >= patience and value not in seen and type(value) is not bool:
        return True
    seen.add(value)
    return False


def scalar_dtype(
    dtype: dtypes.DType, value: Any, default: dtypes.DType | None = None
) -> dtypes.DType:
    """The dtype of a Python number beside a tensor of `dtype`. A number can only raise the
    category."""
    if value.__class__ is complex and not dtype.is_complex:
        if dtype.is_floating_point:
            return dtype.to_complex()
        return (default or default_dtype()).to_complex()
    own = dtypes.of_scalar(value, default or default_dtype())
    return (
        dtype
        if own.category <= max(dtype.category, dtypes.BOOL)
        or (own.category == dtypes.SIGNED and dtype.category == dtypes.UNSIGNED)
        else own
    )


_default_dtype = dtypes.float32


def default_dtype() -> dtypes.DType:
    return _default_dtype


_PYTHON = {
    complex: dtypes.complex128, float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool_,
}  # fmt: skip


def named_dtype(dtype: Any, default: dtypes.DType | None = None) -> dtypes.DType:
    """The dtype of an argument: a dtype, or a Python number type such as `float`. None stands for
    `default`, or for the dtype of new tensors."""
    if dtype.__class__ is dtypes.DType:
        return dtype
    if dtype is None:
        return default or _default_dtype
    found = _PYTHON.get(dtype) if isinstance(dtype, type) else None
    if found is None:
        kind = dtype.__name__ if isinstance(dtype, type) else repr(dtype)
        raise TypeError(
            f"argument 'dtype' must be a dtype such as torch.float32, not {kind}{at_user_line()}"
        )
    return found


def set_default_dtype(dtype: dtypes.DType) -> None:
    global _default_dtype
    if dtype.__class__ is not dtypes.DType or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    _default_dtype = dtype
    for table in epoch.tables.values():  # builders ask for the default dtype
        table.clear()
    epoch.recipes.clear()
    epoch.families.clear()
    epoch.known.clear()
    epoch.met.clear()
