"""Native Fourier transforms of arrays on the host (codegen/llvm/fourier.py).

`ir/numeric/fourier.py` asks for them here and has SciPy compute what `serves` refuses: few, short
lines, and long ones whose size has other prime factors than 2, 3 and 5.

A long line is cut into rows and columns: its columns are transformed and turned, then its rows,
whose results go to the columns of the output (Bailey, "FFTs in external or hierarchical memory",
1990). So all of what a pass reads stays in the cache, and the lanes have neighbours to transform.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.codegen.llvm import mixing
from tilewright.codegen.llvm.butterflies import RADICES
from tilewright.codegen.llvm.fourier import NUMBERS, emit, emit_series
from tilewright.codegen.llvm.lines import Form, Line, Way

from . import host, jit

LONG = 1 << 16
"""Bytes of a line from which it is cut."""
CONVOLVED = 1 << 12
"""The largest size with other prime factors: those of more lines don't fit in the cache."""
WORTH = 1 << 16
"""The least elements of a thread's part."""
_KIND = {"F": "float", "D": "double", "f": "float", "d": "double"}
_COMPLEX = {"float": np.complex64, "double": np.complex128}
_REAL = {"float": np.float32, "double": np.float64}
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_SERIES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)


@functools.cache
def passes(size: int) -> tuple[int, ...] | None:
    """The number of passes of each radix; None if a size has other prime factors."""
    count = dict.fromkeys(RADICES, 0)
    for prime in (5, 3, 2):
        while size % prime == 0:
            size //= prime
            count[prime] += 1
    if size > 1:
        return None
    twos = count[2]
    # 16 is 4 * 4, not 8 * 2.
    count[8], count[4], count[2] = {
        0: (twos // 3, 0, 0),
        1: (twos // 3 - 1, 2, 0) if twos > 1 else (0, 0, 1),
        2: (twos // 3, 1, 0),
    }[twos % 3]
    return tuple(count[r] for r in RADICES)


@functools.lru_cache(64)
def _tables(size: int, kind: str) -> Any:
    """The factors of all passes, one after another."""
    counts = passes(size)
    assert counts is not None
    parts, left = [np.zeros(0, np.complex128)], size
    for radix, count in zip(RADICES, counts, strict=True):
        for _ in range(count):
            powers = np.arange(left // radix)[:, None] * np.arange(1, radix)
            parts.append(_roots(powers, left).reshape(-1))
            left //= radix
    return np.concatenate(parts).astype(_COMPLEX[kind])


@functools.cache
def _longer(size: int) -> int:
    """The size of the convolution that stands for a transform."""
    return next(n for n in range(2 * size - 1, 4 * size) if passes(n) is not None)


@functools.lru_cache(32)
def _chirp(size: int, kind: str) -> Any:
    """The table of a form that convolves, with the factor of the inverse transform. What a tile has
    too much reads behind its end."""
    longer = _longer(size)
    numbers = _roots(np.arange(size) ** 2, 2 * size)
    filter = np.zeros(longer, np.complex128)
    filter[:size] = numbers.conj()
    filter[longer - size + 1 :] = numbers[:0:-1].conj()
    table = np.zeros(2 * longer + 64, np.complex128)
    table[:size] = numbers
    table[longer : 2 * longer] = np.fft.fft(filter) / longer
    return table.astype(_COMPLEX[kind])


@functools.lru_cache(8)
def _turns(rows: int, columns: int, kind: str) -> Any:
    """[rows, columns]: exp(-2 pi i row column / (rows columns))."""
    return _roots(np.arange(rows)[:, None] * np.arange(columns), rows * columns).astype(
        _COMPLEX[kind]
    )


def _roots(powers: Any, size: int) -> Any:
    return np.exp(powers % size * (-2j * math.pi / size))


@functools.cache
def _kernel(form: Form) -> Any:
    """The kernel of a form, as it was linked. Its address is that of `kernel`."""
    return jit.link(emit(form, host.machine()), "kernel")


@functools.cache
def _mixing(kind: str, inverse: bool) -> Any:
    return jit.link(mixing.emit(kind, inverse, host.machine()), "kernel")


@functools.cache
def _series() -> Any:
    return jit.link(emit_series(host.machine()), "kernel")


@dataclass(frozen=True)
class _Strides:
    """How lines lie in an array, counted in its elements."""

    outer: int
    line: int
    step: int


@dataclass(frozen=True)
class _Stage:
    """A kernel that runs in each outer place. source, target: an array, or the number of the memory
    between stages. tables: of the passes, and of the turns. blocks: those of an outer place. work:
    the bytes to work in."""

    code: Any
    source: Any
    target: Any
    tables: tuple[Any, Any]
    numbers: tuple[int, ...]
    blocks: int
    work: int = 0

    @property
    def address(self) -> int:
        return int(self.code.addresses["kernel"])

    def words(self, between: Sequence[Any], work: Any) -> Any:
        arrays = [between[x] if isinstance(x, int) else x for x in (self.source, self.target)]
        arrays += [work, *self.tables]
        places = [0 if x is None else x.ctypes.data for x in arrays]
        return np.array([*places, *self.numbers], np.int64)

    def run(self, between: Sequence[Any], first: int, last: int) -> None:
        """Compute some blocks."""
        work = _aligned(self.work)
        words = self.words(between, work)
        _KERNEL(self.address)(words.ctypes.data, first, last)


def _aligned(size: int) -> Any:
    """Memory at a multiple of 64 bytes."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _stage(
    form: Form,
    source: Any,
    target: Any,
    size: int,
    lines: int,
    read: _Strides,
    write: _Strides,
    inverse: bool,
    factor: float,
    turns: Any = None,
) -> _Stage:
    """The transform of so many lines in each outer place."""
    length, counts = size, passes(size)
    if counts is None:
        form, turns, size = replace(form, convolves=True), _chirp(size, form.kind), _longer(size)
        counts = passes(size)
        assert counts is not None
    machine = host.machine()
    blocks, lanes = -(-lines // form.lines(machine)), form.lanes(machine)
    known = {
        "factor": int(np.float64(factor).view(np.int64)),
        "size": size,
        "length": length,
        "blocks": blocks,
        "lines": lines,
        "inverse": int(inverse),
    }
    for name, strides in (("read", read), ("write", write)):
        known |= {f"{name}_{way}": getattr(strides, way) for way in ("outer", "line", "step")}
    return _Stage(
        _kernel(form),
        source,
        target,
        (_tables(size, form.kind), turns),
        (*(known[name] for name in NUMBERS), *counts),
        blocks,
        4 * (size + lanes) * lanes * form.itemsize,
    )


def _run(stages: Sequence[_Stage], outer: int, elements: int, between: Sequence[int] = ()) -> None:
    """Run stages one after another in each outer place, on several threads where that is worth it.
    elements: of all places. between: the bytes of each memory between the stages."""
    from .pool import num_threads

    threads = max(min(num_threads(), elements // WORTH), 1)
    if len(stages) > 1 and outer >= threads:  # what is between the stages stays in the cache
        _split(threads, outer, lambda first, last: _places(stages, between, first, last))
        return
    memory = [_aligned(size) for size in between]
    for place in range(outer if len(stages) > 1 else 1):
        for stage in stages:
            start, count = place * stage.blocks, stage.blocks
            if len(stages) == 1:
                count *= outer

            def part(first: int, last: int, stage: _Stage = stage, start: int = start) -> None:
                stage.run(memory, start + first, start + last)

            _split(threads, count, part)


def _split(threads: int, count: int, part: Callable[[int, int], None]) -> None:
    """Call `part` for all of `count` units, in parts on several threads."""
    threads = min(threads, count)
    if threads == 1:
        part(0, count)
        return
    from concurrent.futures import ThreadPoolExecutor

    ends = [count * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, ends[:-1], ends[1:]))


def _places(stages: Sequence[_Stage], between: Sequence[int], first: int, last: int) -> None:
    """All stages in these outer places."""
    memory = [_aligned(size) for size in between]
    work = _aligned(max(stage.work for stage in stages))
    words = [stage.words(memory, work) for stage in stages]
    table = np.array(
        [(s.address, w.ctypes.data, s.blocks) for s, w in zip(stages, words, strict=True)],
        np.int64,
    )
    _SERIES(_series().addresses["kernel"])(table.ctypes.data, len(table), first, last)


def serves(shape: Sequence[int], sizes: Sequence[int], dtype: Any) -> bool:
    """Whether `transform` computes transforms of these sizes along axes of an array."""
    if np.dtype(dtype).char not in _KIND or 0 in shape:
        return False
    lanes = host.machine().vector_bytes // np.dtype(dtype).type().real.itemsize
    total = math.prod(shape)
    return all(
        (passes(n) is not None or n <= CONVOLVED) and (total // n >= lanes or _cut(n) is not None)
        for n in sizes
    )


def _cut(size: int) -> tuple[int, int] | None:
    """Rows and columns for a line, as square as they can be; None for a line that isn't cut."""
    if size < 256 or passes(size) is None:
        return None
    for rows in range(math.isqrt(size), 15, -1):
        if size % rows == 0:
            return rows, size // rows
    return None


def transform(
    x: Any,
    axis: int,
    inverse: bool,
    factor: float,
    size: int,
    reads: str,
    writes: str,
    out: Any = None,
) -> Any:
    """The transform of `x` along an axis, of a line's `size`, times a factor. out: memory for it,
    which may be that of a complex `x`.

    reads, writes: 'complex', 'real', or 'half': the first half of the transform of real lines, of
    which real numbers are the transform without `inverse`, and which gives real numbers with it.
    """
    form = Form(_KIND[np.dtype(x.dtype).char], Line(reads), Line(writes))
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    length = size // 2 + 1 if writes == "half" else size
    is_long = size * form.itemsize * 2 >= LONG or before * after < form.lanes(host.machine())
    cut = _cut(size) if is_long and after == 1 else None
    if cut is not None:
        return _through(form, x, axis, cut, inverse, factor, out)
    dtype = (_REAL if writes == "real" else _COMPLEX)[form.kind]
    if out is None:
        out = np.empty((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype)
    if after == 1:  # lanes take rows
        read, write = _Strides(0, x.shape[axis], 1), _Strides(0, length, 1)
        outer, lines = 1, before
    else:
        first, second = (
            Way.APART if line is Line.HALF else Way.BESIDE for line in (form.reads, form.writes)
        )
        form = Form(form.kind, form.reads, form.writes, first, second)
        read = _Strides(x.shape[axis] * after, 1, after)
        write = _Strides(length * after, 1, after)
        outer, lines = before, after
    stage = _stage(form, x, out, size, lines, read, write, inverse, factor)
    _run([stage], outer, outer * lines * size)
    return out


def _through(
    form: Form, x: Any, axis: int, cut: tuple[int, int], inverse: bool, factor: float, out: Any
) -> Any:
    """The transform of long lines. Real lines of even size are half as many complex numbers."""
    size, kind = math.prod(cut), form.kind
    length = size // 2 + 1 if form.writes is Line.HALF else size
    if out is None:
        dtype = (_REAL if form.writes is Line.REAL else _COMPLEX)[kind]
        out = np.empty((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype)
    given = x.reshape(math.prod(x.shape[:axis]), x.shape[axis])
    found = out.reshape(len(given), length)
    half = _cut(size // 2) if size % 2 == 0 else None
    if form.reads is Line.COMPLEX:
        _long(kind, given, found, cut, inverse, factor)
    elif half is None:
        _as_complex(form, given, found, cut, inverse, factor)
    else:
        _by_pairs(form, given, found, half, factor)
    return out


def _by_pairs(form: Form, given: Any, found: Any, cut: tuple[int, int], factor: float) -> None:
    """Long real lines of even size as complex ones of half the size, which `cut` cuts."""
    kind, middle = form.kind, math.prod(cut)
    inverse = form.writes is Line.REAL
    turns = _mixing_turns(2 * middle, kind, inverse)
    blocks = -(-(middle + (not inverse)) // mixing.BLOCK)
    # The memory between has room for a number behind the transform.
    size = (middle + 1) * 2 * form.itemsize

    def mixed(source: Any, target: Any, read: int, write: int) -> _Stage:
        numbers = (middle, blocks, read, write)
        return _Stage(_mixing(kind, inverse), source, target, (None, turns), numbers, blocks)

    if inverse:
        first = mixed(given, 0, given.shape[1], 0)
        target = found.view(_COMPLEX[kind])
        stages = [first, *_cut_stages(kind, 0, target, 0, cut, (0, middle), True, factor)]
    else:
        source, last = given.view(_COMPLEX[kind]), mixed(1, found, 0, found.shape[1])
        stages = [*_cut_stages(kind, source, 1, 0, cut, (middle, 0), False, factor / 2), last]
    _run(stages, len(given), given.size, [size] * (1 if inverse else 2))


def _as_complex(
    form: Form, given: Any, found: Any, cut: tuple[int, int], inverse: bool, factor: float
) -> None:
    """Long real lines as complex ones."""
    size = math.prod(cut)
    whole: Any = np.empty((len(given), size), _COMPLEX[form.kind])
    if form.reads is Line.REAL:
        whole[:] = given
    else:
        whole[:, : given.shape[1]] = given
        whole[:, 0].imag = 0
        if size % 2 == 0:
            whole[:, size // 2].imag = 0
        np.conj(given[:, (size - 1) // 2 : 0 : -1], out=whole[:, given.shape[1] :])
    _long(form.kind, whole, whole, cut, inverse, factor)
    found[:] = whole.real if form.writes is Line.REAL else whole[:, : found.shape[1]]


@functools.lru_cache(8)
def _mixing_turns(size: int, kind: str, inverse: bool) -> Any:
    """What `mixing` multiplies the differences by."""
    turn = _roots(np.arange(size // 2 + 1), size)
    turn[-1] = -1
    return (1j * turn.conj() if inverse else -1j * turn).astype(_COMPLEX[kind])


def _long(
    kind: str, x: Any, out: Any, cut: tuple[int, int], inverse: bool, factor: float
) -> None:
    """The transform of complex lines x[count, size]; `out` may be `x`."""
    size = math.prod(cut)
    stages = _cut_stages(kind, x, out, 0, cut, (size, size), inverse, factor)
    _run(stages, len(x), x.size, [size * x.itemsize])


def _cut_stages(
    kind: str,
    source: Any,
    target: Any,
    between: int,
    cut: tuple[int, int],
    outer: tuple[int, int],
    inverse: bool,
    factor: float,
) -> list[_Stage]:
    """The transform of a complex line: of its columns, which go to the memory `between`, and then
    of its rows. outer: the strides of lines, read and written."""
    rows, columns = cut
    first = Form(kind, reads_way=Way.BESIDE, writes_way=Way.BESIDE, turned=True)
    second = Form(kind, writes_way=Way.BESIDE)
    turns, along = _turns(rows, columns, kind), _Strides(0, 1, columns)
    read, write = replace(along, outer=outer[0]), _Strides(outer[1], 1, rows)
    across = _Strides(0, columns, 1)
    return [
        _stage(first, source, between, rows, columns, read, along, inverse, factor, turns),
        _stage(second, between, target, columns, rows, across, write, inverse, 1.0),
    ]
