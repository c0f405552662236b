"""A GPU's primary context, properties, streams and events."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from dataclasses import dataclass

from . import driver
from .streams import Mark, Order

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_BLOCKING_SYNC, _NO_TIMING = 1, 2  # CU_EVENT_…
_KEPT = 256  # events without an owner, of each kind, before some are destroyed


@dataclass(frozen=True)
class Properties:
    """Properties of a GPU. Sizes are in bytes, clocks in kHz, the bus in bits."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    integrated: int
    is_multi_gpu_board: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    gcnArchName: str
    """The architecture of an AMD GPU; of another one its compiler's name, such as sm_90."""


def properties(number: int) -> Properties:
    """The properties of GPU `number`. This makes no context."""
    cuda = driver.get()
    handle = cuda.number("cuDeviceGet", number)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), handle)
    total = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(total, handle)
    read = {k: cuda.number("cuDeviceGetAttribute", a, handle) for k, a in cuda.attributes.items()}
    return Properties(
        name=name.value.decode(),
        total_memory=total.value,
        gcnArchName=cuda.architecture(handle),
        **read,
    )


def reaches(number: int, other: int) -> bool:
    """Whether GPU `number` can read the memory of GPU `other`."""
    cuda = driver.get()
    first, second = (cuda.number("cuDeviceGet", n) for n in (number, other))
    return bool(cuda.number("cuDeviceCanAccessPeer", first, second))


class Context:
    """The primary context of GPU `number`, which all libraries in a process share.

    handle: CUcontext. stream: the CUstream that work goes to; 0 is the default stream.
    current: the same stream as an object, None for the default one. chosen: each thread's own, in
        its attribute `stream`.
    order: records which stream waits for which.
    turn_to, record, launch: the driver's functions, unchecked.
    idle: streams without an owner, by priority. They are never destroyed, because memory goes back
        to the stream that it was handed out in.
    ended: events without an owner, by their flags. They are recorded again for new ones.
    """

    current: Stream | BorrowedStream | None

    def __init__(self, number: int):
        self.driver = driver.get()
        self.number = number
        self.device = self.driver.number("cuDeviceGet", number)
        self.handle = self.driver.context(self.device)
        self.turn_to = self.driver.unchecked("cuCtxSetCurrent")
        self.record = self.driver.unchecked("cuEventRecord")
        self.launch = self.driver.launcher()
        self.stream = 0
        self.current = None
        self.chosen = threading.local()
        self.order = Order(self)
        self.idle: dict[int, deque[int]] = {}
        self.ended: defaultdict[int, deque[int]] = defaultdict(deque)

    def attribute(self, name: str) -> int:
        """A numeric property by name."""
        return self.driver.number("cuDeviceGetAttribute", self.driver.attributes[name], self.device)

    def use(self) -> None:
        """Make this the thread's current context. Call it before calls of the driver: another
        library may have changed it since."""
        code = self.turn_to(self.handle)
        if code:
            raise self.driver.failure("cuCtxSetCurrent", code)

    def switch(self, stream: Stream | BorrowedStream | None) -> None:
        """Give further work of this thread to `stream`; None is the default one."""
        self.chosen.stream = stream
        handle = 0 if stream is None else stream.handle
        if handle != self.stream:
            self.order.switch(handle)
        self.current = stream

    def event(self, timing: bool = False, blocking: bool = False) -> Event:
        """A new event."""
        return Event(self, timing, blocking)

    def wait_for(self, other: Context) -> None:
        """Make further work wait for all earlier work in the current stream of `other`."""
        other.event().record().delay(self, self.stream)

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        self.use()
        self.driver.cuCtxSynchronize()


class Stream:
    """A stream beside the default one. handle: CUstream. priority: lower numbers are served
    first."""

    def __init__(self, context: Context, priority: int = 0):
        context.use()
        self.priority = priority
        self._idle = context.idle.setdefault(priority, deque())
        self.handle = (
            self._idle.popleft()
            if self._idle
            else context.driver.handle("cuStreamCreateWithPriority", _NON_BLOCKING, priority)
        )

    def __del__(self) -> None:
        # No driver call here: any thread may run this, in the middle of any driver call.
        if hasattr(self, "handle"):
            self._idle.append(self.handle)


@dataclass(frozen=True)
class BorrowedStream:
    """A stream of another library. It must outlive the memory that is handed out in it."""

    handle: int
    priority: int = 0


class Event:
    """A point in the work of a device. handle: CUevent. mark: the work known to come before it."""

    mark: Mark | None = None

    def __init__(self, context: Context, timing: bool = True, blocking: bool = False):
        flags = (0 if timing else _NO_TIMING) | (_BLOCKING_SYNC if blocking else 0)
        self.context, self._ended = context, context.ended[flags]
        # What waits for an event waits for its last record before that call, so recording it anew
        # changes nothing for them.
        try:
            self.handle = self._ended.popleft()
        except IndexError:
            context.use()
            self.handle = context.driver.handle("cuEventCreate", flags)
        if len(self._ended) > _KEPT:
            context.use()
            context.driver.cuEventDestroy_v2(self._ended.popleft())

    def record(self, stream: int | None = None) -> Event:
        """Place the event after all earlier work in `stream`, by default the current one."""
        context = self.context
        context.use()
        code = context.record(self.handle, context.stream if stream is None else stream)
        if code:
            raise context.driver.failure("cuEventRecord", code)
        return self

    def delay(self, context: Context, stream: int) -> None:
        """Make further work in `stream` of `context` wait for the event."""
        context.use()
        context.driver.cuStreamWaitEvent(stream, self.handle, 0)
        if self.mark is not None and context is self.context:
            context.order.learn(stream, self.mark)

    @property
    def spell(self) -> int:
        """The last spell before the event, which an Order recorded."""
        assert self.mark is not None
        return self.mark.spell

    def query(self) -> bool:
        """Whether all work before the event is done. It must have been recorded."""
        self.context.use()
        return self.context.driver.cuEventQuery(self.handle) == 0

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        self.context.use()
        self.context.driver.cuEventSynchronize(self.handle)

    def milliseconds_to(self, end: Event) -> float:
        """The time from this event to `end`; both must have happened."""
        out = ctypes.c_float()
        self.context.use()
        self.context.driver.cuEventElapsedTime(out, self.handle, end.handle)
        return out.value

    def __del__(self) -> None:
        # As for a stream: destroying an event needs its context, which this thread may not have.
        if hasattr(self, "handle"):
            self._ended.append(self.handle)
