"""The worker threads that run the chunks of native kernels, and their number.

Workers are threads of the operating system that never enter Python. They need no lock of Python's
and can't delay its exit. TW_NUM_THREADS sets the number of threads. Without it MKL_NUM_THREADS or
OMP_NUM_THREADS does, as in PyTorch; the default is one for each core that this process may use.
Workers keep to the cores that it might use when they began. If a launch begins while another
thread's launch runs, its caller runs it alone. The results are the same, as chunks don't depend on
who runs them.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import signal
import sys
import threading
from typing import Any

from tilewright.ir.numeric import batches, fourier

from .. import cache
from . import entries, jit, lasting, source
from .workspace import Workspaces

_lock = threading.Lock()


def _architecture() -> str | None:
    """The architecture of this Linux; None where the pool has no known way to wait."""
    if not sys.platform.startswith("linux"):
        return None
    return {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(
        platform.machine().lower()
    )


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _wanted() -> int:
    text = os.environ.get("TW_NUM_THREADS", "")
    if text.isdigit():
        return max(int(text), 1)
    for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):  # as PyTorch asks them
        text = os.environ.get(name, "")
        if text.isdigit() and int(text):
            return min(int(text), cores())
    return cores()


class Pool:
    """The shared words and the threads that watch them."""

    def __init__(self) -> None:
        self.threads = _threads or _wanted()
        self._memory = ctypes.create_string_buffer(source.SIZE + 128)
        self.address = (ctypes.addressof(self._memory) + 127) // 128 * 128
        symbols = {n: _address(getattr(ctypes.pythonapi, n)) for n in entries.PYTHON_SYMBOLS}
        symbols["_Py_NoneStruct"] = id(None)
        symbols["tw_pool"] = self.address
        self.workspaces = Workspaces()
        symbols["tw_spaces"] = self.workspaces.address
        architecture = _architecture()
        text = source.text(architecture)
        self._code = jit.packed(cache.digest(text), symbols) or jit.link(
            text,
            *("tw_worker", "tw_stop", "tw_parallel", "tw_bundle"),
            *("tw_launch", "tw_sequence", "tw_loop", "tw_map", "tw_fold"),
            imports=symbols,
        )
        self.native = self._code.addresses
        self.can_work = architecture is not None
        self._stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.native["tw_stop"])
        self._workers: list[Any] = []
        self._started = False

    def start(self) -> None:
        """Start the workers, up to their number."""
        if self._started or not self.can_work:
            return
        with _lock:
            if self._started:
                return
            self._started = True
            for _ in range(self.threads - 1):
                worker = _start_thread(self.native["tw_worker"], self.address)
                if worker is None:  # the system gives no more threads
                    break
                self._workers.append(worker)
            if hasattr(os, "sched_getaffinity"):
                allowed = sum(1 << core for core in os.sched_getaffinity(0)) % (1 << 1024)
                mask = allowed.to_bytes(source.CORE_BYTES, "little")
                ctypes.memmove(self.address + source.CORES, mask, len(mask))
            self._set(source.WORKERS, len(self._workers))

    def resize(self, threads: int) -> None:
        """Change the number of threads. Meanwhile launches run in their callers' threads."""
        started = self._started
        self.stop()
        self.threads = threads
        if started:
            self.start()

    def stop(self) -> None:
        """End the workers and wait for that."""
        with _lock:
            if not self._workers:
                self._started = False
                return
            # From here on launches run in their callers.
            self._set(source.WORKERS, 0)
            self._stop(self.address)
            for worker in self._workers:
                _join(worker)
            self._forget()

    def _forget(self) -> None:
        self._workers, self._started = [], False
        ctypes.memset(self.address, 0, source.SIZE)

    def after_fork(self) -> None:
        """Reset the pool in a child, which has neither the workers nor the launching threads. The
        first plan starts workers again: most children never compute."""
        self._forget()

    def _set(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + offset).value = value


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _pthread(name: str) -> Any:
    for library in (None, "libpthread.so.0"):
        found = getattr(ctypes.CDLL(library), name, None)
        if found is not None:
            found.restype = ctypes.c_int
            return found
    raise OSError(f"no {name} on this system")


def _start_thread(function: int, argument: int) -> Any | None:
    handle = ctypes.c_size_t()
    # Workers leave signals to Python's threads.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = _pthread("pthread_create")(
            ctypes.byref(handle), None, ctypes.c_void_p(function), ctypes.c_void_p(argument)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None if failed else handle


def _join(handle: Any) -> None:
    _pthread("pthread_join")(handle, None)


_pool: Pool | None = None
_threads: int | None = None


def pool() -> Pool:
    """The pool of this process."""
    global _pool
    if _pool is None:
        with _lock:
            if _pool is None:
                _pool = lasting.keep(Pool())
                os.register_at_fork(after_in_child=_after_fork)
                atexit.register(_pool.stop)
    return _pool


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _pool is not None:
        _pool.after_fork()


def num_threads() -> int:
    """The number of threads that run kernels, including the launching one."""
    if _pool is not None:
        return _pool.threads
    return _threads or _wanted()


fourier.workers = batches.threads = num_threads


def set_num_threads(threads: int) -> None:
    """Set the number of threads. RuntimeError unless it is a positive integer, as in PyTorch."""
    if not isinstance(threads, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(threads).__name__}")
    if threads < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    global _threads
    _threads = threads
    if _pool is not None:
        _pool.resize(threads)
