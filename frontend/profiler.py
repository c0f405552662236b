"""torch.profiler: times of ops and of the blocks that a program names, by steps of a schedule.

See `autograd/profiler.py` for what an op's time is.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import paths, recording
from .autograd import profiler as _blocks
from .autograd.profiler import record_function

__all__ = [
    "DeviceType",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What a profile may look at. Here it looks at the host's time."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


DeviceType = enum.Enum(
    "DeviceType",
    "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta HPU VE Lazy "
    "IPU MTIA PrivateUse1",
    start=0,
)
"""What devices are called in profiles, with PyTorch's numbers."""


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    return False


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """The action of each step: `wait` steps of nothing, `warmup` steps, `active` steps; again and
    again, or `repeat` times, behind the first `skip_first` steps. skip_first_wait: whether the
    first round has no `wait`."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments.")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        if repeat and step >= repeat * cycle:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


def _default_schedule_fn(_: int) -> ProfilerAction:
    """Record each step."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A function for `on_trace_ready` that writes each trace to a file in a folder."""
    os.makedirs(dir_name, exist_ok=True)
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: profile) -> None:
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        path = os.path.join(dir_name, name)
        prof.export_chrome_trace(path)

    return write


class profile(_blocks.profile):
    """Collects events by a schedule of steps. It calls on_trace_ready at the end of each cycle, and
    at its own end if events are being collected.

    activities: which of PyTorch's collectors to use, of which there is one here. The other options
    are those of `torch.autograd.profiler.profile`.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.step_num = 0
        self._step_start = 0.0
        self._metadata: dict[str, Any] = {}

    @property
    def current_action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    @property
    def _is_collecting(self) -> bool:
        return self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def __enter__(self) -> profile:
        super().__enter__()
        self._step_start = self._start
        return self

    def step(self) -> None:
        """Tell that a step is over."""
        recording.end_step()
        now = time.perf_counter()
        if self.schedule is not None and self._is_collecting:
            self._add_block(f"ProfilerStep#{self.step_num}", self._step_start, now)
        ends = self.current_action is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        self._step_start = now
        _blocks._watch()
        if ends:
            self._end_cycle()

    def _end_cycle(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self._collected = self.function_events
        self._forget()

    _collected: _blocks.EventList | None = None

    def events(self) -> _blocks.EventList:
        """The events of this cycle; those of the last one, if it is over."""
        if not self.function_events and self._collected is not None:
            return self._collected
        return self.function_events

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self._is_collecting and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace files that are written from now on."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value, given as JSON, to the trace files that are written from now on."""
        self._metadata[key] = json.loads(value)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto; compressed to a name that ends in
        `.gz`."""
        self.events().export_chrome_trace(path, self._metadata)


def __getattr__(name: str) -> object:
    return paths.found(__name__, name)
