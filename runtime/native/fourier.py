"""Native Fourier transforms of arrays on the host (codegen/llvm/fourier.py).

`ir/numeric/fourier.py` asks for them here and has SciPy compute what `serves` refuses: few, short
lines, and long ones whose size has other prime factors than 2, 3 and 5.

A long line is cut into rows and columns: its columns are transformed and turned, then its rows,
whose results go to the columns of the output (Bailey, "FFTs in external or hierarchical memory",
1990). So all of what a pass reads stays in the cache, and the lanes have neighbours to transform.
Both are stages that run for one line after another (`_run`): what is between them stays in the
cache.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.codegen.llvm import butterflies, mixing
from tilewright.codegen.llvm.fourier import NUMBERS, emit, emit_series, passes_of
from tilewright.codegen.llvm.lines import Form, Line, Way

from . import host, jit

LONG = 1 << 16
"""Bytes of a line from which it is cut even if that leaves many lanes empty, and up to which it is
fetched while the line before it is transformed."""
FULL = 0.8
"""The share of full lanes from which shorter lines are cut."""
CONVOLVED = 1 << 12
"""The largest size with other prime factors: those of more lines don't fit in the cache."""
WORTH = 1 << 16
"""The least elements of a thread's part."""
PAD = 64
"""Bytes between the rows in the memory between stages: those at powers of two share few places of
the cache."""
_KIND = {"F": "float", "D": "double", "f": "float", "d": "double"}
_COMPLEX = {"float": np.complex64, "double": np.complex128}
_REAL = {"float": np.float32, "double": np.float64}
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_SERIES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)


@functools.cache
def passes(size: int) -> tuple[int, ...] | None:
    """The radices of the passes, as few and as small as there are; None if a size has other prime
    factors."""
    radices = butterflies.radices(host.machine())
    if size in radices:
        return (size,)
    found = []
    for radix in radices[1:]:
        rest = passes(size // radix) if size % radix == 0 else None
        if rest is not None and radix >= rest[0]:
            found.append((radix, *rest))
    return min(found, key=lambda radices: (len(radices), sum(radices)), default=None)


@functools.lru_cache(64)
def _tables(size: int, kind: str) -> Any:
    """The factors of all passes, one after another."""
    radices = passes(size)
    assert radices is not None
    parts, left = [], size
    for radix in radices:
        powers = np.arange(left // radix)[:, None] * np.arange(1, radix)
        parts.append(_roots(powers, left).reshape(-1))
        left //= radix
    return np.concatenate(parts).astype(_COMPLEX[kind])


@functools.cache
def _longer(size: int) -> int:
    """The size of the convolution that stands for a transform. With wide registers, few passes over
    more numbers take less; with others the powers of two do not, whose numbers share few places of
    the cache."""
    powers = [[p**i for i in range(size.bit_length() + 2)] for p in (2, 3, 5)]
    found = [n for n in map(math.prod, itertools.product(*powers)) if 2 * size - 1 <= n < 4 * size]
    if host.machine().vector_bytes < 64:
        return min(found)
    return min(found, key=lambda n: (n * (1 + len(passes(n) or ())), n))


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
def _turns(rows: int, columns: int, kind: str, lanes: int) -> Any:
    """[rows, blocks, 2, lanes]: exp(-2 pi i row column / (rows columns)) for blocks of columns."""
    blocks = -(-columns // lanes)
    turns = _roots(np.arange(rows)[:, None] * np.arange(blocks * lanes), rows * columns)
    parts = turns.reshape(rows, blocks, 1, lanes)
    made = np.concatenate([parts.real, parts.imag], 2).astype(_REAL[kind])
    table = _aligned(made.nbytes).view(made.dtype)
    table[:] = made.reshape(-1)
    return table


def _roots(powers: Any, size: int) -> Any:
    """exp(-2 pi i powers / size), from angles of up to an eighth, whose rounding is small."""
    parts = 4 * (powers % size)
    quarters = (parts + size // 2) // size
    turned = np.exp((parts - quarters * size) * (-0.5j * math.pi / size))
    return turned * np.array([1, -1j, -1, 1j])[quarters % 4]


@functools.cache
def _kernel(form: Form) -> Any:
    """The kernel of a form, as it was linked. Its address is that of `kernel`."""
    return jit.link(emit(form, host.machine()), "kernel")


@functools.cache
def _mixing(kind: str, inverse: bool) -> Any:
    return jit.link(mixing.emit(kind, inverse, host.machine()), "kernel")


@functools.cache
def _passes(form: Form, radices: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The passes, as they were linked, and their words."""
    found = passes_of(form, radices)
    machine = host.machine()
    codes = [butterflies.emit(made, form.kind, machine) for made, *_ in found]
    linked = jit.link_all(codes, "kernel")
    words = [
        (code.addresses["kernel"], *numbers)
        for code, (_, *numbers) in zip(linked, found, strict=True)
    ]
    return linked, tuple(itertools.chain(*words))


@functools.cache
def _series() -> Any:
    return jit.link(emit_series(host.machine()), "kernel")


@dataclass(frozen=True)
class _Strides:
    """How lines lie in an array, counted in its elements. ahead: from a number of lines side by
    side to what is fetched beside it."""

    outer: int
    line: int
    step: int
    ahead: int = 0


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
    machine, form = host.machine(), replace(form, inverse=inverse)
    length, radices = size, passes(size)
    if radices is None:
        form, turns, size = replace(form, convolves=True), _chirp(size, form.kind), _longer(size)
        radices = passes(size)
        assert radices is not None
    blocks, lanes = -(-lines // form.lines(machine)), form.lanes(machine)
    known = {
        "factor": int(np.float64(factor).view(np.int64)),
        "size": size,
        "length": length,
        "blocks": blocks,
        "lines": lines,
        "count": len(radices),
    }
    for name, strides in (("read", read), ("write", write)):
        known |= {f"{name}_{way}": number for way, number in vars(strides).items()}
    return _Stage(
        _kernel(form),
        source,
        target,
        (_tables(size, form.kind), turns),
        (*(known[name] for name in NUMBERS), *_passes(form, radices)[1]),
        blocks,
        2 * (form.wide + 1) * (size + lanes) * lanes * form.itemsize,
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
        (passes(n) is not None or n <= CONVOLVED)
        and (total // n >= lanes or _cut(n, lanes) is not None)
        for n in sizes
    )


@functools.cache
def _cut(size: int, lanes: int) -> tuple[int, int] | None:
    """Rows and columns for a line, which fill the lanes best and are as square as they can be; None
    for a line that isn't cut."""
    if size < 256 or passes(size) is None:
        return None
    cuts = [(n, size // n) for n in range(16, math.isqrt(size) + 1) if size % n == 0]
    near = [cut for cut in cuts if cut[1] <= 4 * cut[0]] or cuts[-1:]
    return max(near, key=lambda cut: (_filled(cut, lanes), cut[0]), default=None)


def _filled(cut: tuple[int, int], lanes: int) -> float:
    """The share of lanes with lines of their own."""
    return math.prod(n / (-(-n // lanes) * lanes) for n in cut)


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
    The real parts of complex lines may be what is real.
    """
    form = Form(_KIND[np.dtype(x.dtype).char], Line(reads), Line(writes))
    if form.reads is Line.REAL and x.dtype.kind == "c":
        form = replace(form, reads=Line.PART)
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    length = size // 2 + 1 if writes == "half" else size
    dtype = (_REAL if writes == "real" else _COMPLEX)[form.kind]
    if out is None:
        out = np.empty((*x.shape[:axis], length, *x.shape[axis + 1 :]), dtype)
    if after == 1 and _through(
        form, x.reshape(before, -1), out.reshape(before, length), size, inverse, factor
    ):
        return out
    if after == 1:  # lanes take rows
        read, write = _Strides(0, x.shape[axis], 1), _Strides(0, length, 1)
        outer, lines = 1, before
    else:
        if form.reads is Line.PART:
            x, form = np.ascontiguousarray(x.real), replace(form, reads=Line.REAL)
        first, second = (
            Way.APART if line is Line.HALF else Way.BESIDE for line in (form.reads, form.writes)
        )
        form = Form(form.kind, form.reads, form.writes, first, second)
        block = form.lines(host.machine())
        read = _Strides(x.shape[axis] * after, 1, after, block)
        write = _Strides(length * after, 1, after, block)
        outer, lines = before, after
    stage = _stage(form, x, out, size, lines, read, write, inverse, factor)
    _run([stage], outer, outer * lines * size)
    return out


def _through(form: Form, x: Any, out: Any, size: int, inverse: bool, factor: float) -> bool:
    """The transform of lines that are cut, if these are. Real lines of even size are half as many
    complex numbers."""
    lanes = form.lanes(host.machine())
    must = size * form.itemsize * 2 >= LONG or len(x) < lanes
    is_complex = form.reads is Line.COMPLEX
    count = size if is_complex else 0 if size % 2 else size // 2
    cut = _cut(count, lanes)
    if cut is not None and (must or _filled(cut, lanes) >= FULL):
        if is_complex:
            _long(form.kind, x, out, cut, inverse, factor)
        else:
            _by_pairs(form, x, out, cut, factor)
        return True
    cut = _cut(size, lanes)
    if cut is None or not must:
        return False
    _as_complex(form, x, out, cut, inverse, factor)
    return True


def _by_pairs(form: Form, given: Any, found: Any, cut: tuple[int, int], factor: float) -> None:
    """Long real lines of even size as complex ones of half the size, which `cut` cuts."""
    kind, middle = form.kind, math.prod(cut)
    inverse = form.writes is Line.REAL
    turns = _mixing_turns(2 * middle, kind, inverse)
    blocks = -(-(middle + (not inverse)) // mixing.BLOCK)

    def mixed(source: Any, target: Any, read: int, write: int) -> _Stage:
        numbers = (middle, blocks, read, write)
        return _Stage(_mixing(kind, inverse), source, target, (None, turns), numbers, blocks)

    if inverse:
        stages = [mixed(given, 1, given.shape[1], 0)]
        target = found.view(_COMPLEX[kind])
        stages += _cut_stages(Form(kind), 1, target, cut, (0, middle), True, factor)
    else:
        first = Form(kind, form.reads)
        stages = _cut_stages(first, given, 1, cut, (2 * middle, 0), False, factor / 2)
        stages.append(mixed(1, found, 0, found.shape[1]))
    # There is room for a number behind the transform.
    sizes = [_between(kind, cut), (middle + 1) * 2 * form.itemsize]
    _run(stages, len(given), given.size, sizes)


def _as_complex(
    form: Form, given: Any, found: Any, cut: tuple[int, int], inverse: bool, factor: float
) -> None:
    """Long real lines as complex ones."""
    size = math.prod(cut)
    whole: Any = np.empty((len(given), size), _COMPLEX[form.kind])
    if form.reads.is_real:
        whole[:] = given.real
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
    return (1j * turn.conj() if inverse else -1j * turn).astype(_COMPLEX[kind])


def _long(kind: str, x: Any, out: Any, cut: tuple[int, int], inverse: bool, factor: float) -> None:
    """The transform of complex lines x[count, size]; `out` may be `x`."""
    size = math.prod(cut)
    stages = _cut_stages(Form(kind), x, out, cut, (size, size), inverse, factor)
    _run(stages, len(x), x.size, [_between(kind, cut)])


def _cut_stages(
    form: Form,
    source: Any,
    target: Any,
    cut: tuple[int, int],
    outer: tuple[int, int],
    inverse: bool,
    factor: float,
) -> list[_Stage]:
    """The transform of a complex line: of its columns, which go to the first memory between the
    stages, and then of its rows. form: what is read; two real numbers are one complex one. outer:
    the strides of lines, read and written."""
    (rows, columns), kind = cut, form.kind
    first = replace(form, reads_way=Way.BESIDE, writes_way=Way.BESIDE, turned=True)
    second = Form(kind, writes_way=Way.BESIDE)
    lanes, each = first.lanes(host.machine()), 2 if form.pairs else 1
    turns = _turns(rows, columns, kind, lanes)
    # The next line is fetched while this one is transformed, or of a long one the next block.
    ahead = [stride if 2 * stride * form.itemsize <= LONG else lanes for stride in outer]
    read = _Strides(outer[0], 1, each * columns, ahead[0])
    write = _Strides(outer[1], 1, rows, ahead[1])
    pitch = _pitch(kind, columns)
    along, across = _Strides(0, 1, pitch), _Strides(0, pitch, 1)
    return [
        _stage(first, source, 0, rows, each * columns, read, along, inverse, factor, turns),
        _stage(second, 0, target, columns, rows, across, write, inverse, 1.0),
    ]


def _pitch(kind: str, columns: int) -> int:
    """The numbers from a row between the stages to the next one."""
    return columns + PAD // np.dtype(_COMPLEX[kind]).itemsize


def _between(kind: str, cut: tuple[int, int]) -> int:
    rows, columns = cut
    return rows * _pitch(kind, columns) * np.dtype(_COMPLEX[kind]).itemsize
