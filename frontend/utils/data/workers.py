"""Loading in several processes: the side of the process that asks for batches."""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from tilewright.ir.location import at_user_line

from ... import recording
from ...recording.threads import gives_way
from .worker import Job, died, run

_PATIENCE = 5.0
"""Seconds in which workers may end by themselves."""


class Workers:
    """Processes that load batches.

    job: what all of them do. seed: that of the first; each other one has the next. timeout: seconds
    to wait for an answer, 0 to wait without limit.
    """

    def __init__(self, context: Any, job: Job, seed: int, timeout: float):
        self.epoch = 0
        self._timeout = timeout
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # For an iterator that is dropped in the middle of an epoch, or alive at exit.
        self._end = weakref.finalize(self, _end, self._processes, self._pipes)
        _all.add(self)
        # A forked child would compute pending work again.
        recording.flush()
        for worker in range(job.workers):
            mine, theirs = context.Pipe()
            self._pipes.append(mine)
            process = context.Process(
                target=run, args=(job, worker, seed + worker, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)

    def close(self) -> None:
        """End the processes."""
        self._end()

    @property
    def is_closed(self) -> bool:
        return not self._end.alive

    def restart(self) -> None:
        """Begin another epoch in the same processes."""
        self.epoch += 1
        for worker in range(len(self._pipes)):
            self._tell(worker, (self.epoch,))

    def send(self, worker: int, number: int, indices: Any) -> None:
        """Give a worker the task `number` of this epoch."""
        self._tell(worker, (self.epoch, number, indices))

    def _tell(self, worker: int, message: tuple[Any, ...]) -> None:
        try:
            self._pipes[worker].send(message)
        except (BrokenPipeError, ConnectionError):
            raise self._failure([worker]) from None

    @gives_way
    def receive(self) -> list[tuple[int, Any]]:
        """Wait for answers; return the ones of this epoch."""
        limit = time.monotonic() + self._timeout
        while True:
            left = max(0.0, limit - time.monotonic()) if self._timeout else None
            arrived = wait(self._pipes, left)
            if not arrived:
                self.close()
                raise RuntimeError(
                    f"DataLoader timed out after {self._timeout} seconds{at_user_line()}"
                )
            found = []
            for pipe in arrived:
                assert isinstance(pipe, Connection)
                try:
                    of_epoch, number, answer = pipe.recv()
                except (EOFError, ConnectionError):
                    raise self._failure([self._pipes.index(pipe)]) from None
                if of_epoch == self.epoch:
                    found.append((number, answer))
            if found:
                return found

    def _failure(self, workers: list[int]) -> RuntimeError:
        pids = [self._processes[w].pid for w in workers]
        self.close()
        return died(pids)


def _end(processes: list[Any], pipes: list[Any]) -> None:
    """Close the pipes, which ends the workers; terminate a worker that doesn't end."""
    for pipe in pipes:
        pipe.close()
    limit = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, limit - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join()
    pipes.clear()
    processes.clear()


_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _in_child() -> None:
    """Close a forked child's copies of the pipes: a worker ends when the last copy is closed. The
    processes are its parent's to join."""
    for workers in _all:
        workers._end.detach()
        for pipe in workers._pipes:
            with suppress(OSError):  # another thread of the parent was closing it
                pipe.close()
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
