"""Sums of exponentials beside a running maximum, so that a long row is read once for both.

Each place of a tile has the largest element it has met, and the sum of exponentials relative to it,
which is scaled when a larger one comes: of the two exponentials one is always of 0. At the end all
are brought to the row's own shift.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel import Reduce
from .folds import Rows
from .scope import Guards, Ref, Scope
from .text import tl_type
from .values import evaluate, relevant

_ROWS = Rows("p", "r")


class Exponentials:
    """The sum of exp(x - shift) along a row, under guards. What is made writes a loop's step.

    tops: the variables of the running maxima of this loop, already brought up to date.
    """

    def __init__(
        self,
        root: Scope,
        scope: Scope,
        value: Reduce,
        guards: Guards,
        tops: Mapping[tuple[int, Guards], str],
    ):
        found = root.body.analysis.exponentials(value)
        assert found is not None
        self.shift, self.guards = found.shift, guards
        kind = tl_type(value.dtype)
        shape = "(BLOCK_P, BLOCK_R)"
        self.top = root.assign("top", f'tl.full({shape}, -float("inf"), {kind})', _ROWS.tile).text
        self.total = root.assign("total", f"tl.full({shape}, 0, {kind})", _ROWS.tile).text
        x = scope.spread(evaluate(scope, found.of, guards), _ROWS.tile, kind)
        x = scope.assign("x", f'tl.where(r_ok, {x}, -float("inf"))', _ROWS.tile).text
        gap = scope.assign("gap", f"{x} - {self.top}", _ROWS.tile).text
        # Of two infinities the gap would be NaN.
        less = f"tl.where({x} == {self.top}, 1.0, tl.exp(-tl.abs({gap})))"
        less = scope.assign("less", less, _ROWS.tile).text
        scaled = f"tl.where({gap} > 0, {self.total} * {less} + 1.0, {self.total} + {less})"
        scope.block.add(f"{self.total} = {scaled}")
        scope.block.add(f"{self.top} = {tops[id(found.top), relevant(root, found.top, guards)]}")

    def finish(self, root: Scope) -> Ref:
        """The sum over all places, written behind the loop and its maxima."""
        shift = evaluate(root, self.shift, self.guards)
        terms = f"{self.total} * tl.exp({self.top} - {shift.text})"
        return root.assign("sum", f"tl.sum({terms}, axis=1, keep_dims=True)", _ROWS.line)
