"""Memory for the intermediate results of a launch, such as packed operands.

Workspaces are blocks that stay for the next launch. A launch takes the first free block while it
holds Python's lock, and enlarges it if necessary. If all blocks are in use, it makes one of its
own. At its end it frees its own block and blocks of more than KEEP bytes.
"""

from __future__ import annotations

import ctypes

BLOCKS = 4
BLOCK = 32
"""Bytes of a block's record: its size, its memory, the first address in it that is a multiple of
64, and whether a launch uses it."""
KEEP = 64 << 20
LARGE, HUGE = 4 << 20, 2 << 20
"""Bytes from which a workspace asks Linux for huge pages, as NumPy's arrays do, and bytes of such a
page. The tables of small pages are read again and again where packed operands are streamed."""

_TEXT = """
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@tw_spaces = external global i8

; A block of workspace of at least so many bytes: the first one that is free, made larger if it is
; too small, else `own`, which lasts for this launch. Its address is 0 if there is no memory left.
define internal ptr @take(i64 %bytes, ptr %own) #0 {
entry:
  call void @llvm.memset.p0.i64(ptr %own, i8 0, i64 32, i1 false)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %look ]
  %more = icmp ult i64 %i, {BLOCKS}
  %place = mul i64 %i, {BLOCK}
  %at = getelementptr i8, ptr @tw_spaces, i64 %place
  br i1 %more, label %look, label %found
look:
  %busy.at = getelementptr i64, ptr %at, i64 3
  %busy = load i64, ptr %busy.at, align 8
  %taken = icmp ne i64 %busy, 0
  %next = add i64 %i, 1
  br i1 %taken, label %loop, label %found
found:
  %block = phi ptr [ %own, %loop ], [ %at, %look ]
  %size = load i64, ptr %block, align 8
  %fits = icmp uge i64 %size, %bytes
  br i1 %fits, label %out, label %grow
grow:
  %memory.at = getelementptr i64, ptr %block, i64 1
  %old = load ptr, ptr %memory.at, align 8
  call void @PyMem_RawFree(ptr %old)
  %large = icmp uge i64 %bytes, {LARGE}
  %aligns = select i1 %large, i64 {HUGE}, i64 64
  %most = sub i64 %aligns, 1
  %whole = add i64 %bytes, %most
  %memory = call ptr @PyMem_RawMalloc(i64 %whole)
  %none = icmp eq ptr %memory, null
  %known = select i1 %none, i64 0, i64 %bytes
  store i64 %known, ptr %block, align 8
  store ptr %memory, ptr %memory.at, align 8
  %start = ptrtoint ptr %memory to i64
  %past = add i64 %start, %most
  %mask = xor i64 %most, -1
  %aligned = and i64 %past, %mask
  %aligned.at = getelementptr i64, ptr %block, i64 2
  store i64 %aligned, ptr %aligned.at, align 8
  br i1 %none, label %fail, label %grown
grown:
  br i1 %large, label %pages, label %out
pages:
  call void @huge_pages(i64 %aligned, i64 %bytes)
  br label %out
out:
  %used.at = getelementptr i64, ptr %block, i64 3
  store i64 1, ptr %used.at, align 8
  ret ptr %block
fail:
  ret ptr %block
}

define internal void @give(ptr %block, ptr %own) #0 {
entry:
  %used.at = getelementptr i64, ptr %block, i64 3
  store i64 0, ptr %used.at, align 8
  %size = load i64, ptr %block, align 8
  %large = icmp ugt i64 %size, {KEEP}
  %short = icmp eq ptr %block, %own
  %drop = or i1 %large, %short
  br i1 %drop, label %free, label %out
free:
  %memory.at = getelementptr i64, ptr %block, i64 1
  %memory = load ptr, ptr %memory.at, align 8
  call void @PyMem_RawFree(ptr %memory)
  store ptr null, ptr %memory.at, align 8
  store i64 0, ptr %block, align 8
  br label %out
out:
  ret void
}
"""


_HUGE_PAGES = """
declare i32 @madvise(ptr, i64, i32)
define internal void @huge_pages(i64 %address, i64 %bytes) #0 {
  %memory = inttoptr i64 %address to ptr
  %whole = and i64 %bytes, -4096
  %advised = call i32 @madvise(ptr %memory, i64 %whole, i32 14)
  ret void
}
"""

_NO_HUGE_PAGES = """
define internal void @huge_pages(i64 %address, i64 %bytes) #0 {
  ret void
}
"""


def text(linux: bool) -> str:
    """The functions `take` and `give` as LLVM IR; `tw_spaces` are the records."""
    found = _TEXT
    words = {"BLOCKS": BLOCKS, "BLOCK": BLOCK, "KEEP": KEEP, "LARGE": LARGE, "HUGE": HUGE}
    for name, value in words.items():
        found = found.replace(f"{{{name}}}", str(value))
    return (_HUGE_PAGES if linux else _NO_HUGE_PAGES) + found


class Workspaces:
    """The records of the blocks, in memory that native code shares."""

    def __init__(self) -> None:
        self._records = (ctypes.c_int64 * (BLOCKS * BLOCK // 8))()
        self.address = ctypes.addressof(self._records)

    @property
    def size(self) -> int:
        """The bytes of all kept blocks."""
        return sum(self._records[i] for i in range(0, len(self._records), BLOCK // 8))

    def release(self) -> None:
        """Free the blocks that no launch uses."""
        for i in range(0, len(self._records), BLOCK // 8):
            if not self._records[i + 3]:
                ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(self._records[i + 1]))
                self._records[i] = self._records[i + 1] = 0
