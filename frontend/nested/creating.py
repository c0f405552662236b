"""Makes nested tensors: of lists of tensors, of packed rows, of parts of dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line

from .. import layouts
from ..functions import creation, from_data
from ..functions.joining import cat
from ..recording import Handle
from .tensors import Nested, nested, of_lengths, sequences, strided_rows


def _is_strided(layout: Any) -> bool:
    """Whether `layout` is PyTorch's older one, its default."""
    if layout not in (None, layouts.strided, layouts.jagged):
        raise RuntimeError(
            f"Specified layout is unsupported for nested tensors: {layout}{at_user_line()}"
        )
    return layout is not layouts.jagged


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A nested tensor with copies of the tensors (or lists) given: a leaf.

    They differ in the size of one dimension at most, which is the ragged one; the first if they
    don't. layout: torch.strided (the default) or torch.jagged.
    """
    strided = _is_strided(layout)
    parts = [
        t.detach() if isinstance(t, Handle) else from_data.tensor(t, dtype=dtype)
        for t in tensor_list
    ]
    made = _joined(parts, dtype, device, True, strided)
    made = made.pin_memory() if pin_memory else made
    return made.requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of tensors in a list, or of the parts ts[i] of one tensor, differentiable."""
    if isinstance(ts, Nested) and layout in (None, ts.layout):
        return ts.to(device=device, dtype=dtype)
    strided = _is_strided(layout)
    if isinstance(ts, Nested):
        return _joined(list(ts.unbind()), dtype, device, False, strided)
    if isinstance(ts, Handle):
        if ts.dim() < 2:
            raise RuntimeError(
                f"as_nested_tensor: expected a tensor of 2 dimensions or more{at_user_line()}"
            )
        whole: Any = ts.to(device=device, dtype=dtype)
        rows = strided_rows if strided else of_lengths
        return nested(whole.flatten(0, 1), rows([ts.shape[1]] * ts.shape[0], whole))
    if not all(isinstance(t, Handle) for t in ts):
        raise TypeError(
            "as_nested_tensor(): Expected first argument to be a tensor, a list or a tuple of "
            f"tensors{at_user_line()}"
        )
    return _joined(list(ts), dtype, device, False, strided)


def _joined(parts: list[Any], dtype: Any, device: Any, copies: bool, strided: bool) -> Nested:
    if not parts:
        raise RuntimeError(
            f"Cannot construct a nested tensor from an empty tensor list{at_user_line()}"
        )
    ranks = {t.dim() for t in parts}
    if len(ranks) > 1:
        raise RuntimeError(
            "When constructing a nested tensor, all tensors in list must have the same dim"
            + at_user_line()
        )
    if ranks == {0}:
        raise RuntimeError(
            f"Cannot construct a nested tensor from a list of zero-dim tensors{at_user_line()}"
        )
    sizes = [tuple(t.shape) for t in parts]
    ragged = [i for i, each in enumerate(zip(*sizes, strict=True)) if len(set(each)) > 1]
    if len(ragged) > 1:
        raise RuntimeError(
            "When constructing a nested tensor, all tensors in the list may differ in the size of "
            f"one dimension only, got sizes {sizes}{at_user_line()}"
        )
    axis = ragged[0] if ragged else 0
    whole: Any = cat(parts, axis) if len(parts) > 1 or not copies else parts[0].clone()
    whole = whole.to(device=device, dtype=dtype)
    rows = strided_rows if strided else of_lengths
    return nested(whole, rows([s[axis] for s in sizes], whole), axis + 1)


def nested_tensor_from_jagged(
    values: Any,
    offsets: Any = None,
    lengths: Any = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Any:
    """A nested tensor whose rows are those of `values`, a view: sequence i has the rows from
    offsets[i] to offsets[i + 1], or lengths[i] of them.

    Tensors with the same `offsets` (the same object) can be combined. jagged_dim: the ragged
    dimension of the result, 1 by default. min_seqlen, max_seqlen aren't needed.
    """
    if offsets is None and lengths is None:
        raise RuntimeError(
            "nested_tensor_from_jagged(): At least one of offsets or lengths is required."
            + at_user_line()
        )
    ragged = 1 if jagged_dim is None else int(jagged_dim)
    if not 1 <= ragged <= values.dim():
        raise RuntimeError(
            f"nested_tensor_from_jagged(): jagged_dim must lie in 1 ... {values.dim()}, got "
            f"{jagged_dim}{at_user_line()}"
        )
    if offsets is None:
        offsets = cat([lengths.new_zeros(1), lengths.cumsum(0)])
        lengths = None
    elements = values.view_as(values) if values.requires_grad else values
    return nested(elements, sequences(offsets, lengths), ragged)


def narrow(tensor: Any, dim: int, start: Any, length: Any, layout: Any = None) -> Any:
    """From start[i] on length[i] elements of dimension 1 of each tensor[i]: a view with gaps.

    tensor: dense. start, length: numbers, or int64 tensors with one for each.
    """
    if layout is not layouts.jagged:
        raise RuntimeError(f"narrow: expected layout=torch.jagged, got {layout}{at_user_line()}")
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1{at_user_line()}")
    count, size = tensor.shape[0], tensor.shape[1]
    first, many = (
        x.to(dtype=int64) if isinstance(x, Handle) else creation.full((count,), int(x), dtype=int64)
        for x in (start, length)
    )
    begins = from_data.beside(np.arange(count, dtype=np.int64) * size, tensor) + first
    offsets = cat([begins, begins[-1:] + many[-1:]])
    return nested(tensor.flatten(0, 1), sequences(offsets, many))


def masked_select(tensor: Any, mask: Any) -> Any:
    """The elements of each tensor[i] where the mask holds, as a sequence."""
    if tensor.dim() != 2:
        raise NotImplementedError(
            f"masked_select: expected a tensor of 2 dimensions, got {tensor.dim()}{at_user_line()}"
        )
    whole = mask.expand(tuple(tensor.shape))
    lengths = np.asarray(whole._array()).sum(1)
    return nested(tensor.masked_select(whole), of_lengths(lengths, tensor))


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Any:
    """`Tensor.to_padded_tensor`."""
    if not isinstance(input, Nested):
        _need_nested("to_padded_tensor", input)
    return input.to_padded_tensor(padding, output_size)


def _need_nested(name: str, t: Any) -> NoReturn:
    raise RuntimeError(f"{name}: expected a nested tensor, got one of {t.layout}{at_user_line()}")
