"""Launches: a kernel's parameters as the block of bytes that the driver passes on.

The block is laid out as Triton expects it: the arguments that aren't constexprs in order, each
aligned to its size, then the addresses of the global scratch memory and of the profiler's (none).
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.triton import Emitted

from .. import debug
from ..driver import INVALID_VALUE, CudaError, Driver, LaunchConfig
from . import matrices
from .kernels import Function
from .memory import Buffer, Memory

if TYPE_CHECKING:
    from .checks import Words
    from .device import Cuda

_FORMATS = {
    "i1": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "fp16": "e",
    "fp32": "f",
    "fp64": "d",
}
WARM = 2
"""Runs made launch by launch before a graph, or a kernel for these sizes alone, pays for itself."""
_VECTOR = 16  # bytes of the widest load; kernels may expect addresses aligned to it
_TABLES = 4  # pointer tables that a launch keeps, for calls that alternate buffers
_MAPS = 64  # tensor maps that it keeps of each matrix, by address


def _formats(kind: str) -> list[str]:
    """The struct formats of a parameter whose Triton type is `kind`. The sizes and strides of the
    memory follow a tensor descriptor."""
    if kind.startswith("tensordesc"):
        rank = kind.count(",") + 1
        return [f"{matrices.SIZE}s", *"i" * rank, *"q" * rank]
    return ["Q" if kind.startswith("*") else _FORMATS[kind]]


class Block:
    """A kernel's parameters in memory. types: of the parameters in Triton's signature, in order."""

    def __init__(self, types: Sequence[str]):
        formats = [f for t in types for f in _formats(t)] + ["Q", "Q"]
        text, offsets, end = "<", [], 0
        for each in formats:
            size = struct.calcsize("<" + each)
            at = -(-end // size) * size
            text += f"{at - end}x{each}"
            offsets.append(at)
            end = at + size
        self.format = struct.Struct(text)
        self.memory = ctypes.create_string_buffer(end)
        base = ctypes.addressof(self.memory)
        self.pointers = (ctypes.c_void_p * len(offsets))(*(base + at for at in offsets))

    def pack(self, values: Sequence[Any]) -> None:
        self.format.pack_into(self.memory, 0, *values)


class Ready:
    """A function with its grid and parameter block, ready to launch.

    scratch: bytes of memory that a launch needs for itself.
    """

    def __init__(
        self, driver: Driver, function: Function, grid: tuple[int, int, int], block: Block
    ):
        self.handle = function.handle
        self.scratch = math.prod(grid) * function.scratch
        self.parameters = ctypes.cast(block.pointers, ctypes.c_void_p)
        grids, threads = (
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(function.threads, 1, 1),
        )
        self.config = LaunchConfig(grids, threads, function.shared, 0, None, 0)
        self.node = driver.Node(
            function=function.handle,
            grid=grids,
            block=threads,
            shared=function.shared,
            parameters=self.parameters,
        )


class Launcher:
    """A kernel of a plan: launcher(buffers, scalars) launches it in the device's stream.

    outputs: how many of the buffers it writes to, the first ones; None: any of them, perhaps.
    programs: of a launch. scratch: bytes of memory of its own that a launch needs. usage: what the
    compiler reported.
    unaligned: makes the launcher for buffers at any address. This one expects multiples of 16
    bytes.
    words: receive the results of `emitted.checks`, if there are any. Passed in if another launcher
        shares them.
    constants: the memory of the words and of the tables that the kernel reads.

    All other memory that a launch reads or writes belongs to its stream, so launches in two streams
    may overlap.
    """

    def __init__(
        self,
        device: Cuda,
        emitted: Emitted,
        function: Function,
        unaligned: Callable[[Words | None], Launcher] | None = None,
        words: Words | None = None,
        outputs: int | None = None,
    ):
        self.device, self.emitted, self.words = device, emitted, words
        self.outputs, self.usage = outputs, function.usage
        self.block = Block([a.type for a in emitted.arguments])
        self._ready = Ready(device.driver, function, emitted.programs, self.block)
        self.programs, self.scratch = math.prod(emitted.programs), self._ready.scratch
        self._make_unaligned = unaligned
        self._unaligned: Launcher | None = None
        self._refused = False  # the driver refused tensor maps for its matrices
        # Values in the block's order. Each launch replaces those that change.
        self._values: list[Any] = []
        self._buffers: list[tuple[int, int]] = []
        self._places: list[tuple[int, int, int]] = []
        self._scalars: list[tuple[int, int]] = []
        self._pointers: tuple[int, tuple[int, ...]] | None = None
        self._tables: OrderedDict[tuple[int, ...], Memory] = OrderedDict()
        self._scratch: dict[int, Memory] = {}
        self.constants: list[Memory] = []
        self._matrices: list[tuple[int, Callable[[int], bytes], int]] = []
        self._maps: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        maps = iter(function.maps)
        for each in emitted.arguments:
            at = len(self._values)
            self._values.append(0)
            if each.role == "matrix":
                place, extents, strides = each.value
                maker = matrices.encoder(device.driver, next(maps), extents, strides)
                self._matrices.append((at, maker, place))
                self._values += [*extents, *strides]
            elif each.role == "buffer":
                self._buffers.append((at, each.value))
            elif each.role == "scalar":
                self._scalars.append((at, each.value))
            elif each.role == "place":
                self._places.append((at, *each.value))
            elif each.role in ("size", "number"):
                self._values[at] = each.value
            elif each.role == "pointers":
                self._pointers = at, each.value
            else:
                if each.role == "table":
                    memory = self._table(each.value)
                    self._values[at] = memory.pointer
                else:
                    self.words = self.words or device.checks.words(len(emitted.checks))
                    memory = self.words.page.memory
                    self._values[at] = self.words.pointer
                self.constants.append(memory)
        self._values += [0, 0]
        self.waits = device.blocking
        # The addresses in the block, if nothing else in it changes from launch to launch. A loop
        # finds its memory at the same ones.
        self._packed: list[int] | None = None
        self._is_plain = not (self._scalars or self._pointers or self._ready.scratch)
        self._addresses = self._place_of_addresses()
        if self.constants and device.concurrent:
            device.context.synchronize()  # launches in any stream must find them ready

    def __call__(self, buffers: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        device = self.device
        context = device.context
        if context.turn_to(context.handle):
            context.use()  # raises
        ready = self._ready
        pointers = [buffer.pointer for buffer in buffers]
        if pointers != self._packed and not self._readdressed(pointers):
            ready, _ = self._filled(pointers, scalars)
        ready.config.stream = context.stream
        code = context.launch(ready.config, ready.handle, ready.parameters, None)
        if code:
            raise device.driver.failure(device.driver.launch, code)
        if self.constants:
            self.launched()
        if device.blocking:
            device.synchronize()

    def launched(self) -> None:
        """Account for a launch that was just made in the current stream."""
        device = self.device
        if self.words is not None:
            device.checks.expect(self)
        if device.concurrent:
            unaligned = self._unaligned.constants if self._unaligned is not None else ()
            for memory in (*self.constants, *unaligned):
                device.context.order.use(memory.pointer)

    def pack(
        self, buffers: Sequence[Buffer], scalars: Sequence[Any]
    ) -> tuple[Ready, Memory | None]:
        """Fill the parameter block for a launch or for a node of a graph.

        Returns the function that is ready to launch, and memory that must live as long as it may be
        launched.
        """
        pointers = [buffer.pointer for buffer in buffers]
        if pointers == self._packed or self._readdressed(pointers):
            return self._ready, None
        return self._filled(pointers, scalars)

    def _readdressed(self, pointers: list[int]) -> bool:
        """Replace the addresses in a block that was filled, if no other part of it changes."""
        if self._addresses is None or self._packed is None:
            return False
        bits = 0
        for pointer in pointers:
            bits |= pointer
        if bits % _VECTOR:
            return False
        self._addresses[:] = pointers
        self._packed = pointers
        return True

    def _filled(self, pointers: list[int], scalars: Sequence[Any]) -> tuple[Ready, Memory | None]:
        values = self._values
        bits = 0
        for at, place in self._buffers:
            pointer = values[at] = pointers[place]
            bits |= pointer
        for at, place, offset in self._places:
            pointer = pointers[place]
            values[at] = pointer + offset
            bits |= pointer
        for at, place in self._scalars:
            values[at] = scalars[place]
        addresses: tuple[int, ...] = ()
        if self._pointers is not None:
            addresses = tuple([pointers[i] for i in self._pointers[1]])
            for address in addresses:
                bits |= address
        if (bits % _VECTOR or self._refused) and self._make_unaligned is not None:
            if self._unaligned is None:
                self._unaligned = self._make_unaligned(self.words)
            return self._unaligned._filled(pointers, scalars)
        try:
            for at, encode, place in self._matrices:
                values[at] = self._map(at, encode, pointers[place])
        except CudaError as reason:
            if reason.code != INVALID_VALUE or self._make_unaligned is None:
                raise
            return self._without_maps(reason)._filled(pointers, scalars)
        table = None
        if self._pointers is not None:
            table = self._pointer_table(addresses)
            values[self._pointers[0]] = table.pointer
        if self._ready.scratch:
            values[-2] = self._own_scratch().pointer
        self.block.pack(values)
        if self._is_plain:
            self._packed = pointers
        return self._ready, table

    def _place_of_addresses(self) -> Any:
        """The block's beginning as an array of addresses, if those of all buffers lie there in
        their order, and nothing else changes from launch to launch; otherwise None."""
        count = len(self._buffers)
        in_order = self._buffers == [(i, i) for i in range(count)]
        if not (in_order and self._is_plain) or self._places or self._matrices:
            return None
        return (ctypes.c_uint64 * count).from_buffer(self.block.memory)

    def _without_maps(self, reason: CudaError) -> Launcher:
        """Switch to the kernel without tensor maps for good: the driver refuses to make them for
        these matrices."""
        assert self._make_unaligned is not None
        name = self.emitted.name
        debug.say(f"{name} reads without tensor maps: {reason}")
        self._refused = True
        self.device.refused[name] = str(reason)
        if self._unaligned is None:
            self._unaligned = self._make_unaligned(self.words)
        return self._unaligned

    def _map(self, at: int, encode: Callable[[int], bytes], pointer: int) -> bytes:
        found = self._maps.get((at, pointer))
        if found is None:
            found = self._maps[at, pointer] = encode(pointer)
            if len(self._maps) > _MAPS * len(self._matrices):
                self._maps.popitem(last=False)
        return found

    def _own_scratch(self) -> Memory:
        stream = self.device.context.stream
        found = self._scratch.get(stream)
        if found is None:
            found = self.device.pool.allocate(self._ready.scratch, "scratch of a kernel")
            self._scratch[stream] = found
        return found

    def _pointer_table(self, addresses: tuple[int, ...]) -> Memory:
        key = self.device.context.stream, *addresses
        table = self._tables.get(key)
        if table is None:
            # Always a new table: launches that read an old one may not have run yet.
            table = self._tables[key] = self._table(np.array(addresses, np.int64))
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        return table

    def _table(self, values: np.ndarray) -> Memory:
        memory = self.device.pool.allocate(values.nbytes, "tables of kernels")
        self.device.upload.copy(values, memory.pointer)
        return memory

    def take(self, function: Function) -> None:
        """Launch another compiled form of the same text from now on."""
        self._ready = Ready(self.device.driver, function, self.emitted.programs, self.block)
        self.scratch, self.usage = self._ready.scratch, function.usage


class Provisional(Launcher):
    """The launcher of a kernel that was compiled for more sizes than its own. Once it repeats, it
    is compiled for its own."""

    _runs = 0

    def __call__(self, buffers: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        self._runs += 1
        if self._runs == WARM + 1:
            settle([self])
        super().__call__(buffers, scalars)


def settle(launchers: Iterable[Launcher]) -> None:
    """Compile the provisional ones among launchers for their own sizes, all at a time."""
    found = [each for each in launchers if isinstance(each, Provisional)]
    functions = found[0].device.kernels.load_all([e.emitted for e in found]) if found else ()
    for each, function in zip(found, functions):
        each._runs = WARM + 1
        if function is not None:  # else this form needs more shared memory than the other one
            each.take(function)
