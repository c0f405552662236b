"""cuSOLVER and cuBLAS without a GPU: SciPy's LAPACK on the memory of the fake driver.

The parameters are those of NVIDIA's headers, in their order. As `fake_cuda.py`, it is harsher than
the libraries: work is done in its stream when somebody waits, addresses are checked, and what is
left unspecified becomes garbage.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fake_streams import Stream
from scipy.linalg import blas, lapack

from tilewright.runtime.cuda import solver

OK, INVALID_VALUE, INTERNAL_ERROR = 0, 3, 7
TYPES = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}
LETTERS = {"S": 0, "D": 1, "C": 4, "Z": 5}
ON_DEVICE, ON_HOST = 96, 48  # bytes of workspaces
GARBAGE = 7.5


class FakeSolver:
    """Both libraries. lacking: parts of the names of functions that it hasn't. calls: the number of
    calls of each function. refused: functions that fail."""

    def __init__(self, fake: Any, lacking: Sequence[str] = ()):
        self.fake = fake
        self.calls: Counter[str] = Counter()
        self.refused: dict[str, int] = {}
        self._streams: dict[int, tuple[str, Stream | None]] = {}
        for name, types in solver.PROTOTYPES.items():
            if not any(each in name for each in lacking):
                setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._entry(name)))

    def _entry(self, name: str) -> Callable[..., int]:
        letter, plain = _plain(name)
        body = getattr(self, f"_{plain}")

        def entry(*args: Any) -> int:
            self.calls[name] += 1
            if name in self.refused:
                return self.refused[name]
            with self.fake._turns:
                try:
                    self.fake._context_number()
                    return body(*((letter,) if letter else ()), *args) or OK
                except Invalid:
                    return INVALID_VALUE
                except Exception as error:
                    self.fake.races.found.append(f"{name}: {error!r}")
                    return INTERNAL_ERROR

        return entry

    # -- handles

    def _new(self, kind: str, out: Any) -> None:
        out[0] = handle = self.fake._new(kind)
        self._streams[handle] = kind, self.fake._stream(0)

    def _create(self, out: Any) -> None:
        self._new("solver", out)

    def _create_params(self, out: Any) -> None:
        self._new("parameters", out)

    def _create_jacobi(self, out: Any) -> None:
        self._new("jacobi", out)

    def _create_blas(self, out: Any) -> None:
        self._new("blas", out)

    def _set_stream(self, handle: int, stream: int | None) -> None:
        kind, _ = self._streams[handle]
        self._streams[handle] = kind, self.fake._stream(stream)

    def _do(self, name: str, handle: int, do: Callable[[int], None], kind: str = "solver") -> None:
        found, stream = self._streams[handle]
        assert found == kind and stream is not None
        assert stream.context == self.fake._context_number(), "a handle of another GPU"
        stream.give(name, do)

    # -- memory

    def _vector(self, place: int, pointer: int | None, count: int, dtype: Any, writes: bool) -> Any:
        """Elements in device memory, when the work at `place` is done."""
        if not count:
            return np.empty(0, dtype)
        size = count * np.dtype(dtype).itemsize
        self.fake._check(pointer, size)
        self.fake.races.access(place, pointer, size, writes=writes)
        memory = (ctypes.c_char * size).from_address(pointer)
        return np.frombuffer(memory, dtype)

    def _matrix(
        self, place: int, a: Any, rows: int, columns: int, lda: int, type: int, writes: bool = True
    ) -> Any:
        """A matrix by columns, which are lda elements apart."""
        if lda < max(1, rows):
            raise Invalid
        count = lda * (columns - 1) + rows
        flat = self._vector(place, a, count, TYPES[type], writes)
        step = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (step, lda * step))

    def _sizes(self, there: Any, here: Any) -> None:
        there[0], here[0] = ON_DEVICE, ON_HOST

    def _spoil(self, place: int, work: Any, size: int, host: Any, host_size: int) -> None:
        assert (size, host_size) == (ON_DEVICE, ON_HOST), "not the memory that was asked for"
        self._vector(place, work, size, np.uint8, True)[:] = 0xC3

    def _work(self, host: int, host_size: int) -> None:
        ctypes.memset(host, 0xC3, host_size)

    def _info(self, place: int, info: int, value: int) -> None:
        self._vector(place, info, 1, np.int32, True)[0] = value

    def _generic(
        self,
        name: str,
        handle: int,
        params: int,
        rest: tuple[Any, ...],
        do: Callable[[int], int],
        compute: tuple[int, ...],
    ) -> None:
        """A function with workspaces. rest: what stands behind the type of the computation. do:
        returns the number of a fault. compute: the types that must be one."""
        work, size, host, host_size, info = rest[:5]
        assert self._streams[params][0] == "parameters"
        assert len(set(compute)) == 1, "types differ"
        self._work(host, host_size)

        def work_of(place: int) -> None:
            self._spoil(place, work, size, host, host_size)
            self._info(place, info, do(place))

        self._do(name, handle, work_of)

    # -- Cholesky

    def _Xpotrf_bufferSize(
        self,
        handle: int,
        params: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        self._sizes(there, here)

    def _Xpotrf(
        self,
        handle: int,
        params: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        compute: int,
        *rest: Any,
    ) -> None:
        def do(place: int) -> int:
            a = self._matrix(place, A, n, n, lda, type)
            found, info = _of("potrf", a)(np.array(a), lower=uplo == 0, clean=0)
            part = np.tril if uplo == 0 else np.triu
            a[...] = np.where(part(np.ones((n, n), bool)), found, GARBAGE)
            return info

        self._generic("potrf", handle, params, rest, do, (type, compute))

    # -- LU

    def _Xgetrf_bufferSize(
        self,
        handle: int,
        params: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        self._sizes(there, here)

    def _Xgetrf(
        self,
        handle: int,
        params: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        ipiv: int,
        compute: int,
        *rest: Any,
    ) -> None:
        def do(place: int) -> int:
            a = self._matrix(place, A, m, n, lda, type)
            a[...], pivots, info = _of("getrf", a)(np.array(a))
            self._vector(place, ipiv, min(m, n), np.int64, True)[:] = pivots + 1
            return info

        self._generic("getrf", handle, params, rest, do, (type, compute))

    def _Xgetrs(
        self,
        handle: int,
        params: int,
        trans: int,
        n: int,
        nrhs: int,
        type: int,
        A: int,
        lda: int,
        ipiv: int,
        type_b: int,
        B: int,
        ldb: int,
        info: int,
    ) -> None:
        assert type == type_b

        def do(place: int) -> None:
            a = self._matrix(place, A, n, n, lda, type, writes=False)
            b = self._matrix(place, B, n, nrhs, ldb, type)
            pivots = self._vector(place, ipiv, n, np.int64, False)
            found, fault = _of("getrs", a)(np.array(a), pivots - 1, np.array(b), trans=trans)
            b[...] = found
            self._info(place, info, fault)

        self._do("getrs", handle, do)

    def _Dlaswp(
        self,
        handle: int,
        n: int,
        A: int,
        lda: int,
        k1: int,
        k2: int,
        devIpiv: int,
        incx: int,
    ) -> None:
        assert incx == 1 <= k1 <= k2

        def do(place: int) -> None:
            a = self._matrix(place, A, lda, n, lda, 1)
            pivots = self._vector(place, devIpiv, k2, np.int32, False)
            for row in range(k1 - 1, k2):
                a[[row, pivots[row] - 1]] = a[[pivots[row] - 1, row]]

        self._do("laswp", handle, do)

    # -- QR

    def _Xgeqrf_bufferSize(
        self,
        handle: int,
        params: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_tau: int,
        tau: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        self._sizes(there, here)

    def _Xgeqrf(
        self,
        handle: int,
        params: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_tau: int,
        tau: int,
        compute: int,
        *rest: Any,
    ) -> None:
        def do(place: int) -> int:
            a = self._matrix(place, A, m, n, lda, type)
            a[...], factors, _, info = _of("geqrf", a)(np.array(a))
            self._vector(place, tau, min(m, n), a.dtype, True)[:] = factors
            return info

        self._generic("geqrf", handle, params, rest, do, (type, type_tau, compute))

    def _orgqr_bufferSize(
        self,
        letter: str,
        handle: int,
        m: int,
        n: int,
        k: int,
        A: int,
        lda: int,
        tau: int,
        lwork: Any,
    ) -> None:
        lwork[0] = 5

    def _orgqr(
        self,
        letter: str,
        handle: int,
        m: int,
        n: int,
        k: int,
        A: int,
        lda: int,
        tau: int,
        work: int,
        lwork: int,
        info: int,
    ) -> None:
        if not m >= n >= k or lwork != 5:
            raise Invalid
        type = LETTERS[letter]

        def do(place: int) -> None:
            a = self._matrix(place, A, m, n, lda, type)
            self._vector(place, work, lwork, a.dtype, True)[:] = GARBAGE
            factors = self._vector(place, tau, k, a.dtype, False)
            name = "orgqr" if letter in "SD" else "ungqr"
            a[...], _, fault = _of(name, a)(np.array(a), np.array(factors))
            self._info(place, info, fault)

        self._do("orgqr", handle, do)

    # -- eigenvalues

    def _Xsyevd_bufferSize(
        self,
        handle: int,
        params: int,
        jobz: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        self._sizes(there, here)

    def _Xsyevd(
        self,
        handle: int,
        params: int,
        jobz: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        compute: int,
        *rest: Any,
    ) -> None:
        def do(place: int) -> int:
            return self._eigen(place, jobz, uplo, n, type, A, lda, W)

        assert type_w == type % 4
        self._generic("syevd", handle, params, rest, do, (type, compute))

    def _eigen(
        self, place: int, jobz: int, uplo: int, n: int, type: int, A: int, lda: int, W: int
    ) -> int:
        a = self._matrix(place, A, n, n, lda, type)
        name = "syevd" if type < 4 else "heevd"
        w, v, info = _of(name, a)(np.array(a), compute_v=jobz, lower=uplo == 0)
        a[...] = v if jobz else GARBAGE
        self._vector(place, W, n, w.dtype, True)[:] = w
        return info

    def _XsyevBatched_bufferSize(
        self,
        handle: int,
        params: int,
        jobz: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        compute: int,
        there: Any,
        here: Any,
        batch: int,
    ) -> None:
        assert batch > 1
        self._sizes(there, here)

    def _XsyevBatched(
        self,
        handle: int,
        params: int,
        jobz: int,
        uplo: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        compute: int,
        *rest: Any,
    ) -> None:
        *given, info, batch = rest
        assert type_w == type % 4 and type == compute
        self._work(given[2], given[3])
        width = np.dtype(TYPES[type]).itemsize
        real = np.dtype(TYPES[type_w]).itemsize

        def do(place: int) -> None:
            self._spoil(place, *given)
            for i in range(batch):
                at = A + i * lda * n * width, lda, W + i * n * real
                fault = self._eigen(place, jobz, uplo, n, type, *at)
                self._info(place, info + 4 * i, fault)

        self._do("syevBatched", handle, do)

    def _Xgeev_bufferSize(
        self,
        handle: int,
        params: int,
        jobvl: int,
        jobvr: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        type_vl: int,
        VL: int,
        ldvl: int,
        type_vr: int,
        VR: int,
        ldvr: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        self._sizes(there, here)

    def _Xgeev(
        self,
        handle: int,
        params: int,
        jobvl: int,
        jobvr: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_w: int,
        W: int,
        type_vl: int,
        VL: int,
        ldvl: int,
        type_vr: int,
        VR: int,
        ldvr: int,
        compute: int,
        *rest: Any,
    ) -> None:
        assert jobvl == 0 and type_w == type % 4 + 4

        def do(place: int) -> int:
            a = self._matrix(place, A, n, n, lda, type)
            *w, _, v, info = _of("geev", a)(np.array(a), compute_vl=0, compute_vr=jobvr)
            a[...] = GARBAGE
            found = w[0] if len(w) == 1 else w[0] + 1j * w[1]
            self._vector(place, W, n, TYPES[type_w], True)[:] = found
            if jobvr:
                self._matrix(place, VR, n, n, ldvr, type)[...] = v
            return info

        types = type, type_vl, type_vr, compute
        self._generic("geev", handle, params, rest, do, types)

    # -- singular values

    def _Xgesvd_bufferSize(
        self,
        handle: int,
        params: int,
        jobu: int,
        jobvt: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_s: int,
        S: int,
        type_u: int,
        U: int,
        ldu: int,
        type_vt: int,
        VT: int,
        ldvt: int,
        compute: int,
        there: Any,
        here: Any,
    ) -> None:
        if m < n:
            raise Invalid
        self._sizes(there, here)

    def _Xgesvd(
        self,
        handle: int,
        params: int,
        jobu: int,
        jobvt: int,
        m: int,
        n: int,
        type: int,
        A: int,
        lda: int,
        type_s: int,
        S: int,
        type_u: int,
        U: int,
        ldu: int,
        type_vt: int,
        VT: int,
        ldvt: int,
        compute: int,
        *rest: Any,
    ) -> None:
        if m < n or not chr(jobu) == chr(jobvt) in "ASN":
            raise Invalid
        vectors, full = chr(jobu) != "N", chr(jobu) == "A"

        def do(place: int) -> int:
            a = self._matrix(place, A, m, n, lda, type)
            u, s, vt, info = _of("gesvd", a)(np.array(a), compute_uv=vectors, full_matrices=full)
            a[...] = GARBAGE
            self._vector(place, S, n, s.dtype, True)[:] = s
            if vectors:
                self._matrix(place, U, m, m if full else n, ldu, type)[...] = u
                self._matrix(place, VT, n, n, ldvt, type)[...] = vt
            return info

        assert type_s == type % 4
        self._generic("gesvd", handle, params, rest, do, (type, type_u, type_vt, compute))

    def _gesvdjBatched_bufferSize(
        self,
        letter: str,
        handle: int,
        jobz: int,
        m: int,
        n: int,
        A: int,
        lda: int,
        S: int,
        U: int,
        ldu: int,
        V: int,
        ldv: int,
        lwork: Any,
        params: int,
        batchSize: int,
    ) -> None:
        lwork[0] = 6

    def _gesvdjBatched(
        self,
        letter: str,
        handle: int,
        jobz: int,
        m: int,
        n: int,
        A: int,
        lda: int,
        S: int,
        U: int,
        ldu: int,
        V: int,
        ldv: int,
        work: int,
        lwork: int,
        info: int,
        params: int,
        batchSize: int,
    ) -> None:
        if not (0 < m <= 32 and 0 < n <= 32 and lwork == 6):
            raise Invalid
        assert self._streams[params][0] == "jacobi"
        type = LETTERS[letter]
        width, real = (np.dtype(TYPES[each]).itemsize for each in (type, type % 4))

        def do(place: int) -> None:
            self._vector(place, work, lwork, TYPES[type], True)[:] = GARBAGE
            for i in range(batchSize):
                a = self._matrix(place, A + i * lda * n * width, m, n, lda, type)
                u, s, vh, fault = _of("gesvd", a)(np.array(a))
                a[...] = GARBAGE
                k = min(m, n)
                self._vector(place, S + i * k * real, k, s.dtype, True)[:] = s
                if jobz:
                    self._matrix(place, U + i * ldu * m * width, m, m, ldu, type)[...] = u
                    v = self._matrix(place, V + i * ldv * n * width, n, n, ldv, type)
                    v[...] = vh.conj().T
                self._info(place, info + 4 * i, fault)

        self._do("gesvdjBatched", handle, do)

    # -- triangles

    def _trsm(
        self,
        letter: str,
        handle: int,
        side: int,
        uplo: int,
        trans: int,
        diag: int,
        m: int,
        n: int,
        alpha: int,
        A: int,
        lda: int,
        B: int,
        ldb: int,
    ) -> None:
        type = LETTERS[letter]
        number = np.dtype(TYPES[type])
        factor = np.frombuffer(ctypes.string_at(alpha, number.itemsize), number)[0]
        order = n if side else m

        def do(place: int) -> None:
            a = self._matrix(place, A, order, order, lda, type, writes=False)
            b = self._matrix(place, B, m, n, ldb, type)
            (solve,) = blas.get_blas_funcs(("trsm",), (a, b))
            b[...] = solve(
                *(factor, np.array(a), np.array(b), side, int(uplo == 0), trans, diag),
            )

        self._do("trsm", handle, do, "blas")


class Invalid(Exception):
    """A parameter that a function refuses."""


def _of(name: str, a: Any) -> Callable[..., Any]:
    (found,) = lapack.get_lapack_funcs((name,), (a,))
    return found


HANDLES = {
    "cusolverDnCreate": "create",
    "cusolverDnCreateParams": "create_params",
    "cusolverDnSetStream": "set_stream",
    "cusolverDnCreateGesvdjInfo": "create_jacobi",
    "cublasCreate_v2": "create_blas",
    "cublasSetStream_v2": "set_stream",
}


def _plain(name: str) -> tuple[str | None, str]:
    """The letter of a function of one dtype, and its name without it."""
    if name in HANDLES:
        return None, HANDLES[name]
    rest = name.removeprefix("cusolverDn").removeprefix("cublas").removesuffix("_v2")
    if rest == "Dlaswp" or rest[0] == "X":
        return None, rest
    return rest[0], rest[1:].replace("ungqr", "orgqr")
