"""What a backward pass has still to go through: histories of earlier epochs."""

import heapq
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tilewright.ir.node import Node

from ..recording.histories import History


class Pending:
    """Histories that gradients have reached, by their epochs, with the gradients of their nodes.

    A pass enters the latest epoch first. Views read one by one have an epoch each, so there may be
    as many epochs as histories: a heap finds the latest one.
    """

    def __init__(self) -> None:
        self._by_epoch: dict[int, dict[History, Node]] = {}
        self._epochs: list[int] = []  # negated, as the heap has its least first
        self._leading: Counter[int] | None = None  # counted from the first question on

    def __bool__(self) -> bool:
        return bool(self._by_epoch)

    def __iter__(self) -> Iterator[History]:
        return (h for histories in self._by_epoch.values() for h in histories)

    def __contains__(self, history: History) -> bool:
        return history in self._by_epoch.get(history.epoch, ())

    def get(self, history: History) -> Node | None:
        return self._by_epoch.get(history.epoch, {}).get(history)

    def add(self, history: History, g: Node) -> None:
        """Add a gradient that has reached the node of `history`."""
        histories = self._by_epoch.get(history.epoch)
        if histories is None:
            histories = self._by_epoch[history.epoch] = {}
            heapq.heappush(self._epochs, -history.epoch)
        before = histories.get(history)
        if before is None and self._leading is not None:
            self._leading.update(map(id, history.reached()))
        histories[history] = g if before is None else before + g

    def remove(self, history: History) -> None:
        histories = self._by_epoch[history.epoch]
        del histories[history]
        if self._leading is not None:
            self._leading.subtract(map(id, history.reached()))
        if not histories:
            del self._by_epoch[history.epoch]

    def latest(self) -> tuple[int, dict[History, Node]]:
        """The latest epoch, and the histories of it, in the order in which they were reached."""
        while -self._epochs[0] not in self._by_epoch:
            heapq.heappop(self._epochs)
        number = -self._epochs[0]
        return number, self._by_epoch[number]

    def leads_to(self, leaf: Any) -> bool:
        """Whether a gradient that goes through one of the histories reaches `leaf`, a tensor."""
        if self._leading is None:
            self._leading = Counter(id(ref) for history in self for ref in history.reached())
        return self._leading[id(weakref.ref(leaf))] > 0
