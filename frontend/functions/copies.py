"""Views as copies: `transpose_copy(x, 0, 1)` is `transpose(x, 0, 1).clone()`.

PyTorch has such a function for each of its views, for programs that must not share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from . import parts, shapes
from .arguments import into
from .call import public
from .spellings import by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor


def _copying(view: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose results are copies of what `view` shows."""

    def copy(*args: Any, out: Any = None, **options: Any) -> Any:
        seen = view(*args, **options)
        if isinstance(seen, tuple):
            return into(out, tuple([shapes.clone(each) for each in seen]), cast=False)
        return into(out, shapes.clone(seen), cast=False)

    copy.__doc__ = f"A copy of what `{view.__name__}` shows."
    return copy


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Every `step`-th element of `dim` from `start` to before `end`."""
    axis = dim % input.dim()
    return input[(slice(None),) * axis + (slice(start, end, step),)]


def _detached(input: Tensor) -> Any:
    return input.detach()


@by_numpys_names
def _viewed(input: Tensor, size: Any = None, *, dtype: Any = None) -> Any:
    return shapes.view_(input, dtype if size is None else size)


for _name, _view in {
    "alias": shapes.alias,
    "as_strided": shapes.as_strided,
    "detach": _detached,
    "diagonal": shapes.diagonal,
    "expand": shapes.expand,
    "permute": shapes.permute,
    "select": parts.select,
    "slice": _slice,
    "split": parts.split,
    "split_with_sizes": parts.split_with_sizes,
    "squeeze": shapes.squeeze,
    "t": shapes.t,
    "transpose": shapes.transpose,
    "unbind": parts.unbind,
    "unfold": shapes.unfold,
    "unsqueeze": shapes.unsqueeze,
    "view": _viewed,
}.items():
    public(f"{_name}_copy", method=False)(_copying(_view))


@public("narrow_copy")
def narrow_copy(
    input: Tensor, dim: int, start: int, length: int, *, out: Tensor | None = None
) -> Tensor:
    """A copy of `length` elements of dimension `dim` from `start` on."""
    if dim >= input.dim():  # below 0 it is an IndexError
        raise RuntimeError(
            f"narrow_copy: expected a dimension below {input.dim()}, got {dim}{at_user_line()}"
        )
    return into(out, shapes.clone(parts.narrow(input, dim, start, length)))


@public("as_strided_scatter")
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """A copy of `input` with `src` at the elements that `as_strided` shows."""
    copy = shapes.clone(input)
    shapes.as_strided(copy, size, stride, storage_offset or 0).copy_(src)
    return copy
