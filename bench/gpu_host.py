"""The host's time for what a GPU is asked to do: a launch, a flush, a block of memory, a copy.

The driver is a library that does next to nothing (`tests/support/fake_libcuda.c`, built by gcc), so
no GPU is needed and nothing but the host's work is measured. Times are medians in microseconds. The
least of several rounds counts, as clocks and neighbours change. --step adds the processor's time of
a training step of GPT-2 (12 layers, 8 x 1,024 tokens, AdamW), whose kernels are compiled first.
--sizes adds that of work in sizes that are new: the tokens of a text whose keys grow, and training
steps of another length each. It is the time of plans, as most kernels were compiled by a first run.

python bench/gpu_host.py [--step] [--sizes] --json host.json
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


def of_a_token() -> float:
    """Microseconds of the processor for the next token of a text, of 12 layers whose keys grow."""
    import tilewright as tw
    import tilewright.nn as nn
    import tilewright.nn.functional as F

    width, heads, layers, tokens = 128, 4, 12, 56

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, past: Any) -> Any:
            count, length, _ = x.shape
            joint = self.joint(self.before(x)).view(count, length, 3, heads, width // heads)
            q, k, v = joint.permute(2, 0, 3, 1, 4)
            if past is not None:
                k, v = tw.cat([past[0], k], 2), tw.cat([past[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.between(x)))), (k, v)

    blocks = nn.ModuleList([Block() for _ in range(layers)]).to("cuda")
    embedding, head = nn.Embedding(100, width).to("cuda"), nn.Linear(width, 100).to("cuda")
    ids, past, times = tw.zeros(1, 8, dtype=tw.int64, device="cuda"), [None] * layers, []
    with tw.no_grad():
        for _ in range(tokens):
            start = time.thread_time_ns()
            x = embedding(ids)
            for i, block in enumerate(blocks):
                x, past[i] = block(x, past[i])
            head(x[:, -1:]).argmax(-1).tolist()
            times.append(time.thread_time_ns() - start)
            ids = tw.zeros(1, 1, dtype=tw.int64, device="cuda")
    return statistics.median(times) / 1e3


def of_a_length() -> float:
    """Microseconds of the processor for a training step of a Transformer of two layers, with a
    length that it hasn't met."""
    import tilewright as tw
    import tilewright.nn as nn
    import tilewright.nn.functional as F
    import tilewright.optim

    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(100, 64),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Linear(64, 100),
    ).to("cuda")
    optimizer = tilewright.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for turn in range(60):
        length = 17 + 37 * turn % 103  # every second one of many, in no order
        start = time.thread_time_ns()
        ids = tw.zeros(8, length, dtype=tw.int64, device="cuda")
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.thread_time_ns() - start)
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
    parser.add_argument("--sizes", action="store_true", help="also work in sizes that are new")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        found = measured()
        if options.step:
            found["a training step of GPT-2"] = round(of_a_step())
        if options.sizes:
            found["a token, keys grow, 12 layers"] = round(of_a_token())
            found["a training step of another length, 2 layers"] = round(of_a_length())
        print(json.dumps(found))
        return
    import timing

    from tests.support import fake_libcuda
    from tilewright.runtime.driver import PROTOTYPES

    with tempfile.TemporaryDirectory() as folder:
        fake_libcuda.build(Path(folder), PROTOTYPES)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--inside"]
        command += ["--step"] * options.step + ["--sizes"] * options.sizes
        for _ in range(1 + options.sizes):  # the first run compiles kernels for these sizes
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
    found = json.loads(done.stdout)
    for name, time_taken in found.items():
        print(f"{time_taken:8.2f}  {name}")
    timing.save([{"name": name, "us": us} for name, us in found.items()], options)


if __name__ == "__main__":
    main()
