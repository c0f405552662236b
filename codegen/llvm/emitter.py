"""Writes a kernel as one LLVM function that computes one chunk of it.

    void kernel(i64* args, i64 chunk)

Chunks of a phase are independent and may run in any order, on any thread; most kernels have one
phase. Sizes are arguments, so kernels of one structure share their code.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tilewright.ir.node import format_location

from ..attention import roles
from ..kernel import Kernel, Sort
from . import attention, memory, stages
from .arguments import Check, Word
from .body import Body
from .code import module_text
from .dot import tiling, write
from .form import Form, form_of
from .machine import CannotLower, Machine
from .phases import Written
from .stages import bind_vector
from .types import Ref, constant
from .values import evaluate, load_ahead

METADATA = """!0 = !{!"branch_weights", i32 1, i32 100000}
!1 = !{!"branch_weights", i32 1000, i32 1}
"""


@dataclass(frozen=True)
class Emitted:
    """A kernel as LLVM IR.

    code: the function, called `kernel`, and what it calls. notes: a comment with the user's lines.
    words: what the arguments are, in order. phases: how many chunks each has; a phase begins when
    the one before has ended. workspace: bytes of memory that a launch needs.
    """

    name: str
    code: str
    notes: str
    words: tuple[Word, ...]
    checks: tuple[Check, ...]
    phases: tuple[int, ...]
    form: Form
    workspace: int = 0

    @property
    def chunks(self) -> int:
        return sum(self.phases)

    @cached_property
    def sha(self) -> str:
        """The hash of the code, whoever's lines it came from."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:32]

    @property
    def source(self) -> str:
        return self.notes + self.code


def emit(kernel: Kernel, machine: Machine, like: Form | None = None) -> Emitted:
    """The kernel for a machine; CannotLower if it has a part that this emitter doesn't know.

    like: a form whose lanes and loops it should have, if it can, to share its code.
    """
    _check(kernel)
    parts = roles(kernel)
    if parts is not None:
        body = Body(kernel, machine, attention.form_of(kernel, parts, machine))
        return _emitted(kernel, machine, body.form, attention.write(body, parts))
    if kernel.is_chained:
        raise CannotLower("folds over some of the reduction axes that are not those of attention")
    form = form_of(kernel, machine, like)
    cut = tiling(kernel, machine) if like is None else None
    if cut is not None:
        return _emitted(kernel, machine, form, write(kernel, machine, cut))
    body = Body(kernel, machine, form)
    _write(body)
    text = module_text([body.code])
    return _emitted(kernel, machine, form, Written(text, body.arguments, (form.chunks(kernel),)))


def _emitted(kernel: Kernel, machine: Machine, form: Form, written: Written) -> Emitted:
    code = written.text + machine.attributes + METADATA
    notes = "".join(f"; {op} {format_location((file, line))}\n" for op, file, line in kernel.notes)
    return Emitted(
        kernel.name,
        code,
        f"; kernel {kernel.name}\n{notes}",
        tuple(written.arguments.words),
        tuple(written.arguments.checks),
        written.phases,
        form,
        written.workspace,
    )


def _check(kernel: Kernel) -> None:
    for value in kernel.values:
        if isinstance(value, Sort):
            raise CannotLower("sorting")
    for store in kernel.stores:
        dtype = store.buffer.dtype
        if store.mode not in (None, "set") and dtype.is_floating_point and dtype.itemsize == 2:
            raise CannotLower("updates of halves, which are summed in float32")


def _write(body: Body) -> None:
    code, form, kernel = body.code, body.form, body.kernel
    parallel = form.vector in kernel.parallel
    chunk = Ref("%chunk", "i64")
    first = last = None
    if parallel:
        assert form.vector is not None
        extent = body.extent(form.vector)
        pieces = body.size(-(-form.vector.extent // form.block), "pieces", baked=False)
        piece = code.binary("urem", chunk, pieces)
        chunk = code.binary("udiv", chunk, pieces)
        block = body.size(form.block, "block", baked=False)
        first = code.binary("mul", piece, block)
        last = code.intrinsic("smin", [code.binary("add", first, block), extent])
    loop, following = _open_rows(body, chunk)
    if not parallel:
        _row(body)
    else:
        assert first is not None and last is not None
        if form.peeled:
            middle = stages.whole_end(body, first, last)
            _along_lanes(body, first, middle, whole=True)
            first = middle
        _along_lanes(body, first, last, whole=False)
    if loop is not None:
        code.close_loop(loop, following())


def _along_lanes(body: Body, first: Ref, last: Ref, whole: bool) -> None:
    """A loop along the parallel axis that lanes run along."""
    code, axis = body.code, body.form.vector
    assert axis is not None
    loop = code.open_loop(first, last, body.lanes, stem=axis.name)
    body.bind(axis, loop.variable)
    bind_vector(body, axis, loop.variable, last, whole)
    _row(body)
    body.vector = None
    body.folded.clear()
    code.close_loop(loop)


def _row(body: Body) -> None:
    """Everything for one point of the parallel axes, or for as many as there are lanes."""
    body.row_level = body.code.level.depth
    for stage in stages.stages_of(body):
        stages.run(body, stage)
    once = [s for s in body.kernel.stores if not stages.is_full(body, s)]
    load_ahead(body, [s.value for s in once])
    values = [(s, evaluate(body, s.value)) for s in once]
    plain = [(s, v) for s, v in values if s.mode is None]
    if plain:
        memory.store(body, plain)
    for store, value in values:
        if store.mode is not None:
            memory.update(body, store, value)


def _open_rows(body: Body, chunk: Ref):  # type: ignore[no-untyped-def]
    """The loop over this chunk's points of the outer axes, which are counted like an odometer."""
    code, outer = body.code, body.form.outer
    if not outer:
        return None, None
    total = 1
    for axis in outer:
        total *= axis.extent
    rows = body.size(body.form.rows, "rows", baked=False)
    start = code.binary("mul", chunk, rows)
    count = body.size(total, "points", baked=False)
    stop = code.intrinsic("smin", [code.binary("add", start, rows), count])
    if len(outer) == 1:
        loop = code.open_loop(start, stop, 1, stem=outer[0].name)
        body.bind(outer[0], loop.variable)
        return loop, lambda: []
    extents = [body.extent(a) for a in outer]
    places: list[Ref] = []
    rest = start
    for extent in reversed(extents[1:]):
        places.append(code.binary("urem", rest, extent))
        rest = code.binary("udiv", rest, extent)
    places.append(rest)
    loop = code.open_loop(start, stop, 1, places[::-1], stem="row")
    now = [phi for phi, _ in loop.carried]
    for axis, place in zip(outer, now):
        body.bind(axis, place)

    def following() -> list[Ref]:
        carry = constant(True, "i1")
        out: list[Ref] = []
        for place, extent in zip(now[::-1], extents[::-1]):
            more = code.binary("add", place, code.convert("zext", carry, "i64"))
            carry = code.compare("icmp eq", more, extent)
            out.append(code.select(carry, constant(0, "i64"), more))
        return out[::-1]

    return loop, following
