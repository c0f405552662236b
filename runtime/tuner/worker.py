"""The process in which candidates run, so that their crashes end nothing else.

It reads requests from stdin, a line of JSON each, and answers with lines of JSON:

    {"kernel": TEXT, "engine": NAME}     {"ready": true}
    {"prepare": [CANDIDATE, ...]}        {"at": PLACE} before each, then {"found": [FOUND, ...]}
    {"measure": [PLACE, ...], "rounds": N}   {"at": PLACE} before each sample, then
                                             {"seconds": [[...], ...]}, by place and round

The engine writes TEXT and CANDIDATE. PLACE numbers the prepared candidates. FOUND is null for a
candidate with right results, else [status, reason].
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.ir import ops  # noqa: F401  (kernels name them)
from tilewright.ir.dtype import FLOAT

from ..engine import Engine
from . import engines
from .operands import case_of

SAMPLE = 1e-3
"""The least seconds of a sample. Of a fast kernel a sample has many launches."""
TRIES = 3
"""Samples of a round. The shortest counts, as disturbances only lengthen a launch."""
MOST = 256
"""The most launches of a sample."""
_PR_SET_PDEATHSIG = 1


class Trial:
    """A kernel with operands and expected results."""

    def __init__(self, kernel: Any, engine: Engine[Any]):
        """kernel: as the engine reads it."""
        self.kernel, self.engine = kernel, engine
        self.device = engine.device()
        self.case = engine.case(self.device, kernel) or case_of(kernel)
        self.scalars = self.case.scalars
        self.buffers = [*self._before(), *map(self.device.from_numpy, self.case.inputs)]
        self.launches: list[Any] = []

    def prepare(self, candidates: Sequence[Any], answer: Any) -> list[Any]:
        """Compile and check candidates: None or (status, reason) for each. Their launches are added
        to `launches`."""
        first = len(self.launches)
        made = self.engine.launches(self.device, self.kernel, candidates)
        self.launches += made
        found = []
        for place, launch in enumerate(made, first):
            answer({"at": place})
            found.append(self._check(launch))
        return found

    def _before(self) -> list[Any]:
        """Fresh outputs. They are copies, as a device may take an array as its memory."""
        return [self.device.from_numpy(each.copy()) for each in self.case.before]

    def _check(self, launch: Any) -> tuple[str, str] | None:
        if isinstance(launch, Exception):
            return "failed", f"{type(launch).__name__}: {launch}"
        fresh = self._before()
        try:
            launch([*fresh, *self.buffers[len(fresh) :]], self.scalars)
            self.device.synchronize()
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"
        for buffer, out, expected in zip(self.kernel.outputs, fresh, self.case.expected):
            away = difference(self.device.to_numpy(out).reshape(-1), expected, self.kernel)
            if away is not None:
                return "wrong", f"{buffer.name}: {away}"
        return None

    def measure(self, places: Sequence[int], rounds: int, answer: Any) -> list[list[float]]:
        out: list[list[float]] = [[] for _ in places]
        samples = []
        for place in places:
            answer({"at": place})
            once = self._time(self._repeated(place, 1), 1)
            count = max(min(math.ceil(SAMPLE / max(once, 1e-7)), MOST), 1)
            samples.append((self._repeated(place, count), count))
        for _ in range(rounds):
            for place, times, (run, count) in zip(places, out, samples):
                answer({"at": place})
                times.append(self._time(run, count))
        return out

    def _repeated(self, place: int, count: int) -> Any:
        """A function that launches a candidate several times."""
        used, numbers = tuple(range(len(self.buffers))), tuple(range(len(self.scalars)))
        bound = [(self.launches[place], used, numbers)] * count
        run, together = self.device.runs(bound).get(0, (None, 0))
        if run is not None and together == count:
            run(self.buffers, self.scalars)
            return lambda: run(self.buffers, self.scalars)
        launch = self.launches[place]

        def each() -> None:
            for _ in range(count):
                launch(self.buffers, self.scalars)

        return each

    def _time(self, run: Any, count: int) -> float:
        least = math.inf
        for _ in range(TRIES):
            self.device.synchronize()
            start = time.perf_counter()
            run()
            self.device.synchronize()
            least = min(least, time.perf_counter() - start)
        return least / count


def difference(found: np.ndarray, expected: np.ndarray, kernel: Kernel | Bundle) -> str | None:
    """The error in an output, or None.

    Sums may be in another order, and so a comparison with a sum may turn out the other way.
    """
    if found.dtype.kind in "biu":
        share = np.mean(found != expected) if found.size else 0.0
        rounded = any(b.dtype.category == FLOAT for b in kernel.inputs)
        limit = 1e-3 if rounded else 0.0
        return f"{share:.1%} of the elements differ" if share > limit else None
    eps = float(ml_dtypes.finfo(found.dtype).eps)
    limit = max(16 * eps, 1e-10) if eps < 1e-10 else max(4 * eps, 2e-4)
    a, b = (x.astype(np.float64) for x in (found, expected))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = b[np.isfinite(b)]
    scale = np.abs(b) + (math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        wrong = ~(same | (np.abs(a - b) <= limit * scale))
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    return f"element {at} is {a[at]:.6g}, expected {b[at]:.6g}"


def _end_with_parent() -> None:
    """Have the system kill this process when its parent ends, whatever a candidate is doing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    _end_with_parent()
    # Prints of libraries must not mix with the answers.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(message: Any) -> None:
        channel.write(json.dumps(message) + "\n")

    trial: Trial | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "kernel" in asked:
                engine = engines.named(asked["engine"])
                trial = Trial(engine.read(asked["kernel"]), engine)
                answer({"ready": True})
                continue
            assert trial is not None, "the kernel comes first"
            if "prepare" in asked:
                answer({"found": trial.prepare(asked["prepare"], answer)})
            else:
                answer({"seconds": trial.measure(asked["measure"], asked["rounds"], answer)})
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
