"""Factorizations by the LAPACK inside the library that NumPy brings.

NumPy's wheels come with OpenBLAS, which has all of LAPACK. numpy.linalg calls some of its routines,
and copies each matrix element by element, which takes longer than many a factorization does. So
these are called here by ctypes, which lets go of Python's lock meanwhile. Where NumPy was built
with another library, or the matrices are so small that a call costs more than its work, `serves`
says no, and numpy.linalg computes.

LAPACK stores matrices by columns: those of this package are turned on their way, unless a routine
does as well on the transpose. The functions take a[..., m, n], and give `info` for each matrix: 0,
or the number of LAPACK's fault, with NaN for the other results.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SMALL = 32
"""Smaller matrices take less time than calls from Python."""
_FEW = 1 << 13
"""The elements of a batch of smaller matrices up to which NumPy is faster."""
repeat: Callable[[int, Any, Any, int], None] | None = None
"""The native loop of calls, which the runtime tells (`runtime/native/routines.py`)."""
copied: Callable[[Any], Any] = partial(np.array, order="C")
"""A contiguous copy. The runtime tells native code for it (`runtime/baseline/copies.py`), as NumPy
turns large matrices slowly."""
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}


@functools.cache
def _library() -> Any:
    """The OpenBLAS of NumPy's wheel, with integers of 64 bits; None if there is none."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*scipy_openblas64_*")):
            library = ctypes.CDLL(os.fspath(path))
            if hasattr(library, "scipy_dgesdd_64_"):
                return library
    return None


def serves(a: Any) -> bool:
    """Whether the functions of this module compute for matrices like a[..., m, n]."""
    least = SMALL if repeat is None else 1
    return min(a.shape[-2:]) >= least and a.size > 0 and _library() is not None


def pays(a: Any) -> bool:
    """Whether these functions are faster than NumPy's for a[..., m, n]: not for few small matrices,
    which take less time than the calls from Python."""
    return serves(a) and (min(a.shape[-2:]) >= SMALL or a.size > _FEW)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """The number of threads that the library takes for one matrix. They wait for each other at
    every step, in loops that hold a processor, so they are for large matrices."""
    library = _library()
    before = library.scipy_openblas_get_num_threads64_() if library is not None else count
    if before == count:
        yield
        return
    library.scipy_openblas_set_num_threads64_(count)
    try:
        yield
    finally:
        library.scipy_openblas_set_num_threads64_(before)


@dataclass(frozen=True)
class _Work:
    """Memory of a routine, of the size that it asks for; its length is the next argument."""

    dtype: Any


@dataclass(frozen=True)
class _Shared:
    """An array that all calls use, where other arrays have a part for each matrix."""

    array: Any


def _name(name: str, dtype: Any) -> str:
    """The routine for a dtype; 'or' and 'sy' are 'un' and 'he' for complex numbers."""
    letter = _LETTERS[np.dtype(dtype).char]
    if letter in "cz":
        name = {"or": "un", "sy": "he"}.get(name[:2], name[:2]) + name[2:]
    return letter + name


def _each(name: str, dtype: Any, *args: Any) -> Any:
    """Call a routine for each matrix of a batch, and give int64 info[count].

    args: in its order, but without info: letters, numbers, arrays[count, ...], memory.
    """
    routine = _routine(_name(name, dtype))
    count = next(len(x) for x in args if isinstance(x, np.ndarray))
    info = np.zeros(count, np.int64)
    kinds = [x.dtype for x in args if isinstance(x, _Work)]
    sizes: tuple[int, ...] = ()
    if kinds:
        key = routine[1], *[x for x in args if isinstance(x, (str, int))]
        known = _sizes.get(key)
        if known is None:
            asked = [np.zeros(1, kind) for kind in kinds]
            _call(routine, args, [(x, -1) for x in asked], info, 1)
            known = tuple(int(x[0].real) for x in asked)
            if len(_sizes) < _REMEMBERED:
                _sizes[key] = known
        sizes = known
    given = [(np.empty(n, kind), n) for n, kind in zip(sizes, kinds, strict=True)]
    _call(routine, args, given, info, count)
    return info


_sizes: dict[tuple[Any, ...], tuple[int, ...]] = {}
"""Address of a routine, its letters and numbers -> the lengths of the memory that it asks for."""
_REMEMBERED = 1024


@functools.cache
def _routine(name: str) -> tuple[Any, int]:
    """A function of the library, and its address."""
    function = getattr(_library(), f"scipy_{name}_64_")
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return function, address


@functools.lru_cache(256)
def _constants(args: tuple[Any, ...]) -> tuple[Any, list[int], Any]:
    """The arguments of a routine in so far as calls share them, by address: letters and numbers.
    Also the places of the other ones, which are None in `args`; and what must be held."""
    letters = "".join(x for x in args if isinstance(x, str)).encode()
    text = np.frombuffer(letters, np.uint8)
    numbers = np.array([x for x in args if isinstance(x, int)], np.int64)
    next_letter = iter(range(text.ctypes.data, text.ctypes.data + len(letters)))
    next_number = iter(range(numbers.ctypes.data, numbers.ctypes.data + numbers.nbytes, 8))
    addresses = np.zeros(len(args), np.int64)
    for i, x in enumerate(args):
        if x is not None:
            addresses[i] = next(next_letter if isinstance(x, str) else next_number)
    return addresses, [i for i, x in enumerate(args) if x is None], (letters, text, numbers)


def _call(
    routine: tuple[Any, int], args: Sequence[Any], work: Sequence[Any], info: Any, count: int
) -> None:
    """Call a routine `count` times. work: memory and its length for each `_Work`."""
    memories = iter(work)
    shape: list[Any] = []
    arrays: list[tuple[Any, int]] = []  # each with its step
    for x in (*args, info):
        if isinstance(x, (str, int)):
            shape.append(x)
            continue
        shape.append(None)
        if isinstance(x, _Work):
            memory, length = next(memories)
            shape.append(length)
            arrays.append((memory, 0))
        elif isinstance(x, _Shared):
            arrays.append((x.array, 0))
        else:
            arrays.append((x, x.strides[0]))
    constants, places, _ = _constants(tuple(shape))
    addresses = constants.copy()
    steps = np.zeros(len(addresses), np.int64)
    for place, (array, step) in zip(places, arrays, strict=True):
        addresses[place], steps[place] = array.__array_interface__["data"][0], step
    function, address = routine
    if repeat is not None:
        repeat(address, addresses, steps, count)
        return
    for i in range(count):
        function(*map(ctypes.c_void_p, (addresses + i * steps).tolist()))


def _flat(a: Any) -> Any:
    return a.reshape(-1, *a.shape[-2:])


def _turned(a: Any) -> Any:
    """A copy of a[..., m, n] by columns: [count, n, m]."""
    return copied(np.swapaxes(_flat(a), 1, 2))


def _back(a: Any, batch: Any) -> Any:
    """[*batch, m, n] of matrices that are stored by columns."""
    a = copied(np.swapaxes(a, 1, 2))
    return a.reshape(*batch, *a.shape[1:])


def _clear(a: Any, upper: bool) -> None:
    """Set what lies above (below) the diagonals of a[..., m, n] to zero."""
    np.copyto(a, 0, where=_beyond(*a.shape[-2:], upper))


@functools.lru_cache(16)
def _beyond(m: int, n: int, upper: bool) -> Any:
    """The places above (below) the diagonal of a matrix. NumPy's `tril` makes them each time, which
    takes as long as a small factorization."""
    rows, columns = np.arange(m)[:, None], np.arange(n)
    return rows < columns if upper else rows > columns


def _without(info: Any, *results: Any) -> None:
    """Set the results of the matrices that have none to NaN."""
    if info.any():
        for x in results:
            x[info != 0] = np.nan


def _info(info: Any, batch: Any) -> Any:
    return info.astype(np.int32).reshape(batch)


def cholesky(a: Any) -> tuple[Any, Any]:
    """(L, info) of the lower triangles, which are the upper ones of the transposes."""
    batch, n = a.shape[:-2], a.shape[-1]
    out = np.array(_flat(a), order="C")
    info = _each("potrf", a.dtype, "U", n, out, n)
    _clear(out, upper=True)
    _without(info, out)
    return out.reshape(a.shape), _info(info, batch)


def _factored(packed: Any) -> tuple[Any, Any, Any]:
    """LU by columns in the memory of packed[count, n, m], which has a matrix by columns; int64
    pivots and info."""
    n, m = packed.shape[-2:]
    pivots = np.empty((len(packed), min(m, n)), np.int64)
    return packed, pivots, _each("getrf", packed.dtype, m, n, packed, m, pivots)


def _of_transposes(a: Any) -> tuple[Any, Any, Any]:
    """The LU of square aᵀ, which needs no turning, with the info of that of `a`."""
    packed, pivots, info = _factored(np.array(_flat(a), order="C"))
    if info.any():
        info = _factored(_turned(a))[2]
    return packed, pivots, info


def pivots(a: Any) -> tuple[Any, Any]:
    """(the diagonal of U, int64 pivots) of an LU of square aᵀ, whose determinant is that of `a`."""
    packed, exchanges, _ = _factored(np.array(_flat(a), order="C"))
    shape = a.shape[:-1]
    return np.diagonal(packed, 0, 1, 2).reshape(shape), exchanges.reshape(shape)


def lu(a: Any) -> tuple[Any, Any, Any]:
    """(LU, int32 pivots, info), as `elimination.lu`."""
    batch = a.shape[:-2]
    packed, pivots, info = _factored(_turned(a))
    pivots = pivots.astype(np.int32).reshape(*batch, pivots.shape[1])
    return _back(packed, batch), pivots, _info(info, batch)


def solve(a: Any, b: Any) -> tuple[Any, Any]:
    """(x with a @ x = b, info) for b[..., n, k]."""
    n, k = b.shape[-2:]
    packed, pivots, info = _of_transposes(a)
    out = _turned(b)
    if k:
        _each("getrs", a.dtype, "T", n, k, packed, n, pivots, out, n)
    _without(info, out)
    return _back(out, b.shape[:-2]), _info(info, b.shape[:-2])


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """The x of a @ x = b, for a[..., n, n] of which one triangle is read, and b[..., n, k]. LAPACK
    reads the transposes of all, xᵀ aᵀ = bᵀ, with the other triangle. A single column has a
    routine of its own, which doesn't pack the matrix."""
    n, k = b.shape[-2:]
    out = np.array(_flat(b), order="C")
    side, diagonal = "L" if upper else "U", "U" if unit else "N"
    one = _Shared(np.ones(1, a.dtype))
    rows = np.ascontiguousarray(_flat(a))
    if k == 1 and n >= SMALL:
        _each("trsv", a.dtype, side, "T", diagonal, n, rows, n, out, 1)
    elif k:
        _each("trsm", a.dtype, "R", side, "N", diagonal, k, n, one, rows, n, out, k)
    return out.reshape(b.shape)


def inv(a: Any) -> tuple[Any, Any]:
    n = a.shape[-1]
    out, pivots, info = _of_transposes(a)
    _each("getri", a.dtype, n, out, n, pivots, _Work(a.dtype))
    _without(info, out)
    return out.reshape(a.shape), _info(info, a.shape[:-2])


def qr(a: Any) -> tuple[Any, Any]:
    """(Q, R) with min(m, n) columns in Q."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    q, tau = _reflectors(a)
    r = _turned(q[:, :, :k])
    _clear(r, upper=False)
    q = q[:, :k]
    _each("orgqr", a.dtype, m, k, k, q, m, tau, _Work(a.dtype))
    return _back(q, batch), r.reshape(*batch, k, n)


def geqrf(a: Any) -> tuple[Any, Any]:
    """(the reflectors below R, their factors)."""
    packed, tau = _reflectors(a)
    return _back(packed, a.shape[:-2]), tau.reshape(*a.shape[:-2], tau.shape[1])


def _reflectors(a: Any) -> tuple[Any, Any]:
    m, n = a.shape[-2:]
    packed = _turned(a)
    tau = np.empty((len(packed), min(m, n)), a.dtype)
    _each("geqrf", a.dtype, m, n, packed, m, tau, _Work(a.dtype))
    return packed, tau


def eigh(a: Any, lower: bool, vectors: bool) -> tuple[Any, Any]:
    """(eigenvalues in ascending order, eigenvectors). Without `vectors` these mean nothing."""
    batch, n = a.shape[:-2], a.shape[-1]
    work, real = _turned(a), a.real.dtype
    values = np.empty((len(work), n), real)
    memory = [_Work(a.dtype), _Work(real)] if np.iscomplexobj(a) else [_Work(a.dtype)]
    job, side = "V" if vectors else "N", "L" if lower else "U"
    memory.append(_Work(np.int64))
    info = _each("syevd", a.dtype, job, side, n, work, n, values, *memory)
    _without(info, values, work)
    return values.reshape(*batch, n), _back(work, batch)


def eig(a: Any, vectors: bool) -> tuple[Any, Any]:
    """(eigenvalues, eigenvectors of norm 1), complex. Without `vectors` these mean nothing. NumPy
    computes those of float32 in float64."""
    batch, n = a.shape[:-2], a.shape[-1]
    work, real = _turned(a), a.real.dtype
    whole = np.result_type(a.dtype, np.complex64)
    rows = n if vectors else 1
    right = np.empty((len(work), rows, rows), a.dtype)  # by columns
    left, job = _Shared(np.empty(1, a.dtype)), "V" if vectors else "N"
    ends = (left, 1, right, rows, _Work(a.dtype))
    if np.iscomplexobj(a):
        values = np.empty((len(work), n), a.dtype)
        memory = _Shared(np.empty(2 * n, real))
        info = _each("geev", a.dtype, "N", job, n, work, n, values, *ends, memory)
        found = right
    else:
        parts = np.empty((2, len(work), n), real)
        info = _each("geev", a.dtype, "N", job, n, work, n, *parts, *ends)
        values = np.empty((len(work), n), whole)
        values.real, values.imag = parts
        found = right.astype(whole)
        # The parts of two conjugate vectors lie in the columns of both.
        which, first = np.nonzero(parts[1] > 0) if vectors else (np.empty(0, int), np.empty(0, int))
        found[which, first] += 1j * right[which, first + 1]
        found[which, first + 1] = found[which, first].conj()
    _without(info, values, found)
    return values.reshape(*batch, n), _back(found, batch)


def svd(a: Any, vectors: str) -> tuple[Any, Any, Any]:
    """(U, S, Vᴴ), with all columns of U and Vᴴ ('A'), min(m, n) of them ('S') or none ('N').

    The transpose of `a`, of which LAPACK reads the memory, is (Vᴴ)ᵀ S Uᵀ.
    """
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    work = np.array(_flat(a), order="C")
    count, real = len(work), a.real.dtype
    s = np.empty((count, k), real)
    rows, columns = {"A": (m, n), "S": (k, k), "N": (1, 1)}[vectors]
    u = np.empty((count, m if vectors != "N" else 1, rows), a.dtype)
    vh = np.empty((count, columns, n if vectors != "N" else 1), a.dtype)
    memory: list[Any] = [_Work(a.dtype)]
    if np.iscomplexobj(a):
        memory.append(_Shared(np.empty(5 * k * (k + 1) + 2 * k * max(m, n) + 2 * k * k + k, real)))
    memory.append(_Shared(np.empty(8 * k, np.int64)))
    info = _each("gesdd", a.dtype, vectors, n, m, work, n, s, vh, vh.shape[2], u, rows, *memory)
    _without(info, u, s, vh)
    u, s, vh = (x.reshape(*batch, *x.shape[1:]) for x in (u, s, vh))
    return u, s, vh


_SKETCH = 8
"""The random vectors by which norms are estimated."""
_ORDINARY = 128
"""The columns from which on `full_rank` pays."""
_MARGIN = 2.0
"""How far such an estimate of a condition number may be below it."""


def full_rank(a: Any, b: Any, cut: float) -> Any:
    """The x that minimizes the norm of a @ x - b for a[..., m, n] of rank n, by a QR decomposition
    without exchanges of columns, which takes half the time; None unless each matrix surely has that
    rank: its singular values are above `cut` times the largest one.

    The norms of a and R⁻¹ are estimated with random vectors: that of R⁻¹ v estimates the Frobenius
    norm, which is above the largest singular value (Hutchinson's estimator), and powers of aᴴa give
    that of `a`.
    """
    (m, n), k, flat = a.shape[-2:], b.shape[-1], _flat(a)
    if not (m >= n >= _ORDINARY and k):
        return None
    rng = np.random.default_rng(n)
    across = np.conj(np.swapaxes(flat, 1, 2))
    vectors = rng.standard_normal((n, _SKETCH)).astype(a.dtype)
    with np.errstate(all="ignore"):
        powers = vectors / np.linalg.norm(vectors, axis=0)
        for _ in range(2):
            powers = across @ (flat @ powers)
            largest = np.sqrt(np.linalg.norm(powers, axis=1, keepdims=True))
            powers = powers / np.square(largest)
    largest = largest.max((1, 2))
    if not ((largest > 1e-10) & (largest < 1e10)).all():
        return None  # what comes of them might not be a normal number
    packed, tau = _reflectors(a)
    out = np.empty((len(packed), k + _SKETCH, m), a.dtype)
    out[:, :k] = np.swapaxes(_flat(b), 1, 2)
    trans = "C" if np.iscomplexobj(a) else "T"
    work = _Work(a.dtype)
    _each("ormqr", a.dtype, "L", trans, m, k, n, packed, m, tau, out, m, work)
    out[:, k:, :n] = vectors.T
    info = _each("trtrs", a.dtype, "U", "N", "N", n, k + _SKETCH, packed, m, out, m)
    found, sketch = out[:, :k, :n], out[:, k:, :n]
    with np.errstate(all="ignore"):
        inverse = np.linalg.norm(sketch, axis=(1, 2)) / math.sqrt(_SKETCH)
        surely = largest * inverse * _MARGIN * cut < 1
    if info.any() or not surely.all():
        return None
    return _back(found, a.shape[:-2])


_LEAF = 25
"""The size of the problems at the ends of the divide and conquer of `gelsd`."""


def lstsq(a: Any, b: Any, cut: float, driver: str) -> tuple[Any, Any, Any, Any]:
    """(x of least norm that minimizes the norm of a @ x - b, rank, singular values, info) by a
    driver of LAPACK: 'gels', 'gelsy', 'gelsd' or 'gelss'. b: [..., m, k].

    cut: sizes of at most `cut` times the largest one count as zero. The ranks mean nothing for
    'gels', nor do the singular values for 'gels' and 'gelsy'. info: for 'gels' the first element on
    the diagonal of the triangular factor that counts as zero; LAPACK itself meets only exact zeros,
    of which rounding leaves few.
    """
    batch, (m, n), k = a.shape[:-2], a.shape[-2:], b.shape[-1]
    if driver == "gelsy" and (found := full_rank(a, b, cut)) is not None:
        none = np.zeros((*batch, n), a.real.dtype)
        return found, np.full(batch, n, np.int64), none, np.zeros(batch, np.int32)
    least, most, real = min(m, n), max(m, n), a.real.dtype
    packed = _turned(a)
    count = len(packed)
    out = np.zeros((count, k, most), a.dtype)
    out[:, :, :m] = np.swapaxes(_flat(b), 1, 2)
    rank, s = np.zeros(count, np.int64), np.zeros((count, least), real)
    problem = (m, n, k, packed, m, out, most)
    work, limit = _Work(a.dtype), _Shared(np.full(1, cut, real))
    is_complex = np.iscomplexobj(a)
    if driver == "gels":
        info = _each("gels", a.dtype, "N", *problem, work)
        size = np.abs(np.diagonal(packed, 0, 1, 2))
        lost = size <= cut * size.max(1, keepdims=True)
        info = np.where(lost.any(1), lost.argmax(1) + 1, info)
    elif driver == "gelsy":
        order = np.zeros((count, n), np.int64)  # all columns may be exchanged
        more = [_Shared(np.empty(2 * n, real))] if is_complex else []
        info = _each("gelsy", a.dtype, *problem, order, limit, rank, work, *more)
    elif driver == "gelss":
        more = [_Shared(np.empty(5 * least, real))] if is_complex else []
        info = _each("gelss", a.dtype, *problem, s, limit, rank, work, *more)
    else:
        levels = max(least // (_LEAF + 1), 1).bit_length()
        more = [_Shared(np.empty(3 * least * levels + 11 * least, np.int64))]
        if is_complex:
            inner = max((_LEAF + 1) ** 2, most * (1 + k) + 2 * k)
            size = most * (10 + 2 * _LEAF + 8 * levels) + 3 * _LEAF * k + inner
            more.insert(0, _Shared(np.empty(size, real)))
        info = _each("gelsd", a.dtype, *problem, s, limit, rank, work, *more)
    x = _back(out[:, :, :n], batch)
    return x, rank.reshape(batch), s.reshape(*batch, least), _info(info, batch)
