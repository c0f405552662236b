"""A CUDA driver without a GPU: the functions that `runtime/cuda/driver.py` names, over host memory.

Device pointers are addresses of host memory, and a launch runs the kernel in Triton's interpreter,
so a program gives its real values by way of the real runtime. It is harsher than a GPU where that
finds mistakes: work is done as late as it may be (when somebody waits for it), memory is filled
with garbage when it is handed out and when it is freed, and every access is checked against what is
allocated at that time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pickle
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tilewright import flushing
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import INTERPRET, Target
from tilewright.runtime import devices as runtime_devices
from tilewright.runtime import offline
from tilewright.runtime.arena import Arena
from tilewright.runtime.cuda import driver, kernels
from tilewright.runtime.cuda.device import Cuda
from tilewright.runtime.cuda.driver import PROTOTYPES
from tilewright.runtime.cuda.memory import Pool

OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
INVALID_DEVICE, INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE = 101, 200, 201, 400
NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS = 500, 600, 700
ERRORS = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    101: "CUDA_ERROR_INVALID_DEVICE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    400: "CUDA_ERROR_INVALID_HANDLE",
    500: "CUDA_ERROR_NOT_FOUND",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
}
WIDTHS = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4}
WIDTHS |= {"fp32": 4, "i64": 8, "u64": 8, "fp64": 8}
TENSOR = re.compile(r"tensordesc<(\w+)\[(\d+), (\d+)\]>")
TENSOR_ELEMENTS = {"fp16": 6, "fp32": 7, "bf16": 9}  # CUtensorMapDataType
TENSOR_MAP = struct.Struct("<4Q3I84x")  # address, columns, rows, bytes of a row, box, element
NUMPY = {"i1": "?", "i8": "i1", "u8": "u1", "i16": "i2", "i32": "i4", "u32": "u4", "i64": "i8"}
NUMPY |= {"u64": "u8", "fp16": "f2", "fp32": "f4", "fp64": "f8"}
MAGIC = b"\x7fELF of a request"
GARBAGE_NEW, GARBAGE_FREED = 0x7B, 0x5A


def image(request: offline.Request) -> bytes:
    """What stands for a cubin: the request it was made of."""
    content = pickle.dumps(request)
    return MAGIC + len(content).to_bytes(8, "little") + content


def compile_many(
    requests: Sequence[offline.Request], processes: int | None = None
) -> list[offline.Compiled]:
    """In the place of `offline.compile_many`, in no time."""
    return [
        offline.Compiled(
            name=r.name,
            target=r.target,
            asm={},
            binary=image(r),
            registers=32,
            spills=0,
            shared=1024 * r.num_stages,
            num_warps=r.num_warps,
            scratch=0,
            maps=tuple(_tensor_map(t) for _, t in _types(r) if t.startswith("tensordesc")),
        )
        for r in requests
    ]


def large_programs(kernel: Kernel | Bundle, target: Target) -> Schedule:
    """The interpreter costs much for each program, so there are to be few."""
    rounds = default_schedule(kernel, target).tf32
    return replace(default_schedule(kernel, INTERPRET), num_warps=2, tf32=rounds)


@contextmanager
def installed(
    devices: int = 1,
    capability: tuple[int, int] = (9, 0),
    blocking: bool = False,
    keeping: bool = False,
    compiler: Callable[..., list[offline.Compiled]] = compile_many,
) -> Iterator[FakeCuda]:
    """Inside the block this machine has GPUs.

    keeping: whether memory that comes back waits for its next use. Otherwise it goes back to the
    driver, which notices if somebody uses it still.
    """
    flushing.flush()
    fake = FakeCuda(devices, capability)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline, "compile_many", compiler)
        patch.setattr(kernels, "_compiler", lambda: "fake")  # a part of the key on disk
        if not keeping:
            patch.setattr(Pool, "most_kept", lambda pool: 0)
        driver.use(fake)
        for number in range(devices):
            device = Cuda(number, large_programs, blocking)
            patch.setitem(runtime_devices._devices, device.name, device)
        try:
            yield fake
            flushing.flush()
        finally:
            # What is still pending can't be computed without these devices.
            flushing._forget_views()
            flushing._end_epoch()
            flushing.clear_tables()
            for number in range(devices):
                Arena._arenas.pop(f"cuda:{number}", None)
            driver.use(None)


class Failure(Exception):
    """What a function returns instead of 0."""

    def __init__(self, code: int):
        super().__init__(ERRORS[code])
        self.code = code


@dataclass
class Stream:
    context: int
    todo: deque[Callable[[], None]] = field(default_factory=deque)

    def run(self) -> None:
        while self.todo:
            self.step()

    def step(self) -> None:
        self.todo.popleft()()


@dataclass
class Event:
    """recorded: the stream and how often it has been recorded; done: how often it happened."""

    timed: bool
    stream: Stream | None = None
    recorded: int = 0
    done: int = 0
    time: float = 0.0

    def run(self, until: int | None = None) -> None:
        until = self.recorded if until is None else until
        while self.done < until:
            assert self.stream is not None
            self.stream.step()


def _tensor_map(kind: str) -> offline.TensorMap:
    element, rows, columns = TENSOR.fullmatch(kind).groups()  # type: ignore[union-attr]
    box = int(rows), int(columns)
    return offline.TensorMap(TENSOR_ELEMENTS[element], WIDTHS[element], 3, box)


@dataclass
class Launch:
    """One launch of a kernel, as it was asked for. block: the bytes of each parameter, those of a
    tensor descriptor with the sizes that follow it."""

    request: offline.Request
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared: int
    block: tuple[bytes, ...]

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by name; pointers as addresses, tensor descriptors as the interpreter takes
        them."""
        out: dict[str, Any] = {}
        for (name, kind), raw in zip(_types(self.request), self.block):
            if kind.startswith("tensordesc"):
                out[name] = _matrix(kind, raw)
                continue
            dtype = "u8" if kind.startswith("*") else NUMPY[kind]
            out[name] = np.frombuffer(raw, dtype)[0].item()
        return out


def _matrix(kind: str, raw: bytes) -> tuple[int, ...]:
    """Address, rows, columns and elements from row to row, by the map and by what follows it."""
    how = _tensor_map(kind)
    pointer, columns, rows, row, *box, element = TENSOR_MAP.unpack(raw[:128])
    assert (tuple(box[::-1]), element) == (how.box, how.element)
    sizes = rows, columns, row // how.size
    assert struct.unpack("<2i2q", raw[128:]) == (*sizes, 1)
    return pointer, *sizes


def _types(request: offline.Request) -> list[tuple[str, str]]:
    return [(n, t) for n, t in request.signature.items() if t != "constexpr"]


def _widths(kind: str) -> list[int]:
    """The bytes of the parameters that one of Triton's is passed as."""
    if kind.startswith("tensordesc"):
        return [128, 4, 4, 8, 8]
    return [8 if kind.startswith("*") else WIDTHS[kind]]


class FakeCuda:
    """The library. What tests look at: `launches`, `calls` (how often a function was called),
    `live` (size and device by address), `graph_launches`, `capacity`."""

    def __init__(self, devices: int = 1, capability: tuple[int, int] = (9, 0)):
        self.devices, self.capability, self.version = devices, capability, 13000
        self.capacity = [1 << 30] * devices
        self.reserved = [0] * devices
        self.peak = [0] * devices
        self.live: dict[int, tuple[int, int]] = {}
        self.pinned: list[Any] = []
        self.launches: list[Launch] = []
        self.graph_launches = 0
        self.updates = 0
        self.calls: dict[str, int] = {}
        self.refused: set[str] = set()  # functions that fail
        self.current: int | None = None
        self.lost = False
        self.process = os.getpid()  # a child that is forked from it can't use the driver
        self.time = 0.0
        self._memory: dict[int, np.ndarray] = {}
        self._handles: dict[int, Any] = {}
        self._next = itertools.count(0x1000, 0x10)
        self._contexts = [self._new(("context", i)) for i in range(devices)]
        self._pools = [self._new(("pool", i)) for i in range(devices)]
        self._streams = [Stream(i) for i in range(devices)]  # default streams
        self._texts: list[bytes] = []
        for name, (_, types) in PROTOTYPES.items():
            # Called by way of the C prototype: arguments arrive as a C library would get them.
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._entry(name)))

    def _entry(self, name: str) -> Callable[..., int]:
        body = getattr(self, f"_{name.removesuffix('_v2')}")

        def entry(*args: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            try:
                if not name.startswith("cuGetError"):
                    if self.process != os.getpid():
                        raise Failure(NOT_INITIALIZED)
                    if name in self.refused:
                        raise Failure(INVALID_VALUE)
                    if self.lost:
                        raise Failure(ILLEGAL_ADDRESS)
                return body(*args) or OK
            except Failure as failure:
                return failure.code

        return entry

    # -- handles

    def _new(self, what: Any) -> int:
        handle = next(self._next)
        self._handles[handle] = what
        return handle

    def _of(self, handle: int | None, kind: type) -> Any:
        found = self._handles.get(handle or 0)
        if not isinstance(found, kind):
            raise Failure(INVALID_HANDLE)
        return found

    def _context_number(self) -> int:
        if self.current is None:
            raise Failure(INVALID_CONTEXT)
        return self.current

    def _stream(self, handle: int | None) -> Stream:
        if not handle:
            return self._streams[self._context_number()]
        stream = self._of(handle, Stream)
        if stream.context != self._context_number():
            raise Failure(INVALID_CONTEXT)
        return stream

    def _all_streams(self) -> Iterator[Stream]:
        yield from self._streams
        yield from (s for s in list(self._handles.values()) if isinstance(s, Stream))

    # -- devices

    def _cuInit(self, flags: int) -> None:
        pass

    def _cuDriverGetVersion(self, out: Any) -> None:
        out[0] = self.version

    def _cuDeviceGetCount(self, out: Any) -> None:
        out[0] = self.devices

    def _cuDeviceGet(self, out: Any, number: int) -> None:
        if not 0 <= number < self.devices:
            raise Failure(INVALID_DEVICE)
        out[0] = number

    def _cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        name = f"Fake GPU {device}".encode() + b"\0"
        ctypes.memmove(out, name, len(name))

    def _cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> None:
        known = {75: self.capability[0], 76: self.capability[1], 16: 132, 97: 232448, 10: 32}
        out[0] = known.get(attribute, 1)

    def _cuDeviceTotalMem(self, out: Any, device: int) -> None:
        out[0] = self.capacity[device]

    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out[0] = self._contexts[device]

    def _cuCtxSetCurrent(self, context: int) -> None:
        self.current = self._contexts.index(context)

    def _cuCtxSynchronize(self) -> None:
        number = self._context_number()
        for stream in self._all_streams():
            if stream.context == number:
                stream.run()

    # -- streams and events

    def _cuStreamCreateWithPriority(self, out: Any, flags: int, priority: int) -> None:
        out[0] = self._new(Stream(self._context_number()))

    def _cuStreamDestroy(self, stream: int) -> None:
        self._of(stream, Stream).run()
        del self._handles[stream]

    def _cuStreamSynchronize(self, stream: int | None) -> None:
        self._stream(stream).run()

    def _cuStreamQuery(self, stream: int | None) -> int:
        found = self._stream(stream)
        if found.todo:
            found.step()  # so that a loop that asks comes to an end
        return NOT_READY if found.todo else OK

    def _cuStreamWaitEvent(self, stream: int | None, event: int, flags: int) -> None:
        found = self._of(event, Event)
        until = found.recorded
        self._stream(stream).todo.append(lambda: found.run(until))

    def _cuEventCreate(self, out: Any, flags: int) -> None:
        out[0] = self._new(Event(timed=not flags & 2))

    def _cuEventDestroy(self, event: int) -> None:
        self._of(event, Event)
        del self._handles[event]

    def _cuEventRecord(self, event: int, stream: int | None) -> None:
        found, found.stream = self._of(event, Event), self._stream(stream)
        found.recorded += 1

        def happen() -> None:
            found.done += 1
            self.time += 1.0
            found.time = self.time

        found.stream.todo.append(happen)

    def _cuEventQuery(self, event: int) -> int:
        found = self._of(event, Event)
        if found.done < found.recorded:
            found.stream.step()
        return NOT_READY if found.done < found.recorded else OK

    def _cuEventSynchronize(self, event: int) -> None:
        self._of(event, Event).run()

    def _cuEventElapsedTime(self, out: Any, start: int, end: int) -> int:
        first, last = self._of(start, Event), self._of(end, Event)
        if not (first.timed and last.timed and first.recorded and last.recorded):
            raise Failure(INVALID_HANDLE)
        if first.done < first.recorded or last.done < last.recorded:
            return NOT_READY
        out[0] = last.time - first.time
        return OK

    # -- memory

    def _cuDeviceGetDefaultMemPool(self, out: Any, device: int) -> None:
        out[0] = self._pools[device]

    def _cuMemPoolSetAttribute(self, pool: int, attribute: int, value: Any) -> None:
        number = self._of(pool, tuple)[1]
        if attribute == 6:
            self.peak[number] = self.reserved[number]

    def _cuMemPoolGetAttribute(self, pool: int, attribute: int, out: Any) -> None:
        number = self._of(pool, tuple)[1]
        found = {5: self.reserved, 6: self.peak}[attribute][number]
        ctypes.c_uint64.from_address(out).value = found

    def _cuMemPoolTrimTo(self, pool: int, size: int) -> None:
        number = self._of(pool, tuple)[1]
        self.reserved[number] = max(size, self._used(number))

    def _cuMemGetInfo(self, free: Any, total: Any) -> None:
        number = self._context_number()
        free[0] = self.capacity[number] - self.reserved[number]
        total[0] = self.capacity[number]

    def _used(self, number: int) -> int:
        return sum(size for size, device in self.live.values() if device == number)

    def _cuMemAllocAsync(self, out: Any, size: int, stream: int | None) -> None:
        number = self._context_number()
        self._stream(stream)
        used = self._used(number) + size
        if used > self.capacity[number]:
            raise Failure(OUT_OF_MEMORY)
        memory = np.full(size + 256, GARBAGE_NEW, np.uint8)
        pointer = -(-memory.ctypes.data // 256) * 256
        self.live[pointer] = size, number
        self._memory[pointer] = memory
        self.reserved[number] = max(self.reserved[number], used)
        self.peak[number] = max(self.peak[number], self.reserved[number])
        out[0] = pointer

    def _cuMemFreeAsync(self, pointer: int, stream: int | None) -> None:
        if pointer not in self.live:
            raise Failure(INVALID_VALUE)
        memory = self._memory.pop(pointer)

        def free() -> None:
            del self.live[pointer]
            memory[:] = GARBAGE_FREED

        self._stream(stream).todo.append(free)

    def _cuMemHostAlloc(self, out: Any, size: int, flags: int) -> None:
        self.pinned.append(np.zeros(size, np.uint8))
        out[0] = self.pinned[-1].ctypes.data

    def _check(self, pointer: int, size: int) -> None:
        """The GPU is lost for the process if these bytes aren't allocated."""
        for start, (length, _) in self.live.items():
            if start <= pointer and pointer + size <= start + length:
                return
        self.lost = True
        raise Failure(ILLEGAL_ADDRESS)

    def _copy(self, to: int, source: int, size: int, stream: int | None, *on_device: int) -> None:
        def copy() -> None:
            for pointer in on_device:
                self._check(pointer, size)
            ctypes.memmove(to, source, size)

        self._stream(stream).todo.append(copy)

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._copy(to, source, size, stream, to)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._copy(to, source, size, stream, source)

    def _cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._copy(to, source, size, stream, to, source)

    def _cuMemcpyPeerAsync(
        self, to: int, to_context: int, source: int, context: int, size: int, stream: int | None
    ) -> None:
        self._copy(to, source, size, stream, to, source)

    def _cuMemsetD8Async(self, pointer: int, byte: int, size: int, stream: int | None) -> None:
        def fill() -> None:
            self._check(pointer, size)
            ctypes.memset(pointer, byte, size)

        self._stream(stream).todo.append(fill)

    # -- kernels

    def _cuModuleLoadData(self, out: Any, image: int) -> None:
        if ctypes.string_at(image, len(MAGIC)) != MAGIC:
            raise Failure(INVALID_IMAGE)
        start = image + len(MAGIC)
        size = int.from_bytes(ctypes.string_at(start, 8), "little")
        out[0] = self._new(pickle.loads(ctypes.string_at(start + 8, size)))

    def _cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> None:
        request = self._of(module, offline.Request)
        if request.name != name.decode():
            raise Failure(NOT_FOUND)
        out[0] = self._new({"request": request, "shared": 48 << 10})

    def _cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8
        self._of(function, dict)["shared"] = value

    def _asked(self, function: int, config: Any, parameters: int) -> Launch:
        found = self._of(function, dict)
        if config.shared > found["shared"]:
            raise Failure(INVALID_VALUE)
        request = found["request"]
        widths = [_widths(t) for _, t in _types(request)]
        places = iter((ctypes.c_void_p * (sum(map(len, widths)) + 2)).from_address(parameters))
        parts = [[ctypes.string_at(next(places), w) for w in each] for each in (*widths, [8], [8])]
        block = tuple(map(b"".join, parts))
        return Launch(request, tuple(config.grid), tuple(config.block), config.shared, block)

    def _cuTensorMapEncodeTiled(
        self, out: int, element: int, rank: int, pointer: int, *rest: Any
    ) -> None:
        sizes, strides, box, steps, interleave, *_, fill = rest
        assert rank == 2 and steps[:2] == [1, 1] and (interleave, fill) == (0, 0)
        wrong = out % 64 or pointer % 16 or strides[0] % 16 or not 0 < max(box[:2]) <= 256
        if wrong:
            raise Failure(INVALID_VALUE)
        self._check(pointer, strides[0] * (sizes[1] - 1) + 1)
        packed = TENSOR_MAP.pack(pointer, sizes[0], sizes[1], strides[0], *box[:2], element)
        ctypes.memmove(out, packed, len(packed))

    def _cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: Any) -> None:
        asked = self._asked(function, config.contents, parameters)
        self._stream(config.contents.stream).todo.append(lambda: self._run(asked))

    def _run(self, asked: Launch) -> None:
        from tilewright.runtime import interpreter

        self.launches.append(asked)
        request = asked.request
        for name, kind in _types(request):
            pointer = asked.values[name]
            if kind.startswith("tensordesc"):
                self._check(pointer[0], 1)
            elif kind.startswith("*"):
                if pointer:  # a tensor without elements has no memory
                    self._check(pointer, 1)
                assert pointer % 16 == 0 or name not in request.divisible, "misaligned"
            elif name in request.divisible:
                power = request.divisible[name]
                assert pointer % power == 0, "a size that isn't what the compiler was told"
        function = interpreter.kernel_function(request.sha, request.body, request.name)
        arguments = dict(request.constexprs)
        for name, kind in _types(request):
            arguments[name] = interpreter.argument(kind, asked.values[name])
        interpreter.run(function, asked.grid, arguments)

    # -- graphs

    def _cuGraphCreate(self, out: Any, flags: int) -> None:
        out[0] = self._new([])

    def _cuGraphDestroy(self, graph: int) -> None:
        self._of(graph, list)
        del self._handles[graph]

    def _cuGraphAddKernelNode(
        self, out: Any, graph: int, after: Any, count: int, node: Any
    ) -> None:
        nodes = self._of(graph, list)
        asked = self._asked(node.contents.function, node.contents, node.contents.parameters)
        before = [after[i] for i in range(count)]
        assert before == [handle for handle, _ in nodes[-1:]], "not a chain"
        out[0] = handle = self._new("node")
        nodes.append((handle, asked))

    def _cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> None:
        out[0] = self._new(dict(self._of(graph, list)))

    def _cuGraphExecKernelNodeSetParams(self, ready: int, node: int, to: Any) -> None:
        self.updates += 1
        launches = self._of(ready, dict)
        launches[node] = self._asked(to.contents.function, to.contents, to.contents.parameters)

    def _cuGraphLaunch(self, ready: int, stream: int | None) -> None:
        self.graph_launches += 1
        todo = self._stream(stream).todo
        for asked in list(self._of(ready, dict).values()):
            todo.append(lambda asked=asked: self._run(asked))

    def _cuGraphExecDestroy(self, ready: int) -> None:
        self._of(ready, dict)
        del self._handles[ready]

    # -- errors

    def _cuGetErrorName(self, code: int, out: Any) -> None:
        self._texts.append(ERRORS[code].encode())
        out[0] = self._texts[-1]

    def _cuGetErrorString(self, code: int, out: Any) -> None:
        self._texts.append(f"error {code} of the fake driver".encode())
        out[0] = self._texts[-1]
