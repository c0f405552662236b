"""A process that loads batches: what runs in it."""

from __future__ import annotations

import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ...functions import sampling as generators
from ...settings.threads import set_num_threads
from .fetch import fetcher


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is. seed: of its generators, another one for each worker."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; None in the main process."""
    return _info


class WorkerError:
    """An exception that crosses to another process: its type and the text of its traceback."""

    def __init__(self, error: BaseException, where: str):
        self.type = type(error)
        self.text = "".join(traceback.format_exception(error))
        self.where = where

    def reraise(self) -> None:
        """Raises an exception of the type, whose message has the worker's traceback."""
        message = f"Caught {self.type.__name__} {self.where}.\nOriginal {self.text}"
        if self.type is KeyError:
            # The message of a KeyError is shown as its repr, line breaks and all.
            raise KeyError(_Text(message))
        try:
            error = self.type(message)
        except Exception:  # it takes other arguments
            raise RuntimeError(message) from None
        raise error


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Job:
    """What every worker of a loader does: `arguments` are those of `fetcher`."""

    arguments: tuple[Any, ...]
    workers: int
    init: Callable[[int], None] | None


def run(job: Job, worker: int, seed: int, pipe: Connection, inherited: Connection | None) -> None:
    """Answers tasks until the other end of `pipe` is closed.

    A task is (epoch, number, indices), its answer (epoch, number, batch); a batch of None says that
    the dataset is at its end. (epoch, seed) begins an epoch. inherited: the other end, of which a
    forked child has a copy.
    """
    global _info
    if inherited is not None:
        inherited.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits for this process ends it
    set_num_threads(1)
    _info = WorkerInfo(worker, job.workers, seed, job.arguments[0])
    where = f"in DataLoader worker process {worker}"
    failure: WorkerError | None = None
    fetch: Any = None

    def begin(seed: int) -> None:
        nonlocal fetch, failure
        _seed(seed, worker)
        try:
            fetch = fetcher(*job.arguments)
        except Exception as error:
            failure = WorkerError(error, where)

    _seed(seed, worker)
    if job.init is not None:
        try:
            job.init(worker)
        except Exception as error:
            failure = WorkerError(error, where)
    if failure is None:
        begin(seed)
    for task in iter(_arriving(pipe).get, None):
        if len(task) == 2:
            begin(task[1])
            continue
        epoch, number, indices = task
        answer: Any = failure
        if failure is None:
            try:
                answer = (fetch(indices),)
            except StopIteration:
                answer = None
            except Exception as error:
                answer = WorkerError(error, where)
        try:
            data = ForkingPickler.dumps((epoch, number, answer))
        except Exception as error:
            data = ForkingPickler.dumps((epoch, number, WorkerError(error, where)))
        try:
            pipe.send_bytes(data)
        except (BrokenPipeError, ConnectionError):
            return


def _arriving(pipe: Connection) -> queue.SimpleQueue[Any]:
    """The tasks, read as they come: the sender never waits for this process, which may itself wait
    for the sender to read a batch. None is the end."""
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                tasks.put(pipe.recv())
        except (EOFError, OSError):
            tasks.put(None)

    threading.Thread(target=read, daemon=True).start()
    return tasks


def _seed(seed: int, worker: int) -> None:
    generators.manual_seed(seed)
    random.seed(seed)
    np.random.seed(np.random.SeedSequence([seed, worker]).generate_state(4))


def died(pids: list[int]) -> RuntimeError:
    listed = ", ".join(map(str, pids))
    return RuntimeError(f"DataLoader worker (pid(s) {listed}) exited unexpectedly{at_user_line()}")
