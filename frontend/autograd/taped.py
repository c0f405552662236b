"""Backward passes over calls on the tape, by templates of their derivatives."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir.interruption import pass_on
from tilewright.ir.location import at_user_line
from tilewright.runtime import debug
from tilewright.runtime.baseline.quiet import quietly
from tilewright.runtime.baseline.step_forms import Untold

from ..recording import (
    Handle,
    at_once,
    clock,
    epoch,
    flushing,
    grad_mode,
    novelty,
    tape,
    volatile,
)
from ..recording.tape import Array, Call, Refused, Taped
from ..recording.wrapping import of_array
from . import anomaly, pullbacks, values
from .hook_calls import after_hooks

Found = tuple[Any, Any]


class _Ended(Exception):
    """The pass meets something that only histories know."""


def gradients(
    roots: Sequence[tuple[Any, Any]],
    wanted: Sequence[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
    add: Callable[[Any, Any], None] | None = None,
) -> list[Found] | None:
    """(tensor, its gradient) for every leaf tensor, or for each of `wanted`; None if the pass needs
    histories. The gradients are arrays, or tensors on the tape with `create_graph`, and None for a
    tensor that none has reached.

    roots: (tensor, its cotangent, a tensor or None). allow_unused: whether that is no error. add:
    adds a gradient to that of its leaf amid the pass, as soon as it is complete, where functions of
    the program can see it; these gradients are left out of the result.
    """
    if not all(map(_is_taped, [t for t, _ in roots])):
        return None
    if anomaly.looks() or epoch.hooked or not volatile.may_compute():
        return None
    going: _Pass | None = None
    try:
        going = (_DifferentiablePass if create_graph else _Pass)(wanted)
        with grad_mode(True) if create_graph else nullcontext():
            for t, g in roots:
                going.begin(t, g)
            if tape.calling and going.has_calls():
                going.run_with_calls(add if wanted is None else None)
            else:
                quietly(going.run)
    except (_Ended, Refused, Untold) as error:
        if going is not None and going.has_called:  # and it wrote to what the pass reads
            raise values.modified() from error
        return None
    except Exception as error:
        if going is not None and going.has_called:
            raise
        pass_on(error)  # nothing has changed, and histories compute the same
        debug.say(f"a backward pass goes over histories, as the tape failed: {error!r}")
        return None
    is_whole = wanted is None or allow_unused or going.has_called or all(map(going.has, wanted))
    if not is_whole:
        return None  # histories have the error
    if not retain_graph:
        for call in going.used:
            call.free()
    novelty.is_passed(len(going.used))
    return going.results()


class _Pass:
    """A pass over the tape with arrays. It changes nothing until it is complete, but for what
    functions of the program do.

    used: the calls that it has gone through. found: id of a leaf tensor -> it and its gradient.
    pending: call -> the cotangents of its results so far.
    """

    sums: type[_Sum]
    creates_graph = False
    has_called = False  # a function of the program
    add: Callable[[Any, Any], None] | None = None  # see `gradients`

    def __init__(self, wanted: Sequence[Any] | None):
        self.used: list[Call] = []
        self.found: dict[int, _Sum] = {}
        self.pending: dict[Call, list[_Sum]] = {}
        self.heap: list[tuple[float, Call]] = []
        self.tensors = wanted
        self.leaves: dict[int, Any] = {}  # of those asked for
        self.inner: dict[tuple[Call, int], _Sum] = {}  # results that are asked for
        self.leading: set[Call] = set()  # calls that lead to something asked for
        self.missing: Counter[int] = Counter()  # by id of a leaf, the gradients yet to arrive there
        for t in wanted or ():
            target = _target(t)
            if target is t:
                self.leaves[id(t)] = t
            elif target.__class__ is Taped and t._chain is None:
                self.inner[target.call, target.index] = self.sums()
            else:
                raise _Ended

    def begin(self, t: Any, g: Any) -> None:
        """Let the pass begin at `t`, with its cotangent `g`, or one for a number."""
        target = _target(t)
        if target.__class__ is not Taped:
            raise _Ended
        seed = self.seed(t, g)
        if self.tensors is not None:
            self._look(target.call)
        self._arrive(target, t, tape.part(t, target), seed)

    def seed(self, t: Any, g: Any) -> Any:
        """The cotangent `g` of `t`, or one for a number."""
        dtype, shape = t.dtype, tuple(t.shape)
        if g is None:
            if t.numel() != 1 or dtype.is_complex:
                raise _Ended
            return np.ones(shape, dtype.np)
        seed = volatile.at_rest(g) if isinstance(g, Handle) else None
        if seed is None or seed.shape != shape or g.dtype is not dtype:
            raise _Ended
        return seed

    def _look(self, root: Call) -> None:
        """Find the calls beneath `root` that lead to a tensor asked for."""
        calls: dict[Call, None] = {}
        # Nothing older than all that is asked for leads there.
        oldest = -math.inf if self.leaves else min([call.number for call, _ in self.inner])
        stack = [root]
        while stack:
            call = stack.pop()
            if call in calls or call.number < oldest:
                continue
            calls[call] = None
            for target in _targets(call):
                if target.__class__ is Taped:
                    stack.append(target.call)
                elif isinstance(target, tape.History):
                    raise _Ended
        for call in sorted(calls, key=lambda c: c.number):
            for target in _targets(call):
                if target.__class__ is Taped:
                    leads = target.call in self.leading
                    leads = leads or (target.call, target.index) in self.inner
                else:
                    leads = id(target) in self.leaves
                if leads:
                    self.leading.add(call)
                    break

    def _arrive(self, target: Any, t: Any, part: tape.Part | None, g: Array) -> None:
        """Take the gradient of a tensor that a call has read to where it goes. part: how the tensor
        looks at its memory, if the gradient goes to that of the memory."""
        if part is not None and tape.is_watched(t):
            raise _Ended
        if target.__class__ is Taped:
            call = target.call
            sums = self.pending.get(call)
            if sums is None:
                if call.shared is not None and call.shared.hooks:
                    raise _Ended
                sums = self.pending[call] = [self.sums() for _ in call.results]
                heapq.heappush(self.heap, (-call.number, call))
            sums[target.index].add(part, g)
        elif isinstance(target, tape.History):
            raise _Ended
        elif self.tensors is None or id(target) in self.leaves:
            found = self.found.pop(id(target), None) or self.sums(target)
            self.found[id(target)] = found  # last: a gradient is complete when its last part comes
            found.add(part, g)

    def has_calls(self) -> bool:
        """Whether functions of the program are to be called. _Ended if the pass would end before it
        is complete: what they did can't be undone."""
        ahead, found = [call for _, call in self.heap], False
        seen = {*ahead}
        while ahead:
            call = ahead.pop()
            leads = self.tensors is None or call in self.leading
            found = found or (call.hooks is not None and (leads or self._is_wanted(call)))
            if not leads:
                continue
            found = found or call.users is not None
            if call.kept is None or call.is_changed or (call.shared and call.shared.hooks):
                raise _Ended
            if not self.knows(call):
                raise _Ended
            for place in call.parts or ():
                if call.targets[place] is not None and tape.is_watched(call.operands[place]):
                    raise _Ended
            for target in _targets(call):
                if target.__class__ is Taped:
                    if target.call not in seen:
                        seen.add(target.call)
                        ahead.append(target.call)
                elif isinstance(target, tape.History):
                    raise _Ended
                else:
                    self.missing[id(target)] += 1
        return found

    def knows(self, call: Call) -> bool:
        """Whether the cotangents of the operands of a call can be made."""
        return True

    def run_with_calls(self, add: Callable[[Any, Any], None] | None) -> None:
        """As `run`, where functions of the program see its context: what it says of NumPy's errors,
        too."""
        self.errors, self.add = np.geterr(), add
        with np.errstate(all="ignore"):
            self.run()

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """A block in which functions of the program are called."""
        effects = clock.effects
        with np.errstate(**self.errors), grad_mode(self.creates_graph):
            yield
        if clock.effects != effects:
            novelty.is_read_amid()

    def _complete(self, target: Any) -> None:
        """Add the gradient of a leaf to what it has if this was the last one on the way there."""
        if target.__class__ is not Taped:
            self.missing[id(target)] -= 1
            if not self.missing[id(target)] and id(target) in self.found:
                with self._outside():
                    self.add(target, self.found.pop(id(target)).own())  # type: ignore[misc]

    def _call_hooks(self, call: Call, sums: list[_Sum]) -> None:
        """Call the hooks of the results of a call."""
        self.has_called = True
        for index, hooks in (call.hooks or {}).items():
            if sums[index].value is not None:
                seen = self.shown(sums[index], call.known.avals[index])
                with self._outside():
                    for each in hooks:
                        seen = after_hooks(each, seen)
                sums[index].value = self.taken(seen)

    def _by_users(self, call: Call, sums: list[_Sum]) -> list[Any]:
        """The cotangents of the operands of a call, by the derivative that a program has
        written."""
        self.has_called = True
        assert call.users is not None
        avals = call.known.avals
        given = {i: self.shown(s, avals[i]) for i, s in enumerate(sums) if s.value is not None}
        with self._outside():
            found = call.users.cotangents(call, given)
        return [None if g is None else self.taken(g) for g in found]

    def shown(self, found: _Sum, aval: Any) -> Any:
        """A gradient as functions of the program see it."""
        return of_array(found.own(), aval)

    def taken(self, seen: Any) -> Any:
        """The gradient that a function of the program has left."""
        array = volatile.at_rest(seen)
        if array is None:  # it was recorded
            flushing.flush()
            array = volatile.at_rest(seen)
        if array is None:
            raise RuntimeError(
                f"a function returned a gradient on {seen.device}, of a tensor on the CPU"
                f"{at_user_line()}"
            )
        return array

    def run(self) -> list[Any]:
        everything = self.tensors is None
        while self.heap:
            _, call = heapq.heappop(self.heap)
            sums = self.pending.pop(call)
            if call.hooks is not None and (everything or self._is_wanted(call)):
                self._call_hooks(call, sums)
            if not everything:
                for i, each in enumerate(sums):
                    if (call, i) in self.inner:
                        self.inner[call, i] = each
                if call not in self.leading:
                    continue
            if call.kept is None or call.is_changed:
                raise _Ended  # which histories refuse
            self.used.append(call)
            template = call.known.template
            if call.users is None:
                seeds = [
                    sums[i].value if sums[i].value is not None else self.zeros(call, i)
                    for i in template.seeds
                ]
                del sums
                grads = self.cotangents(call, seeds)
                del seeds
            else:
                grads = self._by_users(call, sums)
            targets, parts = call.targets, call.parts
            arrived: Iterable[tuple[int, Any]] = zip(template.cotangents, grads)
            leads = call.known.leads
            if leads:
                arrived = sorted(arrived, key=lambda each: each[0] != leads)
            for place, g in arrived:
                target = targets[place]
                if target is not None:
                    if g is not None:
                        part = None if parts is None else parts.get(place)
                        self._arrive(target, call.operands[place], part, g)
                    if self.add is not None:
                        self._complete(target)
            del grads
        return []

    def _is_wanted(self, call: Call) -> bool:
        """Whether a result of a call is asked for, or leads to what is."""
        return call in self.leading or any([c is call for c, _ in self.inner])

    def zeros(self, call: Call, index: int) -> Any:
        """The cotangent of a result that no gradient reaches."""
        return call.zeros(index)

    def cotangents(self, call: Call, seeds: Sequence[Any]) -> Sequence[Any]:
        """Those of the operands of a call, by those of its results."""
        return call.backward(seeds)

    def _of(self, t: Any) -> _Sum:
        """What has arrived at a tensor asked for."""
        target = _target(t)
        if target is t:
            return self.found.get(id(t)) or self.sums()
        return self.inner[target.call, target.index]

    def has(self, t: Any) -> bool:
        """Whether a gradient has arrived at a tensor asked for."""
        return self._of(t).value is not None

    def results(self) -> list[Found]:
        """The gradients, each in memory of its own."""
        if self.tensors is None:
            return [(s.leaf, s.own()) for s in self.found.values()]
        return [(t, self._of(t).own() if self.has(t) else None) for t in self.tensors]


class _Sum:
    """A gradient that arrives in parts. leaf: the tensor that it is of, if it is a leaf."""

    __slots__ = ("_is_own", "leaf", "value")

    def __init__(self, leaf: Any = None):
        self.leaf = leaf
        self.value: Any = None
        self._is_own = False

    def add(self, part: tape.Part | None, g: Array) -> None:
        """Add what arrives at a tensor, or at a part of its memory."""
        before: Any = self.value
        if part is not None:
            is_part = self._is_own and g.size < before.size and not part.chain.repeats
            if is_part and before.flags.c_contiguous:  # as the places in memory are
                part.seen_in(before)[...] += g
                return
            g = part.spread(g)
            if before is None and g.base is None:
                self._is_own = True
        if before is None:
            self.value = g
        elif self._is_own:
            before += g
            self.value = before  # NumPy's scalars aren't added to in place
        else:
            self.value = np.asarray(before + g)
            self._is_own = True

    def own(self) -> Array:
        """It, in contiguous memory that nothing else has."""
        value: Any = self.value
        if value.__class__ is not np.ndarray or value.base is not None or not value.flags.carray:
            return np.array(value, order="C")
        # Three references: that of the sum, `value` and the argument.
        alone = self._is_own or getrefcount(value) == 3
        return value if alone else value.copy()


class _TensorSum(_Sum):
    """A gradient that is a tensor, by which gradients flow."""

    __slots__ = ()

    def add(self, part: tape.Part | None, g: Any) -> None:
        if part is not None:
            g = pullbacks.spread(part, g)
        self.value = g if self.value is None else self.value + g

    def own(self) -> Any:
        return self.value


class _DifferentiablePass(_Pass):
    """A pass over the tape with tensors: what it does are calls on the tape."""

    creates_graph = True

    def seed(self, t: Any, g: Any) -> Any:
        seed = super().seed(t, g)
        return volatile.tensor(seed, t.dtype) if g is None else g

    def shown(self, found: _Sum, aval: Any) -> Any:
        return found.value

    def taken(self, seen: Any) -> Any:
        return seen

    def zeros(self, call: Call, index: int) -> Any:
        return of_array(call.zeros(index), call.known.avals[index])

    def knows(self, call: Call) -> bool:
        return call.users is not None or pullbacks.are_known(call)

    def cotangents(self, call: Call, seeds: Sequence[Any]) -> Sequence[Any]:
        if not pullbacks.are_known(call):
            raise _Ended
        return pullbacks.cotangents(call, seeds, self.has_called)


_Pass.sums, _DifferentiablePass.sums = _Sum, _TensorSum


def _is_taped(t: Any) -> bool:
    state = getattr(t, "_storage", None) or t
    return getattr(state, "_history", None).__class__ is Taped


def _target(t: Any) -> Any:
    """Where the gradient of `t` goes."""
    if type(t) is not epoch.tensor_type and type(t) is not epoch.parameter_type:
        raise _Ended
    state = t if t._storage is None else t._storage
    if state._node is not None and not at_once.is_leaf(state):
        raise _Ended
    return tape.target_of(t)


def _targets(call: Call) -> list[Any]:
    return [
        target
        for place in call.known.template.cotangents
        if (target := call.targets[place]) is not None
    ]
