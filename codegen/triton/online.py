"""Sums relative to a number that the same pass over a row gives, so that long rows are read once.

For exponentials, each place of a tile has the largest element it has met, and the sum relative to
it. When a larger element comes, the sum is scaled; one of the two exponentials is always of 0.
For squares, each place has the mean of the elements it has met, and the sum of squared distances
from it. At the end all places are brought to the row's own shift.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel import Reduce, analysis
from .folds import Rows
from .scope import Guards, Ref, Scope
from .text import tl_type
from .values import evaluate, relevant

_ROWS = Rows("p", "r")
_SHAPE = "(BLOCK_P, BLOCK_R)"


def online(
    root: Scope,
    scope: Scope,
    value: Reduce,
    guards: Guards,
    tops: Mapping[tuple[int, Guards], str],
) -> Exponentials | Squares:
    """A sum that is being made: its value at each place is written to the step of a loop.

    tops: the variables of the running maxima of this loop, already brought up to date.
    """
    if isinstance(root.body.analysis.online(value), analysis.Squares):
        return Squares(root, scope, value, guards)
    return Exponentials(root, scope, value, guards, tops)


class Exponentials:
    """The sum of exp(x - shift) along a row, under guards."""

    def __init__(
        self,
        root: Scope,
        scope: Scope,
        value: Reduce,
        guards: Guards,
        tops: Mapping[tuple[int, Guards], str],
    ):
        found = root.body.analysis.online(value)
        assert isinstance(found, analysis.Exponentials)
        self.shift, self.guards = found.shift, guards
        kind = tl_type(value.dtype)
        self.top = root.assign("top", f'tl.full({_SHAPE}, -float("inf"), {kind})', _ROWS.tile).text
        self.total = root.assign("total", f"tl.full({_SHAPE}, 0, {kind})", _ROWS.tile).text
        x = scope.spread(evaluate(scope, found.of, guards), _ROWS.tile, kind)
        x = scope.assign("x", f'tl.where(r_ok, {x}, -float("inf"))', _ROWS.tile).text
        gap = scope.assign("gap", f"{x} - {self.top}", _ROWS.tile).text
        # The gap of two infinities would be NaN.
        less = f"tl.where({x} == {self.top}, 1.0, tl.exp(-tl.abs({gap})))"
        less = scope.assign("less", less, _ROWS.tile).text
        scaled = f"tl.where({gap} > 0, {self.total} * {less} + 1.0, {self.total} + {less})"
        scope.block.add(f"{self.total} = {scaled}")
        scope.block.add(f"{self.top} = {tops[id(found.top), relevant(root, found.top, guards)]}")

    def finish(self, root: Scope, length: str) -> Ref:
        """The sum over all places, written behind the loop and its maxima."""
        shift = evaluate(root, self.shift, self.guards)
        terms = f"{self.total} * tl.exp({self.top} - {shift.text})"
        return root.assign("sum", f"tl.sum({terms}, axis=1, keep_dims=True)", _ROWS.line)


class Squares:
    """The sum of (x - shift) ** 2 along a row, under guards."""

    def __init__(self, root: Scope, scope: Scope, value: Reduce, guards: Guards):
        found = root.body.analysis.online(value)
        assert isinstance(found, analysis.Squares)
        self.shift, self.guards, self.kind = found.shift, guards, tl_type(value.dtype)
        self.mean = root.assign("mean", f"tl.full({_SHAPE}, 0, {self.kind})", _ROWS.tile).text
        self.total = root.assign("total", f"tl.full({_SHAPE}, 0, {self.kind})", _ROWS.tile).text
        x = scope.spread(evaluate(scope, found.of, guards), _ROWS.tile, self.kind)
        gap = scope.assign("gap", f"tl.where(r_ok, {x} - {self.mean}, 0)", _ROWS.tile).text
        step = scope.assign("step", f"{gap} / (start // BLOCK_R + 1)", _ROWS.tile).text
        scope.block.add(f"{self.mean} += {step}")
        scope.block.add(f"{self.total} += {gap} * ({gap} - {step})")

    def finish(self, root: Scope, length: str) -> Ref:
        """The sum over all places, written behind the loop. Each has its own count and mean."""
        shift = evaluate(root, self.shift, self.guards)
        count = f"(({length} - tl.arange(0, BLOCK_R)[None, :] + BLOCK_R - 1) // BLOCK_R)"
        gap = root.assign("gap", f"{self.mean} - {shift.text}", _ROWS.tile).text
        terms = f"{self.total} + {gap} * {gap} * {count}.to({self.kind})"
        return root.assign("sum", f"tl.sum({terms}, axis=1, keep_dims=True)", _ROWS.line)
