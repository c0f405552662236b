"""The GPU rows of the goals beside PyTorch eager, torch.compile, cuBLAS and cuDNN on one card.

    python bench/gpu.py [--json FILE] [--only PIECE ...] [--minutes 9] [--device cuda]

Pieces: questions (checks for a first run on a card), tests (those marked `gpu`), memory, gemm,
float32 (products that aren't rounded to TF32), epilogue, grouped, attention, conv, model,
kernelbench (200 problems, more than all other pieces: run it alone).

Results are compared before anything is timed: with PyTorch's in float64, and for kernelbench with
PyTorch's own. Times are medians by CUDA events, with the cache flushed before each call. Repeated
work is replayed as a CUDA graph. Rows are saved one by one, so an interrupted run counts. Without
PyTorch only our side is measured, and nothing is compared.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import gpu_rows
import kernelbench
import numpy as np
import predicted
import timing
from card import Card, errors, interleaved, kernels, sample
from gpu_rows import Row

SIDE, COPIED = 4096, 1 << 25
"""Rows and columns of a large product; numbers of a large copy."""
FLUSHES, OVERLAPS = 50, 20
"""Runs whose median tells what a flush costs, and what copies beside products take."""
PIECES = ("questions", "tests", *gpu_rows.PIECES, "kernelbench")
COLUMNS = (
    "name", "ours_ms", "torch_ms", "ratio", "compile_ratio", "share", "tflops", "roofline",
    "predicted_ms", "goal", "reached",
)  # fmt: skip


class Benchmark:
    def __init__(self, options: argparse.Namespace, tw: Any, torch: Any):
        self.options, self.tw, self.torch = options, tw, torch
        self.rows: list[dict[str, Any]] = []
        self.end = time.monotonic() + 60 * options.minutes
        self.ours = Card(tw, options.device)
        self.theirs = Card(torch, options.device) if torch is not None else None
        self.bandwidth = 0.0

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        timing.save(self.rows, self.options)
        figures = "  ".join(
            f"{k} {timing.text(v)}" for k, v in row.items() if k not in ("name", "kernels")
        )
        print(f"{row['name']}: {figures}", file=sys.stderr, flush=True)

    def run(self) -> None:
        wanted = self.options.only or PIECES
        for piece in PIECES:
            if piece not in wanted:
                continue
            if piece == "questions":
                for name, answer in questions(self.tw, self.options.device):
                    self.add({"name": name, "answer": answer})
            elif piece == "tests":
                self.add({"name": "tests marked gpu", "answer": tests(self.end)})
            elif piece == "kernelbench":
                self.kernelbench()
            else:
                self.measure_all(piece)

    def kernelbench(self) -> None:
        problems = kernelbench.chosen(list(kernelbench.LEVELS), [])
        arguments = kernelbench.FULL, self.options.device, self.tw, self.torch, self.end
        found = []
        for row in kernelbench.rows(problems, *arguments):
            found.append(row)
            self.add(row)
        for row in kernelbench.summaries(found):
            self.add({**row, "reached": row["ratio"] >= row["goal"]})

    def measure_all(self, piece: str) -> None:
        for row in gpu_rows.PIECES[piece]:
            if time.monotonic() > self.end:
                self.add({"name": row.name, "goal": row.goal, "error": "no time was left"})
                continue
            try:
                self.add(self.measure(row))
            except Exception as error:  # keep the other rows
                text = f"{type(error).__name__}: {error}"[:500]
                self.add({"name": row.name, "goal": row.goal, "error": text})
        ratios = [r["ratio"] for r in self.rows if r.get("piece") == piece and r.get("ratio")]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            self.add({"name": f"{piece}, geometric mean", "ratio": mean})

    def measure(self, row: Row) -> dict[str, Any]:
        if row.measure == "bandwidth" and not self.bandwidth:
            self.bandwidth = self.copy_bandwidth()
        found: dict[str, Any] = {"name": row.name}
        step, results = row.make(self.tw, self.options.device, row.dtype)
        candidates = {"ours": (self.ours, step)}
        if self.theirs is not None:
            found |= self.compare(row, results())
            # Made anew, as the comparison changed the weights.
            candidates["torch"] = (
                self.theirs,
                row.make(self.torch, self.options.device, row.dtype)[0],
            )
            if row.compiled:
                made = row.make(self.torch, self.options.device, row.dtype)[0]
                candidates["compile"] = self.theirs, self.torch.compile(made)
        times = interleaved(candidates)
        if self.theirs is not None:
            found["kernels"] = {n: self.kernels(*candidates[n]) for n in ("ours", "torch")}
        found |= {f"{name}_ms": ms for name, ms in times.items()}
        ours = times["ours"]
        for name, key in (("torch", "ratio"), ("compile", "compile_ratio")):
            if name in times:
                found[key] = times[name] / ours
        if row.flops:
            found["tflops"] = row.flops / ours * 1e-9
        if row.bytes and self.bandwidth:
            found["share"] = row.bytes / (ours * 1e-3) / self.bandwidth
        chip = target_of(self.tw, self.options.device).chip
        digits = row.dtype == "float32"
        products = row.flops / chip.flops(getattr(self.tw, row.dtype), digits=digits)
        found["roofline"] = max(row.bytes / chip.bandwidth, products) * 1e3 / ours
        assert found["roofline"] < 1.1, f"{ours:.3g} ms is less than the card needs: was it done?"
        found["predicted_ms"] = predicted.milliseconds(self.tw, step)
        reached = found.get(
            {"bandwidth": "share", "compiled": "compile_ratio"}.get(row.measure, row.measure)
        )
        return {
            **found,
            "goal": row.goal,
            "measure": row.measure,
            "reached": None if reached is None else reached >= row.goal,
            "piece": next(p for p, rows in gpu_rows.PIECES.items() if row in rows),
        }

    def kernels(self, card: Card, step: Callable[[], Any]) -> dict[str, float]:
        """Microseconds of each kernel of a call. The recorded event runs our call."""

        def recorded() -> Any:
            result = step()
            card.torch.cuda.Event().record()
            return result

        return kernels(self.torch, recorded)

    def compare(self, row: Row, ours: list[Any]) -> dict[str, Any]:
        """Our error and PyTorch's against float64. AssertionError if ours is much larger."""
        mine = [sample(r) for r in ours]

        def theirs(dtype: str) -> list[Any]:
            return [sample(r) for r in row.make(self.torch, self.options.device, dtype)[1]()]

        exact = [r.numpy() for r in theirs("float64")]
        known, found = errors(theirs(row.dtype), exact), errors(mine, exact)
        self.torch.cuda.empty_cache()
        assert found <= max(2 * known, row.tolerance), (
            f"{row.name}: our error is {found:.3g} of the largest element, PyTorch's {known:.3g}"
        )
        return {"our_error": found, "torch_error": known}

    def copy_bandwidth(self) -> float:
        """Bytes a second of a large copy, read and written."""
        card = self.theirs or self.ours
        source = card.torch.empty(1 << 28, dtype=card.torch.float32, device=self.options.device)
        target = card.torch.empty_like(source)
        ms = statistics.median(card.milliseconds(lambda: target.copy_(source), 20))
        found = 2 * 4 * (1 << 28) / (ms * 1e-3)
        self.add({"name": "copy bandwidth, TB/s", "answer": found * 1e-12})
        return found


def target_of(tw: Any, device: str) -> Any:
    """The codegen target of a GPU."""
    return card_of(tw, device).target


def questions(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Checks for a first run on a card. A failure is an answer too."""
    for ask in (about, first_kernels, tiles, host_times, early_starts, ended_amid_work, neighbours):
        try:
            yield from ask(tw, device)
        except Exception as error:
            yield ask.__name__.replace("_", " "), f"{type(error).__name__}: {error}"[:500]
    yield "a copy beside products, ms", attempt(overlap, tw, device)
    yield "graphs", attempt(graphs)
    yield "kernels that the host ran", attempt(lambda: card_of(tw, device).fallbacks)
    yield "kernels refused tensor maps", attempt(lambda: card_of(tw, device).refused)


def attempt(work: Callable[..., Any], *args: Any) -> Any:
    """The result of work(*args), or its error as text."""
    try:
        return work(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]


def card_of(tw: Any, device: str) -> Any:
    """The runtime's device."""
    from tilewright.runtime import devices

    return devices.get(tw.zeros((), device=device)._typed()[2])


def about(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Facts about the machine."""
    from tilewright.runtime.cuda import driver

    card = card_of(tw, device)
    found = tw.cuda.get_device_properties(device)
    yield "GPU", f"{found.name}, {found.multi_processor_count} multiprocessors, {card.target.name}"
    yield "driver", driver.get().number("cuDriverGetVersion")
    yield "assembler", card.kernels.assembler or "Triton's own choice"
    for module in ("triton", "cuda.core", "cuda.bindings", "torch"):
        try:
            yield module, str(getattr(importlib.import_module(module), "__version__", "there"))
        except ImportError:
            yield module, "missing"
    yield "gcc", shutil.which("gcc") or "missing"


def first_kernels(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Whether kernels compiled here load and are right, also with much shared memory."""
    start = time.perf_counter()
    x = tw.arange(1 << 20, dtype=tw.float32, device=device)
    total = float((x * 2 + 1).sum())
    yield "a kernel compiled here runs", total == float((1 << 20) * ((1 << 20) - 1) + (1 << 20))
    yield "first kernel, s", time.perf_counter() - start
    a = tw.ones(512, 512, dtype=tw.bfloat16, device=device)
    yield "a product in bfloat16", float((a @ a)[3, 5]) == 512.0
    shared = [f.shared for f in card_of(tw, device).kernels._loaded.values() if f is not None]
    yield "shared memory of its largest kernel, KB", max(shared) / 1024


def tiles(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Tiles copied by hardware, for every form of matrix with a tensor map."""
    yield "a large product, tiles copied by hardware", attempt(walked, tw, device)
    yield "tiles of rows that overlap", attempt(overlapping, tw, device)
    yield "a convolution, boxes copied by hardware", attempt(sliding, tw, device)


def host_times(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """The host's time for a flush."""
    from tilewright import recording

    y = tw.zeros(1024, device=device)

    def step() -> None:
        nonlocal y
        y = y + 1

    def chained() -> None:
        nonlocal y
        for _ in range(16):
            y = y.flip(0).cumsum(0) * 0.5

    for name, work in (("one kernel", step), ("16 x 2 kernels, as a graph", chained)):
        times = []
        for _ in range(FLUSHES):
            work()
            start = time.perf_counter()
            recording.flush()
            times.append(time.perf_counter() - start)
            tw.cuda.synchronize()
        yield f"host time of a flush of {name}, us", statistics.median(times[FLUSHES // 5 :]) * 1e6


ENDING = """
import sys, threading
import tilewright as tw
from tilewright import recording
x = tw.ones(int(sys.argv[2]), device=sys.argv[1])
side = tw.cuda.Stream()
with tw.cuda.stream(side):
    y = (x * 2).to("cpu", non_blocking=True)
event = tw.cuda.Event(enable_timing=True)
event.record()
thread = threading.Thread(target=lambda: globals().pop("event"))
thread.start(), thread.join()
z = x.cumsum(0) + 1
recording.flush()
"""


def ended_amid_work(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Whether a process ends cleanly while its streams have work to do."""
    command = [sys.executable, "-c", ENDING, device, str(COPIED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    yield "a process that ends amid work", f"exit status {done.returncode} {done.stderr[-300:]}"


CHAIN = """
import statistics, sys
import tilewright as tw
from tilewright import recording
x = tw.ones(64, 64, device=sys.argv[1])
times = []
for _ in range(300):
    start, end = (tw.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(16):
        x = x.flip(0).cumsum(0).tanh()
    start.record()
    recording.flush()
    end.record()
    end.synchronize()
    times.append(start.elapsed_time(end) * 1e3)
print(statistics.median(times[100:]))
"""


def early_starts(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """What a graph of small kernels takes, each behind the other, with and without early starts."""
    for pdl in ("0", "1"):
        environment = {**os.environ, "TW_PDL": pdl, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", CHAIN, device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        found = done.stdout.strip() or done.stderr[-300:]
        yield f"a graph of small kernels, TW_PDL={pdl}, us", found


def neighbours(tw: Any, device: str) -> Iterator[tuple[str, Any]]:
    """Copies between GPUs, where there are several."""
    count = tw.cuda.device_count()
    if count < 2:
        return
    yield "GPUs, the first reaches the second", (count, tw.cuda.can_device_access_peer(0, 1))
    x = tw.arange(1 << 20, dtype=tw.int32, device="cuda:0") * 3
    back = (x.to("cuda:1") + 1).to("cuda:0") - 1
    yield "a copy there and back is exact", bool((back == x).all())


def graphs() -> str:
    """Counts of launch sequences that became graphs, and of those that the driver refused."""
    from tilewright.runtime import tiers
    from tilewright.runtime.cuda.graphs import Replay

    runs = [r for p in tiers.plans() for s in p.segments for r, _ in s.runs.values()]
    found = [r for r in runs if isinstance(r, Replay)]
    return f"{sum(bool(r._graphs) for r in found)} made, {sum(r._refused for r in found)} refused"


def walked(tw: Any, device: str) -> bool:
    """Whether a product whose programs walk through its tiles is exact. All its sums are multiples
    of 128."""
    i, k = (np.arange(n, dtype=np.float32) for n in (SIDE, 512))
    a, b = (i[:, None] + k) % 4, (k[:, None] + i) % 2
    left, right = (tw.tensor(x).to(device).to(tw.bfloat16) for x in (a, b))
    return np.array_equal((left @ right).float().cpu().numpy(), a @ b)


def overlapping(tw: Any, device: str) -> bool:
    """Whether a product with windows of a signal, which begin 16 bytes apart, is right."""
    rng = np.random.default_rng(0)
    x = rng.integers(4, size=8 * SIDE + 512).astype(np.float32)
    b = rng.integers(2, size=(512, SIDE)).astype(np.float32)
    signal, right = (tw.tensor(v).to(device).to(tw.bfloat16) for v in (x, b))
    found = signal.unfold(0, 512, 8) @ right
    windows = np.lib.stride_tricks.sliding_window_view(x, 512)[::8]
    return np.allclose(found.float().cpu().numpy(), windows @ b, rtol=2**-8, atol=0)


def sliding(tw: Any, device: str) -> bool:
    """Whether a convolution is exact, also around the image and where boxes reach beyond it. A
    second one behind it makes its result lie with channels last."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, size=(3, 64, 93, 91)).astype(np.float32)
    w, v = (
        rng.integers(-1, 2, size=(64, 64, *taps)).astype(np.float32) for taps in ((3, 3), (1, 1))
    )
    image, first, second = (tw.tensor(a).to(device).to(tw.bfloat16) for a in (x, w, v))
    conv = tw.nn.functional.conv2d
    found = conv(conv(image, first, padding=1).clamp(-8, 8), second)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    y = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True).clip(-8, 8)
    wanted = np.einsum("nchw,oc->nohw", y, v[:, :, 0, 0], optimize=True)
    return np.array_equal(found.float().cpu().numpy(), tw.tensor(wanted).bfloat16().float().numpy())


def overlap(tw: Any, device: str) -> str:
    """Times of a copy from pinned memory and of products, alone and in two streams at once."""
    host, side = tw.ones(COPIED).pin_memory(), tw.cuda.Stream(device)
    a = tw.ones(SIDE, SIDE, dtype=tw.bfloat16, device=device)
    kept: list[Any] = []

    def copy() -> None:
        with tw.cuda.stream(side):
            kept.append(host.to(device, non_blocking=True))

    def compute() -> None:
        kept.append(a @ a @ a @ a @ a @ a @ a @ a @ a)

    def milliseconds(*work: Callable[[], None]) -> float:
        times = []
        for _ in range(OVERLAPS):
            kept.clear()
            tw.cuda.synchronize(device)
            start = time.perf_counter()
            for each in work:
                each()
            tw.cuda.synchronize(device)
            times.append(time.perf_counter() - start)
        return statistics.median(times[OVERLAPS // 4 :]) * 1e3

    alone = [milliseconds(copy), milliseconds(compute)]
    return f"{milliseconds(copy, compute):.3f} together, {alone[0]:.3f} and {alone[1]:.3f} alone"


def tests(end: float) -> str:
    """The outcome of the tests marked `gpu`, within the remaining time."""
    root = Path(__file__).resolve().parents[1]
    # Other tests may need packages that this machine lacks.
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    command += ["tests/runtime/cuda/test_cuda_gpu.py"]
    left = max(10.0, min(180.0, end - time.monotonic()))
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=left)
    except subprocess.TimeoutExpired as error:
        seen = error.stdout or b""
        lines = (seen if isinstance(seen, str) else seen.decode(errors="replace")).splitlines()
        print("\n".join(lines[-60:]), file=sys.stderr)
        return f"not done after {left:.0f} s, in: {lines[-1] if lines else 'nothing was printed'}"
    print(done.stdout[-4000:], done.stderr[-2000:], file=sys.stderr)
    return (done.stdout.strip() or done.stderr.strip() or "nothing was printed").splitlines()[-1]


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=PIECES, metavar="PIECE", help=", ".join(PIECES)
    )
    parser.add_argument("--minutes", type=float, default=9, help="after which no row is begun")
    parser.add_argument("--device", default="cuda", help="which card")
    options = parser.parse_args()
    import tilewright as tw

    if not tw.cuda.is_available():
        from tilewright.runtime.cuda import driver

        sys.exit(f"bench/gpu.py needs a CUDA device: {driver.reason_against()}")
    for part in ("nn", "optim", "amp"):
        importlib.import_module(f"tilewright.{part}")
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        torch = None
        print("There is no PyTorch for this card: nothing is compared", file=sys.stderr)
    benchmark = Benchmark(options, tw, torch)
    try:
        benchmark.run()
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
    timing.report(benchmark.rows, COLUMNS, options)
    answers = [r for r in benchmark.rows if "answer" in r or "error" in r]
    for row in answers:
        print(f"{row['name']}: {row.get('answer', row.get('error'))}")


if __name__ == "__main__":
    main()
