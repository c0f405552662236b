"""A user's kernel function, and the arguments and options of its launches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from .stores import stored

_OPTIONS: dict[str, Any] = {"num_warps": 4, "num_stages": 3}
"""Options of a launch beside the kernel's parameters, with Triton's defaults."""
_FIXED: dict[str, Any] = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
"""Options that are accepted with this value only."""


class Kernel:
    """A kernel function. written: the parameters that it writes through."""

    def __init__(self, function: Any):
        self.function = function
        self.name: str = function.__name__
        self.names: tuple[str, ...] = tuple(function.arg_names)
        self.constexprs = frozenset(p.name for p in function.params if p.is_constexpr)
        self.unspecialized = frozenset(p.name for p in function.params if p.do_not_specialize)
        self.written = stored(function)

    def options(self, given: dict[str, Any]) -> tuple[int, ...]:
        """Take the options out of the keyword arguments. ValueError for an unsupported one."""
        for name, only in _FIXED.items():
            if name in given and name not in self.names and given.pop(name) != only:
                raise ValueError(
                    f"{self.name}: {name} is not supported, kernels are launched with "
                    f"{name}={only}{at_user_line()}"
                )
        return tuple(
            operator.index(given.pop(name)) if name in given and name not in self.names else usual
            for name, usual in _OPTIONS.items()
        )

    def bound(self, args: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
        """The value of each parameter, in order."""
        if len(args) + len(given) == len(self.names):
            rest = self.names[len(args) :]
            if given.keys() == {*rest}:
                return {**dict(zip(self.names, args)), **{n: given[n] for n in rest}}
        try:
            bound = self.function.signature.bind(*args, **given)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}{at_user_line()}") from None
        bound.apply_defaults()
        return dict(bound.arguments)


def grid_of(grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
    found = grid(values) if callable(grid) else grid
    sizes = (found,) if isinstance(found, (int, np.integer)) else found
    try:
        counts = [operator.index(size) for size in sizes]
    except TypeError:
        counts = []
    if not 0 < len(counts) < 4 or min(counts) < 0:
        raise ValueError(
            f"a grid is one to three numbers of programs, got {found!r}{at_user_line()}"
        )
    x, y, z, *_ = (*counts, 1, 1)
    return x, y, z
