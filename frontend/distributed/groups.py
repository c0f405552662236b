"""Groups of processes, and what they make together: arrays go in, arrays come out."""

from __future__ import annotations

import enum
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..futures import Future
from .links import Links, decoded, encoded

default_pg_timeout = timedelta(minutes=30)
Arrays = Sequence[np.ndarray]


class ReduceOp(enum.Enum):
    """How values of several processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # PyTorch's class of these


_FOLDS: dict[ReduceOp, Callable[..., Any]] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
_SMALL = 1 << 12
"""Elements up to which each process sends its whole array to all."""


def _folded(parts: Arrays, op: ReduceOp) -> np.ndarray:
    """The reduction of arrays in their order, which is that of the ranks: all processes get the
    same bits."""
    fold = _FOLDS.get(op)
    if fold is None:
        raise RuntimeError(f"Cannot use {op} with Gloo{at_user_line()}")
    total = np.array(parts[0])
    for part in parts[1:]:
        fold(total, part, out=total, casting="unsafe")
    return total


class Work:
    """A collective operation under way.

    Its result is in the tensors once `wait` has returned. finish: writes it to them.
    """

    def __init__(self, finish: Callable[[Any], Any] | None = None):
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._finish = finish
        self._future: Future[Any] | None = None

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end, and give the tensors their values. An error is raised here."""
        if not self._done.wait(None if not timeout else timeout.total_seconds()):
            raise RuntimeError(f"Operation timed out!{at_user_line()}")
        if self._error is not None:
            raise self._error
        finish, self._finish = self._finish, None
        if finish is not None:
            self._result = finish(self._result)
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        """The tensors that the operation wrote."""
        self.wait()
        return self._result

    def get_future(self) -> Future[Any]:
        """The future of the result, which is there at once: this waits for the operation."""
        if self._future is None:
            self._future = Future()
            try:
                self._future.set_result(self.result())
            except Exception as error:
                self._future.set_exception(error)
        return self._future


class ProcessGroup:
    """Processes that work together: those with these ranks in the world.

    All of them call the same operations in the same order.
    """

    def __init__(self, links: Links, ranks: Sequence[int], number: int, timeout: timedelta):
        self._links, self._ranks = links, list(ranks)
        self._own = self._ranks.index(links.rank)
        self._channel = 2 * number  # of operations; the next one is that of single messages
        self.timeout = timeout
        self.group_name = str(number)
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._latest: Work | None = None
        self._thread: threading.Thread | None = None

    def rank(self) -> int:
        return self._own

    def size(self) -> int:
        return len(self._ranks)

    def name(self) -> str:
        return "gloo"

    def __repr__(self) -> str:
        return f"<ProcessGroup of ranks {self._ranks}>"

    # ---- work --------------------------------------------------------------------------------

    def start(self, call: Callable[[], Any], finish: Callable[[Any], Any], later: bool) -> Work:
        """Make an operation now, or `later` on the group's thread, behind those before it."""
        work = Work(finish)
        idle = self._latest is None or self._latest.is_completed()
        if later or not idle:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
            self._latest = work
            self._tasks.put((work, call))
        else:
            work._run(call)
        return work

    def _serve(self) -> None:
        while True:
            work, call = self._tasks.get()
            work._run(call)

    # ---- messages ----------------------------------------------------------------------------

    def _send(self, peer: int, array: np.ndarray) -> None:
        self._links.send(self._ranks[peer], self._channel, encoded(array))

    def _receive(self, peer: int, like: np.ndarray) -> np.ndarray:
        seconds = self.timeout.total_seconds()
        _, data = self._links.receive([self._ranks[peer]], self._channel, 0, seconds)
        return decoded(data, like)

    def _peers(self) -> list[int]:
        return [i for i in range(self.size()) if i != self._own]

    # ---- operations --------------------------------------------------------------------------

    def send(self, array: np.ndarray, peer: int, tag: int) -> None:
        self._links.send(self._ranks[peer], self._channel + 1, encoded(array), tag)

    def receive(self, like: np.ndarray, peer: int | None, tag: int) -> tuple[np.ndarray, int]:
        """A message to this process alone, and the rank in the world of its sender."""
        ranks = [self._ranks[i] for i in (self._peers() if peer is None else [peer])]
        seconds = self.timeout.total_seconds()
        sender, data = self._links.receive(ranks, self._channel + 1, tag, seconds)
        return decoded(data, like), sender

    def broadcast(self, array: np.ndarray, source: int) -> np.ndarray:
        if self._own != source:
            return self._receive(source, array)
        for peer in self._peers():
            self._send(peer, array)
        return array

    def all_gather(self, array: np.ndarray, likes: Arrays | None = None) -> list[np.ndarray]:
        """The arrays of all processes. likes: their shapes and dtypes, if those differ."""
        for peer in self._peers():
            self._send(peer, array)
        wanted = [array] * self.size() if likes is None else likes
        return [
            array if i == self._own else self._receive(i, wanted[i]) for i in range(self.size())
        ]

    def gather(self, array: np.ndarray, to: int) -> list[np.ndarray] | None:
        if self._own != to:
            self._send(to, array)
            return None
        return [array if i == to else self._receive(i, array) for i in range(self.size())]

    def scatter(self, arrays: Arrays | None, like: np.ndarray, source: int) -> np.ndarray:
        if self._own != source:
            return self._receive(source, like)
        assert arrays is not None
        for peer in self._peers():
            self._send(peer, arrays[peer])
        return arrays[self._own]

    def all_to_all(self, arrays: Arrays, likes: Arrays) -> list[np.ndarray]:
        for peer in self._peers():
            self._send(peer, arrays[peer])
        return [
            arrays[i] if i == self._own else self._receive(i, likes[i]) for i in range(self.size())
        ]

    def reduce(self, array: np.ndarray, op: ReduceOp, to: int) -> np.ndarray:
        parts = self.gather(array, to)
        return array if parts is None else self._mean(_folded(parts, op), op)

    def reduce_scatter(self, arrays: Arrays, op: ReduceOp) -> np.ndarray:
        """The reduction of what all processes have for this one."""
        own = self.all_to_all(arrays, [arrays[self._own]] * self.size())
        return self._mean(_folded(own, op), op)

    def all_reduce(self, array: np.ndarray, op: ReduceOp) -> np.ndarray:
        """Each process reduces its share of the elements, and sends it to all."""
        if array.size <= _SMALL or self.size() == 1:
            return self._mean(_folded(self.all_gather(array), op), op)
        shares = np.array_split(array.reshape(-1), self.size())
        own = self.reduce_scatter(shares, op)
        return np.concatenate(self.all_gather(own, shares)).reshape(array.shape)

    def _mean(self, total: np.ndarray, op: ReduceOp) -> np.ndarray:
        return (total / self.size()).astype(total.dtype) if op is ReduceOp.AVG else total
