"""Derivatives of calls on the tape as calls on the tape: what `create_graph` asks for.

The derivative of a call is a call itself, of the call's operands and the cotangents of its results.
Its builder differentiates that of the call. So it has a family, a template and a derivative like
all other calls, and derivatives of any order come from this one rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.rewrite import substitute
from tilewright.ir.shape import Size
from tilewright.runtime.baseline.step_forms import Untold

from ..recording import novelty, record, tape, views, volatile
from ..recording.builders import takes_sizes
from ..recording.epoch import PLACE
from ..recording.families import REMEMBERED, Number
from ..recording.rounding import rounded_once
from ..recording.tape import Array, Call, Part, Refused
from ..recording.wrapping import of_array


def are_known(call: Call) -> bool:
    """Whether the cotangents of a call can be made: not of a write in place, or if an operand that
    is needed was overwritten since."""
    if call.known.__class__ is _Placed:
        return True
    if call.known.writes_in_place:
        return False
    for i in _needed(call):
        t, count = call.operands[i], call.counts[i]
        if count is not None and (tape.counts(t) != count or _is_copy(t)):
            return False
    return True


def _needed(call: Call) -> Sequence[int]:
    """The operands whose values the derivative of a call is computed from."""
    template, count = call.known.template, len(call.operands)
    reads_inside = template.reads and max(template.reads) >= count + len(call.results)
    return range(count) if reads_inside else template.operands_read


def _is_copy(t: Any) -> bool:
    """Whether a tensor stands for a view that was overwritten since."""
    return t._chain is not None and t._storage is None


def cotangents(call: Call, seeds: Sequence[Any], must: bool) -> Sequence[Any]:
    """The cotangents of the operands `template.cotangents` as tensors, by those of the results
    `template.seeds`, if they `are_known`. must: whether they are recorded where they can't be
    computed at once; if not, Refused."""
    known = call.known
    if known.__class__ is _Placed:
        return (_placed(*known.turned, seeds[0]),)
    template, count, needed = known.template, len(call.operands), _needed(call)
    operands, arrays, targets, avals = [], [], [], []
    for i, operand in enumerate(call.operands):
        array, target = call.arrays[i], call.targets[i]
        if call.counts[i] is not None and i not in needed:
            operand, target = of_array(array, known.operands[i]), None  # for its shape alone
        operands.append(operand)
        arrays.append(array)
        targets.append(target)
        avals.append(known.operands[i])
    for i in template.results_read:
        t = call.result(i)
        operands.append(t)
        arrays.append(t._buffer)
        targets.append(t._history)
        avals.append(t._aval)
    said = template.cotangents, template.results_read, template.seeds
    build = _derivative(known.build, count, *map(tuple, said), *known.args)
    if known.build in takes_sizes:
        takes_sizes.add(build)
    operands += seeds
    found = [volatile.operand(seed, True) for seed in seeds]
    sizes, made = known.shapes[count:], None
    if all([each is not None for each in found]):
        for row, of_seeds in zip((arrays, avals, targets), zip(*found)):  # type: ignore[arg-type]
            row += of_seeds
        made = volatile.called(build, operands, arrays, avals, targets, sizes)
    if made is None and must:
        made = _recorded(build, operands, avals, sizes)
    if made is None:
        raise Refused
    return made if made.__class__ is tuple else (made,)


def _recorded(
    build: Callable[..., Any], operands: Sequence[Any], avals: Sequence[Any], sizes: Sequence[Any]
) -> Any:
    """The results of a call, which is recorded. avals: of the first operands, among which all are
    that are no tensors."""
    args = [*operands]
    for i, (operand, (_, dtype, _)) in enumerate(zip(operands, avals)):
        if operand.__class__ is np.ndarray:
            args[i] = constant(operand[()], dtype)
        elif operand.__class__ is Number:
            args[i] = operand.constant
    with novelty.recorded():
        return record(build, *args, *sizes)


@functools.lru_cache(REMEMBERED, typed=True)
def _derivative(
    build: Callable[..., Any],
    count: int,
    places: tuple[int, ...],
    read: tuple[int, ...],
    seeds: tuple[int, ...],
    *args: Any,
) -> Callable[..., Any]:
    """The builder of the derivative of calls of `build`: of `count` operands, the results `read`,
    the cotangents of the results `seeds` and the sizes among the arguments, if there are any. It
    makes the cotangents of the operands `places`. args: see families.Called."""
    rest = count + len(read)

    def derivative(*given: Any) -> Any:
        operands, known = given[:count], given[count:rest]
        sizes = given[rest + len(seeds) :]
        with graph.grad_mode(True):
            variables = {i: ops.variable(operands[i], i) for i in places}
            own = iter([variables.get(i, o) for i, o in enumerate(operands)])
            made = rounded_once(build, [*[next(own) if a is PLACE else a for a in args], *sizes])
            results = (made,) if made.__class__ is Node else tuple(made)
            if len({*results}) < len(results):  # their cotangents can't be told apart
                raise Untold
            ends = {results[i]: g for i, g in zip(seeds, given[rest:])}
            found = pullback(ends, variables.values(), stops=variables.values(), create_graph=True)
            if len(found) < len(places):
                raise Untold
        grads = [found[variables[i]] for i in places]
        # Gradients go on through the results that it reads, where hooks of these see them.
        instead = {results[i]: t for i, t in zip(read, known)}
        grads = substitute(grads, {**instead, **{v: operands[i] for i, v in variables.items()}})
        told: dict[Node, None] = {}
        for g in grads:  # each a result of its own
            while g in told or g in given:
                g = ops.clone(g)
            told[g] = None
        return tuple(told) if len(told) > 1 else next(iter(told))

    return derivative


def spread(part: Part, g: Any) -> Any:
    """The gradient of the memory of a view as a tensor, by that of the view."""
    return _placed(part.chain, tuple(part.shape), True, g)


def _placed(chain: views.Chain, shape: tuple[int, ...], spreads: bool, t: Any) -> Any:
    """The part of the memory `t` that a view shows; or a tensor of memory with the part `t`, which
    is zero elsewhere, if it `spreads`."""
    found = volatile.operand(t, True)
    if found is None:
        with novelty.recorded():
            return record(_spread_nodes if spreads else _seen_nodes, t, chain, shape)
    array, aval, target = found
    known = _known(chain, shape, aval, spreads)
    made = of_array(known.made(array), known.avals[0])
    novelty.noted.append(known.noted)
    if target is not None:
        tape.note(Call(known, [t], [array], [target], (), {}), (made,))
    return made


@functools.lru_cache(REMEMBERED)
def _known(chain: views.Chain, shape: tuple[int, ...], aval: Any, spreads: bool) -> _Placed:
    return _Placed(chain, shape, aval, spreads)


class _Template:
    """What the tape asks of the template of a linear call of one operand, whose derivative reads
    nothing."""

    reads = operands_read = results_read = ()
    seeds = cotangents = (0,)
    is_single = True


class _Placed:
    """What is known of a call that takes a part of memory, or puts one in its place; see
    families.Known. Each is the derivative of the other. aval: of its operand."""

    leads = 0
    shapes = ()
    writes_in_place = False
    template = _Template()

    def __init__(self, chain: views.Chain, shape: tuple[int, ...], aval: Any, spreads: bool):
        self.build = _spread_nodes if spreads else _seen_nodes
        self.args = [PLACE, chain, shape]
        self._chain, self._shape, self._spreads = chain, shape, spreads
        self._part = Part.of(chain, shape)
        made = Size(shape if spreads else chain.layout[0])  # type: ignore[index]
        self.operands, self.avals = [aval], [(made, aval[1], "cpu")]
        self.noted = hash((self.build, chain, shape)), max(views.numel(shape), 1)

    def made(self, array: Array) -> Array:
        part = self._part
        return np.array(part.spread(array) if self._spreads else part.seen_in(array), order="C")

    def backward(self, kept: Any, seeds: Sequence[Array], stages: Any) -> list[Array]:
        part, (g,) = self._part, seeds
        return [part.seen_in(np.asarray(g, order="C")) if self._spreads else part.spread(g)]

    @property
    def turned(self) -> tuple[views.Chain, tuple[int, ...], bool]:
        """What makes the cotangent of the operand of that of the result; see `_placed`."""
        return self._chain, self._shape, not self._spreads


def _seen_nodes(base: Node, chain: views.Chain, shape: tuple[int, ...]) -> Node:
    return views.apply(base, chain)


def _spread_nodes(g: Node, chain: views.Chain, shape: tuple[int, ...]) -> Node:
    with graph.grad_mode(True):
        base = ops.variable(ops.expand(constant(0, g.dtype), Size(shape)), 0)
        found = pullback({views.apply(base, chain): g}, (base,), stops=(base,), create_graph=True)
    (made,) = substitute([found[base]], {})
    return made
