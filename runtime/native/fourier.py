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

from tilewright.codegen.llvm.butterflies import RADICES
from tilewright.codegen.llvm.fourier import NUMBERS, emit
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
def _kernel(form: Form) -> tuple[Callable[..., None], Any]:
    linked = jit.link(emit(form, host.machine()), "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6, ctypes.c_double)
    return made(linked.addresses["kernel"]), linked


@dataclass(frozen=True)
class _Strides:
    """How lines lie in an array, counted in its elements."""

    outer: int
    line: int
    step: int


def _aligned(size: int) -> Any:
    """Memory at a multiple of 64 bytes."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _run(
    form: Form,
    source: Any,
    target: Any,
    size: int,
    outer: int,
    lines: int,
    read: _Strides,
    write: _Strides,
    inverse: bool,
    factor: float,
    turns: Any = None,
) -> None:
    """Transform outer x lines lines, in parts on several threads."""
    from .pool import num_threads

    machine = host.machine()
    length, counts = size, passes(size)
    if counts is None:
        form, turns, size = replace(form, convolves=True), _chirp(size, form.kind), _longer(size)
        counts = passes(size)
        assert counts is not None
    function, _ = _kernel(form)
    blocks = -(-lines // form.lines(machine))
    total = outer * blocks
    tables = _tables(size, form.kind)

    def part(first: int, last: int) -> None:
        lanes = form.lanes(machine)
        memory = _aligned(4 * (size + lanes) * lanes * form.itemsize)
        known = {
            "size": size,
            "length": length,
            "first": first,
            "last": last,
            "blocks": blocks,
            "lines": lines,
            "inverse": int(inverse),
        }
        for name, strides in (("read", read), ("write", write)):
            known |= {f"{name}_{way}": getattr(strides, way) for way in ("outer", "line", "step")}
        numbers = np.array([*(known[name] for name in NUMBERS), *counts], np.int64)
        arrays = (source, target, memory, tables, turns, numbers)
        function(*(0 if x is None else x.ctypes.data for x in arrays), factor)

    threads = max(min(num_threads(), total, outer * lines * size // WORTH), 1)
    if threads == 1:
        part(0, total)
        return
    from concurrent.futures import ThreadPoolExecutor

    ends = [total * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, ends[:-1], ends[1:]))


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
        _run(form, x, out, size, 1, before, read, write, inverse, factor)
    else:
        first, second = (
            Way.APART if line is Line.HALF else Way.BESIDE for line in (form.reads, form.writes)
        )
        form = Form(form.kind, form.reads, form.writes, first, second)
        read = _Strides(x.shape[axis] * after, 1, after)
        write = _Strides(length * after, 1, after)
        _run(form, x, out, size, before, after, read, write, inverse, factor)
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
    middle, half = size // 2, _cut(size // 2) if size % 2 == 0 else None
    if form.reads is Line.COMPLEX:
        _long(kind, given, found, cut, inverse, factor)
    elif half is None:
        _as_complex(form, given, found, cut, inverse, factor)
    elif form.reads is Line.REAL:
        pairs: Any = np.empty((len(given), middle), _COMPLEX[kind])
        between = found.reshape(-1)[: pairs.size].reshape(pairs.shape)  # written afterwards
        _long(kind, given.view(pairs.dtype), pairs, half, inverse, factor, between)
        weights = _weights(size, kind, False)
        scratch = np.empty(middle, pairs.dtype)
        for source, target in zip(pairs, found, strict=True):
            _mix(source[1:], target[1:middle], [w[1:middle] for w in weights], scratch)
            _mix(source[:1], target[:1], [w[:1] for w in weights], scratch)
            _mix(source[:1], target[middle:], [w[middle:] for w in weights], scratch)
    else:
        pairs = np.empty((len(given), middle), _COMPLEX[kind])
        first, last = weights = _weights(size, kind, True)
        scratch = np.empty(middle, pairs.dtype)
        for source, target in zip(given, pairs, strict=True):
            _mix(source[1:middle], target[1:], [w[1:middle] for w in weights], scratch)
            # The ends are real numbers; what their imaginary parts say has no meaning.
            target[0] = source[0].real * first[0] + source[middle].real * last[0]
        _long(kind, pairs, found.view(pairs.dtype), half, inverse, factor, pairs)
    return out


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


def _mix(source: Any, target: Any, weights: Sequence[Any], scratch: Any) -> None:
    """The transform of real numbers from that of their pairs, or that of the pairs from theirs:
    each number with the conjugate of its mirror. A line at a time stays in the cache."""
    mirrored = np.conj(source[::-1], out=scratch[: len(source)])
    mirrored *= weights[1]
    np.multiply(source, weights[0], out=target)
    target += mirrored


@functools.lru_cache(8)
def _weights(size: int, kind: str, inverse: bool) -> tuple[Any, Any]:
    """The parts of both in `_mix`, for a transform without its factor."""
    turn = _roots(np.arange(size // 2 + 1), size)
    turn, one = (1j * turn.conj(), 1.0) if inverse else (-0.5j * turn, 0.5)
    return (one + turn).astype(_COMPLEX[kind]), (one - turn).astype(_COMPLEX[kind])


def _long(
    kind: str,
    x: Any,
    out: Any,
    cut: tuple[int, int],
    inverse: bool,
    factor: float,
    between: Any = None,
) -> None:
    """The transform of complex lines x[count, size]; `out` may be `x`. between: memory for what the
    columns give, which may be `x`, too, but not `out`."""
    rows, columns = cut
    if between is None:
        between = np.empty_like(x)
    first = Form(kind, reads_way=Way.BESIDE, writes_way=Way.BESIDE, turned=True)
    second = Form(kind, writes_way=Way.BESIDE)
    size, along = rows * columns, _Strides(rows * columns, 1, columns)
    turns = _turns(rows, columns, kind)
    _run(first, x, between, rows, len(x), columns, along, along, inverse, factor, turns)
    read, write = _Strides(size, columns, 1), _Strides(size, 1, rows)
    _run(second, between, out, columns, len(x), rows, read, write, inverse, 1.0)
