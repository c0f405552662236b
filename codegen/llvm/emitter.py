"""The writer of a kernel as one LLVM function that computes one chunk of it.

    void kernel(i64* args, i64 chunk)

Chunks of a phase are independent and may run in any order, on any thread; most kernels have one
phase. Sizes are arguments, so kernels of one structure share their code.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tilewright.ir.dtype import NARROW
from tilewright.ir.node import format_location
from tilewright.ir.op import Fold

from ..kernel import Dot, Kernel, Scan
from ..kernel.attention import roles
from ..kernel.index import Check
from . import attention, columns, conv, points, sorting, turned
from .arguments import Word
from .body import Body
from .code import module_text
from .dot import tiling, write
from .form import Form, form_of
from .machine import CannotLower, Machine
from .phases import Written
from .schedule import DEFAULT, Schedule
from .values import evaluate


@dataclass(frozen=True)
class Emitted:
    """A kernel as LLVM IR.

    code: the function, called `kernel`, and the functions it calls. notes: a comment with the
    user's lines. words: the arguments in order. phases: the number of chunks in each; a phase
    begins when the one before has ended. workspace: bytes of memory that a launch needs. prepared:
    the inputs that the first phase reads, if its results stay valid as long as these and the
    workspace stay the same.
    """

    name: str
    code: str
    notes: str
    words: tuple[Word, ...]
    checks: tuple[Check, ...]
    phases: tuple[int, ...]
    workspace: int = 0
    prepared: frozenset[int] | None = None

    @property
    def chunks(self) -> int:
        return sum(self.phases)

    @cached_property
    def sha(self) -> str:
        """The hash of the code, independent of the user's lines."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:32]

    @property
    def source(self) -> str:
        return self.notes + self.code


def emit(
    kernel: Kernel, machine: Machine, like: Form | None = None, schedule: Schedule = DEFAULT
) -> Emitted:
    """The kernel for a machine. CannotLower if this emitter doesn't know a part of it.

    like: a form whose lanes and loops the kernel takes if it can, to share that code.
    """
    _check(kernel)
    parts = roles(kernel)
    if parts is not None:
        body = Body(kernel, machine, attention.form_of(kernel, parts, machine, schedule), evaluate)
        return _emitted(kernel, machine, attention.write(body, parts, schedule))
    across = columns.plan(kernel, machine, schedule) if like is None else None
    if across is not None:
        return _emitted(kernel, machine, columns.write(kernel, machine, across))
    sort = sorting.sort_of(kernel)
    if sort is not None:
        if like is not None:
            raise CannotLower("sorting in a bundle, which has no workspace")
        return _emitted(kernel, machine, sorting.write(kernel, machine, sort, schedule))
    if kernel.is_chained:
        raise CannotLower("folds over some of the reduction axes that are not those of attention")
    form = form_of(kernel, machine, like, schedule)
    windows = conv.plan(kernel) if like is None else None
    if windows is not None:
        return _emitted(kernel, machine, conv.write(kernel, machine, windows, schedule))
    cut = tiling(kernel, machine, schedule) if like is None else None
    if cut is not None:
        return _emitted(kernel, machine, write(kernel, machine, cut))
    if any(isinstance(v, Dot) and v.segment is not None for v in kernel.values):
        raise CannotLower("products in groups that no tiles suit are left to BLAS")
    turn = turned.turn_of(kernel, machine) if like is None and turned.is_plain(kernel) else None
    if turn is not None:
        form = turn.form
    body = Body(kernel, machine, form, evaluate)
    if turn is not None:
        turned.write(body, turn.across)
    else:
        points.write(body, overlapping=points.may_overlap(body))
    text = module_text([body.code])
    return _emitted(kernel, machine, Written(text, body.arguments, (form.chunks(kernel),)))


def _emitted(kernel: Kernel, machine: Machine, written: Written) -> Emitted:
    code = written.text + machine.attributes
    prepared = written.prepared
    places = {b: i for i, b in enumerate(kernel.inputs)}
    notes = "".join(f"; {op} {format_location((file, line))}\n" for op, file, line in kernel.notes)
    return Emitted(
        kernel.name,
        code,
        f"; kernel {kernel.name}\n{notes}",
        tuple(written.arguments.words),
        tuple(written.arguments.checks),
        written.phases,
        written.workspace,
        None if prepared is None else frozenset(places[b] for b in prepared),
    )


def _check(kernel: Kernel) -> None:
    for value in kernel.values:
        if isinstance(value, Scan) and value.op is Fold.LOGSUMEXP:
            raise CannotLower("running sums of exponentials")
    for store in kernel.stores:
        dtype = store.buffer.dtype
        if store.mode not in (None, "set") and dtype in NARROW:
            raise CannotLower("updates of halves, which are summed in float32")
