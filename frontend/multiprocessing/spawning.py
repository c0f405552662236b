"""torch.multiprocessing.spawn: processes that run one function, each with its number."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any


class ProcessException(Exception):
    """An end of a process that went wrong. error_index: the number of the process."""

    error_index: int
    error_pid: int

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid
        self.error_pid = pid


class ProcessRaisedException(ProcessException):
    """A process ended with an exception."""


class ProcessExitedException(ProcessException):
    """A process ended with a status other than 0, or by a signal."""

    exit_code: int

    def __init__(
        self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None
    ):
        super().__init__(msg, error_index, pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable[..., Any], place: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(place, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.put(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes of one call of `start_processes`."""

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes, self.error_queues = processes, errors
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for a process to end. Returns whether all have. If one failed, end the others and
        raise its error."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            place = self.sentinels.pop(sentinel)  # type: ignore[call-overload]
            self.processes[place].join()
            if self.processes[place].exitcode != 0:
                failed = place
                break
        if failed is None:
            return not self.sentinels
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(grace_period)
            if process.is_alive():
                process.kill()
                process.join()
        raise self._error(failed)

    def _error(self, place: int) -> ProcessException:
        process, errors = self.processes[place], self.error_queues[place]
        if errors.empty():
            code = process.exitcode
            if code < 0:
                name = signal.Signals(-code).name
                text = f"process {place} terminated with signal {name}"
                return ProcessExitedException(text, place, process.pid, code, name)
            text = f"process {place} terminated with exit code {code}"
            return ProcessExitedException(text, place, process.pid, code)
        text = f"\n\n-- Process {place} terminated with the following error:\n{errors.get()}"
        return ProcessRaisedException(text, place, process.pid)


class SpawnContext(ProcessContext):
    pass


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start processes that call fn(i, *args), for i from 0 to nprocs - 1. join: wait for them."""
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        queue = context.SimpleQueue()
        process = context.Process(target=_run, args=(fn, i, args, queue), daemon=daemon)
        process.start()
        processes.append(process)
        errors.append(queue)
    started = SpawnContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` in fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
