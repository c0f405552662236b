"""Functions that PyTorch has as formulas over operators of `aten`.

Each is the formula of an inference, with the operators that PyTorch calls where tensors lie in the
usual order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.shape import broadcast, infer_reshape

from .. import devices
from ..overriding import plain
from ..recording import Handle, named_dtype
from . import late, layers, multihead
from .calls import answers, operator

Function = Callable[..., Any]


# ---- products ------------------------------------------------------------------------------------


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if bias is None:
        return matmul(input, weight.t())
    if input.dim() == 2:
        return late.top().addmm(bias, input, weight.t())
    if not input.is_contiguous():
        return matmul(input, weight.t()) + bias
    flat, turned = _rows(input), weight.t()
    return late.top().addmm(bias, flat, turned).view([*input.shape[:-1], weight.shape[0]])


def _rows(input: Any) -> Any:
    """All dimensions but the last as one."""
    return reshape(input, [math.prod(input.shape[:-1]), input.shape[-1]])


_PRODUCTS = {(2, 2): "mm", (2, 1): "mv", (1, 1): "dot"}


def matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    ranks = input.dim(), other.dim()
    if ranks in _PRODUCTS:
        return getattr(late.top(), _PRODUCTS[ranks])(input, other)
    unsafe = late.aten()._unsafe_view.default
    if ranks[1] == 2 and ranks[0] > 2:
        shape = [*input.shape[:-1], other.shape[1]]
        return operator(unsafe, late.top().mm(_rows(input), other), shape)
    if ranks[1] == 1:
        return operator(unsafe, late.top().mv(_rows(input), other), [*input.shape[:-1]])
    if ranks[0] == 1:
        return matmul(late.top().unsqueeze(input, 0), other).squeeze_(-2)
    batch = broadcast(input.shape[:-2], other.shape[:-2])
    pair = [
        reshape(t.expand([*batch, *t.shape[-2:]]), [math.prod(batch), *t.shape[-2:]])
        for t in (input, other)
    ]
    shape = [*batch, input.shape[-2], other.shape[-1]]
    return operator(unsafe, late.top().bmm(*pair), shape)


# ---- shapes and parts ----------------------------------------------------------------------------


def reshape(input: Any, *size: Any, shape: Any = None) -> Any:
    wanted = size if shape is None else shape
    wanted = wanted[0] if len(wanted) == 1 and isinstance(wanted[0], Sequence) else wanted
    found = list(infer_reshape(input.shape, tuple(wanted)))
    if answers(input) or _shows(input, found):
        return input.view(found)
    copied = operator(late.aten().clone.default, input, memory_format=late.top().contiguous_format)
    return operator(late.aten()._unsafe_view.default, copied, found)


def _shows(input: Any, shape: Sequence[int]) -> bool:
    """Whether a tensor's memory can be seen in a shape."""
    try:
        plain(late.top().Tensor.view)(input, shape)
    except RuntimeError:
        return False
    return True


def contiguous(input: Any, memory_format: Any = None) -> Any:
    form = late.top().contiguous_format if memory_format is None else memory_format
    if input.is_contiguous(memory_format=form):
        return input
    return operator(late.aten().clone.default, input, memory_format=form)


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = start_dim % input.dim(), end_dim % input.dim()
    size = math.prod(input.shape[first : last + 1])
    return input.view([*input.shape[:first], size, *input.shape[last + 1 :]])


def movedim(input: Any, source: Any, destination: Any) -> Any:
    rank = input.dim()
    pairs = [[d] if isinstance(d, int) else d for d in (source, destination)]
    taken, places = ([d % rank for d in dims] for dims in pairs)
    rest = iter(d for d in range(rank) if d not in taken)
    moved = dict(zip(places, taken, strict=True))
    return input.permute([moved[i] if i in moved else next(rest) for i in range(rank)])


def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    size = -(-input.shape[dim] // chunks)
    return late.top().split(input, size, dim) if dim else late.top().split(input, size)


def getitem(t: Any, key: Any) -> Any:
    t, indices = _part(t, key)
    return operator(late.aten().index.Tensor, t, indices) if indices else t


def setitem(t: Any, key: Any, value: Any) -> None:
    if not isinstance(value, Handle):
        value = new_tensor(value, dtype=t.dtype, device=t.device)
    part, indices = _part(t, key)
    if indices:
        operator(late.aten().index_put_.default, part, indices, value)
    elif value.dim() == 0 and part.dim():
        operator(late.aten().fill_.Tensor, part, value)
    else:
        same = value.shape == part.shape
        operator(late.aten().copy_.default, part, value if same else value.expand(list(part.shape)))


def _part(t: Any, key: Any) -> tuple[Any, list[Any]]:
    """What an index without its tensors shows, and those, with None where it has none."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    axis, indices = 0, list[Any]()
    for i, part in enumerate(parts):
        if part is Ellipsis:
            axis = t.dim() - sum(each is not None for each in parts[i + 1 :])
        elif part is None:
            t, axis = late.top().unsqueeze(t, axis), axis + 1
        elif isinstance(part, slice):
            t, axis = _sliced(t, axis, part), axis + 1
        elif isinstance(part, Handle):
            indices += [*[None] * (axis - len(indices)), part]
            axis += 1
        else:
            t = late.top().select(t, axis, part)
    return t, indices


def _sliced(t: Any, axis: int, part: slice) -> Any:
    if part == slice(None):
        return t
    stop = 2**63 - 1 if part.stop is None else part.stop
    step = [] if part.step in (None, 1) else [part.step]
    return operator(late.aten().slice.Tensor, t, axis, part.start or 0, stop, *step)


# ---- conversions ---------------------------------------------------------------------------------


def to(input: Any, *args: Any, copy: bool = False, **options: Any) -> Any:
    for each in args:
        if isinstance(each, Handle):
            options |= {"dtype": each.dtype, "device": each.device}  # type: ignore[attr-defined]
        elif isinstance(each, (DType, type)):
            options["dtype"] = named_dtype(each)
        elif not isinstance(each, bool) and each is not None:
            options["device"] = devices.device(each)
    wanted = {n: options[n] for n in ("dtype", "device") if options.get(n) is not None}
    if not copy and all(getattr(input, name) == value for name, value in wanted.items()):
        return input
    return operator(late.aten()._to_copy.default, input, **wanted)


def _converting(dtype: DType) -> Function:
    return lambda input, memory_format=None: to(input, dtype)


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    power = [] if p in (None, "fro", 2) and dim is None else [2 if p in (None, "fro") else p]
    return late.top().linalg.vector_norm(input, *power, *([] if dim is None else [dim, keepdim]))


def new_tensor(*args: Any, **options: Any) -> Any:
    made = plain(late.top().tensor)(*args, **options)
    return operator(late.aten().lift_fresh.default, made)


@functools.cache
def known() -> dict[Function, Function]:
    """The formulas, by the functions and methods that they stand for."""
    top = late.top()
    functional = late.functional()
    tensor = top.Tensor
    found: dict[Function, Function] = {
        functional.linear: linear,
        tensor.__matmul__: matmul,
        tensor.__getitem__: getitem,
        tensor.__setitem__: setitem,
        tensor.contiguous: contiguous,
        top.tensor: new_tensor,
        tensor.__rsub__: top.rsub,
        tensor.__rtruediv__: lambda x, other: top.reciprocal(x) * other,
        tensor.to: to,
    }
    shared = (matmul, reshape, flatten, movedim, chunk, norm)
    named = {each.__name__: each for each in shared}
    named["moveaxis"] = movedim
    named |= {"softmax": layers.soft("_softmax"), "log_softmax": layers.soft("_log_softmax")}
    for name, formula in named.items():
        for home in (top, tensor, functional):
            if hasattr(home, name):
                found[getattr(home, name)] = formula
    found[functional.multi_head_attention_forward] = multihead.attention
    for name, formula in layers.known().items():
        found[getattr(functional, name)] = formula
    for name in "float double half bfloat16 int long short byte bool".split():
        found[getattr(tensor, name)] = _converting(
            getattr(top, name if name != "byte" else "uint8")
        )
    return found
