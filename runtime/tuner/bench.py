"""The parent's side of a worker process: it measures schedules, and notes why some are bad."""

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
"""Seconds for a worker to start, including the reference result."""
COMPILE = 60.0
"""Seconds to compile a batch."""
RUN = 20.0
"""Seconds for a candidate's launches of one round."""
_TAIL = 400


class _Ended(Exception):
    """The worker ended, or was killed because it didn't answer.

    status: crashed or hung. at: the place of the candidate that it was running; places: of all it
        had.
    """

    def __init__(self, status: str, reason: str, at: int, places: dict[Any, int]):
        super().__init__(reason)
        self.status, self.reason, self.at, self.places = status, reason, at, places


class Bench(Generic[S]):
    """Measures schedules of one kernel in a process that may crash. Use as a context manager.

    name: the name by which the worker finds the engine; by default its address. CannotTune for a
        kernel that can't be sent to a worker.
    """

    def __init__(
        self, kernel: Kernel | Bundle | Autotuned, engine: Engine[S], name: str | None = None
    ):
        self.kernel, self.engine = kernel, engine
        self.found: dict[S, Found] = {}  # bad schedules
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
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            self._process = None
        self._places.clear()

    def measure(self, schedules: Sequence[S], rounds: int) -> Mapping[S, Sequence[float]]:
        """Seconds of each schedule in each round, all in turn. Bad ones are left out, and noted in
        `found`."""
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
        """Compile and check the schedules that aren't yet prepared, all at once. If that ends the
        worker, go one by one to find the guilty schedule."""
        together = True
        while missing := [s for s in schedules if s not in self._places and s not in self.found]:
            try:
                self._add(missing if together else missing[:1])
            except _Ended as end:
                if not together or len(missing) == 1:
                    # With the worker its prepared candidates are lost too.
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
        # Compiled code is cached, so the next worker finds it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("TW_TUNE", None)  # a worker tunes nothing by itself
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.runtime.tuner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent
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
        """Send a request and return the answer. patience: seconds to wait for each line of it."""
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
