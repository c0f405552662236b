"""Calls of an `autograd.Function` on the tape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.shape import shape_of

from ..recording import clock, epoch, novelty, tape, volatile
from ..recording.epoch import PLACE
from ..recording.families import REMEMBERED
from ..recording.states import Aval
from ..recording.tape import Call
from ..recording.wrapping import of_array


def noted(derivative: Any, inputs: Sequence[Any], outputs: dict[int, Any]) -> dict[int, Any] | None:
    """The differentiable `outputs` of `forward`, by number, as results of a call on the tape; None
    if the call must be recorded. inputs: the tensors among its arguments."""
    if not (clock.taping and volatile.may_compute() and novelty.lasts()):
        return None
    found = [volatile.operand(t, True) for t in inputs]
    if any([each is None for each in found]):
        return None
    arrays, avals, targets = ([*row] for row in zip(*found))  # type: ignore[misc]
    values: dict[int, tuple[Any, Aval]] = {}
    for i, o in outputs.items():
        array = volatile.at_rest(o) if type(o) is epoch.tensor_type else None
        if array is None or array.size > novelty.LARGE:
            return None
        if o._storage is not None or any([array is each for each in arrays]):
            array = np.array(array, order="C")
        values[i] = array, (shape_of(array.shape), o.dtype, "cpu")
    flows = tuple([target is not None for target in targets])
    known = _known(
        tuple(avals), tuple([aval for _, aval in values.values()]), flows, derivative.saves
    )
    call = Call(known, [*inputs], arrays, targets, (), {})
    call.users = derivative
    derivative.values = values
    made = {i: of_array(*each) for i, each in values.items()}
    tape.calling.add(call)
    tape.note(call, [*made.values()])
    novelty.noted.append((hash((derivative.cls, known)), max([a.size for a in arrays])))
    return made


@functools.lru_cache(REMEMBERED)
def _known(
    operands: tuple[Aval, ...], results: tuple[Aval, ...], flows: tuple[bool, ...], saves: bool
) -> _Known:
    return _Known(operands, results, flows, saves)


class _Template:
    """What the tape asks of the template of a Function's call. The call itself looks whether what
    it has saved was written to."""

    operands_read = results_read = ()

    def __init__(self, cotangents: Sequence[int], count: int, reads: bool):
        self.cotangents, self.seeds, self.reads = cotangents, range(count), reads
        self.is_single = count == 1


class _Known:
    """What is known of a call of a Function; see families.Known. flows: which operands have
    gradients. saves: whether its derivative reads what `forward` has saved."""

    leads = 0
    shapes = ()
    writes_in_place = False

    def __init__(
        self,
        operands: tuple[Aval, ...],
        results: tuple[Aval, ...],
        flows: tuple[bool, ...],
        saves: bool,
    ):
        self.operands, self.avals, self.args = operands, results, [PLACE] * len(operands)
        cotangents = [i for i, each in enumerate(flows) if each]
        self.template = _Template(cotangents, len(results), saves)
