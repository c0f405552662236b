"""torch.func.rearrange: axes by names, as in einops: "b c (h p) w -> b (h w) (c p)"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ..functions.joining import stack

if TYPE_CHECKING:
    from .._tensor import Tensor

_TOKEN = re.compile(r"\s*(\.\.\.|\(|\)|[A-Za-z_]\w*|1)")
Groups = list[list[str]]
_REST = ["..."]
"""All axes without a name, where they stand in no brackets."""


def _error(pattern: str, text: str) -> ValueError:
    return ValueError(f"rearrange: {pattern!r}: {text}{at_user_line()}")


def _parsed(side: str, pattern: str) -> Groups:
    """The axes of a side; each is the names that it is composed of."""
    groups: Groups = []
    inside, at = False, 0
    side = side.rstrip()
    while at < len(side):
        found = _TOKEN.match(side, at)
        if found is None:
            raise _error(pattern, f"expected names of axes, got {side[at:]!r}")
        at, token = found.end(), found[1]
        if token == "(":
            if inside:
                raise _error(pattern, "brackets don't nest")
            inside = True
            groups.append([])
        elif token == ")":
            if not inside:
                raise _error(pattern, "a bracket is closed that isn't open")
            inside = False
        elif inside:
            groups[-1] += [] if token == "1" else [token]
        else:
            groups.append(_REST if token == "..." else [] if token == "1" else [token])
    if inside:
        raise _error(pattern, "a bracket isn't closed")
    return groups


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """A tensor with its axes split, moved and joined as "before -> after" says.

    A name is an axis, names in brackets are parts of one, 1 is an axis of size 1, and ... is all
    axes that have no name. axes_lengths: the sizes of parts, of which all but one are needed. A
    sequence of tensors is stacked along a new first axis.
    """
    x: Any = stack(list(tensor)) if isinstance(tensor, (list, tuple)) else tensor
    sides = pattern.split("->")
    if len(sides) != 2:
        raise _error(pattern, "expected one '->' between the axes before and after")
    before, after = (_parsed(side, pattern) for side in sides)
    before, after = _spread(before, after, x.dim(), pattern)
    names = [name for group in before for name in group]
    result = [name for group in after for name in group]
    if len(set(names)) < len(names) or sorted(names) != sorted(result):
        raise _error(pattern, "both sides must have the same axes, each once")
    unknown = set(axes_lengths) - set(names)
    if unknown:
        raise _error(pattern, f"there is no axis {', '.join(sorted(unknown))}")
    sizes = dict(axes_lengths)
    for group, size in zip(before, x.shape, strict=True):
        known = math.prod(sizes[name] for name in group if name in sizes)
        missing = [name for name in group if name not in sizes]
        if len(missing) > 1:
            raise _error(pattern, f"the sizes of {', '.join(missing[1:])} are needed")
        if missing and size % known == 0:
            sizes[missing[0]] = size // known
        elif missing or known != size:
            raise _error(pattern, f"an axis of size {size} doesn't have parts of {known}")
    parts = x.reshape([sizes[name] for name in names])
    moved = parts.permute([names.index(name) for name in result])
    return moved.reshape([math.prod(sizes[name] for name in group) for group in after])  # type: ignore[no-any-return]


def _spread(before: Groups, after: Groups, rank: int, pattern: str) -> tuple[Groups, Groups]:
    """Both sides with names in the place of ..."""
    rest = rank - len(before) + 1
    if _REST not in before:
        if len(before) != rank:
            raise _error(pattern, f"{len(before)} axes for a tensor of {rank}")
        return before, after
    if rest < 0:
        raise _error(pattern, f"{len(before) - 1} axes for a tensor of {rank}")
    names = [f".{i}" for i in range(rest)]
    at = before.index(_REST)
    before = before[:at] + [[name] for name in names] + before[at + 1 :]
    spread: Groups = []
    for group in after:
        if group is _REST:
            spread += [[name] for name in names]
        else:
            spread.append([n for name in group for n in (names if name == "..." else [name])])
    return before, spread


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The tensor itself: functions under transforms are recorded on plain tensors."""
    return tensor
