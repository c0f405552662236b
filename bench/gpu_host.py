"""The host's time for what a GPU is asked to do: a launch, a flush, a block of memory, a copy.

The driver is a library that does next to nothing (`tests/support/fake_libcuda.c`, built by gcc), so
no GPU is needed and nothing but the host's work is measured. Times are medians in microseconds. The
least of several rounds counts, as clocks and neighbours change. --step adds the processor's time of
a training step of GPT-2 (12 layers, 8 x 1,024 tokens, AdamW), whose kernels are compiled first.

python bench/gpu_host.py [--step] --json host.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROUNDS, CALLS = 12, 400


def median(work: Callable[[], Any]) -> float:
    """Microseconds a call."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e3


def rows() -> dict[str, Callable[[], Any]]:
    """The pieces of work, by name."""
    import numpy as np

    import tilewright as tw
    from tilewright import recording
    from tilewright.runtime import devices

    tw.set_num_threads(1)
    x = tw.ones(1024, device="cuda")
    recording.flush()
    card: Any = devices.get("cuda:0")
    launched: list[tuple[Any, list[Any], list[Any]]] = []

    def one_kernel() -> None:
        y = x * 2.5  # noqa: F841
        recording.flush()

    from tilewright.runtime.cuda.launch import Launcher

    direct = Launcher.__call__

    def noted(launcher: Any, buffers: Any, scalars: Any) -> None:
        launched.append((launcher, list(buffers), list(scalars)))
        direct(launcher, buffers, scalars)

    Launcher.__call__ = noted  # type: ignore[method-assign]
    for _ in range(3):
        one_kernel()
    Launcher.__call__ = direct  # type: ignore[method-assign]
    launch, buffers, scalars = launched[-1]
    places = [[card.empty(b.shape, b.dtype) for b in buffers] for _ in range(2)]
    one, number = card.empty((1,), buffers[0].dtype), np.ones(1, np.float32)

    def elsewhere() -> None:
        places.reverse()
        launch(places[0], scalars)

    def towers() -> None:
        y = [x * 2.5, x * 3.5, x * 4.5]
        for _ in range(10):
            y = [each.cumsum(0) for each in y]
        kept.append(y)
        recording.flush()
        kept.clear()

    kept: list[Any] = []
    return {
        "a launch with the addresses of the last one": lambda: launch(buffers, scalars),
        "a launch with other addresses": elsewhere,
        "an event, made and recorded": lambda: card.context.event().record(),
        "a block of memory, taken and given back": lambda: card.pool.allocate(4096, "a block"),
        "a flush of one kernel": one_kernel,
        "a graph of 30 kernels with three results, recorded and flushed": towers,
        "a number copied to the GPU": lambda: card.write(one, number),
        "a number read": lambda: card.to_numpy(one),
        "a number computed and read": lambda: (x * 2.5)[0].item(),
    }


def of_a_step() -> float:
    """Microseconds of the processor for a training step of GPT-2."""
    import models

    import tilewright as tw
    import tilewright.optim
    from tilewright import recording

    sizes = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
    model = models.gpt(tw, **sizes, fused_attention=True).to("cuda")
    optimizer = tilewright.optim.AdamW(model.parameters(), lr=1e-3)
    ids = tw.zeros(8, 1024, dtype=tw.int64, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with tw.autocast("cuda", tw.bfloat16):
            loss = model(ids, ids)
        loss.backward()
        optimizer.step()
        recording.flush()

    times = []
    for turn in range(40):
        start = time.process_time_ns()
        step()
        times += [time.process_time_ns() - start] if turn >= 10 else []
    return statistics.median(times) / 1e3


def measured() -> dict[str, float]:
    work = rows()
    for each in work.values():
        median(each)
    found = {name: [median(each)] for name, each in work.items()}
    for _ in range(ROUNDS - 1):
        for name, each in work.items():
            found[name].append(median(each))
    return {name: round(min(times), 2) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--json", help="the file for the results")
    parser.add_argument("--step", action="store_true", help="also a training step of GPT-2")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        found = measured()
        if options.step:
            found["a training step of GPT-2"] = round(of_a_step())
        print(json.dumps(found))
        return
    import timing

    from tests.support import fake_libcuda
    from tilewright.runtime.driver import PROTOTYPES

    with tempfile.TemporaryDirectory() as folder:
        fake_libcuda.build(Path(folder), PROTOTYPES)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--inside", *["--step"] * options.step]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found = json.loads(done.stdout)
    for name, time_taken in found.items():
        print(f"{time_taken:8.2f}  {name}")
    timing.save([{"name": name, "us": us} for name, us in found.items()], options)


if __name__ == "__main__":
    main()
