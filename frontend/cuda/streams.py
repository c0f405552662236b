"""Streams and events.

Work is recorded and runs when a value is needed. So pending work is computed before a stream
changes, and before an event of the current stream is recorded or waited for: it was called before
them. Streams run side by side. Where one needs another's results or memory, the
runtime lets it wait (`runtime/cuda/streams.py`). So programs are right whether they synchronize
their streams or forget to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime

from .. import recording
from ..devices import device as Device
from ..recording import threads
from .numbering import runtime_of

if TYPE_CHECKING:
    from ..types import DeviceLike


class Stream:
    """A stream of a device. cuda_stream: its handle in the driver. priority: lower goes first."""

    def __init__(self, device: DeviceLike | None = None, priority: int = 0, **_: Any):
        from tilewright.runtime.cuda import context

        recording.claim()
        self._runtime = runtime_of(device)
        self._stream: Any = context.Stream(self._runtime.context, priority)
        self.priority = priority

    @classmethod
    def _around(cls, found: Any, stream: Any) -> Stream:
        """Wrap a stream of the runtime; None is the default stream."""
        out = object.__new__(cls)
        out._runtime, out._stream = found, stream
        out.priority = 0 if stream is None else stream.priority
        return out

    @property
    def cuda_stream(self) -> int:
        return 0 if self._stream is None else self._stream.handle

    @property
    def device(self) -> Device:
        return Device(self._runtime.name)

    @property
    def device_index(self) -> int:
        return self._runtime.context.number

    @property
    def stream_id(self) -> int:
        return self.cuda_stream

    @property
    def device_type(self) -> int:
        """PyTorch's number of the kind of device: 1 for CUDA."""
        return 1

    @property
    def native_handle(self) -> int:
        return self.cuda_stream

    def is_capturing(self) -> bool:
        """Whether work goes to a CUDA graph now."""
        return bool(recording.clock.capturing)

    def wait_event(self, event: Event) -> None:
        """Let later work in this stream wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work in this stream wait for all work in another."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def _compute(self) -> None:
        """Give pending work to the stream, if it is the current one."""
        recording.claim()
        if self._runtime.context.stream == self.cuda_stream:
            recording.end_step()

    def _finish(self) -> None:
        """Work as `_compute`, but to see the result: an error while a graph is captured."""
        recording.claim()
        if self._runtime.context.stream == self.cuda_stream:
            recording.flush()

    def query(self) -> bool:
        """Whether all work in the stream is done."""
        self._finish()
        context = self._runtime.context
        context.use()
        return context.driver.cuStreamQuery(self.cuda_stream) == 0

    def synchronize(self) -> None:
        """Waits for all work in the stream."""
        self._finish()
        context = self._runtime.context
        context.use()
        context.driver.cuStreamSynchronize(self.cuda_stream)
        self._runtime.checks.make()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int]:
        return self._runtime.name, self.cuda_stream

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._entered = StreamContext(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.__exit__(*exc)


class ExternalStream(Stream):
    """A stream that another library made, by its handle.

    It must outlive the tensors that were computed in it, and their memory that is kept for reuse
    (`torch.cuda.empty_cache` gives it back).
    """

    def __init__(self, stream_ptr: int, device: DeviceLike | None = None):
        from tilewright.runtime.cuda import context

        self._runtime = runtime_of(device)
        self._stream = context.BorrowedStream(stream_ptr)
        self.priority = 0


def get_stream_from_external(data_ptr: int, device: DeviceLike | None = None) -> ExternalStream:
    """A stream that another library made; see `ExternalStream`."""
    return ExternalStream(data_ptr, device)


class Event:
    """A point in the work of a device. Times are taken only with enable_timing=True."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ):
        if interprocess:
            raise NotImplementedError(
                f"torch.cuda.Event: interprocess=True is not implemented{at_user_line()}"
            )
        self._timing, self._blocking = enable_timing, blocking
        self._event: Any = None  # the runtime's event, made when this one is first recorded

    def record(self, stream: Stream | None = None) -> None:
        """Put the event after all work given to `stream`, by default the current stream."""
        if stream is None:
            recording.claim()
            where = runtime_of(None).context
            handle = where.stream
            recording.end_step()
        else:
            where, handle = stream._runtime.context, stream.cuda_stream
            stream._compute()
        if self._event is None:
            self._event = where.event(self._timing, self._blocking)
        elif self._event.context is not where:
            raise RuntimeError(
                f"Event device cuda:{self._event.context.number} does not match recording stream's "
                f"device cuda:{where.number}{at_user_line()}"
            )
        where.order.record(self._event, handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work in `stream` wait for the event. Does nothing if it was never recorded."""
        stream = current_stream() if stream is None else stream
        stream._compute()
        if self._event is not None:
            self._event.delay(stream._runtime.context, stream.cuda_stream)

    def query(self) -> bool:
        """Whether all work before the event is done."""
        return self._event is None or self._event.query()

    def synchronize(self) -> None:
        """Waits until all work before the event is done."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`."""
        for event in (self, end_event):
            if not event._timing:
                raise ValueError(
                    "Both events must be created with argument 'enable_timing=True'."
                    f"{at_user_line()}"
                )
            if event._event is None:
                raise ValueError(
                    f"Both events must be recorded before calculating elapsed time.{at_user_line()}"
                )
            if not event.query():
                raise RuntimeError(
                    "Both events must be completed before calculating elapsed time: call "
                    f"end_event.synchronize() before{at_user_line()}"
                )
        return self._event.milliseconds_to(end_event._event)

    def __repr__(self) -> str:
        handle = 0 if self._event is None else self._event.handle
        return f"<torch.cuda.Event {handle:#x}>"


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The stream to which this thread gives work for a device."""
    recording.claim()
    found = runtime_of(device)
    return Stream._around(found, found.context.current)


def default_stream(device: DeviceLike | None = None) -> Stream:
    return Stream._around(runtime_of(device), None)


def set_stream(stream: Stream | None) -> None:
    """Give this thread's further work for the device of `stream` to that stream."""
    if stream is not None:
        threads.on_turn = _resume
        recording.end_step()  # captured work goes to the stream of each replay
        stream._runtime.switch(stream._stream)


def _resume() -> None:
    for name in runtime.started():
        if name.startswith("cuda"):
            found: Any = runtime.get(name)
            found.resume()


class StreamContext:
    """Gives the work recorded inside the block to `stream`; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            set_stream(self._before)


stream = StreamContext
