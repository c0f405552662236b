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
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant, leaf
from tilewright.ir.shape import Size, shape_of
from tilewright.runtime import debug
from tilewright.runtime.baseline.bound import Bound
from tilewright.runtime.baseline.derivatives import Differentiated, DifferentiatedTemplate, Join
from tilewright.runtime.baseline.quiet import quietly
from tilewright.runtime.baseline.step_forms import Shared, Untold
from tilewright.runtime.baseline.templates import Example, Template

from . import epoch
from .builders import joins, name_of, takes_sizes
from .epoch import clock
from .rounding import rounded_once
from .states import Aval, Handle

FEWEST = 1
"""The examples of a call from which a template is made. One tells of its own sizes alone."""
_EXAMPLES = 6
"""The examples of a call, after which it is recorded if they still don't tell."""
REMEMBERED = 4096
"""Families of calls, known calls, and numbers in them, that are remembered."""
PLACE: Any = object()
"""Stands for an operand among the arguments of a call."""


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
        place, avals = list(self.key), self.avals
        at, last = 0, len(avals)
        for i, each in enumerate(place):
            if at < last and each is avals[at]:
                place[i] = each[1], _kinds(each[0])
                at += 1
        if self.sizes:
            place[-1] = _kinds(self.sizes[0])
        return tuple(place)

    def example(self) -> tuple[Any, Callable[..., Any]]:
        """It as an example, and the template that such examples make."""
        operands = [leaf(i, Size(shape), dtype) for i, (shape, dtype, _) in enumerate(self.avals)]
        targets = self.targets or [None] * len(operands)
        with graph.grad_mode(self.targets is not None):
            tracked = [
                o if target is None else ops.variable(o, i)
                for i, (o, target) in enumerate(zip(operands, targets))
            ]
            given = iter(tracked)
            args = [next(given) if a is PLACE else a for a in self.args]
            made = rounded_once(self.build, [*args, *self.sizes])
        if self.targets is not None:
            return Differentiated(operands, tracked, made, self.sizes), DifferentiatedTemplate
        return Example(operands, made, self.sizes), Template

    def join(self) -> Join | None:
        """It as a call that joins tensors along an axis, however many they are; None if it isn't
        one whose result is known."""
        if len(self.args) != len(self.arrays) + 1 or any([a.shape == (0,) for a in self.arrays]):
            return None  # PyTorch ignores empty vectors
        dtype = self.avals[0][1]
        if any([a[1] is not dtype for a in self.avals]):
            return None
        return Join(len(self.arrays), self.args[-1], joins[self.build], dtype)


def _kinds(shape: Sequence[int]) -> Any:
    """What families tell of sizes: how many they are, and which are 1, which broadcasts, or 0."""
    if 1 in shape or 0 in shape:
        return tuple([n if n < 2 else 2 for n in shape])
    return len(shape)


_OFTEN = 16
"""The calls from which on the forms of a known one are composed."""


class Known:
    """A call that has been computed, for operands of its types and sizes.

    template: of its family. forward: its part without derivative. build, args, shapes: see Called.
    operands, avals: the avals of its operands and of its results. mark: what stands for it where
    work is compared.
    """

    __slots__ = (
        "_back", "_run", "_times", "args", "avals", "build", "forward", "mark", "operands",
        "shapes", "template",
    )  # fmt: skip

    def __init__(self, call: Called, family: Any, template: Any, made: Any):
        self.build, self.args, self.shapes = call.build, call.args, call.shapes
        self.template, self.operands = template, call.avals
        self.forward = template if call.targets is None else template.forward
        rows = [made] if self.forward.is_single else made
        self.avals: list[Aval] = [
            (shape_of(a.shape), dtype, "cpu") for a, dtype in zip(rows, template.dtypes)
        ]
        self.mark = hash((id(family), self.shapes))
        self._run: Bound | None = None
        self._times = 1
        self._back: Bound | None = None

    def made(self, arrays: Sequence[np.ndarray], shared: Shared) -> Any:
        """What `forward` makes of operands. shared: see templates.py."""
        run = self._run
        if run is not None and run.is_bare:
            return run.run(*arrays)
        if run is None:
            self._times += 1
            if self._times < _OFTEN:
                return self.forward(arrays, self.shapes, shared)
            made, self._run = quietly(self.forward.bound, arrays, self.shapes, shared)
        elif run.is_staged:
            made = quietly(run.run, shared, *arrays)
        else:
            made = quietly(run.run, *arrays)
        return self.forward.owned(made, arrays)

    def backward(
        self, kept: Sequence[np.ndarray], seeds: Sequence[np.ndarray], shared: Shared
    ) -> Sequence[Any]:
        """The cotangents of the operands. Called in a block of `quietly`."""
        back, template = self._back, self.template
        made: Sequence[Any]
        if back is not None:
            made = back.run(shared, *kept, *seeds) if back.is_staged else back.run(*kept, *seeds)
        elif self._run is None:
            made = template.backward(kept, seeds, self.shapes, shared)
        else:
            made, self._back = template.bound_backward(kept, seeds, self.shapes, shared)
        return made


class Family:
    """Calls of a builder that differ in sizes alone.

    template: what computes them; None if it isn't known. examples: of the calls. failed: whether
    they are recorded.
    """

    __slots__ = ("examples", "failed", "template")

    def __init__(self) -> None:
        self.examples: list[Any] = []
        self.template: Any = None
        self.failed = False

    def learn(self, call: Called) -> None:
        """Add an example of the call."""
        build = call.build
        try:
            example, kind = call.example()
            known = any(e.shapes == example.shapes for e in self.examples)
            if not known:
                self.examples.append(example)
            if known or len(self.examples) >= FEWEST:
                self.template = kind(self.examples)
            self.failed = len(self.examples) > _EXAMPLES
        except Exception:  # Untold, or an error, which the recorded call has in the user's line
            self.failed = True
        if self.failed:
            debug.say(f"calls of {name_of(build) or build} are recorded: no template computes them")
            self.examples.clear()
            self.template = None

    def made(self, call: Called, shared: Shared) -> Any:
        """What the template makes of a call; None if it must be recorded."""
        if self.template is None and not self.failed:
            self.learn(call)
        arrays, shapes = call.arrays, call.shapes
        for _ in range(2):
            template = self.template
            if template is None:
                return None
            forward = template if call.targets is None else template.forward
            shared.clear()
            try:
                forward.check(shapes)
                made = forward(arrays, shapes, shared)
                if forward is not template:
                    template.check(shapes, [made] if forward.is_single else made)
            except Untold:
                self.learn(call)
            except Exception:  # the recorded call has the better message
                return None
            else:
                return made
        return None


def met(call: Called, shared: Shared) -> tuple[Known, Any] | None:
    """A call that hasn't come before as a known one, and what it makes; None if it must be
    recorded."""
    family: Any
    if call.build in joins:
        family, template, made = call.build, call.join(), None
        if template is not None:
            with suppress(ValueError, IndexError):  # the recorded call has the better message
                made = template(call.arrays)
    else:
        place = call.family
        family = epoch.families.get(place)
        if family is None:
            if len(epoch.families) >= REMEMBERED:
                epoch.families.clear()
            family = epoch.families[place] = Family()
        made = family.made(call, shared)
        template = family.template
    if made is None:
        return None
    return Known(call, family, template, made), made
