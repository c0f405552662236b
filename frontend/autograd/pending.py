"""What a backward pass has still to go through: histories of earlier epochs."""

import heapq
import itertools
import weakref
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from tilewright.ir.node import Node

from ..recording.histories import History


class Pending:
    """Histories that gradients have reached, with the gradients of their nodes.

    A pass enters the latest epoch first. Views read one by one have an epoch each, so there may be
    as many epochs as histories: a heap finds the latest one. Those that wait for other histories of
    their epoch are set aside, so that they aren't looked at with each of these.
    """

    def __init__(self) -> None:
        self._gradients: dict[History, Node] = {}
        self._places: dict[History, int] = {}  # in the order in which they were reached
        self._numbers = itertools.count()
        self._by_epoch: dict[int, set[History]] = {}
        self._epochs: list[int] = []  # negated, as the heap has its least first
        self._aside: dict[Node, list[History]] = {}  # by their nodes
        # Counted from the first question on: the histories ahead that lead to a leaf tensor, by the
        # id of the one reference to it.
        self._ahead: Counter[int] | None = None
        self._seen: dict[History, Sequence[Any]] = {}  # the counted ones

    def __bool__(self) -> bool:
        return bool(self._gradients)

    def __iter__(self) -> Iterator[History]:
        return iter(self._gradients)

    def __contains__(self, history: History) -> bool:
        return history in self._gradients

    def get(self, history: History) -> Node | None:
        return self._gradients.get(history)

    def add(self, history: History, g: Node) -> None:
        """Add a gradient that has reached the node of `history`."""
        before = self._gradients.get(history)
        self._gradients[history] = g if before is None else before + g
        if before is None:
            self._places[history] = next(self._numbers)
            self._open(history)
            if self._ahead is not None:
                self.look((history,))

    def _open(self, history: History) -> None:
        histories = self._by_epoch.get(history.epoch)
        if histories is None:
            histories = self._by_epoch[history.epoch] = set()
            heapq.heappush(self._epochs, -history.epoch)
        histories.add(history)

    def remove(self, history: History) -> None:
        del self._gradients[history], self._places[history]
        histories = self._by_epoch.get(history.epoch, set())
        histories.discard(history)
        if not histories:
            self._by_epoch.pop(history.epoch, None)

    def latest(self) -> tuple[int, set[History]]:
        """The latest epoch, and the histories of it that aren't set aside."""
        while -self._epochs[0] not in self._by_epoch:
            heapq.heappop(self._epochs)
        number = -self._epochs[0]
        return number, self._by_epoch[number]

    def ready(self, waiting: Container[Node]) -> dict[History, Node]:
        """Those of the latest epoch whose nodes aren't `waiting`, the last reached one first, as a
        gradient reaches last the tensors that an epoch read first."""
        number, histories = self.latest()
        found = []
        for history in [*histories]:
            if history.node in waiting:
                self._aside.setdefault(history.node, []).append(history)
                histories.remove(history)
            else:
                found.append(history)
        if not histories:
            del self._by_epoch[number]
        found.sort(key=self._places.__getitem__, reverse=True)
        return {h: self._gradients[h] for h in found}

    def release(self, node: Node) -> None:
        """Let the histories of `node` wait no longer."""
        for history in self._aside.pop(node, ()):
            if history in self._gradients:
                self._open(history)

    def enter(self, histories: Iterable[History]) -> None:
        """Let the pass go through `histories`, which aren't ahead of it any more."""
        for each in histories:
            self.remove(each)
            if self._ahead is not None:
                self._ahead.subtract(map(id, self._seen[each]))

    def leads_to(self, leaf: Any) -> bool:
        """Whether a gradient that goes through histories ahead may reach `leaf`, a tensor."""
        return self._counted()[id(weakref.ref(leaf))] > 0

    def look(self, histories: Iterable[History]) -> None:
        """Count `histories` and those to which they lead among the ones ahead."""
        self._count(self._counted(), histories)

    def _counted(self) -> Counter[int]:
        if self._ahead is None:
            self._ahead = Counter()
            self._count(self._ahead, self)
        return self._ahead

    def _count(self, ahead: Counter[int], histories: Iterable[History]) -> None:
        stack = [*histories]
        while stack:
            history = stack.pop()
            if history not in self._seen:
                own, earlier = history.leads()
                self._seen[history] = own
                ahead.update(map(id, own))
                stack.extend(earlier)
