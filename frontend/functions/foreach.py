"""torch._foreach_x: an op on each tensor of a list.

Optimizers outside of torch call these. They need no kernel of their own here: the calls meet in one
graph, whose independent kernels share launches anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..recording import Handle, epoch

PREFIX = "_foreach_"
_UNARY = """abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10
log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero max norm"""
_BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min lerp mm copy"
_TERNARY = "addcmul addcdiv"
_NAMES = frozenset(f"{_UNARY} {_BINARY} {_TERNARY}".split())
_OPERANDS = ("other", "scalar", "scalars", "exponent", "ord", "src")
"""PyTorch's names of an operand, of which a call has one."""
# Methods that take a tensor where the list's op takes a number, too.
_BY_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}


def named(name: str) -> Callable[..., Any]:
    """The function `torch.{name}`; AttributeError if there is no such op."""
    op = name.removeprefix(PREFIX)
    writes, op = op.endswith("_"), op.removesuffix("_")
    if op not in _NAMES:
        raise AttributeError(f"torch has no {name!r}, or it is not implemented yet")
    ternary = op in _TERNARY.split()
    method, by_number = _method(op, writes), _method(_BY_NUMBER.get(op, op), writes)

    def each(self: Any, *args: Any, **options: Any) -> Any:
        tensors = list(self)
        args = (*args, *[options.pop(key) for key in _OPERANDS if key in options])
        columns = [_column(arg, len(tensors)) for arg in args]
        named = {key: _column(arg, len(tensors)) for key, arg in options.items()}
        results = []
        for i, tensor in enumerate(tensors):
            given = [column[i] for column in columns]
            chosen = {key: column[i] for key, column in named.items()}
            if ternary and len(given) == 3:  # the factor is an option of the method
                chosen["value"] = given.pop()
            plain = len(given) == 1 and not isinstance(given[0], Handle)
            results.append((by_number if plain else method)(tensor, *given, **chosen))
        return tensors if writes else tuple(results)

    each.__name__ = each.__qualname__ = name
    return each


def _method(op: str, writes: bool) -> Callable[..., Any]:
    """The method of tensors, which overwrites its tensor if it `writes`."""
    kind: Any = epoch.tensor_type
    if not writes:
        return getattr(kind, op)  # type: ignore[no-any-return]
    own = getattr(kind, f"{op}_", None)
    return own or (lambda t, *args, **named: t.copy_(getattr(kind, op)(t, *args, **named)))


def _column(given: Any, count: int) -> Any:
    """The argument of each tensor: a list has one for each, a 1-d tensor too."""
    if isinstance(given, Handle):
        rows: Any = given
        return rows.tolist() if rows.dim() == 1 and rows.numel() == count else [given] * count
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise RuntimeError(
            f"Tensor lists must have the same number of tensors, got {count} and {len(given)}"
        )
    return given
