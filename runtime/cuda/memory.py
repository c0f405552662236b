"""Device memory: buffers, and the pool that they come from and go back to.

Allocation is ordered like work in a stream (cuMemAllocAsync). Freed memory can be reused as soon as
the launches before the free are done with it, and nobody waits. The pool keeps blocks by stream and
size, and hands out the lowest address of a size first. So each step of a loop gets the same
addresses, which saves two calls of the driver and an update of the graph.

Blocks that another stream used last are handed out in turns, once there are two of a size. So their
own stream seldom waits for the other one, and memory stays bounded however far the host runs ahead.
"""

from __future__ import annotations

import ctypes
import gc
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from tilewright.ir.dtype import DType

from .. import debug
from ..device import OutOfMemoryError
from ..driver import OUT_OF_MEMORY, CudaError, MemoryAccess, Pointer
from . import driver
from .context import Context, reaches

ALIGNMENT = 512
"""The unit in bytes in which memory is handed out and counted, as in PyTorch."""

KEPT = 64 << 20
"""Bytes of free blocks that the pool may keep, however little is allocated."""

_LENT = 2
"""From this many blocks of a size that other streams used last, the oldest is handed out again."""

_A_GPU, _READ_AND_WRITE = 1, 3  # CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_…
_RELEASE_THRESHOLD, _RESERVED, _RESERVED_HIGH = 4, 5, 6  # CU_MEMPOOL_ATTR_…


class Memory:
    """Bytes at `pointer`. They go back to the pool when nobody refers to them any more."""

    __slots__ = ("pointer", "pool", "size")

    def __init__(self, pool: Pool, pointer: int, size: int):
        self.pool, self.pointer, self.size = pool, pointer, size

    def __del__(self) -> None:
        # No driver call here: any thread may run this, in the middle of any driver call.
        self.pool.returned.append(self.pointer)


class Buffer:
    """Contiguous elements in device memory. The slots of a plan on CUDA hold these."""

    __slots__ = ("dtype", "memory", "nbytes", "pointer", "shape")

    def __init__(
        self,
        memory: Memory,
        pointer: int,
        shape: tuple[int, ...],
        dtype: DType,
        nbytes: int | None = None,
    ):
        self.memory, self.pointer, self.shape, self.dtype = memory, pointer, shape, dtype
        self.nbytes = math.prod(shape) * dtype.itemsize if nbytes is None else nbytes

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def reshape(self, shape: Sequence[int]) -> Buffer:
        """A buffer of the same memory and number of elements with another shape."""
        return Buffer(self.memory, self.pointer, tuple(shape), self.dtype, self.nbytes)

    def part(self, start: int, shape: Sequence[int]) -> Buffer:
        """A buffer of shape `shape` in the same memory, from element `start` on."""
        pointer = self.pointer + start * self.dtype.itemsize
        return Buffer(self.memory, pointer, tuple(shape), self.dtype)

    def __repr__(self) -> str:
        return f"<{self.dtype.name}{list(self.shape)} at {self.pointer:#x}>"


Purpose = str | tuple[DType, tuple[int, ...]]
"""The purpose of memory: a buffer's dtype and shape, or text for memory of the runtime."""


class Pool:
    """The memory of a device.

    limit: bytes that may be allocated at once, None for all. spare: releases caches when memory is
    short. held: size and purpose of the blocks in use, by address. kept: bytes of the blocks that
    wait for their next use. peak: the most bytes allocated at once since `reset_peak`, highest:
    since memory was last given back to the system. made: how many blocks were handed out, and how
    many bytes.
    """

    def __init__(self, context: Context):
        self.context, self.driver, self.order = context, context.driver, context.order
        self.returned: deque[int] = deque()
        self.held: dict[int, tuple[int, Purpose]] = {}
        # Free addresses by stream and size: heaps, and queues of those that another stream used
        # last.
        self._blocks: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        self._lent: defaultdict[int, dict[int, deque[int]]] = defaultdict(dict)
        self.kept = 0
        self.made = self.made_bytes = self.retries = self.failures = 0
        self._before: dict[str, int] = {}  # the counts at the time of `reset_statistics`
        self.allocated = self.peak = self.highest = 0
        self.limit: int | None = None
        self.spare: Callable[[], None] = lambda: None
        self.handle = self.driver.handle("cuDeviceGetDefaultMemPool", context.device)
        self._opened: set[int] = set()
        # Freed memory stays in the driver's pool instead of going back to the system.
        self._set(_RELEASE_THRESHOLD, (1 << 64) - 1)

    def empty(self, shape: Sequence[int], dtype: DType) -> Buffer:
        """A new buffer with unspecified contents."""
        return self.maker(shape, dtype)()

    def maker(self, shape: Sequence[int], dtype: DType) -> Callable[[], Buffer]:
        """`empty` for one shape and dtype, as a function for repeated calls."""
        shape = tuple(shape)
        size, what = math.prod(shape) * dtype.itemsize, (dtype, shape)

        def make() -> Buffer:
            memory = self.allocate(size, what)
            return Buffer(memory, memory.pointer, shape, dtype, size)

        return make

    def allocate(self, size: int, what: Purpose) -> Memory:
        """At least `size` bytes, aligned to 256. OutOfMemoryError if there are none left."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        if self.returned:
            self.collect()
        pointer = None
        if self.limit is None or self.allocated + size <= self.limit:
            pointer = self._again(size) or self._allocated(size)
            if pointer is None and self.kept:  # in blocks of other sizes
                self._release()
                pointer = self._allocated(size)
        if pointer is None:
            pointer = self._after_trimming(size)
        if pointer is None:
            self.failures += 1
            raise OutOfMemoryError(self._complaint(size))
        self.held[pointer] = size, what
        self.allocated = allocated = self.allocated + size
        if allocated > self.peak:
            self.peak = allocated
        if allocated > self.highest:
            self.highest = allocated
        self.made += 1
        self.made_bytes += size
        return Memory(self, pointer, size)

    def _again(self, size: int) -> int | None:
        """A free block of this size, if the pool keeps one."""
        stream, several = self.context.stream, self.order.several
        blocks = self._blocks[stream].get(size)
        if blocks:
            pointer = heappop(blocks)
        elif several and len(self._lent[stream].get(size, ())) >= _LENT:
            pointer = self._lent[stream][size].popleft()
        else:
            return None
        self.kept -= size
        if several:
            self.order.write(pointer)
        return pointer

    def _allocated(self, size: int) -> int | None:
        if self.limit is not None and self.allocated + size > self.limit:
            return None
        pointer = Pointer()
        self.context.use()
        try:
            self.driver.cuMemAllocAsync(pointer, size, self.context.stream)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            return None
        address = pointer.value
        if self.order.several:
            self.order.begin(address)
        return address

    def _after_trimming(self, size: int) -> int | None:
        """Try again after all memory that can be released is free."""
        self.retries += 1
        self.spare()
        gc.collect()
        self.trim()
        return self._allocated(size)

    def collect(self) -> None:
        """Take back blocks that nobody refers to any more."""
        if driver.forked():
            return
        while self.returned:
            try:
                pointer = self.returned.popleft()
            except IndexError:  # another thread took it
                break
            size, _ = self.held.pop(pointer)
            self.allocated -= size
            self._keep(pointer, size)
        # If there are too many, all go back to the driver.
        if self.kept > KEPT and self.kept > self.most_kept():
            self._release()

    def _keep(self, pointer: int, size: int) -> None:
        """Keep a block for its next use."""
        self.kept += size
        home, order = 0, self.order
        if order.several:
            home = order.home(pointer)
            if order.is_lent(pointer):
                self._lent[home].setdefault(size, deque()).append(pointer)
                return
        blocks = self._blocks[home].get(size)
        if blocks:
            heappush(blocks, pointer)
        else:
            self._blocks[home][size] = [pointer]

    def most_kept(self) -> int:
        """The most bytes of free blocks that the pool keeps. With those in use they may be half
        more than were ever in use at once. So a loop that drops its largest results finds them
        again, without calls of the driver that map memory anew."""
        return max(KEPT, self.highest + self.highest // 2 - self.allocated)

    def _release(self) -> None:
        """Give all free blocks back to the driver, which can make blocks of other sizes from
        them."""
        self.context.use()
        kept: list[dict[int, Any]] = [*self._blocks.values(), *self._lent.values()]
        for sizes in kept:
            for blocks in sizes.values():
                for pointer in blocks:
                    self.driver.cuMemFreeAsync(pointer, self.order.end(pointer))
        self._blocks.clear()
        self._lent.clear()
        self.kept = 0

    def open_to(self, number: int) -> None:
        """Let GPU `number` access this memory, where the machine has a way: copies between the GPUs
        then don't go through the host's memory. Access to a pool must be asked for: that of a
        context to another one's memory (cuCtxEnablePeerAccess) doesn't hold for it."""
        if number in self._opened:
            return
        self._opened.add(number)
        if not reaches(number, self.context.number):
            return
        access = MemoryAccess(_A_GPU, number, _READ_AND_WRITE)
        try:
            self.driver.cuMemPoolSetAccess(self.handle, ctypes.byref(access), 1)
        except CudaError as reason:  # copies take the other way
            debug.say(f"copies from GPU {self.context.number} to {number} pass the host: {reason}")

    def trim(self) -> None:
        """Give free memory back to the system, for other processes."""
        self.collect()
        self._release()
        self.context.synchronize()
        self.driver.cuMemPoolTrimTo(self.handle, 0)
        self.highest = self.allocated

    # -- statistics

    @property
    def in_use(self) -> int:
        """Bytes that buffers hold now."""
        self.collect()
        return self.allocated

    @property
    def statistics(self) -> dict[str, int]:
        """Counts since the start or the last reset, by PyTorch's names. Blocks that nobody refers
        to any more count as freed when they were collected."""
        counts = self._counts()
        return {name: count - self._before.get(name, 0) for name, count in counts.items()}

    def _counts(self) -> dict[str, int]:
        return {
            "num_ooms": self.failures,
            "num_alloc_retries": self.retries,
            "allocation.all.allocated": self.made,
            "allocation.all.freed": self.made - len(self.held),
            "allocated_bytes.all.allocated": self.made_bytes,
            "allocated_bytes.all.freed": self.made_bytes - self.allocated,
        }

    def reset_statistics(self) -> None:
        self._before = self._counts()

    def reset_peak(self) -> None:
        self.peak = self.in_use
        self._set(_RESERVED_HIGH, 0)

    @property
    def reserved(self) -> int:
        """Bytes that the driver's pool has taken from the system, in use or free."""
        return self._get(_RESERVED)

    @property
    def reserved_peak(self) -> int:
        return self._get(_RESERVED_HIGH)

    def system(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU, for all processes."""
        self.context.use()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.cuMemGetInfo_v2(free, total)
        return free.value, total.value

    def blocks(self) -> list[tuple[int, int, int, bool]]:
        """(address, bytes, stream that it goes back to, whether it is in use) of every block."""
        self.collect()
        home = self.order.home if self.order.several else lambda _: 0
        out = [(pointer, size, home(pointer), True) for pointer, (size, _) in self.held.items()]
        for kept in (self._blocks, self._lent):
            for stream, sizes in kept.items():
                for size, pointers in sizes.items():
                    out += [(pointer, size, stream, False) for pointer in pointers]
        return sorted(out)

    def holders(self) -> list[tuple[str, int, int]]:
        """(purpose, count, total bytes) of the memory in use, largest first."""
        self.collect()
        count: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for size, what in list(self.held.values()):
            text = what if isinstance(what, str) else f"{what[0].name} {list(what[1])}"
            count[text] += 1
            total[text] += size
        return [(what, count[what], size) for what, size in total.most_common()]

    def _complaint(self, size: int) -> str:
        free, total = self.system()
        most = ", ".join(f"{n} x {what}: {show(b)}" for what, n, b in self.holders()[:5])
        bound = f" ({show(self.limit)} may be used)" if self.limit is not None else ""
        return (
            f"CUDA out of memory. Tried to allocate {show(size)}. GPU {self.context.number} has a "
            f"total capacity of {show(total)}{bound}, of which {show(free)} is free. This process "
            f"has {show(self.allocated)} allocated ({most or 'nothing'}) and "
            f"{show(self.reserved)} reserved. Use a smaller batch, or drop tensors that are no "
            "longer needed; torch.cuda.memory_summary() lists what is allocated"
        )

    def _get(self, attribute: int) -> int:
        out = ctypes.c_uint64()
        self.driver.cuMemPoolGetAttribute(self.handle, attribute, ctypes.byref(out))
        return out.value

    def _set(self, attribute: int, value: int) -> None:
        self.driver.cuMemPoolSetAttribute(
            self.handle, attribute, ctypes.byref(ctypes.c_uint64(value))
        )


def show(size: int | float) -> str:
    """Bytes for people: `1.50 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}" if unit == "bytes" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
