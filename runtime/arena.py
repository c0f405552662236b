"""One block of device memory that holds the temporaries of every plan."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device
    from .segment import Segment


class Arena:
    """Device memory that all plans share for their temporaries. In each lane one plan uses it at a
    time."""

    _arenas: dict[str, Arena] = {}

    def __init__(self, device: Device):
        self.device = device
        self.size = 0
        self.memory: Any = None
        # Keyed by id(). The weak reference removes an entry before the id can be used again.
        self.bound: dict[int, tuple[weakref.ref[Segment], list[Any]]] = {}

    @classmethod
    def of(cls, device: Device) -> Arena:
        lane = device.lane or device.name
        found = cls._arenas.get(lane)
        if found is None:
            found = cls._arenas[lane] = cls(device)
        return found

    @classmethod
    def release_all(cls, device: Device) -> None:
        """Release the arenas of a device in all its lanes."""
        for arena in cls._arenas.values():
            if arena.device is device:
                arena.release()

    def slots(self, segment: Segment) -> list[Any]:
        """The segment's slots: temporaries are cut from the arena, the others are None."""
        if segment.arena_bytes > self.size:
            self.release()
            self.memory = self.device.arena(segment.arena_bytes)
            self.size = segment.arena_bytes
        found = self.bound.get(id(segment)) or self._cut(segment)
        return found[1].copy()

    def _cut(self, segment: Segment) -> tuple[weakref.ref[Segment], list[Any]]:
        bound, key = self.bound, id(segment)
        slots: list[Any] = [None] * len(segment.program.slots)
        for slot, (offset, meta) in segment.arena_slots.items():
            slots[slot] = self.device.view(self.memory, offset, meta.shape, meta.dtype)
        bound[key] = weakref.ref(segment, lambda _: bound.pop(key, None)), slots
        return bound[key]

    def release(self) -> None:
        """Release the memory. The next run allocates what it needs."""
        self.size, self.memory = 0, None
        self.bound.clear()
