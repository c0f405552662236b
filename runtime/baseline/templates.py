"""Templates: what a call computes, for operands of any sizes, by its outline (`outlines.py`).

A template runs the same forms as a program, in the same order, so it has the same bits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import ops

from . import copies
from .bound import SHARED, Bound, composed
from .forms import Form
from .outlines import DROPPED, Extent, Line, Outline, Parts, filled
from .quiet import quiet, quietly
from .step_forms import (
    Shape,
    Shared,
    Staged,
    Untold,
    bias_grad,
    direct,
    is_bare,
    is_quiet,
    is_whole,
    sized,
)


class _Step(NamedTuple):
    """A step of a template.

    form: of all sizes; if it has attrs, (attrs, operands) -> the form for these. places: of the
    operands. varies: whether attrs depend on sizes.
    """

    form: Callable[..., Any]
    places: tuple[int, ...]
    attrs: Any = None
    varies: bool = False


_REMEMBERED = 64
"""The shapes of operands whose attrs a template keeps."""


class Template:
    """What a call computes for operands of any sizes that its outline tells of.

    dtypes: of the results. is_single: whether the call has one result, and no tuple.
    varies: whether an attr depends on sizes. is_free: whether nothing does: the forms of its steps
    are those of all sizes. has_limits: whether `check` may raise.
    """

    def __init__(self, outline: Outline):
        self.dtypes, self.is_single = outline.dtypes, outline.is_single
        self._fixed, self._equal, self._results = outline.fixed, outline.equal, outline.results
        sources = 0 if outline.equal else outline.arity
        self._steps = [_step(line, sources) for line in outline.lines]
        self.varies = any([step.varies for step in self._steps])
        self.is_free = not self._fixed and all([step.attrs is None for step in self._steps])
        self.has_limits = bool(self._fixed)
        self._known: dict[Any, list[_Step]] = {}  # by the shapes of operands
        self._only = self._whole(outline.arity)
        self._is_bare = self._only is not None and is_bare(self._only)

    def _whole(self, count: int) -> Form | None:
        """The form of a template that is one step over all operands."""
        if len(self._steps) != 1 or not self.is_single:
            return None
        form, places, attrs, _ = self._steps[0]
        is_direct = attrs is None and form.__class__ is not Staged
        return form if is_direct and places == tuple(range(count)) else None

    def check(self, shapes: Sequence[Shape]) -> None:
        """Raise Untold if an attr may be another one for operands of these shapes, after which the
        sizes among the arguments come."""
        for i, axis, least, most in self._fixed:
            if not least <= shapes[i][axis] <= most:
                raise Untold

    def __call__(self, arrays: Sequence[Any], shapes: Sequence[Shape], shared: Shared) -> Any:
        """The results, each in contiguous memory of its own, or one if `is_single`. Untold if the
        examples don't tell.

        shapes: as of `check`, which has seen them."""
        only = self._only
        if only is not None:
            return only(*arrays) if self._is_bare else own(quietly(only, *arrays), arrays)
        return self.owned(quietly(self.seen, arrays, shapes, shared), arrays)

    def seen(
        self,
        arrays: Sequence[Any],
        shapes: Sequence[Shape],
        shared: Shared,
        forms: list[tuple[Form, Shape]] | None = None,
    ) -> Any:
        """The results, which may share memory with each other and with the operands. NumPy may
        warn of them. shared: the stages that are known, to which new ones are added. forms: takes
        the forms of the steps and their places."""
        values = list(arrays)
        steps = self._filled(shapes) if self.varies else self._steps
        for form, places, attrs, _ in steps:
            operands = [values[p] for p in places]
            if attrs is not None:
                form = form(attrs, operands)
            if form.__class__ is Staged:
                operands.insert(0, shared)
                places = (SHARED, *places)
            values.append(form(*operands))
            if forms is not None:
                forms.append((form, places))
        if self.is_single:
            return values[self._results[0]]
        return [values[p] for p in self._results]

    def _filled(self, shapes: Sequence[Shape]) -> list[_Step]:
        """The steps for operands of these shapes. The layers of a model share them."""
        key = tuple(shapes)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            for (i, axis), *others in self._equal:
                size = shapes[i][axis]
                if any([shapes[j][other] != size for j, other in others]):
                    raise Untold
            parts = Parts(shapes)
            found = self._known[key] = [
                step._replace(attrs=filled(step.attrs, parts)) if step.varies else step
                for step in self._steps
            ]
        return found

    def bound(
        self,
        arrays: Sequence[Any],
        shapes: Sequence[Shape],
        shared: Shared,
        may_write: bool,
        owns: bool = True,
    ) -> tuple[Any, Bound | None]:
        """What `seen` makes, and the function that makes it of other operands of these shapes.
        may_write: see `composed`. owns: whether that function may be a bare one."""
        forms: list[tuple[Form, Shape]] = []
        made = self.seen(arrays, shapes, shared, forms)
        forms = _folded(forms, len(arrays))
        run = composed(len(arrays), forms, self._results, self.is_single, may_write)
        if run is None:
            return made, None
        if any([SHARED in places for _, places in forms]):
            return made, Bound(run, is_staged=True)
        if not owns:
            return made, Bound(run, is_staged=False)
        if not all([is_quiet(form) for form, _ in forms]):
            run = _quiet(run)
        owners = [_owner(forms, place, len(arrays)) for place in self._results]
        if None in owners or len({*owners}) < len(owners):
            run = self._owning(run)
        return made, Bound(run, is_staged=False, is_bare=True)

    def _owning(self, seen: Callable[..., Any]) -> Callable[..., Any]:
        """A function of arrays whose results have contiguous memory of their own."""
        if self.is_single:
            return lambda *arrays: own(seen(*arrays), arrays)
        return lambda *arrays: self.owned(seen(*arrays), arrays)

    def owned(self, made: Any, arrays: Sequence[Any]) -> Any:
        """What `seen` made of `arrays`, each in contiguous memory of its own."""
        if self.is_single:
            return own(made, arrays)
        kept, taken = [], list(arrays)
        for each in made:
            kept.append(own(each, taken))
            taken.append(kept[-1])
        return kept


def _step(line: Line, sources: int) -> _Step:
    """The step of a line. sources: how many operands the call has, from whose shapes sizes may be
    taken."""
    op, attrs, dtypes, dtype, places, along, varies = line
    if isinstance(op, str):
        return _Step(
            operator.methodcaller("squeeze", attrs) if op == DROPPED else bias_grad, places
        )
    if op is ops.constant_op:
        return _constant(attrs[0], dtype.np, sources)
    form = None if varies or along is not None else direct(op, attrs, dtypes, dtype)
    if form is None:
        return _Step(sized(op, dtypes, dtype, along), places, attrs, varies)
    return _Step(form, places)


def _constant(value: np.ndarray | Extent, made: np.dtype[Any], sources: int) -> _Step:
    if not isinstance(value, Extent):
        # What was read from a file has a dtype of its own, which native calls would not know.
        known = value.view(made) if value.dtype == made else value.view()
        known.flags.writeable = False
        return _Step(_given(known), ())
    extent = value
    places = tuple(sorted({i for _, i, _ in extent.ways}))
    if places[-1] < sources:
        return _Step(_sized_constant(extent, places, made), places)

    def found(attrs: tuple[Any, ...], operands: Sequence[Any]) -> Form:
        return _given(np.asarray(attrs[0], made))

    return _Step(found, (), (extent,), True)


def _sized_constant(extent: Extent, places: Sequence[int], made: np.dtype[Any]) -> Form:
    """The form of a number that follows from the shapes of the call's operands at `places`."""

    @functools.lru_cache(_REMEMBERED)
    def number(*shapes: Shape) -> np.ndarray:
        return np.asarray(extent.value(Parts(dict(zip(places, shapes)))), made)

    def constant(*operands: Any) -> np.ndarray:
        return number(*[x.shape for x in operands])

    return quiet(constant)


def _given(value: np.ndarray) -> Form:
    def constant() -> np.ndarray:
        return value

    return quiet(constant)


def _quiet(seen: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of which NumPy doesn't warn."""
    return lambda *arrays: quietly(seen, *arrays)


_MOST_KEPT = 1 << 14
"""The bytes of a value that is kept rather than computed at each call."""


def _folded(
    forms: Sequence[tuple[Form, Shape]], count: int
) -> list[tuple[Callable[..., Any], Shape]]:
    """The forms, of which those that read no operand give what they make for these sizes: such as
    the mask of a triangle. count: the operands, whose places come before those of the forms."""
    known: dict[int, np.ndarray] = {}
    found = []
    for place, (form, places) in enumerate(forms, count):
        if all([p in known for p in places]):
            value = np.asarray(form(*[known[p] for p in places]))
            if value.nbytes <= _MOST_KEPT:
                known[place] = value = value.view()
                value.flags.writeable = False
                form, places = _given(value), ()
        found.append((form, places))
    return found


def _owner(forms: Sequence[tuple[Form, Shape]], place: int, count: int) -> int | None:
    """The step whose array is at a place, whole or as a view of all of it; None if it isn't one of
    its own. count: the operands, whose places come before those of the steps."""
    step = place - count
    while step >= 0 and is_whole(forms[step][0]):
        step = forms[step][1][0] - count
    return step if step >= 0 and is_bare(forms[step][0]) else None


def own(value: Any, others: Sequence[Any]) -> Any:
    """`value` as a contiguous array that shares no memory with `others`."""
    if value.__class__ is not np.ndarray:
        return np.asarray(value)
    if not value.flags.carray:
        return copies.copied(value)
    owner = value if value.base is None else value.base
    if owner.__class__ is np.ndarray and owner.base is None:  # it has the memory, as nearly always
        for each in others:
            base = each.base
            if each is owner or base is owner:
                break
            if base is not None and (base.__class__ is not np.ndarray or base.base is not None):
                break  # it may be a view by other ways
        else:
            return value
    if any([value is each or np.may_share_memory(value, each) for each in others]):
        return copies.copied(value)
    return value
