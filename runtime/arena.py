"""The memory in which the temporaries of all plans of a device live."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device
    from .plan import Segment


class Arena:
    """The memory of a device in which all plans keep their temporaries, one plan at a time."""

    _arenas: dict[str, Arena] = {}

    def __init__(self, device: Device):
        self.device = device
        self.size = 0
        self.memory: Any = None
        # By identity; the reference takes an entry out before another segment has its place.
        self.bound: dict[int, tuple[weakref.ref[Segment], list[tuple[int, Any]]]] = {}

    @classmethod
    def of(cls, device: Device) -> Arena:
        found = cls._arenas.get(device.name)
        if found is None:
            found = cls._arenas[device.name] = cls(device)
        return found

    def bind(self, segment: Segment, slots: list[Any]) -> None:
        """Fill `slots` with the segment's temporaries, cut from the arena."""
        if segment.arena_bytes > self.size:
            self.size = segment.arena_bytes
            self.memory = self.device.arena(self.size)
            self.bound.clear()
        found = self.bound.get(id(segment)) or self._views(segment)
        for slot, view in found[1]:
            slots[slot] = view

    def _views(self, segment: Segment) -> tuple[weakref.ref[Segment], list[tuple[int, Any]]]:
        bound, key = self.bound, id(segment)
        views = [
            (slot, self.device.view(self.memory, offset, meta.shape, meta.dtype))
            for slot, (offset, meta) in segment.arena_slots.items()
        ]
        bound[key] = weakref.ref(segment, lambda _: bound.pop(key, None)), views
        return bound[key]

    def release(self) -> None:
        """Give the memory back; the next run takes what it needs."""
        self.size, self.memory = 0, None
        self.bound.clear()
