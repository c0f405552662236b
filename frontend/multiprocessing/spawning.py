"""torch.multiprocessing.spawn: processes that run one function, each with its number."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import shutil
import signal
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
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


def _run(fn: Callable[..., Any], place: int, args: tuple[Any, ...], error_file: str) -> None:
    try:
        fn(place, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        Path(error_file).write_text(traceback.format_exc(), encoding="utf-8")
        sys.exit(1)


class ProcessContext:
    """The processes of one call of `start_processes`.

    error_files: the file of each, which has its exception. A pipe holds less than a long traceback
    and would keep the process from its end.
    """

    def __init__(self, processes: list[Any], error_files: list[str]):
        self.processes, self.error_files = processes, error_files
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
        process, said = self.processes[place], Path(self.error_files[place])
        if not said.exists() or not said.stat().st_size:
            code = process.exitcode
            if code < 0:
                name = signal.Signals(-code).name
                text = f"process {place} terminated with signal {name}"
                return ProcessExitedException(text, place, process.pid, code, name)
            text = f"process {place} terminated with exit code {code}"
            return ProcessExitedException(text, place, process.pid, code)
        text = f"\n\n-- Process {place} terminated with the following error:\n"
        text += said.read_text(encoding="utf-8")
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
    processes, files = [], []
    folder = tempfile.mkdtemp(prefix="spawned-")
    for i in range(nprocs):
        files.append(str(Path(folder, f"{i}.txt")))
        process = context.Process(target=_run, args=(fn, i, args, files[-1]), daemon=daemon)
        process.start()
        processes.append(process)
    started = SpawnContext(processes, files)
    weakref.finalize(started, shutil.rmtree, folder, ignore_errors=True)
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
