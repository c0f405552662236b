"""Native Fourier transforms of arrays on the host (codegen/llvm/fourier.py).

`ir/numeric/fourier.py` asks for them here and has SciPy compute what `serves` refuses: sizes with
other prime factors than 2, 3 and 5, and few, short lines.

A long line is cut into rows and columns: its columns are transformed and turned, then its rows,
whose results go to the columns of the output (Bailey, "FFTs in external or hierarchical memory",
1990). So all of what a pass reads stays in the cache, and the lanes have neighbours to transform.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.llvm.fourier import NUMBERS, RADICES, Form, Line, Way, emit

from . import host, jit

LONG = 1 << 16
"""Bytes of a line from which it is cut."""
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
    function, _ = _kernel(form)
    counts = passes(size)
    assert counts is not None
    blocks = -(-lines // form.lines(machine))
    total = outer * blocks
    tables = _tables(size, form.kind)

    def part(first: int, last: int) -> None:
        lanes = form.lanes(machine)
        memory = _aligned(4 * (size + lanes) * lanes * form.itemsize)
        known = {
            "size": size,
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
        passes(n) is not None and (total // n >= lanes or _cut(n) is not None) for n in sizes
    )


def _cut(size: int) -> tuple[int, int] | None:
    """Rows and columns for a line, as square as they can be; None for a short line."""
    if size < 256:
        return None
    for rows in range(math.isqrt(size), 15, -1):
        if size % rows == 0:
            return rows, size // rows
    return None


def transform(
    x: Any, axis: int, inverse: bool, factor: float, size: int, reads: str, writes: str
) -> Any:
    """The transform of `x` along an axis, of a line's `size`, times a factor.

    reads, writes: 'complex', 'real', or 'half': the first half of the transform of real lines, of
    which real numbers are the transform without `inverse`, and which gives real numbers with it.
    """
    form = Form(_KIND[np.dtype(x.dtype).char], Line(reads), Line(writes))
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    length = size // 2 + 1 if writes == "half" else size
    is_long = size * form.itemsize * 2 >= LONG or before * after < form.lanes(host.machine())
    cut = _cut(size) if is_long and after == 1 else None
    if cut is not None:
        return _through(form, x, axis, cut, inverse, factor)
    dtype = (_REAL if writes == "real" else _COMPLEX)[form.kind]
    out = np.empty((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype)
    if after == 1:  # lanes take rows
        read, write = _Strides(0, x.shape[axis], 1), _Strides(0, length, 1)
        _run(form, x, out, size, 1, before, read, write, inverse, factor)
    else:
        ways = [Way.APART if x is Line.HALF else Way.BESIDE for x in (form.reads, form.writes)]
        form = Form(form.kind, form.reads, form.writes, *ways)
        read = _Strides(x.shape[axis] * after, 1, after)
        write = _Strides(length * after, 1, after)
        _run(form, x, out, size, before, after, read, write, inverse, factor)
    return out


def _through(
    form: Form, x: Any, axis: int, cut: tuple[int, int], inverse: bool, factor: float
) -> Any:
    """The transform of long lines, real ones as complex ones."""
    size, shape = math.prod(cut), x.shape
    given = x.reshape(math.prod(shape[:axis]), shape[axis])
    if form.reads is Line.REAL:
        given = given.astype(_COMPLEX[form.kind])
    elif form.reads is Line.HALF:
        half, given = given, np.empty((len(given), size), given.dtype)
        given[:, : half.shape[1]] = half
        given[:, :: max(size // 2, 1)][:, : 2 - size % 2].imag = 0
        np.conj(half[:, (size - 1) // 2 : 0 : -1], out=given[:, half.shape[1] :])
    out = np.empty_like(given)
    _long(form.kind, given, out, len(given), cut, inverse, factor)
    if form.writes is Line.COMPLEX:
        return out.reshape(shape)
    out = out[:, : size // 2 + 1] if form.writes is Line.HALF else out.real
    out = np.ascontiguousarray(out)
    return out.reshape(*shape[:axis], out.shape[1], *shape[axis + 1 :])


def _long(
    kind: str, x: Any, out: Any, count: int, cut: tuple[int, int], inverse: bool, factor: float
) -> None:
    rows, columns = cut
    between = np.empty_like(out)
    first = Form(kind, reads_way=Way.BESIDE, writes_way=Way.BESIDE, turned=True)
    second = Form(kind, writes_way=Way.BESIDE)
    size, along = rows * columns, _Strides(rows * columns, 1, columns)
    turns = _turns(rows, columns, kind)
    _run(first, x, between, rows, count, columns, along, along, inverse, factor, turns)
    read, write = _Strides(size, columns, 1), _Strides(size, 1, rows)
    _run(second, between, out, columns, count, rows, read, write, inverse, 1.0)
