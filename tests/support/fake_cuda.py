"""A CUDA driver without a GPU: the functions that `runtime/cuda/driver.py` names, over host memory.

Device pointers are addresses of host memory, and a launch runs the kernel in Triton's interpreter.
So a program computes its real values through the real runtime. The fake is harsher than a GPU where
that finds mistakes:

- Work is done as late as possible (when somebody waits for it), or in any order that streams and
  events allow.
- Memory is filled with garbage when it is handed out and when it is freed.
- Every access is checked against the present allocations, and against other streams' accesses to
  the same bytes (`fake_order.py`).

`fake_streams.py` has the streams, `fake_kernels.py` the kernels.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fake_kernels import (
    FAULT,
    SMALL_MAP,
    TENSOR_ELEMENTS,
    TENSOR_MAP,
    WIDTHS,
    Launch,
    Ready,
    Watched,
    bytes_passed,
    compile_many,
    large_programs,
    loaded,
    passed,
)
from fake_order import Races, join
from fake_streams import Event, Point, Stream

from tilewright.recording import flushing
from tilewright.runtime import devices as runtime_devices
from tilewright.runtime import offline
from tilewright.runtime.arena import Arena
from tilewright.runtime.cuda import driver, image, memory
from tilewright.runtime.cuda import solver as cuda_solver
from tilewright.runtime.cuda.device import Cuda
from tilewright.runtime.cuda.memory import Pool
from tilewright.runtime.cuda.nvidia import Nvidia
from tilewright.runtime.driver import Driver

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
GARBAGE_NEW, GARBAGE_FREED = 0x7B, 0x5A
GRID, MOST_SHARED = ((1 << 31) - 1, 65535, 65535), 232448
SWIZZLED = {0: 1 << 20, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle -> most bytes of a box's row
ANYWHERE = re.compile(  # functions that need no current context
    "cuInit|cuDriver.*|cuDevice.*|cuCtxSetCurrent|cuMemPool.*|cuGraph(Exec)?Destroy|cuGetError.*"
    "|hipGetDeviceProperties"
)
REPAIRED = 13010  # from the next version on drivers mark no small tensor map


@contextmanager
def installed(
    devices: int = 1,
    capability: tuple[int, int] = (9, 0),
    multiprocessors: int = 132,
    blocking: bool = False,
    keeping: bool = False,
    compiler: Callable[..., list[offline.Compiled]] = compile_many,
    seed: int | None = None,
    library: type[FakeCuda] | None = None,
    solver: Callable[[FakeCuda], Any] | None = None,
) -> Iterator[FakeCuda]:
    """Give this machine GPUs inside the block. At its end no race may have been found.

    keeping: whether the pool keeps freed memory. Otherwise it goes back to the driver, which
        notices later uses. seed: of the order in which streams run; None: each as late as possible.
    library: FakeCuda, or the same for another platform. solver: makes its cuSOLVER; None: there is
        none.
    """
    flushing.flush()
    fake = (library or FakeCuda)(devices, capability, multiprocessors, seed)
    with pytest.MonkeyPatch.context() as patch, fake.watched():
        patch.setattr(offline, "compile_many", compiler)
        patch.setattr(image, "_compiler", lambda: "fake")  # a part of the key on disk
        if not keeping:
            patch.setattr(memory, "KEPT", 0)
            patch.setattr(Pool, "most_kept", lambda pool: 0)
        driver.use(fake, fake.kind)
        fake.solver = None if solver is None else solver(fake)
        libraries = fake.solver and cuda_solver.Libraries(fake.solver, fake.solver)
        patch.setattr(cuda_solver, "_libraries", libraries)
        patch.setattr(cuda_solver, "_absence", "the fake driver has none")
        for number in range(devices):
            device = Cuda(number, large_programs, blocking)
            patch.setitem(runtime_devices._devices, device.name, device)
        try:
            yield fake
            flushing.flush()
            fake.finish()
            assert not fake.races.found, "\n".join(fake.races.found)
        finally:
            # Pending values can't be computed, and nothing arrives, without these devices.
            host: Any = runtime_devices.get("cpu")
            host._arriving.clear()
            host.is_settled()
            flushing._forget_views()
            flushing._end_epoch()
            flushing.clear_tables()
            for number in range(devices):
                for lane in [k for k in Arena._arenas if k.startswith(f"cuda:{number}")]:
                    del Arena._arenas[lane]
            driver.use(None)


class Failure(Exception):
    """An error code that a function returns instead of 0."""

    def __init__(self, code: int):
        super().__init__(ERRORS[code])
        self.code = code


class FakeCuda:
    """The library, with the functions of `kind`. Tests read `launches`, `calls` (the number of
    calls of each function), `live` (size and device by address), `graph_launches`, `capacity`,
    `races`, `opened` (pairs of a GPU and another one that may access its pool)."""

    kind: type[Driver] = Nvidia
    errors = ERRORS

    def __init__(
        self,
        devices: int = 1,
        capability: tuple[int, int] = (9, 0),
        multiprocessors: int = 132,
        seed: int | None = None,
    ):
        self.devices, self.capability, self.version = devices, capability, 13000
        self.multiprocessors = multiprocessors
        self.capacity = [1 << 30] * devices
        self.reserved = [0] * devices
        self.peak = [0] * devices
        self.live: dict[int, tuple[int, int]] = {}
        self.pinned: list[Any] = []
        self.launches: list[Launch] = []
        self.graph_launches = 0
        self.opened: set[tuple[int, int]] = set()
        self.connected = True  # GPUs reach each other's memory
        self.updates = 0
        self.early = 0  # edges of graphs over which a kernel starts before the other ends
        self.calls: dict[str, int] = {}
        self.refused: set[str] = set()  # functions that fail
        self._thread = threading.local()
        self._turns = threading.RLock()  # threads do streams' work one at a time
        self.lost = False
        self.solver: Any = None  # its cuSOLVER
        self.process = os.getpid()  # a forked child can't use the driver
        self.time = 0.0
        self._memory: dict[int, np.ndarray] = {}
        self._handles: dict[int, Any] = {}
        self._homes: dict[int, int] = {}  # the contexts of modules
        self._next = itertools.count(0x1000, 0x10)
        self._contexts = [self._new(("context", i)) for i in range(devices)]
        self._pools = [self._new(("pool", i)) for i in range(devices)]
        self._streams = [Stream(self, i, i) for i in range(devices)]  # default streams
        self._lanes: list[Stream] = []  # of the nodes of graphs
        self._chance = None if seed is None else random.Random(seed)
        self.races = Races()
        self._place = 0  # of the current work
        self._texts: list[bytes] = []
        for name, (_, types) in self.kind.prototypes.items():
            # Called through the C prototype, so arguments arrive as in a C library.
            function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._entry(name))
            setattr(self, self.kind.symbols.get(name, name), function)

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
                    if not ANYWHERE.fullmatch(name):
                        self._context_number()
                with self._turns:
                    return body(*args) or OK
            except Failure as failure:
                return failure.code

        return entry

    # -- the order of work

    def serve_some(self) -> None:
        """Do some pending work of streams, at random."""
        while self._chance is not None and self._chance.random() < 0.5:
            found = [s for s in self._all_streams() if s.can_go_on()]
            if not found:
                return
            self._chance.choice(found).do()

    def finish(self) -> None:
        """Do all pending work."""
        for stream in self._all_streams():
            stream.run()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Check every memory access of kernels inside the block."""
        from triton.runtime import interpreter as stock

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stock, "_interpreter", Watched(self, stock._interpreter))
            yield

    def accessed(self, pointers: Any, mask: Any, width: int, writes: bool) -> None:
        pointers = np.asarray(pointers).astype(np.uint64)
        if self._place and not self.races.element_access(
            self._place, pointers, np.asarray(mask), width, writes=writes
        ):
            self.lost = True
            raise Failure(ILLEGAL_ADDRESS)

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
        number = getattr(self._thread, "context", None)  # each thread has its own
        if number is None:
            raise Failure(INVALID_CONTEXT)
        return number

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
        self._lanes = [s for s in self._lanes if s.todo]
        yield from self._lanes

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
        major, minor = self.capability
        known = {75: major, 76: minor, 16: self.multiprocessors, 97: 232448, 10: 32}
        known |= {36: 3_125_000, 37: 6144, 38: 60 << 20}  # an H200's memory: 4.8 TB/s
        out[0] = known.get(attribute, 1)

    def _cuDeviceCanAccessPeer(self, out: Any, device: int, peer: int) -> None:
        out[0] = int(self.connected and device != peer)

    def _cuDeviceTotalMem(self, out: Any, device: int) -> None:
        out[0] = self.capacity[device]

    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out[0] = self._contexts[device]

    def _cuCtxSetCurrent(self, context: int) -> None:
        self._thread.context = self._contexts.index(context)

    def _cuCtxSynchronize(self) -> None:
        number = self._context_number()
        for stream in self._all_streams():
            if stream.context == number:
                self._await(stream)

    def _await(self, stream: Stream) -> None:
        stream.run()
        join(self.races.host, stream.clock)

    # -- streams and events

    def _cuStreamCreateWithPriority(self, out: Any, flags: int, priority: int) -> None:
        assert flags == 1, "it would wait for the default stream"
        out[0] = handle = self._new(None)
        self._handles[handle] = Stream(self, self._context_number(), handle)

    def _cuStreamSynchronize(self, stream: int | None) -> None:
        self._await(self._stream(stream))

    def _cuStreamQuery(self, stream: int | None) -> int:
        found = self._stream(stream)
        if not found.ask():
            return NOT_READY
        join(self.races.host, found.clock)
        return OK

    def _cuStreamWaitEvent(self, stream: int | None, event: int, flags: int) -> None:
        found = self._of(event, Event)
        if found.point is not None:
            self._stream(stream).awaits(found.point)

    def _cuEventCreate(self, out: Any, flags: int) -> None:
        out[0] = self._new(Event(self._context_number(), timed=not flags & 2))

    def _cuEventDestroy(self, event: int) -> None:
        self._of(event, Event)
        del self._handles[event]

    def _cuEventRecord(self, event: int, stream: int | None) -> None:
        found, where = self._of(event, Event), self._stream(stream)
        if found.context != where.context:
            raise Failure(INVALID_HANDLE)
        found.point = Point.recorded(where)

    def _cuEventQuery(self, event: int) -> int:
        point = self._of(event, Event).point
        if point is not None:
            if not point.ask():
                return NOT_READY
            join(self.races.host, point.clock)
        return OK

    def _cuEventSynchronize(self, event: int) -> None:
        point = self._of(event, Event).point
        if point is not None:
            point.run()
            join(self.races.host, point.clock)

    def _cuEventElapsedTime(self, out: Any, start: int, end: int) -> int:
        first, last = self._of(start, Event), self._of(end, Event)
        if first.context != last.context:
            raise Failure(INVALID_HANDLE)
        if not (first.timed and last.timed and first.point and last.point):
            raise Failure(INVALID_HANDLE)
        if not (first.point.done and last.point.done):
            return NOT_READY
        out[0] = last.point.time - first.point.time
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

    def _cuMemPoolSetAccess(self, pool: int, access: Any, count: int) -> None:
        number, found = self._of(pool, tuple)[1], access.contents
        assert (count, found.kind, found.flags) == (1, 1, 3), "a GPU may read and write"
        if found.number == number or not 0 <= found.number < self.devices:
            raise Failure(INVALID_DEVICE)
        self.opened.add((number, found.number))

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
        found = self._stream(stream)
        used = self._used(number) + size
        if used > self.capacity[number]:
            raise Failure(OUT_OF_MEMORY)
        memory = np.full(size + 256, GARBAGE_NEW, np.uint8)
        pointer = -(-memory.ctypes.data // 256) * 256
        self.live[pointer] = size, number
        self._memory[pointer] = memory
        self.reserved[number] = max(self.reserved[number], used)
        self.peak[number] = max(self.peak[number], self.reserved[number])
        place = self.races.given(found.handle, found.clock, "an allocation")
        self.races.allocated(pointer, size, place)
        out[0] = pointer

    def _cuMemFreeAsync(self, pointer: int, stream: int | None) -> None:
        if pointer not in self.live:
            raise Failure(INVALID_VALUE)
        memory = self._memory.pop(pointer)

        def free(place: int) -> None:
            self.races.freed(pointer, place)
            del self.live[pointer]
            memory[:] = GARBAGE_FREED

        self._stream(stream).give("a release", free)

    def _cuMemHostAlloc(self, out: Any, size: int, flags: int) -> None:
        self.pinned.append(np.zeros(size, np.uint8))
        out[0] = self.pinned[-1].ctypes.data

    def _own(self, *pointers: int) -> None:
        """Check that memory belongs to the current GPU. Other GPUs reach it only by copies that
        name both."""
        here = self._context_number()
        for start, (length, device) in self.live.items():
            if device != here and any(start <= p < start + length for p in pointers):
                raise Failure(INVALID_VALUE)

    def _check(self, pointer: int, size: int) -> None:
        """Lose the GPU for this process unless these bytes are allocated."""
        for start, (length, _) in self.live.items():
            if start <= pointer and pointer + size <= start + length:
                return
        self.lost = True
        raise Failure(ILLEGAL_ADDRESS)

    def _copy(
        self,
        name: str,
        to: int,
        source: int,
        size: int,
        stream: int | None,
        writes: bool = True,
        reads: bool = True,
    ) -> None:
        """reads, writes: whether the source and the target are on a device."""
        if not size:  # the driver's behaviour for no bytes isn't documented
            raise Failure(INVALID_VALUE)

        def copy(place: int) -> None:
            for pointer, is_target in ((source, False), (to, True)):
                if writes if is_target else reads:
                    self._check(pointer, size)
                    self.races.access(place, pointer, size, writes=is_target)
            ctypes.memmove(to, source, size)

        self._stream(stream).give(name, copy)

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._own(to)
        self._copy("a copy from the host", to, source, size, stream, reads=False)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._own(source)
        self._copy("a copy to the host", to, source, size, stream, writes=False)

    def _cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int | None) -> None:
        self._own(to, source)
        self._copy("a copy", to, source, size, stream)

    def _cuMemcpyPeerAsync(
        self, to: int, to_context: int, source: int, context: int, size: int, stream: int | None
    ) -> None:
        self._copy("a copy from another GPU", to, source, size, stream)

    def _cuMemsetD8Async(self, pointer: int, byte: int, size: int, stream: int | None) -> None:
        self._own(pointer)

        def fill(place: int) -> None:
            self._check(pointer, size)
            self.races.access(place, pointer, size, writes=True)
            ctypes.memset(pointer, byte, size)

        self._stream(stream).give("a fill", fill)

    # -- kernels

    def _cuModuleLoadData(self, out: Any, image: int) -> None:
        request = loaded(image)
        if request is None:
            raise Failure(INVALID_IMAGE)
        out[0] = module = self._new(request)
        self._homes[module] = self._context_number()

    def _cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> None:
        request = self._of(module, offline.Request)
        if request.name != name.decode():
            raise Failure(NOT_FOUND)
        found = {"request": request, "shared": 48 << 10, "context": self._homes[module]}
        out[0] = self._new(found)

    def _cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        if attribute != 8 or not 0 <= value <= MOST_SHARED:
            raise Failure(INVALID_VALUE)
        self._of(function, dict)["shared"] = value

    def _cuFuncSetCacheConfig(self, function: int, config: int) -> None:
        self._of(function, dict)
        if config not in (0, 1, 2, 3):
            raise Failure(INVALID_VALUE)

    def _asked(self, function: int, config: Any, parameters: int) -> Launch:
        found = self._of(function, dict)
        if found["context"] != self._context_number():
            raise Failure(INVALID_HANDLE)
        request = found["request"]
        most = 32764 if self.version >= 12010 else 4096  # bytes of parameters
        if (
            config.shared > found["shared"]
            or not all(0 < n <= limit for n, limit in zip(config.grid, GRID))
            or not 0 < math.prod(config.block) <= 1024
            or bytes_passed(request) > most
        ):
            raise Failure(INVALID_VALUE)
        return Launch.read(request, config, parameters)

    def _cuTensorMapEncodeTiled(
        self, out: int, element: int, rank: int, pointer: int, *rest: Any
    ) -> None:
        sizes, strides, box, steps, interleave, *_, fill = rest
        assert 2 <= rank <= 5 and steps[:rank] == [1] * rank and (interleave, fill) == (0, 0)
        sizes, strides, box = sizes[:rank], strides[: rank - 1], box[:rank]
        size = {v: WIDTHS[k] for k, v in TENSOR_ELEMENTS.items()}.get(element, 0)
        across, swizzle = box[0] * size, rest[5]
        if (
            any((out % 64, pointer % 16, across % 16, *(n % 16 for n in strides)))
            or any(not 0 < n <= 256 for n in box)
            or any(not 0 < n <= 1 << 32 for n in sizes)
            or any(not 0 < n < 1 << 40 for n in strides)
            or across > SWIZZLED[swizzle]
        ):
            raise Failure(INVALID_VALUE)
        last = sum(step * (n - 1) for step, n in zip((size, *strides), sizes))
        self._check(pointer, last + 1)
        # Old drivers set this bit even where it does harm.
        marked = self.version <= REPAIRED or last + 1 >= SMALL_MAP
        numbers: list[int] = []
        for each, most in ((sizes, 5), (strides, 4), (box, 5)):
            numbers += [*each, *[0] * (most - len(each))]
        packed = TENSOR_MAP.pack(pointer, FAULT * marked, *numbers, element)
        ctypes.memmove(out, packed, len(packed))

    def _cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: Any) -> None:
        asked = self._asked(function, config.contents, parameters)
        self._launch(asked, self._stream(config.contents.stream))

    def _launch(self, asked: Launch, stream: Stream) -> None:
        stream.give(asked.request.name, lambda place: self._run(asked, place))

    def _run(self, asked: Launch, place: int) -> None:
        from tilewright.runtime.interpret import interpreter

        self.launches.append(asked)
        request = asked.request
        values = asked.values
        for name, kind in passed(request):
            pointer = values[name]
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
        for name, kind in passed(request):
            arguments[name] = interpreter.argument(kind, values[name])
        self._place = place
        try:
            interpreter.run(function, asked.grid, arguments)
        finally:
            self._place = 0

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
        known = {handle for handle, *_ in nodes}
        if not (known.issuperset(before) and len(set(before)) == count):
            raise Failure(INVALID_VALUE)
        out[0] = handle = self._new("node")
        nodes.append((handle, asked, before))

    def _cuGraphAddDependencies(
        self, graph: int, before: Any, after: Any, edges: Any, count: int
    ) -> None:
        nodes = {handle: (asked, waits) for handle, asked, waits in self._of(graph, list)}
        for i in range(count):
            edge = edges[i]
            assert (edge.from_port, edge.to_port, edge.kind) == (1, 0, 1), "no programmatic edge"
            asked, waits = nodes[after[i]]
            if before[i] not in nodes or before[i] in waits:
                raise Failure(INVALID_VALUE)
            assert "    cuda.gdc_wait()" in asked.request.body, "it doesn't wait"
            waits.append(before[i])
            self.early += 1

    def _cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> None:
        nodes = self._of(graph, list)
        after = {handle: before for handle, _, before in nodes}
        out[0] = self._new(Ready({handle: asked for handle, asked, _ in nodes}, after))

    def _cuGraphExecKernelNodeSetParams(self, ready: int, node: int, to: Any) -> None:
        self.updates += 1
        launches = self._of(ready, Ready).launches
        launches[node] = self._asked(to.contents.function, to.contents, to.contents.parameters)

    def _cuGraphLaunch(self, ready: int, stream: int | None) -> None:
        self.graph_launches += 1
        found, graph = self._stream(stream), self._of(ready, Ready)
        if graph.last is not None:
            found.awaits(graph.last)
        # Each node is work of a stream of its own: any order is right that its edges allow.
        begin, ends = Point.recorded(found), dict[int, Point]()
        for node, asked in graph.launches.items():
            lane = Stream(self, found.context, node)
            for point in [ends[each] for each in graph.after[node]] or [begin]:
                lane.awaits(point)
            self._launch(asked, lane)
            ends[node] = Point.recorded(lane)
            self._lanes.append(lane)
        for point in ends.values():
            found.awaits(point)
        graph.last = Point.recorded(found)

    def _cuGraphExecDestroy(self, ready: int) -> None:
        self._of(ready, Ready)
        del self._handles[ready]

    # -- errors

    def _cuGetErrorName(self, code: int, out: Any) -> None:
        self._texts.append(self.errors[code].encode())
        out[0] = self._texts[-1]

    def _cuGetErrorString(self, code: int, out: Any) -> None:
        self._texts.append(f"error {code} of the fake driver".encode())
        out[0] = self._texts[-1]
