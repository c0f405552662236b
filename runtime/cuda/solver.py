"""Routines of `ir/ops/lapack.py` by cuSOLVER and cuBLAS, in the stream of a program's kernels."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from ctypes import c_int, c_size_t
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.codegen.legalize.factors import USES, used
from tilewright.ir.dtype import (
    DType,
    complex64,
    complex128,
    complex_of,
    float32,
    float64,
    real_of,
)
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops import factors, lapack, solving
from tilewright.ir.ops.host import TILE

from .. import debug
from .libraries import Libraries, load
from .memory import Buffer, Memory

if TYPE_CHECKING:
    from tilewright.codegen.lower.host import Routine

    from .device import Cuda

_TYPES = {float32: 0, float64: 1, complex64: 4, complex128: 5}  # cudaDataType
_LETTERS = {float32: "S", float64: "D", complex64: "C", complex128: "Z"}
_LOWER, _UPPER = 0, 1  # cublasFillMode_t
_RIGHT = 1  # CUBLAS_SIDE_RIGHT
_PLAIN = 0  # CUBLAS_OP_N
_MOST_TOGETHER = 512
"""The rows of the largest matrices of which a batch goes to one call. Larger ones fill a GPU."""
_MANY = 8
"""The most small matrices for which calls are made one after the other: such a call takes longer
than the host with a small matrix. Chosen without a measurement."""


@dataclass(frozen=True)
class _Handles:
    """Of one stream: memory of a handle's own may be in use until the work given to it ends."""

    solver: int
    parameters: int
    jacobi: int
    blas: int


class Solver:
    """The libraries for one device."""

    def __init__(self, device: Cuda, libraries: Libraries):
        self.device, self.libraries = device, libraries
        self.lock = threading.Lock()  # a handle serves one thread at a time
        self._handles: dict[int, _Handles] = {}

    def has(self, op: Op) -> bool:
        """Whether the libraries compute a routine."""
        return all(
            each in _FORMS and hasattr(self.libraries, _FORMS[each].symbol)
            for each in USES.get(op, (op,))
        )

    def serves(self, op: Op, operands: Sequence[Node]) -> bool:
        """Whether a routine of operands is to be computed here."""
        return self.has(op) and (op is factors.permutation or not self._are_many(op, operands))

    def _are_many(self, op: Op, operands: Sequence[Node]) -> bool:
        """Whether the matrices are small and so many that the host computes them in less time than
        the calls for them take, of which each has one matrix."""
        *batch, rows, columns = operands[0].shape
        if max(rows, columns) > TILE or math.prod(batch) <= _MANY:
            return False
        forms = [_FORMS[each] for each in used(op, operands)]
        return not all(f.whole and hasattr(self.libraries, f.whole[0]) for f in forms)

    def handles(self) -> _Handles:
        """The handles for work in the current stream."""
        stream = self.device.context.stream
        found = self._handles.get(stream)
        if found is None:
            libraries = self.libraries
            found = self._handles[stream] = _Handles(
                libraries.handle("cusolverDnCreate"),
                libraries.handle("cusolverDnCreateParams"),
                libraries.handle("cusolverDnCreateGesvdjInfo"),
                libraries.handle("cublasCreate_v2"),
            )
            libraries.cusolverDnSetStream(found.solver, stream)
            libraries.cublasSetStream_v2(found.blas, stream)
        return found


def solver_of(device: Cuda) -> Solver | None:
    """The libraries for a device, if this machine has them and they work."""
    libraries = load(device.driver.solvers())
    if libraries is None:
        return None
    made = Solver(device, libraries)
    device.context.use()
    try:
        made.handles()
    except RuntimeError as error:
        debug.say(f"cuSOLVER can't be used on {device.name}: {error}")
        return None
    return made


class LibraryLaunch:
    """A launch of a routine of the libraries, for one matrix of the batch after the other."""

    def __init__(self, solver: Solver, routine: Routine):
        self.solver, self.routine = solver, routine
        self.form = _FORMS[routine.op]
        (shape, _), *_ = routine.inputs
        self.batch = math.prod(shape[: -self.form.rank])
        self.waits = solver.device.blocking

    def __call__(self, buffers: Sequence[Buffer | None], scalars: Sequence[Any]) -> None:
        device, routine, form = self.solver.device, self.routine, self.form
        context = device.context
        results = len(routine.outputs)
        places = [0 if b is None else b.pointer for b in buffers]
        steps = [0 if b is None else b.nbytes // self.batch for b in buffers]
        source = buffers[results + form.overwritten]
        assert source is not None, "matrices without elements are the host's"
        held: list[Memory] = []
        # LAPACK overwrites an operand: here a copy of it, if possible where a result lies.
        target = buffers[form.result] if form.result is not None else None
        if target is None or not target.nbytes:
            held.append(device.pool.allocate(source.nbytes, "cuSOLVER"))
            to = held[0].pointer
        else:
            to = target.pointer
        context.use()
        device.driver.cuMemcpyDtoDAsync_v2(to, source.pointer, source.nbytes, context.stream)
        places[results + form.overwritten] = to
        with self.solver.lock:
            self._enqueue(Call(self.solver, self.solver.handles(), routine, held), places, steps)
        if self.waits:
            device.synchronize()

    def _enqueue(self, call: Call, places: list[int], steps: list[int]) -> None:
        """Make the calls for all matrices. steps: the bytes from each address to the next one."""
        whole = self.form.whole
        if whole is not None and self.batch > 1 and call.size(0) <= _MOST_TOGETHER:
            symbol, function = whole
            if hasattr(self.solver.libraries, symbol):
                function(call, self.batch, *places)
                return
        for _ in range(self.batch):
            self.form.function(call, *places)
            places = [p + step for p, step in zip(places, steps)]


@dataclass
class Call:
    """The calls for the matrices of a batch, which are alike. held: device memory of theirs."""

    solver: Solver
    handles: _Handles
    routine: Routine
    held: list[Memory]
    _work: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def dtype(self) -> DType:
        return self.routine.inputs[0][1]

    @property
    def type(self) -> int:
        return _TYPES[self.dtype]

    @property
    def real(self) -> int:
        return _TYPES[real_of(self.dtype)]

    def size(self, operand: int, axis: int = -1) -> int:
        return self.routine.inputs[operand][0][axis]

    def memory(self, size: int) -> int:
        """Device memory for these calls."""
        self.held.append(self.solver.device.pool.allocate(size, "cuSOLVER"))
        self.solver.device.context.use()
        return self.held[-1].pointer

    def spare(self) -> int:
        """A place for an `info` that nobody reads."""
        found = self._work.get("info")
        if found is None:
            found = self._work["info"] = (self.memory(4),)
        return int(found[0])

    def dense(
        self,
        name: str,
        arguments: Sequence[Any],
        info: int,
        asked: Sequence[Any] | None = None,
        last: Sequence[Any] = (),
    ) -> None:
        """Call a generic function. asked: the arguments of the question for its memory, by default
        the same. last: those behind all others, of both."""
        first = self.handles.solver, self.handles.parameters
        found = self._work.get(name)
        if found is None:
            there, here = c_size_t(), c_size_t()
            ask = getattr(self.solver.libraries, f"cusolverDn{name}_bufferSize")
            ask(*first, *(asked or arguments), self.type, there, here, *last)
            host = ctypes.create_string_buffer(max(here.value, 1))
            found = self.memory(there.value), there.value, ctypes.addressof(host), here.value, host
            self._work[name] = found
        function = getattr(self.solver.libraries, f"cusolverDn{name}")
        function(*first, *arguments, self.type, *found[:4], info, *last)


# ---- the routines ----------------------------------------------------------------------------
#
# Each takes the addresses of the results and then of the operands, of one matrix. That of the
# operand which it overwrites is the address of a copy.


@dataclass(frozen=True)
class _Form:
    """symbol: a function that the library must have. overwritten: the operand which is overwritten,
    and result: the result that it becomes, if any. rank: of one matrix of the first operand. whole:
    a function for the whole batch, and what it must have."""

    function: Callable[..., None]
    symbol: str
    overwritten: int = 0
    result: int | None = 0
    rank: int = 2
    whole: tuple[str, Callable[..., None]] | None = None


def _potrf(call: Call, factor: int, info: int, a: int) -> None:
    n = call.size(0)
    call.dense("Xpotrf", (_UPPER, n, call.type, a, n), info)


def _getrf(call: Call, packed: int, pivots: int, info: int, a: int) -> None:
    m, n = call.size(0), call.size(0, -2)
    matrix = m, n, call.type, a, m
    call.dense("Xgetrf", (*matrix, pivots), info, asked=matrix)


def _getrs(call: Call, x: int, packed: int, pivots: int, b: int) -> None:
    n, count = call.size(0), call.size(2, -2)
    call.solver.libraries.cusolverDnXgetrs(
        *(call.handles.solver, call.handles.parameters, _PLAIN, n, count),
        *(call.type, packed, n, pivots, call.type, b, n, call.spare()),
    )


def _laswp(call: Call, out: int, x: int, pivots: int) -> None:
    m = call.size(0)
    call.solver.libraries.cusolverDnDlaswp(call.handles.solver, 1, x, m, 1, call.size(1), pivots, 1)


def _geqrf(call: Call, packed: int, factors: int, a: int) -> None:
    m, n = call.size(0), call.size(0, -2)
    call.dense("Xgeqrf", (m, n, call.type, a, m, call.type, factors), call.spare())


def _orgqr(call: Call, q: int, a: int, factors: int) -> None:
    m, n, k = call.size(0), call.size(0, -2), call.size(1)
    letter = _LETTERS[call.dtype]
    name = f"cusolverDn{letter}{'orgqr' if letter in 'SD' else 'ungqr'}"
    arguments = call.handles.solver, m, n, k, a, m, factors
    found = call._work.get(name)
    if found is None:
        count = c_int()
        getattr(call.solver.libraries, f"{name}_bufferSize")(*arguments, count)
        found = call.memory(count.value * call.dtype.itemsize), count.value
        call._work[name] = found
    getattr(call.solver.libraries, name)(*arguments, *found, call.spare())


def _syevd(call: Call, w: int, v: int, info: int, a: int) -> None:
    call.dense("Xsyevd", _symmetric(call, w, a), info)


def _syev_batched(call: Call, batch: int, w: int, v: int, info: int, a: int) -> None:
    call.dense("XsyevBatched", _symmetric(call, w, a), info, last=(batch,))


def _symmetric(call: Call, w: int, a: int) -> tuple[Any, ...]:
    is_lower, vectors = call.routine.attrs
    n = call.size(0)
    # A triangle of the array is the other one of the matrix.
    return (int(vectors), _UPPER if is_lower else _LOWER, n, call.type, a, n, call.real, w)


def _gesvd(call: Call, u: int, s: int, vh: int, info: int, a: int) -> None:
    (job,) = call.routine.attrs
    m, n = call.size(0), call.size(0, -2)
    call.dense(
        "Xgesvd",
        (
            *(ord(job), ord(job), m, n, call.type, a, m, call.real, s),
            *(call.type, u, m, call.type, vh, n),
        ),
        info,
    )


def _gesvdj(call: Call, u: int, s: int, v: int, info: int, a: int) -> None:
    _gesvdj_batched(call, 1, u, s, v, info, a)


def _gesvdj_batched(call: Call, batch: int, u: int, s: int, v: int, info: int, a: int) -> None:
    (vectors,) = call.routine.attrs
    m, n = call.size(0), call.size(0, -2)
    name = f"cusolverDn{_LETTERS[call.dtype]}gesvdjBatched"
    arguments = call.handles.solver, int(vectors), m, n, a, m, s, u, m, v, n
    jacobi = call.handles.jacobi
    count = c_int()
    getattr(call.solver.libraries, f"{name}_bufferSize")(*arguments, count, jacobi, batch)
    work = call.memory(count.value * call.dtype.itemsize)
    getattr(call.solver.libraries, name)(*arguments, work, count.value, info, jacobi, batch)


def _geev(call: Call, w: int, v: int, info: int, a: int) -> None:
    (vectors,) = call.routine.attrs
    n = call.size(0)
    call.dense(
        "Xgeev",
        (
            *(0, int(vectors), n, call.type, a, n, _TYPES[complex_of(real_of(call.dtype))], w),
            *(call.type, 0, n, call.type, v, n),
        ),
        info,
    )


def _trsm(call: Call, x: int, a: int, b: int) -> None:
    """The matrices of these arrays are transposes: xᵀ aᵀ = bᵀ."""
    is_upper, unit = call.routine.attrs
    n, count = call.size(0), call.size(1)
    number = ctypes.c_double if call.dtype in (float64, complex128) else ctypes.c_float
    one = (number * 2)(1, 0)
    function = getattr(call.solver.libraries, f"cublas{_LETTERS[call.dtype]}trsm_v2")
    function(
        *(call.handles.blas, _RIGHT, _LOWER if is_upper else _UPPER, _PLAIN, int(unit)),
        *(count, n, ctypes.addressof(one), a, n, b, count),
    )


_FORMS: dict[Op, _Form] = {
    lapack.potrf: _Form(_potrf, "cusolverDnXpotrf"),
    lapack.getrf: _Form(_getrf, "cusolverDnXgetrf"),
    lapack.getrs: _Form(_getrs, "cusolverDnXgetrs", overwritten=2),
    lapack.laswp: _Form(_laswp, "cusolverDnDlaswp", rank=1),
    lapack.geqrf: _Form(_geqrf, "cusolverDnXgeqrf"),
    lapack.orgqr: _Form(_orgqr, "cusolverDnSorgqr"),
    lapack.syevd: _Form(
        _syevd,
        "cusolverDnXsyevd",
        result=1,
        whole=("cusolverDnXsyevBatched", _syev_batched),
    ),
    lapack.gesvd: _Form(_gesvd, "cusolverDnXgesvd", result=None),
    lapack.gesvdj: _Form(
        _gesvdj,
        "cusolverDnSgesvdjBatched",
        result=None,
        whole=("cusolverDnSgesvdjBatched", _gesvdj_batched),
    ),
    lapack.geev: _Form(_geev, "cusolverDnXgeev", result=None),
    solving.triangular_op: _Form(_trsm, "cublasStrsm_v2", overwritten=1),
}
