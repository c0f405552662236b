"""Native loops of what libraries compute: a routine for each matrix of a batch
(`ir/numeric/lapack.py`), and complex products along rows (`ir/numeric/products.py`)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from tilewright.codegen.llvm import row_products
from tilewright.codegen.llvm import running as running_products
from tilewright.codegen.llvm.code import Code, module_text
from tilewright.codegen.llvm.types import Ref, constant

from . import host, jit


def repeat(function: int, addresses: Any, steps: Any, count: int) -> None:
    """Call the function at an address `count` times with pointers: int64 addresses of the first
    call, and their steps from one call to the next, in bytes."""
    loop, _ = _loop(len(addresses))
    begin, step = (x.__array_interface__["data"][0] for x in (addresses, steps))
    loop(function, begin, step, count)


@functools.cache
def _loop(arguments: int) -> tuple[Callable[..., None], Any]:
    code = Code("kernel", "ptr %f, ptr %addresses, ptr %steps, i64 %count")

    def numbers(base: str) -> list[Ref]:
        at = [code.let(f"getelementptr i64, ptr {base}, i64 {i}", "ptr") for i in range(arguments)]
        return [code.let(f"load i64, {each.typed}, align 8", "i64") for each in at]

    first, steps = numbers("%addresses"), numbers("%steps")
    loop = code.open_loop(constant(0, "i64"), Ref("%count", "i64"))
    given = []
    for address, step in zip(first, steps, strict=True):
        moved = code.binary("add", address, code.binary("mul", step, loop.variable))
        given.append(code.convert("inttoptr", moved, "ptr"))
    code.add(f"call void %f({', '.join(each.typed for each in given)})")
    code.close_loop(loop)
    linked = jit.link(module_text([code]) + host.machine().attributes, "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    return made(linked.addresses["kernel"]), linked


def running(z: Any, out: Any) -> None:
    """The running products along the rows of complex z[m, n]."""
    kernel, _ = _of_rows(running_products.emit, z.dtype.char)
    kernel(z.ctypes.data, out.ctypes.data, *z.shape)


def total(z: Any, out: Any) -> None:
    """The products of the rows of complex z[m, n], to out[m]."""
    kernel, _ = _of_rows(row_products.emit, z.dtype.char)
    kernel(z.ctypes.data, out.ctypes.data, *z.shape)


@functools.cache
def _of_rows(emit: Callable[..., str], char: str) -> tuple[Callable[..., None], Any]:
    kind = {"F": "float", "D": "double"}[char]
    linked = jit.link(emit(kind, host.machine()), "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
    return made(linked.addresses["kernel"]), linked
