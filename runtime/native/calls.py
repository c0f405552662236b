"""Calls: machine code as functions that Python calls, with arrays and numbers as arguments.

One native entry point serves all code. It walks through a descriptor, which holds the numbers of
the call and the places of its buffers and scalars. Nothing here needs a compiler, so that code from
the pack runs without one.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import row_folds
from tilewright.ir.dtype import BOOL, FLOAT, DType, int64

from . import entries, results
from .jit import Linked
from .pack import Layout
from .pool import num_threads, pool


class _PyMethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_METH_FASTCALL = 0x80


@functools.cache
def _method(name: str) -> _PyMethodDef:
    """The Python method of a native entry point. METH_FASTCALL needs no tuple of arguments."""
    _check_layout()
    return _PyMethodDef(name.encode(), pool().native[name], _METH_FASTCALL, None)


def _check_layout() -> None:
    """Check that arrays keep their address where the entry point reads it, as in NumPy's C
    headers."""
    probe = np.empty(3)
    if ctypes.c_size_t.from_address(id(probe) + 16).value != probe.ctypes.data:
        raise RuntimeError("NumPy's arrays are not laid out as expected")


def entry(name: str, address: int, owner: Any = None) -> Any:
    """The entry point `name` as a function, bound to the descriptor or table at `address`. It keeps
    `owner` alive, to whom that memory belongs."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    # The third argument is the function's module to Python. Any object will do; the function holds
    # it.
    return make(ctypes.addressof(_method(name)), address, owner)


def kind_of(dtype: DType) -> int:
    """The entry point's code for converting a Python number; see entries.py."""
    if dtype.category == FLOAT:
        return 1 if dtype.itemsize == 8 else 0
    return 3 if dtype.category == BOOL else 2


def bound(
    linked: Linked,
    template: np.ndarray,
    places: np.ndarray,
    moves: np.ndarray,
    chunks: int,
    parallel: bool,
    errors: Sequence[int] = (),
) -> Any:
    """A function of (buffers, numbers) that runs the chunks of the code's `kernel`.

    template: its words, of which `places` get the buffers' addresses. moves: (number, place, kind)
    of each number. parallel: whether the pool's threads share the chunks. errors: the places of
    words that the code leaves 0 unless something is wrong; the function returns None if all are.
    """
    descriptor, owned = _described(linked, template, places, moves, chunks, parallel, errors)
    return entry("tw_launch", descriptor.ctypes.data, owned)


def _described(
    linked: Linked,
    template: np.ndarray,
    places: np.ndarray,
    moves: np.ndarray,
    chunks: int,
    parallel: bool,
    errors: Sequence[int] = (),
) -> tuple[np.ndarray, Any]:
    """The descriptor of a launch, and what owns the memory that it points to."""
    ends, checked = np.array([chunks], np.int64), np.array([*errors], np.int64)
    said = {
        "function": linked.addresses["kernel"],
        "chunks": chunks,
        "words": len(template),
        "buffers": len(places),
        "moves": len(moves) // 3,
        "errors": len(checked),
        "buffer_places": places.ctypes.data,
        "move_table": moves.ctypes.data,
        "error_places": checked.ctypes.data,
        "template": template.ctypes.data,
        "parallel": int(parallel),
        "phases": 1,
        "phase_ends": ends.ctypes.data,
    }
    descriptor = np.array([said.get(word, 0) for word in entries.DESCRIPTOR], np.int64)
    return descriptor, (linked, template, places, moves, ends, checked, descriptor)


class Flat:
    """A kernel of one axis for arrays of any size: flat((output, *inputs), size, numbers).

    The code takes the size, the number of chunks and their size as words, so that what was emitted
    for one size runs for all. numbers: the values of the kernel's scalars, by slot.
    """

    def __init__(self, layout: Layout, linked: Linked):
        self.layout, self.order = layout, layout.order
        self.address = linked.addresses["kernel"]
        self.linked = linked
        at, whole = layout.sizes, kind_of(int64)
        moves = [0, at[0], whole, 1, at[2], whole]
        for slot, place, kind in layout.scalars:
            moves += [2 + slot, place, kind]
        self._moves = np.array(moves, np.int64)
        self._places = np.array(layout.buffers, np.int64)
        self._chunks = 2 * num_threads()

    @functools.cached_property
    def _serial(self) -> Any:
        return self._entry(1)

    @functools.cached_property
    def _parallel(self) -> Any:
        return self._entry(self._chunks)

    def _entry(self, chunks: int) -> Any:
        template = np.zeros(self.layout.words, np.int64)
        template[self.layout.sizes[1]] = chunks
        return bound(self.linked, template, self._places, self._moves, chunks, chunks > 1)

    def __call__(self, arrays: Sequence[Any], size: int, numbers: Sequence[Any] = ()) -> None:
        if size < _PARALLEL_FROM:
            self._serial(arrays, (size, size, *numbers))
        else:
            pool().start()
            each = -(-size // (64 * self._chunks)) * 64
            self._parallel(arrays, (size, each, *numbers))


def rows(layout: Layout, linked: Linked, size: int, results: int, operands: int) -> Any:
    """A kernel of one axis over rows of `size` elements that lie apart from each other: a function
    of (buffers, walk, count). walk is an array of int64 with a line for each of the kernel's
    arguments, its results and then its operands: (number of a buffer, bytes into it) in the first
    row, the same in the second one, and the bytes by which it moves from then on. results,
    operands: the numbers of these, also where the kernel uses only some."""
    template = np.zeros(layout.words, np.int64)
    template[[*layout.sizes]] = size, 1, size
    places = np.array(layout.buffers, np.int64)
    descriptor, owned = _described(linked, template, places, np.zeros(1, np.int64)[:0], 1, False)
    used = np.array([*layout.results, *[results + i for i in layout.order]], np.int64)
    address = descriptor.ctypes.data
    table = np.array([1, results + operands, address, address, used.ctypes.data], np.int64)
    return entry("tw_loop", table.ctypes.data, (table, used, owned))


def making(
    kernel: Flat,
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
    other: Callable[..., Any],
) -> Any:
    """A kernel as a function of arrays of `dtypes` that makes its result; see `results.py`.

    The operands have one shape, or its last dimensions. other: what computes it for all others, and
    where it is large.
    """
    layout = kernel.layout
    at_size, at_chunks, at_chunk = layout.sizes
    template = np.zeros(layout.words, np.int64)
    template[at_chunks] = 1
    places = np.array(layout.buffers, np.int64)
    descriptor, owned = _described(
        kernel.linked, template, places, np.zeros(1, np.int64)[:0], 1, False
    )
    used = np.array([0, *[1 + i for i in kernel.order]], np.int64)
    table, owner = results.table(dtypes, dtype, descriptor, used, (at_size, at_chunk), other)
    return entry("tw_map", table.ctypes.data, (table, owner, owned))


def folding(
    linked: Linked,
    dtype: np.dtype[Any],
    axes: Sequence[int],
    limits: tuple[int, int, int],
    other: Callable[..., Any],
) -> Any:
    """The code of `row_folds.py` as a function of an array of `dtype` that makes the fold over
    `axes`, if they are its last ones; they stay with size 1. See `results.py`.

    limits: the elements of an array, those of a short row, and how many of these rows, from which
    on `other` computes it. other: what computes it for all other arrays, too.
    """
    none = np.zeros(0, np.int64)
    places = np.arange(2)
    template = np.zeros(len(row_folds.WORDS), np.int64)
    descriptor, owned = _described(linked, template, places, none, 1, False)
    table, owner = results.folding(dtype, descriptor, places, axes, limits, other)
    return entry("tw_fold", table.ctypes.data, (table, owner, owned))


_PARALLEL_FROM = 1 << 16
"""Elements from which a flat kernel runs on all cores."""
