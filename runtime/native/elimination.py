"""Factors of batches of small matrices, and triangular systems with few right sides, by native code
(`codegen/llvm/elimination.py`, `codegen/llvm/substitution.py`)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import substitution
from tilewright.codegen.llvm.elimination import emit, lanes_of
from tilewright.codegen.llvm.machine import Machine

from . import host, jit

_KINDS = {"f": "float", "d": "double"}
LARGEST = 24
"""The rows of the largest matrices: LAPACK is as fast from there on."""


def serves(a: Any) -> bool:
    """Whether `lu` factors a[..., m, n]: small real matrices."""
    m, n = a.shape[-2:]
    return 1 <= n <= m <= LARGEST and a.size > 0 and np.dtype(a.dtype).char in _KINDS


def lu(a: Any) -> tuple[Any, Any, Any]:
    """(LU, int32 pivots, int32 info), as `elimination.lu` of `ir/numeric`."""
    *batch, m, n = a.shape
    count, lanes = a.size // (m * n), lanes_of(host.machine(), a.dtype.itemsize)
    given = np.ascontiguousarray(a).reshape(count, m, n)
    if count < lanes:  # a vector of matrices takes as long as one
        given = given[np.minimum(np.arange(lanes), count - 1)]
    out, pivots = np.empty_like(given), np.empty((len(given), n), np.int32)
    info = np.empty(len(given), np.int32)
    width = host.machine().vector_bytes
    memory = np.empty((m * n + 1) * width, np.uint8)
    start = memory.ctypes.data
    arrays = (x.ctypes.data for x in (given, out, pivots, info))
    _kernel(np.dtype(a.dtype).char)[0](*arrays, start + -start % width, m, n, len(given))
    return (
        out[:count].reshape(a.shape),
        pivots[:count].reshape(*batch, n),
        info[:count].reshape(batch),
    )


@functools.cache
def _kernel(char: str) -> tuple[Callable[..., None], Any]:
    linked = jit.link(emit(_KINDS[char], host.machine()), "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3)
    return made(linked.addresses["kernel"]), linked


_SIDES, _ROWS = (2, 4), 128
"""The right sides, and the least rows, for which `solve_triangular` is faster than LAPACK: it reads
a matrix once for four of them."""


def substitutes(a: Any, b: Any) -> bool:
    """Whether `solve_triangular` solves a[..., n, n] x = b[..., n, k]: large and real, of few right
    sides."""
    (n, k), (least, most) = b.shape[-2:], _SIDES
    same = a.dtype == b.dtype and a.shape[:-2] == b.shape[:-2] and np.dtype(a.dtype).char in _KINDS
    return same and a.size > 0 and n >= _ROWS and least <= k <= most


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """As `solve_triangular` of `ir/numeric/elimination.py`."""
    n, k = b.shape[-2:]
    a, sides = np.ascontiguousarray(a), np.array(b.swapaxes(-1, -2), order="C")
    run, _ = _substitution(np.dtype(a.dtype).char, upper)
    run(a.ctypes.data, sides.ctypes.data, n, k, a.size // (n * n), unit)
    return np.ascontiguousarray(sides.swapaxes(-1, -2))


def all_code(machine: Machine) -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of the code for substitution, for the pack."""
    for char, kind in _KINDS.items():
        for upper in (False, True):
            yield _name(char, upper), substitution.text(kind, upper, machine.vector_bytes)


def _name(char: str, upper: bool) -> str:
    return f"substitution {'upper' if upper else 'lower'} {_KINDS[char]}"


@functools.cache
def _substitution(char: str, upper: bool) -> tuple[Callable[..., None], Any]:
    linked = jit.packed(_name(char, upper))
    if linked is None:
        machine = host.machine()
        code = substitution.text(_KINDS[char], upper, machine.vector_bytes) + machine.attributes
        linked = jit.link(code, "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4)
    return made(linked.addresses["kernel"]), linked
