"""Statistics and limits of a device's memory. Pending work is computed first, as if it had run when
it was called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime

from .. import recording
from .numbering import number_of, runtime_of

if TYPE_CHECKING:
    from ..types import DeviceLike

_SMALL = 1 << 20
"""Bytes up to which PyTorch calls an allocation small."""


def _pool(device: Any) -> Any:
    recording.flush()
    return runtime_of(device).pool


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes of tensors and of temporaries; 0 without a GPU."""
    return _pool(device).in_use if runtime.cuda_count() else 0


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The peak of `memory_allocated` since the start, or since `reset_peak_memory_stats`."""
    if not runtime.cuda_count():
        return 0
    pool = _pool(device)
    pool.collect()
    return pool.peak


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes taken from the system, in use or kept for later; 0 without a GPU."""
    return _pool(device).reserved if runtime.cuda_count() else 0


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    return _pool(device).reserved_peak if runtime.cuda_count() else 0


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Measure peaks from now on."""
    _pool(device).reset_peak()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: DeviceLike | None = None) -> None:
    """Reset the counts of `memory_stats` that only grow to 0."""
    _pool(device).reset_statistics()


def get_allocator_backend() -> str:
    """The name of the source of memory: the driver's stream-ordered pool."""
    return "cudaMallocAsync"


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """(free, total) bytes of the GPU, for all processes together."""
    return _pool(device).system()


def device_memory_used(device: DeviceLike | None = None) -> int:
    """Bytes of the GPU that any process has taken."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache() -> None:
    """Give memory that is kept for later back to the system. Does nothing without a GPU."""
    recording.flush()
    for name in runtime.started():
        if name.startswith("cuda"):
            runtime_of(name).pool.trim()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Allocate at most this part of a GPU's memory; more raises OutOfMemoryError."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1{at_user_line()}")
    pool = _pool(device)
    pool.limit = int(fraction * pool.system()[1])


def get_per_process_memory_fraction(device: DeviceLike | None = None) -> float:
    """The part of a GPU's memory that may be allocated, 1 by default."""
    pool = _pool(device)
    return 1.0 if pool.limit is None else pool.limit / pool.system()[1]


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Counts and bytes by PyTorch's names; empty without a GPU."""
    if not runtime.cuda_count():
        return {}
    pool = _pool(device)
    current = pool.in_use
    return {
        **pool.statistics,
        "allocated_bytes.all.current": current,
        "allocated_bytes.all.peak": pool.peak,
        "active_bytes.all.current": current,
        "active_bytes.all.peak": pool.peak,
        "allocation.all.current": len(pool.held),
        "reserved_bytes.all.current": pool.reserved,
        "reserved_bytes.all.peak": pool.reserved_peak,
    }


def memory_stats_as_nested_dict(device: DeviceLike | None = None) -> dict[str, Any]:
    """`memory_stats` with a dictionary for each part of a name."""
    out: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = out
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return out


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The blocks of memory taken from the driver, as PyTorch lists segments; empty without a GPU.

    The driver doesn't tell how it cuts its pool, so each segment is one block: allocated, or
    inactive if it waits for its next use. Stack frames of allocations are not recorded.
    """
    out = []
    for name in runtime.started() if runtime.cuda_count() else ():
        if name.startswith("cuda"):
            out += [_segment(number_of(name), *each) for each in _pool(name).blocks()]
    return out


def _segment(number: int, address: int, size: int, stream: int, used: bool) -> dict[str, Any]:
    block: dict[str, Any] = {
        "address": address,
        "size": size,
        "requested_size": size if used else 0,
        "state": "active_allocated" if used else "inactive",
        "frames": [],
    }
    return {
        "device": number,
        "address": address,
        "total_size": size,
        "allocated_size": size if used else 0,
        "active_size": size if used else 0,
        "requested_size": size if used else 0,
        "stream": stream,
        "segment_type": "large" if size > _SMALL else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block],
    }


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """A readable table: totals, and allocated tensors by dtype and shape."""
    from tilewright.runtime.cuda.memory import show

    number, pool = number_of(device), _pool(device)
    free, total = pool.system()
    rows = [
        ("allocated", show(pool.in_use)),
        ("most allocated", show(pool.peak)),
        ("reserved", show(pool.reserved)),
        ("free on the GPU", f"{show(free)} of {show(total)}"),
        ("times out of memory", str(pool.statistics["num_ooms"])),
    ]
    if not abbreviated:
        rows += [(f"{count} x {what}", show(size)) for what, count, size in pool.holders()]
    width = max(len(name) for name, _ in rows)
    lines = [f"memory of cuda:{number}", *(f"  {name:<{width}}  {text}" for name, text in rows)]
    return "\n".join(lines)
