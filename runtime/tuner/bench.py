"""A worker process, seen from outside: candidates by schedule, bad ones with what they did."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import Autotuned

from ..engine import Engine
from ..results.record import CannotTune, Found

S = TypeVar("S")

START = 120.0
"""Seconds that a worker has to begin, the reference result included."""
COMPILE = 60.0
"""Seconds that a batch has to be compiled."""
RUN = 20.0
"""Seconds that a candidate has for its launches of one round."""
_TAIL = 400


class _Ended(Exception):
    """The worker is gone, or was ended for want of an answer.

    status: crashed or hung. at: the place of the candidate it was at; places: of all it had.
    """

    def __init__(self, status: str, reason: str, at: int, places: dict[Any, int]):
        super().__init__(reason)
        self.status, self.reason, self.at, self.places = status, reason, at, places


class Bench(Generic[S]):
    """Measures schedules of one kernel in a process that may be lost. Use as a context manager.

    name: by which the worker finds the engine, if not by its address. CannotTune for a kernel that
    can't be sent to it.
    """

    def __init__(
        self, kernel: Kernel | Bundle | Autotuned, engine: Engine[S], name: str | None = None
    ):
        self.kernel, self.engine = kernel, engine
        self.found: dict[S, Found] = {}  # what is bad
        self._request = {"kernel": engine.written(kernel), "engine": name or engine.address}
        self._places: dict[S, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._errors: Any = None

    def __enter__(self) -> Bench[S]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            self._process = None
        self._places.clear()

    def measure(self, schedules: Sequence[S], rounds: int) -> Mapping[S, Sequence[float]]:
        """Seconds of each in each round, all in turn. What is bad is left out, and in `found`."""
        while True:
            self.prepare(schedules)
            good = [s for s in schedules if s not in self.found]
            if not good:
                return {}
            try:
                asked = {"measure": [self._places[s] for s in good], "rounds": rounds}
                answer = self._ask(asked, RUN)
                return dict(zip(good, answer["seconds"]))
            except _Ended as end:
                guilty = [s for s in good if end.places[s] == end.at] or good
                self._blame(end, guilty)

    def prepare(self, schedules: Sequence[S]) -> None:
        """Compiles and checks what isn't yet: all at once; where that ends the worker, one by one,
        to find out which did."""
        together = True
        while missing := [s for s in schedules if s not in self._places and s not in self.found]:
            try:
                self._add(missing if together else missing[:1])
            except _Ended as end:
                if not together or len(missing) == 1:
                    # A worker that is lost takes those that were ready with it.
                    self._blame(end, missing[:1])
                together = False

    def _blame(self, end: _Ended, schedules: Sequence[S]) -> None:
        for schedule in schedules:
            self.found[schedule] = Found(end.status, reason=end.reason)

    def _add(self, schedules: Sequence[S]) -> None:
        candidates = self.engine.candidates(self.kernel, schedules)
        first = len(self._places)
        answer = self._ask({"prepare": candidates}, COMPILE + RUN)
        for place, (schedule, bad) in enumerate(zip(schedules, answer["found"]), first):
            self._places[schedule] = place
            if bad is not None:
                self.found[schedule] = Found(bad[0], reason=bad[1][:_TAIL])

    # The process

    def _ask(self, request: dict[str, Any], patience: float) -> dict[str, Any]:
        self._begin()
        return self._exchange(request, patience)

    def _begin(self) -> None:
        if self._process is not None:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        self._lines = queue.Queue()
        # What is compiled is kept: a worker that takes another's place finds it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("TW_TUNE", None)  # a worker tunes nothing by itself
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.runtime.tuner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the process that asked
        )
        reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        )
        reader.start()
        try:
            self._exchange(self._request, START)
        except _Ended as end:
            raise CannotTune(f"its worker can't begin: {end.reason}") from None

    def _exchange(self, request: dict[str, Any], patience: float) -> dict[str, Any]:
        """The answer. patience: seconds to its first line; each candidate has its own then."""
        process = self._process
        assert process is not None and process.stdin is not None
        self._at = -1
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._ended("crashed", "") from None
        while True:
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                raise self._ended("hung", f"no answer after {patience:.0f} s") from None
            if line is None:
                raise self._ended("crashed", "")
            answer: dict[str, Any] = json.loads(line)
            if "at" in answer:
                self._at, patience = answer["at"], RUN
            elif "error" in answer:
                raise self._ended("crashed", answer["error"])
            else:
                return answer

    def _ended(self, status: str, reason: str) -> _Ended:
        process = self._process
        assert process is not None
        if not reason:
            code = process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            reason = f"ended with {code}" + (f": {said[-1]}" if said else "")
        end = _Ended(status, reason[:_TAIL], self._at, dict(self._places))
        self.close()
        return end


def _read(stream: Any, lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put(None)
