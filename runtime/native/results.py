"""Calls that make their result: a kernel of one axis, or of rows, as a function of arrays.

Where a call is small, most of its time goes to what stands around the kernel: to look at the
operands, to make the result, and to pass both on. So that is native, too.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

MOST, MOST_WRITTEN = 1 << 14, 1 << 12
"""The elements of a result up to which the call counts, and up to which an operand with fewer
dimensions is written out."""

# The words of a function's table: ndarray, PyArray_NewFromDescr, the dtype of the result, the
# launch's descriptor, its table of buffers (0: the result), the places of the two words that hold
# the number of elements, what computes it where the operands aren't as expected, and the number of
# operands. Then for each of these its dtype and the bytes of an element. A fold's table: ndarray,
# PyArray_NewFromDescr, the dtype, the launch's descriptor, its table of buffers (0: the result,
# 1: the operand), how many of the last axes are folded, what computes it otherwise, and the limits
# from which on it does: the elements of the operand, those of a short row, and the number of these;
# then the first of the axes.
TEXT = """
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

; The number of dimensions of an object if it is an array of a dtype with its elements in order,
; else -1. PyArrayObject: PyObject_HEAD, data, nd, dimensions, strides, base, descr, flags.
define internal i64 @rank(ptr %object, i64 %type, i64 %dtype) #0 {
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
  %both = and i1 %of.dtype, %lies
  br i1 %both, label %yes, label %no
yes:
  %rank.at = getelementptr i8, ptr %object, i64 24
  %rank = load i32, ptr %rank.at, align 8
  %rank.i = zext i32 %rank to i64
  ret i64 %rank.i
no:
  ret i64 -1
}

; The product of the dimensions of an array, if these are the last of `sizes`; else 0.
define internal i64 @count(ptr %array, i64 %rank, ptr %sizes, i64 %all) #0 {
entry:
  %its.sizes.i = call i64 @word(ptr %array, i64 4)
  %its.sizes = inttoptr i64 %its.sizes.i to ptr
  %missing = sub i64 %all, %rank
  br label %axis
axis:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %product = phi i64 [ 1, %entry ], [ %product.next, %look ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %look, label %out
look:
  %its.size = call i64 @word(ptr %its.sizes, i64 %i)
  %at = add i64 %i, %missing
  %size = call i64 @word(ptr %sizes, i64 %at)
  %next = add i64 %i, 1
  %product.next = mul i64 %product, %size
  %same = icmp eq i64 %its.size, %size
  br i1 %same, label %axis, label %no
out:
  ret i64 %product
no:
  ret i64 0
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

; A new array without values, as the first words of a table say. null: an error.
define internal ptr @blank(ptr %table, i64 %rank, ptr %sizes) #0 {
entry:
  %type.i = call i64 @word(ptr %table, i64 0)
  %type = inttoptr i64 %type.i to ptr
  %make.i = call i64 @word(ptr %table, i64 1)
  %make = inttoptr i64 %make.i to ptr
  %dtype.i = call i64 @word(ptr %table, i64 2)
  %dtype = inttoptr i64 %dtype.i to ptr
  call void @Py_IncRef(ptr %dtype)  ; the array's
  %rank.32 = trunc i64 %rank to i32
  %made = call ptr %make(
    ptr %type, ptr %dtype, i32 %rank.32, ptr %sizes, ptr null, ptr null, i32 0, ptr null)
  ret ptr %made
}

; map(self, *operands): self is the address of a table.
define ptr @tw_map(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %type = call i64 @word(ptr %table, i64 0)
  %descriptor.i = call i64 @word(ptr %table, i64 3)
  %descriptor = inttoptr i64 %descriptor.i to ptr
  %used.i = call i64 @word(ptr %table, i64 4)
  %used = inttoptr i64 %used.i to ptr
  %other.i = call i64 @word(ptr %table, i64 7)
  %other = inttoptr i64 %other.i to ptr
  %operands = call i64 @word(ptr %table, i64 8)
  %as.many = icmp eq i64 %number, %operands
  br i1 %as.many, label %rank.loop, label %elsewhere
rank.loop:  ; the shape is that of an operand with the most dimensions
  %r = phi i64 [ 0, %entry ], [ %r.next, %rank.take ]
  %rank = phi i64 [ -1, %entry ], [ %rank.now, %rank.take ]
  %sizes.i = phi i64 [ 0, %entry ], [ %sizes.now, %rank.take ]
  %r.more = icmp ult i64 %r, %operands
  br i1 %r.more, label %rank.look, label %shape
rank.look:
  %r.object.i = call i64 @word(ptr %given, i64 %r)
  %r.object = inttoptr i64 %r.object.i to ptr
  %r.twice = mul i64 %r, 2
  %r.at = add i64 %r.twice, 9
  %r.dtype = call i64 @word(ptr %table, i64 %r.at)
  %r.rank = call i64 @rank(ptr %r.object, i64 %type, i64 %r.dtype)
  %r.is.array = icmp sge i64 %r.rank, 0
  br i1 %r.is.array, label %rank.take, label %elsewhere
rank.take:
  %r.next = add i64 %r, 1
  %r.sizes = call i64 @word(ptr %r.object, i64 4)
  %longer = icmp sgt i64 %r.rank, %rank
  %rank.now = select i1 %longer, i64 %r.rank, i64 %rank
  %sizes.now = select i1 %longer, i64 %r.sizes, i64 %sizes.i
  br label %rank.loop
shape:
  %sizes = inttoptr i64 %sizes.i to ptr
  %slots = add i64 %operands, 1
  %now = alloca i64, i64 %slots, align 8
  br label %size.loop
size.loop:
  %d = phi i64 [ 0, %shape ], [ %d.next, %size.look ]
  %count = phi i64 [ 1, %shape ], [ %count.next, %size.look ]
  %d.more = icmp slt i64 %d, %rank
  br i1 %d.more, label %size.look, label %sized
size.look:
  %d.size = call i64 @word(ptr %sizes, i64 %d)
  %count.next = mul i64 %count, %d.size
  %d.next = add i64 %d, 1
  br label %size.loop
sized:
  %less = sub i64 %count, 1
  %is.small = icmp ult i64 %less, $MOST  ; and not empty
  br i1 %is.small, label %loop, label %elsewhere
loop:
  %i = phi i64 [ 0, %sized ], [ %next, %set ]
  %next = add i64 %i, 1
  %more = icmp ult i64 %i, %operands
  br i1 %more, label %look, label %result
look:
  %object.i = call i64 @word(ptr %given, i64 %i)
  %object = inttoptr i64 %object.i to ptr
  %its.rank.at = getelementptr i8, ptr %object, i64 24
  %its.rank.32 = load i32, ptr %its.rank.at, align 8
  %its.rank = zext i32 %its.rank.32 to i64
  %its.count = call i64 @count(ptr %object, i64 %its.rank, ptr %sizes, i64 %rank)
  %fits = icmp ne i64 %its.count, 0
  br i1 %fits, label %point, label %elsewhere
point:
  %data = call i64 @word(ptr %object, i64 2)
  %is.whole = icmp eq i64 %its.count, %count
  br i1 %is.whole, label %set, label %short
short:
  %may.write = icmp ule i64 %count, $WRITTEN
  br i1 %may.write, label %write, label %elsewhere
write:
  %twice = mul i64 %i, 2
  %at.bytes = add i64 %twice, 10
  %bytes = call i64 @word(ptr %table, i64 %at.bytes)
  %block = mul i64 %its.count, %bytes
  %all = mul i64 %count, %bytes
  %row = alloca i8, i64 %all, align 64
  %from = inttoptr i64 %data to ptr
  call void @spread(ptr %row, ptr %from, i64 %block, i64 %all)
  %row.i = ptrtoint ptr %row to i64
  br label %set
set:
  %address = phi i64 [ %data, %point ], [ %row.i, %write ]
  %now.at = getelementptr i64, ptr %now, i64 %next
  store i64 %address, ptr %now.at, align 8
  br label %loop
result:
  %made = call ptr @blank(ptr %table, i64 %rank, ptr %sizes)
  %none = icmp eq ptr %made, null
  br i1 %none, label %raised, label %run
run:
  %made.data = call i64 @word(ptr %made, i64 2)
  store i64 %made.data, ptr %now, align 8
  %words.n = call i64 @word(ptr %descriptor, i64 2)
  %words = alloca i64, i64 %words.n, align 64
  call void @begun(ptr %descriptor, ptr %words)
  %size.place = call i64 @word(ptr %table, i64 5)
  %size.at = getelementptr i64, ptr %words, i64 %size.place
  store i64 %count, ptr %size.at, align 8
  %chunk.place = call i64 @word(ptr %table, i64 6)
  %chunk.at = getelementptr i64, ptr %words, i64 %chunk.place
  store i64 %count, ptr %chunk.at, align 8
  %ended = call i32 @pointed(ptr %descriptor, ptr %words, ptr %now, ptr %used)
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

; fold(self, operand): self is the address of a table. The last axes of the result have size 1.
define ptr @tw_fold(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %type = call i64 @word(ptr %table, i64 0)
  %dtype = call i64 @word(ptr %table, i64 2)
  %descriptor.i = call i64 @word(ptr %table, i64 3)
  %descriptor = inttoptr i64 %descriptor.i to ptr
  %used.i = call i64 @word(ptr %table, i64 4)
  %used = inttoptr i64 %used.i to ptr
  %axes = call i64 @word(ptr %table, i64 5)
  %other.i = call i64 @word(ptr %table, i64 6)
  %other = inttoptr i64 %other.i to ptr
  %alone = icmp eq i64 %number, 1
  br i1 %alone, label %look, label %elsewhere
look:
  %object = load ptr, ptr %given, align 8
  %rank = call i64 @rank(ptr %object, i64 %type, i64 %dtype)
  %rows.rank = sub i64 %rank, %axes
  %first = call i64 @word(ptr %table, i64 10)
  %has.axes = icmp eq i64 %rows.rank, %first
  br i1 %has.axes, label %shape, label %elsewhere
shape:
  %sizes.i = call i64 @word(ptr %object, i64 4)
  %sizes = inttoptr i64 %sizes.i to ptr
  %made.sizes = alloca i64, i64 %rank, align 8
  br label %size.loop
size.loop:
  %d = phi i64 [ 0, %shape ], [ %d.next, %size.look ]
  %rows = phi i64 [ 1, %shape ], [ %rows.next, %size.look ]
  %length = phi i64 [ 1, %shape ], [ %length.next, %size.look ]
  %d.more = icmp slt i64 %d, %rank
  br i1 %d.more, label %size.look, label %sized
size.look:
  %size = call i64 @word(ptr %sizes, i64 %d)
  %is.row = icmp slt i64 %d, %rows.rank
  %row.size = select i1 %is.row, i64 %size, i64 1
  %own.size = select i1 %is.row, i64 1, i64 %size
  %rows.next = mul i64 %rows, %row.size
  %length.next = mul i64 %length, %own.size
  %to = getelementptr i64, ptr %made.sizes, i64 %d
  store i64 %row.size, ptr %to, align 8
  %d.next = add i64 %d, 1
  br label %size.loop
sized:
  %count = mul i64 %rows, %length
  %less = sub i64 %count, 1
  %limit = call i64 @word(ptr %table, i64 7)
  %most = sub i64 %limit, 1
  %is.small = icmp ult i64 %less, %most  ; and not empty
  %few = call i64 @word(ptr %table, i64 8)
  %many = call i64 @word(ptr %table, i64 9)
  %is.long = icmp ugt i64 %length, %few
  %are.few = icmp ult i64 %rows, %many
  %is.one = icmp eq i64 %length, 1
  %long.or.few = or i1 %is.long, %are.few
  %fits.1 = or i1 %long.or.few, %is.one
  %fits = and i1 %is.small, %fits.1
  br i1 %fits, label %result, label %elsewhere
result:
  %made = call ptr @blank(ptr %table, i64 %rank, ptr %made.sizes)
  %none = icmp eq ptr %made, null
  br i1 %none, label %raised, label %run
run:
  %now = alloca i64, i64 2, align 8
  %made.data = call i64 @word(ptr %made, i64 2)
  store i64 %made.data, ptr %now, align 8
  %data = call i64 @word(ptr %object, i64 2)
  %data.at = getelementptr i64, ptr %now, i64 1
  store i64 %data, ptr %data.at, align 8
  %words = alloca i64, i64 4, align 64
  %rows.at = getelementptr i64, ptr %words, i64 2
  store i64 %rows, ptr %rows.at, align 8
  %length.at = getelementptr i64, ptr %words, i64 3
  store i64 %length, ptr %length.at, align 8
  %ended = call i32 @pointed(ptr %descriptor, ptr %words, ptr %now, ptr %used)
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
TEXT = TEXT.replace("$MOST", str(MOST)).replace("$WRITTEN", str(MOST_WRITTEN))


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
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
    descriptor: np.ndarray,
    used: np.ndarray,
    sizes: tuple[int, int],
    other: Callable[..., Any],
) -> tuple[np.ndarray, Any]:
    """The table of a function of operands of `dtypes`, and what owns the memory that it points to.

    used: for each buffer of the launch the number of its operand, from 1 on, or 0 for the result.
    sizes: the places of the words with the number of elements. other: what computes it where the
    operands aren't as expected.
    """
    words = [
        id(np.ndarray), _make(), id(dtype), descriptor.ctypes.data, used.ctypes.data, *sizes,
        id(other), len(dtypes),
    ]  # fmt: skip
    for each in dtypes:
        words += [id(each), each.itemsize]
    return np.array(words, np.int64), (dtypes, dtype, descriptor, used, other)


def folding(
    dtype: np.dtype[Any],
    descriptor: np.ndarray,
    used: np.ndarray,
    axes: Sequence[int],
    limits: tuple[int, int, int],
    other: Callable[..., Any],
) -> tuple[np.ndarray, Any]:
    """The table of a fold over `axes`, if they are the last ones, and what owns the memory that it
    points to. other: what computes it where the operand isn't as expected, or beyond the limits;
    see `calls.folding`."""
    words = [
        id(np.ndarray), _make(), id(dtype), descriptor.ctypes.data, used.ctypes.data, len(axes),
        id(other), *limits, axes[0],
    ]  # fmt: skip
    return np.array(words, np.int64), (dtype, descriptor, used, other)
