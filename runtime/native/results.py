"""Calls that make their result: a kernel over arrays of one shape, as a function of these arrays.

Where a call is small, most of its time goes to what stands around the kernel: to look at the
operands, to make the result, and to pass both on. So that is native, too.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# The words of a function's table: ndarray, PyArray_NewFromDescr, the dtype of the result, the
# number of its dimensions and their sizes, the launch's descriptor and its table of buffers (0: the
# result), what computes it where an operand isn't as expected, and the number of operands. Then for
# each of these its dtype and the number of its dimensions. If it has only the last ones it is
# written out: its bytes and those of an array of the shape follow, else 0 and 0.
TEXT = """
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

; Whether an object is an array of a dtype, its elements in order, of `rank` dimensions `sizes`.
; PyArrayObject: PyObject_HEAD, data, nd, dimensions, strides, base, descr, flags.
define internal i1 @is_array(ptr %object, i64 %type, i64 %dtype, i32 %rank, ptr %sizes) #0 {
entry:
  %its.type = call i64 @word(ptr %object, i64 1)
  %of.type = icmp eq i64 %its.type, %type
  br i1 %of.type, label %array, label %no
array:
  %its.dtype = call i64 @word(ptr %object, i64 7)
  %of.dtype = icmp eq i64 %its.dtype, %dtype
  %flags.at = getelementptr i8, ptr %object, i64 64
  %flags = load i32, ptr %flags.at, align 8
  %set = and i32 %flags, 257  ; NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
  %lies = icmp eq i32 %set, 257
  %rank.at = getelementptr i8, ptr %object, i64 24
  %its.rank = load i32, ptr %rank.at, align 8
  %of.rank = icmp eq i32 %its.rank, %rank
  %first = and i1 %of.dtype, %lies
  %both = and i1 %first, %of.rank
  br i1 %both, label %shape, label %no
shape:
  %its.sizes.i = call i64 @word(ptr %object, i64 4)
  %its.sizes = inttoptr i64 %its.sizes.i to ptr
  %axes = zext i32 %rank to i64
  br label %axis
axis:
  %i = phi i64 [ 0, %shape ], [ %next, %look ]
  %more = icmp ult i64 %i, %axes
  br i1 %more, label %look, label %yes
look:
  %its.size = call i64 @word(ptr %its.sizes, i64 %i)
  %size = call i64 @word(ptr %sizes, i64 %i)
  %next = add i64 %i, 1
  %same = icmp eq i64 %its.size, %size
  br i1 %same, label %axis, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Write a block of bytes again and again, until `all` bytes are written.
define internal void @spread(ptr %to, ptr %block, i64 %bytes, i64 %all) #0 {
entry:
  switch i64 %bytes, label %loop.n [
    i64 4, label %four
    i64 8, label %eight
  ]
four:
  %value.4 = load i32, ptr %block, align 1
  br label %loop.4
loop.4:
  %i = phi i64 [ 0, %four ], [ %i.next, %loop.4 ]
  %at.4 = getelementptr i8, ptr %to, i64 %i
  store i32 %value.4, ptr %at.4, align 4
  %i.next = add i64 %i, 4
  %i.more = icmp ult i64 %i.next, %all
  br i1 %i.more, label %loop.4, label %out
eight:
  %value.8 = load i64, ptr %block, align 1
  br label %loop.8
loop.8:
  %j = phi i64 [ 0, %eight ], [ %j.next, %loop.8 ]
  %at.8 = getelementptr i8, ptr %to, i64 %j
  store i64 %value.8, ptr %at.8, align 8
  %j.next = add i64 %j, 8
  %j.more = icmp ult i64 %j.next, %all
  br i1 %j.more, label %loop.8, label %out
loop.n:
  %k = phi i64 [ 0, %entry ], [ %k.next, %loop.n ]
  %at.n = getelementptr i8, ptr %to, i64 %k
  call void @llvm.memcpy.p0.p0.i64(ptr %at.n, ptr %block, i64 %bytes, i1 false)
  %k.next = add i64 %k, %bytes
  %k.more = icmp ult i64 %k.next, %all
  br i1 %k.more, label %loop.n, label %out
out:
  ret void
}

; map(self, *operands): self is the address of a table.
define ptr @tw_map(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %type = call i64 @word(ptr %table, i64 0)
  %make.i = call i64 @word(ptr %table, i64 1)
  %make = inttoptr i64 %make.i to ptr
  %dtype.i = call i64 @word(ptr %table, i64 2)
  %dtype = inttoptr i64 %dtype.i to ptr
  %rank.i = call i64 @word(ptr %table, i64 3)
  %rank = trunc i64 %rank.i to i32
  %sizes.i = call i64 @word(ptr %table, i64 4)
  %sizes = inttoptr i64 %sizes.i to ptr
  %descriptor.i = call i64 @word(ptr %table, i64 5)
  %descriptor = inttoptr i64 %descriptor.i to ptr
  %used.i = call i64 @word(ptr %table, i64 6)
  %used = inttoptr i64 %used.i to ptr
  %other.i = call i64 @word(ptr %table, i64 7)
  %other = inttoptr i64 %other.i to ptr
  %operands = call i64 @word(ptr %table, i64 8)
  %slots = add i64 %operands, 1
  %now = alloca i64, i64 %slots, align 8
  %as.many = icmp eq i64 %number, %operands
  br i1 %as.many, label %loop, label %elsewhere
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %set ]
  %next = add i64 %i, 1
  %more = icmp ult i64 %i, %operands
  br i1 %more, label %look, label %result
look:
  %object.i = call i64 @word(ptr %given, i64 %i)
  %object = inttoptr i64 %object.i to ptr
  %row.i4 = mul i64 %i, 4
  %at.dtype = add i64 %row.i4, 9
  %at.rank = add i64 %row.i4, 10
  %at.bytes = add i64 %row.i4, 11
  %at.all = add i64 %row.i4, 12
  %its.dtype = call i64 @word(ptr %table, i64 %at.dtype)
  %its.axes = call i64 @word(ptr %table, i64 %at.rank)
  %bytes = call i64 @word(ptr %table, i64 %at.bytes)
  %all = call i64 @word(ptr %table, i64 %at.all)
  %its.rank = trunc i64 %its.axes to i32
  %missing = sub i64 %rank.i, %its.axes
  %its.sizes = getelementptr i64, ptr %sizes, i64 %missing
  %fits = call i1 @is_array(
    ptr %object, i64 %type, i64 %its.dtype, i32 %its.rank, ptr %its.sizes)
  br i1 %fits, label %point, label %elsewhere
point:
  %data = call i64 @word(ptr %object, i64 2)
  %is.block = icmp ne i64 %bytes, 0
  br i1 %is.block, label %write, label %set
write:
  %row = alloca i8, i64 %all, align 64
  %from = inttoptr i64 %data to ptr
  call void @spread(ptr %row, ptr %from, i64 %bytes, i64 %all)
  %row.i = ptrtoint ptr %row to i64
  br label %set
set:
  %address = phi i64 [ %data, %point ], [ %row.i, %write ]
  %now.at = getelementptr i64, ptr %now, i64 %next
  store i64 %address, ptr %now.at, align 8
  br label %loop
result:
  call void @Py_IncRef(ptr %dtype)
  %type.at = inttoptr i64 %type to ptr
  %made = call ptr %make(
    ptr %type.at, ptr %dtype, i32 %rank, ptr %sizes, ptr null, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %made, null
  br i1 %none, label %raised, label %run
run:
  %made.data = call i64 @word(ptr %made, i64 2)
  store i64 %made.data, ptr %now, align 8
  %ended = call i32 @pointed(ptr %descriptor, ptr %now, ptr %used)
  %well = icmp eq i32 %ended, 0
  br i1 %well, label %fine, label %failed
fine:
  ret ptr %made
failed:
  call void @Py_DecRef(ptr %made)
  call void @PyErr_Clear()
  br label %elsewhere
elsewhere:
  %found = call ptr @PyObject_Vectorcall(ptr %other, ptr %given, i64 %number, ptr null)
  ret ptr %found
raised:
  ret ptr null
}
"""


@functools.cache
def _make() -> int:
    """The address of PyArray_NewFromDescr, number 94 in NumPy's table of C functions."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    at = ctypes.pythonapi.PyCapsule_GetPointer
    at.restype, at.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = at(_multiarray_umath._ARRAY_API, None)
    address = ctypes.c_void_p.from_address(table + 94 * 8).value
    assert address is not None
    _check(address)
    return address


def _check(address: int) -> None:
    """Check that NumPy's arrays are as in its C headers: what is made, and what is read of it."""
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int,
        ctypes.POINTER(ctypes.c_int64), *[ctypes.c_void_p] * 2, ctypes.c_int, ctypes.c_void_p,
    )(address)  # fmt: skip
    dtype = np.dtype(np.int16)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the array's
    made = make(np.ndarray, dtype, 2, (ctypes.c_int64 * 2)(3, 5), None, None, 0, None)
    words = (ctypes.c_int64 * 9).from_address(id(made))
    sizes = (ctypes.c_int64 * 2).from_address(words[4])
    if (
        (made.shape, made.dtype, made.flags.carray) != ((3, 5), dtype, True)
        or (words[1], words[2], words[7]) != (id(np.ndarray), made.ctypes.data, id(dtype))
        or (words[3] & 0xFFFFFFFF, *sizes) != (2, 3, 5)
        or words[8] & 0xFFFFFFFF != made.flags.num
    ):
        raise RuntimeError("NumPy's arrays are not laid out as expected")


def table(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    operands: Sequence[tuple[np.dtype[Any], int]],
    descriptor: np.ndarray,
    used: np.ndarray,
    other: Callable[..., Any],
) -> tuple[np.ndarray, Any]:
    """The table of a function, and what owns the memory that it points to.

    operands: the dtype of each, and how many of the last dimensions of `shape` it has. used: for
    each buffer of the launch the number of its operand, from 1 on, or 0 for the result. other: what
    computes it where an operand isn't as expected.
    """
    rank, sizes = len(shape), np.array(shape or (0,), np.int64)
    words = [
        id(np.ndarray), _make(), id(dtype), rank, sizes.ctypes.data, descriptor.ctypes.data,
        used.ctypes.data, id(other), len(operands),
    ]  # fmt: skip
    for each, axes in operands:
        block, whole = (math.prod(s) * each.itemsize for s in (shape[rank - axes :], shape))
        words += [id(each), axes, *((block, whole) if axes < rank else (0, 0))]
    return np.array(words, np.int64), (sizes, dtype, operands, descriptor, used, other)
