"""Families of calls that are computed at once, and what is known of each call.

A family is the calls of a builder that differ in sizes alone. A template is learned from the first
of them (`runtime/baseline/templates.py`). A call of the same types and sizes as an earlier one is
known: its forms are composed to one function of arrays (`runtime/baseline/bound.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant, leaf
from tilewright.ir.shape import Size, shape_of
from tilewright.runtime import debug
from tilewright.runtime.baseline import derivatives, outlines
from tilewright.runtime.baseline.bound import Bound
from tilewright.runtime.baseline.derivatives import Differentiated, DifferentiatedTemplate, Join
from tilewright.runtime.baseline.examples import Example
from tilewright.runtime.baseline.outlines import Outline
from tilewright.runtime.baseline.quiet import quietly
from tilewright.runtime.baseline.step_forms import Shared, Untold
from tilewright.runtime.baseline.templates import Template

from . import epoch, novelty
from .builders import facts, joins, name_of, takes_sizes
from .epoch import PLACE, clock
from .rounding import rounded_once
from .states import Aval, Handle

_EXAMPLES = 24
"""The examples of a family, after which its calls are recorded if they still don't tell."""
_ERRORS = 8
"""The errors of a family's calls, after which nothing is learned of them."""
REMEMBERED = 4096
"""Families of calls, known calls, and numbers in them, that are remembered."""


class Number(Handle):
    """A number of int64 that a call reads, as a draw its seed. It is a node where the call is
    recorded.

    make: of the value, the node in the present epoch.
    """

    dtype = int64

    def __init__(self, value: int, make: Callable[[int], Node]):
        self.value, self._make = value, make
        self._known: tuple[int, Node] | None = None

    @property
    def _node(self) -> Node:  # type: ignore[override]
        if self._known is None or self._known[0] != clock.number:
            self._known = clock.number, self._make(self.value)
        return self._known[1]

    @property
    def constant(self) -> Node:
        return constant(self.value, int64)


class Called:
    """A call that is about to be computed.

    key: of the call, see volatile.py. args: with PLACE for each operand, and without the last
    argument if it is a shape, which `sizes` has. arrays, avals: of the operands. shapes: theirs,
    and `sizes`. targets: where the gradients of operands go; None if none of them has one.
    """

    __slots__ = ("args", "arrays", "avals", "build", "key", "shapes", "sizes", "targets")

    def __init__(
        self,
        key: tuple[Any, ...],
        args: list[Any],
        arrays: list[np.ndarray],
        avals: list[Aval],
        targets: list[Any] | None,
    ):
        self.key, self.build, self.args = key, key[0], args
        self.arrays, self.avals, self.targets = arrays, avals, targets
        self.sizes: tuple[Any, ...] = (args.pop(),) if self.build in takes_sizes else ()
        self.shapes = (*[a.shape for a in arrays], *self.sizes)

    @property
    def family(self) -> tuple[Any, ...]:
        """What the calls of its family have in common."""
        place = family_of(self.key, self.avals)
        return (*place[:-1], _kinds(self.sizes[0])) if self.sizes else place

    def example(self, shapes: Sequence[Any] | None = None) -> Any:
        """It as an example, or a call of other shapes."""
        shapes = self.shapes if shapes is None else shapes
        dtypes = [dtype for _, dtype, _ in self.avals]
        operands = [leaf(i, Size(shape), d) for i, (shape, d) in enumerate(zip(shapes, dtypes))]
        sizes = tuple(shapes[len(operands) :])
        targets = self.targets or [None] * len(operands)
        with graph.grad_mode(self.targets is not None):
            tracked = [
                o if target is None else ops.variable(o, i)
                for i, (o, target) in enumerate(zip(operands, targets))
            ]
            given = iter(tracked)
            args = [next(given) if a is PLACE else a for a in self.args]
            made = rounded_once(self.build, [*args, *sizes])
        if self.targets is not None:
            return Differentiated(operands, tracked, made, sizes)
        return Example(operands, made, sizes)

    def larger(self, other: Any) -> list[Any]:
        """Examples of larger sizes, even and odd ones, where they aren't those of `other`. None
        where sizes depend on each other in another way."""
        found = []
        for more in (0, 1):
            with suppress(Exception):
                shapes = [
                    Size([2 * n + more if n != m else n for n, m in zip(own, its)])
                    for own, its in zip(self.shapes, other.shapes)
                ]
                found.append(self.example(shapes))
        return found

    def join(self) -> Join | None:
        """It as a call that joins tensors along an axis, however many they are; None if it isn't
        one whose result is known."""
        if len(self.args) != len(self.arrays) + 1 or any([a.shape == (0,) for a in self.arrays]):
            return None  # PyTorch ignores empty vectors
        dtype = self.avals[0][1]
        if any([a[1] is not dtype for a in self.avals]):
            return None
        return Join(len(self.arrays), self.args[-1], joins[self.build], dtype)


def family_of(key: Sequence[Any], avals: Sequence[Aval]) -> tuple[Any, ...]:
    """What the calls of a family have in common, of one whose sizes are those of operands alone."""
    place = list(key)
    at, last = 0, len(avals)
    for i, each in enumerate(key):
        if at < last and each is avals[at]:
            shape, dtype, _ = each
            place[i] = dtype, _kinds(shape)
            at += 1
    return tuple(place)


def outlined(examples: Sequence[Any]) -> Any:
    """The outline of examples of one family; Untold if they have nothing in common."""
    by = derivatives if isinstance(examples[0], Differentiated) else outlines
    return by.outlined(examples)


def templated(outline: Any) -> Any:
    """The template of an outline."""
    return Template(outline) if isinstance(outline, Outline) else DifferentiatedTemplate(outline)


def _kinds(shape: Sequence[int]) -> Any:
    """What families tell of sizes: how many they are, and which are 1, which broadcasts, or 0."""
    if 1 in shape or 0 in shape:
        return tuple([n if n < 2 else 2 for n in shape])
    return len(shape)


_OFTEN = 16
"""The calls from which on a function is written for the forms of a known one, if there is none."""


class Routine:
    """What computes calls of a family: the parts of them that don't depend on sizes.

    build, args: see Called. template: what computes them. forward: its part without derivative.
    leads: see builders.Facts. in_part: the operand of which it reads picked elements alone, or
    None. mark: stands for it where work is compared. is_free: whether the forms are the same for
    all sizes. run, back: then what these are composed to, for the call and its derivative.
    """

    __slots__ = (
        "args", "back", "build", "forward", "in_part", "is_free", "leads", "mark", "run",
        "template", "times",
    )  # fmt: skip

    def __init__(self, call: Called, mark: int, template: Any):
        self.build, self.args, self.template, self.mark = call.build, call.args, template, mark
        flows = call.targets is not None
        self.forward = template.forward if flows else template
        said = facts(call.build)
        self.leads = said.leads if flows and said is not None else 0
        self.in_part = None if flows or said is None else said.picks
        self.is_free = template.is_free
        self.run: Bound | None = None
        self.back: Bound | None = None
        self.times = 1

    def noted(
        self, shapes: Sequence[Any], arrays: Sequence[np.ndarray], most: int
    ) -> tuple[int, int]:
        """What tells a call from others, and the elements of the largest tensor that it reads or
        writes whole; see novelty.py. most: of its results."""
        for i, each in enumerate(arrays):
            if each.size > most and i != self.in_part:
                most = each.size
        return hash((self.mark, shapes)), most


class Known:
    """A call that has been computed, for operands of its types and sizes.

    build, args, template, forward, leads: see Routine. shapes: see Called. operands, avals: the
    avals of its operands and of its results. noted: see Routine. bare: the function of arrays that
    makes its only result, once that is known and if it needs nothing around it. writes_in_place: as
    only writes on the tape do.
    """

    writes_in_place = False

    __slots__ = (
        "_keeper", "args", "avals", "back", "bare", "build", "forward", "leads", "noted",
        "operands", "run", "shapes", "template", "times",
    )  # fmt: skip

    def __init__(self, routine: Routine, shapes: Sequence[Any], operands: list[Aval]):
        self.build, self.args, self.shapes = routine.build, routine.args, shapes
        self.template, self.forward, self.operands = routine.template, routine.forward, operands
        self.leads, self.run, self.back = routine.leads, routine.run, routine.back
        self.times = 1
        self._keeper = routine if routine.is_free else self
        self.bare: Callable[..., Any] | None = None

    def note(self, routine: Routine, arrays: Sequence[np.ndarray], made: Any) -> None:
        """Keep what its first results tell."""
        dtypes = self.template.dtypes
        if self.forward.is_single:
            self.avals: list[Aval] = [(shape_of(made.shape), dtypes[0], "cpu")]
            most = made.size
        else:
            self.avals = [(shape_of(a.shape), dtype, "cpu") for a, dtype in zip(made, dtypes)]
            most = max([a.size for a in made])
        self.noted = routine.noted(self.shapes, arrays, most)

    def first(self, arrays: Sequence[np.ndarray], shared: Shared, is_free: bool) -> Any:
        """What `forward` makes of the first operands of their sizes. Untold if the template doesn't
        tell. is_free: see Routine."""
        template, forward = self.template, self.forward
        if forward.has_limits:
            forward.check(self.shapes)
        if is_free:
            made = self.made(arrays, shared)
        else:
            made = forward(arrays, self.shapes, shared)
        if template is not forward and template.has_limits:
            template.check(self.shapes, [made] if forward.is_single else made)
        return made

    def made(self, arrays: Sequence[np.ndarray], shared: Shared) -> Any:
        """What `forward` makes of operands. shared: see templates.py."""
        run = self.run
        if run is None:
            keeper = self._keeper
            run = self.run = keeper.run
            if run is None:
                keeper.times += 1
                may_write = keeper.times >= _OFTEN
                if keeper.times > 2 and not may_write:
                    return self.forward(arrays, self.shapes, shared)
                made, run = quietly(self.forward.bound, arrays, self.shapes, shared, may_write)
                self.run = keeper.run = run
                return self.forward.owned(made, arrays)
        if run.is_bare:
            if self.forward.is_single:
                self.bare = run.run
            return run.run(*arrays)
        return _owned(self.forward, run, arrays, shared)

    def backward(
        self, kept: Sequence[np.ndarray], seeds: Sequence[np.ndarray], shared: Shared
    ) -> Sequence[Any]:
        """The cotangents of the operands. Called in a block of `quietly`."""
        keeper, template = self._keeper, self.template
        back = self.back or keeper.back
        made: Sequence[Any]
        if back is not None:
            made = back.run(shared, *kept, *seeds) if back.is_staged else back.run(*kept, *seeds)
        elif self.run is None:
            made = template.backward(kept, seeds, self.shapes, shared)
        else:
            may_write = keeper.times >= _OFTEN
            keeper.times += 1
            made, back = template.bound_backward(kept, seeds, self.shapes, shared, may_write)
            self.back = keeper.back = back
        return made


class Family:
    """Calls of a builder that differ in sizes alone.

    templates: what computes them, each with its examples, of which those that were made with the
    package have none. They differ in structure: padded or cut or not, for instance. failed: whether
    no more is learned, and calls that no template computes are recorded. only: the routine of all
    of them, if there is one.
    """

    __slots__ = ("_errors", "_routines", "failed", "only", "templates")

    def __init__(self, place: tuple[Any, ...]) -> None:
        """place: see Called.family."""
        from . import lessons

        self.templates: list[tuple[Any, list[Any]]] = [
            (templated(outline), []) for outline in lessons.outlines(place)
        ]
        self.failed = False
        self.only: Routine | None = None
        self._routines: dict[int, Routine] = {}  # by the identities of templates
        self._errors = 0

    def learn(self, call: Called) -> None:
        """Add an example of the call."""
        try:
            self._add(call, call.example())
            self.failed = sum([len(examples) for _, examples in self.templates]) > _EXAMPLES
        except Untold:
            self.failed = True
        except Exception as error:  # mostly the program's: the recorded call has the user's line
            pass_on(error)
            self._errors += 1
            self.failed = self._errors > _ERRORS
        if self.failed:
            name = name_of(call.build) or call.build
            debug.say(f"calls of {name} are recorded where no template computes them")
            self.templates = [(template, []) for template, _ in self.templates]

    def _add(self, call: Called, example: Any) -> None:
        for i, (_, others) in enumerate(self.templates):
            if not others:  # made with the package
                continue
            if any([e.shapes == example.shapes for e in others]):
                return
            # Sizes that differ little, or have the same remainder, don't show what depends on them.
            every = [*others, example, *call.larger(others[0])]
            with suppress(Untold):  # of another structure
                self.templates[i] = templated(outlined(every)), every
                return
        self.templates.append((templated(outlined([example])), [example]))

    def outlines(self) -> list[Any]:
        """The outlines that were learned of more than one example."""
        return [outlined(examples) for _, examples in self.templates if len(examples) > 1]

    def made(self, call: Called, shared: Shared) -> tuple[Routine, Any] | None:
        """The routine of a call, and what it makes; None if it must be recorded."""
        found = self._made(call, shared)
        if found is None and not self.failed:
            self.learn(call)
            found = self._made(call, shared)
        if found is None:
            return None
        template, made = found
        routine = self._routines.get(id(template))
        if routine is None or routine.template is not template:
            routine = self._routines[id(template)] = Routine(call, id(self), template)
            is_only = len(self.templates) == 1 and not call.sizes
            self.only = routine if is_only else None
        return routine, made

    def _made(self, call: Called, shared: Shared) -> tuple[Any, Any] | None:
        arrays, shapes = call.arrays, call.shapes
        for template, _ in self.templates:
            forward = template if call.targets is None else template.forward
            shared.clear()
            try:
                forward.check(shapes)
                made = forward(arrays, shapes, shared)
                if forward is not template:
                    template.check(shapes, [made] if forward.is_single else made)
            except Untold:
                continue
            return template, made
        return None


_failed = False


def note_error(error: Exception) -> None:
    """Note an error of a call that was to be computed at once."""
    global _failed
    _failed = not isinstance(error, Untold)


def has_failed() -> bool:
    """Whether such an error came since the last time that this was asked."""
    global _failed
    failed, _failed = _failed, False
    return failed


def _owned(template: Any, run: Bound, arrays: Sequence[np.ndarray], shared: Shared) -> Any:
    """What a function of arrays makes, in memory of its own."""
    made = quietly(run.run, shared, *arrays) if run.is_staged else quietly(run.run, *arrays)
    return template.owned(made, arrays)


def comes_again(mark: int) -> bool:
    """Whether a call that is noted so came before. Most calls of sizes that are new all the time
    never come again, so only the others become known ones."""
    if mark in epoch.met:
        if len(epoch.known) >= REMEMBERED:
            epoch.known.clear()
        return True
    if len(epoch.met) >= REMEMBERED:
        epoch.met.clear()
    epoch.met.add(mark)
    return False


def first(
    key: tuple[Any, ...], arrays: Sequence[np.ndarray], avals: Sequence[Aval]
) -> tuple[np.ndarray, Aval, tuple[int, int]] | None:
    """The only result of a call without gradients that isn't known, its aval, and what is noted of
    it; None if its family has no template for all sizes."""
    if key[0] in joins:
        return None
    family = epoch.families.get(family_of(key, avals))
    routine = None if family is None else family.only
    if routine is None or not routine.template.is_single:
        return None
    template, run = routine.template, routine.run
    for array, aval in zip(arrays, avals):
        if array.size > novelty.LARGE or aval[2] != "cpu":
            return None
    shapes = tuple([a.shape for a in arrays])
    try:
        if template.has_limits:
            template.check(shapes)
        if run is None:
            made = template(arrays, shapes, {})
        else:
            made = run.run(*arrays) if run.is_bare else _owned(template, run, arrays, {})
    except Exception as error:  # the family may learn it, or the recorded call has the message
        pass_on(error)
        return None
    aval = shape_of(made.shape), template.dtypes[0], "cpu"
    noted = routine.noted(shapes, arrays, made.size)
    if comes_again(noted[0]):
        known = epoch.known[key] = Known(routine, shapes, list(avals))
        known.run, known.avals, known.noted = run, [aval], noted
    return made, aval, noted


def met(
    key: tuple[Any, ...],
    args: Sequence[Any],
    arrays: list[np.ndarray],
    avals: list[Aval],
    targets: list[Any] | None,
    shared: Shared,
) -> tuple[Known, Any] | None:
    """A call that hasn't come before as a known one, and what it makes; None if it must be
    recorded. key, arrays, avals, targets: see Called. args: with the operands."""
    build = key[0]
    place = None
    if build not in joins:
        place = family_of(key, avals)
        family = epoch.families.get(place)
        if family is not None and family.only is not None:
            routine = family.only
            known = Known(routine, tuple([a.shape for a in arrays]), avals)
            try:
                made = known.first(arrays, shared, routine.is_free)
            except Untold:  # the family may learn it
                shared.clear()
            except Exception as error:  # the recorded call has the better message
                pass_on(error)
                note_error(error)
                return None
            else:
                known.note(routine, arrays, made)
                return known, made
    given = [PLACE if isinstance(a, (Handle, np.ndarray)) else a for a in args]
    call = Called(key, given, arrays, avals, targets)
    try:
        found = _joined(call) if place is None else _of_family(call, shared)
    except Exception as error:  # the recorded call has the better message
        pass_on(error)
        note_error(error)
        return None
    if found is None:
        return None
    routine, made = found
    known = Known(routine, call.shapes, avals)
    known.note(routine, arrays, made)
    return known, made


def _joined(call: Called) -> tuple[Routine, Any] | None:
    """As `_of_family`, for a call that joins tensors."""
    template = call.join()
    if template is None:
        return None
    return Routine(call, id(call.build), template), template(call.arrays)


def _of_family(call: Called, shared: Shared) -> tuple[Routine, Any] | None:
    """The routine of a call, and what it makes; None if it must be recorded."""
    place = call.family
    if not epoch.families:
        debug.say("calls are computed when they are made, until the same work comes again")
    family: Any = epoch.families.get(place)
    if family is None:
        if len(epoch.families) >= REMEMBERED:
            epoch.families.clear()
        family = epoch.families[place] = Family(place)
    found: tuple[Routine, Any] | None = family.made(call, shared)
    return found
