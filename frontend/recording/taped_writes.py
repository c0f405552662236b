"""Writes on the tape: memory is changed at once where gradients flow into the part that is written,
or through the rest.

A write is a call like others: of the memory as it was and of the value, it makes the memory as it
is. The gradient of the memory goes on to what it was, zero where it was overwritten, and to the
value. Its derivative reads no values, so the memory itself is changed, in place.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

from . import at_once, epoch, novelty, tape, views
from .builders import builder
from .epoch import PLACE, clock
from .states import Aval
from .tape import Call
from .writes import with_history

Array = np.ndarray


def written(t: Any, value: Any, source: Array, target: Any) -> bool:
    """Whether `value`, a tensor, was written to all of `t` at once, with a history. `t` must be one
    that `may_write`. source: the array of the value. target: where its gradient goes, or None."""
    storage = t._storage
    before = storage._history
    if (target is None and before is None) or not _fits(source.shape, t.shape):
        return False
    if value._storage is storage:
        source = source.copy()
    known = _known(storage._aval, t._chain, source.shape, before is not None, target is not None)
    base = object.__new__(epoch.tensor_type)  # the memory as it was
    base._storage, base._aval = storage, storage._aval
    call = Call(known, [base, value], [None, source], [before, target], (), {})
    views.seen_in(_own(storage), t._chain)[...] = source  # type: ignore[index]
    storage._changes += 1
    storage._writes += 1
    call.results = [(weakref.ref(base), storage._changes, storage._rewrites)]
    storage._history = tape.Taped(call, 0)
    novelty.noted.append(known.noted)
    return True


def may_write(t: Any) -> bool:
    """Whether a write to the view or the viewed tensor `t` may go on the tape."""
    storage, chain = t._storage, t._chain
    if storage is None or type(t) is not epoch.tensor_type or not at_once.may_compute():
        return False
    if not (clock.volatile and clock.taping and graph.grad_enabled()) or epoch.hooked:
        return False
    if storage._shared is not None or (storage._node is not None and not at_once.fill(storage)):
        return False
    if t._node is not None:
        return False
    if storage._requires_grad or storage._buffer.__class__ is not np.ndarray:
        return False
    if t._requires_grad or t._history is not None or t._root is not None or tape.is_watched(t):
        return False
    if epoch.inferred and storage._changes is epoch.untracked:
        return False  # a tensor of inference mode
    if storage._aval is None or storage._aval[2] != "cpu":
        return False
    if chain is None:
        return True
    plain = chain.layout is not None and not (chain.retypes or chain.repeats or chain.detaches)
    return plain and chain.multiple is None and not chain.is_untracked


def _fits(given: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a value of one shape can be written to a tensor of another."""
    beside = zip(reversed(given), reversed(shape))
    return len(given) <= len(shape) and all(n in (1, m) for n, m in beside)


def _own(storage: Any) -> Array:
    """The memory of a storage, of its own from now on: calls on the tape may have the old one."""
    buffer = at_once.own(storage)
    if buffer is None or not buffer.flags.c_contiguous:  # views tell places in contiguous memory
        buffer = storage._buffer = np.array(storage._buffer, order="C")
    return buffer


@builder("copy_", gradient="CopySlices")
def _replaced(base: Node, value: Node, chain: views.Chain | None, shape: Size) -> Node:
    """`base` with the part of this shape that the chain shows replaced by `value`."""
    new = with_history(base, views.write(base, chain, ops.expand(value, shape)))
    if new.requires_grad and chain is not None:
        new.memo["written"] = True
    return new


@functools.lru_cache(4096)
def _known(aval: Aval, chain: Any, given: tuple[int, ...], *flows: bool) -> _Write:
    return _Write(aval, chain, given, flows)


class _Template:
    """What the tape asks of the template of a write. The derivative reads no values, but a second
    backward pass is an error, as in PyTorch."""

    reads = True
    operands_read = results_read = ()
    seeds, is_single = (0,), True

    def __init__(self, cotangents: Sequence[int]):
        self.cotangents = cotangents


class _Write:
    """What is known of a write: see families.Known.

    aval: of the memory. chain: how the part looks at it. given: the shape of the value. flows:
    whether the memory as it was, and the value, have gradients.
    """

    leads = 0
    shapes = ()
    writes_in_place = True

    def __init__(self, aval: Aval, chain: Any, given: tuple[int, ...], flows: Sequence[bool]):
        dtype: DType = aval[1]
        shape = aval[0] if chain is None else Size(chain.layout[0])
        self.build, self.args = _replaced, [PLACE, PLACE, chain, shape]
        self.operands, self.avals = [aval, (Size(given), dtype, "cpu")], [aval]
        self.template = _Template([i for i in (0, 1) if flows[i]])
        self.noted = hash((_replaced, aval, chain, given)), max(views.numel(shape), 1)
        self._chain, self._given = chain, given

    def backward(self, kept: Any, seeds: Sequence[Array], stages: Any) -> list[Array]:
        """The cotangents of the memory as it was and of the value, by that of what it is."""
        g = np.asarray(seeds[0], order="C")
        found = []
        for place in self.template.cotangents:
            if place:
                found.append(_summed(views.seen_in(g, self._chain), self._given))
            else:
                rest = g.copy()
                views.seen_in(rest, self._chain)[...] = 0  # type: ignore[index]
                found.append(rest)
        return found


def _summed(g: Any, shape: tuple[int, ...]) -> Array:
    """The sum over what a value of this shape was broadcast to, in memory of its own."""
    lead = g.ndim - len(shape)
    axes = (*range(lead), *[lead + i for i, n in enumerate(shape) if n != g.shape[lead + i]])
    return np.array(g.sum(axes).reshape(shape) if axes else g)
