"""torch.Stream and torch.Event: those of whichever kind of device is there.

With a GPU they are torch.cuda's. The CPU has one order of work, whose events PyTorch doesn't
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.ir.location import at_user_line

from .. import recording
from ..devices import cuda_available
from ..devices import device as Device

if TYPE_CHECKING:
    from ..types import DeviceLike

__all__ = ["Event", "Stream"]


def _is_on_gpu(device: DeviceLike | None) -> bool:
    if device is None:
        return cuda_available()
    kind = Device(device).type
    if kind == "cpu" or (kind == "cuda" and cuda_available()):
        return kind == "cuda"
    raise RuntimeError(f"PyTorch is not linked with support for {kind} devices{at_user_line()}")


def _no_events() -> NoReturn:
    raise RuntimeError(f"cpu backend doesn't support events.{at_user_line()}")


class _OfAnyKind(type):
    """Makes objects of torch.cuda's class where a GPU is meant; these count as its own, too."""

    def __call__(cls, device: DeviceLike | None = None, *args: Any, **options: Any) -> Any:
        if not _is_on_gpu(device):
            return super().__call__(*args, **options)
        return cls._on_gpu(device, *args, **options)  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: Any) -> bool:
        from .. import cuda

        return super().__instancecheck__(instance) or isinstance(
            instance, getattr(cuda, cls.__name__)
        )


class Stream(metaclass=_OfAnyKind):
    """The order of work of a device. priority: lower goes first."""

    device = Device("cpu")
    stream_id = 0
    device_index = -1

    def __init__(self, priority: int = 0):
        self.priority = priority

    @staticmethod
    def _on_gpu(device: DeviceLike | None, *args: Any, **options: Any) -> Any:
        from .. import cuda

        return cuda.Stream(device, *args, **options)

    device_type = 0
    """PyTorch's number of the kind of device."""

    @property
    def native_handle(self) -> int:
        raise RuntimeError(f"Backend doesn't support getting stream native handle.{at_user_line()}")

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Compute all that is recorded."""
        recording.end_step()

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: there is one order of work."""

    def record_event(self, event: Event | None = None) -> Event:
        _no_events()

    def wait_stream(self, other: Stream) -> None:
        _no_events()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"


class Event(metaclass=_OfAnyKind):
    """A point in the work of a device. Times are taken only with enable_timing=True."""

    device = Device("cpu")
    event_id = 0

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ):
        self._timing = enable_timing

    @staticmethod
    def _on_gpu(device: DeviceLike | None, *args: Any, **options: Any) -> Any:
        from .. import cuda

        return cuda.Event(*args, **options)

    def record(self, stream: Stream | None = None) -> None:
        _no_events()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: it was never recorded."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing to wait for: it was never recorded."""

    def elapsed_time(self, end_event: Event) -> float:
        if not (self._timing and end_event._timing):
            raise ValueError(
                f"Both events must be created with argument 'enable_timing=True'.{at_user_line()}"
            )
        raise ValueError(
            f"Both events must be recorded before calculating elapsed time.{at_user_line()}"
        )

    def __repr__(self) -> str:
        return "torch.Event device_type=cpu, device_index=-1, event_flag=0, event_id=0"
