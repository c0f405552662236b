"""Views and rearrangements. What PyTorch returns as a view shares memory here too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import bool_, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast, contiguous_strides, infer_reshape, normalize_axis

from .. import recording
from ..recording import Handle, cached_view, direct, named_dtype, record, resolving, view, views
from ..recording.builders import builder, takes_sizes
from ..recording.epoch import clock
from . import parts
from .arguments import listed, need_tensor, sizes
from .call import public
from .spellings import by_numpys_names, named_tensor

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import Number


def layout_of(t: Handle) -> views.Layout:
    """(shape, strides, offset) of `t` in its storage, in elements."""
    if t._chain is None:
        shape = tuple(t.shape)
        return shape, contiguous_strides(shape), 0
    found = t._chain.layout
    assert found is not None, "views are made only where strides exist"
    return found


def _viewable(t: Handle, shape: tuple[int, ...]) -> bool:
    if t._chain is None:
        return True
    layout = layout_of(t)
    return views.RESHAPE.layout(layout, shape) is not None


_reshape = builder("reshape")(ops.reshape)
takes_sizes.add(_reshape)


def become(t: Any, seen: Any) -> Any:
    """Make `t` the view `seen` of itself (`unsqueeze_` and its like)."""
    if t.requires_grad and t.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
            f"{at_user_line()}"
        )
    t._storage, t._chain, t._node, t._aval = seen._storage, seen._chain, seen._node, seen._typed()
    t._root, t._leaf, t._writes = seen._root, seen._leaf, seen._writes
    if t._node is not None:
        t._storage._views.append(t)
    return t


def becoming(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of a method that returns a view: the tensor becomes that view of itself."""

    def change(self: Any, *args: Any, **options: Any) -> Any:
        return become(self, method(self, *args, **options))

    change.__name__ = change.__qualname__ = f"{name}_"
    return change


@public("reshape")
@cached_view
@by_numpys_names
def reshape(
    input: Tensor, *args: int | Sequence[int], shape: int | Sequence[int] | None = None
) -> Tensor:
    """The elements in another shape: a view where strides allow it, else a copy."""
    target = infer_reshape(input.shape, sizes(args, shape, "reshape", "shape"))
    if _viewable(input, target):
        return view(input, views.VIEW, tuple(target))
    made: Any = direct.reshaped(input, target) if clock.volatile else None
    return record(_reshape, input, tuple(target)) if made is None else made


@public("view", function=False)
@cached_view
@by_numpys_names
def view_(
    input: Tensor,
    *args: int | Sequence[int],
    size: int | Sequence[int] | None = None,
    dtype: DType | None = None,
) -> Tensor:
    """A view in another shape; given a dtype, the same bits as elements of it."""
    from tilewright.ir.dtype import DType

    if len(args) == 1 and isinstance(args[0], (DType, type)):
        dtype = named_dtype(args[0])
    if dtype is not None:
        return _retyped(input, named_dtype(dtype))
    target = infer_reshape(input.shape, sizes(args, size, "view"))
    if not _viewable(input, target):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) "
            f"instead{at_user_line()}"
        )
    return view(input, views.VIEW, tuple(target))


def _retyped(input: Tensor, dtype: DType) -> Any:
    """The bits of `input` as another dtype: complex numbers as their parts, and the reverse."""
    own = input.dtype
    if own.is_complex and dtype is own.to_real():
        return flatten(view(input, views.VIEW_AS_REAL), -2, -1)
    if dtype.is_complex and own is dtype.to_real():
        if not input.dim() or input.shape[-1] % 2:
            raise RuntimeError(
                f"self.size(-1) must be divisible by 2 to view {own} as {dtype} (different "
                f"element sizes), but got {input.shape[-1] if input.dim() else 1}{at_user_line()}"
            )
        pairs = view_(input, *input.shape[:-1], input.shape[-1] // 2, 2)
        if views.VIEW_AS_COMPLEX.layout(layout_of(pairs)) is None:
            raise RuntimeError(
                f"self.stride(-1) must be 1 to view {own} as {dtype} (different element sizes), "
                f"and other strides and the storage_offset even{at_user_line()}"
            )
        return view(pairs, views.VIEW_AS_COMPLEX)
    if own.is_complex or dtype.is_complex:  # by the parts
        if not input.dim() and dtype.itemsize == own.itemsize:
            return view_(_retyped(view_(input, 1), dtype), ())
        parts = own if own.is_complex else dtype
        return _retyped(_retyped(input, parts.to_real()), dtype)
    if dtype is own:
        return input
    _check_elements(input, dtype)
    return view(input, views.VIEW_AS_BITS, dtype, own)


def _check_elements(input: Tensor, dtype: DType) -> None:
    """RuntimeError unless the bytes of `input` can be elements of `dtype`, also those of strides
    and of the offset."""
    old, new = input.dtype.itemsize, dtype.itemsize
    if old == new:
        return
    told = f"to view {input.dtype} as {dtype} (different element sizes)"
    if not input.shape:
        raise RuntimeError(f"self.dim() cannot be 0 {told}{at_user_line()}")
    _, strides, offset = layout_of(input)
    if strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {told}, got {strides[-1]}{at_user_line()}")
    named = {"size(-1)": input.shape[-1], "storage_offset()": offset}
    named.update((f"stride({i})", each) for i, each in enumerate(strides[:-1]))
    for name, each in named.items():
        if each * old % new:
            raise RuntimeError(
                f"self.{name} must be divisible by {new // old} {told}, but got {each}"
                f"{at_user_line()}"
            )


@by_numpys_names
def alias(input: Tensor) -> Any:
    """Another tensor of the same memory."""
    return view(input, views.ALIAS, tuple(input.shape))


@public("view_as", function=False)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    need_tensor("view_as", other, "other")
    return view_(input, other.shape)


@public("reshape_as", function=False)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    need_tensor("reshape_as", other, "other")
    return reshape(input, other.shape)


@public("flatten")
@cached_view
@by_numpys_names
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim … end_dim as one. A single dimension gives the tensor itself."""
    rank = input.dim()
    if rank == 0:
        return reshape(input, 1)
    a, b = normalize_axis(start_dim, rank), normalize_axis(end_dim, rank)
    if a > b:
        raise RuntimeError(
            f"flatten() has invalid args: start_dim cannot come after end_dim{at_user_line()}"
        )
    if a == b:
        return input
    shape = tuple(input.shape)
    return reshape(input, (*shape[:a], math.prod(shape[a : b + 1]), *shape[b + 1 :]))


@public("ravel")
def ravel(input: Tensor) -> Tensor:
    """All elements as a vector: a view of contiguous memory, else a copy."""
    return view_(contiguous(input), -1)


@public("unflatten")
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into `sizes`."""
    axis = normalize_axis(dim, input.dim())
    inner = infer_reshape((input.shape[axis],), sizes)
    return reshape(input, (*input.shape[:axis], *inner, *input.shape[axis + 1 :]))


@public("permute")
@cached_view
@by_numpys_names
def permute(
    input: Tensor, *args: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """Dimension i of the result is dimension dims[i] of the input."""
    order = sizes(args, dims, "permute", "dims")
    rank = input.dim()
    if len(order) != rank:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal "
            f"to len(dims) = {len(order)}{at_user_line()}"
        )
    normal = tuple(normalize_axis(d, rank) for d in order)
    if len(set(normal)) != rank:
        raise RuntimeError(f"permute(): duplicate dims are not allowed{at_user_line()}")
    return view(input, views.PERMUTE, normal)


@public("transpose", in_place=becoming, aliases=("swapdims",))
@cached_view
@by_numpys_names
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped."""
    rank = input.dim()
    a, b = normalize_axis(dim0, rank), normalize_axis(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = order[b], order[a]
    return view(input, views.TRANSPOSE, tuple(order))


@public("t", in_place=becoming)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars are unchanged."""
    if input.dim() > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.dim()}D{at_user_line()}"
        )
    return view(input, views.T, tuple(range(input.dim() - 1, -1, -1)))


@public("movedim", aliases=("moveaxis",))
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions `source` at the places `destination`, the others in their order."""
    rank = input.dim()
    moves = []
    for name, dims in (("source", source), ("destination", destination)):
        axes = [normalize_axis(a, rank) for a in listed(dims)]
        if len(set(axes)) != len(axes):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({dims}){at_user_line()}")
        moves.append(axes)
    src, dst = moves
    if len(src) != len(dst):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({src} dims) should contain the "
            f"same number of dims as destination ({dst} dims){at_user_line()}"
        )
    if not rank:
        return alias(input)
    order = [-1] * rank
    for a, b in zip(src, dst, strict=True):
        order[b] = a
    rest = iter(a for a in range(rank) if a not in src)
    return permute(input, [next(rest) if a < 0 else a for a in order])


@public("squeeze", in_place=becoming)
@cached_view
@by_numpys_names
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 dropped: all of them, or those in `dim`."""
    rank = input.dim()
    if dim is None:
        drop, kind = set(range(rank)), views.SQUEEZE
    else:
        drop = {normalize_axis(d, rank) for d in listed(dim)}
        kind = views.SQUEEZE_SOME if isinstance(dim, (tuple, list)) else views.SQUEEZE_ONE
    gone = tuple(i for i, s in enumerate(input.shape) if i in drop and s == 1)
    kept = tuple(s for i, s in enumerate(input.shape) if i not in gone)
    return view(input, kind, kept, gone)


@public("unsqueeze", in_place=becoming)
@cached_view
@by_numpys_names
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 put in at `dim`."""
    axis = normalize_axis(dim, input.dim() + 1)
    return view(input, views.UNSQUEEZE, (*input.shape[:axis], 1, *input.shape[axis:]), (axis,))


@public("expand", function=False)
@cached_view
@by_numpys_names
def expand(
    input: Tensor, *args: int | Sequence[int], size: int | Sequence[int] | None = None
) -> Tensor:
    """A view in which dimensions of size 1 repeat; -1 keeps a size."""
    target = list(sizes(args, size, "expand"))
    lead = len(target) - input.dim()
    for i, size in enumerate(target):
        if size == -1:
            if i < lead:
                raise RuntimeError(
                    f"The expanded size of the tensor (-1) isn't allowed in a leading, "
                    f"non-existing dimension {i}{at_user_line()}"
                )
            target[i] = input.shape[i - lead]
    if lead < 0 or any(a not in (1, b) for a, b in zip(input.shape, target[lead:], strict=True)):
        raise RuntimeError(
            f"The expanded size of the tensor {tuple(target)} must match the existing size "
            f"{tuple(input.shape)} at non-singleton dimensions{at_user_line()}"
        )
    return view(input, views.EXPAND, tuple(target))


@public("expand_as", function=False)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    need_tensor("expand_as", other, "other")
    return expand(input, other.shape)


@public("broadcast_to")
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    return expand(input, size)


@public("swapaxes", in_place=becoming)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    return transpose(input, axis0, axis1)


@public("broadcast_tensors", method=False)
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    for i, each in enumerate(tensors, 1):
        need_tensor("broadcast_tensors", each, "tensors", i)
    shape = broadcast(*(x.shape for x in tensors))
    return tuple(x if x.shape == shape else expand(x, shape) for x in tensors)


@public("unfold", function=False)
@cached_view
@by_numpys_names
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` elements, `step` apart, along `dimension`; their contents come last."""
    rank = input.dim()
    axis = normalize_axis(dimension, rank)
    extent = input.shape[axis] if rank else 1
    for name, number, least in (("size", size, 0), ("step", step, 1)):
        if number < least:
            bound = "> 0" if least else ">= 0"
            raise RuntimeError(f"{name} is {number} but must be {bound}{at_user_line()}")
    if size > extent:
        raise RuntimeError(
            f"maximum size for tensor at dimension {axis} is {extent} but size is "
            f"{size}{at_user_line()}"
        )
    if not rank:
        return view(input, views.VIEW, (size,)) if size else reshape(input, 1)[:0]
    return view(input, views.WINDOWS, axis, int(size), int(step))


@public("diagonal")
@cached_view
@by_numpys_names
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the elements [i, i + offset] of dimensions (`dim1`, `dim2`), as the last
    dimension."""
    a, b = normalize_axis(dim1, input.dim()), normalize_axis(dim2, input.dim())
    if a == b:
        raise RuntimeError(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}{at_user_line()}"
        )
    return view(input, views.DIAGONAL, int(offset), a, b)


@public("as_strided", in_place=becoming, in_place_function=True)
@cached_view
@by_numpys_names
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view of the memory behind `input` at any strides, counted in elements."""
    shape, strides = tuple(int(n) for n in size), tuple(int(n) for n in stride)
    offset = input.storage_offset() if storage_offset is None else int(storage_offset)
    if len(shape) != len(strides):
        raise RuntimeError(f"mismatch in length of strides and shape{at_user_line()}")
    if any(n < 0 for n in shape):
        raise RuntimeError(f"as_strided: negative sizes: {list(shape)}{at_user_line()}")
    if any(s < 0 for s in strides):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(strides)}{at_user_line()}"
        )
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}{at_user_line()}")
    whole, start = input, 0 if storage_offset is None else offset - input.storage_offset()
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else -1
    if not whole.is_contiguous():
        whole = _in_order(input)
    if not whole.is_contiguous() or start < 0 or start + last >= whole.numel():
        whole = _whole(input, offset, last)
        start = offset - whole.storage_offset()
    if last >= 0 and start + last >= whole.numel():
        raise RuntimeError(
            f"as_strided: sizes {list(shape)}, strides {list(strides)}, storage offset {offset} "
            f"need a storage of {start + last + 1} elements, and it has {whole.numel()}"
            f"{at_user_line()}"
        )
    return view(whole, views.AS_STRIDED, shape, strides, start)


def _in_order(t: Any) -> Any:
    """`t` with its dimensions in the order of its memory."""
    strides = t.stride()
    return permute(t, sorted(range(t.dim()), key=lambda i: -strides[i]))


def _whole(t: Any, offset: int, last: int) -> Any:
    """All of the memory that `t` looks at, or all that the root of its history does, if that has
    the elements from `offset` to `last` beyond it."""
    chain = t._chain
    if chain is None:
        return t
    if chain.multiple is not None:
        recording.resolve(t)  # an error if it is out of date
    whole = resolving.at_root(t)
    if whole is not None:
        start = offset - whole.storage_offset()
        if whole.is_contiguous() and start >= 0 and start + last < whole.numel():
            return whole
    whole = recording.blank()
    whole._storage, whole._aval = t._storage, (chain.base, *t._typed()[1:])
    if chain.detaches:
        whole = whole.detach()
    if t.requires_grad and not whole.requires_grad:
        raise NotImplementedError(
            "as_strided of a part of memory which alone requires a gradient, beyond that part, is "
            f"not implemented{at_user_line()}"
        )
    return whole


@public("contiguous", function=False)
def contiguous(input: Tensor, memory_format: str | None = None) -> Tensor:
    """The tensor itself if it is contiguous, else a copy that is."""
    return input if input.is_contiguous() else clone(input)


@public("clone")
def clone(input: Tensor, *, memory_format: str | None = None) -> Tensor:
    """A copy, differentiable."""
    return record(_identity, input)


@builder("conj", gradient="ConjBackward0")
def _conjugate(x: Node) -> Node:
    return ops.conj(x)


@builder("clone")
def _identity(x: Node) -> Node:
    return x


def _swapped(name: str, conjugates: bool = True) -> Callable[[Tensor], Tensor]:
    def swap(input: Tensor) -> Tensor:
        """The last two dimensions swapped, of `mH` and `adjoint` with conjugate elements."""
        if conjugates and input.dtype.is_complex:
            input = record(_conjugate, input)
        if not input.dim():
            return input
        if input.dim() == 1:
            raise RuntimeError(
                f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D "
                f"tensor.{at_user_line()}"
            )
        return transpose(input, -2, -1)

    return swap


adjoint = public("adjoint")(_swapped("adjoint()"))
mT, mH = _swapped("mT", conjugates=False), _swapped("mH")


def H(input: Tensor) -> Tensor:
    """The transpose of a matrix, with conjugate elements."""
    if input.dim() not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {input.dim()}-D "
            f"tensor.{at_user_line()}"
        )
    return mH(input)


def _positive(self: Tensor) -> Tensor:
    return positive(self)


@public("positive", operators={"__pos__": _positive})
def positive(input: Any = None, **numpys: Any) -> Tensor:
    """The tensor itself."""
    found = named_tensor("positive", input, numpys)
    if found.dtype is bool_:
        raise RuntimeError(f"The `+` operator, on a bool tensor is not supported.{at_user_line()}")
    return found


@public("sum_to_size", function=False)
def sum_to_size(
    input: Tensor, *args: int | Sequence[int], size: int | Sequence[int] | None = None
) -> Tensor:
    """The sum over the dimensions that broadcasting from `size` would repeat."""
    return record(_sum_to, input, sizes(args, size, "sum_to_size"))


@builder("sum_to_size")
def _sum_to(x: Node, shape: tuple[int, ...]) -> Node:
    if broadcast(x.shape, shape) != x.shape:
        raise RuntimeError(
            f"size {{{list(shape)}}} is not expandable to size {{{list(x.shape)}}}.{at_user_line()}"
        )
    if (x.shape != shape or not shape) and not x.dtype.is_differentiable:
        x = ops.cast(x, int64)
    return ops.sum_to(x, shape)


def fill_diagonal(t: Tensor, value: Number, wrap: bool) -> None:
    """`t.fill_diagonal_(value, wrap)`."""
    rank, shape = t.dim(), t.shape
    if rank < 2:
        raise RuntimeError(f"dimensions must larger than 1{at_user_line()}")
    if rank > 2 and len(set(shape)) > 1:
        raise RuntimeError(f"all dimensions of input must be of equal length{at_user_line()}")
    # Below each square of a tall matrix, one row is left out and the diagonal begins anew.
    starts = range(0, shape[0], shape[1] + 1) if wrap and rank == 2 else (0,)
    for start in starts:
        line = parts.slice_dim(t, 0, start, shape[0])
        while line.dim() > 1:
            line = diagonal(line, 0, 0, line.dim() - 1)
        line.fill_(value)
