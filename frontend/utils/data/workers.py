"""Loading in several processes: the side of the process that asks for batches."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ... import recording
from ...recording.threads import gives_way
from .sampler import draw_seed
from .worker import Job, WorkerError, died, run

if TYPE_CHECKING:
    from ...utils.data.loader import DataLoader

_PATIENCE = 5.0
"""Seconds in which workers may end by themselves."""


class Workers:
    """Processes that load batches, and the tasks given to them.

    Workers get tasks in turn, up to `prefetch_factor` each. Batches come in the order of the
    sampler, or as they arrive if the loader isn't `in_order`.
    """

    def __init__(self, loader: DataLoader[Any]):
        self.loader = loader
        self.epoch = 0
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # For a loader that is dropped in the middle of an epoch, or alive at exit.
        self._end = weakref.finalize(self, _end, self._processes, self._pipes)
        context = loader.multiprocessing_context
        job = Job(loader._fetch_arguments(), loader.num_workers, loader.worker_init_fn)
        seed = draw_seed(loader.generator)
        # A forked child would compute pending work again.
        recording.flush()
        forked = context.get_start_method() == "fork"
        for worker in range(loader.num_workers):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=run,
                args=(job, worker, seed + worker, theirs, mine if forked else None),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def close(self) -> None:
        """Ends the processes."""
        self._end()

    @property
    def is_closed(self) -> bool:
        return not self._end.alive

    def restart(self) -> None:
        """Begin another epoch in the same processes."""
        self.epoch += 1
        seed = draw_seed(self.loader.generator)
        for worker, pipe in enumerate(self._pipes):
            self._send(worker, pipe, (self.epoch, seed + worker))

    def batches(self) -> Iterator[Any]:
        """The batches of one epoch. Workers that don't persist end after it."""
        try:
            yield from self._epoch()
        finally:
            if not self.loader.persistent_workers:
                self.close()

    def _epoch(self) -> Iterator[Any]:
        loader, epoch = self.loader, self.epoch
        indices = loader._index_iterator()
        active = [True] * len(self._pipes)  # workers whose dataset isn't at its end
        owner: dict[int, int] = {}  # the worker of each unanswered task
        ready: dict[int, Any] = {}
        sent = given = 0

        def top_up() -> None:
            """Gives each worker its share of tasks."""
            nonlocal sent
            while len(owner) + len(ready) < loader.prefetch_factor * len(self._pipes):
                around = ((sent + i) % len(active) for i in range(len(active)))
                worker = next((w for w in around if active[w]), None)
                if worker is None:
                    return
                try:
                    task = next(indices)
                except StopIteration:
                    return
                self._send(worker, self._pipes[worker], (epoch, sent, task))
                owner[sent] = worker
                sent += 1

        top_up()
        while owner or ready:
            number = given if loader.in_order else next(iter(ready), -1)
            if number in ready:
                answer = ready.pop(number)
                given += 1
                top_up()
                if isinstance(answer, WorkerError):
                    answer.reraise()
                yield answer[0]
                continue
            if loader.in_order and number not in owner:
                given += 1  # there was nothing left for this task
                continue
            for number, answer in self._receive(epoch):
                worker = owner.pop(number)
                if answer is None:
                    active[worker] = False
                else:
                    ready[number] = answer
            top_up()

    def _send(self, worker: int, pipe: Any, task: Any) -> None:
        try:
            pipe.send(task)
        except (BrokenPipeError, ConnectionError):
            raise self._failure([worker]) from None

    @gives_way
    def _receive(self, epoch: int) -> list[tuple[int, Any]]:
        """Waits for answers; returns the ones of this epoch."""
        timeout = self.loader.timeout
        limit = time.monotonic() + timeout
        while True:
            left = max(0.0, limit - time.monotonic()) if timeout else None
            arrived = wait(self._pipes, left)
            if not arrived:
                self.close()
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds{at_user_line()}")
            found = []
            for pipe in arrived:
                assert isinstance(pipe, Connection)
                try:
                    of_epoch, number, answer = pipe.recv()
                except (EOFError, ConnectionError):
                    raise self._failure([self._pipes.index(pipe)]) from None
                if of_epoch == epoch:
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
