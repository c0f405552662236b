"""Outcomes: the effects of a call on its tensors, kept as nodes and repeated without the call.

All tensors that a call can reach have nodes before it begins. Its recording is a function of these
nodes, so one lookup by them finds the nodes of its results and of its in-place writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

from tilewright.ir import node as graph
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

from .. import recording
from ..devices import device as Device
from ..functions.generator import default_generator, signed
from ..recording import epoch
from ..recording.epoch import clock, fallible, handles, mutated, scalars
from ..recording.flushing import BASE_COUNT
from ..recording.roots import source_of
from ..recording.states import Handle
from .guards import Unguarded

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Size, Device)


@dataclass(frozen=True)
class _Tensor:
    """Stands for the `place`-th tensor of a result."""

    place: int


@dataclass(frozen=True)
class Outcome:
    """The effects of a call, by the nodes of the `known` tensors: its arguments and the tensors
    that its code can reach.

    result: the returned value, with `_Tensor` for tensors.
    made: for each of these the place of a known tensor, the node of a new one, or (place, node,
        chain) for a view of a known one.
    written: (place, node, writes) of known tensors. overwritten: nodes whose values were
        overwritten.
    numbers: the numbers that it bound: "seed" or "offset" of the default generator, or (value,).
    fallible: the nodes of calls that can fail.
    """

    result: Any
    made: list[Any]
    written: list[tuple[int, Node, int]]
    overwritten: list[Node]
    numbers: list[Any]
    fallible: list[Node]

    def applies(self, known: Sequence[Any]) -> bool:
        """Whether the written tensors still share their memory with no other."""
        return all(known[place]._storage is None for place, _, _ in self.written)

    def apply(self, known: Sequence[Any]) -> Any:
        """Repeat the effects of the call and return its result."""
        for number in self.numbers:
            if number == "seed":
                scalars.append(signed(default_generator._seed))
            elif number == "offset":
                scalars.append(default_generator._take())
            else:
                scalars.append(number[0])
        for place, node, writes in self.written:
            known[place]._node = node
            known[place]._changes += writes
        mutated.update(self.overwritten)
        for node in self.fallible:
            epoch.add_check(node)
        tensors = []
        for each in self.made:
            if type(each) is int:
                tensors.append(known[each])
            elif type(each) is tuple:
                tensors.append(recording.view_again(known[each[0]], (*each[1:], True)))
            else:
                t = recording.blank()
                t._node = each
                handles.append(t)
                tensors.append(t)
        result = _filled(self.result, tensors)
        recording.settle()
        return result


def observe(call: Callable[[], Any], known: Sequence[Any]) -> tuple[Any, Outcome]:
    """The result of `call`, and its outcome for the present nodes of `known`.

    Raises Unguarded, with the result as `.result`, if the call did something that can't be repeated
    without it.
    """
    before = [_look(t) for t in known]
    nodes, versions = [t._node for t in known], [(t._storage or t)._changes for t in known]
    alone = [t._storage is None for t in known]
    counted, ambient = _counts(), _ambient()
    first, bound, changed = len(handles), len(scalars), set(mutated)
    seed, offset = default_generator._seed, default_generator._offset
    checked = dict(fallible)
    before_observing = clock.observing
    clock.change(observing=True)
    try:
        result = call()
    finally:
        clock.change(observing=before_observing)
    failing = [n for n, times in fallible.items() if checked.get(n) != times]
    try:
        if counted != _counts():
            raise Unguarded("it does more than record calls on tensors: it reads a value, makes a "
                            "tensor of host data, or goes backward")  # fmt: skip
        if ambient != _ambient():
            raise Unguarded("it leaves the grad mode or the default dtype changed")
        if before != [_look(t) for t in known]:
            raise Unguarded("it changes more of a tensor than its value")
        numbers = [_number(i) for i in range(bound, len(scalars))]
        taken = (default_generator._seed, default_generator._offset - offset)
        if taken != (seed, numbers.count("offset")) or "another's" in numbers:
            raise Unguarded("it seeds a random generator, or draws from one of its own")
        written: list[tuple[int, Node, int]] = []
        seen: set[int] = set()
        for place, t in enumerate(known):
            if id(t) in seen:  # an argument that the code can also reach another way
                continue
            seen.add(id(t))
            state = t._storage or t
            writes = state._changes - versions[place]
            if not writes and (state._node is nodes[place] or not alone[place]):
                continue
            if not alone[place]:
                raise Unguarded("it writes to memory that several tensors share")
            written.append((place, state._node, writes))
        tensors: list[Any] = []
        shape = _emptied(result, tensors)
        made = _made(tensors, known, alone)
        allowed = {id(t) for t in (*known, *tensors)}
        counts = list(map(getrefcount, handles))
        for t, count in zip(handles[first:], counts[first:], strict=True):
            if count > BASE_COUNT + 1 and id(t) not in allowed:  # one reference is the slice's
                raise Unguarded("it keeps a tensor that it doesn't return")
        overwritten = [n for n in mutated if n not in changed]
        return result, Outcome(shape, made, written, overwritten, numbers, failing)
    except Unguarded as reason:
        reason.result = result
        raise


def _number(place: int) -> Any:
    """The scalar at `place`, as in `Outcome.numbers`."""
    what, generator = epoch.drawn.get(place, (None, None))
    if what is None:
        return (scalars[place],)
    return what if generator is default_generator else "another's"


def _look(t: Any) -> tuple[Any, ...]:
    """The state of a tensor that a call must not change: all but the value."""
    objects = (t._grad, t._hooks, t._post_hooks, t._history, source_of(t), t._chain)
    buffer = (t._storage or t)._buffer
    return (t._typed(), t._requires_grad, id(buffer), *map(id, objects))


def _counts() -> tuple[int, ...]:
    lengths = [len(epoch.leaves), len(epoch.variables), len(epoch.contexts), len(epoch.hooked)]
    return (clock.number, clock.effects, len(epoch.freed), *lengths)


def _ambient() -> tuple[Any, ...]:
    return graph.grad_enabled(), clock.casts, recording.default_dtype()


def _made(tensors: list[Any], known: Sequence[Any], alone: Sequence[bool]) -> list[Any]:
    """The origin of each tensor of a result, as in `Outcome.made`."""
    places = {id(t): i for i, t in reversed(list(enumerate(known)))}
    bases = {id(t._storage): i for i, t in enumerate(known) if t._storage is not None}
    made: list[Any] = []
    for t in tensors:
        storage = t._storage
        if id(t) in places:
            made.append(places[id(t)])
        elif type(t) is not epoch.tensor_type or t._node is None or source_of(t) is not None:
            raise Unguarded("it returns a tensor that no call on tensors made")
        elif storage is None:
            made.append(t._node)
        elif id(storage) in bases:
            place = bases[id(storage)]
            if not alone[place]:
                raise Unguarded("it returns a view of a view")
            made.append((place, t._node, t._chain))
        elif sum(other._storage is storage for other in tensors) > 1:
            raise Unguarded("it returns tensors that share memory")
        else:  # a new tensor with memory of its own
            made.append(t._node)
    return made


def _emptied(value: Any, tensors: list[Any]) -> Any:
    """`value` with stand-ins for its tensors, which are moved to `tensors`, each once."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, Handle):
        for i, t in enumerate(tensors):
            if t is value:
                return _Tensor(i)
        tensors.append(value)
        return _Tensor(len(tensors) - 1)
    if kind in (tuple, list):
        return kind(_emptied(v, tensors) for v in value)
    if kind is dict and all(type(k) in PLAIN for k in value):
        return {k: _emptied(v, tensors) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*[_emptied(v, tensors) for v in value])
    raise Unguarded(f"it returns a {kind.__name__}")


def _filled(value: Any, tensors: list[Any]) -> Any:
    """The inverse of `_emptied`."""
    kind = type(value)
    if kind is _Tensor:
        return tensors[value.place]
    if kind in PLAIN:
        return value
    if kind is dict:
        return {k: _filled(v, tensors) for k, v in value.items()}
    if kind in (tuple, list):
        return kind([_filled(v, tensors) for v in value])
    return kind(*[_filled(v, tensors) for v in value])
