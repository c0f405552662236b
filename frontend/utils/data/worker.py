"""The code that runs in a process that loads batches."""

from __future__ import annotations

import queue
import random
import signal
import sys
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
    """The number of this worker, and more about it. seed: the seed of its generators; each worker
    has another."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The description of this worker process; None in the main process."""
    return _info


class WorkerError:
    """An exception that crosses to another process: its type and the text of its traceback."""

    def __init__(self, error: BaseException, where: str):
        self.type = type(error)
        self.text = "".join(traceback.format_exception(error))
        self.where = where

    def reraise(self) -> None:
        """Raises an exception of the type, with the worker's traceback in its message."""
        message = f"Caught {self.type.__name__} {self.where}.\nOriginal {self.text}"
        if self.type is KeyError:
            # The message of a KeyError is shown as its repr, line breaks and all.
            raise KeyError(_Text(message))
        try:
            error = self.type(message)
        except Exception:  # it takes other arguments
            raise RuntimeError(message) from None
        raise error


class ExceptionWrapper(WorkerError):
    """A worker's error as packages' own workers hand it on: the one that is handled now, or that of
    `exc_info`."""

    def __init__(
        self, exc_info: tuple[Any, BaseException, Any] | None = None, where: str = "in background"
    ):
        error = (exc_info or sys.exc_info())[1]
        assert error is not None
        super().__init__(error, where)


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Job:
    """The job of every worker of a loader. arguments: for `fetcher`."""

    arguments: tuple[Any, ...]
    workers: int
    init: Callable[[int], None] | None


def run(job: Job, worker: int, seed: int, pipe: Connection) -> None:
    """Answers tasks until the other end of `pipe` is closed.

    A task is (epoch, number, indices), its answer (epoch, number, batch). A batch of None says that
    the dataset is at its end. (epoch,) begins an epoch.
    """
    global _info
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    set_num_threads(1)
    _info = WorkerInfo(worker, job.workers, seed, job.arguments[1])
    where = f"in DataLoader worker process {worker}"
    failure: WorkerError | None = None
    fetch: Any = None

    def begin() -> None:
        nonlocal fetch, failure
        try:
            fetch = fetcher(*job.arguments)
        except Exception as error:
            failure = WorkerError(error, where)

    _seed(seed, worker)
    if job.init is not None:
        try:
            job.init(worker)  # may seed otherwise
        except Exception as error:
            failure = WorkerError(error, where)
    if failure is None:
        begin()
    for task in iter(_arriving(pipe).get, None):
        if len(task) == 1:
            if failure is None:
                begin()
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
    """A queue of the tasks, read as they arrive; None is the end. So the sender never waits for
    this process, which may itself wait for the sender to read a batch."""
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
    np.random.seed(_generate_state(seed - worker, worker))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """The seed of NumPy's generator in a worker, as PyTorch makes it: 4 numbers of 32 bits."""
    entropy = (worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0)
    return [int(word) for word in np.random.SeedSequence(entropy).generate_state(4)]


def died(pids: list[int]) -> RuntimeError:
    listed = ", ".join(map(str, pids))
    return RuntimeError(f"DataLoader worker (pid(s) {listed}) exited unexpectedly{at_user_line()}")
