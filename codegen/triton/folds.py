"""Folds of a tile's rows: elements beyond the end of a row are made neutral first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.ir.dtype import BOOL, FLOAT, DType
from tilewright.ir.op import Fold

from ..kernel import Guard, Load, Reduce
from ..schedule import points
from .scope import Guards, Ref, Scope
from .text import tl_type
from .values import evaluate, is_zero


@dataclass(frozen=True, slots=True)
class Rows:
    """The names of a tile's two dimensions: rows lie one below the other, along the second one."""

    down: str
    along: str

    @property
    def tile(self) -> frozenset[str]:
        return frozenset({self.down, self.along})

    @property
    def line(self) -> frozenset[str]:
        """The tiles of values with one element for each row."""
        return frozenset({self.down})


COMBINE = {
    Fold.PROD: "tw_multiply",
    Fold.MAX: "tw_maximum",
    Fold.MIN: "tw_minimum",
    Fold.LOGSUMEXP: "tw_logaddexp",
}


def fold_rows(scope: Scope, rows: Rows, value: Reduce, guards: Guards) -> Ref:
    """The fold of whole rows, of which `scope` has a tile."""
    value = as_logic(value)
    arg = evaluate(scope, value.arg, guards)
    text = scope.spread(arg, rows.tile, tl_type(value.arg.dtype))
    if value.op.picks:
        return pick(scope, rows, value, *candidates(scope, rows, value, text))
    return scope.assign(value.op.value, folded(value, masked(scope, rows, value, text)), rows.line)


def as_logic(value: Reduce) -> Reduce:
    """Turns sums, products and extrema of bools into any and all."""
    if value.dtype.category != BOOL:
        return value
    return replace(value, op=_LOGIC.get(value.op, value.op))


_LOGIC = {
    Fold.SUM: Fold.ANY,
    Fold.MAX: Fold.ANY,
    Fold.PROD: Fold.ALL,
    Fold.MIN: Fold.ALL,
}


def masked(scope: Scope, rows: Rows, value: Reduce, arg: str) -> str:
    """The argument with neutral elements beyond the end of the row."""
    ok = scope.tiles[rows.along].ok
    if ok is None or (value.op is Fold.SUM and _loads_zero(scope, rows, value)):
        return arg
    if value.op is Fold.ANY:
        return f"{arg} & {ok}"
    if value.op is Fold.ALL:
        return f"{arg} | ({ok} == 0)"
    return f"tl.where({ok}, {arg}, {neutral(value.op, value.dtype)})"


def _loads_zero(scope: Scope, rows: Rows, value: Reduce) -> bool:
    """Whether the argument is already 0 beyond the end of the row."""
    arg = value.arg
    while isinstance(arg, Guard) and is_zero(arg.outside):
        arg = arg.inside
    own = set(scope.tiles[rows.along].axes)
    return isinstance(arg, Load) and bool(scope.body.analysis.index_axes(arg.offset) & own)


def neutral(op: Fold, dtype: DType) -> str:
    if op in (Fold.SUM, Fold.ANY, Fold.ALL):
        return "0"
    if op is Fold.PROD:
        return "1"
    low = op in (Fold.MAX, Fold.ARGMAX, Fold.LOGSUMEXP)
    if dtype.category == FLOAT:
        return '-float("inf")' if low else 'float("inf")'
    if dtype.category == BOOL:
        return "False" if low else "True"
    return str(np.iinfo(dtype.np).min if low else np.iinfo(dtype.np).max)


def combined(op: Fold, total: str, part: str, axis: int, kind: str) -> str:
    """The fold of `part` along an axis, combined with `total`."""
    if op is Fold.SUM:
        return f"{total} + tl.sum({part}, axis={axis}).to({kind})"
    return f"{COMBINE[op]}({total}, tl.reduce({part}, {axis}, {COMBINE[op]}))"


def folded(value: Reduce, text: str, axis: int = 1) -> str:
    """The reduction of a tile to a column, or along its other axis to a row."""
    kind = tl_type(value.dtype)
    if value.op is Fold.SUM:
        total = f"tl.sum({text}, axis={axis}, keep_dims=True)"
        narrow = value.dtype.category != FLOAT and value.dtype.itemsize < 4
        return f"{total}.to({kind})" if narrow else total
    if value.op in (Fold.ANY, Fold.ALL):
        function = "tl.max" if value.op is Fold.ANY else "tl.min"
        return f"{function}(({text}).to(tl.int32), axis={axis}, keep_dims=True) != 0"
    return f"tl.reduce({text}, {axis}, {COMBINE[value.op]}, keep_dims=True)"


def candidates(scope: Scope, rows: Rows, value: Reduce, arg: str) -> tuple[str, str]:
    """Values and positions of a tile; any element beats those beyond the row."""
    ok, best = scope.tiles[rows.along].ok, arg
    if ok is not None:
        worst = neutral(value.op, value.arg.dtype)
        best = scope.assign("best", f"tl.where({ok}, {arg}, {worst})", rows.tile).text
    # A row's own positions are below those beyond its end, which decides ties.
    at = f"{rows.along}.to({type_of_places(scope, rows)})" if scope.body.is_wide else rows.along
    text = f"tl.broadcast_to({at}, {scope.shape(rows.tile)})"
    return best, scope.assign("where", text, rows.tile).text


def type_of_places(scope: Scope, rows: Rows) -> str:
    """The type of positions in a row. In 32 bits they take half the registers."""
    length = points(scope.tiles[rows.along].axes)
    fits = length < 2**31 - 2**20  # tiles reach a little beyond the end
    return "tl.int32" if fits else scope.body.sizes.tl_type


def pick(scope: Scope, rows: Rows, value: Reduce, best: str, at: str) -> Ref:
    """The position of each row's best element."""
    name = scope.body.names.fresh(value.op.value)
    combine = f"tw_{value.op.value}"
    scope.block.add(f"_, {name} = tl.reduce(({best}, {at}), 1, {combine}, keep_dims=True)")
    return scope.assign(value.op.value, f"{name}.to(tl.int64)", rows.line)
