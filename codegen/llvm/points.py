"""A kernel's points: the loops over the parallel axes, and the computation at each point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..kernel import Load
from . import memory, stages
from .body import Body
from .form import STRIDES
from .pieces import write_pieces
from .stages import bind_vector
from .types import Ref, constant
from .updates import update
from .values import evaluate, load_ahead


def write(
    body: Body, point: Callable[[Body], None] | None = None, overlapping: bool = False
) -> None:
    """Fills a function of `args` and `chunk` that computes one chunk of the kernel.

    point: writes the computation at a point of the parallel axes, or at a point for each lane.
    overlapping: whether lanes that would run past the end of the axis go back to end there, so that
    all lanes exist at each step. The axis has at least as many positions as there are lanes.
    """
    point = point or write_point
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
    loop, following = open_rows(body, chunk)
    if not parallel:
        point(body)
    else:
        assert first is not None and last is not None
        if form.cut:
            along, single = partial(_along_lanes, body, point), partial(_one_by_one, body, point)
            write_pieces(body, along, single, first, last)
        elif form.peeled:
            middle = stages.whole_end(body, first, last)
            _along_lanes(body, point, first, middle, whole=True)
            first = middle
        if not form.cut:
            _along_lanes(body, point, first, last, overlapping, overlapping)
    if loop is not None:
        code.close_loop(loop, following())


def may_overlap(body: Body) -> bool:
    """Whether the last lanes of an axis should go back to end with it, so that some points are
    computed twice: lanes some elements apart are slow to read under a mask. The kernel must not
    read what it stores."""
    form, kernel = body.form, body.kernel
    if form.vector not in kernel.parallel or kernel.is_update or form.vector.extent < form.lanes:
        return False
    if any(stages.read_later(body, store) for store in kernel.stores):
        return False
    steps = (v.offset.coefficient(form.vector) for v in kernel.values if isinstance(v, Load))
    return form.vector.extent % form.lanes > 0 and any(s in STRIDES and s != 1 for s in steps)


def _along_lanes(
    body: Body,
    point: Callable[[Body], None],
    first: Ref,
    last: Ref,
    whole: bool,
    overlapping: bool = False,
) -> None:
    """A loop along the parallel axis that lanes run along."""
    code, axis = body.code, body.form.vector
    assert axis is not None
    loop = code.open_loop(first, last, body.lanes, stem=axis.name)
    place = loop.variable
    if overlapping:
        end = code.binary("sub", last, constant(body.lanes, "i64"))
        place = code.intrinsic("smin", [place, end])
    body.bind(axis, place)
    bind_vector(body, axis, place, last, whole)
    point(body)
    body.vector = None
    body.folded.clear()
    code.close_loop(loop)


def _one_by_one(body: Body, point: Callable[[Body], None], first: Ref, last: Ref) -> None:
    """A loop along the axis of the lanes that computes one element a step."""
    code, axis = body.code, body.form.vector
    assert axis is not None
    loop = code.open_loop(first, last, 1, stem=axis.name)
    body.bind(axis, loop.variable)
    body.lanes, lanes = 1, body.lanes
    point(body)
    body.lanes = lanes
    body.folded.clear()
    code.close_loop(loop)


def write_point(body: Body) -> None:
    """Computes all values of one point of the parallel axes, or of a point for each lane."""
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
            update(body, store, value)


def open_rows(body: Body, chunk: Ref):  # type: ignore[no-untyped-def]
    """The loop over a chunk's points of the outer axes, which are counted like an odometer."""
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
